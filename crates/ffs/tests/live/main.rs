//! The live engine against a plain model of a file system in memory, for every
//! discipline and both formats; after unmounting, the image is read anew and
//! everything that is counted in it is counted again.

#![allow(missing_docs)]

mod model;
mod recount;
mod replay;

use recount::recount;
use replay::{Replay, Shape};
use seekless_cache::Discipline;
use seekless_ffs::Version;

const SHAPES: [Shape; 4] = [
    Shape { version: Version::Ufs1, block: 4096, fragment: 512, mebibytes: 24, big_endian: false },
    Shape { version: Version::Ufs2, block: 4096, fragment: 1024, mebibytes: 24, big_endian: false },
    Shape { version: Version::Ufs2, block: 16384, fragment: 2048, mebibytes: 32, big_endian: true },
    Shape { version: Version::Ufs1, block: 8192, fragment: 8192, mebibytes: 24, big_endian: true },
];

#[test]
fn random_operations_do_what_the_model_does() {
    for discipline in Discipline::ALL {
        for (n, shape) in SHAPES.iter().enumerate() {
            let seed = n as u64 + 1;
            let mut replay = Replay::new(shape, discipline, seed);
            replay.run(3000);
            recount(&replay.finish());
        }
    }
}

#[test]
fn a_full_volume_stays_whole() {
    for discipline in [Discipline::Async, Discipline::SoftUpdates] {
        for version in [Version::Ufs1, Version::Ufs2] {
            let shape =
                Shape { version, block: 4096, fragment: 512, mebibytes: 2, big_endian: false };
            let mut replay = Replay::new(&shape, discipline, 7);
            replay.run(4000);
            assert!(replay.full > 20, "the volume was never full");
            recount(&replay.finish());
        }
    }
}
