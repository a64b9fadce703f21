//! An image on a block device, replacing its contents.

use crate::error::{Error, ErrorKind};
use crate::output::to_replace;
use crate::progress::Progress;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use seekless_device::{BlockDevice, FileDevice, HeadLast};
use seekless_fs::FsError;
use seekless_fs::format::Probe;
use seekless_fs::term::Text;
use seekless_host::block_device;
use seekless_partition::Table;
use seekless_units::{ByteLen, format_size};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes at the start of a device that may contain marks of others: superblocks of volume managers
/// and file systems. Marks further back (the copies of btrfs) are ignored once the first one is
/// gone.
const MARKS_AT_START: u64 = 8 << 20;

/// The same at its end: the copy of a partition table, RAID, labels of ZFS.
const MARKS_AT_END: u64 = 1 << 20;

/// Bytes zeroed at once, so that progress can be reported.
const STEP: u64 = 64 << 20;

/// Maximum block size of a device in bytes; ranges to zero consist of whole blocks.
const BLOCK: u64 = 4096;

/// Number and interval of tries while other processes look at a device briefly.
const TRIES: u32 = 100;
const WAIT: Duration = Duration::from_millis(50);

/// A block device with exclusive access.
pub(crate) struct BlockTarget {
    file: File,
    path: PathBuf,
    device: Arc<HeadLast>,
    /// Bytes in a sector.
    sector: u32,
    /// Number of bytes from the start on that were zeroed before other writes; zero while the
    /// device is unchanged.
    zeroed: Mutex<u64>,
    /// Whether anything was written.
    is_touched: AtomicBool,
    is_complete: bool,
}

impl BlockTarget {
    /// Opens a device, and refuses one that is in use; without `force` also one with recognised
    /// contents. Nothing is changed.
    pub(crate) fn open(path: &Path, force: bool) -> Result<Self, Error> {
        let file = open_exclusively(path)?;
        let io = |error: std::io::Error| Error::io(path.display(), &error);
        let below = FileDevice::from_file(file.try_clone().map_err(io)?, true).map_err(io)?;
        if below.is_empty() {
            return Err(Error::new(
                ErrorKind::System,
                format!("{}: has no medium", path.display()),
            ));
        }
        if let Some(what) = (!force).then(|| holds(&below)).flatten() {
            let message = Text::from(format!("{}: holds ", path.display())).then(what);
            return Err(Error::new(ErrorKind::System, message).hint(to_replace()));
        }
        let device = Arc::new(HeadLast::new(Arc::new(below)));
        let sector = block_device::sector(&file).map_err(io)?;
        Ok(Self {
            file,
            path: path.into(),
            device,
            sector,
            zeroed: Mutex::new(0),
            is_touched: AtomicBool::new(false),
            is_complete: false,
        })
    }

    /// Bytes per sector.
    pub(crate) fn sector(&self) -> u32 {
        self.sector
    }

    /// Whether anything was written.
    pub(crate) fn is_touched(&self) -> bool {
        self.is_touched.load(Ordering::Relaxed)
    }

    /// Its size.
    pub(crate) fn len(&self) -> ByteLen {
        self.device.len()
    }

    /// All of the device, after its first `len` bytes have been zeroed where nothing was written
    /// yet, and marks of old contents have been removed from all of it.
    pub(crate) fn device(
        &self,
        len: ByteLen,
        progress: &dyn Progress,
    ) -> Result<Arc<dyn BlockDevice>, Error> {
        let capacity = self.len().get();
        if len.get() > capacity {
            let (size, room) = (format_size(len), format_size(self.len()));
            let what = format!(
                "{}: the image has {size} ({len} bytes), the device only {room} ({capacity} bytes)",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        let mut zeroed = self.zeroed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = *zeroed == 0;
        let least = if is_first { MARKS_AT_START } else { 0 };
        let end = len.get().max(least).next_multiple_of(BLOCK).min(capacity);
        if *zeroed < end {
            // The old superblock goes first: after an interruption the old image is no longer
            // valid.
            self.zero(*zeroed, end, progress)?;
            *zeroed = end;
        }
        if is_first {
            let tail = capacity.saturating_sub(MARKS_AT_END) / BLOCK * BLOCK;
            self.zero(tail.max(end), capacity, progress)?;
        }
        Ok(self.device.clone())
    }

    fn zero(&self, from: u64, to: u64, progress: &dyn Progress) -> Result<(), Error> {
        progress.begin(ByteLen::new(to.saturating_sub(from)));
        let mut at = from;
        while at < to {
            let len = STEP.min(to - at);
            match block_device::zero(&self.file, at, len) {
                Ok(()) => {}
                // A device that cannot be written is unchanged.
                Err(error) if is_read_only(&error) => {
                    return Err(Error::io(self.path.display(), &error));
                }
                // The driver lacks the operation.
                Err(error) if is_lacking(&error) => {
                    self.is_touched.store(true, Ordering::Relaxed);
                    self.write_zeros(at, len)?;
                }
                Err(error) => {
                    self.is_touched.store(true, Ordering::Relaxed);
                    return Err(Error::io(self.path.display(), &error));
                }
            }
            self.is_touched.store(true, Ordering::Relaxed);
            at += len;
            progress.advance(ByteLen::new(len));
        }
        progress.end();
        Ok(())
    }

    fn write_zeros(&self, at: u64, len: u64) -> Result<(), Error> {
        use std::os::unix::fs::FileExt;
        let zeros = vec![0; 1 << 20];
        for from in (at..at + len).step_by(zeros.len()) {
            let part = (at + len - from).min(zeros.len() as u64) as usize;
            let written = self.file.write_all_at(&zeros[..part], from);
            written.map_err(|error| Error::io(self.path.display(), &error))?;
        }
        Ok(())
    }

    /// Writes the beginning, which makes the image valid, after all else is on stable storage.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let about = |error| Error::from(error).about(self.path.display());
        self.device.finish().map_err(|error| about(FsError::from(error)))?;
        self.is_complete = true;
        // Without partitions, or if one is in use, nothing needs to be done.
        let _ = block_device::reread_partitions(&self.file);
        Ok(())
    }
}

impl Drop for BlockTarget {
    fn drop(&mut self) {
        if self.is_touched() && !self.is_complete {
            tracing::warn!(
                "{}: what it held is lost, and the image is not complete",
                self.path.display()
            );
        }
    }
}

fn is_read_only(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::ROFS | Errno::PERM | Errno::ACCESS))
}

fn is_lacking(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS))
}

/// Opens a device that is neither mounted nor used by others, including its partitions. The lock
/// keeps udev from probing it meanwhile (systemd, `docs/BLOCK_DEVICE_LOCKING.md`).
fn open_exclusively(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::EXCL.bits().cast_signed());
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => in_use(path),
        _ => Error::io(path.display(), &error),
    })?;
    for _ in 0..TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(WAIT),
            Err(errno) => return Err(Error::io(path.display(), &errno.into())),
        }
    }
    let what = format!("{}: is locked by another program", path.display());
    Err(Error::new(ErrorKind::System, what))
}

fn in_use(path: &Path) -> Error {
    let mount = block_device::number(path).and_then(block_device::mounted);
    let (what, hint) = match mount {
        Some(mount) => (format!("it is mounted on {}", mount.dir.display()), "unmount it first"),
        None => (
            "mounted, swap space, part of another device, or taken by a program".into(),
            "lsblk and fuser show what uses it",
        ),
    };
    Error::new(ErrorKind::System, format!("{}: is in use: {what}", path.display())).hint(hint)
}

/// The recognised contents of a device, if any.
fn holds(device: &dyn BlockDevice) -> Option<Text> {
    let known = seekless_formats::FORMATS.into_iter();
    let mut found = known.map(|known| (known, (known.reader.probe)(device)));
    if let Some((known, _)) = found.find(|(_, probe)| *probe == Probe::Yes) {
        return Some(known.called.into());
    }
    if let Some(what) = seekless_source::what_it_seems(device) {
        return Some(what);
    }
    match Table::read(device) {
        Ok(None) => None,
        Ok(Some(table)) => Some(format!("a partition table ({})", table.scheme.name()).into()),
        Err(_) => Some("a damaged partition table".into()),
    }
}
