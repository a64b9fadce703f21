//! A device that records which of its sectors are read.

use crate::{BlockDevice, DeviceError, HostRange};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Ranges that are collected before they are joined for the first time.
const FEW: usize = 4096;

/// A read-only view of a device that records which of its sectors are read.
///
/// ```
/// # use seekless_device::{BlockDevice, MemoryDevice, ReadRecorder};
/// # use seekless_units::Lba;
/// # use std::sync::Arc;
/// let recorder = ReadRecorder::new(Arc::new(MemoryDevice::new(vec![0; 4096])));
/// recorder.read(Lba::new(3), &mut [0; 512])?;
/// recorder.read(Lba::new(1), &mut [0; 700])?;
/// assert_eq!(recorder.finish(), [Lba::new(1)..Lba::new(4)]);
/// # Ok::<(), seekless_device::DeviceError>(())
/// ```
pub struct ReadRecorder {
    device: Arc<dyn BlockDevice>,
    /// `None` once the recording has ended.
    recorded: Mutex<Option<Recorded>>,
}

/// The sectors that were read.
struct Recorded {
    runs: Vec<Range<Lba>>,
    /// The number of runs at which they are joined.
    limit: usize,
}

impl Recorded {
    fn add(&mut self, run: Range<Lba>) {
        match self.runs.last_mut() {
            Some(last) if last.start <= run.start && run.start <= last.end => {
                last.end = last.end.max(run.end);
            }
            _ => self.runs.push(run),
        }
        if self.runs.len() >= self.limit {
            self.join();
            self.limit = FEW.max(self.runs.len() * 2);
        }
    }

    /// Sorts the runs, and joins those that touch.
    fn join(&mut self) {
        self.runs.sort_unstable_by_key(|run| run.start);
        self.runs.dedup_by(|later, earlier| {
            let meet = later.start <= earlier.end;
            if meet {
                earlier.end = earlier.end.max(later.end);
            }
            meet
        });
    }
}

impl ReadRecorder {
    /// Begins to record.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        let recorded = Recorded { runs: Vec::new(), limit: FEW };
        Self { device, recorded: Mutex::new(Some(recorded)) }
    }

    /// Ends the recording: the sectors that were read, sorted, those that touch joined. Later reads
    /// are not recorded.
    #[must_use]
    pub fn finish(&self) -> Vec<Range<Lba>> {
        let recorded =
            mem::take(&mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(mut recorded) = recorded else { return Vec::new() };
        recorded.join();
        recorded.runs
    }
}

impl BlockDevice for ReadRecorder {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)?;
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recorded) = recorded.as_mut()
            && !buf.is_empty()
        {
            // The range is on the device.
            recorded.add(at..Lba::new(at.get() + (buf.len() as u64).div_ceil(SECTOR)));
        }
        Ok(())
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn host_range(&self, at: ByteLen, len: u64) -> Option<HostRange<'_>> {
        self.device.host_range(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn runs_are_joined_however_many_they_are() {
        let recorder = ReadRecorder::new(Arc::new(MemoryDevice::new(vec![0; 30_000 * 512])));
        // Every second sector twice, backwards; then those between of the first half.
        for _ in 0..2 {
            for at in (0..15_000).rev() {
                recorder.read(Lba::new(at * 2), &mut [0; 100]).unwrap();
            }
        }
        for at in 0..7_500 {
            recorder.read(Lba::new(at * 2 + 1), &mut [0; 512]).unwrap();
        }
        assert!(recorder.read(Lba::new(29_999), &mut [0; 1024]).is_err());
        let runs = recorder.finish();
        assert_eq!(runs.len(), 7_500);
        assert_eq!(runs[0], Lba::ZERO..Lba::new(15_001));
        recorder.read(Lba::new(29_999), &mut [0; 512]).unwrap();
        assert!(recorder.finish().is_empty());
    }
}
