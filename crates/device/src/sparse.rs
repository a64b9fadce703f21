//! A device in memory that stores only written pieces.

use crate::{BlockDevice, DeviceError, block_device::check_range};
use seekless_units::{ByteLen, Lba};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// Allocation unit in bytes.
const CHUNK: u64 = 8192;

/// A device in memory that stores only written data: the memory for a large volume depends on its
/// used part. The rest reads as zeros.
#[derive(Debug)]
pub struct SparseDevice {
    chunks: RwLock<HashMap<u64, Box<[u8]>>>,
    len: ByteLen,
}

/// Part of a request within one chunk.
struct Piece {
    chunk: u64,
    within: usize,
    /// Start and end within the request's bytes.
    from: usize,
    to: usize,
}

fn pieces(start: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = start + done as u64;
        let within = (at % CHUNK) as usize;
        let from = done;
        done = len.min(from + CHUNK as usize - within);
        (from < len).then_some(Piece { chunk: at / CHUNK, within, from, to: done })
    })
}

impl SparseDevice {
    /// A device of zeros.
    #[must_use]
    pub fn new(len: ByteLen) -> Self {
        Self { chunks: RwLock::default(), len }
    }

    /// Number of bytes of memory used by its contents.
    #[must_use]
    pub fn kept(&self) -> ByteLen {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        ByteLen::new(chunks.len() as u64 * CHUNK)
    }
}

impl BlockDevice for SparseDevice {
    fn len(&self) -> ByteLen {
        self.len
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len)?;
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        for Piece { chunk, within, from, to } in pieces(start, buf.len()) {
            match chunks.get(&chunk) {
                Some(bytes) => buf[from..to].copy_from_slice(&bytes[within..within + to - from]),
                None => buf[from..to].fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len)?;
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        for Piece { chunk, within, from, to } in pieces(start, buf.len()) {
            let bytes = &buf[from..to];
            if !chunks.contains_key(&chunk) && bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            let kept = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK as usize].into());
            kept[within..within + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_written_and_zeros() {
        let device = SparseDevice::new(ByteLen::new(1 << 40));
        let bytes: Vec<u8> = (0..20_480u32).map(|n| (n % 251) as u8).collect();
        let at = Lba::new((1 << 30) + 3);
        device.write(at, &bytes).unwrap();
        let mut back = vec![9; bytes.len() + 1024];
        device.read(Lba::new((1 << 30) + 2), &mut back).unwrap();
        assert_eq!(back[..512], [0; 512]);
        assert_eq!(back[512..512 + bytes.len()], bytes);
        assert!(back[512 + bytes.len()..].iter().all(|&byte| byte == 0));
        assert_eq!(device.kept().get(), 3 * CHUNK);
        device.write(Lba::ZERO, &[0; 65536]).unwrap();
        assert_eq!(device.kept().get(), 3 * CHUNK, "zeros take nothing");
        assert!(device.write(Lba::new(1 << 31), &[0; 512]).is_err());
    }
}
