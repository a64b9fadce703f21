//! The live engine on modelled disks, with a processor whose time counts.
//!
//! - `volume`: a file system on its disk; `make`: empty ones; `partition`: where they begin;
//! - `files`: reading and writing; `clustered`: reading as FreeBSD does; `phase`: the counters of a
//!   phase; `snapshots`: snapshots and checks of a volume.

mod clustered;
mod files;
mod make;
mod partition;
mod phase;
mod snapshots;
mod volume;

pub(crate) use make::{drive, maker};
pub(crate) use phase::PhaseEnds;
pub use phase::{Begun, Reading};

use crate::disk::{self, Disk, Log, ProcessStep};
use crate::experiment::{Cpu, System, Workload};
use crate::quantity::Size;
use crate::repetition::Chance;
use seekless_cache::{Counters, Discipline};
use seekless_device::{Clock, VirtualClock};
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_units::{ByteLen, Ino, Nanos};
use std::iter::Sum;
use std::ops::ControlFlow;
use std::sync::Arc;
use volume::Volume;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
/// When everything happens, as far as files know.
const TODAY: Timestamp = Timestamp { secs: 976_000_000, nanos: 0 };

/// Parameters of a run besides the system.
pub struct Setup<'a> {
    /// The policy for directories.
    pub policy: &'a str,
    /// The update discipline.
    pub discipline: Discipline,
    /// The random choices.
    pub chance: Chance,
    /// The workload that supplies the limits.
    pub workload: &'a Workload,
}

/// The counters of the cache that are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheTally {
    /// Writes with changes rolled back.
    pub rolled_back_writes: u64,
    /// Times that a full graph of changes let a caller sleep.
    pub max_limit_hit: u64,
    /// Times that the syncer was asked to hurry.
    pub rush_requests: u64,
}

impl Sum for CacheTally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |all, one| Self {
            rolled_back_writes: all.rolled_back_writes + one.rolled_back_writes,
            max_limit_hit: all.max_limit_hit + one.max_limit_hit,
            rush_requests: all.rush_requests + one.rush_requests,
        })
    }
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

/// A machine with mounted file systems, each on a drive of its own.
pub struct Machine {
    clock: Arc<VirtualClock>,
    volumes: Vec<Volume>,
    /// The volume that calls are about.
    at: usize,
    cpu: Cpu,
    linger: Nanos,
    spent: Nanos,
    chance: Chance,
    bytes: Vec<u8>,
    /// Bytes of a file that its inode maps by itself: no request reaches over them.
    direct: u64,
    /// Bytes of a block of files, and of the largest read.
    block: u64,
    most_read: u64,
    /// Files are read as FreeBSD's kernels do.
    cluster_read: bool,
    /// See [`Workload::sync`] and [`Workload::cold`].
    pub(crate) phases: PhaseEnds,
}

const SECOND: u64 = 1_000_000_000;
/// Most bytes that are read or written in one call.
const CHUNK: usize = 64 << 10;

impl Machine {
    /// Makes the file systems, in no time, and mounts them. `log` as in
    /// [`Disk::new`], for all drives.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a format that cannot be made, or does not fit
    /// on the drive.
    pub fn new(system: &System, setup: &Setup<'_>, log: Option<Log>) -> Result<Self, FsError> {
        let clock = Arc::new(VirtualClock::new());
        let logs = disk::shared(log, system.volumes);
        let volumes = logs.into_iter().map(|log| Volume::new(system, setup, &clock, log));
        Ok(Self {
            volumes: volumes.collect::<Result<_, _>>()?,
            at: 0,
            clock,
            cpu: system.cpu.clone(),
            linger: setup.workload.linger.map_or(Nanos::ZERO, |span| span.0),
            spent: Nanos::ZERO,
            chance: setup.chance.clone(),
            bytes: vec![0x5A; CHUNK],
            direct: files::direct(&system.format),
            block: files::block(&system.format),
            most_read: system.cache.cluster.0.get(),
            cluster_read: system.cache.cluster_read,
            phases: PhaseEnds { sync: setup.workload.sync, cold: setup.workload.cold },
        })
    }

    /// From here on calls are about the volume of a number, from 0. The system has it.
    pub(crate) fn select(&mut self, volume: usize) {
        debug_assert!(volume < self.volumes.len(), "the workload was checked");
        self.at = volume;
    }

    fn volume(&mut self) -> &mut Volume {
        &mut self.volumes[self.at]
    }

    fn live(&mut self) -> &mut dyn Operate {
        self.volume().live()
    }

    /// The processor works; the drive goes on meanwhile.
    pub(crate) fn compute(&mut self, span: Nanos) {
        if !self.disk().is_noted(ProcessStep::Compute(span)) {
            self.clock.sleep(span);
            self.spent += span.get();
        }
    }

    /// Does work in no time; also returns the steps that would have taken time.
    ///
    /// # Errors
    /// Errors of `work`.
    pub(crate) fn at_once<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, FsError>,
    ) -> Result<(T, Vec<ProcessStep>), FsError> {
        self.disk().stop_time();
        let done = work(self);
        let steps = self.disk().go_on();
        Ok((done?, steps))
    }

    /// The disk, for callers that advance the clock themselves.
    pub(crate) fn disk(&self) -> &Disk {
        &self.volumes[self.at].disk
    }

    /// The processor has worked for so long, while time passed.
    pub(crate) fn worked(&mut self, span: Nanos) {
        self.spent += span.get();
    }

    /// Advances the clock to a moment; the file systems do nothing.
    pub(crate) fn pass_until(&self, then: Nanos) {
        self.clock.sleep(Nanos::new(then.saturating_since(self.clock.now())));
    }

    /// The syncer's turn, which it has once a second.
    ///
    /// # Errors
    /// As [`Operate::tick`].
    pub(crate) fn tick(&mut self) -> Result<(), FsError> {
        self.volumes.iter_mut().try_for_each(|volume| volume.live().tick())
    }

    fn work_through(&mut self, count: u64, per_second: Size) {
        let nanos = u128::from(count) * 1_000_000_000 / u128::from(per_second.0.get().max(1));
        self.compute(Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX)));
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.volumes[self.at].root()
    }

    /// `mkdir`, `mknod` or `open` of a new file.
    ///
    /// # Errors
    /// As [`Operate::make`].
    pub fn make(&mut self, dir: Ino, name: &str, new: NewFile<'_>) -> Result<Ino, FsError> {
        self.compute(self.cpu.change.0);
        Ok(self.live().make(dir, name.as_bytes(), new, OWNER)?.ino)
    }

    /// Charges the start of a program and the wait for its end, without its own work.
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

    /// Pauses until a moment: only the syncer works until then.
    ///
    /// # Errors
    /// As [`Operate::tick`].
    pub fn pause_until(&mut self, then: Nanos) -> Result<(), FsError> {
        while self.clock.now() < then {
            let left = then.saturating_since(self.clock.now());
            self.clock.sleep(Nanos::new(left.min(SECOND)));
            self.tick()?;
            self.skip_idle(then);
        }
        Ok(())
    }

    /// Lets whole seconds pass, up to a moment, in which the syncer would do
    /// nothing.
    fn skip_idle(&self, then: Nanos) {
        let due = self.volumes.iter().filter_map(Volume::next_due).min();
        let busy = due.map_or(then, |due| due.min(then));
        let idle = busy.saturating_since(self.clock.now()).saturating_sub(1) / SECOND;
        self.clock.sleep(Nanos::new(idle * SECOND));
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`Operate::hold`].
    pub(crate) fn open(&mut self, ino: Ino) -> Result<(), FsError> {
        self.live().hold(ino)
    }

    /// It is closed again, in the time of the call that came before.
    ///
    /// # Errors
    /// As [`Operate::release`].
    pub(crate) fn close_file(&mut self, ino: Ino) -> Result<(), FsError> {
        self.live().release(ino)
    }

    /// Unmounts everything and mounts it again, with empty caches.
    ///
    /// # Errors
    /// As [`Operate::unmount`], and those of opening a volume.
    pub fn remount(&mut self) -> Result<(), FsError> {
        self.volumes.iter_mut().try_for_each(Volume::close)?;
        self.volumes.iter_mut().try_for_each(|volume| volume.reopen(&self.clock))
    }

    /// Sets times and owner as an archiver does when a file is done.
    ///
    /// # Errors
    /// As [`Operate::set_attr`].
    pub fn stamp(&mut self, ino: Ino) -> Result<(), FsError> {
        self.compute(self.cpu.look.0);
        let set = SetAttr { mtime: Some(TODAY), atime: Some(TODAY), ..SetAttr::default() };
        self.live().set_attr(ino, &set).map(|_| ())
    }

    /// The names in a directory, with inode and kind, `.` and `..` left out, in the order in which
    /// the modelled system lists them.
    ///
    /// # Errors
    /// As [`Operate::read_dir`].
    pub fn list(&mut self, dir: Ino) -> Result<Vec<(Vec<u8>, Ino, bool)>, FsError> {
        self.compute(self.cpu.look.0);
        let mut names = Vec::new();
        self.live().read_dir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let is_dir = entry.kind == Some(FileKind::Directory);
                names.push((entry.name.to_vec(), entry.ino, is_dir));
            }
            ControlFlow::Continue(())
        })?;
        self.volume().sort_as_listed(dir, &mut names, |(name, ..)| name)?;
        Ok(names)
    }

    /// `lstat`.
    ///
    /// # Errors
    /// As [`Operate::attr`].
    pub fn stat(&mut self, ino: Ino) -> Result<(), FsError> {
        self.compute(self.cpu.look.0);
        self.live().attr(ino).map(|_| ())
    }

    /// Charges system calls that look up entries in memory.
    pub(crate) fn look(&mut self, calls: u64) {
        self.compute(Nanos::new(self.cpu.look.0.get().saturating_mul(calls)));
    }

    /// The file that a name of the root leads to.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; as [`Operate::lookup`].
    pub(crate) fn find(&mut self, name: &str) -> Result<Ino, FsError> {
        self.look(1);
        let root = self.root();
        let found = self.live().lookup(root, name.as_bytes())?;
        found.ok_or_else(|| FsError::NotFound(name.into()))
    }

    /// A file was read: its time of access changes, in the time of the call that read.
    ///
    /// # Errors
    /// As [`Operate::set_attr`].
    pub(crate) fn accessed(&mut self, ino: Ino) -> Result<(), FsError> {
        let set = SetAttr { atime: Some(TODAY), ..SetAttr::default() };
        self.live().set_attr(ino, &set).map(|_| ())
    }

    /// `unlink`.
    ///
    /// # Errors
    /// As [`Operate::unlink`].
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.compute(self.cpu.change.0);
        self.live().unlink(dir, name)
    }

    /// `rmdir`.
    ///
    /// # Errors
    /// As [`Operate::rmdir`].
    pub fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.compute(self.cpu.change.0);
        self.live().rmdir(dir, name)
    }

    /// Writes everything to the disk and waits until it is at rest: blocks that the syncer has not
    /// written after a while ([`Workload::linger`]) are written at once.
    ///
    /// # Errors
    /// As [`Operate::sync`].
    pub fn settle(&mut self) -> Result<(), FsError> {
        self.pause_until(self.now() + self.linger.get())?;
        self.volumes.iter_mut().try_for_each(|volume| volume.live().sync())?;
        self.volumes.iter().try_for_each(|volume| Ok(volume.disk.drain()?))
    }

    /// `sync`: writes all changes and waits until the drives have completed the writes, those that
    /// they only accepted left out.
    ///
    /// # Errors
    /// As [`Operate::sync`].
    pub(crate) fn sync(&mut self) -> Result<(), FsError> {
        self.volumes.iter_mut().try_for_each(|volume| volume.live().sync())
    }

    /// Writes everything and closes the file systems; returns their disks, to inspect the images.
    ///
    /// # Errors
    /// As [`Operate::unmount`].
    pub fn close(mut self) -> Result<Vec<Arc<Disk>>, FsError> {
        self.volumes.iter_mut().try_for_each(Volume::close)?;
        Ok(self.volumes.into_iter().map(|volume| volume.disk).collect())
    }
}
