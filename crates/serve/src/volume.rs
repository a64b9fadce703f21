//! Images of any format, open for changes.

use crate::LiveMountOptions;
use seekless_cache::{Counters, Discipline};
use seekless_device::{BlockDevice, Clock, SnapshotOrigin, WriteQueue};
use seekless_formats::{BackgroundCheck, InUse, Mounting, Step, Wall, claim, recover};
use seekless_fs::FsError;
use seekless_fs::corrections::Corrections;
use seekless_fs::operate::Operate;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of bytes of writes in the queue.
const MOST_QUEUED: usize = 64 << 20;

/// An image open for changes, shared with the code that ticks and unmounts it.
#[derive(Clone)]
pub struct Volume {
    live: Arc<Mutex<Box<dyn InUse>>>,
    /// The queue of its writes, under a discipline that writes and flushes within operations: other
    /// operations then do not wait for them.
    queue: Option<Arc<WriteQueue>>,
    recovery: Arc<RecoveryState>,
}

/// Whether a recovery is under way, in which directories must keep their names.
#[derive(Default)]
struct RecoveryState {
    is_under_way: Mutex<bool>,
    has_ended: Condvar,
}

impl RecoveryState {
    fn set(&self, is_under_way: bool) {
        *self.is_under_way.lock().unwrap_or_else(PoisonError::into_inner) = is_under_way;
        self.has_ended.notify_all();
    }

    fn is_under_way(&self) -> bool {
        *self.is_under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let state = self.is_under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let _ended = self
            .has_ended
            .wait_while(state, |is_under_way| *is_under_way)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

impl Volume {
    /// Opens an image for changes, if its format supports changes while it is in use; `wall` is the
    /// time of day. Each operation must be followed by [`write_queued`](Self::write_queued).
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for other formats; errors of the format otherwise.
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
        let mounting = Mounting { ignore_checksums, ..options.how.clone() };
        let live = (known.open_live)(device, clock, &mounting, wall)?;
        let live = Arc::new(Mutex::new(live));
        Ok(Self { live, queue: None, recovery: Arc::default() })
    }

    /// As [`open`](Self::open), for an image that is to be recovered while it is in use
    /// ([`Mounting::recovers`]). Returns its recovery, if there is something to be recovered, to
    /// be run on a thread of its own. `store` has room for copies of what is overwritten until it
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
        volume.recovery.set(true);
        let recovery = VolumeRecovery { volume: volume.clone(), check: Some(check), origin };
        Ok((volume, Some(recovery)))
    }

    /// Whether a recovery is under way: directories must not be removed or renamed.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovery.is_under_way()
    }

    /// Waits for the end of a recovery that is under way.
    pub(crate) fn wait_for_recovery(&self) {
        self.recovery.wait();
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
            let ticked = self.lock().tick();
            match ticked.and_then(|()| self.work()).and_then(|()| self.write_queued()) {
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
    origin: Arc<SnapshotOrigin>,
}

/// Ends a recovery early.
pub struct RecoveryEnd(Arc<SnapshotOrigin>);

impl RecoveryEnd {
    /// Ends the recovery, if it is under way, as soon as possible. The volume stays one that is
    /// not clean.
    pub fn end(&self) {
        self.0.end_snapshot("the volume is no longer in use");
    }
}

impl VolumeRecovery {
    /// By which it can be ended.
    #[must_use]
    pub fn end(&self) -> RecoveryEnd {
        RecoveryEnd(Arc::clone(&self.origin))
    }

    /// Checks the volume as the crash has left it, and corrects it.
    ///
    /// # Errors
    /// Those of the check and of the changes; the volume stays one that is not clean.
    pub fn run(mut self) -> Result<Corrections, FsError> {
        let Some(check) = self.check.take() else { unreachable!("it is run once") };
        let volume = self.volume.clone();
        let corrections = check.corrections()?;
        let mut locked = |step: Step<'_>| {
            step(&mut **volume.live())?;
            volume.write_queued()
        };
        recover(&corrections, &mut locked)?;
        Ok(corrections)
    }
}

/// Nobody waits for one that has failed, or that nobody runs.
impl Drop for VolumeRecovery {
    fn drop(&mut self) {
        self.volume.recovery.set(false);
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

    #[test]
    fn a_recovered_volume_is_clean() {
        let device = crashed();
        let (volume, recovery) = recovering(&device);
        assert!(volume.is_recovering());
        let waiting = volume.clone();
        let waiter = std::thread::spawn(move || waiting.wait_for_recovery());
        let corrections = recovery.unwrap().run().unwrap();
        assert!(corrections.left.is_empty());
        waiter.join().unwrap();
        assert!(!volume.is_recovering());
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
        assert!(recovery.is_none() && !volume.is_recovering());
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
        volume.wait_for_recovery();
        let root = volume.lock().root();
        volume.lock().make(root, b"other", NewFile::Regular, OWNER).unwrap();
        volume.unmount().unwrap();
        assert!(!is_in_order(&device), "it has not been checked");
        let (volume, recovery) = recovering(&device);
        recovery.unwrap().run().unwrap();
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
