//! Mounts an image in a private namespace with cold caches, and counts the kernel's requests to its
//! device.

use crate::failure::{Failure, Kind};
use crate::source::temp_dir;
use crate::usage;
use rustix::mount::MountFlags;
use seekless_fs::Inspect;
use seekless_host::caches::{self, Caches};
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::read_ahead;
use seekless_host::scratch::{self, Mounted};
use seekless_host::tracefs::{Filter, Instance, Root, Source, Traced, What, Who};
use seekless_layout::replay::Machine;
use seekless_report::disk::{Class, Usage};
use seekless_units::{BlockNo, ByteLen, Extent, SECTOR};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the kernel's event buffer for each processor, in KiB.
const BUFFER_KIB: usize = 16 << 10;

/// An image to verify: the file or device, the part of it to use, and its file system.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) path: &'a Path,
    /// First byte and length of the part; `None` for the whole file or device.
    pub(crate) part: Option<(ByteLen, ByteLen)>,
    pub(crate) image: &'a dyn Inspect,
}

/// Requests in order, each with the class of most of its blocks.
pub(crate) type Requests = Vec<(Extent, Class)>;

/// An image as a block device, with mounts that are visible to this process only. Device and mounts
/// disappear with the last process that sees them, even if this one is killed; then only the
/// scratch directory stays.
pub(super) struct Stand<'a> {
    image: &'a dyn Inspect,
    machine: Machine,
    usage: Usage,
    device: LoopDevice,
    scratch: Scratch,
}

impl<'a> Stand<'a> {
    /// Attaches an image to a loop device with the machine's queue limits. An image whose journal
    /// needs replay is copied.
    pub(super) fn new(subject: Subject<'a>, machine: Machine) -> Result<Self, Failure> {
        let Subject { path, part, image } = subject;
        scratch::private_mounts()?;
        let scratch = Scratch::new()?;
        let copy = needs_replay(image).then(|| scratch.copy(path)).transpose()?;
        let (offset, len) = part.map_or((0, 0), |(start, len)| (start.get(), len.get()));
        let options = LoopOptions { read_only: copy.is_none(), direct: false, offset, len };
        let device = LoopDevice::new(copy.as_deref().unwrap_or(path), options)?;
        device.set_queue("max_sectors_kb", machine.max_request.get() >> 10)?;
        if copy.is_some() {
            // The kernel replays the journal here, before requests are counted.
            let format = image.geometry().format;
            let dir = scratch.dir("image");
            Mounted::new(device.path(), &dir, format, MountFlags::NOATIME, "")?.unmount()?;
        }
        let usage = usage::classify(image).map_err(Failure::from)?;
        Ok(Self { image, machine, usage, device, scratch })
    }

    /// A mount point in the scratch directory: one of [`DIRS`].
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.scratch.dir(name)
    }

    /// The loop device of the image.
    pub(super) fn device(&self) -> &Path {
        self.device.path()
    }

    /// Mounts the image read-only, and sets the machine's read-ahead.
    pub(super) fn mount(&self) -> Result<Mounted, Failure> {
        let flags =
            MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        let format = self.image.geometry().format;
        let options = if format == "ext2" { "" } else { "noload" };
        let dir = self.dir("image");
        let mounted = Mounted::new(self.device.path(), &dir, format, flags, options)?;
        // Last: the kernel resets it when another limit changes.
        let kib = self.machine.read_ahead.get() >> 10;
        self.device.set_queue("read_ahead_kb", kib)?;
        match read_ahead::of(self.device.number()?) {
            Some(set) if set == kib => Ok(mounted),
            set => Err(Failure::new(
                Kind::System,
                format!("the device has read_ahead_kb {set:?} although it was set to {kib}"),
            )),
        }
    }

    /// Drops the caches, does `work`, and returns the requests made until the counter was stopped,
    /// at the latest at the end of `work`.
    pub(super) fn count<T>(
        &self,
        work: impl FnOnce(&mut Counter) -> Result<T, Failure>,
    ) -> Result<(T, Requests), Failure> {
        let filter = Filter {
            sources: vec![Source::Issued],
            device: Some(self.device.number()?),
            who: Who::AllBut(Vec::new()),
            buffer_kib: BUFFER_KIB,
        };
        let instance = Instance::new(&Root::find()?, &filter)?;
        let mut counter = Counter { instance, traced: Vec::new() };
        caches::drop_clean(Caches::All)?;
        counter.instance.start()?;
        let done = work(&mut counter)?;
        counter.stop()?;
        let Counter { instance, mut traced } = counter;
        if instance.lost > 0 {
            return Err(Failure::new(
                Kind::System,
                "the kernel lost events because the machine is too busy; the counts are not \
                 reliable",
            ));
        }
        traced.sort_by_key(|event| event.time);
        let block_size = self.block_size();
        let requests =
            traced.iter().filter_map(|event| request(&event.what, block_size, &self.usage));
        Ok((done, requests.collect()))
    }

    fn block_size(&self) -> u64 {
        u64::from(self.image.geometry().block_size)
    }
}

/// Collects the kernel's events.
pub(super) struct Counter {
    instance: Instance,
    traced: Vec<Traced>,
}

impl Counter {
    /// Reads the kernel's buffer; needed before it is full.
    pub(super) fn take(&mut self) -> Result<(), Failure> {
        self.instance.read(&mut self.traced)?;
        Ok(())
    }

    /// Stops counting.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.instance.stop()?;
        self.take()
    }
}

/// A read request, with the class of most of its blocks; `None` for other events.
fn request(what: &What, block_size: u64, usage: &Usage) -> Option<(Extent, Class)> {
    let What::Issued { sector, bytes, read: true, .. } = *what else { return None };
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

/// Mount points in the scratch directory: the image, the changes of a command, and the overlay of
/// both.
const DIRS: [&str; 3] = ["image", "changes", "root"];

/// Name of the copy of an image whose journal the kernel replays.
const COPY: &str = "copy";

/// A temporary directory, removed on drop with [`COPY`] and [`DIRS`].
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let failed = |dir: &Path, error| Failure::io(dir.display(), &error);
        let mut number = 0;
        let dir = loop {
            let name = format!("seekless-verify-{}-{number}", std::process::id());
            let dir = temp_dir().join(name);
            match std::fs::create_dir(&dir) {
                Ok(()) => break dir,
                // Left by a process that was killed, or used for another image.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed(&dir, error)),
            }
        };
        let scratch = Self(dir);
        for name in DIRS {
            let dir = scratch.dir(name);
            std::fs::create_dir(&dir).map_err(|error| failed(&dir, error))?;
        }
        Ok(scratch)
    }

    fn dir(&self, name: &str) -> PathBuf {
        debug_assert!(DIRS.contains(&name), "{name} is removed at the end");
        self.0.join(name)
    }

    /// A sparse copy of an image.
    fn copy(&self, path: &Path) -> Result<PathBuf, Failure> {
        let copy = self.0.join(COPY);
        let mut command = Command::new("cp");
        command.args(["--sparse=always", "--reflink=auto", "--"]).arg(path).arg(&copy);
        let status = command.status().map_err(|error| Failure::io("cp", &error))?;
        match status.success() {
            true => Ok(copy),
            false => Err(Failure::new(Kind::System, format!("cp {}: {status}", path.display()))),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.join(COPY));
        for name in DIRS {
            let _ = std::fs::remove_dir(self.dir(name));
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}
