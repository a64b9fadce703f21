//! Checksums of metadata: what is wrong is met, and stays wrong.

use super::shapes::{SHAPES, Shape, image, options};
use crate::holes;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, XattrMode};
use seekless_fs::{Corruption, FsError, Inspect};
use seekless_units::{ByteLen, Ino, Lba};
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 1, gid: 2, perm: 0o644 };
/// With `metadata_csum` and blocks of 1 KiB.
const SUMMED: usize = 5;

fn open(device: &Arc<MemoryDevice>) -> Result<ExtLive, FsError> {
    let clock = Arc::new(VirtualClock::new()) as Arc<dyn Clock>;
    let config = Config::new(Discipline::Async);
    ExtLive::open(device.clone(), clock, config, options())
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    bytes
}

/// An image with a directory of two blocks and files beside each other, one with
/// attributes that need a block; and where everything lies.
struct Patient {
    bytes: Vec<u8>,
    dir: Ino,
    files: Vec<Ino>,
}

fn patient() -> Patient {
    let device = image(&SHAPES[SUMMED]);
    let mut live = open(&device).unwrap();
    let root = live.root();
    let dir = live.make(root, b"dir", NewFile::Directory, OWNER).unwrap().ino;
    let files: Vec<Ino> = (0..40)
        .map(|n| {
            let name = format!("a name of some length, number {n}");
            live.make(dir, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino
        })
        .collect();
    live.set_xattr(files[0], b"user.long", &[b'v'; 500], XattrMode::Any).unwrap();
    live.unmount().unwrap();
    Patient { bytes: bytes(&device), dir, files }
}

fn is_checksum<T: std::fmt::Debug>(result: Result<T, FsError>, place: &str) {
    match result {
        Err(FsError::Corrupt { kind: Corruption::Checksum { .. }, location }) => {
            assert!(location.to_string().contains(place), "{location}");
        }
        other => panic!("{place}: {other:?}"),
    }
}

/// Where bytes of an image differ.
fn differing(one: &[u8], other: &[u8]) -> Vec<usize> {
    (0..one.len()).filter(|&at| one[at] != other[at]).collect()
}

#[test]
fn an_inode_with_a_wrong_sum_keeps_it_while_others_change() {
    let Patient { mut bytes, dir, files } = patient();
    let reader =
        ExtImage::open(Arc::new(MemoryDevice::new(holes::copy(&bytes))), OpenOptions::default());
    let place = reader.unwrap().inode_location(files[5]).unwrap();
    let at = place.block.get() as usize * 1024 + place.offset as usize;
    // Its access time.
    bytes[at + 8] ^= 0x10;
    let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
    let mut live = open(&device).unwrap();
    is_checksum(live.attr(files[5]).map(|_| ()), "inode");
    live.write(files[4], ByteLen::ZERO, &[1; 5000]).unwrap();
    live.write(files[6], ByteLen::ZERO, &[1; 5000]).unwrap();
    live.unlink(dir, b"a name of some length, number 7").unwrap();
    live.unmount().unwrap();
    let after = self::bytes(&device);
    let inode = at..at + 256;
    assert_eq!(bytes[inode.clone()], after[inode]);
    let mut again = open(&Arc::new(MemoryDevice::new(after))).unwrap();
    is_checksum(again.attr(files[5]).map(|_| ()), "inode");
    assert_eq!(again.attr(files[6]).unwrap().size, 5000);
}

#[test]
fn wrong_blocks_of_directories_attributes_and_bitmaps_are_met() {
    let Patient { bytes, dir, files } = patient();
    let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
    let reader = ExtImage::open(device, OpenOptions::default()).unwrap();
    let run = reader.block_map(dir).unwrap().runs[0];
    let block = run.extent.start.get() as usize;
    assert!(run.extent.len >= 3, "root and leaves");
    let damaged = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        Arc::new(MemoryDevice::new(bytes))
    };
    // Where the index has its first leaf, and a letter of a name.
    for at in [block * 1024 + 37, (block + 1) * 1024 + 60] {
        let mut live = open(&damaged(at)).unwrap();
        is_checksum(live.lookup(dir, b"something"), "directory block");
        let made = live.make(dir, b"x", NewFile::Regular, OWNER);
        is_checksum(made.map(|_| ()), "directory block");
    }
    // A letter of a value.
    let value = bytes.windows(100).position(|window| window == [b'v'; 100]).unwrap();
    let mut live = open(&damaged(value)).unwrap();
    is_checksum(live.xattrs(files[0]).map(|_| ()), "attribute block");
    // A bit behind those in use, of the bitmaps of the group with the files.
    let number = reader.inode_location(files[0]).unwrap().table.start.get();
    let group = (0..reader.geometry().groups)
        .map(|n| reader.group(seekless_units::GroupNo::new(n)).unwrap())
        .find(|group| group.metadata.iter().any(|it| it.extent.start.get() == number))
        .unwrap();
    let [block_bitmap, inode_bitmap] = {
        let runs: Vec<_> =
            group.metadata.iter().map(|it| it.extent).filter(|run| run.len == 1).collect();
        [runs[runs.len() - 2], runs[runs.len() - 1]].map(|run| run.start.get() as usize * 1024)
    };
    let mut live = open(&damaged(inode_bitmap + 20)).unwrap();
    is_checksum(live.attr(files[0]).map(|_| ()), "inode bitmap");
    let mut live = open(&damaged(block_bitmap + 100)).unwrap();
    is_checksum(live.write(files[0], ByteLen::ZERO, &[1; 100]).map(|_| ()), "block bitmap");
}

#[test]
fn soft_updates_are_refused_by_name() {
    for (shape, name) in [(SUMMED, "metadata_csum"), (SUMMED + 3, "uninit_bg")] {
        let clock = Arc::new(VirtualClock::new()) as Arc<dyn Clock>;
        let config = Config::new(Discipline::SoftUpdates);
        let opened = ExtLive::open(image(&SHAPES[shape]), clock, config, options());
        match opened.map(|_| ()) {
            Err(FsError::Unsupported(why)) => {
                assert!(why.contains("softdep") && why.contains(name), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Groups of which the bitmaps or tables were never written get them when they are
/// first used, and no sooner.
#[test]
fn what_was_never_written_is_made_when_it_is_used() {
    for shape in [SUMMED, SUMMED + 3] {
        let shape: &Shape = &SHAPES[shape];
        let device = image(shape);
        let before = bytes(&device);
        let mut live = open(&device).unwrap();
        let root = live.root();
        let one = live.make(root, b"one", NewFile::Regular, OWNER).unwrap().ino;
        live.unmount().unwrap();
        let after = bytes(&device);
        let blocks: std::collections::BTreeSet<usize> =
            differing(&before, &after).iter().map(|at| at / 1024).collect();
        // Superblock, descriptors, bitmap, the root and its block, and the file: not
        // more than the file's own block of the table.
        assert!(blocks.len() <= 8, "{shape:?}: {blocks:?}");
        // A directory in a group that was never used: the block of the table that it
        // lies in had something else.
        let mut live = open(&device).unwrap();
        let dir = live.make(root, b"dir", NewFile::Directory, OWNER).unwrap().ino;
        live.unmount().unwrap();
        let reader = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
        let place = reader.inode_location(dir).unwrap();
        assert_eq!((place.block, place.offset), (place.table.start, 0), "{shape:?}: {dir}");
        let table = place.block.get() as usize * 1024..(place.block.get() as usize + 1) * 1024;
        assert!(before[table.clone()].iter().all(|&byte| byte == 0xA5), "{shape:?}");
        let used = &bytes(&device)[table];
        assert!(used[256..].iter().all(|&byte| byte == 0), "{shape:?}: it is zeroed");
        // More files without blocks than a group has inodes.
        let mut live = open(&device).unwrap();
        for n in 0..600 {
            let name = format!("f{n}");
            live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
        }
        live.unmount().unwrap();
        check_flags(&device, &format!("{shape:?}"));
        let mut live = open(&device).unwrap();
        for n in 0..400 {
            let name = format!("d{n}");
            live.make(root, name.as_bytes(), NewFile::Directory, OWNER).unwrap();
        }
        assert_eq!(live.attr(one).unwrap().ino, one);
        live.unmount().unwrap();
        super::shapes::fsck(&device, &format!("{shape:?}"));
        check_flags(&device, &format!("{shape:?}"));
    }
}

/// A group with an inode in use has both bitmaps (`ext4_mark_inode_used`), and no
/// others need have them.
fn check_flags(device: &MemoryDevice, what: &str) {
    let path = super::shapes::written(device);
    let said = std::process::Command::new("dumpe2fs").arg(&path).output().unwrap().stdout;
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    let total: u64 = said
        .lines()
        .find_map(|line| line.strip_prefix("Inodes per group:"))
        .and_then(|count| count.trim().parse().ok())
        .unwrap();
    let groups: Vec<&str> = said.split("\nGroup ").skip(1).collect();
    let free = |group: &str| -> u64 {
        let line = group.lines().find(|line| line.contains(" free inodes")).unwrap();
        let (_, rest) = line.split_once("free blocks, ").unwrap();
        rest.split_once(' ').unwrap().0.parse().unwrap()
    };
    for group in &groups {
        let flags = group.lines().next().unwrap();
        if free(group) < total {
            assert!(!flags.contains("_UNINIT"), "{what}: {group}");
        }
    }
    assert!(groups.len() > 3, "{what}: {said}");
}
