//! A device whose writes complete late and out of order, and may fail then.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_device::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_units::{ByteLen, Lba};
use std::collections::BTreeMap;
use std::io::Error;
use std::sync::{Arc, Mutex};

struct State {
    rng: Pcg64Mcg,
    next: u64,
    under_way: BTreeMap<u64, (Lba, Vec<u8>)>,
    /// Completions until one fails.
    until_fault: Option<u64>,
    /// Most that were under way at once.
    most: usize,
}

/// What is told of each write when it is submitted.
type Hook = Box<dyn Fn(Lba, &[u8]) + Send + Sync>;

/// Holds writes back that nobody waits for; the device below gets each when it
/// completes. One in three has completed when it is asked for.
pub(crate) struct Late {
    below: Arc<dyn BlockDevice>,
    submitted: Hook,
    state: Mutex<State>,
}

impl Late {
    pub(crate) fn new(below: Arc<dyn BlockDevice>, seed: u64, submitted: Hook) -> Self {
        let state = State {
            rng: Pcg64Mcg::seed_from_u64(seed),
            next: 0,
            under_way: BTreeMap::new(),
            until_fault: None,
            most: 0,
        };
        Self { below, submitted, state: Mutex::new(state) }
    }

    /// Lets the write that completes after so many more fail instead.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn fail_after(&self, completions: u64) {
        self.state.lock().unwrap().until_fault = Some(completions);
    }

    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn most_under_way(&self) -> usize {
        self.state.lock().unwrap().most
    }

    fn complete(&self, state: &mut State, ticket: Ticket) -> Result<(), DeviceError> {
        let Some((at, bytes)) = state.under_way.remove(&ticket.number()) else { return Ok(()) };
        match &mut state.until_fault {
            Some(0) => {
                return Err(DeviceError::Io { at, source: Error::other("failed late") });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.below.write(at, &bytes)
    }
}

impl BlockDevice for Late {
    fn len(&self) -> ByteLen {
        self.below.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.below.read(at, buf)?;
        for (first, bytes) in self.state.lock().unwrap().under_way.values() {
            for (sector, lba) in bytes.chunks(512).zip(first.get()..) {
                if lba >= at.get() && lba < at.get() + buf.len() as u64 / 512 {
                    let start = (lba - at.get()) as usize * 512;
                    buf[start..start + 512].copy_from_slice(sector);
                }
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let ticket = self.submit(at, buf, Durable::AfterFlush)?;
        ticket.map_or(Ok(()), |ticket| self.wait(ticket))
    }

    fn submit(&self, at: Lba, buf: &[u8], _: Durable) -> Result<Option<Ticket>, DeviceError> {
        (self.submitted)(at, buf);
        let mut state = self.state.lock().unwrap();
        let end = at.get() + buf.len() as u64 / 512;
        for (other, bytes) in state.under_way.values() {
            let apart = end <= other.get() || other.get() + bytes.len() as u64 / 512 <= at.get();
            assert!(apart, "sectors {at}.. are written while {other}.. are under way");
        }
        let number = state.next;
        state.next += 1;
        state.under_way.insert(number, (at, buf.to_vec()));
        state.most = state.most.max(state.under_way.len());
        Ok(Some(Ticket::new(number)))
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        let mut state = self.state.lock().unwrap();
        if state.rng.next_u64().is_multiple_of(3) {
            self.complete(&mut state, ticket)?;
        }
        Ok(!state.under_way.contains_key(&ticket.number()))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.complete(&mut self.state.lock().unwrap(), ticket)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush()
    }
}
