//! A device without its first sectors, so that clusters can be numbered as blocks.

use seekless_device::{BlockDevice, DeviceError, Reflink};
use seekless_units::{ByteLen, Lba};

pub(crate) struct OffsetDevice<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    /// In front of block 0, in sectors of the device.
    pub(crate) skip: u64,
}

impl BlockDevice for OffsetDevice<'_> {
    fn len(&self) -> ByteLen {
        let skipped = Lba::new(self.skip).to_bytes().get();
        ByteLen::new(self.device.len().get().saturating_sub(skipped))
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at + self.skip, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at + self.skip, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn reflink(&self) -> Option<Reflink<'_>> {
        Some(self.device.reflink()?.at(Lba::new(self.skip).to_bytes()))
    }
}
