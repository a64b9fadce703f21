//! Volumes and sizes that are refused by name, and damage: nothing is written.

use super::{KINDS, Kind, WALL, change, longer, numbers};
use crate::property::for_all;
use crate::slice::some_or_all;
use crate::words::volume::bytes_of;
use proptest::collection::vec;
use proptest::num::u8::ANY;
use proptest::prop_oneof;
use proptest::strategy::{Just, Strategy};
use seekless_device::{MemoryDevice, SparseDevice};
use seekless_ffs::{CheckHashes, MakeOptions, Version, check, grow, make, plan_growth};
use seekless_fs::FsError;
use seekless_units::ByteLen;
use std::sync::Arc;

const CLEAN: usize = 209;
const FLAGS: usize = 1312;
const SNAPSHOTS: usize = 1116;
const OLD_FLAGS: usize = 211;
const UNREFS: usize = 864;

/// Volumes without check hashes, so that a change of a field is not one of a hash.
fn plain(n: usize) -> Kind {
    Kind { hashes: CheckHashes::None, ..KINDS[n] }
}

fn with_files(kind: &Kind) -> Arc<MemoryDevice> {
    let device = kind.made(470 * u64::from(kind.block));
    change(&device, 21, 60);
    device
}

/// Why a growth is refused; it must write nothing.
fn refused(device: &Arc<MemoryDevice>, len: u64) -> FsError {
    let before = bytes_of(device);
    let why = grow(device.clone(), ByteLen::new(len), WALL).expect_err("grown");
    assert!(bytes_of(device) == before, "{why}: something was written");
    let planned = plan_growth(device.clone(), ByteLen::new(len)).expect_err("planned");
    assert_eq!(why.to_string(), planned.to_string());
    why
}

#[test]
fn sizes_that_are_no_growth_are_refused() {
    for kind in KINDS {
        let device = longer(&kind.made(470 * u64::from(kind.block)), 40 << 20);
        let fs = numbers(&device);
        let own = (fs.size() * fs.fsize()) as u64;
        for smaller in [0, 1, own / 2, own - 1] {
            let why = refused(&device, smaller);
            assert!(matches!(why, FsError::Invalid(_)), "{why}");
            assert!(why.to_string().contains("cannot become smaller"), "{why}");
        }
        for same in [own, own + u64::from(kind.fragment) - 1] {
            let why = refused(&device, same);
            assert!(matches!(why, FsError::NoSpace(_)), "{why}");
            assert!(why.to_string().contains("a further fragment"), "{why}");
        }
        let why = grow(device.clone(), ByteLen::new((40 << 20) + 1), WALL).unwrap_err();
        assert!(why.to_string().contains("the device has"), "{why}");
    }
    // The last group is whole: fragments behind it would be one of metadata only.
    let kind = KINDS[1];
    let fs = numbers(&kind.made(4 << 20));
    let whole = (fs.fpg() * 4 * fs.fsize()) as u64;
    let device = longer(&kind.made(whole), 40 << 20);
    assert_eq!(numbers(&device).fpg(), fs.fpg());
    for more in [1, fs.dblkno()] {
        let why = refused(&device, whole + (more * fs.fsize()) as u64);
        assert!(matches!(why, FsError::NoSpace(_)), "{why}");
        assert!(why.to_string().contains("a further cylinder group"), "{why}");
    }
}

#[test]
fn a_summary_area_without_a_place_is_refused() {
    let kind = KINDS[1];
    let fs = numbers(&kind.made(4 << 20));
    let most = fs.cssize() / 16 * fs.fpg();
    let device = longer(&kind.made((most * fs.fsize()) as u64), 40 << 20);
    assert_eq!((numbers(&device).fpg(), numbers(&device).size()), (fs.fpg(), most));
    // The only new group has one fragment for data, the one before no new ones.
    let why = refused(&device, ((most + fs.dblkno() + 1) * fs.fsize()) as u64);
    assert!(why.to_string().contains("summary area"), "{why}");
}

#[test]
fn numbers_of_the_format_are_limits() {
    let ufs1 = MakeOptions {
        fragment_size: 4096,
        ..MakeOptions::new(Version::Ufs1, ByteLen::new(64 << 20))
    };
    let dense = MakeOptions {
        bytes_per_inode: Some(4096),
        ..MakeOptions::new(Version::Ufs2, ByteLen::new(64 << 20))
    };
    for (options, len, says) in [
        (&ufs1, 1u64 << 43, "too large for UFS1"),
        (&dense, 1 << 46, "inodes exceed"),
        (&dense, u64::MAX, "too large for the format"),
    ] {
        let device = Arc::new(SparseDevice::new(options.size));
        make(device.as_ref(), options).unwrap();
        let why = plan_growth(device, ByteLen::new(len)).unwrap_err();
        assert!(matches!(&why, FsError::Invalid(what) if what.contains(says)), "{why}");
    }
}

#[test]
fn volumes_in_no_state_to_grow_are_refused() {
    for n in [0, 1, 3] {
        let device = with_files(&plain(n));
        let (at, big_endian) = (superblock(n), KINDS[n].big_endian);
        let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        for (field, bytes, says) in [
            (CLEAN, &[0][..], "not cleanly unmounted"),
            (FLAGS, &word(1), "not cleanly unmounted"),
            (FLAGS, &word(4), "not cleanly unmounted"),
            (FLAGS, &word(0x40), "a gjournal"),
            (SNAPSHOTS, &word(5), "snapshots"),
            (OLD_FLAGS, &[0], "from before 2002"),
            (UNREFS, &[1, 2], "NetBSD journal"),
        ] {
            if field == OLD_FLAGS && KINDS[n].version == Version::Ufs2 {
                continue;
            }
            let mut all = bytes_of(&longer(&device, 20 << 20));
            all[at + field..at + field + bytes.len()].copy_from_slice(bytes);
            let why = refused(&Arc::new(MemoryDevice::new(all)), 20 << 20);
            assert!(matches!(why, FsError::Refused(_) | FsError::Unsupported(_)), "{why:?}");
            assert!(why.to_string().contains(says), "{why}");
        }
    }
}

fn superblock(n: usize) -> usize {
    if KINDS[n].version == Version::Ufs1 { 8192 } else { 65536 }
}

/// Damage to each part that a growth relies on.
#[test]
fn damage_to_what_changes_is_an_error() {
    for n in [0, 3, 1, 2].into_iter().take(some_or_all(2, 4)) {
        let kind = plain(n);
        let device = with_files(&kind);
        let fs = numbers(&device);
        let frag = |at: i64| (at * fs.fsize()) as usize;
        let last = frag((fs.ncg() - 1) * fs.fpg() + fs.cblkno());
        let first = frag(fs.cblkno());
        let area = frag(fs.csaddr());
        let entry = area + 16 * (fs.ncg() as usize - 1);
        let cg = |at: usize| bytes_of(&device)[last + at..][..4].to_vec();
        let map = |head: usize, at: usize| {
            let bytes = bytes_of(&device)[head + at..][..4].try_into().unwrap();
            head + if kind.big_endian {
                u32::from_be_bytes(bytes)
            } else {
                u32::from_le_bytes(bytes)
            } as usize
        };
        assert!(cg(4) != [0; 4], "a magic number");
        let free = map(last, 96);
        let area_bit = map(first, 96) + (fs.csaddr() / 8) as usize;
        for at in [
            last + 5,
            last + 13,
            last + 21,
            last + 30,
            last + 34,
            last + 38,
            last + 55,
            last + 93,
            last + 97,
            last + 101,
            last + 42,
            free + 4,
            free + frag_bytes(&fs),
            entry + 5,
            entry + 9,
            area + 1,
            first + 30,
            area_bit,
            superblock(n) + 1018,
            superblock(n) + 1034,
            superblock(n) + 45,
            superblock(n) + 1083,
            superblock(n) + 99,
            // The lowest bytes of two totals.
            superblock(n) + 1016 + 7 * usize::from(kind.big_endian),
            superblock(n) + 1032 + 7 * usize::from(kind.big_endian),
        ] {
            let mut all = bytes_of(&longer(&device, 20 << 20));
            all[at] ^= 0x11;
            let device = Arc::new(MemoryDevice::new(all));
            let why = refused(&device, 20 << 20);
            let is_typed = matches!(why, FsError::Corrupt { .. } | FsError::Damaged { .. });
            assert!(is_typed, "{kind:?} byte {at} ({}): {why:?}", at - last.min(at));
        }
    }
}

/// The map of the first group has the summary area as free, and all counts agree with that.
#[test]
fn a_free_summary_area_is_an_error() {
    // A fragment is a block, and clusters are not counted: the map and three counts.
    let device = with_files(&plain(7));
    let fs = numbers(&device);
    let (head, area) = ((fs.cblkno() * fs.fsize()) as usize, fs.csaddr() as usize);
    let mut all = bytes_of(&longer(&device, 20 << 20));
    let map = head + u32::from_le_bytes(all[head + 96..][..4].try_into().unwrap()) as usize;
    assert_eq!(all[map + area / 8] >> (area % 8) & 1, 0, "in use");
    all[map + area / 8] |= 1 << (area % 8);
    for at in [head + 28, area * fs.fsize() as usize + 4, superblock(7) + 1016] {
        let count = u32::from_le_bytes(all[at..][..4].try_into().unwrap());
        all[at..at + 4].copy_from_slice(&(count + 1).to_le_bytes());
    }
    let why = refused(&Arc::new(MemoryDevice::new(all)), 20 << 20);
    assert!(why.to_string().contains("cg_blksfree"), "{why}");
}

/// Bytes of the last group's map of fragments, but for the last.
fn frag_bytes(fs: &crate::rules::freebsd::Fs) -> usize {
    ((fs.size() - (fs.ncg() - 1) * fs.fpg()) / 8) as usize - 1
}

/// A wrong check hash, with nothing else wrong.
#[test]
fn wrong_hashes_are_errors() {
    let device = with_files(&KINDS[1]);
    let fs = numbers(&device);
    let last = (((fs.ncg() - 1) * fs.fpg() + fs.cblkno()) * fs.fsize()) as usize;
    for at in [last + 132, 65536 + 1304] {
        let mut all = bytes_of(&longer(&device, 20 << 20));
        all[at] ^= 1;
        let why = refused(&Arc::new(MemoryDevice::new(all)), 20 << 20);
        assert!(matches!(why, FsError::Corrupt { .. }), "{why:?}");
    }
}

/// Damage of the superblock, the last head and the summary area: an error, and nothing written, or a
/// volume of which a check finds no more than before.
#[test]
fn no_damage_makes_a_growth_panic() {
    let word = || {
        prop_oneof![
            vec(ANY, 1..=1),
            vec(ANY, 4..=4),
            vec(ANY, 8..=8),
            Just(vec![0xFF; 8]),
            Just(vec![0; 8]),
            Just(vec![0x7F, 0xFF, 0xFF, 0xFF]),
            (0..64u8).prop_map(|number| vec![number, 0, 0, 0]),
        ]
    };
    for n in [0, 1, 2, 3, 7] {
        let kind = plain(n);
        let device = longer(&with_files(&kind), 12 << 20);
        let (fs, sound) = (numbers(&device), bytes_of(&device));
        let frag = |at: i64| (at * fs.fsize()) as usize;
        let last = frag((fs.ncg() - 1) * fs.fpg() + fs.cblkno());
        // Three of four harm the superblock.
        let places = [
            (superblock(n), 1376),
            (superblock(n), 216),
            (superblock(n) + 840, 536),
            (last, 1200),
            (frag(fs.csaddr()), 128),
        ];
        let damage = (0..places.len(), 0..1376usize, word());
        let grown = std::cell::Cell::new(0);
        for_all((some_or_all(40, 120), 400 + n), vec(damage, 1..=3), |damages| {
            let mut harmed = sound.clone();
            for (part, offset, with) in &damages {
                let (start, len) = places[*part];
                let at = start + offset % (len - 8);
                harmed[at..at + with.len()].copy_from_slice(with);
            }
            let device = Arc::new(MemoryDevice::new(harmed.clone()));
            let findings = |device: &Arc<MemoryDevice>| {
                check(device.clone()).map(|report| report.findings.len())
            };
            let before = findings(&device);
            match grow(device.clone(), ByteLen::new(12 << 20), WALL) {
                Err(_) => assert!(bytes_of(&device) == harmed, "something was written"),
                Ok(_) => {
                    grown.set(grown.get() + 1);
                    let (before, after) =
                        (before.expect("a superblock"), findings(&device).unwrap());
                    assert!(after <= before, "{damages:?}: {before} findings, then {after}");
                }
            }
        });
        println!("{n}: {} grew", grown.get());
        assert!(grown.get() > some_or_all(0, 2));
    }
}
