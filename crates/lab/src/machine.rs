//! The live engine on a modelled disk, with a processor whose time counts.

mod phase;

pub use phase::{Begun, Reading};

use crate::disk::{Disk, Log, Step};
use crate::experiment::{Cpu, Format, FormatKind, System, Workload};
use crate::quantity::Size;
use crate::repetition::Chance;
use seekless_cache::{Ages, Config, Counters, Discipline};
use seekless_device::{Clock, SparseDevice, VirtualClock};
use seekless_ffs::{FfsLive, LiveOptions, MakeOptions, Version, make};
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_model::{DeviceModel, preset};
use seekless_units::{ByteLen, Ino, Nanos};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
/// When everything happens, as far as files know.
const TODAY: Timestamp = Timestamp { secs: 976_000_000, nanos: 0 };

/// What is under test besides the system.
pub struct Setup<'a> {
    /// The policy for directories.
    pub policy: &'a str,
    /// The update discipline.
    pub discipline: Discipline,
    /// What is left to chance.
    pub chance: Chance,
    /// Whose limits hold.
    pub workload: &'a Workload,
}

/// What of the cache's counters is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheTally {
    /// Writes with something in them undone.
    pub rolled_back_writes: u64,
    /// Times that a full graph of changes let a caller sleep.
    pub max_limit_hit: u64,
    /// Times that the syncer was asked to hurry.
    pub rush_requests: u64,
}

impl CacheTally {
    fn with(self, more: &Counters) -> Self {
        Self {
            rolled_back_writes: self.rolled_back_writes + more.rolled_back_writes,
            max_limit_hit: self.max_limit_hit + more.max_limit_hit,
            rush_requests: self.rush_requests + more.rush_requests,
        }
    }
}

/// How the file system is mounted.
struct Mount {
    config: Config,
    directories: String,
    blocks: String,
    seed: u64,
    reallocblks: bool,
}

impl Mount {
    fn open(&self, disk: &Arc<Disk>, clock: &Arc<VirtualClock>) -> Result<FfsLive, FsError> {
        let options = LiveOptions {
            directories: self.directories.clone(),
            blocks: Some(self.blocks.clone()),
            seed: self.seed,
            reallocblks: self.reallocblks,
            force: false,
            ignore_checksums: false,
            wall: Box::new(|| TODAY),
        };
        FfsLive::open(disk.clone(), clock.clone(), self.config, options)
    }
}

/// A machine with a mounted file system.
pub struct Machine {
    clock: Arc<VirtualClock>,
    disk: Arc<Disk>,
    live: FfsLive,
    mount: Mount,
    /// Of mounts that are over.
    past: CacheTally,
    cpu: Cpu,
    linger: Nanos,
    spent: Nanos,
    chance: Chance,
    bytes: Vec<u8>,
}

const SECOND: u64 = 1_000_000_000;
/// Most bytes that are read or written in one call.
const CHUNK: usize = 64 << 10;

impl Machine {
    /// Makes the file system, in no time, and mounts it. `log` as in
    /// [`Disk::new`].
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a format that cannot be made, or does not fit
    /// on the drive.
    pub fn new(system: &System, setup: &Setup<'_>, log: Option<Log>) -> Result<Self, FsError> {
        let image = SparseDevice::new(system.format.size.0);
        make(&image, &make_options(&system.format)?)?;
        let clock = Arc::new(VirtualClock::new());
        let model = drive(system)?;
        let disk = Arc::new(Disk::new(image, model, clock.clone(), system.queue, log));
        let mount = Mount {
            config: config(system, setup),
            directories: setup.policy.into(),
            blocks: system.format.blocks.0.clone(),
            seed: setup.chance.seed,
            reallocblks: system.format.reallocblks,
        };
        let live = mount.open(&disk, &clock)?;
        Ok(Self {
            clock,
            disk,
            live,
            mount,
            past: CacheTally::default(),
            cpu: system.cpu.clone(),
            linger: setup.workload.linger.map_or(Nanos::ZERO, |span| span.0),
            spent: Nanos::ZERO,
            chance: setup.chance.clone(),
            bytes: vec![0x5A; CHUNK],
        })
    }

    /// The processor works; the drive goes on meanwhile.
    pub(crate) fn compute(&mut self, span: Nanos) {
        if !self.disk.is_noted(Step::Compute(span)) {
            self.clock.sleep(span);
            self.spent = self.spent.saturating_add(span.get());
        }
    }

    /// Does something in no time; what would have taken time.
    ///
    /// # Errors
    /// What it says.
    pub(crate) fn at_once<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, FsError>,
    ) -> Result<(T, Vec<Step>), FsError> {
        self.disk.stop_time();
        let done = work(self);
        let steps = self.disk.go_on();
        Ok((done?, steps))
    }

    /// The disk, for who lets time pass by himself.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The processor has worked for so long, while time passed.
    pub(crate) fn worked(&mut self, span: Nanos) {
        self.spent = self.spent.saturating_add(span.get());
    }

    /// Time passes up to a moment. Nobody notices.
    pub(crate) fn pass_until(&self, then: Nanos) {
        self.clock.sleep(Nanos::new(then.saturating_since(self.clock.now())));
    }

    /// The syncer's turn, which it has once a second.
    ///
    /// # Errors
    /// As [`Operate::tick`].
    pub(crate) fn tick(&mut self) -> Result<(), FsError> {
        self.live.tick()
    }

    fn work_through(&mut self, count: u64, per_second: Size) {
        let nanos = u128::from(count) * 1_000_000_000 / u128::from(per_second.0.get().max(1));
        self.compute(Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX)));
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.live.root()
    }

    /// `mkdir`, `mknod` or `open` of a new file.
    ///
    /// # Errors
    /// As [`Operate::make`].
    pub fn make(&mut self, dir: Ino, name: &str, new: NewFile<'_>) -> Result<Ino, FsError> {
        self.compute(self.cpu.change.0);
        Ok(self.live.make(dir, name.as_bytes(), new, OWNER)?.ino)
    }

    /// Unpacks a file's contents from an archive, and writes them.
    ///
    /// # Errors
    /// As [`Machine::write`].
    pub fn unpack(&mut self, ino: Ino, len: ByteLen) -> Result<(), FsError> {
        self.work_through(len.get(), self.cpu.unpack);
        self.write(ino, len)
    }

    /// Writes a file from its start.
    ///
    /// # Errors
    /// As [`Operate::write`].
    pub fn write(&mut self, ino: Ino, len: ByteLen) -> Result<(), FsError> {
        self.work_through(len.get(), self.cpu.copy);
        let mut at = ByteLen::ZERO;
        while at < len {
            let most = len.get() - at.get();
            let part = &self.bytes[..CHUNK.min(usize::try_from(most).unwrap_or(CHUNK))];
            let written = self.live.write(ino, at, part)?;
            if written < part.len() {
                return Err(FsError::NoSpace("the volume is full".into()));
            }
            at = ByteLen::new(at.get() + written as u64);
        }
        Ok(())
    }

    /// Reads a file from its start to its end.
    ///
    /// # Errors
    /// As [`Operate::read`].
    pub fn read(&mut self, ino: Ino) -> Result<(), FsError> {
        self.compute(self.cpu.look.0);
        let mut buf = std::mem::take(&mut self.bytes);
        let mut at = ByteLen::ZERO;
        let done = loop {
            match self.live.read(ino, at, &mut buf) {
                Ok(0) => break Ok(()),
                Ok(count) => {
                    at = ByteLen::new(at.get() + count as u64);
                    self.work_through(count as u64, self.cpu.copy);
                }
                Err(error) => break Err(error),
            }
        };
        self.bytes = buf;
        done
    }

    /// Starts a program and waits for its end, without what it does.
    pub fn run_program(&mut self) {
        if let Some(span) = self.cpu.spawn {
            self.compute(span.0);
        }
    }

    /// Compiles so much source, without the files' reading and writing.
    pub fn compile(&mut self, len: ByteLen) {
        if let Some(rate) = self.cpu.compile {
            self.work_through(len.get(), rate);
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Nobody does anything until then but the syncer.
    ///
    /// # Errors
    /// As [`Operate::tick`].
    pub fn pause_until(&mut self, then: Nanos) -> Result<(), FsError> {
        while self.clock.now() < then {
            let left = then.saturating_since(self.clock.now());
            self.clock.sleep(Nanos::new(left.min(SECOND)));
            self.live.tick()?;
            self.skip_idle(then);
        }
        Ok(())
    }

    /// Lets whole seconds pass, up to a moment, in which the syncer would do
    /// nothing.
    fn skip_idle(&self, then: Nanos) {
        let busy = self.live.next_due().map_or(then, |due| due.min(then));
        let idle = busy.saturating_since(self.clock.now()).saturating_sub(1) / SECOND;
        self.clock.sleep(Nanos::new(idle * SECOND));
    }

    /// Unmounts and mounts again, with an empty cache.
    ///
    /// # Errors
    /// As [`Operate::unmount`], and what [`FfsLive::open`] says.
    pub fn remount(&mut self) -> Result<(), FsError> {
        self.live.unmount()?;
        self.disk.drain()?;
        self.past = self.past.with(self.live.counters());
        self.live = self.mount.open(&self.disk, &self.clock)?;
        Ok(())
    }

    /// Sets times and owner as an archiver does when a file is done.
    ///
    /// # Errors
    /// As [`Operate::set_attr`].
    pub fn stamp(&mut self, ino: Ino) -> Result<(), FsError> {
        self.compute(self.cpu.look.0);
        let set = SetAttr { mtime: Some(TODAY), atime: Some(TODAY), ..SetAttr::default() };
        self.live.set_attr(ino, &set).map(|_| ())
    }

    /// The names in a directory and what they are, `.` and `..` left out.
    ///
    /// # Errors
    /// As [`Operate::read_dir`].
    pub fn list(&mut self, dir: Ino) -> Result<Vec<(Vec<u8>, Ino, bool)>, FsError> {
        self.compute(self.cpu.look.0);
        let mut names = Vec::new();
        self.live.read_dir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let is_dir = entry.kind == Some(FileKind::Directory);
                names.push((entry.name.to_vec(), entry.ino, is_dir));
            }
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    /// `lstat`.
    ///
    /// # Errors
    /// As [`Operate::attr`].
    pub fn stat(&mut self, ino: Ino) -> Result<(), FsError> {
        self.compute(self.cpu.look.0);
        self.live.attr(ino).map(|_| ())
    }

    /// `unlink`.
    ///
    /// # Errors
    /// As [`Operate::unlink`].
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.compute(self.cpu.change.0);
        self.live.unlink(dir, name)
    }

    /// `rmdir`.
    ///
    /// # Errors
    /// As [`Operate::rmdir`].
    pub fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.compute(self.cpu.change.0);
        self.live.rmdir(dir, name)
    }

    /// Everything is on the disk, and the disk is at rest: what the syncer has
    /// not written after a while ([`Workload::linger`]) is written at once.
    ///
    /// # Errors
    /// As [`Operate::sync`].
    pub fn settle(&mut self) -> Result<(), FsError> {
        self.pause_until(self.now().saturating_add(self.linger.get()))?;
        self.live.sync()?;
        Ok(self.disk.drain()?)
    }

    /// Writes everything and closes the file system; the image is returned for
    /// who wants to look at it.
    ///
    /// # Errors
    /// As [`Operate::unmount`].
    pub fn close(mut self) -> Result<Arc<Disk>, FsError> {
        self.live.unmount()?;
        self.disk.drain()?;
        Ok(self.disk)
    }
}

/// The maker's options.
///
/// # Errors
/// [`FsError::Invalid`] for a size that does not fit in them.
pub(crate) fn make_options(format: &Format) -> Result<MakeOptions, FsError> {
    let small = |size: Size| {
        let bytes = size.0;
        u32::try_from(bytes.get()).map_err(|_| FsError::Invalid(format!("{bytes} is too large")))
    };
    let version = match format.kind {
        FormatKind::Ufs1 => Version::Ufs1,
        FormatKind::Ufs2 => Version::Ufs2,
    };
    let mut options = MakeOptions::new(version, format.size.0);
    options.block_size = small(format.block)?;
    options.fragment_size = small(format.fragment)?;
    options.blocks_per_group = format.blocks_per_group;
    options.bytes_per_inode = format.bytes_per_inode.map(small).transpose()?;
    if let Some(size) = format.avgfilesize {
        options.avgfilesize = small(size)?;
    }
    options.avgfpdir = format.avgfpdir.unwrap_or(options.avgfpdir);
    options.time = TODAY;
    Ok(options)
}

/// The drive of a system, with its write cache as asked for.
///
/// # Errors
/// [`FsError::Invalid`] for a volume that does not fit on it.
pub(crate) fn drive(system: &System) -> Result<Box<dyn DeviceModel>, FsError> {
    let wrong = |error: &dyn std::fmt::Display| FsError::Invalid(error.to_string());
    let mut spec = preset::spec(&system.drive.0).map_err(|error| wrong(&error))?;
    if let (Some(on), Some(hdd)) = (system.write_cache, &mut spec.hdd) {
        hdd.buffer.write_back = on;
    }
    if let (Some(on), Some(hdd)) = (system.replace_writes, &mut spec.hdd) {
        hdd.buffer.replace_writes = on;
    }
    let model = spec.build();
    let wanted = system.format.size.0;
    match model.capacity().map(|sectors| ByteLen::new(sectors.saturating_mul(512))) {
        Some(has) if has < wanted => Err(FsError::Invalid(format!(
            "a volume of {wanted} bytes does not fit on {} ({has} bytes)",
            system.drive.0
        ))),
        _ => Ok(model),
    }
}

fn config(system: &System, setup: &Setup<'_>) -> Config {
    let mut config = Config::new(setup.discipline);
    config.capacity = system.cache.size.0;
    config.cluster = system.cache.cluster.0;
    let [inode, directory, file] = system.cache.ages;
    config.ages = Ages { inode, directory, file };
    config.page = system.cache.page.map(|size| size.0);
    config.delay_bitmaps = system.cache.delay_bitmaps;
    config.barriers = false;
    let limits = &mut config.limits;
    limits.tickdelay = setup.workload.tickdelay.unwrap_or(limits.tickdelay);
    limits.max_softdeps = setup.workload.max_softdeps.unwrap_or(limits.max_softdeps);
    config
}
