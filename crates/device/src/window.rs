//! A part of a device.

use crate::{
    BlockDevice, DeviceError, Durable, HostRange, Reflink, Ticket, block_device::check_range,
};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

/// A part of another device, such as a partition: nothing outside it is read or written.
pub struct Window {
    device: Arc<dyn BlockDevice>,
    start: Lba,
    len: ByteLen,
}

impl Window {
    /// `len` bytes of `device` from sector `start` on.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if they are not wholly on the device.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        start: Lba,
        len: ByteLen,
    ) -> Result<Self, DeviceError> {
        let device_len = device.len();
        let out = || DeviceError::OutOfRange { at: start, len: len.get(), device_len };
        let first = start.get().checked_mul(seekless_units::SECTOR).ok_or_else(out)?;
        let end = first.checked_add(len.get()).ok_or_else(out)?;
        if end > device_len.get() { Err(out()) } else { Ok(Self { device, start, len }) }
    }

    /// The sector of the underlying device; it is within the window, so nothing overflows.
    fn outer(&self, at: Lba, len: usize) -> Result<Lba, DeviceError> {
        check_range(at, len, self.len)?;
        Ok(self.start + at.get())
    }

    /// Converts the sector in an error of the underlying device to the window's.
    fn inner(&self, error: DeviceError) -> DeviceError {
        match error {
            DeviceError::Io { at, source } => {
                DeviceError::Io { at: Lba::new(at.saturating_since(self.start)), source }
            }
            other => other,
        }
    }
}

impl BlockDevice for Window {
    fn len(&self) -> ByteLen {
        self.len
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let outer = self.outer(at, buf.len())?;
        self.device.read(outer, buf).map_err(|error| self.inner(error))
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let outer = self.outer(at, buf.len())?;
        self.device.write(outer, buf).map_err(|error| self.inner(error))
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        let outer = self.outer(at, buf.len())?;
        self.device.submit(outer, buf, durable).map_err(|error| self.inner(error))
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.device.is_complete(ticket).map_err(|error| self.inner(error))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.device.wait(ticket).map_err(|error| self.inner(error))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        check_range(at, len as usize, self.len)?;
        self.device.discard(self.start + at.get(), len).map_err(|error| self.inner(error))
    }

    fn forget(&self, at: ByteLen, len: u64) -> Result<(), DeviceError> {
        let end = at.get().checked_add(len).filter(|&end| end <= self.len.get());
        let lba = Lba::containing(at);
        end.ok_or(DeviceError::OutOfRange { at: lba, len, device_len: self.len })?;
        let outer = ByteLen::new(self.start.to_bytes().get() + at.get());
        self.device.forget(outer, len).map_err(|error| self.inner(error))
    }

    fn host_range(&self, at: ByteLen, len: u64) -> Option<HostRange<'_>> {
        let end = at.get().checked_add(len)?;
        let outer = ByteLen::new(self.start.to_bytes().get() + at.get());
        if end > self.len.get() { None } else { self.device.host_range(outer, len) }
    }

    fn reflink(&self) -> Option<Reflink<'_>> {
        Some(self.device.reflink()?.at(self.start.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn nothing_outside_is_reached() {
        let bytes: Vec<u8> = (0..8 * 512u32).map(|at| (at / 512) as u8).collect();
        let whole: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes));
        let window = Window::new(whole.clone(), Lba::new(2), ByteLen::new(3 * 512)).unwrap();
        let mut buf = [0; 3 * 512];
        window.read(Lba::ZERO, &mut buf).unwrap();
        assert_eq!((buf[0], buf[512], buf[1024]), (2, 3, 4));
        assert!(window.read(Lba::new(1), &mut buf).is_err());
        assert!(window.write(Lba::new(3), &[9; 512]).is_err());
        assert!(window.write(Lba::new(u64::MAX), &[9; 512]).is_err());
        window.write(Lba::new(2), &[9; 512]).unwrap();
        let mut all = [0; 8 * 512];
        whole.read(Lba::ZERO, &mut all).unwrap();
        assert_eq!((all[3 * 512], all[4 * 512], all[5 * 512]), (3, 9, 5));
        for (start, len) in [(6, 3 * 512), (9, 0), (u64::MAX, 512), (1, u64::MAX)] {
            assert!(Window::new(whole.clone(), Lba::new(start), ByteLen::new(len)).is_err());
        }
    }
}
