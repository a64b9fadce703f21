//! The live engine on ext2 against a plain model of a file system in memory, for
//! every discipline and several shapes; after unmounting, the image is read anew,
//! and e2fsck finds nothing in it.

#![allow(missing_docs)]

mod hostile;
#[path = "../../../live/tests/replay/mod.rs"]
mod replay;
mod shapes;

use seekless_cache::Discipline;
use shapes::{SHAPES, fsck, replay};

#[test]
fn random_operations_do_what_the_model_does() {
    for discipline in Discipline::ALL {
        for (n, shape) in SHAPES.iter().enumerate() {
            let mut replay = replay(shape, discipline, n as u64 + 1);
            replay.run(3000);
            fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
        }
    }
}

#[test]
fn a_full_volume_stays_whole() {
    for discipline in [Discipline::Async, Discipline::Normal] {
        for block in [1024, 4096] {
            let shape = shapes::Shape { block, mebibytes: 3, ..SHAPES[0] };
            let mut replay = replay(&shape, discipline, 7);
            replay.run(4000);
            assert!(replay.full > 20, "the volume was never full");
            fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
        }
    }
}

#[test]
fn a_tree_removed_from_below_leaves_nothing() {
    for discipline in Discipline::ALL {
        for shape in &SHAPES {
            for seconds in [0, 2, 40] {
                let mut replay = replay(shape, discipline, 3);
                replay.nest_and_remove(12, seconds);
                fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
            }
        }
    }
}
