//! What a stop leaves of files that somebody holds, and of long removals that take
//! several transactions: e2fsck finishes it, and so does a mount of ours.

use super::shapes::{Shape, image, options, scratch};
use crate::holes;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr};
use seekless_units::{ByteLen, Ino, Lba};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o600 };
const JOURNALS: [Discipline; 3] = [
    Discipline::Journal(JournalMode::Writeback),
    Discipline::Journal(JournalMode::Ordered),
    Discipline::Journal(JournalMode::Data),
];

/// A device that takes so many writes and no more.
pub(crate) struct Stops {
    pub(crate) inner: MemoryDevice,
    pub(crate) left: AtomicU64,
}

impl BlockDevice for Stops {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let took =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        match took {
            Ok(_) => self.inner.write(at, buf),
            Err(_) => Err(DeviceError::Io { at, source: std::io::Error::other("stopped") }),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

pub(crate) fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    holes::of(device)
}

fn open(device: Arc<dyn BlockDevice>, discipline: Discipline) -> ExtLive {
    let clock = Arc::new(VirtualClock::new());
    ExtLive::open(device, clock, Config::new(discipline), options()).unwrap()
}

/// e2fsck's words and code, and what it makes of the bytes.
pub(crate) fn e2fsck(bytes: &[u8], how: &str) -> (Option<i32>, String, Vec<u8>) {
    let path = scratch();
    holes::put(&path, bytes);
    let done = Command::new("e2fsck").arg(how).arg(&path).output().unwrap();
    let after = holes::take(&path);
    std::fs::remove_file(&path).unwrap();
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned(), after)
}

/// Both recoveries; the length of `file` in what ours leaves, and the free blocks.
fn recovered(bytes: Vec<u8>, discipline: Discipline, what: &str) -> (Option<u64>, u64) {
    let (code, said, after) = e2fsck(&bytes, "-p");
    assert!(code.is_some_and(|code| code <= 1), "{what}: {said}");
    let (code, said, _) = e2fsck(&after, "-fn");
    assert_eq!(code, Some(0), "{what}, after e2fsck -p: {said}");
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut live = open(device.clone(), discipline);
    let free = live.space().free;
    live.unmount().unwrap();
    let (code, said, _) = e2fsck(&bytes_of(device.as_ref()), "-fn");
    assert_eq!(code, Some(0), "{what}, after a mount: {said}");
    let image = ExtImage::open(device, OpenOptions::default()).unwrap();
    let found = resolve(&image, b"/file").ok();
    (found.map(|ino| image.attr(ino).unwrap().size), free)
}

fn make(live: &mut ExtLive, name: &str, len: usize) -> Ino {
    let root = live.root();
    let ino = live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
    let bytes = vec![b'x'; 1 << 20];
    let mut at = 0;
    while at < len {
        let some = &bytes[..bytes.len().min(len - at)];
        at += live.write(ino, ByteLen::new(at as u64), some).unwrap();
    }
    ino
}

#[test]
fn files_that_somebody_holds_go_with_the_next_mount() {
    let shape = Shape { kind: "ext3", block: 1024, mebibytes: 8, how: &["-J", "size=1"] };
    for discipline in JOURNALS {
        let device = image(&shape);
        let mut live = open(device.clone(), discipline);
        live.sync().unwrap();
        let free = live.space().free;
        let all: Vec<Ino> = (0..6).map(|n| make(&mut live, &format!("held{n}"), 30_000)).collect();
        let root = live.root();
        for (n, &ino) in all.iter().enumerate() {
            live.hold(ino).unwrap();
            live.unlink(root, format!("held{n}").as_bytes()).unwrap();
        }
        // From the middle, the head and the end of the list.
        for gone in [2, 5, 0] {
            live.release(all[gone]).unwrap();
            live.sync().unwrap();
            let what = format!("{discipline} without {gone}");
            let (_, after) = recovered(bytes_of(device.as_ref()), discipline, &what);
            assert_eq!(after, free, "{what}: what they had is free");
        }
        // What they hold is there as long as they are held.
        let mut some = [0; 100];
        assert_eq!(live.read(all[3], ByteLen::new(29_900), &mut some).unwrap(), 100);
        assert_eq!(some, [b'x'; 100]);
    }
}

/// A directory of more blocks than a transaction may change bitmaps and descriptors.
#[test]
fn long_directories_go() {
    let shape = Shape {
        kind: "ext3",
        block: 1024,
        mebibytes: 40,
        how: &["-J", "size=1", "-g", "256", "-O", "^resize_inode", "-i", "65536"],
    };
    for how in
        [shape.how, &["-J", "size=1", "-g", "256", "-O", "^resize_inode,extent", "-i", "65536"]]
    {
        let device = image(&Shape { how, ..shape });
        let mut live = open(device.clone(), JOURNALS[1]);
        let root = live.root();
        let dir = live.make(root, b"dir", NewFile::Directory, OWNER).unwrap().ino;
        let file = make(&mut live, "one", 10);
        let name = |n: u32| format!("{n}{}", "x".repeat(230)).into_bytes();
        for n in 0..600 {
            live.link(file, dir, &name(n)).unwrap();
        }
        for n in 0..600 {
            live.unlink(dir, &name(n)).unwrap();
        }
        assert!(live.attr(dir).unwrap().size > 130 << 10);
        live.rmdir(root, b"dir").unwrap();
        live.unmount().unwrap();
        let (code, said, _) = e2fsck(&bytes_of(device.as_ref()), "-fn");
        assert_eq!(code, Some(0), "{said}");
    }
}

/// What is allocated behind the end of a file goes in pieces, too: when the file is
/// removed, and when the next mount finds it cut to nothing on the list of orphans.
#[test]
fn space_behind_the_end_goes_in_pieces() {
    const LEN: u64 = 62 << 20;
    let shape = Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 76,
        how: &["-J", "size=1", "-g", "256", "-O", "^resize_inode,^flex_bg", "-i", "65536"],
    };
    let device = image(&shape);
    let mut live = open(device.clone(), JOURNALS[1]);
    let free = live.space().free;
    for _ in 0..2 {
        let ino = make(&mut live, "file", 10);
        live.allocate(ino, ByteLen::ZERO, ByteLen::new(LEN), true).unwrap();
        assert!(live.space().free < free - (LEN >> 10) / 2);
        live.unlink(live.root(), b"file").unwrap();
        live.sync().unwrap();
        assert_eq!(live.space().free, free);
    }
    let ino = make(&mut live, "file", LEN as usize);
    live.unmount().unwrap();
    let path = scratch();
    std::fs::write(&path, bytes_of(device.as_ref())).unwrap();
    let commands = scratch();
    let orphan = format!(
        "unlink file\nsif <{ino}> links_count 0\nsif <{ino}> size 0\nssv last_orphan {ino}\n"
    );
    std::fs::write(&commands, orphan).unwrap();
    let done = Command::new("debugfs").args(["-w", "-f"]).arg(&commands).arg(&path).output();
    assert!(done.unwrap().status.success());
    let left = holes::take(&path);
    for path in [path, commands] {
        std::fs::remove_file(path).unwrap();
    }
    let (_, after) = recovered(left, JOURNALS[1], "an orphan of no length");
    assert_eq!(after, free);
}

/// A file of which the map is damaged loses its name and stays on the list of orphans,
/// over later mounts too; nothing else is lost by that.
#[test]
fn damaged_files_stay_orphans() {
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 24, how: &["-J", "size=1"] };
    let device = image(&shape);
    let mut live = open(device.clone(), JOURNALS[1]);
    let ino = make(&mut live, "file", 0);
    for n in 0..200 {
        live.write(ino, ByteLen::new(n * 4096), &[5; 1024]).unwrap();
    }
    live.unmount().unwrap();
    let mut bytes = bytes_of(device.as_ref());
    let trees = (0..bytes.len()).step_by(1024).filter(|&at| bytes[at..].starts_with(&[0x0A, 0xF3]));
    for at in trees.collect::<Vec<usize>>() {
        bytes[at + 20] ^= 1;
    }
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut live = open(device.clone(), JOURNALS[1]);
    make(&mut live, "before", 3000);
    live.unlink(live.root(), b"file").unwrap();
    make(&mut live, "behind", 3000);
    assert!(live.unmount().is_err(), "it is told of");
    for _ in 0..2 {
        let mut live = open(device.clone(), JOURNALS[1]);
        let root = live.root();
        assert_eq!(live.lookup(root, b"file").unwrap(), None);
        for name in [&b"before"[..], b"behind"] {
            let found = live.lookup(root, name).unwrap().unwrap();
            assert_eq!(live.attr(found).unwrap().size, 3000);
        }
        assert!(live.unmount().is_err());
    }
    let (code, said, after) = e2fsck(&bytes_of(device.as_ref()), "-p");
    assert!(code.is_some_and(|code| code <= 1), "{said}");
    assert_eq!(e2fsck(&after, "-fn").0, Some(0));
}

/// Errors that were met are remembered over a recovery, of which the copy of the
/// superblock is from before; and nothing is recovered for a mount that is refused anyway.
#[test]
fn errors_are_remembered_and_refused_mounts_write_nothing() {
    let shape = Shape { kind: "ext3", block: 1024, mebibytes: 16, how: &["-J", "size=1"] };
    let device = image(&shape);
    let mut live = open(device.clone(), JOURNALS[1]);
    make(&mut live, "file", 3000);
    live.sync().unwrap();
    let dirty = bytes_of(device.as_ref());
    let reopen = |bytes: &[u8], how: LiveOptions| {
        let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
        let clock = Arc::new(VirtualClock::new());
        let opened = ExtLive::open(device.clone(), clock, Config::new(JOURNALS[1]), how);
        (opened.map(drop), bytes_of(device.as_ref()))
    };
    assert!(reopen(&dirty, options()).0.is_ok());
    let (refused, after) =
        reopen(&dirty, LiveOptions { directories: "nonsense".into(), ..options() });
    assert!(refused.is_err() && after == dirty, "an unknown policy");
    // s_errno of the journal's superblock.
    let mut failed = dirty.clone();
    let header = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4];
    let journal = failed.chunks(1024).position(|block| block.starts_with(&header)).unwrap();
    failed[journal * 1024 + 0x20 + 3] = 5;
    let (refused, after) = reopen(&failed, options());
    assert!(refused.is_err() && after == failed, "a journal left after an error");
    // s_state.
    let mut errors = dirty;
    errors[1024 + 0x3A] |= 2;
    let (refused, after) = reopen(&errors, options());
    assert!(refused.is_err(), "errors were met");
    assert_eq!(after[1024 + 0x3A] & 2, 2);
    assert_eq!(e2fsck(&after, "-p").0, Some(1), "a whole check is made");
}

/// With contents in the journal an extent that was never written cannot be written as
/// a whole where there is no space to split it; that harms nothing else.
#[test]
fn extents_that_cannot_be_split_are_left() {
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 40, how: &["-J", "size=4"] };
    for discipline in JOURNALS {
        let device = image(&shape);
        let mut live = open(device.clone(), discipline);
        let ino = make(&mut live, "file", 0);
        for n in 0..3 {
            let at = ByteLen::new(n * (7 << 20));
            live.allocate(ino, at, ByteLen::new(5 << 20), false).unwrap();
        }
        let full = make(&mut live, "full", 0);
        let mut at = 0;
        while let Ok(len) = live.write(full, ByteLen::new(at), &[7; 1 << 16]) {
            at += len as u64;
        }
        let runs = live.data_runs(ino).unwrap().len();
        assert!((3..=4).contains(&runs), "{runs} extents are all that the inode takes");
        let written = live.write(ino, ByteLen::new((8 << 20) + 5000), &[1; 1000]);
        let logged = discipline == Discipline::Journal(JournalMode::Data);
        assert_eq!(written.is_err(), logged, "{discipline}: {written:?}");
        live.set_attr(full, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        make(&mut live, "next", 100_000);
        live.unmount().unwrap();
        let (code, said, _) = e2fsck(&bytes_of(device.as_ref()), "-fn");
        assert_eq!(code, Some(0), "{discipline}: {said}");
    }
}

/// Space that was given back and is not committed is had by a write that needs it,
/// which is not short then.
#[test]
fn writes_are_not_short_where_space_is_about_to_be_free() {
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 24, how: &["-J", "size=1"] };
    for discipline in JOURNALS {
        let mut live = open(image(&shape), discipline);
        let most = live.space().available * 1024 * 9 / 10;
        for n in 0..4 {
            let file = format!("file{n}");
            let ino = live.make(live.root(), file.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
            let bytes = vec![n; most as usize];
            assert_eq!(
                live.write(ino, ByteLen::ZERO, &bytes).unwrap(),
                bytes.len(),
                "{discipline}"
            );
            live.sync().unwrap();
            live.unlink(live.root(), file.as_bytes()).unwrap();
        }
        live.unmount().unwrap();
    }
}

#[test]
fn long_removals_can_be_stopped_anywhere() {
    const LEN: u64 = 62 << 20;
    let shape = Shape {
        block: 1024,
        mebibytes: 76,
        kind: "ext3",
        how: &["-J", "size=1", "-g", "256", "-O", "^resize_inode", "-i", "65536"],
    };
    let device = image(&shape);
    let mut live = open(device.clone(), JOURNALS[1]);
    let ino = make(&mut live, "file", LEN as usize);
    live.unmount().unwrap();
    let full = bytes_of(device.as_ref());
    type Change = fn(&mut ExtLive, Ino) -> Result<(), seekless_fs::FsError>;
    let changes: [(&str, Change); 2] = [
        ("truncate", |live, ino| {
            live.set_attr(ino, &SetAttr { size: Some(5000), ..SetAttr::default() }).map(drop)
        }),
        ("unlink", |live, _| live.unlink(live.root(), b"file")),
    ];
    for (name, change) in changes {
        let run = |writes: u64| {
            let left = AtomicU64::new(writes);
            let device = Arc::new(Stops { inner: MemoryDevice::new(holes::copy(&full)), left });
            let clock = Arc::new(VirtualClock::new());
            let opened = ExtLive::open(device.clone(), clock, Config::new(JOURNALS[1]), options());
            let done = opened.and_then(|mut live| {
                change(&mut live, ino)?;
                live.sync()
            });
            let left = device.left.load(Ordering::Relaxed);
            (device, writes - left, done.is_ok())
        };
        let (_, all, done) = run(u64::MAX >> 1);
        assert!(done && all > 5, "{name}: {all} writes");
        let mut between = 0;
        for n in (0..all).step_by(2) {
            let (device, _, _) = run(n);
            let what = format!("{name} stopped after {n} of {all} writes");
            let (len, _) = recovered(bytes_of(&device.inner), JOURNALS[1], &what);
            match len {
                Some(len) => {
                    assert!((5000..=LEN).contains(&len), "{what}: {len} bytes");
                    between += u32::from(len > 5000 && len < LEN);
                }
                None => assert_eq!(name, "unlink", "{what}"),
            }
        }
        assert!(name != "truncate" || between > 0, "it was done in one transaction");
    }
}

/// Leaves are split, and a level is added: what is left of it is whole.
#[test]
fn directories_that_grow_can_be_stopped_anywhere() {
    let shape = Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 12,
        how: &["-J", "size=1", "-g", "2048", "-O", "^resize_inode"],
    };
    let device = image(&shape);
    let mut live = open(device.clone(), JOURNALS[1]);
    let dir = live.make(live.root(), b"dir", NewFile::Directory, OWNER).unwrap().ino;
    let file = live.make(dir, b"file", NewFile::Regular, OWNER).unwrap().ino;
    let name = |n: u32| format!("{n:0>180}").into_bytes();
    // The root has room for 122 leaves.
    for n in 0..330 {
        live.link(file, dir, &name(n)).unwrap();
    }
    live.unmount().unwrap();
    let before = bytes_of(device.as_ref());
    let run = |writes: u64| {
        let left = AtomicU64::new(writes);
        let device = Arc::new(Stops { inner: MemoryDevice::new(holes::copy(&before)), left });
        let clock = Arc::new(VirtualClock::new());
        let opened = ExtLive::open(device.clone(), clock, Config::new(JOURNALS[1]), options());
        let done = opened.and_then(|mut live| {
            for n in 330..600 {
                live.link(file, dir, &name(n))?;
                if n % 20 == 0 {
                    live.sync()?;
                }
            }
            live.sync()
        });
        let left = device.left.load(Ordering::Relaxed);
        (device, writes - left, done.is_ok())
    };
    let (_, all, done) = run(u64::MAX >> 1);
    assert!(done && all > 15, "{all} writes");
    let mut met = std::collections::BTreeSet::new();
    for n in 0..all {
        let (device, _, _) = run(n);
        let what = format!("stopped after {n} of {all} writes");
        recovered(bytes_of(&device.inner), JOURNALS[1], &what);
        let (_, _, whole) = e2fsck(&bytes_of(&device.inner), "-p");
        let device = Arc::new(MemoryDevice::new(whole));
        let image = ExtImage::open(device, OpenOptions::default()).unwrap();
        let names = (0..600).take_while(|&n| image.lookup(dir, &name(n)).unwrap().is_some());
        let levels = image.lookup_blocks(dir, &name(3)).unwrap().len();
        met.insert((names.count(), levels));
    }
    let levels: std::collections::BTreeSet<usize> = met.iter().map(|(_, levels)| *levels).collect();
    assert!(met.len() > 4 && levels.len() > 1, "{met:?}");
}

/// Names come and go in an indexed directory under soft updates, which keeps its index
/// until a leaf would have to be split: e2fsck asks nothing, whenever it stops.
#[test]
fn an_index_under_soft_updates_can_be_stopped_anywhere() {
    let shape = Shape { kind: "ext2", block: 4096, mebibytes: 4, how: &["-I", "128", "-g", "512"] };
    let device = image(&shape);
    let mut live = open(device.clone(), Discipline::Async);
    let root = live.root();
    let dir = live.make(root, b"dir", NewFile::Directory, OWNER).unwrap().ino;
    let name = |n: u32| format!("{n:0>100}").into_bytes();
    for n in 0..90 {
        live.make(dir, &name(n), NewFile::Regular, OWNER).unwrap();
    }
    live.unmount().unwrap();
    let before = bytes_of(device.as_ref());
    let run = |writes: u64| {
        let left = AtomicU64::new(writes);
        let device = Arc::new(Stops { inner: MemoryDevice::new(holes::copy(&before)), left });
        let clock = Arc::new(VirtualClock::new());
        let config = Config::new(Discipline::SoftUpdates);
        let opened = ExtLive::open(device.clone(), clock, config, options());
        let done = opened.and_then(|mut live| {
            for n in 0..100 {
                match (n, n % 2) {
                    // Where names were there is room for others.
                    (0..30, _) => live.unlink(dir, &name(n))?,
                    (30..60, 0) => {
                        let (from, to) = (name(n), name(1000 + n));
                        live.rename((dir, &from), (dir, &to), RenameMode::Replace)?;
                    }
                    _ => {
                        let new = name(1000 + n);
                        let file = live.make(dir, &new, NewFile::Regular, OWNER)?.ino;
                        live.write(file, ByteLen::ZERO, &[1; 1500])?;
                    }
                }
                let mut turn = n;
                live.write_some(|_| {
                    turn = turn.wrapping_mul(5).wrapping_add(1);
                    turn % 3 == 0
                })?;
                if n % 12 == 11 {
                    live.sync()?;
                }
            }
            live.sync()
        });
        let left = device.left.load(Ordering::Relaxed);
        (device, writes - left, done.is_ok())
    };
    let is_indexed = |bytes: Vec<u8>| {
        let device = Arc::new(MemoryDevice::new(bytes));
        let image = ExtImage::open(device, OpenOptions::default()).unwrap();
        image.unindexed_blocks(dir).unwrap().is_none()
    };
    let mut met = [0, 0];
    let (device, all, done) = run(u64::MAX >> 1);
    assert!(done && all > 100, "{all} writes");
    assert!(!is_indexed(bytes_of(&device.inner)), "no leaf had to be split");
    for n in (0..all).step_by(3) {
        let (device, _, _) = run(n);
        let what = format!("stopped after {n} of {all} writes");
        let (code, said, after) = e2fsck(&bytes_of(&device.inner), "-p");
        assert!(code.is_some_and(|code| code <= 1), "{what}: {said}");
        let (code, said, _) = e2fsck(&after, "-fn");
        assert_eq!(code, Some(0), "{what}: {said}");
        // e2fsck gives it another index.
        met[usize::from(is_indexed(bytes_of(&device.inner)))] += 1;
    }
    assert!(met.iter().all(|&count| count > 8), "{met:?}");
}
