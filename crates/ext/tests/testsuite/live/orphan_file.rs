//! The orphan file: who is removed while somebody holds it stands there, and is found by
//! e2fsck, the kernel and our own mount; when it is full, the list is used.

use super::interrupted::{bytes_of, e2fsck};
use super::kernel::{mounted, open};
use super::shapes::{Shape, fsck, image, options};
use crate::holes;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_ext::{ExtLive, LiveOptions};
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_units::{ByteLen, Ino};
use std::fs;
use std::process::Command;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o600 };
const ORDERED: Discipline = Discipline::Journal(JournalMode::Ordered);
const MAGIC: [u8; 4] = 0x0B10_CA04u32.to_le_bytes();
/// `s_feature_ro_compat`, and `orphan_present` in it.
const FEATURES: usize = 1024 + 0x64;
const PRESENT: u32 = 0x1_0000;
/// `s_last_orphan`.
const LAST: usize = 1024 + 0xE8;

const SHAPES: [Shape; 3] = [
    Shape { kind: "ext4", block: 1024, mebibytes: 16, how: &["-J", "size=1", "-O", "orphan_file"] },
    Shape { kind: "ext4", block: 4096, mebibytes: 24, how: &["-J", "size=4", "-O", "orphan_file"] },
    Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 16,
        how: &["-J", "size=1", "-O", "orphan_file,^metadata_csum,^extent,^64bit"],
    },
];

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Where the blocks of the orphan file are, by an image of which the journal is empty.
fn blocks(bytes: &[u8], block: u32) -> Vec<usize> {
    let block = block as usize;
    let is_orphan = |at: &usize| bytes[at + block - 8..at + block - 4] == MAGIC;
    let found: Vec<usize> = (0..bytes.len()).step_by(block).filter(is_orphan).collect();
    assert!(found.len() > 1, "{} blocks", found.len());
    found
}

/// The numbers in such blocks.
fn filed(bytes: &[u8], blocks: &[usize], block: u32) -> Vec<u32> {
    let slots = blocks.iter().flat_map(|at| (*at..at + block as usize - 8).step_by(4));
    slots.map(|at| word(bytes, at)).filter(|&number| number != 0).collect()
}

fn make(live: &mut ExtLive, name: &str, len: usize) -> Ino {
    let root = live.root();
    let ino = live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
    if len > 0 {
        live.write(ino, ByteLen::ZERO, &vec![b'x'; len]).unwrap();
    }
    ino
}

fn hold_removed(live: &mut ExtLive, files: usize, len: usize) -> Vec<Ino> {
    let all: Vec<Ino> = (0..files).map(|n| make(live, &format!("held{n}"), len)).collect();
    let root = live.root();
    for (n, &ino) in all.iter().enumerate() {
        live.hold(ino).unwrap();
        live.unlink(root, format!("held{n}").as_bytes()).unwrap();
    }
    all
}

/// What the journal brings home.
fn replayed(bytes: &[u8]) -> Vec<u8> {
    let path = super::shapes::scratch();
    holes::put(&path, bytes);
    let done = Command::new("debugfs").args(["-w", "-R", "journal_run"]).arg(&path).output();
    assert!(done.unwrap().status.success());
    let after = holes::take(&path);
    fs::remove_file(&path).unwrap();
    after
}

/// e2fsck finishes what was left, and finds nothing then.
fn judged(left: &[u8]) {
    let (code, said, after) = e2fsck(left, "-fp");
    assert!(code.is_some_and(|code| code <= 1), "{said}");
    let (code, said, _) = e2fsck(&after, "-fn");
    assert_eq!(code, Some(0), "{said}");
}

/// A mount finishes what was left, and so many blocks are free then.
fn recovers(left: Vec<u8>, discipline: Discipline, free: u64, what: &str) {
    let device = Arc::new(MemoryDevice::new(left));
    let mut live = open(&device, discipline);
    assert_eq!(live.space().free, free, "{what}");
    live.unmount().unwrap();
    fsck(&device, what);
}

#[test]
fn files_that_somebody_holds_stand_in_the_orphan_file() {
    for shape in &SHAPES {
        for mode in JournalMode::ALL {
            let discipline = Discipline::Journal(mode);
            let what = format!("{discipline} {shape:?}");
            let device = image(shape);
            let file = blocks(&bytes_of(device.as_ref()), shape.block);
            let mut live = open(&device, discipline);
            live.sync().unwrap();
            let free = live.space().free;
            let mut all = hold_removed(&mut live, 6, 30_000);
            for gone in [2, 4, 0] {
                let ino = all.remove(gone);
                live.release(ino).unwrap();
                live.sync().unwrap();
                let left = bytes_of(device.as_ref());
                let home = replayed(&left);
                let mut numbers = filed(&home, &file, shape.block);
                numbers.sort_unstable();
                let held: Vec<u32> = all.iter().map(|ino| ino.get()).collect();
                assert_eq!(numbers, held, "{what}");
                assert_eq!(word(&home, LAST), 0, "{what}: nothing is on the list");
                assert_eq!(word(&home, FEATURES) & PRESENT, PRESENT, "{what}");
                // e2fsck deletes them, and so do we. Unless it looks at all of a volume, it
                // leaves the numbers where they are.
                let (code, said, after) = e2fsck(&left, "-p");
                assert!(code.is_some_and(|code| code <= 1), "{what}: {said}");
                judged(&after);
                recovers(after, discipline, free, &what);
                recovers(left, discipline, free, &what);
            }
            live.unmount().unwrap();
            fsck(&device, &what);
            let bytes = bytes_of(device.as_ref());
            assert_eq!(word(&bytes, FEATURES) & PRESENT, 0, "{what}: not after a clean end");
            assert_eq!(filed(&bytes, &file, shape.block), Vec::<u32>::new(), "{what}");
        }
    }
}

#[test]
fn when_the_file_is_full_the_list_is_used() {
    let how = &["-J", "size=4", "-O", "orphan_file", "-N", "9000"];
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 24, how };
    let device = image(&shape);
    let file = blocks(&bytes_of(device.as_ref()), 1024);
    let mut live = open(&device, ORDERED);
    let room = file.len() * ((1024 - 8) / 4);
    let all = hold_removed(&mut live, room + 5, 0);
    live.sync().unwrap();
    let left = bytes_of(device.as_ref());
    let home = replayed(&left);
    assert_eq!(filed(&home, &file, 1024).len(), room);
    assert_eq!(word(&home, LAST), all[room + 4].get(), "the head of the list");
    judged(&left);
    let again = Arc::new(MemoryDevice::new(left));
    let mut mount = open(&again, ORDERED);
    mount.unmount().unwrap();
    fsck(&again, "recovered");
    // Of both, in any order; slots that became free are taken again.
    for &ino in all.iter().rev().step_by(3).chain(all.iter().step_by(50)) {
        if live.attr(ino).is_ok() {
            live.release(ino).unwrap();
        }
    }
    hold_removed(&mut live, 20, 3000);
    live.sync().unwrap();
    let left = bytes_of(device.as_ref());
    judged(&left);
    live.unmount().unwrap();
    fsck(&device, "in the end");
}

#[test]
fn the_kernel_takes_ours_and_we_take_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    for shape in &SHAPES {
        let what = format!("{shape:?}");
        let device = image(shape);
        let file = blocks(&bytes_of(device.as_ref()), shape.block);
        let mut live = open(&device, ORDERED);
        let free = live.space().free;
        hold_removed(&mut live, 5, 30_000);
        make(&mut live, "stays", 5000);
        live.sync().unwrap();
        let ours = Arc::new(MemoryDevice::new(bytes_of(device.as_ref())));
        let theirs = mounted(&ours, |at| {
            assert_eq!(fs::read(at.join("stays")).unwrap().len(), 5000, "{what}");
            fs::remove_file(at.join("stays")).unwrap();
        });
        fsck(&theirs, &what);
        let mut mount = open(&theirs, ORDERED);
        assert_eq!(mount.space().free, free, "{what}: what they held is free");
        mount.unmount().unwrap();
        // Held files of the kernel's, and the volume as it is then.
        let mut left = Vec::new();
        mounted(&theirs, |at| {
            let held: Vec<fs::File> = (0..7)
                .map(|n| {
                    let path = at.join(format!("theirs{n}"));
                    fs::write(&path, vec![b'k'; 20_000]).unwrap();
                    let held = fs::File::open(&path).unwrap();
                    fs::remove_file(path).unwrap();
                    held
                })
                .collect();
            fs::write(at.join("kept"), b"kept").unwrap();
            let root = fs::File::open(at).unwrap();
            rustix::fs::syncfs(&root).unwrap();
            let told = Command::new("findmnt").args(["-no", "SOURCE"]).arg(at).output().unwrap();
            let source = String::from_utf8(told.stdout).unwrap();
            let name = source.trim().trim_start_matches("/dev/");
            let backing = format!("/sys/block/{name}/loop/backing_file");
            left = fs::read(fs::read_to_string(backing).unwrap().trim()).unwrap();
            drop(held);
        });
        assert_eq!(filed(&replayed(&left), &file, shape.block).len(), 7, "{what}");
        let device = Arc::new(MemoryDevice::new(left));
        let mut live = open(&device, ORDERED);
        let root = live.root();
        let kept = live.lookup(root, b"kept").unwrap().unwrap();
        assert_eq!(live.attr(kept).unwrap().size, 4);
        live.unlink(root, b"kept").unwrap();
        live.sync().unwrap();
        assert_eq!(live.space().free, free, "{what}: what the kernel's held is free");
        live.unmount().unwrap();
        fsck(&device, &what);
    }
}

/// Features that are set while the volume is in use stay.
#[test]
fn a_first_large_file_leaves_the_mark() {
    let how = &["-J", "size=1", "-O", "orphan_file,^large_file,^resize_inode"];
    let device = image(&Shape { how, ..SHAPES[0] });
    let mut live = open(&device, ORDERED);
    hold_removed(&mut live, 1, 3000);
    let ino = make(&mut live, "large", 0);
    let set = SetAttr { size: Some(3 << 30), ..SetAttr::default() };
    live.set_attr(ino, &set).unwrap();
    live.sync().unwrap();
    let left = bytes_of(device.as_ref());
    assert_eq!(word(&replayed(&left), FEATURES) & (PRESENT | 2), PRESENT | 2);
    judged(&left);
}

/// Numbers that no mount must act on: of files that are not in use, out of range, and
/// where the superblock says that there are none.
#[test]
fn what_is_wrong_in_the_file_is_left_to_a_check() {
    let shape = &SHAPES[2];
    let device = image(shape);
    let at = blocks(&bytes_of(device.as_ref()), 1024)[0];
    let mut live = open(&device, ORDERED);
    make(&mut live, "file", 3000);
    live.unmount().unwrap();
    let clean = bytes_of(device.as_ref());
    let reopen = |bytes: &[u8], force: bool| {
        let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
        let how = LiveOptions { force, ..options() };
        let clock = Arc::new(VirtualClock::new());
        let opened = ExtLive::open(device.clone(), clock, Config::new(ORDERED), how);
        let opened = opened.and_then(|mut live| {
            let root = live.root();
            assert!(live.lookup(root, b"file")?.is_some(), "nothing is deleted");
            live.unmount()
        });
        (opened, bytes_of(device.as_ref()))
    };
    for (what, number) in [("a file with a name", 13), ("a free inode", 900), ("none", 1 << 30)] {
        let mut wrong = clean.clone();
        wrong[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
        let (refused, after) = reopen(&wrong, false);
        assert!(refused.is_err() && after == wrong, "{what}: {refused:?}");
        let (forced, _) = reopen(&wrong, true);
        forced.unwrap_or_else(|error| panic!("{what}, by force: {error}"));
        if number == 13 {
            continue;
        }
        let with = (word(&wrong, FEATURES) | PRESENT).to_le_bytes();
        wrong[FEATURES..FEATURES + 4].copy_from_slice(&with);
        let (mended, after) = reopen(&wrong, false);
        mended.unwrap_or_else(|error| panic!("{what}, mended by a check: {error}"));
        let (code, said, _) = e2fsck(&after, "-fn");
        assert_eq!(code, Some(0), "{what}: {said}");
    }
    let mut wrong = clean;
    wrong[at + 1024 - 8] ^= 1;
    assert!(reopen(&wrong, false).0.is_err(), "no magic number");
}

/// A number that stands in the file twice is left to a check: one mount would leave the
/// other slot, and say that the file is empty.
#[test]
fn a_number_that_stands_there_twice_is_left_to_a_check() {
    let shape = &SHAPES[2];
    let device = image(shape);
    let at = blocks(&bytes_of(device.as_ref()), shape.block)[0];
    let mut live = open(&device, ORDERED);
    live.sync().unwrap();
    let free = live.space().free;
    let ino = hold_removed(&mut live, 1, 3000)[0];
    live.sync().unwrap();
    let mut wrong = replayed(&bytes_of(device.as_ref()));
    assert_eq!(word(&wrong, at), ino.get());
    wrong.copy_within(at..at + 4, at + 8);
    recovers(wrong, ORDERED, free, "twice");
}
