//! Words of superblocks, descriptors, inodes and maps at the ends of their ranges: whatever is
//! computed from them, reading, checking, repairing and mounting end with an answer or an error.

use super::exercise::exercise;
use super::sums::mend;
use super::{Random, images, in_use};
use crate::holes;
use seekless_cache::{Discipline, JournalMode};
use seekless_device::MemoryDevice;
use seekless_ext::{ExtImage, Relayout};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use std::sync::Arc;

const SUPERBLOCK: usize = 1024;
/// Blocks of all images have 1 KiB.
const DESCRIPTORS: usize = 2048;

fn word(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

fn put(bytes: &mut [u8], at: usize, value: u64, len: usize) {
    bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
}

fn discipline_of(name: &str) -> Discipline {
    match name {
        "journal" | "fastcommit" => Discipline::Journal(JournalMode::Ordered),
        _ => Discipline::Async,
    }
}

/// Files and directories are made, written, cut, renamed and removed.
const OPERATIONS: [u8; 48] = [
    0, 0, 9, 1, 0, 0, 10, 2, 0, 0, 11, 3, 1, 1, 40, 7, 7, 3, 1, 200, 8, 4, 4, 9, 9, 5, 3, 4, 10, 4,
    2, 9, 11, 3, 1, 200, 4, 0, 9, 12, 2, 0, 10, 0, 12, 3, 4, 1,
];

/// Reads, checks, repairs and mounts an image; whether it could be mounted.
fn go_through(name: &str, bytes: Vec<u8>) -> bool {
    exercise(bytes.clone(), true);
    let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
    let _ = seekless_ext::repair(device.clone());
    let options = OpenOptions { ignore_checksums: true, skip_journal: false };
    if let Ok(image) = ExtImage::open(device, options) {
        let _ = Relayout::new(&image);
    }
    in_use::run_on(bytes, discipline_of(name), false, &OPERATIONS).opened
}

/// Where a word is looked at: in the superblock, a descriptor, one of the first inodes, or
/// anywhere but in zeros.
fn place(bytes: &[u8], used: &[usize], random: &mut Random) -> usize {
    let size = word(bytes, SUPERBLOCK + 88, 2).clamp(128, 1024) as usize;
    let table = word(bytes, DESCRIPTORS + 8, 4) as usize * 1024;
    let at = match random.below(10) {
        0..4 => SUPERBLOCK + random.below(0x3FC),
        4 => DESCRIPTORS + random.below(64),
        5..8 if table < bytes.len() => table + random.below(20) * size + random.below(160),
        _ => used[random.below(used.len())],
    };
    at.min(bytes.len() - 4) & !1
}

fn storm(name: &str, seed: u64, cases: usize) {
    let base = images::named(name);
    let used: Vec<usize> = (1024..base.len()).filter(|&at| base[at] != 0).collect();
    let mut random = Random(seed);
    let mut mounted = 0;
    for _ in 0..cases {
        let mut bytes = base.clone();
        for _ in 0..=random.below(3) {
            let at = place(&base, &used, &mut random);
            let value = match random.below(6) {
                0 => 0,
                1 => 1,
                2 => 0x7FFF_FFFF,
                3 | 4 => 0xFFFF_FFFF,
                _ => random.below(1 << 31) as u64 * 2 + 1,
            };
            put(&mut bytes, at, value, if random.below(2) == 0 { 2 } else { 4 });
        }
        mend(&mut bytes);
        mounted += usize::from(go_through(name, bytes));
    }
    let can_be = !matches!(name, "features" | "bigalloc");
    assert!(!can_be || mounted > cases / 5, "{name}: {mounted} of {cases} could be mounted");
}

#[test]
fn words_at_the_ends_of_their_ranges() {
    for (seed, (name, _)) in (900..).zip(images::IMAGES) {
        // The larger ones take longer.
        storm(name, seed, if images::named(name).len() > 4 << 20 { 25 } else { 100 });
    }
}

/// Counters and sizes of the superblock, each at its most, in an image that is sound otherwise: it
/// is mounted, and files are made there.
#[test]
fn counters_at_their_most() {
    let fields: &[(&str, usize, usize)] = &[
        ("s_mnt_count", 52, 2),
        ("s_max_mnt_count", 54, 2),
        ("s_def_hash_version", 252, 1),
        ("s_min_extra_isize", 348, 2),
        ("s_want_extra_isize", 350, 2),
        ("s_r_blocks_count", 8, 4),
        ("s_r_blocks_count_hi", 340, 4),
        ("s_error_count", 404, 4),
        ("s_log_groups_per_flex", 372, 1),
        ("s_reserved_gdt_blocks", 206, 2),
        ("s_first_meta_bg", 260, 4),
    ];
    for name in ["ext4", "inline", "journal"] {
        let all = fields.iter().map(|field| vec![*field]).chain([fields.to_vec()]);
        for set in all {
            let mut bytes = images::named(name);
            for &(_, at, len) in &set {
                put(&mut bytes, SUPERBLOCK + at, u64::MAX, len);
            }
            mend(&mut bytes);
            go_through(name, bytes.clone());
            let done = in_use::run_on(bytes, discipline_of(name), false, &OPERATIONS);
            assert!(done.opened && done.done > 8, "{name}, {set:?}: {done:?}");
            assert!(done.failed * 2 < done.done, "{name}, {set:?}: {done:?}");
        }
    }
}

/// More descriptor blocks in front of the meta groups than there are: only those are looked for.
#[test]
fn meta_groups_behind_the_end() {
    let mut bytes = images::named("features");
    put(&mut bytes, SUPERBLOCK + 260, 0xFFFF_FFFF, 4);
    // A descriptor that must be looked for in its copies.
    put(&mut bytes, DESCRIPTORS + 8, 0xFFFF_FFFF, 4);
    mend(&mut bytes);
    go_through("features", bytes);
}

/// A directory that ends within a block has no place for another one.
#[test]
fn directories_that_end_within_a_block() {
    for name in ["ext2", "ext4"] {
        let mut bytes = images::named(name);
        let table = word(&bytes, DESCRIPTORS + 8, 4) as usize * 1024;
        // The root, full of names; the length of its inode is `i_size_lo`.
        put(&mut bytes, table + 256 + 4, 1000, 4);
        mend(&mut bytes);
        let many: Vec<u8> = (0..120).flat_map(|n| [0, 0, 100 + n, 1]).collect();
        let done = in_use::run_on(bytes, Discipline::Async, false, &many);
        assert!(done.opened && done.failed > 0, "{name}: {done:?}");
    }
}

/// The sum of free inodes of two groups, which claim all that a descriptor can.
#[test]
fn free_inodes_of_damaged_groups() {
    let mut bytes = images::named("ext4");
    put(&mut bytes, SUPERBLOCK + 32, 96, 4);
    put(&mut bytes, SUPERBLOCK + 40, 56, 4);
    let first = bytes[DESCRIPTORS..DESCRIPTORS + 64].to_vec();
    bytes[DESCRIPTORS + 64..DESCRIPTORS + 128].copy_from_slice(&first);
    for group in [DESCRIPTORS, DESCRIPTORS + 64] {
        for free in [0x0C, 0x0E, 0x2C, 0x2E] {
            put(&mut bytes, group + free, 0xFFFF, 2);
        }
    }
    mend(&mut bytes);
    let options = OpenOptions { ignore_checksums: true, skip_journal: false };
    let image =
        ExtImage::open(Arc::new(MemoryDevice::new(holes::copy(&bytes))), options).expect("open");
    assert_eq!(image.geometry().groups, 2);
    assert_eq!(image.geometry().free_inodes, u32::MAX);
    go_through("ext4", bytes);
}
