//! A part of a commit that is done without the cache.

use crate::log::{Stage, Submitted};
use seekless_device::{BlockDevice, DeviceError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What became of a part of a commit.
#[derive(Default)]
pub(crate) struct Done {
    result: Mutex<Option<Result<(), DeviceError>>>,
    changed: Condvar,
}

impl Done {
    fn set(&self, result: Result<(), DeviceError>) {
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(result);
        self.changed.notify_all();
    }

    /// Whether it is done.
    pub(crate) fn is_set(&self) -> bool {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits until it is done.
    pub(crate) fn wait(&self) -> Result<(), DeviceError> {
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = slot.take() {
                return result;
            }
            slot = self.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Who performs commits, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Commits {
    /// Who finds one due performs it, and goes on when it is done.
    #[default]
    AtOnce,
    /// The cache, beside operations: each takes it as far as it comes without waiting
    /// for writes.
    Beside,
    /// Somebody else, by [`Cache::commit_work`](crate::Cache::commit_work).
    Apart,
}

/// How a part of a commit is known to be done.
pub(crate) enum Doing {
    /// Somebody who performs it says so.
    Somebody(Arc<Done>),
    /// The device does.
    Device(Submitted),
}

/// A part of a commit that is under way.
pub(crate) struct Part {
    pub(crate) doing: Doing,
    /// It flushes the device.
    pub(crate) flushes: bool,
    /// What it writes waits for a flush.
    pub(crate) unflushed: bool,
    /// How often writes of the cache had completed when it was handed out.
    pub(crate) landings: u64,
}

/// A part of a commit that waits for the device, to be performed by whoever does not
/// keep the cache locked. Whoever needs the commit meanwhile waits for it.
#[must_use = "the commit waits for it"]
pub struct CommitWork {
    stage: Stage,
    device: Arc<dyn BlockDevice>,
    barriers: bool,
    done: Arc<Done>,
}

impl CommitWork {
    pub(crate) fn new(
        stage: Stage,
        device: Arc<dyn BlockDevice>,
        barriers: bool,
        done: Arc<Done>,
    ) -> Self {
        Self { stage, device, barriers, done }
    }

    /// Performs it. Errors are met by the cache.
    pub fn perform(self) {
        self.done.set(self.stage.perform(self.device.as_ref(), self.barriers));
    }
}

impl Drop for CommitWork {
    /// Nobody waits for what was given up: it counts as failed.
    fn drop(&mut self) {
        let why = std::io::Error::other("a commit was given up");
        self.done.set(Err(DeviceError::Io { at: seekless_units::Lba::new(0), source: why }));
    }
}
