//! A disk that loses power: whatever part of the writes since the last flush
//! has reached it, in whatever order, torn at any sector, the check finds only
//! what a crash may leave.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_crash::states::states;
use seekless_crash::{Log, Step};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, Overlay};
use seekless_fs::check::Class;
use seekless_units::{ByteLen, Lba};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// States that one is drawn from.
const DRAWN: u64 = 64;

struct State {
    /// What a flush has made safe.
    safe: Arc<MemoryDevice>,
    /// The writes that may be lost.
    pending: Vec<Step>,
    rng: Pcg64Mcg,
    /// One of how many flushes is looked at.
    every: u32,
    seen: u32,
    /// What was found, by code.
    found: BTreeMap<&'static str, u32>,
    unexpected: Vec<String>,
}

/// A device over memory that tries, now and then, what a crash would leave.
pub(crate) struct Fragile {
    now: Arc<MemoryDevice>,
    state: Mutex<State>,
}

/// What was seen.
pub(crate) struct Verdict {
    pub(crate) states: u32,
    pub(crate) found: BTreeMap<&'static str, u32>,
    pub(crate) unexpected: Vec<String>,
}

impl Fragile {
    pub(crate) fn new(now: Arc<MemoryDevice>, seed: u64, every: u32) -> Self {
        let state = State {
            safe: Arc::new(copy_of(&now)),
            pending: Vec::new(),
            rng: Pcg64Mcg::seed_from_u64(seed),
            every,
            seen: 0,
            found: BTreeMap::new(),
            unexpected: Vec::new(),
        };
        Self { now, state: Mutex::new(state) }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let state = self.state.lock().unwrap();
        Verdict {
            states: state.seen,
            found: state.found.clone(),
            unexpected: state.unexpected.clone(),
        }
    }
}

fn copy_of(device: &MemoryDevice) -> MemoryDevice {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::new(0), &mut bytes).unwrap();
    MemoryDevice::new(bytes)
}

impl State {
    fn below(&mut self, limit: usize) -> usize {
        (self.rng.next_u64() % limit.max(1) as u64) as usize
    }

    fn crash(&mut self) {
        let overlay = Overlay::new(self.safe.clone() as Arc<dyn BlockDevice>, 512);
        let log = Log::new(self.pending.clone());
        let epoch = &log.epochs(0)[0];
        let found = states(&log, epoch, self.safe.as_ref(), DRAWN, self.rng.next_u64()).unwrap();
        let one = self.below(found.choices.len());
        found.apply(&log, &found.choices[one], &overlay).unwrap();
        let overlay: Arc<dyn BlockDevice> = Arc::new(overlay);
        let report = seekless_ffs::check(Arc::clone(&overlay)).expect("the superblock stands");
        self.seen += 1;
        if report.unexpected == 0 && self.seen.is_multiple_of(4) {
            self.preen(overlay);
        }
        for finding in &report.findings {
            *self.found.entry(finding.code()).or_default() += 1;
            if finding.class == Class::Unexpected {
                let what = format!(
                    "state {}: {}: {} ({})",
                    self.seen,
                    finding.code(),
                    finding.what,
                    finding.location
                );
                self.unexpected.push(what);
            }
        }
    }
}

impl State {
    /// What a crash may leave is what a preen repairs.
    fn preen(&mut self, left: Arc<dyn BlockDevice>) {
        let repaired = seekless_ffs::preen(Arc::clone(&left)).expect("the superblock stands");
        let report = seekless_ffs::check(left).expect("the superblock stands");
        if repaired.outcome == seekless_ffs::Outcome::Left || !report.is_clean() {
            let what = format!("state {}: after a preen: {:?}", self.seen, report.findings);
            self.unexpected.push(what);
        }
    }
}

impl BlockDevice for Fragile {
    fn len(&self) -> ByteLen {
        self.now.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.now.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let step = Step::Write { at, bytes: buf.into(), fua: false };
        self.state.lock().unwrap().pending.push(step);
        self.now.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        let every = state.every as usize;
        if state.below(every) == 0 {
            state.crash();
        }
        for step in std::mem::take(&mut state.pending) {
            if let Step::Write { at, bytes, .. } = step {
                state.safe.write(at, &bytes)?;
            }
        }
        Ok(())
    }
}

/// Whether a discipline leaves nothing but what may be expected after a crash.
pub(crate) fn in_order(discipline: seekless_cache::Discipline) -> bool {
    discipline == seekless_cache::Discipline::SoftUpdates
}
