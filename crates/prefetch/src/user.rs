//! How far the user of a volume is.

use rustix::fs::{major, minor};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// The user of a volume.
pub trait User: Sync {
    /// Bytes that it has read, without those of the prefetcher; `own` is the number of these.
    /// `None` if that is not known.
    fn read(&self, own: u64) -> Option<u64>;
}

/// The reads of a block device, as the kernel counts them (`Documentation/block/stat.rst`).
#[derive(Debug)]
pub struct DeviceReads {
    stat: PathBuf,
    before: u64,
    is_ours: bool,
}

impl DeviceReads {
    /// The reads of a block device from now on. `is_ours` if the prefetcher reads the same device.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a file that is no block device; errors of sysfs.
    pub fn of(device: &File, is_ours: bool) -> io::Result<Self> {
        let metadata = device.metadata()?;
        if !metadata.file_type().is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is no block device"));
        }
        let number = metadata.rdev();
        let stat = format!("/sys/dev/block/{}:{}/stat", major(number), minor(number));
        let mut reads = Self { stat: stat.into(), before: 0, is_ours };
        reads.before = reads.total()?;
        Ok(reads)
    }

    /// Bytes read from the device, ever.
    fn total(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.stat)?;
        let sectors = text.split_whitespace().nth(2).and_then(|field| field.parse::<u64>().ok());
        let bytes = sectors.and_then(|sectors| sectors.checked_mul(512));
        bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no count of sectors"))
    }
}

impl User for DeviceReads {
    fn read(&self, own: u64) -> Option<u64> {
        let read = self.total().ok()?.checked_sub(self.before)?;
        Some(if self.is_ours { read.saturating_sub(own) } else { read })
    }
}
