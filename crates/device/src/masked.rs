//! A device of which only some parts are written.

use crate::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::ops::Range;

/// A device of which only some parts are written: of each write, the bytes elsewhere are left out,
/// also those behind its end.
///
/// ```
/// # use seekless_device::{BlockDevice, Masked, MemoryDevice};
/// # use seekless_units::Lba;
/// let device = MemoryDevice::new(vec![0; 4 * 512]);
/// let masked = Masked::new(&device, vec![Lba::new(1)..Lba::new(2)]);
/// masked.write(Lba::ZERO, &[7; 8 * 512])?;
/// let mut bytes = [0; 4 * 512];
/// device.read(Lba::ZERO, &mut bytes)?;
/// assert_eq!(bytes.iter().position(|&byte| byte == 7), Some(512));
/// assert_eq!(bytes.iter().rposition(|&byte| byte == 7), Some(1023));
/// # Ok::<(), seekless_device::DeviceError>(())
/// ```
pub struct Masked<'a> {
    device: &'a dyn BlockDevice,
    /// Sorted, and not overlapping.
    parts: Vec<Range<Lba>>,
}

impl<'a> Masked<'a> {
    /// Writes of `device` only these parts, which are sorted and do not overlap.
    #[must_use]
    pub fn new(device: &'a dyn BlockDevice, parts: Vec<Range<Lba>>) -> Self {
        debug_assert!(parts.is_sorted_by(|one, next| one.end <= next.start), "parts are in order");
        Self { device, parts }
    }
}

impl BlockDevice for Masked<'_> {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let (start, end) = (at.get() * SECTOR, at.get() * SECTOR + buf.len() as u64);
        let first = self.parts.partition_point(|part| part.end <= at);
        for part in self.parts.iter().skip(first) {
            let from = (part.start.get() * SECTOR).max(start);
            let to = (part.end.get() * SECTOR).min(end);
            if from >= to {
                break;
            }
            let bytes = &buf[(from - start) as usize..(to - start) as usize];
            self.device.write(Lba::new(from / SECTOR), bytes)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }
}
