//! Damaged quota files: the input of the fuzz target `quota_ufs`, and its corpus.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | which volume |
//! | 2 | place among the bytes of the quota files, their indirect blocks and their inodes |
//! | 1 | length (1..=16), less 1 |
//! | length | the bytes to put there |
//!
//! The last three are repeated.

use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{
    CheckHashes, FfsImage, FfsLive, LiveOptions, MakeOptions, Version, change_quotas, check,
    compare_quotas, correct_quotas, make, quotas,
};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::quota::{LimitChange, OwnerKind, QuotaChange, QuotaSelection};
use seekless_fs::{Inspect, Timestamp};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

const IMAGE: usize = 2 << 20;
const FRAGMENT: u64 = 512;
const TIME: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const HEADER: &[u8] = b"QUOTA64\0\x20\x08\x11\x04\0\0\0\x40\0\0\0\x40";
/// A user whose record lies behind a hole and the direct blocks.
const FAR: u32 = 1500;

/// A sound volume with quota files, and the places that inputs change.
pub(crate) struct Base {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

/// The outcome of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Used {
    /// The quotas were read, and their usage was corrected.
    Corrected,
    /// The files were refused, or the volume was damaged.
    Refused,
}

/// Both formats, in both byte orders.
pub(crate) fn bases() -> Vec<Base> {
    let all = [Version::Ufs1, Version::Ufs2].map(|version| [(version, false), (version, true)]);
    all.into_iter().flatten().map(|(version, big_endian)| base(version, big_endian)).collect()
}

fn base(version: Version, big_endian: bool) -> Base {
    let mut options = MakeOptions::new(version, ByteLen::new(IMAGE as u64));
    (options.block_size, options.fragment_size) = (4096, FRAGMENT as u32);
    options.bytes_per_inode = Some(32768);
    options.big_endian = big_endian;
    options.check_hashes = CheckHashes::None;
    let device = Arc::new(MemoryDevice::new(vec![0; IMAGE]));
    make(device.as_ref(), &options).expect("a volume");
    let live = LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        force: false,
        recover: false,
        ignore_checksums: false,
        reallocblks: false,
        wall: Box::new(|| TIME),
    };
    let config = Config::new(Discipline::SoftUpdates);
    let clock = Arc::new(VirtualClock::new());
    let mut live = FfsLive::open(device.clone(), clock, config, live).expect("open");
    let root = live.root();
    for (n, uid) in [0, 7, FAR].into_iter().enumerate() {
        let owner = Ownership { uid, gid: uid / 2, perm: 0o644 };
        let name = format!("file{n}");
        let ino = live.make(root, name.as_bytes(), NewFile::Regular, owner).expect("make").ino;
        live.write(ino, ByteLen::ZERO, &vec![1; 3000 * (n + 1)]).expect("write");
    }
    // One of 64 bits and one of 32.
    for (name, header, record) in [("quota.user", HEADER, 64), ("quota.group", &[], 32)] {
        let owner = Ownership { uid: 0, gid: 5, perm: 0o640 };
        let ino = live.make(root, name.as_bytes(), NewFile::Regular, owner).expect("make").ino;
        if !header.is_empty() {
            live.write(ino, ByteLen::ZERO, header).expect("write");
        }
        for id in [7, FAR] {
            let at = if header.is_empty() { 0 } else { 64 } + u64::from(id) * record;
            live.write(ino, ByteLen::new(at), &vec![9; record as usize]).expect("write");
        }
    }
    live.unmount().expect("unmount");
    let mut bytes = vec![0; IMAGE];
    device.read(Lba::ZERO, &mut bytes).expect("memory");
    let image = FfsImage::open(device, OpenOptions::default()).expect("open");
    let mut places = Vec::new();
    for name in ["quota.user", "quota.group"] {
        let ino = resolve(&image, name.as_bytes()).expect(name);
        let place = image.inode_location(ino).expect("an inode");
        let inode = (place.block.get() * FRAGMENT + u64::from(place.offset)) as usize;
        places.extend(inode..inode + if version == Version::Ufs1 { 128 } else { 256 });
        let map = image.block_map(ino).expect("a map");
        assert!(!map.index.is_empty() || name == "quota.group");
        for node in map.index {
            let at = (node.block.get() * FRAGMENT) as usize;
            places.extend(at..at + 64);
        }
        for run in map.runs {
            let (start, end) = (run.extent.start.get(), run.extent.end().get());
            places.extend((start * FRAGMENT) as usize..(end * FRAGMENT) as usize);
        }
    }
    Base { bytes, places }
}

/// Reads, compares, changes and corrects the quotas of a volume with the patches of an input.
pub(crate) fn run(data: &[u8], bases: &[Base]) -> Used {
    let Some((&choice, mut rest)) = data.split_first() else { return Used::Refused };
    let base = &bases[usize::from(choice) % bases.len()];
    let mut bytes = base.bytes.clone();
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let place = usize::from(u16::from_le_bytes([head[0], head[1]])) % base.places.len();
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        let (patch, after) = after.split_at(len);
        for (&at, &byte) in base.places.iter().skip(place).zip(patch) {
            bytes[at] = byte;
        }
        rest = after;
    }
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    let all = QuotaSelection::default();
    let is_sound = check(device.clone()).expect("a superblock").is_clean();
    let read = quotas(device.clone(), &all, OpenOptions::default());
    let compared = compare_quotas(device.clone(), &all);
    let mut same = vec![0; IMAGE];
    device.read(Lba::ZERO, &mut same).expect("memory");
    assert!(same == bytes, "reading changes nothing");
    let change = QuotaChange::Limits {
        id: 8,
        space: LimitChange { soft: Some(512), hard: None },
        inodes: LimitChange { soft: None, hard: Some(70_000) },
    };
    let changed = change_quotas(device.clone(), &all, OwnerKind::Group, &change, TIME);
    let corrected = correct_quotas(device.clone(), &all, TIME);
    if !is_sound {
        return Used::Refused;
    }
    if read.is_err() || compared.is_err() || corrected.is_err() {
        let all = (read.is_err(), compared.is_err(), changed.is_err(), corrected.is_err());
        assert_eq!(all, (true, true, true, true), "{corrected:?}");
        return Used::Refused;
    }
    let again = compare_quotas(device.clone(), &all).expect("compared before");
    assert!(again.is_clean(), "{again:?}");
    if changed.is_ok() {
        let books = quotas(device.clone(), &all, OpenOptions::default()).expect("read before");
        let quota = books[1].quotas.iter().find(|quota| quota.id == 8).expect("a new limit");
        assert_eq!((quota.space.soft, quota.inodes.hard), (512, 70_000));
    }
    let report = check(device).expect("a superblock");
    assert!(report.is_clean(), "{:#?}", report.findings);
    Used::Corrected
}

/// The inputs that the fuzz target starts with, and those that it has found.
#[test]
fn the_corpus_of_quota_files() {
    let bases = bases();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/quota_ufs");
    let (mut corrected, mut refused) = (0, 0);
    for entry in std::fs::read_dir(corpus).expect("corpus") {
        let input = std::fs::read(entry.expect("input").path()).expect("input");
        match run(&input, &bases) {
            Used::Corrected => corrected += 1,
            Used::Refused => refused += 1,
        }
    }
    assert!(corrected > 4 && refused > 4, "{corrected} were corrected, {refused} refused");
}

/// A record needs a block, and the bitmaps have none where the counts say so: it is named, and all
/// others are written, those behind it, too.
#[test]
fn damage_in_the_way_of_a_record_loses_only_that() {
    // UFS2, little-endian.
    let mut bytes = bases().swap_remove(2).bytes;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
    };
    let superblock = 65536;
    let (head, groups) = (word(&bytes, superblock + 12), word(&bytes, superblock + 44));
    let frags = word(&bytes, superblock + 188);
    for group in 0..groups {
        let at = (group * frags + head) * FRAGMENT as usize;
        assert_eq!(word(&bytes, at + 4), 0x0009_0255, "cg_magic");
        let map = at + word(&bytes, at + 96);
        let len = word(&bytes, at + 20).div_ceil(8);
        bytes[map..map + len].fill(0);
    }
    let device = Arc::new(MemoryDevice::new(bytes));
    let all = QuotaSelection::default();
    let wrong = |device: &Arc<MemoryDevice>| {
        let found = compare_quotas(device.clone(), &all).expect("sound files").differences;
        found.iter().map(|found| (found.kind, found.id)).collect::<Vec<_>>()
    };
    // The group's record lies in a hole.
    let (lost, behind) = ((OwnerKind::Group, FAR / 2), (OwnerKind::Group, FAR));
    assert!(wrong(&device).contains(&lost) && wrong(&device).contains(&behind));
    let error = correct_quotas(device.clone(), &all, TIME).expect_err("a record").to_string();
    assert!(error.contains(&format!("quota.group: group {}: ", FAR / 2)), "{error}");
    assert_eq!(wrong(&device), [lost]);
}

/// Seeded damage, most of it to records; headers of other versions, lengths that end within a record
/// and pointers to other blocks among it.
#[test]
fn damaged_quota_files_of_unused_volumes() {
    let bases = bases();
    let mut random = super::Random(11);
    let (mut corrected, mut refused) = (0, 0);
    for _ in 0..400 {
        let mut input = vec![random.below(4) as u8];
        for _ in 0..=random.below(3) {
            let place = match random.below(3) {
                0 => random.below(400),
                _ => random.below(20_000),
            };
            input.extend((place as u16).to_le_bytes());
            let len = random.below(16);
            input.push(len as u8);
            let fill = [0, 0xFF, 0x80, random.below(256)][random.below(4)];
            input.extend(std::iter::repeat_n(fill as u8, len + 1));
        }
        match run(&input, &bases) {
            Used::Corrected => corrected += 1,
            Used::Refused => refused += 1,
        }
    }
    assert!(corrected > 100 && refused > 50, "{corrected} were corrected, {refused} refused");
}
