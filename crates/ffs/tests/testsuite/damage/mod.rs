//! Damaged and hostile images: typed errors, no panics, bounded work.

mod check;
pub(crate) mod cut;
mod golden;
mod images;
mod journals;
mod numbers;
mod patient;
mod quotas;
mod repair;
mod storm;

use crate::exercise;
use seekless_device::MemoryDevice;
use seekless_ffs::{FORMAT, FfsImage};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{Corruption, FileKind, FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

fn exercise(bytes: Vec<u8>) -> exercise::Outcome {
    exercise::exercise(&FORMAT, bytes, false)
}

/// A small generator, so that every run meets the same damage.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

fn open(bytes: Vec<u8>) -> Result<FfsImage, FsError> {
    FfsImage::open(Arc::new(MemoryDevice::new(bytes)), OpenOptions::default())
}

#[test]
fn all_versions_and_orders_say_the_same() {
    for (name, compressed) in images::IMAGES {
        let image = open(images::unpack(compressed)).expect(name);
        assert!(name.starts_with(image.geometry().format), "{name}");
        let find = |path: &str| resolve(&image, path.as_bytes()).expect(path);
        let mut text = vec![0; 100];
        assert_eq!(image.read(find("/dir/small"), ByteLen::ZERO, &mut text).expect("read"), 5);
        assert_eq!(&text[..5], b"small");
        assert_eq!(find("/dir/hard"), find("/dir/small"));
        assert_eq!(image.attr(find("/dir/hard")).expect("attr").nlink, 2);
        assert_eq!(image.read_link(find("/dir/fast")).expect("target"), b"short");
        assert_eq!(image.read_link(find("/dir/slow")).expect("target"), [b'l'; 150]);
        assert_eq!(image.attr(find("/dir/fifo")).expect("attr").kind, FileKind::Fifo);
        let pieces = find("/pieces");
        for n in 60..=70u64 {
            let at = ByteLen::new(n * 1024);
            assert_eq!(image.read(pieces, at, &mut text[..8]).expect("read"), 8);
            assert_eq!(text[..8], *format!("piece {n:02}").as_bytes());
        }
        let map = image.block_map(pieces).expect("map");
        assert_eq!(map.index.len(), 1, "{name}: one indirect block");
        // What the groups count as free is what the superblock adds up to.
        let groups = (0..image.geometry().groups).map(seekless_units::GroupNo::new);
        let free: u64 = groups.map(|n| image.group(n).expect("group").free_blocks).sum();
        assert_eq!(free, image.geometry().free_blocks, "{name}");
    }
}

#[test]
fn sound_images_give_no_errors_where_none_belong() {
    for (name, compressed) in images::IMAGES {
        let outcome = exercise(images::unpack(compressed));
        assert!(outcome.opened && outcome.answers > 500, "{name}: {outcome:?}");
    }
}

#[test]
fn truncated_images() {
    for (name, compressed) in images::IMAGES {
        let whole = images::unpack(compressed);
        let lengths = (0..whole.len()).step_by(whole.len() / 60).chain([8191, 8192, 9567, 9568]);
        for len in lengths {
            let outcome = exercise(whole[..len].to_vec());
            assert!(!outcome.opened, "{name}: opened with {len} of {} bytes", whole.len());
        }
    }
}

#[test]
fn flipped_bits() {
    for (seed, (name, compressed)) in (1..).zip(images::IMAGES) {
        let base = images::unpack(compressed);
        let places: Vec<usize> = (8192..base.len()).filter(|&at| base[at] != 0).collect();
        let mut random = Random(seed);
        let (mut opened, mut errors) = (0, 0);
        for _ in 0..1500 {
            let mut bytes = base.clone();
            for _ in 0..=random.below(4) {
                let at = places[random.below(places.len())];
                match random.below(4) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => bytes[at] = 0xFF,
                    _ => bytes[at] ^= 1 << random.below(8),
                }
            }
            let outcome = exercise(bytes);
            opened += usize::from(outcome.opened);
            errors += outcome.errors;
        }
        assert!(opened > 500, "{name}: only {opened} opened");
        assert!(errors > 0, "{name}: no damage was found");
    }
}

/// An image with words of an inode changed, each at its byte.
fn with_inode_words(path: &str, words: &[(usize, u32)]) -> (FfsImage, Ino) {
    let mut bytes = images::unpack(images::IMAGES[2].1);
    let image = open(bytes.clone()).expect("open");
    let ino = resolve(&image, path.as_bytes()).expect(path);
    let place = image.inode_location(ino).expect("location");
    let unit = image.geometry().block_size as usize;
    let base = place.block.get() as usize * unit + place.offset as usize;
    for (at, value) in words {
        bytes[base + at..base + at + 4].copy_from_slice(&value.to_le_bytes());
    }
    (open(bytes).expect("open"), ino)
}

/// Where a UFS2 inode has its size, the first block of its attributes, its first block and its
/// indirect blocks.
const SIZE: usize = 16;
const ATTRIBUTES: usize = 96;
const DIRECT: usize = 112;
const INDIRECT: usize = 208;

#[test]
fn indirect_blocks_that_hold_something_else_come_to_an_end() {
    let (image, ino) = with_inode_words("/pieces", &[]);
    let single = image.block_map(ino).expect("map").index[0].block.get() as u32;
    // The single indirect block as a double and a triple one: what it points to
    // is text, not numbers.
    for level in [8, 16] {
        let words = [(SIZE + 4, 4), (INDIRECT + level, single)];
        let (image, ino) = with_inode_words("/pieces", &words);
        match image.block_map(ino) {
            Err(FsError::Corrupt { location, .. }) => assert_eq!(location.ino, Some(ino)),
            other => panic!("{other:?}"),
        }
        // The part in front of it reads as ever.
        let mut buf = [0; 8];
        assert_eq!(image.read(ino, ByteLen::new(60 * 1024), &mut buf).expect("read"), 8);
        assert_eq!(&buf, b"piece 60");
    }
}

#[test]
fn impossible_values_are_named() {
    for word in [DIRECT, ATTRIBUTES, ATTRIBUTES + 4] {
        let (image, ino) = with_inode_words("/dir/below/text", &[(word, u32::MAX)]);
        match image.block_map(ino) {
            Err(FsError::Corrupt { kind: Corruption::Range { field, .. }, location }) => {
                assert_eq!((field, location.ino), ("block number", Some(ino)), "word at {word}");
            }
            other => panic!("word at {word}: {other:?}"),
        }
    }
    let (image, ino) = with_inode_words("/dir", &[(SIZE, 513)]);
    let listed = image.read_dir(ino, 0, &mut |_| std::ops::ControlFlow::Continue(()));
    assert!(matches!(listed, Err(FsError::Corrupt { .. })), "{listed:?}");
}
