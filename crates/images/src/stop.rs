//! Work that another thread can stop.

use crate::error::{Error, ErrorKind};
use seekless_device::{BlockDevice, DeviceError, Durable, HostRange, Reflink, Ticket};
use seekless_units::{ByteLen, Lba};
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop the work on an image. Clones are the same request: one is given to the work,
/// another one is kept to call [`Stop::stop`], in a handler of signals or another thread.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    is_requested: Arc<AtomicBool>,
}

impl Stop {
    /// A request that is not made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the stop. It cannot be taken back.
    pub fn stop(&self) {
        self.is_requested.store(true, Ordering::Release);
    }

    /// Whether the stop is requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Acquire)
    }

    /// Does the work on `subject`, unless the stop is requested. Its errors after the request are
    /// the error of the stop.
    ///
    /// # Errors
    /// Those of the work; [`ErrorKind::System`] after the request.
    pub fn during<T>(
        &self,
        subject: impl Display,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let check = || self.check().map_err(|error| error.about(&subject));
        check()?;
        let done = work();
        if done.is_err() { check().and(done) } else { done }
    }

    /// Does work on `subject` that only reads: after the request its result is the error of the stop.
    ///
    /// # Errors
    /// As [`Stop::during`].
    pub fn while_reading<T>(
        &self,
        subject: impl Display,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = self.during(&subject, work)?;
        self.during(&subject, || Ok(done))
    }

    /// The same device, which is neither read nor written after the request.
    #[must_use]
    pub fn device(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(StoppableDevice::new(device, self.clone()))
    }

    /// Fails after the request, before an output gets its name.
    ///
    /// # Errors
    /// [`ErrorKind::System`].
    pub fn check(&self) -> Result<(), Error> {
        if self.is_requested() {
            let message = "stopped before it was complete; everything was cleaned up";
            return Err(Error::new(ErrorKind::System, message));
        }
        Ok(())
    }
}

/// A device that is neither read nor written after a request to stop.
struct StoppableDevice {
    device: Arc<dyn BlockDevice>,
    stop: Stop,
}

impl StoppableDevice {
    fn new(device: Arc<dyn BlockDevice>, stop: Stop) -> Self {
        Self { device, stop }
    }

    fn check(&self, at: Lba) -> Result<(), DeviceError> {
        if self.stop.is_requested() {
            // Not `Interrupted`, after which callers try again.
            return Err(DeviceError::Io { at, source: io::Error::other("stopped") });
        }
        Ok(())
    }
}

impl BlockDevice for StoppableDevice {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(at)?;
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(at)?;
        self.device.write(at, buf)
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        self.check(at)?;
        self.device.submit(at, buf, durable)
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.device.is_complete(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.device.wait(ticket)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        self.device.discard(at, len)
    }

    fn forget(&self, at: ByteLen, len: u64) -> Result<(), DeviceError> {
        self.device.forget(at, len)
    }

    fn host_range(&self, at: ByteLen, len: u64) -> Option<HostRange<'_>> {
        self.device.host_range(at, len)
    }

    fn reflink(&self) -> Option<Reflink<'_>> {
        self.device.reflink()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::MemoryDevice;

    #[test]
    fn nothing_is_read_or_written_after_the_request() {
        let memory = Arc::new(MemoryDevice::new(vec![1; 1024]));
        let stop = Stop::new();
        let device = stop.device(memory.clone());
        device.write(Lba::ZERO, &[2; 512]).unwrap();
        stop.stop();
        assert!(device.write(Lba::ZERO, &[3; 512]).is_err());
        assert!(device.submit(Lba::ZERO, &[3; 512], Durable::AfterFlush).is_err());
        let mut buf = [0; 512];
        assert!(device.read(Lba::ZERO, &mut buf).is_err());
        memory.read(Lba::ZERO, &mut buf).unwrap();
        assert_eq!(buf, [2; 512]);
    }

    #[test]
    fn errors_after_the_request_are_that_of_the_stop() {
        let stop = Stop::new();
        let failed = || Err::<(), _>(Error::usage("wrong"));
        assert_eq!(stop.during("img", failed).unwrap_err().kind(), ErrorKind::Usage);
        let stopped = stop.during("img", || {
            stop.stop();
            failed()
        });
        let stopped = stopped.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::System);
        assert!(stopped.to_string().starts_with("img: stopped"), "{stopped}");
        let stop = Stop::new();
        let read = stop.while_reading("img", || {
            stop.stop();
            Ok(())
        });
        assert!(read.is_err(), "not all was read");
        let done: Result<(), Error> = stop.during("img", || panic!("it is stopped"));
        assert!(done.is_err());
    }
}
