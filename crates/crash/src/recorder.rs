//! A device that records its writes.

use crate::log::{Log, Step};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_device::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_units::{ByteLen, Lba};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes of a discarded sector.
const DISCARDED: u8 = 0xDD;

/// When asynchronous writes complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// When the call returns.
    AtOnce,
    /// Later, in any order, drawn from a number. A flush says nothing of those that
    /// are under way.
    Late(u64),
    /// As [`Completion::Late`], and the device reports that they have completed when they are
    /// submitted, as a caller that takes submission for completion would believe. For tests of
    /// whether a search of crash states would notice.
    LateUntold(u64),
}

struct State {
    log: Log,
    rng: Pcg64Mcg,
    /// Steps with writes that have not completed.
    under_way: BTreeSet<usize>,
}

impl State {
    fn complete(&mut self, submit: usize) {
        if self.under_way.remove(&submit) {
            self.log.steps.push(Step::Complete { submit });
        }
    }

    /// Lets each of some writes complete, or not.
    fn progress(&mut self, writes: &[usize]) {
        for &submit in writes {
            if self.rng.next_u64().is_multiple_of(2) {
                self.complete(submit);
            }
        }
    }
}

/// A device over another that keeps a [`Log`] of writes and flushes.
pub struct Recorder {
    device: Arc<dyn BlockDevice>,
    completion: Completion,
    state: Mutex<State>,
}

impl Recorder {
    /// Records the writes to `device` from now on.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, completion: Completion) -> Self {
        let seed = match completion {
            Completion::AtOnce => 0,
            Completion::Late(seed) | Completion::LateUntold(seed) => seed,
        };
        let (log, rng) = (Log::default(), Pcg64Mcg::seed_from_u64(seed));
        let state = Mutex::new(State { log, rng, under_way: BTreeSet::new() });
        Self { device, completion, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps recorded so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.state().log.steps.len()
    }

    /// Puts a mark into the log.
    pub fn mark(&self, text: &str) {
        self.state().log.steps.push(Step::Mark(text.to_string()));
    }

    /// Takes the log, which is empty then.
    ///
    /// # Panics
    /// In tests, when a write is under way whose ticket was given out: it must be waited for first.
    #[must_use]
    pub fn take(&self) -> Log {
        let mut state = self.state();
        let told = !matches!(self.completion, Completion::LateUntold(_));
        debug_assert!(!told || state.under_way.is_empty(), "nobody has waited for a write");
        state.under_way.clear();
        std::mem::take(&mut state.log)
    }
}

impl BlockDevice for Recorder {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, buf)?;
        self.state().log.steps.push(Step::Write { at, bytes: buf.into(), fua: false });
        Ok(())
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        // Readers see it at once; whether it is on the disk is decided from the log.
        self.device.write(at, buf)?;
        let mut state = self.state();
        let step = state.log.steps.len();
        let (bytes, fua) = (buf.into(), durable == Durable::OnCompletion);
        if self.completion == Completion::AtOnce {
            state.log.steps.push(Step::Write { at, bytes, fua });
            return Ok(None);
        }
        state.log.steps.push(Step::Submit { at, bytes, fua });
        state.under_way.insert(step);
        if matches!(self.completion, Completion::LateUntold(_)) {
            return Ok(None);
        }
        Ok(Some(Ticket::new(step as u64)))
    }

    /// One write in two has completed when it is asked for.
    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        let mut state = self.state();
        let submit = ticket.number() as usize;
        state.progress(&[submit]);
        Ok(!state.under_way.contains(&submit))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.state().complete(ticket.number() as usize);
        Ok(())
    }

    /// A write of other bytes: a disk may have them from then on, or keep the old ones.
    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        self.write(at, &vec![DISCARDED; len as usize])
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()?;
        let mut state = self.state();
        if matches!(self.completion, Completion::LateUntold(_)) {
            // No caller polls the writes under way.
            let under_way: Vec<usize> = state.under_way.iter().copied().collect();
            state.progress(&under_way);
        }
        state.log.steps.push(Step::Flush);
        Ok(())
    }
}
