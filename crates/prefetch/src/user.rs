//! How far the user of a volume is.

use rustix::fs::{major, minor};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The user of a volume.
pub trait User: Sync {
    /// Bytes that it has read, without those of the prefetcher. `own` is the number of these, of all
    /// reads that have begun: load it after the count from which it is subtracted, since others
    /// read meanwhile. `None` if the user's number is not known.
    fn read(&self, own: &AtomicU64) -> Option<u64>;
}

/// The reads of a block device, as the kernel counts them (`Documentation/block/stat.rst`).
#[derive(Debug)]
pub struct DeviceReads {
    stat: PathBuf,
    before: u64,
    is_ours: bool,
}

impl DeviceReads {
    /// The reads of a block device from now on. Those of the prefetcher are left out if `volume` is
    /// the same device or a partition of it, or the other way round. Reads through other layers
    /// (device-mapper, a loop device on the volume's device) are not recognized as its own.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a file that is no block device; errors of sysfs.
    pub fn of(device: &File, volume: &File) -> io::Result<Self> {
        let Some(own) = directory(device)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is no block device"));
        };
        let is_ours = directory(volume)?.is_some_and(|volume| disk(&volume) == disk(&own));
        let mut reads = Self { stat: own.join("stat"), before: 0, is_ours };
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

/// The directory of a block device in sysfs; `None` for other files.
fn directory(device: &File) -> io::Result<Option<PathBuf>> {
    let metadata = device.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Ok(None);
    }
    let number = metadata.rdev();
    let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    fs::canonicalize(link).map(Some)
}

/// The directory of the whole disk, from that of the disk or of a partition.
fn disk(directory: &Path) -> Option<&Path> {
    match directory.join("partition").exists() {
        true => directory.parent(),
        false => Some(directory),
    }
}

impl User for DeviceReads {
    fn read(&self, own: &AtomicU64) -> Option<u64> {
        let read = self.total().ok()?.checked_sub(self.before)?;
        // The kernel counts reads that are done: less than our own where the user has read nothing.
        Some(if self.is_ours { read.saturating_sub(own.load(Ordering::SeqCst)) } else { read })
    }
}
