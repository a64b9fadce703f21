//! Writes of changed bytes in whole sectors, for repairs.

use crate::FsError;
use crate::field::{index, wide};
use seekless_device::BlockDevice;
use seekless_units::{ByteLen, Lba, SECTOR};
use std::sync::Arc;

/// The device under repair.
pub struct Patches {
    device: Arc<dyn BlockDevice>,
    /// Something may be in a cache that is not on stable storage.
    dirty: bool,
    writes: u64,
}

impl Patches {
    /// Creates a writer without writes. Its first flush always reaches the device: writes of a
    /// process that was killed may be in a cache only, and are not repeated where nothing differs.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, dirty: true, writes: 0 }
    }

    /// The device under repair, including all writes.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Reads `len` bytes from byte `at` on.
    ///
    /// # Errors
    /// The device's error.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; len];
        self.device.read_bytes(ByteLen::new(at), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes bytes at any offset: the sectors from the first changed one to the last, or nothing.
    ///
    /// # Errors
    /// The device's error.
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), FsError> {
        let start = Lba::containing(ByteLen::new(at)).to_bytes().get();
        let end = at + wide(bytes.len());
        let end = end.next_multiple_of(SECTOR).min(self.device.len().get());
        let old = self.read(start, index(end.saturating_sub(start)))?;
        let mut new = old.clone();
        let from = index(at - start);
        let to = new.get_mut(from..).unwrap_or_default();
        to.iter_mut().zip(bytes).for_each(|(to, &byte)| *to = byte);
        let sector = index(SECTOR);
        let differs: Vec<bool> =
            old.chunks(sector).zip(new.chunks(sector)).map(|(old, new)| old != new).collect();
        let first = differs.iter().position(|&differs| differs);
        let last = differs.iter().rposition(|&differs| differs);
        let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
        let low = first * sector;
        let high = ((last + 1) * sector).min(new.len());
        let lba = Lba::containing(ByteLen::new(start + wide(low)));
        self.device.write(lba, new.get(low..high).unwrap_or_default())?;
        self.dirty = true;
        self.writes += 1;
        Ok(())
    }

    /// Number of writes.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns once all writes are on stable storage.
    ///
    /// # Errors
    /// The device's error.
    pub fn flush(&mut self) -> Result<(), FsError> {
        if std::mem::take(&mut self.dirty) {
            self.device.flush()?;
        }
        Ok(())
    }
}
