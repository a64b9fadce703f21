//! Damaged and hostile images: typed errors, no panics, bounded work.

mod images;
#[path = "../../../fs/tests/shared/property.rs"]
mod property;

use images::{IMAGES, Outcome, exercise, patched, unpack};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_qcow2::{Disk, Qcow2Error};
use seekless_units::ByteLen;
use std::cell::Cell;
use std::sync::Arc;

fn image(name: &str) -> Vec<u8> {
    let found = IMAGES.iter().find(|(known, _)| *known == name);
    unpack(found.expect("an image of that name").1)
}

fn open(bytes: Vec<u8>) -> Result<Disk, Qcow2Error> {
    Disk::alone(Arc::new(MemoryDevice::new(bytes)))
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("8 bytes"))
}

/// The common contents of all of them.
fn wanted() -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    disk[8 << 10..24 << 10].fill(0x55);
    disk[100 << 10..104 << 10].fill(0x74);
    disk
}

#[test]
fn all_images_hold_the_same() {
    for (name, compressed) in IMAGES {
        let disk = open(unpack(compressed)).expect(name);
        let mut all = vec![9; 1 << 20];
        disk.read_bytes(ByteLen::ZERO, &mut all).expect(name);
        assert!(all == wanted(), "{name}");
        // In pieces that are no clusters.
        for (at, len) in [(8191, 2), (24_575, 513), (100 << 10, 1), (1_048_000, 576)] {
            let mut part = vec![9; len];
            disk.read_bytes(ByteLen::new(at), &mut part).expect(name);
            assert_eq!(part, wanted()[at as usize..][..len], "{name} at {at}");
        }
        assert_eq!(exercise(unpack(compressed)), Outcome::Read, "{name}");
    }
}

/// Each field, changed to a refused value; the offset in the message, and a word of it.
#[test]
fn fields_out_of_bounds_are_named() {
    type Change = fn(&mut [u8]);
    let cases: [(&str, Change, u64, &str); 14] = [
        ("v3", |b| put32(b, 20, 8), 20, "cluster_bits is 8"),
        ("v3", |b| put32(b, 20, 22), 20, "cluster_bits is 22"),
        ("extended", |b| put32(b, 20, 13), 20, "extended"),
        ("v3", |b| put64(b, 24, 1 << 60), 36, "l1_size"),
        ("v3", |b| put32(b, 36, u32::MAX), 36, "l1_size"),
        ("v3", |b| put64(b, 40, 77), 40, "no"),
        ("v3", |b| put64(b, 40, 1 << 62), 40, "past the end"),
        ("v3", |b| put32(b, 100, 96), 100, "header_length"),
        ("v3", |b| put32(b, 100, 108), 100, "header_length"),
        ("v3", |b| put32(b, 100, 1 << 20), 100, "header_length"),
        (
            "v3",
            |b| {
                put64(b, 8, 1 << 40);
                put32(b, 16, 5)
            },
            8,
            "backing_file_offset",
        ),
        (
            "v3",
            |b| {
                put64(b, 8, 200);
                put32(b, 16, 1024)
            },
            16,
            "backing_file_size",
        ),
        (
            "v3",
            |b| {
                put32(b, 112, 1);
                put32(b, 116, u32::MAX)
            },
            112,
            "header extension",
        ),
        ("zstd", |b| b[104] = 0, 104, "compression_type"),
    ];
    for (name, change, at, word) in cases {
        let mut bytes = image(name);
        change(&mut bytes);
        match open(bytes) {
            Err(Qcow2Error::Device(DeviceError::Damaged { offset, what, .. })) => {
                assert!(offset == at && what.contains(word), "{word}: byte {offset}: {what}");
            }
            other => panic!("{word}: {:?}", other.err()),
        }
    }
}

#[test]
fn what_is_not_supported_is_named() {
    type Change = fn(&mut [u8]);
    let cases: [(Change, &str); 7] = [
        (|b| put32(b, 4, 4), "version 4"),
        (|b| put32(b, 32, 1), "encrypted"),
        (|b| put32(b, 32, 2), "encrypted"),
        (|b| put64(b, 72, 2), "marked as corrupt"),
        (|b| put64(b, 72, 1 << 40), "incompatible feature 40"),
        (
            |b| {
                put64(b, 72, 8);
                put32(b, 100, 112);
                b[104] = 7
            },
            "compression type 7",
        ),
        (|b| put64(b, 72, 4), "another file"),
    ];
    for (change, word) in cases {
        let mut bytes = image("v3");
        change(&mut bytes);
        match open(bytes) {
            Err(Qcow2Error::Unsupported(what)) => assert!(what.contains(word), "{word}: {what}"),
            other => panic!("{word}: {:?}", other.err()),
        }
    }
    // An image that was not closed has stale reference counts, which are not used.
    let mut bytes = image("v3");
    put64(&mut bytes, 72, 1);
    assert_eq!(exercise(bytes), Outcome::Read);
}

/// The error of reading through a changed entry.
fn read_error(bytes: Vec<u8>) -> (u64, String) {
    let disk = open(bytes).expect("opened");
    let mut all = vec![0; 1 << 20];
    match disk.read_bytes(ByteLen::ZERO, &mut all) {
        Err(DeviceError::Damaged { offset, what, .. }) => (offset, what),
        other => panic!("{other:?}"),
    }
}

#[test]
fn entries_that_lead_nowhere_are_named() {
    let v3 = image("v3");
    let l1 = get64(&v3, 40) as usize;
    let l2 = (get64(&v3, l1) & ((1 << 56) - 1)) as usize;
    // The cluster at 8 KiB.
    let entry = l2 + 2 * 8;
    for (at, value, word) in [
        (l1, 0x1200, "L1 entry leads to byte 4608"),
        (l1, 1 << 50, "past the end of the file"),
        (entry, 0x1200, "L2 entry leads to byte 4608"),
    ] {
        let mut bytes = v3.clone();
        put64(&mut bytes, at, value);
        let (offset, what) = read_error(bytes);
        assert!(offset == at as u64 && what.contains(word), "{word}: byte {offset}: {what}");
    }
    let mut bytes = v3;
    put64(&mut bytes, entry, 1 << 50);
    assert_eq!(read_error(bytes), (1 << 50, "a cluster lies past the end of the file".into()));

    let extended = image("extended");
    let l2 = (get64(&extended, get64(&extended, 40) as usize) & ((1 << 56) - 1)) as usize;
    for (bitmap, word) in [(u64::MAX, "both allocated and zero"), (1, "but its cluster is not")] {
        let mut bytes = extended.clone();
        if bitmap == 1 {
            put64(&mut bytes, l2, 0);
        }
        put64(&mut bytes, l2 + 8, bitmap);
        let (offset, what) = read_error(bytes);
        assert!(offset == l2 as u64 + 8 && what.contains(word), "{word}: byte {offset}: {what}");
    }
}

/// Compressed data that are truncated, garbage, or request a large window.
#[test]
fn damaged_clusters_are_named() {
    for name in ["deflate", "zstd"] {
        let bytes = image(name);
        let l2 = (get64(&bytes, get64(&bytes, 40) as usize) & ((1 << 56) - 1)) as usize;
        let entry = get64(&bytes, l2 + 2 * 8);
        assert!(entry & 1 << 62 != 0, "{name}: compressed");
        // Clusters of 4 KiB: 58 bits of offset.
        let at = (entry & ((1 << 58) - 1)) as usize;
        let mut garbage = bytes.clone();
        garbage[at..at + 8].fill(0xEE);
        let (offset, what) = read_error(garbage);
        assert!(offset == at as u64 && what.contains("4096 bytes"), "{name}: {offset}: {what}");
        let mut away = bytes;
        put64(&mut away, l2 + 2 * 8, 1 << 62 | 1 << 40);
        assert_eq!(read_error(away).0, 1 << 40, "{name}");
    }
}

/// Where bytes are overwritten, among those that are not zero, and by which.
type Patch = (u16, Vec<u8>);

/// Mostly in the header and the tables, which come first.
fn patches() -> impl Strategy<Value = Vec<Patch>> {
    let at = prop_oneof![3 => 0..256u16, 1 => any::<u16>()];
    vec((at, vec(any::<u8>(), 1..=4)), 1..=4)
}

/// The same as the input of the fuzz target.
fn encoded(patches: &[Patch]) -> Vec<u8> {
    let patch =
        |(at, bytes): &Patch| [&at.to_le_bytes(), &[bytes.len() as u8 - 1][..], bytes].concat();
    patches.iter().flat_map(patch).collect()
}

#[test]
fn images_damaged_anywhere_are_read_or_refused() {
    let counts = [const { Cell::new(0) }; 3];
    for (name, compressed) in IMAGES {
        let bytes = unpack(compressed);
        property::for_all(2000, (Just(name), patches()), |(_, patches)| {
            let outcome = exercise(patched(bytes.clone(), &encoded(&patches)));
            counts[outcome as usize].update(|count| count + 1);
        });
    }
    let counts = counts.map(Cell::into_inner);
    assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
}

#[test]
fn images_cut_anywhere_are_read_or_refused() {
    for (name, compressed) in IMAGES {
        let bytes = unpack(compressed);
        for len in (0..bytes.len()).step_by(509) {
            let cut = exercise(bytes[..len].to_vec());
            assert!(len > 104 || cut == Outcome::Refused, "{name} cut to {len}");
        }
    }
}

/// Inputs of the fuzz target: the number of an image, and patches to it.
#[test]
fn the_corpus_is_read_or_refused() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/qcow2");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).expect("corpus") {
        let input = std::fs::read(entry.expect("entry").path()).expect("input");
        let (&choice, rest) = input.split_first().expect("an image");
        let (_, compressed) = IMAGES[usize::from(choice) % IMAGES.len()];
        exercise(patched(unpack(compressed), rest));
        inputs += 1;
    }
    assert!(inputs > 4, "{inputs}");
}
