//! The objects of a new volume that traces touch.

use seekless_fs::plan::{NewVolume, ObjectId};
use seekless_layout::planner::{Part, Touch};

/// The objects whose blocks are touched, in order.
pub(crate) fn hot_objects(touches: &[Touch]) -> Vec<ObjectId> {
    let read = |touch: &Touch| matches!(touch.part, Part::Blocks(_)).then_some(touch.object);
    touches.iter().filter_map(read).collect()
}

/// A touch, and a touch of the block that shares fragments with it.
pub(crate) fn with_shared(volume: &dyn NewVolume, touch: Touch) -> impl Iterator<Item = Touch> {
    let shared = match touch.part {
        Part::Blocks(run) => volume.shared_block(touch.object, run),
        _ => None,
    };
    let shared = shared.map(|(object, run)| Touch { object, part: Part::Blocks(run) });
    std::iter::once(touch).chain(shared)
}
