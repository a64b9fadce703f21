use crate::{BlockDevice, DeviceError, check_range};
use seekless_units::{ByteLen, Lba};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image file or a real block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    len: ByteLen,
    writable: bool,
}

impl FileDevice {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// What the system says on open or when finding the length.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_file(File::open(path)?, false)
    }

    /// Uses an open file; the length is taken once, now.
    ///
    /// # Errors
    /// When the length cannot be found (a pipe, for example).
    pub fn from_file(mut file: File, writable: bool) -> io::Result<Self> {
        // Seeking finds the length of block devices too, where fstat says 0.
        let len = ByteLen::new(file.seek(SeekFrom::End(0))?);
        Ok(Self { file, len, writable })
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> ByteLen {
        self.len
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let offset = check_range(at, buf.len(), self.len)?;
        self.file.read_exact_at(buf, offset).map_err(|source| DeviceError::Io { at, source })
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        let offset = check_range(at, buf.len(), self.len)?;
        self.file.write_all_at(buf, offset).map_err(|source| DeviceError::Io { at, source })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(|source| DeviceError::Io { at: Lba::ZERO, source })
    }
}
