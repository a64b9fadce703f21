//! Damaged quota files: the input of the fuzz target `quota`. A repair makes them again.
//!
//! | bytes | meaning |
//! |---|---|
//! | 2 | place among the bytes of the three files |
//! | 1 | length (1..=16), less 1 |
//! | length | the bytes to put there |

use super::images;
use crate::holes;
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ext::ExtImage;
use seekless_fs::Inspect;
use seekless_fs::check::Outcome;
use seekless_fs::format::OpenOptions;
use seekless_units::{Ino, Lba};
use std::sync::Arc;

/// The quota files of users, groups and projects.
const FILES: [u32; 3] = [3, 4, 12];
const BLOCK: u64 = 1024;
/// The image, made by `make.sh` as the others; only its quota files are damaged.
const IMAGE: &[u8] = include_bytes!("../../images/quota.img.gz");

/// A sound volume, and the places of its quota files' bytes.
pub(crate) struct Base {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

/// The bytes of the volume in `tests/images`.
pub(crate) fn sound() -> Vec<u8> {
    images::unpack(IMAGE)
}

/// The volume in `tests/images`.
pub(crate) fn base() -> Base {
    let bytes = sound();
    let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
    let image = ExtImage::open(device, OpenOptions::default()).expect("sound image");
    let mut places = Vec::new();
    for ino in FILES.map(Ino::new) {
        for run in image.block_map(ino).expect("map").runs {
            let (start, end) = (run.extent.start.get() * BLOCK, run.extent.end().get() * BLOCK);
            places.extend(start as usize..end as usize);
        }
    }
    Base { bytes, places }
}

/// Repairs the volume with the patches of an input; whether there was anything to repair, and the
/// volume then.
pub(crate) fn run(data: &[u8], base: &Base) -> (Outcome, Vec<u8>) {
    let mut bytes = base.bytes.clone();
    let mut rest = data;
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let place = usize::from(u16::from_le_bytes([head[0], head[1]])) % base.places.len();
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        let (patch, after) = after.split_at(len);
        for (&at, &byte) in base.places.iter().skip(place).zip(patch) {
            bytes[at] = byte;
        }
        rest = after;
    }
    super::exercise::exercise(bytes.clone(), false);
    let device = Arc::new(MemoryDevice::new(bytes));
    let repaired = seekless_ext::repair(device.clone()).expect("a damaged quota file");
    assert_ne!(repaired.outcome, Outcome::Left, "{:#?}", repaired.report);
    let again = seekless_ext::repair(device.clone()).expect("repaired once");
    assert_eq!(again.outcome, Outcome::Clean, "{:#?}", again.report);
    let mut bytes = base.bytes.clone();
    device.read(Lba::ZERO, &mut bytes).expect("memory");
    (repaired.outcome, bytes)
}
