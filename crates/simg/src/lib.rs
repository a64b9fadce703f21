//! Android sparse images, which fastboot transfers and `simg2img` converts: read as block devices,
//! and written.
//!
//! An image is a list of chunks, each of whole blocks: bytes, a repeated word of four bytes, or
//! blocks that are left as they are, which read as zeros here. Format:
//! `libsparse/sparse_format.h` of Android. The contents of an image are not trusted: every chunk is
//! checked when it is opened ([`seekless_device::DeviceError::Damaged`] contains the offset), and
//! memory is bounded by the length of the file.
//!
//! ```
//! use seekless_device::{BlockDevice, MemoryDevice};
//! use seekless_units::Lba;
//! use std::sync::Arc;
//!
//! let mut raw = vec![0; 16384];
//! raw[5000] = 7;
//! let mut image = Vec::new();
//! seekless_simg::write(&MemoryDevice::new(raw), &mut image, &mut || Ok(()))?;
//! assert!(image.len() < 8192);
//! let file = Arc::new(MemoryDevice::new(image));
//! assert!(seekless_simg::is_image(file.as_ref()));
//! let disk = seekless_simg::Disk::open(file)?;
//! let mut sector = [0; 512];
//! disk.read(Lba::new(9), &mut sector)?;
//! assert_eq!((disk.len().get(), sector[5000 - 9 * 512]), (16384, 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

mod disk;
mod ondisk;
mod write;

pub use disk::{Disk, SimgError, disk_in};
pub use write::{WriteError, write};

use seekless_device::BlockDevice;
use seekless_units::Lba;

/// Whether a file or device contains a sparse image, or a damaged one.
#[must_use]
pub fn is_image(file: &dyn BlockDevice) -> bool {
    let mut head = [0; 4];
    file.read(Lba::ZERO, &mut head).is_ok() && u32::from_le_bytes(head) == ondisk::MAGIC
}
