//! Files written where free space lies scattered: their blocks are gathered
//! into what clusters there are.

use super::recount::recount;
use super::shapes::{Shape, image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ffs::{FfsImage, FfsLive, LiveOptions, Version};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::ByteLen;
use std::sync::Arc;

/// Pieces that a file of 60 blocks lies in, when the front of the volume has
/// single free blocks only.
fn pieces(shape: &Shape, discipline: Discipline, reallocblks: bool) -> usize {
    let device = image(shape);
    let clock = Arc::new(VirtualClock::new());
    let how = LiveOptions { reallocblks, ..options() };
    let mut live = FfsLive::open(device.clone(), clock, Config::new(discipline), how).unwrap();
    let owner = Ownership { uid: 0, gid: 0, perm: 0o644 };
    let root = live.root();
    let block = vec![7; shape.block as usize];
    for n in 0..200 {
        let ino = live.make(root, format!("{n}").as_bytes(), NewFile::Regular, owner).unwrap().ino;
        live.write(ino, ByteLen::ZERO, &block).unwrap();
    }
    for n in (0..200).step_by(2) {
        live.unlink(root, format!("{n}").as_bytes()).unwrap();
    }
    live.sync().unwrap();
    let file = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
    let contents: Vec<u8> = (0..60 * block.len()).map(|at| (at / 511 * 31 + at) as u8).collect();
    for (n, part) in contents.chunks(block.len()).enumerate() {
        live.write(file, ByteLen::new((n * block.len()) as u64), part).unwrap();
    }
    live.unmount().unwrap();
    drop(live);
    recount(&device);
    let report = seekless_ffs::check(device.clone()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let image = FfsImage::open(device, OpenOptions::default()).unwrap();
    let mut read = vec![0; contents.len()];
    assert_eq!(image.read(file, ByteLen::ZERO, &mut read).unwrap(), read.len());
    assert!(read == contents);
    image.block_map(file).unwrap().runs.len()
}

#[test]
fn new_blocks_are_gathered_into_clusters() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let shape = Shape { version, block: 4096, fragment: 512, mebibytes: 24, big_endian: false };
        for discipline in [Discipline::SoftUpdates, Discipline::Async] {
            let (scattered, gathered) =
                (pieces(&shape, discipline, false), pieces(&shape, discipline, true));
            assert!(scattered > 20, "{scattered} pieces");
            // Sixteen blocks are the longest cluster, and none crosses an
            // indirect block.
            assert!(gathered <= 8, "{gathered} pieces instead of {scattered}");
        }
        // What is on the disk at once cannot be gathered.
        let written = pieces(&shape, Discipline::Sync, true);
        assert!(written > 20, "{written} pieces");
    }
}
