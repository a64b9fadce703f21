//! Images of any format, open for changes.

use crate::LiveMountOptions;
use seekless_cache::{Counters, Discipline};
use seekless_device::{BlockDevice, Clock, WriteQueue};
use seekless_formats::{InUse, Mounting, Wall, claim};
use seekless_fs::FsError;
use seekless_fs::operate::Operate;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
        Ok(Self { live: Arc::new(Mutex::new(live)), queue: None })
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
