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
//!
//! # Example
//!
//! ```
//! use seekless_device::{BlockDevice, MemoryDevice};
//! use seekless_qcow2::Disk;
//! use seekless_units::{ByteLen, Lba};
//! use std::sync::Arc;
//!
//! // The header of an empty disk of 1 MiB, whose only table is at 64 KiB.
//! let mut image = vec![0; 128 << 10];
//! image[..8].copy_from_slice(b"QFI\xFB\0\0\0\x02");
//! image[20..24].copy_from_slice(&16u32.to_be_bytes());
//! image[24..32].copy_from_slice(&(1u64 << 20).to_be_bytes());
//! image[36..40].copy_from_slice(&1u32.to_be_bytes());
//! image[40..48].copy_from_slice(&(64u64 << 10).to_be_bytes());
//!
//! let file = Arc::new(MemoryDevice::new(image));
//! assert!(seekless_qcow2::is_image(file.as_ref()));
//! let disk = Disk::alone(file)?;
//! assert_eq!(disk.len(), ByteLen::new(1 << 20));
//! let mut sector = [7; 512];
//! disk.read(Lba::new(100), &mut sector)?;
//! assert_eq!(sector, [0; 512]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
