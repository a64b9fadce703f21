//! An image mounted where only this process sees it, with cold caches and a count of
//! what the kernel asks its device for.

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

/// Room for events in the kernel, on each processor.
const BUFFER_KIB: usize = 16 << 10;

/// What is held against a kernel: the file or device, the bytes of it that are meant, and
/// the file system there.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) path: &'a Path,
    /// The first byte, and how many; all when it is no part.
    pub(crate) part: Option<(ByteLen, ByteLen)>,
    pub(crate) image: &'a dyn Inspect,
}

/// Requests in their order, each with what most of it is.
pub(crate) type Requests = Vec<(Extent, Class)>;

/// An image as a block device. Nobody else sees what is mounted of it. Device and
/// mounts go with the last process that sees them, also if this one is killed; the
/// directory of the mounts then stays.
pub(super) struct Stand<'a> {
    image: &'a dyn Inspect,
    machine: Machine,
    usage: Usage,
    device: LoopDevice,
    scratch: Scratch,
}

impl<'a> Stand<'a> {
    /// Makes an image a device with the queue of the machine. An image whose journal has
    /// to be replayed is copied.
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
            // The kernel replays the journal, out of what is counted.
            let format = image.geometry().format;
            let dir = scratch.dir("image");
            Mounted::new(device.path(), &dir, format, MountFlags::NOATIME, "")?.unmount()?;
        }
        let usage = usage::classify(image).map_err(Failure::from)?;
        Ok(Self { image, machine, usage, device, scratch })
    }

    /// A directory of ours to mount something on: one of [`DIRS`].
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.scratch.dir(name)
    }

    /// The block device that the image is.
    pub(super) fn device(&self) -> &Path {
        self.device.path()
    }

    /// Mounts the image read-only. The device then reads ahead as the machine does.
    pub(super) fn mount(&self) -> Result<Mounted, Failure> {
        let flags =
            MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        let format = self.image.geometry().format;
        let options = if format == "ext2" { "" } else { "noload" };
        let dir = self.dir("image");
        let mounted = Mounted::new(self.device.path(), &dir, format, flags, options)?;
        // Last: the kernel sets it anew whenever another limit changes.
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

    /// Drops the caches, does `work`, and gives the requests made until the counter
    /// was stopped: at the end of `work`, if not before.
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

/// Takes the kernel's events as they come.
pub(super) struct Counter {
    instance: Instance,
    traced: Vec<Traced>,
}

impl Counter {
    /// Empties the kernel's buffer, to be done before it is full.
    pub(super) fn take(&mut self) -> Result<(), Failure> {
        self.instance.read(&mut self.traced)?;
        Ok(())
    }

    /// Counts no more.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.instance.stop()?;
        self.take()
    }
}

/// A read, and what most of it is.
fn request(what: &What, block_size: u64, usage: &Usage) -> Option<(Extent, Class)> {
    let What::Issued { sector, bytes, read: true, .. } = *what else { return None };
    let from = sector * SECTOR;
    let first = from / block_size;
    let end = (from + u64::from(bytes)).div_ceil(block_size);
    let extent = Extent::new(BlockNo::new(first), end.checked_sub(first).filter(|len| *len > 0)?);
    Some((extent, usage.most_of(extent)))
}

/// Whether a mount would change the image first.
fn needs_replay(image: &dyn Inspect) -> bool {
    image.geometry().features.iter().any(|feature| feature == "needs_recovery")
}

/// What the scratch directory has: the mounted image, what a command has changed of
/// it, and both together.
const DIRS: [&str; 3] = ["image", "changes", "root"];

/// A file of it: the image that the kernel has replayed the journal of.
const COPY: &str = "copy";

/// A directory that is removed with what is in it.
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
                // Of the image before this one, or of a process that was killed.
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

    /// A copy with the holes of the original.
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
