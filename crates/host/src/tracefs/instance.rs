//! Instances of tracefs, each with its buffers and filters.

use super::{Decoder, EventKind, Format, Lost, Records, Source, Traced};
use crate::HostError;
use crate::mounts;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RIGHTS: &str = "tracing needs root or CAP_SYS_ADMIN: run it with sudo";
const LACKING: &str = "this kernel has no tracefs (CONFIG_TRACING)";

/// Prefix of our instances' names; the process number follows.
const NAME: &str = "seekless-";

/// The instance that records requests to block devices from the start of an initramfs on, when the
/// device of the root is not known yet. A script creates it: [`Instance::adopt_early`] reads and
/// removes it.
pub const EARLY: &str = "seekless-early";

/// A tracefs: the mounted one, or a private one without a mount point.
#[derive(Debug)]
pub struct Root {
    dir: PathBuf,
    /// Keeps a private tracefs alive.
    mount: Option<Arc<OwnedFd>>,
}

impl Root {
    /// Finds the mounted tracefs, or creates a detached mount.
    ///
    /// # Errors
    /// If this kernel has none, or it may not be used; with advice.
    pub fn find() -> Result<Self, HostError> {
        let mounted = mounts::all()?.into_iter().find(|mount| mount.fs_type == "tracefs");
        let root = match mounted {
            Some(mount) => Self { dir: mount.dir, mount: None },
            None => {
                let mount = mount_detached()?;
                let dir = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
                Self { dir, mount: Some(Arc::new(mount)) }
            }
        };
        let instances = root.dir.join("instances");
        match rustix::fs::access(
            &instances,
            rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
        ) {
            Ok(()) => Ok(root),
            Err(error) => {
                let advice = match error {
                    rustix::io::Errno::NOENT => LACKING,
                    _ => RIGHTS,
                };
                Err(HostError::new("tracefs", error).advise(advice))
            }
        }
    }

    /// Whether the kernel has an event.
    #[must_use]
    pub fn has(&self, source: Source) -> bool {
        self.dir.join("events").join(source.path()).join("enable").exists()
    }

    /// Removes instances left by processes that are gone.
    fn clean(&self) {
        let Ok(entries) = fs::read_dir(self.dir.join("instances")) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(NAME));
            let pid = owner
                .and_then(|owner| owner.split('-').next())
                .and_then(|pid| pid.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                // An instance in use cannot be removed; another user has it then.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// A detached mount of tracefs, gone with the descriptor.
fn mount_detached() -> Result<OwnedFd, HostError> {
    let failed = |error: rustix::io::Errno| {
        let advice = if error == rustix::io::Errno::NODEV { LACKING } else { RIGHTS };
        HostError::new("mounting tracefs", error).advise(advice)
    };
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed)?;
    rustix::mount::fsconfig_create(&context).map_err(failed)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        .map_err(failed)
}

/// The threads whose events are recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Threads {
    /// All but these threads.
    AllBut(Vec<u32>),
    /// These threads, and threads they fork from now on.
    With(Vec<u32>),
}

/// The selection of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// The events; those that the kernel lacks are omitted.
    pub sources: Vec<Source>,
    /// The device, for events that have one.
    pub device: Option<mounts::DeviceNumber>,
    /// The threads.
    pub who: Threads,
    /// Buffer size, in KiB per processor.
    pub buffer_kib: usize,
}

/// A tracing instance of our own, removed on drop.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
    decoder: Decoder,
    pipes: Vec<File>,
    page: Vec<u8>,
    taken: BTreeSet<Source>,
    /// The private tracefs, if any.
    _mount: Option<Arc<OwnedFd>>,
    /// Number of events lost so far, at least.
    pub lost: u64,
}

impl Instance {
    /// Sets up an instance; recording begins with [`Instance::start`].
    ///
    /// # Errors
    /// If the system refuses, with advice.
    pub fn new(root: &Root, filter: &Filter) -> Result<Self, HostError> {
        root.clean();
        let mut instance = Self::at(create(&root.dir.join("instances"))?, root);
        instance.set("tracing_on", "0")?;
        // The monotonic clock, which user space can read too.
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", &filter.buffer_kib.to_string())?;
        match &filter.who {
            Threads::AllBut(threads) => instance.set("set_event_notrace_pid", &list(threads))?,
            Threads::With(threads) => {
                instance.set("options/event-fork", "1")?;
                instance.set("set_event_pid", &list(threads))?;
            }
        }
        for &source in filter.sources.iter().filter(|&&source| root.has(source)) {
            instance.enable(source, filter.device)?;
        }
        instance.open_pipes()?;
        Ok(instance)
    }

    /// An instance in an existing directory, without events.
    fn at(dir: PathBuf, root: &Root) -> Self {
        Self {
            dir,
            decoder: Decoder::default(),
            pipes: Vec::new(),
            page: vec![0; page_len(&root.dir)],
            taken: BTreeSet::new(),
            _mount: root.mount.clone(),
            lost: 0,
        }
    }

    /// Takes over the instance [`EARLY`], if there is one. It stops recording; the recorded
    /// requests to `device` can be read. It is removed on drop like an own instance.
    ///
    /// # Errors
    /// If it exists and cannot be used.
    pub fn adopt_early(
        root: &Root,
        device: mounts::DeviceNumber,
    ) -> Result<Option<Self>, HostError> {
        let dir = root.dir.join("instances").join(EARLY);
        if !dir.is_dir() {
            return Ok(None);
        }
        let mut instance = Self::at(dir, root);
        instance.stop()?;
        instance.decoder.only(device);
        instance.enable(Source::Queued, None)?;
        instance.open_pipes()?;
        Ok(Some(instance))
    }

    /// The requested events that this kernel supports.
    pub fn taken(&self) -> impl Iterator<Item = Source> + '_ {
        self.taken.iter().copied()
    }

    fn set(&self, file: &str, value: &str) -> Result<(), HostError> {
        let path = self.dir.join(file);
        fs::write(&path, value).map_err(|error| HostError::new(path.display().to_string(), error))
    }

    fn enable(
        &mut self,
        source: Source,
        device: Option<mounts::DeviceNumber>,
    ) -> Result<(), HostError> {
        let event = format!("events/{}", source.path());
        let path = self.dir.join(&event).join("format");
        let shown = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| HostError::new(&shown, error))?;
        let format =
            Format::parse(&text).ok_or_else(|| HostError::lacking(shown, "not an event format"))?;
        self.decoder.add(source, format);
        if let (Some(device), Some(field)) = (device, source.device_field()) {
            self.set(&format!("{event}/filter"), &format!("{field} == {}", device.in_kernel()))?;
        }
        self.set(&format!("{event}/enable"), "1")?;
        self.taken.insert(source);
        Ok(())
    }

    fn open_pipes(&mut self) -> Result<(), HostError> {
        let dir = self.dir.join("per_cpu");
        let failed = |error| HostError::new(dir.display().to_string(), error);
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path().join("trace_pipe_raw");
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let pipe = rustix::fs::openat(CWD, &path, flags, Mode::empty());
            self.pipes.push(File::from(pipe.map_err(|error| failed(error.into()))?));
        }
        Ok(())
    }

    /// Begins recording.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(&self) -> Result<(), HostError> {
        self.set("tracing_on", "1")
    }

    /// Stops recording; recorded events can still be read.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn stop(&self) -> Result<(), HostError> {
        self.set("tracing_on", "0")
    }

    /// Appends the recorded events, without waiting. Events of one processor are in order of time,
    /// those of several are not. Returns the number of bytes read from the processor that had most.
    ///
    /// # Errors
    /// The system call's error.
    pub fn read(&mut self, events: &mut Vec<Traced>) -> Result<usize, HostError> {
        let mut most = 0;
        for pipe in &mut self.pipes {
            // Start of this processor's events, within which runs of pages are joined.
            let begin = events.len();
            let mut bytes = 0;
            loop {
                let got = match pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(got) => got,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(HostError::new("trace_pipe_raw", error)),
                };
                bytes += got;
                let Some(records) = Records::new(&self.page[..got]) else { continue };
                self.lost += match records.lost {
                    Lost::No => 0,
                    Lost::Count(count) => count,
                    Lost::Some => 1,
                };
                let decoded = records.filter_map(|(time, bytes)| self.decoder.decode(time, bytes));
                decoded.for_each(|event| push(events, begin, event));
            }
            most = most.max(bytes);
        }
        Ok(most)
    }
}

/// Appends an event. It is joined to the previous one of the same thread if it continues or repeats
/// it.
fn push(events: &mut Vec<Traced>, begin: usize, event: Traced) {
    let last = if events.len() > begin { events.last_mut() } else { None };
    if let Some(last) = last.filter(|last| last.tid == event.tid) {
        match (&mut last.what, &event.what) {
            (
                EventKind::Fetched { ino, last, .. },
                EventKind::Fetched { ino: same, first, last: end },
            ) if ino == same && *last + 1 == *first => {
                *last = *end;
                return;
            }
            (before @ EventKind::Buffer { .. }, after @ EventKind::Buffer { .. })
                if before == after =>
            {
                return;
            }
            _ => {}
        }
    }
    events.push(event);
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.stop();
        // Disables all events, so that none keeps the instance in use.
        let _ = fs::write(self.dir.join("events/enable"), "0");
        self.pipes.clear();
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Creates an instance's directory with a unique name.
fn create(instances: &Path) -> Result<PathBuf, HostError> {
    let mut number = 0;
    loop {
        let dir = instances.join(format!("{NAME}{}-{number}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => {
                return Err(HostError::new(dir.display().to_string(), error).advise_rights(RIGHTS));
            }
        }
    }
}

/// Size of a page of the ring buffer, its header included.
fn page_len(root: &Path) -> usize {
    let text = fs::read_to_string(root.join("events/header_page")).unwrap_or_default();
    let data = Format::parse(&format!("ID:0\n{text}")).and_then(|format| format.field("data"));
    data.map_or(64 << 10, |data| data.offset + data.size)
}

fn list(threads: &[u32]) -> String {
    threads.iter().fold(String::new(), |mut text, thread| {
        let _ = write!(text, "{thread} ");
        text
    })
}
