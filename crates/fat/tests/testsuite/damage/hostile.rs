//! Images made to hurt, each with one lie.

use super::exercise;
use super::patient::Patient;
use seekless_device::MemoryDevice;
use seekless_fat::FatImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::{Corruption, FsError, Inspect, Location};
use seekless_units::ByteLen;
use std::sync::Arc;

/// What an error says is corrupt, and where.
fn corrupt<T>(result: Result<T, FsError>) -> (Corruption, Location) {
    match result {
        Err(FsError::Corrupt { kind, location }) => (kind, *location),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no error"),
    }
}

/// The field that an error names.
fn field<T>(result: Result<T, FsError>) -> &'static str {
    match corrupt(result).0 {
        Corruption::Invalid { field, .. } | Corruption::Range { field, .. } => field,
        other => panic!("{other}"),
    }
}

#[test]
fn chains_that_loop() {
    for mut patient in Patient::all() {
        let chain = patient.chain("/pieces");
        // Back to the start, to itself, and where the length ends before the loop is
        // seen twice.
        for (from, to) in [(1, 0), (1, 1), (4, 3), (10, 10)] {
            let mut looped = patient.copy();
            looped.link(chain[from], chain[to] as u32);
            let (kind, place) = corrupt(looped.read("/pieces"));
            let is_cycle = kind == Corruption::Cycle
                || matches!(kind, Corruption::Invalid { field, .. } if field.contains("another"));
            assert!(is_cycle, "{kind}");
            assert_eq!(place.ino, Some(looped.ino("/pieces")));
            assert!(place.block.is_some(), "{place}");
            // Everything else can be read.
            assert_eq!(looped.read("/dir/SMALL.TXT").expect("read"), b"small");
            exercise(looped.bytes);
        }
        // A directory whose chain comes back: it has attributes, but no names.
        let many = patient.first("/many");
        patient.link(many, many as u32);
        assert_eq!(corrupt(patient.names("/many")).0, Corruption::Cycle);
        assert_eq!(patient.names("/dir").expect("names").len(), 4);
        exercise(patient.bytes);
    }
}

#[test]
fn directories_that_are_in_themselves() {
    for mut patient in Patient::all() {
        // `below` is `dir` again: entered once, and told where it is met again.
        let dir = patient.first("/dir");
        patient.set_first("/dir/below", dir);
        let (kind, place) = corrupt(patient.names("/dir/below"));
        assert!(matches!(kind, Corruption::Invalid { field, .. } if field.contains("directory")));
        assert_eq!(place.block.expect("block").get() as usize * 512, patient.cluster(dir));
        let outcome = exercise(patient.bytes);
        assert!(outcome.opened && outcome.answers < 5000, "{outcome:?}");
    }
}

#[test]
fn clusters_of_two_files() {
    for mut patient in Patient::all() {
        let pieces = patient.first("/pieces");
        patient.set_first("/STAYS", pieces);
        for path in ["/STAYS", "/pieces"] {
            assert_eq!(field(patient.read(path)), "cluster of another file too", "{path}");
        }
        assert_eq!(patient.read("/dir/SMALL.TXT").expect("read"), b"small");
        // On request they are read nevertheless.
        let options = OpenOptions { ignore_checksums: true, skip_journal: false };
        let device = Arc::new(MemoryDevice::new(patient.bytes.clone()));
        let image = FatImage::open(device, options).expect("open");
        let mut text = [0; 5];
        let got = image.read(patient.ino("/STAYS"), ByteLen::ZERO, &mut text).expect("read");
        assert_eq!((got, &text), (5, b"piece"));
        exercise(patient.bytes);
    }
}

#[test]
fn chains_that_lead_to_nothing() {
    for patient in Patient::all() {
        let all = if patient.bits == 12 { 0xFFF } else { (1u64 << patient.bits.min(28)) - 1 };
        let clusters = if patient.bits == 16 { 4333 } else { 900 };
        for (value, says) in [
            (400, "free cluster"),
            (all - 8, "cluster number"),
            (all - 15, "cluster number"),
            (clusters + 2, "cluster number"),
            (1, "cluster number"),
        ] {
            let mut bad = patient.copy();
            bad.link(bad.chain("/pieces")[4], value as u32);
            let (kind, place) = corrupt(bad.read("/pieces"));
            let named = match kind {
                Corruption::Invalid { field, .. } => field,
                other => panic!("{other}"),
            };
            // An entry that is a mark of a bad cluster is that cluster's own.
            let says = if value == all - 8 { "bad cluster" } else { says };
            assert_eq!(named, says, "fat{} {value:#x}", bad.bits);
            assert!(place.block.is_some(), "{place}");
            exercise(bad.bytes);
        }
        let mut short = patient.copy();
        short.link(short.chain("/pieces")[4], all as u32);
        assert_eq!(corrupt(short.read("/pieces")).0, Corruption::Truncated);
        let mut none = patient.copy();
        none.set_size("/dir/empty", 100);
        assert_eq!(corrupt(none.read("/dir/empty")).0, Corruption::Truncated);
        let mut past = Patient { bytes: patient.bytes, bits: patient.bits };
        past.set_first("/STAYS", 60_000);
        assert_eq!(field(past.read("/STAYS")), "cluster number");
        exercise(past.bytes);
    }
}

#[test]
fn long_names_that_are_torn() {
    let whole = "/dir/below/a text with a long name.text";
    for patient in Patient::all() {
        let short = patient.short(whole);
        // Three pieces: the last one first.
        let pieces = short - 96;
        assert_eq!(patient.bytes[pieces], 0x43, "fat{}", patient.bits);
        for (what, at, byte) in [
            ("the last piece is deleted", 0, 0xE5),
            ("the middle piece is deleted", 32, 0xE5),
            ("the first piece is deleted", 64, 0xE5),
            ("the checksum is another's", 13, 0x17),
            ("the checksums differ", 64 + 13, 0x17),
            ("a number is left out", 32, 1),
            ("no piece says that it is the last", 0, 3),
            ("it has too many pieces", 0, 0x40 | 21),
            ("it has no pieces", 0, 0x40),
            ("it has a slash", 64 + 1, b'/'),
        ] {
            let mut torn = patient.copy();
            torn.put(pieces + at, &[byte]);
            assert_eq!(torn.names("/dir/below").expect(what), ["ATEXTW~1.TEX"], "{what}");
            assert_eq!(torn.read("/dir/below/ATEXTW~1.TEX").expect(what).len(), 3000);
            exercise(torn.bytes);
        }
        // The short entry is gone: nothing is left but pieces.
        let mut gone = patient.copy();
        gone.put(short, &[0xE5]);
        assert_eq!(gone.names("/dir/below").expect("names").len(), 0);
        // A name that ends in the first unit is none.
        let mut empty = patient.copy();
        empty.put(pieces + 65, &[0, 0]);
        assert_eq!(empty.names("/dir/below").expect("names"), ["ATEXTW~1.TEX"]);
    }
}

#[test]
fn short_names_that_nobody_could_use() {
    for patient in Patient::all() {
        let at = patient.short("/STAYS");
        for bad in [&b"A/B        "[..], b"A\x01B        ", b".          ", b"A\0         "] {
            let mut forged = patient.copy();
            forged.put(at, bad);
            let (kind, place) = corrupt(forged.names("/"));
            assert!(matches!(kind, Corruption::Invalid { field: "DIR_Name", .. }), "{kind}");
            let byte = place.block.expect("block").get() as usize * 512
                + place.offset.expect("offset") as usize;
            assert_eq!(byte, at);
            exercise(forged.bytes);
        }
    }
}

#[test]
fn boot_sectors_that_do_not_add_up() {
    // Byte, what is put there, and the field that is found wrong.
    type Lie = (usize, &'static [u8], &'static str);
    let common: [Lie; 12] = [
        (11, &[0, 0], "BPB_BytsPerSec"),
        (11, &[0, 1], "BPB_BytsPerSec"),
        (11, &[0, 0x20], "BPB_BytsPerSec"),
        (13, &[0], "BPB_SecPerClus"),
        (13, &[3], "BPB_SecPerClus"),
        (14, &[0, 0], "BPB_RsvdSecCnt"),
        (14, &[0xFF, 0xFF], "BPB_FATSz"),
        (16, &[0], "BPB_NumFATs"),
        (16, &[5], "BPB_NumFATs"),
        (19, &[0xFF, 0xFF], "BPB_TotSec32"),
        (19, &[1, 0], "BPB_FATSz"),
        (13, &[0x80], ""),
    ];
    let narrow: [Lie; 5] = [
        (17, &[0, 0], "BPB_RootEntCnt"),
        (17, &[0xFF, 0xFF], ""),
        (22, &[0xFF, 0xFF], "BPB_FATSz"),
        (22, &[1, 0], "BPB_FATSz"),
        (22, &[0, 0], ""),
    ];
    let wide: [Lie; 9] = [
        (17, &[16, 0], "BPB_RootEntCnt"),
        (36, &[0, 0, 0, 0], "BPB_FATSz32"),
        (36, &[0xFF, 0xFF, 0xFF, 0xFF], "BPB_FATSz"),
        (36, &[1, 0, 0, 0], "BPB_FATSz"),
        (40, &[0x83, 0], "BPB_ExtFlags"),
        (44, &[0, 0, 0, 0], "BPB_RootClus"),
        (44, &[1, 0, 0, 0], "BPB_RootClus"),
        (44, &[0xFF, 0xFF, 0xFF, 0xFF], "BPB_RootClus"),
        (32, &[0, 0, 0, 0], "BPB_TotSec32"),
    ];
    for patient in Patient::all() {
        let own: &[Lie] = if patient.bits == 32 { &wide } else { &narrow };
        for (at, value, says) in common.iter().chain(own) {
            let mut forged = patient.copy();
            forged.put(*at, value);
            let opened = forged.open();
            if says.is_empty() {
                // Another shape, which may be sound: it is only not to panic.
                drop(opened);
            } else {
                assert_eq!(field(opened), *says, "fat{} byte {at} {value:?}", patient.bits);
            }
            exercise(forged.bytes);
        }
    }
    let mut version = Patient::new("fat32");
    version.put(42, &[1, 0]);
    assert!(matches!(version.open(), Err(FsError::Unsupported(_))));
}

#[test]
fn the_fat_that_is_in_use_is_read() {
    // Bit 7 of BPB_ExtFlags: only FAT 1 counts.
    let mut patient = Patient::new("fat32");
    let first = patient.first("/pieces");
    patient.link_in(0, first, 0).put(40, &[0x81, 0]);
    assert_eq!(patient.read("/pieces").expect("read").len(), 11 * 512 + 8);
    patient.put(40, &[0x80, 0]);
    assert_eq!(field(patient.read("/pieces")), "free cluster");
}

#[test]
fn a_deep_tree_and_a_full_directory_are_walked_once() {
    // A chain of directories, each in the one before: every cluster that is free.
    for mut patient in Patient::all() {
        let end = if patient.bits == 12 { 0xFFF } else { 0x0FFF_FFFF };
        let mut above = patient.first("/many");
        let mut depth = 0;
        for cluster in 100..480 {
            let at = patient.cluster(above) + if depth == 0 { 64 } else { 0 };
            let mut entry = *b"DEEPER     \x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
            entry[26..28].copy_from_slice(&(cluster as u16).to_le_bytes());
            patient.put(at, &entry).link(cluster, end);
            if depth == 0 {
                // What follows in the directory above is cut off.
                patient.put(at + 32, &[0; 32]);
            }
            (above, depth) = (cluster, depth + 1);
        }
        let path = format!("/many{}", "/DEEPER".repeat(depth));
        assert!(patient.names(&path).expect("names").is_empty());
        exercise(patient.bytes);
    }
}
