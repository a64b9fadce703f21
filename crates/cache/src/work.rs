//! A part of a commit that is done without the cache.

use crate::log::{Stage, Submitted};
use seekless_device::{BlockDevice, DeviceError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The outcome of a part of a commit.
#[derive(Default)]
pub(crate) struct Done {
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

#[derive(Default)]
struct Outcome {
    is_over: bool,
    /// For the cache, which takes it once.
    result: Option<Result<(), DeviceError>>,
}

impl Done {
    fn set(&self, result: Result<(), DeviceError>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if !outcome.is_over {
            *outcome = Outcome { is_over: true, result: Some(result) };
        }
        self.changed.notify_all();
    }

    /// Whether it is done.
    pub(crate) fn is_set(&self) -> bool {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).is_over
    }

    fn wait_until_over(&self) -> MutexGuard<'_, Outcome> {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let going_on = |outcome: &mut Outcome| !outcome.is_over;
        self.changed.wait_while(outcome, going_on).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is done. [`Done::wait`] still returns the result.
    pub(crate) fn wait_until_set(&self) {
        drop(self.wait_until_over());
    }

    /// Waits until it is done.
    pub(crate) fn wait(&self) -> Result<(), DeviceError> {
        let result = self.wait_until_over().result.take();
        debug_assert!(result.is_some(), "the cache takes a result once");
        result.unwrap_or(Ok(()))
    }
}

/// Who performs commits, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Commits {
    /// The caller that finds one due performs it, and goes on when it is done.
    #[default]
    AtOnce,
    /// The cache, beside operations: each takes it as far as it comes without waiting
    /// for writes.
    Beside,
    /// Other callers, by [`Transactions::commit_work`](crate::Transactions::commit_work).
    Apart,
}

/// How a part of a commit is known to be done.
pub(crate) enum Performer {
    /// The caller that performs it reports so.
    Somebody(Arc<Done>),
    /// The device does.
    Device(Submitted),
}

/// A part of a commit that is under way.
pub(crate) struct Part {
    pub(crate) doing: Performer,
    /// It flushes the device.
    pub(crate) flushes: bool,
    /// Its writes wait for a flush.
    pub(crate) unflushed: bool,
    /// How often writes of the cache had completed when it was handed out.
    pub(crate) landings: u64,
}

impl Performer {
    /// A wait for the caller that performs it, where it is not done yet.
    pub(crate) fn as_wait(&self) -> Option<CommitWork> {
        match self {
            Self::Somebody(done) if !done.is_set() => Some(CommitWork(Task::Wait(done.clone()))),
            Self::Somebody(_) | Self::Device(_) => None,
        }
    }
}

/// A part of a commit that waits for the device, to be performed without keeping the cache locked.
/// Callers that need the commit meanwhile wait for it.
#[must_use = "the commit waits for it"]
pub struct CommitWork(Task);

enum Task {
    Perform(Stage, Arc<dyn BlockDevice>, bool, Giver),
    /// Another caller performs it.
    Wait(Arc<Done>),
}

/// Reports the outcome of a part, also if it is given up.
struct Giver(Arc<Done>);

impl CommitWork {
    pub(crate) fn new(
        stage: Stage,
        device: Arc<dyn BlockDevice>,
        barriers: bool,
        done: Arc<Done>,
    ) -> Self {
        Self(Task::Perform(stage, device, barriers, Giver(done)))
    }

    /// Waits for the caller that performs it.
    pub(crate) fn wait_for(done: Arc<Done>) -> Self {
        Self(Task::Wait(done))
    }

    /// Performs it. Errors are met by the cache.
    pub fn perform(self) {
        match self.0 {
            Task::Perform(stage, device, barriers, giver) => {
                giver.0.set(stage.perform(device.as_ref(), barriers));
            }
            Task::Wait(done) => drop(done.wait_until_over()),
        }
    }
}

impl Drop for Giver {
    /// Waiters must not wait for a part that was given up: it counts as failed.
    fn drop(&mut self) {
        let why = std::io::Error::other("a commit or flush was given up");
        self.0.set(Err(DeviceError::Io { at: seekless_units::Lba::new(0), source: why }));
    }
}
