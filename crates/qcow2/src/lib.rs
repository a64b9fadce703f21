//! qcow2: disk images of QEMU, read as block devices.
//!
//! [`open`] opens a path: the disk in a qcow2 image, or another file or device as it is. Versions 2
//! and 3 are supported, with clusters of all sizes, compressed or not, subclusters, backing files
//! and external data files beside the image. Internal snapshots are ignored: the disk is read in
//! its present state. Nothing is written.
//!
//! Format: QEMU, `docs/interop/qcow2.txt`. The contents of an image are not trusted: every field is
//! checked before it is used ([`seekless_device::DeviceError::Damaged`] contains the offset),
//! memory is bounded by 32 MiB of the L1 table and 16 MiB of each of the caches, and a backing file
//! must be beside the image, since another path could be a file that is not meant to be read.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions
    )
)]

mod cluster;
mod disk;
mod error;
mod files;
mod header;
mod number;
mod ondisk;
mod piece_cache;

pub use disk::Disk;
pub use error::Qcow2Error;
pub use files::open;

use seekless_device::BlockDevice;
use seekless_units::Lba;

/// Whether a file or device contains a qcow2 image, or a damaged one. QEMU's first format, which
/// begins alike, is none.
#[must_use]
pub fn is_image(file: &dyn BlockDevice) -> bool {
    let mut head = [0; 8];
    file.read(Lba::ZERO, &mut head).is_ok()
        && head.starts_with(&ondisk::MAGIC)
        && !head.ends_with(&[0, 0, 0, 1])
}
