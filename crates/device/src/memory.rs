//! A device in memory.

use crate::{BlockDevice, DeviceError, block_device::check_range};
use seekless_units::{ByteLen, Lba};
use std::sync::{PoisonError, RwLock};

/// A device in memory, for tests and small images.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    len: ByteLen,
}

impl MemoryDevice {
    /// A device with the contents `bytes`.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        let len = ByteLen::new(bytes.len() as u64);
        Self { bytes: RwLock::new(bytes), len }
    }
}

impl BlockDevice for MemoryDevice {
    fn len(&self) -> ByteLen {
        self.len
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len)? as usize;
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len)? as usize;
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        bytes[start..start + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
