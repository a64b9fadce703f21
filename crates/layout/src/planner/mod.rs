//! Decides the place of everything: blocks touched by a trace first, in first-touch order, then the
//! rest in the order of a walk.
//!
//! The planner sees no bytes and no format, only a [`Demand`] and a [`Space`].
//! The order of preference is:
//!
//! 1. Touched blocks lie in one region that begins on a chunk's boundary: directory blocks, maps
//!    and file data in the order of their first touch. A large file's touched ranges may so lie
//!    apart from its other ones ([`scattered`] says which). Inodes that were touched take the first
//!    free numbers, in the same order.
//! 2. The rest follows in walk order. Directories of a stretch of it lie
//!    together before its files, so that a walk that only looks at names and
//!    attributes does not cross the data.
//! 3. Inodes of the rest keep the walk's order, each as near to its data as the
//!    order and the room in the tables allow; tables that follow each other on the
//!    disk are filled as one.
//!
//! With an older layout as a base ([`plan_on`]), the objects of the base keep their places, and only
//! the rest is placed by these rules: in holes that nothing keeps, the smallest that suffices, and else
//! in space that was free before.

mod base;
mod fill;
pub mod in_place;
mod inodes;
pub mod moves;
pub mod numbers;
pub mod planned;
pub mod scattered;
#[cfg(test)]
mod scattered_tests;
mod sequence;
mod storage;
#[cfg(test)]
mod tests;
mod touches;
mod walk;

use base::Held;
use fill::Filled;
use inodes::number_inodes;
use seekless_fs::FsError;
use seekless_fs::plan::{Base, Demand, ObjectId, Plan, Run, Space};
use sequence::Sequence;
use walk::TreeWalk;

pub use storage::{Storage, StorageKind};
pub use touches::{Part, Touch, touches};

/// How often everything is placed again for maps that grew.
const PASSES: u32 = 8;

/// Plans the layout of all that `demand` has. `hot` is in order of first touch
/// and may repeat itself; `align` is the chunk, in blocks, on whose boundary the
/// hot region begins (1: anywhere).
///
/// # Errors
/// [`FsError::NoSpace`] when blocks or inodes do not suffice.
pub fn plan(
    demand: &dyn Demand,
    space: &Space,
    hot: &[Touch],
    align: u64,
) -> Result<Plan, FsError> {
    plan_with(demand, Held::none(space), hot, align)
}

/// Plans the layout as [`plan`] does, but leaves in its place all that `base` has: numbers of
/// inodes, and blocks of contents, maps and attributes, as far as they are free in `space` and
/// still needed.
///
/// # Errors
/// As [`plan`].
pub fn plan_on(
    base: &Base,
    demand: &dyn Demand,
    space: &Space,
    hot: &[Touch],
    align: u64,
) -> Result<Plan, FsError> {
    plan_with(demand, Held::new(demand, space, base), hot, align)
}

fn plan_with(demand: &dyn Demand, held: Held, hot: &[Touch], align: u64) -> Result<Plan, FsError> {
    let walk = TreeWalk::new(demand, hot);
    let sequence = Sequence::new(demand, &held, &walk, hot);
    let mut overhead = Overhead::estimate(demand);
    let place = |overhead: &Overhead| Filled::new(demand, &held, &sequence, overhead, align);
    let mut filled = place(&overhead)?;
    // Where a piece meets the end of a free run it becomes two, and its map may grow by a block
    // that was not counted. Everything is placed again then, so that the map lies before the first
    // block it leads to; where that does not come to an end soon, or takes more room than there is,
    // the few blocks that are still missing go behind everything else.
    for _ in 0..PASSES {
        if !overhead.grow(demand, &filled) {
            break;
        }
        filled = match place(&overhead) {
            Err(FsError::NoSpace(_)) => {
                filled = place(&Overhead::estimate(demand))?;
                break;
            }
            again => again?,
        };
    }
    filled.supply(demand)?;
    let inodes = number_inodes(demand, &held, hot, &filled, &walk, align)?;
    Ok(filled.into_plan(demand, inodes))
}

/// Blocks for maps and attributes, by object.
struct Overhead(Vec<u32>);

impl Overhead {
    fn estimate(demand: &dyn Demand) -> Self {
        let mut runs = Vec::new();
        Self(
            objects(demand)
                .map(|object| {
                    if demand.is_pinned(object) {
                        return 0;
                    }
                    runs.clear();
                    demand.runs(object, &mut runs);
                    demand.overhead_blocks(object, &Run::apart(&runs)) as u32
                })
                .collect(),
        )
    }

    /// Takes up the map blocks that objects need as they were placed; whether any needs more than
    /// it was given.
    fn grow(&mut self, demand: &dyn Demand, filled: &Filled) -> bool {
        let mut grown = false;
        for object in objects(demand) {
            let given = &mut self.0[object.index()];
            let pieces = filled.pieces(object);
            if pieces.len() <= 1 && *given == 0 {
                continue;
            }
            let needed = demand.overhead_blocks(object, pieces) as u32;
            if needed > *given {
                *given = needed;
                grown = true;
            }
        }
        grown
    }
}

fn objects(demand: &dyn Demand) -> impl Iterator<Item = ObjectId> + use<> {
    (0..demand.objects() as u32).map(ObjectId::new)
}
