//! Inodes and names leave memory when there are many: none goes with something
//! that the disk does not have yet.

use super::shapes::{Shape, image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{FfsLive, Version};
use seekless_fs::check::Class;
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_units::{ByteLen, Ino, Lba};
use std::collections::BTreeSet;
use std::sync::Arc;

/// More inodes than are kept.
const MANY: usize = 33_000;
const BLOCK: u64 = 4096;
const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn open(device: &Arc<MemoryDevice>) -> FfsLive {
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(Discipline::SoftUpdates);
    FfsLive::open(device.clone(), clock, config, options()).unwrap()
}

/// An image with many files, and one of 13 blocks.
fn filled() -> Vec<u8> {
    let shape = Shape {
        version: Version::Ufs2,
        block: BLOCK as u32,
        fragment: 512,
        mebibytes: 150,
        big_endian: false,
    };
    let device = image(&shape);
    let mut live = open(&device);
    let root = live.root();
    let file = live.make(root, b"file", NewFile::Regular, OWNER).unwrap().ino;
    live.write(file, ByteLen::ZERO, &vec![1; 13 * BLOCK as usize]).unwrap();
    for n in 0..MANY {
        live.make(root, format!("{n}").as_bytes(), NewFile::Regular, OWNER).unwrap();
    }
    live.unmount().unwrap();
    drop(live);
    bytes(&device)
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    bytes
}

/// Looks at so many files that others leave memory.
fn crowd_out(live: &mut FfsLive, file: Ino) {
    for n in 1..=MANY as u32 {
        live.attr(Ino::new(file.get() + n)).unwrap();
    }
    // What is not needed goes when something is changed.
    let perm = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    live.set_attr(Ino::new(file.get() + 1), &perm).unwrap();
}

#[test]
fn what_was_written_to_a_file_is_made_durable_by_fsync() {
    let device = Arc::new(MemoryDevice::new(filled()));
    let mut live = open(&device);
    let file = live.lookup(live.root(), b"file").unwrap().unwrap();
    let news = b"what nobody has written before";
    live.write(file, ByteLen::new(5 * BLOCK), news).unwrap();
    crowd_out(&mut live, file);
    let has_news = || bytes(&device).windows(news.len()).any(|window| window == news);
    assert!(!has_news(), "it is on the disk already");
    live.fsync(file).unwrap();
    assert!(has_news());
}

/// A block number behind the end that the disk knows of stops a check: it waits
/// for the length, whether the inode has left memory in between or not.
#[test]
fn block_numbers_wait_for_a_length_given_long_before() {
    let start = filled();
    let mut late = BTreeSet::from([u64::MAX]);
    let mut tried = BTreeSet::new();
    while let Some(held_back) = late.difference(&tried).next().copied() {
        tried.insert(held_back);
        let device = Arc::new(MemoryDevice::new(start.clone()));
        let mut live = open(&device);
        let file = live.lookup(live.root(), b"file").unwrap().unwrap();
        let longer = SetAttr { size: Some(60 * BLOCK), ..SetAttr::default() };
        live.set_attr(file, &longer).unwrap();
        crowd_out(&mut live, file);
        live.write(file, ByteLen::new(40 * BLOCK), &[2; 100]).unwrap();
        let mut offered = BTreeSet::new();
        // All but one block, until only that is left.
        while live
            .write_some(|block| {
                offered.insert(block);
                block != held_back
            })
            .unwrap()
        {}
        late.extend(offered);
        let state = Arc::new(MemoryDevice::new(bytes(&device)));
        let report = seekless_ffs::check(state).unwrap();
        let unexpected: Vec<_> =
            report.findings.iter().filter(|finding| finding.class != Class::Expected).collect();
        assert!(unexpected.is_empty(), "with block {held_back} late: {unexpected:#?}");
    }
    assert!(tried.len() > 4, "{tried:?}");
}
