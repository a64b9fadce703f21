//! Indexed directories keep their index: names go where their hashes want them,
//! leaves and nodes of the index are split, levels are added.

use super::shapes::{JOURNALLED, SHAPES, Shape, WITH_EXTENTS, fsck, image, image_with, options};
use crate::list::list;
use crate::property::for_all;
use crate::slice::some_or_all;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 1, gid: 2, perm: 0o644 };
/// ext2, and ext4 with checksums, with blocks of 1 KiB.
const PLAIN: usize = 0;
const SUMMED: usize = 5;

fn open(device: &Arc<MemoryDevice>, discipline: Discipline) -> ExtLive {
    open_in(device, discipline, ByteLen::new(4 << 20))
}

/// With so much memory for blocks.
fn open_in(device: &Arc<MemoryDevice>, discipline: Discipline, capacity: ByteLen) -> ExtLive {
    let clock = Arc::new(VirtualClock::new()) as Arc<dyn Clock>;
    let mut config = Config::new(discipline);
    config.capacity = capacity;
    ExtLive::open(device.clone(), clock, config, options()).unwrap()
}

fn reader(device: &Arc<MemoryDevice>) -> ExtImage {
    let device: Arc<dyn BlockDevice> = device.clone();
    ExtImage::open(device, OpenOptions::default()).unwrap()
}

/// A name is added, or the next one from a place on is removed or renamed: none of those that keep
/// the files.
#[derive(Clone, Debug)]
enum Op {
    Add(Name),
    Remove(u64),
    Rename(u64, Name),
}

/// Three bytes of which the sign matters, so many others, and the number of the operation.
#[derive(Clone, Debug)]
struct Name {
    first: [u8; 3],
    len: usize,
}

impl Name {
    fn of(&self, number: usize) -> Vec<u8> {
        let first = self.first.map(|byte| byte | 0x81);
        [&first[..], &vec![b'n'; self.len], number.to_string().as_bytes()].concat()
    }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        7 => name().prop_map(Op::Add),
        2 => (0x81u64 << 56..).prop_map(Op::Remove),
        1 => (0x81u64 << 56.., name()).prop_map(|(from, name)| Op::Rename(from, name)),
    ]
}

/// Short ones and long ones.
fn name() -> impl Strategy<Value = Name> {
    (any::<[u8; 3]>(), select(vec![3, 8, 20, 60, 190])).prop_map(|(first, len)| Name { first, len })
}

/// A directory and files with many names in it.
struct Crowd {
    device: Arc<MemoryDevice>,
    live: ExtLive,
    dir: Ino,
    files: Vec<Ino>,
    names: BTreeSet<Vec<u8>>,
    next: usize,
}

impl Crowd {
    fn new(device: Arc<MemoryDevice>, discipline: Discipline) -> Self {
        let live = open(&device, discipline);
        Self::of(device, live)
    }

    fn of(device: Arc<MemoryDevice>, mut live: ExtLive) -> Self {
        let root = live.root();
        let dir = live.make(root, b"crowd", NewFile::Directory, OWNER).unwrap().ino;
        let mut crowd = Self { device, live, dir, files: vec![], names: BTreeSet::new(), next: 0 };
        for n in 0..6 {
            let name = format!("file {n}").into_bytes();
            let made = crowd.live.make(dir, &name, NewFile::Regular, OWNER).unwrap();
            crowd.files.push(made.ino);
            crowd.names.insert(name);
        }
        crowd
    }

    fn add(&mut self, name: Vec<u8>) {
        // None gets more links than there may be.
        let file = self.files[self.next % self.files.len()];
        self.next += 1;
        self.live.link(file, self.dir, &name).unwrap();
        self.names.insert(name);
    }

    fn stir(&mut self, ops: &[Op]) {
        for (n, op) in ops.iter().enumerate() {
            let next = |from: &u64| self.names.range(from.to_be_bytes().to_vec()..).next().cloned();
            match op {
                Op::Add(name) => self.add(name.of(n)),
                Op::Remove(from) => {
                    let Some(name) = next(from) else { continue };
                    self.live.unlink(self.dir, &name).unwrap();
                    self.names.remove(&name);
                }
                Op::Rename(from, new) => {
                    let Some(name) = next(from) else { continue };
                    let (dir, new) = (self.dir, new.of(n));
                    self.live.rename((dir, &name), (dir, &new), RenameMode::Replace).unwrap();
                    self.names.remove(&name);
                    self.names.insert(new);
                }
            }
        }
    }

    /// What was made is found by the index, in which everything lies.
    fn finish(mut self, what: &str) -> (Arc<MemoryDevice>, ExtImage, usize) {
        let mut shown = BTreeSet::new();
        self.live
            .read_dir(self.dir, 0, &mut |entry| {
                assert!(shown.insert(entry.name.to_vec()), "{what}: shown twice");
                ControlFlow::Continue(())
            })
            .unwrap();
        shown.retain(|name| name != b"." && name != b"..");
        assert!(shown == self.names, "{what}: names are shown");
        self.live.unmount().unwrap();
        fsck(&self.device, what);
        let image = reader(&self.device);
        let runs = image.block_map(self.dir).unwrap().runs;
        let blocks: u64 = runs.iter().map(|run| run.extent.len).sum();
        let unindexed = image.unindexed_blocks(self.dir).unwrap();
        assert!(unindexed.is_none() || blocks == 1, "{what}: the index is kept: {unindexed:?}");
        let mut most = 0;
        for name in self.names.iter().step_by(self.names.len() / 1500 + 1) {
            assert!(image.lookup(self.dir, name).unwrap().is_some(), "{what}: {name:?}");
            most = most.max(image.lookup_blocks(self.dir, name).unwrap().len());
        }
        (self.device, image, most)
    }
}

/// An image whose names are hashed in one of the six ways.
fn hashing(shape: &Shape, hash: &str, unsigned: bool) -> Arc<MemoryDevice> {
    image_with(shape, |file| {
        super::shapes::run("tune2fs", &["-E", &format!("hash_alg={hash}"), file]);
        let set = format!("set_super_value flags {}", if unsigned { "2" } else { "1" });
        super::shapes::run("debugfs", &["-w", "-R", &set, file]);
    })
}

#[test]
fn names_go_where_their_hashes_want_them() {
    for shape in [PLAIN, 1, SUMMED, 6, 8] {
        for (n, hash) in ["half_md4", "tea", "legacy"].into_iter().enumerate() {
            for unsigned in [false, true] {
                let kind = (SHAPES[shape], hash, unsigned);
                let input = (Just(kind), list(op(), 2500..=2500));
                for_all((1, n), input, |((shape, hash, unsigned), ops)| {
                    let device = hashing(&shape, hash, unsigned);
                    let mut crowd = Crowd::new(device, Discipline::Async);
                    crowd.stir(&ops);
                    crowd.finish("stirred");
                });
            }
        }
    }
}

/// With extents, and over a journal.
#[test]
fn an_index_is_kept_whatever_maps_a_directory() {
    let ordered = Discipline::Journal(JournalMode::Ordered);
    let data = Discipline::Journal(JournalMode::Data);
    let shapes = [
        (&JOURNALLED[0], ordered),
        (&JOURNALLED[6], ordered),
        (&JOURNALLED[7], data),
        (&JOURNALLED[7], ordered),
        (&WITH_EXTENTS[5], Discipline::Async),
        (&WITH_EXTENTS[1], Discipline::Normal),
    ];
    for (n, kind) in shapes.into_iter().enumerate() {
        let input = (Just(kind), list(op(), 2000..=2000));
        for_all((1, n), input, |((shape, discipline), ops)| {
            let mut crowd = Crowd::new(image(shape), discipline);
            crowd.stir(&ops);
            if discipline == Discipline::Normal {
                // Without checksums it may be torn.
                crowd.live.unmount().unwrap();
                fsck(&crowd.device, "stirred");
            } else {
                crowd.finish("stirred");
            }
        });
    }
}

/// The kernel, too, gives a directory an index when it outgrows its first block.
#[test]
fn a_directory_that_outgrows_its_first_block_gets_an_index() {
    for (discipline, shape, indexed) in [
        (Discipline::Async, PLAIN, true),
        (Discipline::Async, 3, false),
        (Discipline::Sync, SUMMED, true),
        (Discipline::Normal, SUMMED, true),
        (Discipline::Sync, PLAIN, false),
        (Discipline::SoftUpdates, PLAIN, false),
    ] {
        let device = image(&SHAPES[shape]);
        let mut crowd = Crowd::new(device, discipline);
        for n in 0..200 {
            crowd.add(format!("name {n}").into_bytes());
        }
        let dir = crowd.dir;
        crowd.live.unmount().unwrap();
        fsck(&crowd.device, &format!("{discipline} {shape}"));
        let found = reader(&crowd.device).unindexed_blocks(dir).unwrap();
        assert_eq!(found.is_none(), indexed, "{discipline} {shape}");
    }
}

#[test]
fn hundreds_of_thousands_of_names_lie_in_one_directory() {
    let shape = Shape { mebibytes: 48, ..SHAPES[SUMMED] };
    let mut crowd = Crowd::new(image(&shape), Discipline::Async);
    for n in 0..some_or_all(120_000, 300_000u32) {
        crowd.add(format!("{n:x}").into_bytes());
    }
    let (_, _, most) = crowd.finish("very many names");
    // Root, node, leaf, and a leaf behind it where names have equal hashes.
    assert!((3..=4).contains(&most), "{most} blocks are read");
}

#[test]
fn an_index_has_three_levels_where_directories_may_be_large() {
    let names = 60_000u32;
    // Long names: few in a leaf.
    let name = |n: u32| format!("{n:0>250x}").into_bytes();
    let small = Shape { mebibytes: 64, ..SHAPES[SUMMED] };
    let mut crowd = Crowd::new(image(&small), Discipline::Async);
    let full = (0..names).find_map(|n| {
        let done = crowd.live.link(crowd.files[n as usize % 6], crowd.dir, &name(n));
        done.err().map(|error| (n, error))
    });
    let (n, error) = full.expect("the index is full");
    assert!(matches!(&error, FsError::NoSpace(why) if why.contains("index")), "{error}");
    crowd.names.extend((0..n).map(name));
    crowd.finish("a full index");
    let large = image_with(&small, |file| {
        super::shapes::run("tune2fs", &["-O", "large_dir", file]);
    });
    let mut crowd = Crowd::new(large, Discipline::Async);
    for n in 0..names {
        crowd.add(name(n));
    }
    let (_, _, most) = crowd.finish("three levels");
    // The volume's hash seed is random: a hash that continues in the next leaf needs that one, too.
    assert!((4..=5).contains(&most), "{most} blocks are read");
}

/// Where memory is short, blocks of an index that were looked at leave it before they are
/// changed. They are sealed all the same: with what they hold then.
#[test]
fn an_index_grows_in_next_to_no_memory() {
    let small = Shape { mebibytes: 64, ..SHAPES[SUMMED] };
    // Where names lie hangs on the seed of their hashes, and with that what is read when.
    for_all(3, (any::<u32>(), list(any::<u32>(), 3000..=3000)), |(seed, names)| {
        let device = image_with(&small, |file| {
            let set = format!("ssv hash_seed 00000000-0000-0000-0000-{seed:012}");
            super::shapes::run("debugfs", &["-w", "-R", &set, file]);
        });
        let live = open_in(&device, Discipline::Async, ByteLen::new(4 << 10));
        let mut crowd = Crowd::of(device, live);
        let names: BTreeSet<u32> = names.into_iter().collect();
        names.into_iter().for_each(|name| crowd.add(format!("{name:0>250x}").into_bytes()));
        crowd.finish("next to no memory");
    });
}

/// Under soft updates an index lives until a leaf must be split.
#[test]
fn an_index_is_given_up_for_a_split_that_could_be_torn() {
    let device = image(&SHAPES[PLAIN]);
    let mut crowd = Crowd::new(device, Discipline::Async);
    for n in 0..200 {
        crowd.add(format!("name {n}").into_bytes());
    }
    let (device, _, _) = crowd.finish("before");
    let mut live = open(&device, Discipline::SoftUpdates);
    let dir = live.lookup(live.root(), b"crowd").unwrap().unwrap();
    let file = live.lookup(dir, b"file 1").unwrap().unwrap();
    for n in (0..200).step_by(2) {
        live.unlink(dir, format!("name {n}").as_bytes()).unwrap();
    }
    // As many names as went fit again, more or less.
    for n in 0..20 {
        live.link(file, dir, format!("more {n}").as_bytes()).unwrap();
    }
    live.sync().unwrap();
    live.tick().unwrap();
    live.unmount().unwrap();
    fsck(&device, "with its index");
    assert_eq!(reader(&device).unindexed_blocks(dir).unwrap(), None);
    let mut live = open(&device, Discipline::SoftUpdates);
    for n in 0..400 {
        live.link(file, dir, format!("again {n}").as_bytes()).unwrap();
    }
    live.unmount().unwrap();
    fsck(&device, "without an index");
    assert!(reader(&device).unindexed_blocks(dir).unwrap().is_some());
}

/// A directory with more in it than links can count has one link, and goes on.
#[test]
fn directories_beyond_65000_are_not_counted() {
    let shape = Shape {
        mebibytes: 96,
        how: &["-O", "^has_journal,^extent,^huge_file,^64bit", "-N", "70000", "-I", "128"],
        ..SHAPES[SUMMED]
    };
    let device = image(&shape);
    let mut live = open(&device, Discipline::Async);
    let root = live.root();
    let dir = live.make(root, b"crowd", NewFile::Directory, OWNER).unwrap().ino;
    let make = |live: &mut ExtLive, n: u32| {
        live.make(dir, format!("{n:x}").as_bytes(), NewFile::Directory, OWNER).map(|made| made.ino)
    };
    for n in 0..64_998 {
        make(&mut live, n).unwrap();
    }
    assert_eq!(live.attr(dir).unwrap().nlink, 65_000);
    for n in 64_998..65_010 {
        make(&mut live, n).unwrap();
        assert_eq!(live.attr(dir).unwrap().nlink, 1);
    }
    live.rmdir(dir, b"1").unwrap();
    assert_eq!(live.attr(dir).unwrap().nlink, 1);
    live.rename((dir, b"2"), (root, b"2"), RenameMode::Replace).unwrap();
    live.rename((root, b"2"), (dir, b"two"), RenameMode::Replace).unwrap();
    assert_eq!(live.attr(dir).unwrap().nlink, 1);
    live.unmount().unwrap();
    fsck(&device, "beyond 65,000");
    // Without the feature there are no more.
    let plain = image(&Shape { how: &["-N", "70000", "-I", "128"], kind: "ext2", ..shape });
    let mut live = open(&plain, Discipline::Async);
    let root = live.root();
    let dir = live.make(root, b"crowd", NewFile::Directory, OWNER).unwrap().ino;
    let mut made = 0u32;
    let error = loop {
        let name = format!("{made:x}");
        match live.make(dir, name.as_bytes(), NewFile::Directory, OWNER) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FsError::TooManyLinks(_)), "{error}");
    assert_eq!(made, 64_998);
    live.unmount().unwrap();
    fsck(&plain, "65,000");
}

/// Bytes of an indexed directory that are overwritten: in its root or in a block by a number that is
/// taken modulo theirs, where the index has its counts.
#[derive(Clone, Debug)]
struct Damage {
    block: u8,
    at: usize,
    bytes: Vec<u8>,
}

fn damage() -> impl Strategy<Value = Damage> {
    let root = (Just(0), 0..200usize);
    let place = prop_oneof![root, (any::<u8>(), 0..1020usize)];
    (place, vec(any::<u8>(), 1..=4)).prop_map(|((block, at), bytes)| Damage { block, at, bytes })
}

/// Whatever stands in the blocks of an indexed directory, names are added and removed
/// or there is an error. Without checksums, which would be met first.
#[test]
fn damaged_indexes_give_answers_or_errors() {
    let mut crowd = Crowd::new(image(&SHAPES[PLAIN]), Discipline::Async);
    // Enough for a node below the root.
    for n in 0..900 {
        crowd.add(format!("{n:0>200}").into_bytes());
    }
    let dir = crowd.dir;
    let (device, image, _) = crowd.finish("before");
    let runs = image.block_map(dir).unwrap().runs;
    let blocks: Vec<u64> = runs
        .iter()
        .flat_map(|run| (0..run.extent.len).map(|n| run.extent.start.get() + n))
        .collect();
    let mut sound = vec![0; device.len().get() as usize];
    device.read(seekless_units::Lba::ZERO, &mut sound).unwrap();
    let (done, failed) = (Cell::new(0), Cell::new(0));
    for_all(80, (vec(damage(), 1..=4), 0..150u32), |(damages, first)| {
        let mut bytes = sound.clone();
        for Damage { block, at, bytes: other } in &damages {
            let at = blocks[usize::from(*block) % blocks.len()] as usize * 1024 + at;
            bytes[at..at + other.len()].copy_from_slice(other);
        }
        let live = open(&Arc::new(MemoryDevice::new(bytes)), Discipline::Async);
        let errors = changed(live, dir, first);
        done.update(|done| done + 240);
        failed.update(|failed| failed + errors);
    });
    let (done, failed) = (done.get(), failed.get());
    assert!(failed > done / 20 && failed < done, "{failed} of {done} calls failed");
}

/// Adds and removes 120 names. Returns how often that failed.
fn changed(mut live: ExtLive, dir: Ino, first: u32) -> u32 {
    let mut failed = 0;
    let file = live.lookup(dir, b"file 1").ok().flatten();
    for n in 0..120u32 {
        let name = format!("{:0>150}", n * 7 + first).into_bytes();
        let changed = match file {
            Some(file) => live.link(file, dir, &name),
            None => live.make(dir, &name, NewFile::Regular, OWNER),
        };
        let removed = live.unlink(dir, format!("{:0>200}", n * 3).as_bytes());
        failed += u32::from(changed.is_err()) + u32::from(removed.is_err());
    }
    let _ = live.unmount();
    failed
}
