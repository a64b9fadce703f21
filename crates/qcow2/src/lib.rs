//! qcow2: disk images of QEMU, read as block devices.
//!
//! [`open`] gives what a path holds: the disk in a qcow2 image, or the file or device as it
//! is. Versions 2 and 3 are read, with clusters of all sizes, compressed or not, subclusters,
//! backing files and external data files beside the image. Internal snapshots are not looked
//! at: the disk is as it is now. Nothing is written.
//!
//! Format: QEMU, `docs/interop/qcow2.txt`. The contents of an image are not trusted: every
//! field is checked before it is used ([`seekless_device::DeviceError::Damaged`] says at which
//! byte), memory is bounded by 32 MiB of the L1 table and 16 MiB of each of the caches, and a
//! backing file lies beside the image, since another place could be one that is not meant to be
//! read.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions, clippy::arithmetic_side_effects)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

mod cluster;
mod disk;
mod error;
mod files;
mod header;
mod kept;
mod number;
mod ondisk;

pub use disk::Disk;
pub use error::Qcow2Error;
pub use files::open;

use seekless_device::BlockDevice;
use seekless_units::Lba;

/// Whether a file or device holds a qcow2 image, or a damaged one. QEMU's first format, of the
/// same beginning, is none.
#[must_use]
pub fn is_image(file: &dyn BlockDevice) -> bool {
    let mut head = [0; 8];
    file.read(Lba::ZERO, &mut head).is_ok()
        && head.starts_with(&ondisk::MAGIC)
        && !head.ends_with(&[0, 0, 0, 1])
}
