//! Images of any format, open for changes.

use crate::settings::Setting;
use crate::{KernelCache, LiveMountOptions};
use fuser::INodeNo;
use seekless_cache::{Config, Counters, Discipline};
use seekless_device::{BlockDevice, Clock, SnapshotOrigin, WriteQueue};
use seekless_formats::{BackgroundCheck, InUse, Mounting, Step, Wall, claim, recover, release};
use seekless_fs::FsError;
use seekless_fs::corrections::{Correction, Corrections, LOST_FOUND};
use seekless_fs::growth::Growth;
use seekless_fs::operate::{Operate, Trim};
use seekless_host::tuning_request::Adjustment;
use seekless_images::grow_mounted::Wanted;
use seekless_units::{Ino, Lba};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of bytes of writes in the queue.
const MOST_QUEUED: usize = 64 << 20;

/// Longest time for which the kernel is waited for when it is to forget something.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// FUSE's number of an inode: that of the root is 1.
pub(crate) fn number(root: Ino, ino: Ino) -> INodeNo {
    if ino == root { INodeNo::ROOT } else { INodeNo(u64::from(ino.get())) }
}

/// An image open for changes, shared with the code that ticks and unmounts it.
#[derive(Clone)]
pub struct Volume {
    live: Arc<Mutex<Box<dyn InUse>>>,
    /// The queue of its writes, under a discipline that writes and flushes within operations: other
    /// operations then do not wait for them.
    queue: Option<Arc<WriteQueue>>,
    recovery: Arc<RecoveryState>,
    /// The number of the check of a snapshot that began last; changed with the file system locked.
    check: Arc<AtomicU64>,
    cached: KernelCache,
    keeps_size: bool,
}

/// How far a volume has come with its recovery.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Recovered {
    /// It is recovered, or need not be.
    #[default]
    Yes,
    /// Not yet: directories keep their names.
    UnderWay,
    /// That has failed: directories keep their names until the volume is unmounted.
    Failed,
}

/// The state of a recovery, and those who wait for its end.
#[derive(Default)]
struct RecoveryState {
    recovered: Mutex<Recovered>,
    has_ended: Condvar,
}

impl RecoveryState {
    fn set(&self, recovered: Recovered) {
        *self.recovered.lock().unwrap_or_else(PoisonError::into_inner) = recovered;
        self.has_ended.notify_all();
    }

    fn get(&self) -> Recovered {
        *self.recovered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Recovered {
        let state = self.recovered.lock().unwrap_or_else(PoisonError::into_inner);
        *self
            .has_ended
            .wait_while(state, |recovered| *recovered == Recovered::UnderWay)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volume {
    /// Opens an image for changes, if its format supports changes while it is in use; `wall` is the
    /// time of day. Each operation must be followed by [`write_queued`](Self::write_queued).
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for other formats, and for limits of soft updates under another
    /// discipline; errors of the format otherwise.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: &LiveMountOptions,
        ignore_checksums: bool,
        wall: Wall,
    ) -> Result<Self, FsError> {
        let known = claim(device.as_ref())?;
        let discipline = options.how.discipline_of(known, device.as_ref())?;
        if !matches!(discipline, Discipline::Sync | Discipline::Normal) {
            return Self::unqueued(device, clock, options, ignore_checksums, wall);
        }
        let queue = Arc::new(WriteQueue::new(device, MOST_QUEUED));
        let volume = Self::unqueued(queue.clone(), clock, options, ignore_checksums, wall)?;
        Ok(Self { queue: Some(queue), ..volume })
    }

    /// As [`open`](Self::open), with writes performed within operations: for a single user.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn unqueued(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: &LiveMountOptions,
        ignore_checksums: bool,
        wall: Wall,
    ) -> Result<Self, FsError> {
        let known = claim(device.as_ref())?;
        options.check_limits(options.how.discipline_of(known, device.as_ref())?)?;
        let mounting = Mounting { ignore_checksums, ..options.how.clone() };
        let live = (known.open_live)(device, clock, &mounting, wall)?;
        let live = Arc::new(Mutex::new(live));
        let (recovery, check) = Default::default();
        let cached = KernelCache::default();
        Ok(Self { live, queue: None, recovery, check, cached, keeps_size: false })
    }

    /// As [`open`](Self::open), for an image that is to be recovered while it is in use
    /// ([`Mounting::recovers`]). Returns its recovery, if there is something to be recovered, to
    /// be run on a thread of its own. `store` has room for copies of blocks that are overwritten until it
    /// ends.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); [`FsError::Unsupported`] for a format that cannot be
    /// recovered while it is in use.
    pub fn open_to_recover(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: &LiveMountOptions,
        ignore_checksums: bool,
        wall: Wall,
        store: Option<Arc<dyn BlockDevice>>,
    ) -> Result<(Self, Option<VolumeRecovery>), FsError> {
        let known = claim(device.as_ref())?;
        let (origin, check) = BackgroundCheck::of(known, device, store)?;
        let volume = Self::open(origin.clone(), clock, options, ignore_checksums, wall)?;
        if !volume.live().is_recovering() {
            return Ok((volume, None));
        }
        volume.recovery.set(Recovered::UnderWay);
        let recovery = VolumeRecovery {
            volume: volume.clone(),
            check: Some(check),
            end: RecoveryEnd { origin, is_wanted: Arc::default() },
        };
        Ok((volume, Some(recovery)))
    }

    /// How far it has come with its recovery.
    pub(crate) fn recovered(&self) -> Recovered {
        self.recovery.get()
    }

    /// Waits for the end of a recovery that is under way.
    pub(crate) fn wait_for_recovery(&self) -> Recovered {
        self.recovery.wait()
    }

    fn live(&self) -> MutexGuard<'_, Box<dyn InUse>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the file system. A panic elsewhere has been reported there.
    #[must_use]
    pub fn lock(&self) -> Locked<'_> {
        Locked(self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        self.live.try_lock().ok().map(Locked)
    }

    /// The counters of its cache.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner).counters()
    }

    /// The configuration of its cache.
    #[must_use]
    pub fn config(&self) -> Config {
        *self.live().config()
    }

    /// Changes settings, all of them or none.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a value out of its range; [`FsError::Unsupported`] for a setting of
    /// soft updates where the volume is not mounted with them. After other errors, which are those
    /// of delayed contents that a smaller cache has no room for, the settings are changed.
    pub(crate) fn adjust(&self, asked: &Adjustment) -> Result<(), FsError> {
        let settings = Setting::of(asked);
        let settings = settings.ok_or_else(|| FsError::Invalid("a value out of range".into()))?;
        let mut live = self.live();
        let mut config = *live.config();
        let has_soft_updates = config.discipline == Discipline::SoftUpdates;
        if !has_soft_updates && settings.iter().any(|setting| setting.is_of_soft_updates()) {
            return Err(FsError::Unsupported(format!(
                "limits of pending changes under {}",
                config.discipline
            )));
        }
        for setting in settings {
            setting.apply(&mut config);
        }
        let adjusted = live.adjust(config.limits, config.capacity);
        if asked.zero_counters {
            live.zero_counters();
        }
        drop(live);
        adjusted.and(self.write_queued())
    }

    /// Keeps the volume from growing: nothing says where it may end.
    pub fn keep_size(&mut self) {
        self.keeps_size = true;
    }

    /// Makes it larger, or plans that, with the file system locked meanwhile.
    ///
    /// # Errors
    /// As [`InUse::grow`]; [`FsError::Refused`] while it is being recovered;
    /// [`FsError::Unsupported`] after [`Volume::keep_size`].
    pub(crate) fn grow(&self, wanted: Wanted) -> Result<Growth, FsError> {
        if self.recovered() != Recovered::Yes {
            return Err(FsError::Refused("it is being recovered".into()));
        }
        if self.keeps_size {
            return Err(FsError::Unsupported("growth of a volume mounted by its offset".into()));
        }
        let (done, rewritten) = {
            let mut live = self.live();
            let done = match wanted.dry_run {
                true => live.plan_growth(wanted.size),
                false => live.grow(wanted.size),
            };
            (done, live.take_rewritten())
        };
        self.forget_rewritten(rewritten);
        done.and_then(|growth| self.write_queued().map(|()| growth))
    }

    /// Performs all queued writes and flushes, without locking the file system.
    ///
    /// # Errors
    /// [`FsError::Device`] of the first that failed.
    pub fn write_queued(&self) -> Result<(), FsError> {
        Ok(self.queue.as_ref().map_or(Ok(()), |queue| queue.perform(queue.end()))?)
    }

    /// Performs due work each second, until the other end of the channel is dropped.
    pub fn tick(&self, stopped: &Receiver<()>) {
        self.lock().leave_work();
        while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            let (ticked, rewritten) = {
                let mut live = self.lock();
                (live.tick(), live.take_rewritten())
            };
            self.forget_rewritten(rewritten);
            let written = ticked.and_then(|()| self.work()).and_then(|()| self.write_queued());
            match written.and_then(|()| self.discard()) {
                Ok(()) | Err(FsError::ReadOnly(_)) => {}
                Err(error) => tracing::warn!("mount: {error}"),
            }
        }
    }

    /// Writes all changes and closes it.
    ///
    /// # Errors
    /// Those of the file system, and [`FsError::Device`].
    pub fn unmount(&self) -> Result<(), FsError> {
        self.lock().unmount()?;
        self.write_queued()
    }

    /// Tells the device of freed blocks, with the file system locked for one batch at a time.
    fn discard(&self) -> Result<(), FsError> {
        while self.lock().discard_some()? {}
        self.write_queued()
    }

    /// The number of a check that begins: a snapshot will be taken for it, and it may find what
    /// earlier ones have found. Theirs is corrected before or not at all.
    pub(crate) fn begin_check(&self) -> u64 {
        let _live = self.live();
        self.check.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Makes corrections that a check of a snapshot asks for, with the file system locked for some of
    /// them at a time. `None` if another check has begun meanwhile.
    ///
    /// # Errors
    /// As [`release`].
    pub(crate) fn correct(&self, check: u64, some: &[Correction]) -> Option<Result<(), FsError>> {
        let mut is_current = true;
        let done = release(some, &mut |step: Step<'_>| {
            let mut live = self.live();
            is_current &= self.check.load(Ordering::Acquire) == check;
            if is_current {
                step(&mut **live)?;
            }
            drop(live);
            self.write_queued()
        });
        self.forget(some);
        is_current.then_some(done)
    }

    /// The kernel's cache of its mount, for [`MountOptions`](crate::MountOptions).
    #[must_use]
    pub fn cached(&self) -> KernelCache {
        self.cached.clone()
    }

    /// Has the kernel forget the contents of files that the volume has changed by itself. It may wait
    /// for reads of them, which the caller may be the only one to serve: then it is waited for no
    /// longer.
    pub(crate) fn forget_rewritten(&self, files: Vec<Ino>) {
        if files.is_empty() {
            return;
        }
        let (cached, root) = (self.cached(), self.lock().root());
        let (end, ended) = channel();
        let forget = move || {
            files.into_iter().for_each(|ino| cached.forget_contents(number(root, ino)));
            let _ = end.send(());
        };
        // Without a thread, the contents stay in the kernel's cache until the next time.
        let _ = std::thread::Builder::new().spawn(forget);
        let _ = ended.recv_timeout(LONGEST_WAIT);
    }

    /// Has the kernel forget the files and names that corrections change.
    fn forget(&self, corrections: &[Correction]) {
        let root = self.lock().root();
        let number = |ino| number(root, ino);
        for correction in corrections {
            match *correction {
                Correction::DropLinks { ino, .. }
                | Correction::RaiseLinks { ino, .. }
                | Correction::Shorten(ino)
                | Correction::Sectors(ino) => self.cached.forget(number(ino)),
                Correction::RemoveName { dir, ref name, ino } => {
                    self.cached.forget_name(number(dir), name);
                    self.cached.forget_contents(number(dir));
                    self.cached.forget(number(ino));
                }
                Correction::SetParent { dir, from, to } => {
                    self.cached.forget_contents(number(dir));
                    from.into_iter().chain([to]).for_each(|ino| self.cached.forget(number(ino)));
                }
                Correction::Connect { dir, .. } => {
                    let home = self.lock().lookup(dir, b"..");
                    self.cached.forget_name(number(root), LOST_FOUND);
                    let listed = [Some(root), Some(dir), home.ok().flatten()];
                    let listed = listed.into_iter().flatten();
                    listed.for_each(|ino| self.cached.forget_contents(number(ino)));
                }
                // Nobody can have reached these.
                Correction::Delete(_)
                | Correction::FreeInode(_)
                | Correction::FreeRun(_)
                | Correction::Recount { .. } => {}
            }
        }
    }

    /// Ends such a check; `None` as above.
    ///
    /// # Errors
    /// As [`InUse::end_check_in_use`].
    pub(crate) fn end_check(&self, check: u64, sound: bool) -> Option<Result<(), FsError>> {
        let mut live = self.live();
        if self.check.load(Ordering::Acquire) != check {
            return None;
        }
        let ended = live.end_check_in_use(sound);
        drop(live);
        Some(ended.and_then(|()| self.write_queued()))
    }

    /// Tells the device of the free blocks in a range, with the file system locked for a part of it
    /// at a time. Returns the number of their bytes.
    ///
    /// # Errors
    /// As [`Operate::trim_some`]; [`FsError::Refused`] while it is being recovered.
    pub(crate) fn trim(&self, mut trim: Trim) -> Result<u64, FsError> {
        loop {
            if self.recovered() != Recovered::Yes {
                return Err(FsError::Refused("it is being recovered".into()));
            }
            let more = self.lock().trim_some(&mut trim)?;
            self.write_queued()?;
            if !more {
                break;
            }
        }
        // The failure of a queued discard is that of the next one.
        if let Some(queue) = &self.queue {
            queue.discard(Lba::ZERO, 0)?;
        }
        self.write_queued()?;
        Ok(trim.trimmed)
    }

    /// Performs work that waits for the device, without locking the file system.
    fn work(&self) -> Result<(), FsError> {
        loop {
            let work = self.lock().work()?;
            match work {
                Some(work) => work(),
                None => return Ok(()),
            }
        }
    }
}

/// The recovery of a volume from a crash, while it is in use.
pub struct VolumeRecovery {
    volume: Volume,
    /// Until it is run.
    check: Option<BackgroundCheck>,
    end: RecoveryEnd,
}

/// Ends a recovery early.
#[derive(Clone)]
pub struct RecoveryEnd {
    origin: Arc<SnapshotOrigin>,
    is_wanted: Arc<AtomicBool>,
}

/// Why a recovery ends early.
const NOT_IN_USE: &str = "the volume is no longer in use";

impl RecoveryEnd {
    /// Ends the recovery, if it is under way, as soon as possible. The volume stays one that is
    /// not clean.
    pub fn end(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.origin.end_snapshot(NOT_IN_USE);
    }

    fn check(&self) -> Result<(), FsError> {
        if self.is_wanted.load(Ordering::Acquire) {
            return Err(FsError::ReadOnly(NOT_IN_USE.into()));
        }
        Ok(())
    }
}

impl VolumeRecovery {
    /// By which it can be ended.
    #[must_use]
    pub fn end(&self) -> RecoveryEnd {
        self.end.clone()
    }

    /// Checks the volume as the crash has left it, and corrects it.
    ///
    /// # Errors
    /// Those of the check and of the changes; the volume stays one that is not clean.
    pub fn run(mut self) -> Result<Corrections, FsError> {
        let Some(check) = self.check.take() else { unreachable!("it is run once") };
        let corrections = check.corrections()?;
        let mut locked = |step: Step<'_>| {
            self.end.check()?;
            step(&mut **self.volume.live())?;
            self.volume.write_queued()
        };
        let recovered = recover(&corrections, &mut locked);
        self.volume.forget(&corrections.all);
        recovered?;
        if corrections.are_complete() {
            self.volume.recovery.set(Recovered::Yes);
        }
        Ok(corrections)
    }
}

/// Nobody waits for one that has failed, or that nobody runs.
impl Drop for VolumeRecovery {
    fn drop(&mut self) {
        if self.volume.recovered() == Recovered::UnderWay {
            self.volume.recovery.set(Recovered::Failed);
        }
    }
}

/// The file system of a [`Volume`], locked.
pub struct Locked<'a>(MutexGuard<'a, Box<dyn InUse>>);

impl Deref for Locked<'_> {
    type Target = dyn Operate;

    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut **self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::{MemoryDevice, RealClock};
    use seekless_fs::operate::{NewFile, Ownership};
    use seekless_units::ByteLen;

    const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

    fn options(text: &str) -> LiveMountOptions {
        LiveMountOptions::parse(&[text.to_string()]).unwrap()
    }

    fn recovering(device: &Arc<MemoryDevice>) -> (Volume, Option<VolumeRecovery>) {
        let device: Arc<dyn BlockDevice> = device.clone();
        let (clock, options) = (Arc::new(RealClock::new()), options("rw,recover=background"));
        Volume::open_to_recover(device, clock, &options, false, Box::new(crate::now), None).unwrap()
    }

    /// A volume with a directory, in use when the system crashed.
    fn crashed() -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(vec![0; 8 << 20]));
        let make = seekless_ffs::MakeOptions::new(seekless_ffs::Version::Ufs2, device.len());
        seekless_ffs::make(device.as_ref(), &make).unwrap();
        let (clock, options) = (Arc::new(RealClock::new()), options("rw,softdep"));
        let wall = Box::new(crate::now);
        let volume = Volume::open(device.clone(), clock, &options, false, wall).unwrap();
        let mut live = volume.lock();
        let root = live.root();
        live.make(root, b"dir", NewFile::Directory, OWNER).unwrap();
        live.sync().unwrap();
        drop(live);
        device
    }

    fn is_in_order(device: &Arc<MemoryDevice>) -> bool {
        seekless_ffs::check(device.clone()).unwrap().is_clean()
    }

    fn mounted_with(discipline: &str) -> Volume {
        let device = Arc::new(MemoryDevice::new(vec![0; 8 << 20]));
        let make = seekless_ffs::MakeOptions::new(seekless_ffs::Version::Ufs2, device.len());
        seekless_ffs::make(device.as_ref(), &make).unwrap();
        let (clock, wall) = (Arc::new(RealClock::new()), Box::new(crate::now));
        Volume::open(device, clock, &options(&format!("rw,{discipline}")), false, wall).unwrap()
    }

    #[test]
    fn limits_of_soft_updates_are_refused_under_other_disciplines() {
        let device = Arc::new(MemoryDevice::new(vec![0; 8 << 20]));
        let make = seekless_ffs::MakeOptions::new(seekless_ffs::Version::Ufs2, device.len());
        seekless_ffs::make(device.as_ref(), &make).unwrap();
        let open = |how: &str| {
            let clock = Arc::new(RealClock::new());
            Volume::open(device.clone(), clock, &options(how), false, Box::new(crate::now))
        };
        for limit in ["max_softdeps=9", "tickdelay=3", "max_undo=1M"] {
            for discipline in ["async", "sync", "normal"] {
                let wanted = format!("-o {limit} under {discipline}");
                match open(&format!("rw,{limit},{discipline}")) {
                    Err(FsError::Unsupported(why)) => assert_eq!(why, wanted),
                    other => panic!("{wanted}: {:?}", other.map(|_| ())),
                }
            }
            open(&format!("rw,softdep,{limit}")).unwrap().unmount().unwrap();
        }
        open("rw,async,cache=2M").unwrap().unmount().unwrap();
    }

    #[test]
    fn all_settings_of_a_request_change_or_none() {
        let (softdep, normal) = (mounted_with("softdep"), mounted_with("normal"));
        let before = [softdep.config(), normal.config()];
        let reads = softdep.counters().reads;
        assert!(reads > 0);
        let cache = Some(2 << 20);
        // Another client may send any value.
        let wrong = Adjustment { cache, tickdelay: Some(1), zero_counters: true, ..<_>::default() };
        assert!(matches!(softdep.adjust(&wrong), Err(FsError::Invalid(_))));
        let limits = Adjustment { cache, tickdelay: Some(9), zero_counters: true, ..wrong };
        assert!(matches!(normal.adjust(&limits), Err(FsError::Unsupported(_))));
        assert_eq!([softdep.config(), normal.config()], before);
        assert_eq!(softdep.counters().reads, reads);
        softdep.adjust(&limits).unwrap();
        normal.adjust(&Adjustment { tickdelay: None, ..limits }).unwrap();
        for (volume, ticks) in [(&softdep, 9), (&normal, before[1].limits.tickdelay)] {
            let config = volume.config();
            assert_eq!((config.capacity.get(), config.limits.tickdelay), (2 << 20, ticks));
            assert_eq!(volume.counters().reads, 0);
            volume.unmount().unwrap();
        }
    }

    #[test]
    fn a_recovered_volume_is_clean() {
        let device = crashed();
        let (volume, recovery) = recovering(&device);
        assert_eq!(volume.recovered(), Recovered::UnderWay);
        let waiting = volume.clone();
        let waiter = std::thread::spawn(move || waiting.wait_for_recovery());
        let corrections = recovery.unwrap().run().unwrap();
        assert!(corrections.left.is_empty());
        assert_eq!(waiter.join().unwrap(), Recovered::Yes);
        assert_eq!(volume.recovered(), Recovered::Yes);
        volume.unmount().unwrap();
        assert!(is_in_order(&device));
    }

    #[test]
    fn a_recovered_volume_grows() {
        let mut bytes = vec![0; 16 << 20];
        crashed().read(Lba::ZERO, &mut bytes[..8 << 20]).unwrap();
        let device = Arc::new(MemoryDevice::new(bytes));
        let (volume, recovery) = recovering(&device);
        let grow = || volume.grow(Wanted { size: None, dry_run: false });
        assert!(matches!(grow(), Err(FsError::Refused(_))), "it is not recovered yet");
        recovery.unwrap().run().unwrap();
        grow().unwrap();
        let root = volume.lock().root();
        for n in 0..40 {
            let name = format!("dir-{n}");
            volume.lock().make(root, name.as_bytes(), NewFile::Directory, OWNER).unwrap();
        }
        volume.unmount().unwrap();
        assert!(is_in_order(&device));
    }

    #[test]
    fn one_that_is_clean_is_not_recovered() {
        let device = crashed();
        let (volume, recovery) = recovering(&device);
        recovery.unwrap().run().unwrap();
        volume.unmount().unwrap();
        let (volume, recovery) = recovering(&device);
        assert!(recovery.is_none() && volume.recovered() == Recovered::Yes);
        volume.unmount().unwrap();
    }

    #[test]
    fn a_recovery_that_is_ended_early_begins_again() {
        let device = crashed();
        let (volume, recovery) = recovering(&device);
        let recovery = recovery.unwrap();
        recovery.end().end();
        let error = recovery.run().unwrap_err().to_string();
        assert!(error.contains("no longer in use"), "{error}");
        // Nobody waits for it any more, and changes are possible.
        assert_eq!(volume.wait_for_recovery(), Recovered::Failed);
        let root = volume.lock().root();
        volume.lock().make(root, b"other", NewFile::Regular, OWNER).unwrap();
        volume.unmount().unwrap();
        assert!(!is_in_order(&device), "it has not been checked");
        let (volume, recovery) = recovering(&device);
        recovery.unwrap().run().unwrap();
        volume.unmount().unwrap();
        assert!(is_in_order(&device));
    }

    fn used_by_force(device: &Arc<MemoryDevice>) -> Volume {
        let (clock, options) = (Arc::new(RealClock::new()), options("rw,softdep,force"));
        let device: Arc<dyn BlockDevice> = device.clone();
        Volume::open(device, clock, &options, false, Box::new(crate::now)).unwrap()
    }

    #[test]
    fn only_the_last_check_corrects() {
        let device = crashed();
        let volume = used_by_force(&device);
        let (earlier, last) = (volume.begin_check(), volume.begin_check());
        let group = seekless_units::GroupNo::new(0);
        let recount = Correction::Recount { group, surplus_directories: 0 };
        assert!(volume.correct(earlier, std::slice::from_ref(&recount)).is_none());
        assert!(volume.end_check(earlier, true).is_none());
        volume.correct(last, &[recount]).unwrap().unwrap();
        volume.end_check(last, true).unwrap().unwrap();
        volume.unmount().unwrap();
        assert!(is_in_order(&device));
    }

    /// Nothing but a check of the volume that is not in use makes it sound again.
    #[test]
    fn a_volume_that_must_be_checked_is_not_corrected() {
        let device = crashed();
        let volume = used_by_force(&device);
        let check = volume.begin_check();
        volume.end_check(check, false).unwrap().unwrap();
        let recount =
            Correction::Recount { group: seekless_units::GroupNo::new(0), surplus_directories: 0 };
        let check = volume.begin_check();
        let corrected = volume.correct(check, &[recount]).unwrap();
        assert!(matches!(corrected, Err(FsError::Refused(_))), "{corrected:?}");
        let ended = volume.end_check(check, true).unwrap();
        assert!(matches!(ended, Err(FsError::Refused(_))), "{ended:?}");
        volume.unmount().unwrap();
        let (clock, options) = (Arc::new(RealClock::new()), options("rw,softdep"));
        let opened = Volume::open(device, clock, &options, false, Box::new(crate::now));
        assert!(opened.is_err(), "it is marked still");
    }

    #[test]
    fn corrections_of_what_a_volume_does_not_have_are_refused() {
        use seekless_units::{BlockNo, Extent, GroupNo, Ino};
        let device = crashed();
        let volume = used_by_force(&device);
        let run = |start, len| Correction::FreeRun(Extent::new(BlockNo::new(start), len));
        for wrong in [
            run(1 << 40, 8),
            run(8, u64::MAX),
            run(8, 0),
            Correction::Recount { group: GroupNo::new(999), surplus_directories: 0 },
            Correction::FreeInode(Ino::new(u32::MAX)),
            Correction::Delete(Ino::new(0)),
        ] {
            let check = volume.begin_check();
            let done = volume.correct(check, std::slice::from_ref(&wrong)).unwrap();
            assert!(matches!(done, Err(FsError::Invalid(_))), "{wrong:?}: {done:?}");
        }
    }

    #[test]
    fn a_volume_grows_unless_it_keeps_its_size() {
        let device = Arc::new(MemoryDevice::new(vec![0; 16 << 20]));
        let make =
            seekless_ffs::MakeOptions::new(seekless_ffs::Version::Ufs2, ByteLen::new(8 << 20));
        seekless_ffs::make(device.as_ref(), &make).unwrap();
        let open = || {
            let (clock, wall) = (Arc::new(RealClock::new()), Box::new(crate::now));
            Volume::open(device.clone(), clock, &options("rw,softdep"), false, wall).unwrap()
        };
        let mut volume = open();
        volume.keep_size();
        for dry_run in [true, false] {
            let why = volume.grow(Wanted { size: None, dry_run }).unwrap_err();
            assert!(matches!(why, FsError::Unsupported(_)), "{why}");
        }
        volume.unmount().unwrap();
        let volume = open();
        let planned = volume.grow(Wanted { size: None, dry_run: true }).unwrap();
        let growth = volume.grow(Wanted { size: None, dry_run: false }).unwrap();
        assert_eq!(planned, growth);
        assert_eq!(growth.after.get(), 16 << 20);
        volume.unmount().unwrap();
        assert!(is_in_order(&device));
    }

    #[test]
    fn formats_without_it_refuse() {
        let device = Arc::new(MemoryDevice::new(vec![0; 4 << 20]));
        let make =
            seekless_fat::MakeOptions::new(Some(seekless_fat::FatWidth::Fat12), device.len());
        seekless_fat::make(device.as_ref(), &make).unwrap();
        let (clock, options) = (Arc::new(RealClock::new()), options("rw,recover=background"));
        let wall = Box::new(crate::now);
        let opened = Volume::open_to_recover(device, clock, &options, false, wall, None);
        let error = opened.err().expect("FAT has no such recovery").to_string();
        assert!(error.contains("a check of a FAT image while it is in use"), "{error}");
    }
}
