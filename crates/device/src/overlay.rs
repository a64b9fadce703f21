//! A copy-on-write layer over a device.

use crate::{BlockDevice, DeviceError, block_device::check_range};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A copy-on-write layer: writes stay in memory, reads see them over the base.
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    chunk: u64,
    written: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    /// A layer over `base` that copies in units of `chunk_bytes`.
    ///
    /// # Panics
    /// If `chunk_bytes` is not a positive multiple of the sector size.
    #[must_use]
    pub fn new(base: Arc<dyn BlockDevice>, chunk_bytes: u64) -> Self {
        assert!(
            chunk_bytes > 0 && chunk_bytes.is_multiple_of(SECTOR),
            "chunk of {chunk_bytes} bytes"
        );
        Self { base, chunk: chunk_bytes, written: RwLock::default() }
    }

    /// The written data, in units of `chunk_bytes`: offset and bytes of each unit. A partly written
    /// unit has the base's bytes around the written part; the last one may reach past the end of
    /// the device.
    #[must_use]
    pub fn chunks(&self) -> Vec<(u64, Vec<u8>)> {
        let written = self.written.read().unwrap_or_else(PoisonError::into_inner);
        written.iter().map(|(&index, bytes)| (index * self.chunk, bytes.to_vec())).collect()
    }

    /// Splits a byte range into (chunk number, offset in chunk, length) pieces.
    fn pieces(&self, start: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
        let chunk = self.chunk;
        let end = start + len as u64;
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (index, within) = (at / chunk, at % chunk);
            let n = (chunk - within).min(end - at);
            at += n;
            Some((index, within as usize, n as usize))
        })
    }
}

impl BlockDevice for Overlay {
    fn len(&self) -> ByteLen {
        self.base.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len())?;
        self.base.read(at, buf)?;
        let written = self.written.read().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        for (index, within, n) in self.pieces(start, buf.len()) {
            if let Some(chunk) = written.get(&index) {
                buf[done..done + n].copy_from_slice(&chunk[within..within + n]);
            }
            done += n;
        }
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len())?;
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        for (index, within, n) in self.pieces(start, buf.len()) {
            let chunk = match written.entry(index) {
                std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
                std::collections::btree_map::Entry::Vacant(slot) => {
                    let first = index * self.chunk;
                    let have = self.chunk.min(self.len().get().saturating_sub(first));
                    let mut copy = vec![0; self.chunk as usize].into_boxed_slice();
                    self.base
                        .read(Lba::containing(ByteLen::new(first)), &mut copy[..have as usize])?;
                    slot.insert(copy)
                }
            };
            chunk[within..within + n].copy_from_slice(&buf[done..done + n]);
            done += n;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
