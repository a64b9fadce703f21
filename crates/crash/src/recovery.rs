//! A recovery, watched: how much it writes, and the state after one that is cut off in the middle.

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
    /// Sectors that are written together, by their first and their number.
    together: Option<(Lba, u64)>,
}

impl Watched {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, writes: AtomicU64::new(0), cut: None, together: None }
    }

    /// One that loses power in a write, of which `sectors` sectors are written (at least one less
    /// than it has), and none of those that are written together unless all are.
    pub(crate) fn cut(
        device: Arc<dyn BlockDevice>,
        write: u64,
        sectors: u64,
        together: Option<(Lba, u64)>,
    ) -> Self {
        Self { cut: Some((write, sectors)), together, ..Self::new(device) }
    }

    /// Sectors of a write that are on the disk, of so many that there was time for.
    fn torn(&self, at: Lba, sectors: u64) -> u64 {
        match self.together {
            Some((first, len)) => {
                let before = first.get().saturating_sub(at.get());
                let behind = (first.get() + len).saturating_sub(at.get());
                if (before..behind).contains(&sectors) { before } else { sectors }
            }
            None => sectors,
        }
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
                let len = (self.torn(at, sectors % whole.max(1)) * SECTOR) as usize;
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

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::MemoryDevice;

    #[test]
    fn what_is_written_together_is_not_torn() {
        let sectors = |together, at: u64, time_for: u64| {
            let device: Arc<dyn BlockDevice> =
                Arc::new(MemoryDevice::new(vec![0; 16 * SECTOR as usize]));
            let cut = Watched::cut(Arc::clone(&device), 0, time_for, together);
            assert!(cut.write(Lba::new(at), &[1; 4 * SECTOR as usize]).is_err());
            let mut all = [0; 16 * SECTOR as usize];
            device.read(Lba::ZERO, &mut all).unwrap();
            all.iter().filter(|byte| **byte == 1).count() as u64 / SECTOR
        };
        let superblock = Some((Lba::new(2), 2));
        assert_eq!([0, 1, 2, 3].map(|time| sectors(None, 0, time)), [0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|time| sectors(superblock, 0, time)), [0, 1, 2, 2]);
        assert_eq!([0, 1, 2, 3].map(|time| sectors(superblock, 3, time)), [0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|time| sectors(superblock, 1, time)), [0, 1, 1, 3]);
        assert_eq!([0, 1, 2, 3].map(|time| sectors(superblock, 2, time)), [0, 0, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|time| sectors(superblock, 8, time)), [0, 1, 2, 3]);
    }
}
