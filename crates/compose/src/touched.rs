//! The objects of a new volume that traces touch.

use seekless_fs::plan::{NewVolume, ObjectId};
use seekless_layout::planner::scattered::{blocks_in, gather};
use seekless_layout::planner::{Part, Storage, Touch};

/// The objects whose blocks are touched, in order.
pub(crate) fn hot_objects(touches: &[Touch]) -> Vec<ObjectId> {
    let read = |touch: &Touch| matches!(touch.part, Part::Blocks(_)).then_some(touch.object);
    touches.iter().filter_map(read).collect()
}

/// The touches of all that moves, with the blocks that share fragments with them.
pub(crate) fn moving(
    volume: &dyn NewVolume,
    touches: impl Iterator<Item = Touch>,
    storage: Storage,
) -> Vec<Touch> {
    let block_size = volume.block_size().into();
    let blocks = |object| blocks_in(volume.demand(), object);
    let (moving, _) = gather(touches.collect(), storage, block_size, &blocks);
    moving.into_iter().flat_map(|touch| with_shared(volume, touch)).collect()
}

/// A touch, and a touch of the block that shares fragments with it.
fn with_shared(volume: &dyn NewVolume, touch: Touch) -> impl Iterator<Item = Touch> {
    let shared = match touch.part {
        Part::Blocks(run) => volume.shared_block(touch.object, run),
        _ => None,
    };
    let shared = shared.map(|(object, run)| Touch { object, part: Part::Blocks(run) });
    std::iter::once(touch).chain(shared)
}
