//! Fixed VHD images, as Azure, Hyper-V and hcsshim take them: the bytes of a disk, and a footer
//! behind them.
//!
//! Format: Microsoft, "Virtual Hard Disk Image Format Specification", version 1.0, 2006. The
//! contents of an image are not trusted: a footer counts only if its checksum is right and its
//! length is that of the file.
//!
//! ```
//! use seekless_device::{BlockDevice, MemoryDevice};
//! use seekless_units::{ByteLen, Lba};
//! use std::sync::Arc;
//!
//! let mut raw = vec![0; 1 << 20];
//! raw[5000] = 7;
//! let footer = seekless_vhd::footer(ByteLen::new(1 << 20), [0; 16])?;
//! let file = Arc::new(MemoryDevice::new([&raw[..], &footer].concat()));
//! assert!(seekless_vhd::is_image(file.as_ref()));
//! let disk = seekless_vhd::disk_in(file)?;
//! let mut sector = [0; 512];
//! disk.read(Lba::new(9), &mut sector)?;
//! assert_eq!((disk.len().get(), sector[5000 - 9 * 512]), (1 << 20, 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

mod geometry;
mod ondisk;

use geometry::Chs;
use ondisk::{COOKIE, FIXED, FOOTER, Footer, NO_OFFSET, RESERVED_FEATURE, VERSION};
use seekless_device::{BlockDevice, DeviceError, Window};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// The longest disk, in bytes: 2040 GiB, which Hyper-V accepts.
pub const LONGEST: ByteLen = ByteLen::new(2040 << 30);

/// A disk that is too long for an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a VHD image has at most 2040 GiB")]
pub struct TooLong;

/// The 512 bytes behind a disk of `len` bytes. `id` distinguishes images. The time of creation is
/// left out, so that equal disks have equal images.
///
/// # Errors
/// [`TooLong`] for more than [`LONGEST`].
pub fn footer(len: ByteLen, id: [u8; 16]) -> Result<[u8; 512], TooLong> {
    if len > LONGEST {
        return Err(TooLong);
    }
    let chs = Chs::of(len);
    let mut footer = Footer {
        cookie: COOKIE,
        features: RESERVED_FEATURE.into(),
        file_format_version: VERSION.into(),
        data_offset: NO_OFFSET.into(),
        // Programs that do not know a creator take the length from the geometry; they know that of
        // Hyper-V.
        creator_application: *b"win ",
        creator_version: 0x000A_0000.into(),
        creator_host_os: *b"Wi2k",
        original_size: len.get().into(),
        current_size: len.get().into(),
        cylinders: chs.cylinders.into(),
        heads: chs.heads,
        sectors_per_track: chs.sectors,
        disk_type: FIXED.into(),
        unique_id: id,
        ..Footer::new_zeroed()
    };
    footer.checksum = footer.sum().into();
    let mut bytes = [0; FOOTER];
    footer.write_to(&mut bytes).map_or_else(|_| unreachable!("both have 512 bytes"), |()| Ok(bytes))
}

/// The footer in the last sector of a file.
fn read(file: &dyn BlockDevice) -> Option<Footer> {
    let at = file.len().get().checked_sub(512)?;
    let mut footer = Footer::new_zeroed();
    // A sector that cannot be read is no footer: the disk before it may be whole.
    file.read_bytes(ByteLen::new(at), footer.as_mut_bytes()).ok()?;
    let is_whole = footer.cookie == COOKIE && footer.checksum.get() == footer.sum();
    let is_fixed = footer.disk_type.get() == FIXED && footer.current_size.get() == at;
    Some(footer).filter(|_| is_whole && is_fixed)
}

/// Whether a file or device contains a fixed image.
#[must_use]
pub fn is_image(file: &dyn BlockDevice) -> bool {
    read(file).is_some()
}

/// The disk in a fixed image, or another device as it is.
///
/// # Errors
/// Those of the device.
pub fn disk_in(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, DeviceError> {
    match read(device.as_ref()) {
        None => Ok(device),
        Some(footer) => {
            let len = ByteLen::new(footer.current_size.get());
            Ok(Arc::new(Window::new(device, Lba::ZERO, len)?))
        }
    }
}
