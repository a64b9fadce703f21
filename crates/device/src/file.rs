//! Image files and block devices.

use crate::{BlockDevice, DeviceError, Durable, HostRange, Ticket, block_device::check_range};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, flock};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use seekless_units::{ByteLen, Lba};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number and interval of tries for the lock of a block device: udev takes it briefly when it
/// probes a device that was written.
const TRIES: u32 = 50;
const WAIT: Duration = Duration::from_millis(20);

/// The unit of holes in bytes: blocks of most file systems. Others would fill a part with zeros.
const HOLE: u64 = 4096;

/// The largest pages of the systems that are supported, in bytes: only whole pages are dropped.
const PAGE: u64 = 65_536;

/// An image file or a real block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// In bytes. It only grows.
    len: AtomicU64,
    writable: bool,
    /// Whether it is a regular file, whose blocks others may share.
    is_regular: bool,
}

impl FileDevice {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// The system's error when opening, or when determining the length.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_file(File::open(path)?, false)
    }

    /// Opens `path` for reading and writing with an advisory lock (`flock`) against other writers,
    /// until the device is dropped. A block device that the kernel has mounted cannot be opened.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] if another process has it open for writing, or the kernel has it
    /// mounted; [`DeviceError::Open`] with other errors of the system.
    pub fn open_locked(path: &Path) -> Result<Self, DeviceError> {
        Self::open_alone(path, true)
    }

    /// As [`FileDevice::open_locked`], also of a block device that the kernel has mounted: the
    /// caller knows that it is mounted read-only.
    ///
    /// # Errors
    /// As [`FileDevice::open_locked`].
    pub fn open_mounted(path: &Path) -> Result<Self, DeviceError> {
        Self::open_alone(path, false)
    }

    fn open_alone(path: &Path, is_exclusive: bool) -> Result<Self, DeviceError> {
        let failed = |source: io::Error| match Errno::from_io_error(&source) {
            Some(Errno::BUSY | Errno::TXTBSY) => DeviceError::InUse,
            _ => DeviceError::Open { source },
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let is_block = std::fs::metadata(path).map_err(failed)?.file_type().is_block_device();
        if is_block && is_exclusive {
            // Fails on a device that is mounted.
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let file = options.open(path).map_err(failed)?;
        let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut locked = lock();
        for _ in 0..if is_block { TRIES } else { 0 } {
            if locked != Err(Errno::WOULDBLOCK) {
                break;
            }
            std::thread::sleep(WAIT);
            locked = lock();
        }
        locked.map_err(|errno| match errno {
            Errno::WOULDBLOCK => DeviceError::InUse,
            _ => DeviceError::Open { source: errno.into() },
        })?;
        Self::from_file(file, true).map_err(|source| DeviceError::Open { source })
    }

    /// Uses an open file; the length is determined now, once.
    ///
    /// # Errors
    /// If the length cannot be determined (a pipe, for example).
    pub fn from_file(mut file: File, writable: bool) -> io::Result<Self> {
        // Seeking finds the length of block devices too, where fstat says 0.
        let len = AtomicU64::new(file.seek(SeekFrom::End(0))?);
        let is_regular = file.metadata()?.is_file();
        Ok(Self { file, len, writable, is_regular })
    }
}

impl FileDevice {
    /// Whether it is a regular file, which can become longer.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Refuses to continue with a file that was truncated meanwhile: a write behind its end would
    /// extend it again, with a hole in place of the lost data.
    fn check_whole(&self, at: Lba) -> Result<(), DeviceError> {
        let failed = |source| DeviceError::Io { at, source };
        let metadata = self.file.metadata().map_err(failed)?;
        if metadata.is_file() && metadata.len() < self.len().get() {
            let (now, before) = (metadata.len(), self.len());
            let what = format!("the file has been cut short to {now} bytes of {before}");
            return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
        }
        Ok(())
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> ByteLen {
        ByteLen::new(self.len.load(Ordering::Acquire))
    }

    /// A regular file becomes longer by a hole. A block device is as long as the kernel says now.
    fn extend(&self, len: ByteLen) -> Result<ByteLen, DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        let end = Lba::containing(self.len());
        self.check_whole(end)?;
        let failed = |source| DeviceError::Io { at: end, source };
        let mut now = (&self.file).seek(SeekFrom::End(0)).map_err(failed)?;
        if self.is_regular && now < len.get() {
            self.file.set_len(len.get()).map_err(failed)?;
            now = len.get();
        }
        self.len.fetch_max(now, Ordering::AcqRel);
        Ok(self.len())
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let offset = check_range(at, buf.len(), self.len())?;
        self.file.read_exact_at(buf, offset).map_err(|source| DeviceError::Io { at, source })
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        let offset = check_range(at, buf.len(), self.len())?;
        self.check_whole(at)?;
        self.file.write_all_at(buf, offset).map_err(|source| DeviceError::Io { at, source })
    }

    /// For [`Durable::OnCompletion`] with `RWF_DSYNC` (Linux 4.7), which puts only these bytes on
    /// stable storage; a block device performs a write with force unit access, if it supports that.
    /// On a file system without the flag, all of the file is flushed.
    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        if durable == Durable::AfterFlush {
            return self.write(at, buf).map(|()| None);
        }
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        let offset = check_range(at, buf.len(), self.len())?;
        self.check_whole(at)?;
        let failed = |source| DeviceError::Io { at, source };
        let mut done = 0;
        while done < buf.len() {
            let parts = [io::IoSlice::new(&buf[done..])];
            match pwritev2(&self.file, &parts, offset + done as u64, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.write(at, buf)?;
                    return self.flush().map(|()| None);
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Ok(None)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.writable {
            self.check_whole(Lba::ZERO)?;
        }
        self.file.sync_data().map_err(|source| DeviceError::Io { at: Lba::ZERO, source })
    }

    /// Punches a hole into a regular file, and has a block device unmap the bytes: whole units of
    /// the file system, or of the device's pages, alone.
    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly);
        }
        let offset = check_range(at, len as usize, self.len())?;
        self.check_whole(at)?;
        let start = offset.next_multiple_of(HOLE);
        let end = (offset + len) / HOLE * HOLE;
        if start >= end {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, how, start, end - start)
            .map_err(|errno| DeviceError::Io { at, source: errno.into() })
    }

    fn forget(&self, at: ByteLen, len: u64) -> Result<(), DeviceError> {
        let lba = Lba::containing(at);
        let end = at.get().checked_add(len).filter(|&end| end <= self.len().get());
        let out = || DeviceError::OutOfRange { at: lba, len, device_len: self.len() };
        let start = at.get() / PAGE * PAGE;
        let pages = NonZeroU64::new(end.ok_or_else(out)?.next_multiple_of(PAGE) - start);
        fadvise(&self.file, start, pages, Advice::DontNeed)
            .map_err(|errno| DeviceError::Io { at: lba, source: errno.into() })
    }

    fn host_range(&self, at: ByteLen, len: u64) -> Option<HostRange<'_>> {
        let offset = at.get();
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len().get());
        (self.is_regular && is_inside).then(|| HostRange { file: self.file.as_fd(), offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_short_is_not_written() {
        let path = std::env::temp_dir().join(format!("seekless-cut-{}", std::process::id()));
        std::fs::write(&path, [7; 4096]).unwrap();
        let device = FileDevice::open_locked(&path).unwrap();
        device.write(Lba::new(7), &[1; 512]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(1024).unwrap();
        for result in [device.write(Lba::new(7), &[1; 512]), device.flush()] {
            assert!(result.unwrap_err().to_string().contains("cut short"));
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1024);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn whole_units_of_discarded_bytes_become_a_hole() {
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("seekless-hole-{}", std::process::id()));
        std::fs::write(&path, [7; 64 << 10]).unwrap();
        let device = FileDevice::open_locked(&path).unwrap();
        let blocks = || std::fs::metadata(&path).unwrap().blocks();
        let before = blocks();
        device.discard(Lba::new(1), 20_000).unwrap();
        assert_eq!(before - blocks(), 16384 / 512);
        let held = std::fs::read(&path).unwrap();
        assert!(held[4096..20480].iter().all(|&byte| byte == 0));
        assert!(held[..4096].iter().chain(&held[20480..]).all(|&byte| byte == 7));
        device.discard(Lba::new(57), 4096).unwrap();
        assert!(std::fs::read(&path).unwrap() == held, "a part of two units");
        assert!(matches!(device.discard(Lba::new(120), 4608), Err(DeviceError::OutOfRange { .. })));
        let reader = FileDevice::open(&path).unwrap();
        assert!(matches!(reader.discard(Lba::new(8), 4096), Err(DeviceError::ReadOnly)));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_durable_on_completion_is_what_was_written() {
        let path = std::env::temp_dir().join(format!("seekless-fua-{}", std::process::id()));
        std::fs::write(&path, [7; 4096]).unwrap();
        let device = FileDevice::open_locked(&path).unwrap();
        let bytes: Vec<u8> = (0..1024).map(|n| (n % 251) as u8).collect();
        let through = |at| device.submit(Lba::new(at), &bytes, Durable::OnCompletion);
        assert!(through(3).unwrap().is_none());
        assert!(matches!(through(7), Err(DeviceError::OutOfRange { .. })), "it would grow");
        let reader = FileDevice::open(&path).unwrap();
        let refused = reader.submit(Lba::ZERO, &bytes, Durable::OnCompletion);
        assert!(matches!(refused, Err(DeviceError::ReadOnly)));
        let held = std::fs::read(&path).unwrap();
        assert_eq!((held.len(), &held[1536..2560]), (4096, &bytes[..]));
        assert!(held[..1536].iter().chain(&held[2560..]).all(|&byte| byte == 7));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_becomes_longer_under_its_lock() {
        let path = std::env::temp_dir().join(format!("seekless-longer-{}", std::process::id()));
        std::fs::write(&path, [7; 1000]).unwrap();
        let device = FileDevice::open_locked(&path).unwrap();
        assert_eq!(device.extend(ByteLen::new(4096)).unwrap().get(), 4096);
        assert!(matches!(FileDevice::open_locked(&path), Err(DeviceError::InUse)));
        let mut buf = [1; 512];
        device.read(Lba::new(7), &mut buf).unwrap();
        assert_eq!((device.len().get(), buf), (4096, [0; 512]));
        device.write(Lba::new(7), &[9; 512]).unwrap();
        assert_eq!(device.extend(ByteLen::new(512)).unwrap().get(), 4096);
        let reader = FileDevice::open(&path).unwrap();
        assert!(matches!(reader.extend(ByteLen::new(8192)), Err(DeviceError::ReadOnly)));
        let held = std::fs::read(&path).unwrap();
        assert!(held.len() == 4096 && held[..1000] == [7; 1000] && held[3584..] == [9; 512]);
        // Somebody else has made it longer.
        File::options().write(true).open(&path).unwrap().set_len(5120).unwrap();
        assert_eq!(device.len().get(), 4096);
        assert_eq!(device.extend(ByteLen::ZERO).unwrap().get(), 5120);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn only_one_may_write() {
        let path = std::env::temp_dir().join(format!("seekless-lock-{}", std::process::id()));
        std::fs::write(&path, [7; 1024]).unwrap();
        let first = FileDevice::open_locked(&path).unwrap();
        assert!(matches!(FileDevice::open_locked(&path), Err(DeviceError::InUse)));
        // Readers are not excluded.
        let mut buf = [0; 512];
        first.write(Lba::new(1), &[9; 512]).unwrap();
        FileDevice::open(&path).unwrap().read(Lba::new(1), &mut buf).unwrap();
        assert_eq!(buf, [9; 512]);
        drop(first);
        drop(FileDevice::open_locked(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(FileDevice::open_locked(&path), Err(DeviceError::Open { .. })));
    }
}
