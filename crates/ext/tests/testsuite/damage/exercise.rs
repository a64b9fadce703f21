//! Uses every part of the reader on an image that may be damaged.

use crate::exercise;
use crate::holes;
use exercise::Outcome;
use seekless_device::MemoryDevice;
use seekless_ext::ExtImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_units::{GroupNo, Ino};
use std::sync::Arc;

/// What every reader offers, then what only this one does.
pub(crate) fn exercise(bytes: Vec<u8>, ignore_checksums: bool) -> Outcome {
    let mut outcome = exercise::exercise(&seekless_ext::FORMAT, bytes.clone(), ignore_checksums);
    outcome.note(seekless_ext::check(Arc::new(MemoryDevice::new(holes::copy(&bytes)))));
    let options = OpenOptions { ignore_checksums, skip_journal: false };
    let Ok(image) = ExtImage::open(Arc::new(MemoryDevice::new(bytes)), options) else {
        return outcome;
    };
    for ino in (1..=64).map(Ino::new) {
        outcome.note(image.raw_inode(ino));
    }
    for number in (0..image.geometry().groups.min(16)).map(GroupNo::new) {
        outcome.note(image.allocated_inodes(number));
        outcome.note(image.group_desc(number));
    }
    outcome
}
