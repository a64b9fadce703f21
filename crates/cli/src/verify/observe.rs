use super::perform::Stage;
use crate::failure::{Failure, Kind};
use crate::source::temp_dir;
use crate::usage;
use rustix::mount::MountFlags;
use seekless_fs::Inspect;
use seekless_host::caches::{self, Caches};
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::scratch::{self, Mounted};
use seekless_host::tracefs::{Filter, Instance, Root, Source, What, Who};
use seekless_layout::replay::Machine;
use seekless_layout::score::{self, Figures};
use seekless_layout::trace::Event;
use seekless_report::disk::{Class, Usage};
use seekless_units::{BlockNo, ByteLen, Extent, SECTOR};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a kernel did.
pub(crate) struct Observation {
    pub(crate) figures: Figures,
    /// The requests in order, with what lies there.
    pub(crate) requests: Vec<(Extent, Class)>,
    /// Which kernel.
    pub(crate) release: String,
    /// Events of the trace that could not be done.
    pub(crate) failed: u64,
}

/// Events between two looks at what the kernel did and at signals.
const STEP: usize = 256;

/// Names that are tried to find one that leads to a block.
const NAMES_TRIED: u32 = 4096;

/// Room for events in the kernel, on each processor.
const BUFFER_KIB: usize = 16 << 10;

/// Mounts an image, does a trace on it and counts what the kernel asks the
/// device for. Nobody else sees the mount, and nothing is left however this
/// ends.
pub(crate) fn observe(
    path: &Path,
    image: &dyn Inspect,
    events: &[Event],
    machine: Machine,
    chunks: &[ByteLen],
    signals: &mut Signals,
) -> Result<Observation, Failure> {
    scratch::private_mounts()?;
    let scratch = Scratch::new()?;
    let copy = needs_replay(image).then(|| scratch.copy(path)).transpose()?;
    let options = LoopOptions { read_only: copy.is_none(), direct: false };
    let device = LoopDevice::new(copy.as_deref().unwrap_or(path), options)?;
    device.set_queue("max_sectors_kb", machine.max_request.get() >> 10)?;
    let format = image.geometry().format;
    let dir = scratch.0.join("mnt");
    if copy.is_some() {
        // The kernel replays the journal, out of what is counted.
        Mounted::new(device.path(), &dir, format, MountFlags::NOATIME, "")?.unmount()?;
    }
    let flags = MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
    let options = if format == "ext2" { "" } else { "noload" };
    let mounted = Mounted::new(device.path(), &dir, format, flags, options)?;
    // Last: the kernel sets it anew whenever another limit changes.
    device.set_queue("read_ahead_kb", machine.read_ahead.get() >> 10)?;
    let filter = Filter {
        sources: vec![Source::Issued],
        device: Some(device.number()?),
        who: Who::AllBut(Vec::new()),
        buffer_kib: BUFFER_KIB,
    };
    let mut instance = Instance::new(&Root::find()?, &filter)?;
    caches::drop_clean(Caches::All)?;
    instance.start()?;
    let mut stage = Stage::new(mounted.dir(), |dir, at| absent_name(image, dir, at))
        .map_err(|error| Failure::io(dir.display(), &error))?;
    let mut traced = Vec::new();
    for step in events.chunks(STEP) {
        step.iter().for_each(|event| stage.perform(event));
        instance.read(&mut traced)?;
        if let Some(signal) = signals.pending().next() {
            return Err(Failure::new(
                Kind::System,
                format!("interrupted by signal {signal}; everything was cleaned up"),
            ));
        }
    }
    instance.stop()?;
    instance.read(&mut traced)?;
    if instance.lost > 0 {
        return Err(Failure::new(
            Kind::System,
            "the kernel lost events because the machine is too busy; the counts are not reliable",
        ));
    }
    let failed = stage.failed;
    drop(stage);
    mounted.unmount()?;
    traced.sort_by_key(|event| event.time);
    let usage = usage::classify(image).map_err(Failure::from)?;
    let block_size = u64::from(image.geometry().block_size);
    let requests: Vec<(Extent, Class)> =
        traced.into_iter().filter_map(|event| request(&event.what, block_size, &usage)).collect();
    let counted = requests.iter().map(|(extent, class)| (*extent, *class != Class::Data));
    let figures = score::figures(counted, block_size, chunks);
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    Ok(Observation { figures, requests, release, failed })
}

/// A read, and what most of it is.
fn request(what: &What, block_size: u64, usage: &Usage) -> Option<(Extent, Class)> {
    let What::Issued { sector, bytes, read: true, .. } = *what else { return None };
    let from = sector * SECTOR;
    let first = from / block_size;
    let end = (from + u64::from(bytes)).div_ceil(block_size);
    let extent = Extent::new(BlockNo::new(first), end.checked_sub(first).filter(|len| *len > 0)?);
    let class = usage
        .within(extent)
        .max_by_key(|(part, _)| part.len)
        .map_or(Class::Internal, |(_, class)| class);
    Some((extent, class))
}

/// A name that is not in a directory, whose search reads the block at an offset.
fn absent_name(image: &dyn Inspect, dir: &[u8], offset: u64) -> Option<Vec<u8>> {
    let dir = seekless_fs::inspect::resolve(image, dir).ok()?;
    let wanted = offset / u64::from(image.geometry().block_size);
    (0..NAMES_TRIED).map(|number| format!("absent-{number}").into_bytes()).find(|name| {
        let blocks = image.lookup_blocks(dir, name).unwrap_or_default();
        // In an index the last block is the one that should hold the name.
        blocks.last().is_some_and(|last| last.get() == wanted)
            || (blocks.len() == 1 || wanted == 0) && blocks.iter().any(|lbn| lbn.get() == wanted)
    })
}

/// Whether a mount would change the image first.
fn needs_replay(image: &dyn Inspect) -> bool {
    image.geometry().features.iter().any(|feature| feature == "needs_recovery")
}

/// A directory that is removed with what is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let dir = temp_dir().join(format!("seekless-verify-{}", std::process::id()));
        let failed = |error| Failure::io(dir.display(), &error);
        std::fs::create_dir(&dir).map_err(failed)?;
        let scratch = Self(dir.clone());
        std::fs::create_dir(dir.join("mnt")).map_err(failed)?;
        Ok(scratch)
    }

    /// A copy with the holes of the original.
    fn copy(&self, path: &Path) -> Result<PathBuf, Failure> {
        let copy = self.0.join("image");
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
        let _ = std::fs::remove_file(self.0.join("image"));
        let _ = std::fs::remove_dir(self.0.join("mnt"));
        let _ = std::fs::remove_dir(&self.0);
    }
}
