//! A device whose beginning is written last.

use crate::{BlockDevice, DeviceError, block_device::check_range};
use seekless_units::{ByteLen, Lba};
use std::sync::{Arc, PoisonError, RwLock};

/// Number of bytes held back: they contain the primary superblocks of all supported formats (the
/// last location is that of UFS at 256 KiB), and the first copy of a partition table.
const HEAD: usize = 512 << 10;

/// A device whose beginning is written last, so that a partly written image shows no mark of a file
/// system or a partition table.
pub struct HeadLast {
    device: Arc<dyn BlockDevice>,
    head: RwLock<Vec<u8>>,
}

impl HeadLast {
    /// Holds back writes to the beginning of `device`. Until [`HeadLast::finish`], parts of it that
    /// were not written read as zeros, whatever the device contains.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        let len = usize::try_from(device.len().get()).unwrap_or(usize::MAX).min(HEAD);
        Self { device, head: RwLock::new(vec![0; len]) }
    }

    /// Puts everything else on stable storage, and then the beginning.
    ///
    /// # Errors
    /// The device's error.
    pub fn finish(&self) -> Result<(), DeviceError> {
        self.device.flush()?;
        let head = self.head.read().unwrap_or_else(PoisonError::into_inner);
        self.device.write(Lba::ZERO, &head)?;
        self.device.flush()
    }

    /// Number of bytes held back among `len` bytes from byte `at` on.
    fn inside(at: u64, len: usize, head: usize) -> usize {
        usize::try_from((head as u64).saturating_sub(at)).unwrap_or(usize::MAX).min(len)
    }
}

impl BlockDevice for HeadLast {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len())?;
        let head = self.head.read().unwrap_or_else(PoisonError::into_inner);
        let inside = Self::inside(start, buf.len(), head.len());
        let (held, behind) = buf.split_at_mut(inside);
        if !held.is_empty() {
            let from = start as usize;
            held.copy_from_slice(&head[from..from + inside]);
        }
        drop(head);
        if behind.is_empty() {
            return Ok(());
        }
        // The bytes held back are whole sectors unless they are all of the device.
        self.device.read(Lba::containing(ByteLen::new(start + inside as u64)), behind)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len())?;
        let mut head = self.head.write().unwrap_or_else(PoisonError::into_inner);
        let inside = Self::inside(start, buf.len(), head.len());
        let (held, behind) = buf.split_at(inside);
        if !held.is_empty() {
            let from = start as usize;
            head[from..from + inside].copy_from_slice(held);
        }
        drop(head);
        if behind.is_empty() {
            return Ok(());
        }
        self.device.write(Lba::containing(ByteLen::new(start + inside as u64)), behind)
    }

    /// Does not flush the bytes held back.
    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn the_beginning_is_written_last() {
        for len in [HEAD + 4096, HEAD, 1536] {
            let below = Arc::new(MemoryDevice::new(vec![9; len]));
            let device = HeadLast::new(below.clone());
            let all = vec![7; len];
            device.write(Lba::ZERO, &all).unwrap();
            let mut seen = vec![0; len];
            device.read(Lba::ZERO, &mut seen).unwrap();
            assert!(seen == all, "{len}");
            below.read(Lba::ZERO, &mut seen).unwrap();
            let head = len.min(HEAD);
            assert!(seen[..head].iter().all(|&byte| byte == 9), "{len}");
            assert!(seen[head..].iter().all(|&byte| byte == 7), "{len}");
            device.finish().unwrap();
            below.read(Lba::ZERO, &mut seen).unwrap();
            assert!(seen == all, "{len}");
        }
    }

    #[test]
    fn what_was_not_written_is_zeros() {
        let below = Arc::new(MemoryDevice::new(vec![9; HEAD + 4096]));
        let device = HeadLast::new(below.clone());
        device.write(Lba::new(HEAD as u64 / 512 - 1), &[3; 1024]).unwrap();
        let mut seen = [1; 2048];
        device.read(Lba::new(HEAD as u64 / 512 - 2), &mut seen).unwrap();
        assert_eq!((seen[0], seen[512], seen[1024], seen[1536]), (0, 3, 3, 9));
        assert!(device.write(Lba::new(HEAD as u64 / 512 + 8), &[0; 512]).is_err());
        device.finish().unwrap();
        below.read(Lba::ZERO, &mut seen).unwrap();
        assert_eq!(seen, [0; 2048]);
    }
}
