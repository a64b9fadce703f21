//! A read-only device of which only some ranges are known.

use crate::{BlockDevice, DeviceError, block_device::check_range};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A run of sectors of a [`PartialDevice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownRun {
    /// First sector.
    pub start: Lba,
    /// Sectors; never zero.
    pub len: u64,
    /// Where its bytes begin in the bytes of the device; zeros without.
    pub bytes_at: Option<u64>,
}

impl KnownRun {
    /// The sector behind it.
    fn end(&self) -> u64 {
        self.start.get().saturating_add(self.len)
    }
}

/// A read-only device of which only some ranges are known. To read another one is an error, and the
/// device remembers the first: a caller may go on without the bytes of a copy, for example.
///
/// ```
/// # use seekless_device::{BlockDevice, DeviceError, KnownRun, PartialDevice};
/// # use seekless_units::{ByteLen, Lba};
/// let run = KnownRun { start: Lba::new(2), len: 1, bytes_at: Some(0) };
/// let device = PartialDevice::new("layout list", ByteLen::new(4096), vec![run], [7; 512]);
/// let mut sector = [0; 512];
/// device.read(Lba::new(2), &mut sector)?;
/// assert_eq!(sector, [7; 512]);
/// assert!(device.lack().is_none());
/// let error = device.read(Lba::new(3), &mut sector).unwrap_err();
/// assert_eq!(error.to_string(), "the layout list lacks bytes 1536 to 2048 of the image");
/// assert!(device.lack().is_some());
/// # Ok::<(), DeviceError>(())
/// ```
pub struct PartialDevice {
    container: &'static str,
    len: ByteLen,
    /// Sorted, and not overlapping.
    runs: Vec<KnownRun>,
    bytes: Arc<[u8]>,
    lack: Mutex<Option<Range<u64>>>,
}

impl PartialDevice {
    /// A device of `len` bytes with these runs, sorted and not overlapping. `container` has them, as
    /// messages name it.
    #[must_use]
    pub fn new(
        container: &'static str,
        len: ByteLen,
        runs: Vec<KnownRun>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Self {
        debug_assert!(
            runs.is_sorted_by(|one, next| one.end() <= next.start.get()),
            "runs in order"
        );
        Self { container, len, runs, bytes: bytes.into(), lack: Mutex::default() }
    }

    /// The error for the first range that was read and is not known; `None` if all were.
    #[must_use]
    pub fn lack(&self) -> Option<DeviceError> {
        let lack = self.lack.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lack.map(|range| self.lacking(&range))
    }

    fn lacking(&self, range: &Range<u64>) -> DeviceError {
        let (start, end) = (ByteLen::new(range.start), ByteLen::new(range.end));
        DeviceError::Lacking { container: self.container, start, end }
    }
}

impl BlockDevice for PartialDevice {
    fn len(&self) -> ByteLen {
        self.len
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len)?;
        let end = start + buf.len() as u64;
        let mut done = start;
        let first = self.runs.partition_point(|run| run.end() <= at.get());
        for run in self.runs.iter().skip(first) {
            let run_start = run.start.get().saturating_mul(SECTOR);
            if done >= end || run_start > done {
                break;
            }
            let piece_end = end.min(run.end().saturating_mul(SECTOR));
            let piece = &mut buf[(done - start) as usize..(piece_end - start) as usize];
            match run.bytes_at {
                None => piece.fill(0),
                Some(bytes_at) => {
                    let from = bytes_at.saturating_add(done - run_start);
                    let to = from.saturating_add(piece.len() as u64);
                    let Some(bytes) = self.bytes.get(from as usize..to as usize) else { break };
                    piece.copy_from_slice(bytes);
                }
            }
            done = piece_end;
        }
        if done == end {
            return Ok(());
        }
        let lack = done..end;
        let error = self.lacking(&lack);
        self.lack.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(lack);
        Err(error)
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_span_runs_of_both_kinds() {
        let run = |start, len, bytes_at| KnownRun { start: Lba::new(start), len, bytes_at };
        let runs =
            vec![run(1, 2, Some(0)), run(3, 1, None), run(4, 1, Some(1024)), run(6, 2, None)];
        let bytes: Vec<u8> = [[1; 512], [2; 512], [3; 512]].concat();
        let device = PartialDevice::new("list", ByteLen::new(8 * 512 - 100), runs, bytes);
        let mut buf = vec![9; 3 * 512];
        device.read(Lba::new(2), &mut buf).unwrap();
        assert_eq!(buf, [[2; 512], [0; 512], [3; 512]].concat());
        device.read(Lba::new(7), &mut buf[..412]).unwrap();
        assert_eq!(buf[..412], [0; 412]);
        assert!(device.lack().is_none());
        // The first missing range is kept.
        for (at, len, lack) in [(4, 1024, 2560..3072), (0, 512, 0..512), (5, 512, 2560..3072)] {
            let error = device.read(Lba::new(at), &mut buf[..len]).unwrap_err();
            assert_eq!(error.to_string(), device.lacking(&lack).to_string());
        }
        let first = device.lack().map(|error| error.to_string());
        assert_eq!(first, Some(device.lacking(&(2560..3072)).to_string()));
        let past = device.read(Lba::new(7), &mut buf[..512]);
        assert!(matches!(past, Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(device.write(Lba::new(1), &[0; 512]), Err(DeviceError::ReadOnly)));
    }
}
