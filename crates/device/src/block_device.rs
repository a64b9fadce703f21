//! The interface of block devices.

use crate::{HostRange, Reflink};
use seekless_units::{ByteLen, Lba};
use std::io;

/// The reason why a device failed a request.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The range ends past the end of the device.
    #[error("sector {at}: {len} bytes extend past the end of the device ({device_len} bytes)")]
    OutOfRange {
        /// First sector requested.
        at: Lba,
        /// Number of bytes requested.
        len: u64,
        /// The device's length in bytes.
        device_len: ByteLen,
    },
    /// The device can only be read.
    #[error("the device is opened read-only")]
    ReadOnly,
    /// Another process is changing the image, or the kernel has it mounted.
    #[error("the image is in use: it is mounted or being changed (unmount it first)")]
    InUse,
    /// The image could not be opened for writing.
    #[error("{source}")]
    Open {
        /// The system's error.
        source: io::Error,
    },
    /// The container of the device's bytes, a format of disk images, is damaged.
    #[error("{container}, byte {offset}: {what}")]
    Damaged {
        /// The kind of container, such as `qcow2 image`.
        container: &'static str,
        /// The offset of the damage in its bytes.
        offset: u64,
        /// The fault.
        what: String,
    },
    /// Only a part of the device's bytes is known, and not these.
    #[error("the {container} lacks bytes {start} to {end} of the image")]
    Lacking {
        /// The kind of container of the bytes that are known, such as `layout list`.
        container: &'static str,
        /// The first byte.
        start: ByteLen,
        /// The byte behind the last one.
        end: ByteLen,
    },
    /// The operating system or the hardware refused.
    #[error("sector {at}: {source}")]
    Io {
        /// First sector requested.
        at: Lba,
        /// The system's error.
        source: io::Error,
    },
}

/// The time from which a write is on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    /// After the end of a flush that began after its completion: until then it may be in a volatile
    /// cache.
    AfterFlush,
    /// At its completion (force unit access, `REQ_FUA`). This does not apply to other writes.
    OnCompletion,
}

/// A write that was submitted and has not completed, as numbered by its device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

impl Ticket {
    /// A ticket of a device.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The device's number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// A device of 512-byte sectors. All calls are positional and thread-safe.
///
/// A write is **submitted**, then it **completes**, then a **flush** puts it on stable storage, as
/// in Linux' block layer (`Documentation/block/writeback_cache_control.rst`). By default, devices
/// complete a write before the call returns.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes. A trailing part of a sector counts as present.
    fn len(&self) -> ByteLen;

    /// Whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == ByteLen::ZERO
    }

    /// Makes the device `len` bytes long, if it is shorter and can become longer. Returns its length
    /// from now on, which is that of its file or hardware: by default, it does not change.
    ///
    /// # Errors
    /// [`DeviceError::ReadOnly`]; [`DeviceError::Io`] if the system fails.
    fn extend(&self, len: ByteLen) -> Result<ByteLen, DeviceError> {
        let _ = len;
        Ok(self.len())
    }

    /// Fills `buf` from sector `at` on.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if the range is not wholly on the device; [`DeviceError::Io`] if
    /// reading fails. `buf` is then unspecified.
    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Fills `buf` from byte `at` on, which need not be at the start of a sector.
    ///
    /// # Errors
    /// As [`BlockDevice::read`].
    fn read_bytes(&self, at: ByteLen, buf: &mut [u8]) -> Result<(), DeviceError> {
        let lba = Lba::containing(at);
        let within = (at.get() - lba.to_bytes().get()) as usize;
        if within == 0 {
            return self.read(lba, buf);
        }
        let mut bounce = vec![0; within + buf.len()];
        self.read(lba, &mut bounce)?;
        buf.copy_from_slice(&bounce[within..]);
        Ok(())
    }

    /// Writes `buf` from sector `at` on, and returns once the write has completed.
    ///
    /// # Errors
    /// As [`BlockDevice::read`], and [`DeviceError::ReadOnly`].
    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError>;

    /// Submits a write without waiting for it. Returns the ticket for its completion, `None` if it
    /// has completed already. `buf` is copied. Later reads see the write, completed or not; writes
    /// in flight may complete in any order, and two overlapping ones may end in either state: to
    /// get the later one, wait for the earlier one first.
    ///
    /// The default does as [`BlockDevice::write`], and flushes for [`Durable::OnCompletion`].
    ///
    /// # Errors
    /// As [`BlockDevice::write`]. A failure after the submission is returned by the query for its
    /// completion.
    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        self.write(at, buf)?;
        match durable {
            Durable::AfterFlush => {}
            Durable::OnCompletion => self.flush()?,
        }
        Ok(None)
    }

    /// Whether a submitted write has completed. Once this, or [`BlockDevice::wait`], has reported
    /// its completion or failure, the ticket is void.
    ///
    /// # Errors
    /// [`DeviceError`] if the write has failed: its data may be there in part, or not at all.
    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        let _ = ticket;
        Ok(true)
    }

    /// Returns once a submitted write has completed.
    ///
    /// # Errors
    /// As [`BlockDevice::is_complete`].
    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        let _ = ticket;
        Ok(())
    }

    /// Returns once all completed writes are on stable storage. It does not cover writes in flight,
    /// which must be waited for first.
    ///
    /// # Errors
    /// [`DeviceError::Io`] if the system cannot guarantee that.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Tells the device that nobody needs the contents of `len` bytes from sector `at` on until they
    /// are written again: they may read as anything from now on, also after a crash. A device, or
    /// a part of it, that cannot do without them keeps them, as all do by default.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`], [`DeviceError::ReadOnly`]; [`DeviceError::Io`] if the system
    /// fails, or cannot pass it on.
    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        let _ = (at, len);
        Ok(())
    }

    /// Drops `len` cached bytes from byte `at` on, so that later reads see what another system has
    /// written to the medium. Writes that were not flushed are kept. By default nothing is cached.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`]; [`DeviceError::Io`] if the system fails.
    fn forget(&self, at: ByteLen, len: u64) -> Result<(), DeviceError> {
        let _ = (at, len);
        Ok(())
    }

    /// The file of the host that contains `len` bytes from byte `at` on, unchanged and in one
    /// piece. By default, none does.
    fn host_range(&self, at: ByteLen, len: u64) -> Option<HostRange<'_>> {
        let _ = (at, len);
        None
    }

    /// The file to which the device writes, if that can share blocks with other files. By default,
    /// it cannot.
    fn reflink(&self) -> Option<Reflink<'_>> {
        None
    }
}

/// Checks that `len` bytes from `at` are on a device of `device_len` bytes and returns the byte
/// offset.
pub(crate) fn check_range(at: Lba, len: usize, device_len: ByteLen) -> Result<u64, DeviceError> {
    let out = || DeviceError::OutOfRange { at, len: len as u64, device_len };
    let start = at.get().checked_mul(seekless_units::SECTOR).ok_or_else(out)?;
    let end = start.checked_add(len as u64).ok_or_else(out)?;
    if end > device_len.get() { Err(out()) } else { Ok(start) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, Overlay};
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
