//! Outputs that share blocks with the files that their contents come from.

use crate::error::{Error, ErrorKind};
use rustix::io::Errno;
use seekless_device::{
    BlockDevice, CloneTarget, DeviceError, Durable, HostRange, NotCloned, Reflink, Ticket,
};
use seekless_fs::term::{Term, Text};
use seekless_host::reflink;
use seekless_units::{ByteLen, Lba};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Refusals after which nothing is cloned any more if nothing was until then: the files are on
/// another file system, and each question costs two microseconds.
const MOST_REFUSALS: u64 = 64;

/// Whether contents are cloned (`FICLONERANGE`) where output and source share a file system that
/// supports it, so that they take no space and no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReflinkMode {
    /// Contents are cloned where possible, and copied elsewhere.
    #[default]
    Auto,
    /// Fails where nothing can be cloned.
    Always,
    /// All contents are copied.
    Never,
}

/// Outputs on one file system that shares blocks between files, and how much of them was cloned.
pub struct Cloning {
    mode: ReflinkMode,
    block_size: u64,
    cloned: AtomicU64,
    refusals: AtomicU64,
    /// The first refusal.
    refusal: Mutex<Option<NotCloned>>,
}

impl Cloning {
    /// The shortest range that is cloned, in bytes. Measured by builds from files of one size
    /// whose pages were cached (Linux 6.18, loop devices, microseconds a file, without and with an
    /// fsync of the image): at 64 KiB XFS takes 22 and 28 cloned and 28 and 83 copied, Btrfs 18 and
    /// 21 cloned and 62 and 128 copied. XFS copies 16 KiB in 8 microseconds and clones any length
    /// in 13. Cloning costs one call for each range, plus one opening of the file.
    pub const SHORTEST: u64 = 64 << 10;

    /// Asks the file system of an output, which is still empty. `None` if everything is copied.
    ///
    /// # Errors
    /// With [`ReflinkMode::Always`], [`ErrorKind::Unsupported`] if the file system does not share
    /// blocks.
    pub fn begin(mode: ReflinkMode, file: &File, path: &Path) -> Result<Option<Arc<Self>>, Error> {
        if mode == ReflinkMode::Never {
            return Ok(None);
        }
        match reflink::block_size(file) {
            Ok(block_size) => Ok(Some(Arc::new(Self {
                mode,
                block_size,
                cloned: AtomicU64::new(0),
                refusals: AtomicU64::new(0),
                refusal: Mutex::new(None),
            }))),
            Err(error) => Self::impossible(mode, path, &of_system(&error)),
        }
    }

    /// `None`, since everything is copied, or the error of an output for which it must not be.
    pub(crate) fn impossible(
        mode: ReflinkMode,
        path: &Path,
        why: &str,
    ) -> Result<Option<Arc<Self>>, Error> {
        match mode {
            ReflinkMode::Always => Err(nothing(path, why)),
            ReflinkMode::Auto | ReflinkMode::Never => Ok(None),
        }
    }

    /// An output as the target of clones.
    pub fn target(self: &Arc<Self>, file: File) -> CloningFile {
        CloningFile { file, cloning: Arc::clone(self) }
    }

    /// Bytes that were cloned.
    fn cloned(&self) -> ByteLen {
        ByteLen::new(self.cloned.load(Ordering::Relaxed))
    }

    /// Tells, when all is written, whether that is an output as requested.
    ///
    /// # Errors
    /// With [`ReflinkMode::Always`], [`ErrorKind::Unsupported`] if contents could have been cloned
    /// by their length, and none were.
    pub fn finish(&self, path: &Path) -> Result<(), Error> {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        match refusal.as_ref() {
            Some(why) if self.mode == ReflinkMode::Always && self.cloned() == ByteLen::ZERO => {
                Err(nothing(path, &reason(why)))
            }
            _ => Ok(()),
        }
    }
}

/// The error of an output that must share blocks and cannot.
fn nothing(path: &Path, why: &str) -> Error {
    let what = Text::from(format!("{}: ", path.display())).then(Term::Reflink);
    Error::new(ErrorKind::Unsupported, what.then(": nothing can be cloned: ").then(why))
}

fn reason(why: &NotCloned) -> String {
    match why {
        NotCloned::NoFile => "the contents of the source are not files of this system".into(),
        NotCloned::Unaligned(block) => {
            format!("the contents do not lie at multiples of {block} bytes in both files")
        }
        NotCloned::System(error) => of_system(error),
    }
}

fn of_system(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::XDEV) => "the source and the output are on different file systems".into(),
        Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => {
            let others = "Btrfs can, and XFS made with reflink=1";
            format!("the file system of the output cannot share blocks between files ({others})")
        }
        _ => error.to_string(),
    }
}

/// An output file whose file system shares blocks.
pub struct CloningFile {
    file: File,
    cloning: Arc<Cloning>,
}

impl CloneTarget for CloningFile {
    fn block_size(&self) -> u64 {
        self.cloning.block_size
    }

    fn shortest(&self) -> u64 {
        let is_futile = self.cloning.refusals.load(Ordering::Relaxed) >= MOST_REFUSALS;
        if is_futile && self.cloning.cloned() == ByteLen::ZERO {
            u64::MAX
        } else {
            Cloning::SHORTEST
        }
    }

    fn clone_range(&self, from: HostRange<'_>, at: u64) -> io::Result<()> {
        reflink::clone_range(self.file.as_fd(), at, from.file, from.offset, from.len)?;
        self.cloning.cloned.fetch_add(from.len, Ordering::Relaxed);
        Ok(())
    }

    fn refused(&self, why: NotCloned) {
        self.cloning.refusals.fetch_add(1, Ordering::Relaxed);
        let mut first = self.cloning.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(why);
    }
}

/// The device of an output whose file can share blocks.
pub(crate) struct CloningDevice {
    device: Arc<dyn BlockDevice>,
    file: CloningFile,
}

impl CloningDevice {
    /// `device` begins with the file.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, file: CloningFile) -> Self {
        Self { device, file }
    }
}

impl BlockDevice for CloningDevice {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, buf)
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
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

    fn reflink(&self) -> Option<Reflink<'_>> {
        Some(Reflink::new(&self.file))
    }
}
