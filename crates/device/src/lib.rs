//! Block devices: where images live.
//!
//! A [`BlockDevice`] is addressed in sectors ([`Lba`]) and may be shared
//! between threads; every call is positional. Kinds: a file or real device
//! ([`FileDevice`]), memory ([`MemoryDevice`]; [`SparseDevice`] where little of
//! a large one is used) and a copy-on-write layer over
//! another device ([`Overlay`]), which is how an unreplayed journal is shown
//! without touching the image.

mod clock;
mod file;
mod memory;
mod overlay;
mod sparse;

pub use clock::{Clock, RealClock, VirtualClock};
pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use sparse::SparseDevice;

use seekless_units::{ByteLen, Lba};
use std::io;

/// Why a device did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The range ends past the end of the device.
    #[error("sector {at}: {len} bytes extend past the end of the device ({device_len} bytes)")]
    OutOfRange {
        /// First sector asked for.
        at: Lba,
        /// Bytes asked for.
        len: u64,
        /// The device's length in bytes.
        device_len: ByteLen,
    },
    /// The device can only be read.
    #[error("the device is opened read-only")]
    ReadOnly,
    /// Another process changes the image now, or the kernel has it mounted.
    #[error("the image is in use: it is mounted or being changed (unmount it first)")]
    InUse,
    /// The image could not be opened for writing.
    #[error("{source}")]
    Open {
        /// What the system said.
        source: io::Error,
    },
    /// The operating system or the hardware refused.
    #[error("sector {at}: {source}")]
    Io {
        /// First sector asked for.
        at: Lba,
        /// What the system said.
        source: io::Error,
    },
}

/// A device of 512-byte sectors. All calls are positional and thread-safe.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes. A trailing part of a sector counts as present.
    fn len(&self) -> ByteLen;

    /// Whether the device holds nothing at all.
    fn is_empty(&self) -> bool {
        self.len() == ByteLen::ZERO
    }

    /// Fills `buf` from sector `at` on.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] when the range is not wholly on the device;
    /// [`DeviceError::Io`] when reading fails. `buf` is then unspecified.
    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Fills `buf` from byte `at` on, which need not begin a sector.
    ///
    /// # Errors
    /// As [`BlockDevice::read`].
    fn read_bytes(&self, at: ByteLen, buf: &mut [u8]) -> Result<(), DeviceError> {
        let lba = Lba::containing(at);
        let within = at.get().saturating_sub(lba.to_bytes().get()) as usize;
        if within == 0 {
            return self.read(lba, buf);
        }
        let mut bounce = vec![0; within + buf.len()];
        self.read(lba, &mut bounce)?;
        buf.copy_from_slice(&bounce[within..]);
        Ok(())
    }

    /// Writes `buf` from sector `at` on.
    ///
    /// # Errors
    /// As [`BlockDevice::read`], and [`DeviceError::ReadOnly`].
    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError>;

    /// As [`BlockDevice::write`], of a write that nobody waits for: later calls
    /// see it, but a device may take its time over it, and over several in an
    /// order of its own.
    ///
    /// # Errors
    /// As [`BlockDevice::write`].
    fn write_behind(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.write(at, buf)
    }

    /// Returns once all completed writes are on stable storage.
    ///
    /// # Errors
    /// [`DeviceError::Io`] when the system cannot promise that.
    fn flush(&self) -> Result<(), DeviceError>;
}

/// Checks that `len` bytes from `at` lie on a device of `device_len` bytes and
/// returns the byte offset.
fn check_range(at: Lba, len: usize, device_len: ByteLen) -> Result<u64, DeviceError> {
    let out = || DeviceError::OutOfRange { at, len: len as u64, device_len };
    let start = at.get().checked_mul(seekless_units::SECTOR).ok_or_else(out)?;
    let end = start.checked_add(len as u64).ok_or_else(out)?;
    if end > device_len.get() { Err(out()) } else { Ok(start) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn ranges_past_the_end_are_refused() {
        let device = MemoryDevice::new(vec![7; 1024]);
        let mut buf = [0; 512];
        device.read(Lba::new(1), &mut buf).unwrap();
        assert_eq!(buf, [7; 512]);
        assert!(matches!(device.read(Lba::new(2), &mut buf), Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(
            device.read(Lba::new(u64::MAX), &mut buf),
            Err(DeviceError::OutOfRange { .. })
        ));
    }

    #[test]
    fn an_overlay_never_writes_to_its_base() {
        let base = Arc::new(MemoryDevice::new(vec![1; 8192]));
        let overlay = Overlay::new(base.clone(), 1024);
        overlay.write(Lba::new(3), &[9; 512]).unwrap();
        let mut buf = vec![0; 4096];
        overlay.read(Lba::new(0), &mut buf).unwrap();
        assert!(buf[..1536].iter().all(|&b| b == 1));
        assert!(buf[1536..2048].iter().all(|&b| b == 9));
        assert!(buf[2048..].iter().all(|&b| b == 1));
        base.read(Lba::new(0), &mut buf).unwrap();
        assert!(buf.iter().all(|&b| b == 1));
    }
}
