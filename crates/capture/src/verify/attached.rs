//! An image attached to a loop device and mounted in a private namespace, with the kernel's
//! requests to the device counted from cold caches.

use super::scratch_dir::{IMAGE, ScratchDir};
use rustix::mount::MountFlags;
use seekless_fs::Inspect;
use seekless_host::caches::{self, Caches};
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::read_ahead;
use seekless_host::scratch::{self, Mounted};
use seekless_host::tracefs::{EventKind, Filter, Instance, Root, Source, Threads, Traced};
use seekless_images::{Error, ErrorKind};
use seekless_layout::replay::Machine;
use seekless_report::disk::{Class, Usage};
use seekless_units::{BlockNo, ByteLen, Extent, SECTOR};
use std::path::{Path, PathBuf};

/// Size of the kernel's event buffer for each processor, in KiB.
const BUFFER_KIB: usize = 16 << 10;

/// An image to verify: the file or device, the part of it to use, and its file system.
#[derive(Clone, Copy)]
pub struct ImageFile<'a> {
    /// Raw image file or block device.
    pub path: &'a Path,
    /// First byte and length of the part; `None` for the whole file or device.
    pub part: Option<(ByteLen, ByteLen)>,
    /// The file system in that part.
    pub image: &'a dyn Inspect,
}

/// Read requests in order, in blocks of the file system, each with the class of most of its blocks.
pub type Requests = Vec<(Extent, Class)>;

/// An image as a block device, with mounts that are visible to this process only. Device and mounts
/// disappear with the last process that sees them, even if this one is killed; then only the
/// scratch directory stays.
pub struct AttachedImage<'a> {
    image: &'a dyn Inspect,
    machine: Machine,
    device: LoopDevice,
    scratch: ScratchDir,
}

impl<'a> AttachedImage<'a> {
    /// Attaches an image to a loop device with the queue limits of `machine`. The image is not
    /// changed: one whose journal needs replay is copied to `temp_dir`, which also gets the mount
    /// points. The calling thread gets mounts of its own, which it keeps.
    ///
    /// # Errors
    /// [`ErrorKind::System`] without root, if `temp_dir` cannot be written, or if the kernel cannot
    /// replay the journal.
    pub fn new(file: ImageFile<'a>, machine: Machine, temp_dir: &Path) -> Result<Self, Error> {
        let ImageFile { path, part, image } = file;
        scratch::private_mounts()?;
        let scratch = ScratchDir::new(temp_dir)?;
        let copy = needs_replay(image).then(|| scratch.copy(path)).transpose()?;
        let (offset, len) = part.map_or((0, 0), |(start, len)| (start.get(), len.get()));
        let options = LoopOptions { read_only: copy.is_none(), direct: false, offset, len };
        let device = LoopDevice::new(copy.as_deref().unwrap_or(path), options)?;
        device.set_queue("max_sectors_kb", machine.max_request.get() >> 10)?;
        if copy.is_some() {
            // The kernel replays the journal here, before requests are counted.
            let format = image.geometry().format;
            let dir = scratch.dir(IMAGE);
            Mounted::new(device.path(), &dir, format, MountFlags::NOATIME, "")?.unmount()?;
        }
        Ok(Self { image, machine, device, scratch })
    }

    /// The file system of the image.
    pub(super) fn image(&self) -> &'a dyn Inspect {
        self.image
    }

    /// A mount point in the scratch directory: [`IMAGE`], `CHANGES` or `ROOT` of `scratch_dir`.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.scratch.dir(name)
    }

    /// The loop device of the image.
    pub(super) fn device(&self) -> &Path {
        self.device.path()
    }

    /// Mounts the image read-only, and sets the machine's read-ahead.
    pub(super) fn mount(&self) -> Result<Mounted, Error> {
        let flags =
            MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        let format = self.image.geometry().format;
        let options = if format == "ext2" { "" } else { "noload" };
        let dir = self.dir(IMAGE);
        let mounted = Mounted::new(self.device.path(), &dir, format, flags, options)?;
        // Last: the kernel resets it when another limit changes.
        let kib = self.machine.read_ahead.get() >> 10;
        self.device.set_queue("read_ahead_kb", kib)?;
        match read_ahead::of(self.device.number()?) {
            Some(set) if set == kib => Ok(mounted),
            set => Err(Error::new(
                ErrorKind::System,
                format!("the device has read_ahead_kb {set:?} although it was set to {kib}"),
            )),
        }
    }

    /// Drops the caches, does `work`, and returns the requests made until the counter was stopped,
    /// at the latest at the end of `work`. `usage` gives their classes.
    pub(super) fn count<T>(
        &self,
        usage: &Usage,
        work: impl FnOnce(&mut RequestCounter) -> Result<T, Error>,
    ) -> Result<(T, Requests), Error> {
        let filter = Filter {
            sources: vec![Source::Issued],
            device: Some(self.device.number()?),
            who: Threads::AllBut(Vec::new()),
            buffer_kib: BUFFER_KIB,
        };
        let instance = Instance::new(&Root::find()?, &filter)?;
        let mut counter = RequestCounter { instance, traced: Vec::new() };
        caches::drop_clean(Caches::All)?;
        counter.instance.start()?;
        let done = work(&mut counter)?;
        counter.stop()?;
        let RequestCounter { instance, mut traced } = counter;
        if instance.lost > 0 {
            return Err(Error::new(
                ErrorKind::System,
                "the kernel lost events because the machine is too busy; the counts are not \
                 reliable",
            ));
        }
        traced.sort_by_key(|event| event.time);
        let block_size = u64::from(self.image.geometry().block_size);
        let requests = traced.iter().filter_map(|event| request(&event.what, block_size, usage));
        Ok((done, requests.collect()))
    }
}

/// Collects the kernel's events of requests.
pub(super) struct RequestCounter {
    instance: Instance,
    traced: Vec<Traced>,
}

impl RequestCounter {
    /// Reads the kernel's buffer; needed before it is full.
    pub(super) fn take(&mut self) -> Result<(), Error> {
        self.instance.read(&mut self.traced)?;
        Ok(())
    }

    /// Stops counting.
    pub(super) fn stop(&mut self) -> Result<(), Error> {
        self.instance.stop()?;
        self.take()
    }
}

/// A read request, with the class of most of its blocks; `None` for other events.
fn request(what: &EventKind, block_size: u64, usage: &Usage) -> Option<(Extent, Class)> {
    let EventKind::Issued { sector, bytes, read: true, .. } = *what else { return None };
    let from = sector * SECTOR;
    let first = from / block_size;
    let end = (from + u64::from(bytes)).div_ceil(block_size);
    let extent = Extent::new(BlockNo::new(first), end.checked_sub(first).filter(|len| *len > 0)?);
    Some((extent, usage.most_of(extent)))
}

/// Whether a mount would replay the journal and change the image.
fn needs_replay(image: &dyn Inspect) -> bool {
    image.geometry().features.iter().any(|feature| feature == "needs_recovery")
}
