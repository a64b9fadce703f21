//! A device that remembers what it was told to write.

use crate::log::{Log, Step};
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, Lba};
use std::sync::{Arc, Mutex, PoisonError};

/// A device over another that keeps a [`Log`] of writes and flushes.
pub struct Recorder {
    device: Arc<dyn BlockDevice>,
    log: Mutex<Log>,
}

impl Recorder {
    /// Records what `device` is told from now on.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, log: Mutex::default() }
    }

    /// Steps recorded so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).steps.len()
    }

    /// Puts a mark into the log.
    pub fn mark(&self, text: &str) {
        self.push(Step::Mark(text.to_string()));
    }

    /// What was recorded; the log is empty then.
    #[must_use]
    pub fn take(&self) -> Log {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, step: Step) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).steps.push(step);
    }
}

impl BlockDevice for Recorder {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, buf)?;
        self.push(Step::Write { at, bytes: buf.into(), fua: false });
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()?;
        self.push(Step::Flush);
        Ok(())
    }
}
