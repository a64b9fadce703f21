//! What the engine asks the device for.

use super::SHAPES;
use super::shapes::{image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ffs::FfsLive;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::ByteLen;
use std::sync::Arc;

/// An indirect block is read in one request, however many fragments it has.
#[test]
fn a_file_is_removed_with_few_reads() {
    for shape in &SHAPES {
        let device = image(shape);
        let open = || {
            let clock = Arc::new(VirtualClock::new());
            let config = Config::new(Discipline::Async);
            FfsLive::open(device.clone(), clock, config, options()).unwrap()
        };
        let mut live = open();
        let (root, owner) = (live.root(), Ownership { uid: 0, gid: 0, perm: 0o644 });
        let file = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
        // More than the twelve direct blocks, in one indirect block.
        let contents = vec![7; 100 * shape.block as usize];
        assert_eq!(live.write(file, ByteLen::ZERO, &contents).unwrap(), contents.len());
        live.unmount().unwrap();
        let mut live = open();
        live.lookup(root, b"file").unwrap().unwrap();
        let before = live.counters().reads;
        live.unlink(root, b"file").unwrap();
        live.sync().unwrap();
        // The inode, the indirect block, and the bitmaps of the groups.
        let reads = live.counters().reads - before;
        assert!(reads <= 6, "{reads} reads, blocks of {}", shape.block);
    }
}
