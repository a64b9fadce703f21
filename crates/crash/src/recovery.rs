//! A recovery, watched: how much it writes, and what becomes of one that is cut
//! off in the middle.

use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device that counts the writes to it, and may lose power in one of them.
pub(crate) struct Watched {
    device: Arc<dyn BlockDevice>,
    writes: AtomicU64,
    /// The write that is torn, from 0, and how many of its sectors are written;
    /// all later ones fail.
    cut: Option<(u64, u64)>,
}

impl Watched {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, writes: AtomicU64::new(0), cut: None }
    }

    /// One that loses power in a write, of which so many sectors are written (a
    /// write has at least one less than it has sectors).
    pub(crate) fn cut(device: Arc<dyn BlockDevice>, write: u64, sectors: u64) -> Self {
        Self { cut: Some((write, sectors)), ..Self::new(device) }
    }

    /// Writes that were asked for.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

fn power_is_gone(at: Lba) -> DeviceError {
    DeviceError::Io { at, source: io::Error::other("power loss") }
}

impl BlockDevice for Watched {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        match self.cut {
            Some((last, _)) if number > last => Err(power_is_gone(at)),
            Some((last, sectors)) if number == last => {
                let whole = buf.len() as u64 / SECTOR;
                let len = (sectors % whole.max(1) * SECTOR) as usize;
                self.device.write(at, &buf[..len])?;
                Err(power_is_gone(at))
            }
            _ => self.device.write(at, buf),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        match self.cut {
            Some((last, _)) if self.writes() > last => Err(power_is_gone(Lba::ZERO)),
            _ => self.device.flush(),
        }
    }
}
