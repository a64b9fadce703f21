//! What it costs to make changes durable.

use super::SHAPES;
use super::shapes::{Shape, image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ffs::{FfsLive, Version};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode};
use seekless_units::ByteLen;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn open(device: &Arc<seekless_device::MemoryDevice>) -> FfsLive {
    let clock = Arc::new(VirtualClock::new());
    FfsLive::open(device.clone(), clock, Config::new(Discipline::SoftUpdates), options()).unwrap()
}

/// What has been changed is looked at, and not where all of the file lies.
#[test]
fn a_long_file_is_not_walked() {
    for shape in &SHAPES {
        let device = image(shape);
        let mut live = open(&device);
        let file = live.make(live.root(), b"file", NewFile::Regular, OWNER).unwrap().ino;
        let block = shape.block as usize;
        let per_indirect = block / if shape.version == Version::Ufs1 { 4 } else { 8 };
        // Into the second tree, where the volume has the room.
        let blocks = (12 + per_indirect + 20).min((shape.mebibytes as usize) * (1 << 19) / block);
        let contents = vec![7; blocks * block];
        assert_eq!(live.write(file, ByteLen::ZERO, &contents).unwrap(), contents.len());
        live.unmount().unwrap();
        let mut live = open(&device);
        assert_eq!(live.lookup(live.root(), b"file").unwrap(), Some(file));
        live.write(file, ByteLen::ZERO, b"new").unwrap();
        let (reads, written) = (live.counters().reads, live.counters().written_bytes);
        live.fsync(file).unwrap();
        assert_eq!(live.counters().reads, reads, "{shape:?}");
        // The block, and the inode's.
        let written = live.counters().written_bytes - written;
        assert!(written <= 3 * block as u64, "{written} bytes, {shape:?}");
    }
}

/// What the device is flushed for: once where nothing depends on anything else, once
/// for each level of dependencies, and never where there is nothing new.
#[test]
fn an_fsync_has_few_flushes() {
    for shape in &SHAPES {
        for discipline in [Discipline::SoftUpdates, Discipline::Async] {
            for barriers in [true, false] {
                let device = image(shape);
                let clock = Arc::new(VirtualClock::new());
                let mut config = Config::new(discipline);
                config.barriers = barriers;
                let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
                let file = live.make(live.root(), b"file", NewFile::Regular, OWNER).unwrap().ino;
                let flushes = |live: &mut FfsLive| {
                    let before = live.counters().flushes;
                    live.fsync(file).unwrap();
                    live.counters().flushes - before
                };
                let what = format!("{discipline}, barriers {barriers}, {shape:?}");
                live.write(file, ByteLen::ZERO, &[7; 3000]).unwrap();
                // Contents and bitmaps, the inode, the name.
                let levels = if barriers && discipline == Discipline::SoftUpdates { 3 } else { 1 };
                assert_eq!(flushes(&mut live), levels, "new, {what}");
                assert_eq!(flushes(&mut live), 0, "nothing new, {what}");
                // Over what is there: contents and times.
                live.write(file, ByteLen::ZERO, &[8; 3000]).unwrap();
                assert_eq!(flushes(&mut live), 1, "changed, {what}");
                assert_eq!(flushes(&mut live), 0, "nothing new, {what}");
            }
        }
    }
}

/// A new name that is put over the old one of the same name goes with it.
#[test]
fn names_that_come_and_go_are_written_once_a_turn() {
    let shape = Shape {
        version: Version::Ufs2,
        block: 4096,
        fragment: 512,
        mebibytes: 24,
        big_endian: false,
    };
    let device = image(&shape);
    let mut live = open(&device);
    let root = live.root();
    let names: Vec<String> = (0..1000).map(|n| format!("{n}")).collect();
    for name in &names {
        live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
    }
    live.sync().unwrap();
    let writes = |live: &FfsLive| live.counters().sync_writes + live.counters().async_writes;
    let before = writes(&live);
    for name in &names {
        let name = (root, name.as_bytes());
        live.rename(name, (root, b"temporary"), RenameMode::Replace).unwrap();
        live.rename((root, b"temporary"), name, RenameMode::Replace).unwrap();
        // What stands on each other is undone at every write: there is never much.
        let dependencies = live.parts().1.cache.blocks().softdeps();
        assert!(dependencies < 1000, "{dependencies} dependencies");
    }
    live.sync().unwrap();
    // The directory and the counts of links, each twice a name.
    let turns = writes(&live) - before;
    assert!(turns <= 4 * names.len() as u64 + 20, "{turns} writes for {} names", names.len());
}
