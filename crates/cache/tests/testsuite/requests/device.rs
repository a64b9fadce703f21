//! A device in memory that writes down every request, and when it came.

use crate::requests::{BLOCK, FRAGMENT, SECOND};
use seekless_device::{BlockDevice, Clock, DeviceError, Durable, Ticket, VirtualClock};
use seekless_units::{ByteLen, Lba, Nanos};
use std::sync::{Arc, Mutex};

const BLOCKS: u64 = 256;
const SECTORS: u64 = FRAGMENT as u64 / 512;

/// What the device did, in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) waited: u64,
    pub(crate) behind: u64,
    pub(crate) written_bytes: u64,
    pub(crate) flushes: u64,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    log: Vec<(u64, String)>,
    totals: Totals,
    /// Writes until one fails.
    until_fault: Option<u64>,
    /// Flushes that fail.
    bad_flushes: u64,
    /// What each write takes.
    service: u64,
}

pub(crate) struct Recorder {
    clock: Arc<VirtualClock>,
    state: Mutex<State>,
}

impl Recorder {
    pub(crate) fn new(clock: Arc<VirtualClock>) -> Self {
        let bytes = vec![0; (BLOCKS * BLOCK) as usize];
        Self { clock, state: Mutex::new(State { bytes, ..State::default() }) }
    }

    /// The requests since this was asked last, each with its second.
    pub(crate) fn take(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.state.lock().unwrap().totals
    }

    /// A byte as it is on the disk, by fragment and offset from there.
    pub(crate) fn byte(&self, at: u64, offset: u32) -> u8 {
        self.state.lock().unwrap().bytes[at as usize * FRAGMENT + offset as usize]
    }

    /// Lets the write after so many more fail.
    pub(crate) fn fail_after(&self, writes: u64) {
        self.state.lock().unwrap().until_fault = Some(writes);
    }

    /// Lets so many flushes fail.
    pub(crate) fn fail_flushes(&self, flushes: u64) {
        self.state.lock().unwrap().bad_flushes = flushes;
    }

    /// Lets each write take so many nanoseconds.
    pub(crate) fn take_time(&self, nanos: u64) {
        self.state.lock().unwrap().service = nanos;
    }

    fn note(&self, state: &mut State, request: String) {
        state.log.push((self.clock.now().get() / SECOND, request));
    }

    /// Bytes from where to where, and how the run is written in the log.
    fn place(at: Lba, len: usize) -> (std::ops::Range<usize>, String) {
        let start = at.get() as usize * 512;
        assert!(at.get().is_multiple_of(SECTORS) && len.is_multiple_of(FRAGMENT), "{at:?}+{len}");
        (start..start + len, format!("{}+{}", at.get() / SECTORS, len / FRAGMENT))
    }

    fn put(&self, kind: &str, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let (range, name) = Self::place(at, buf.len());
        let mut state = self.state.lock().unwrap();
        match &mut state.until_fault {
            Some(0) => {
                return Err(DeviceError::Io { at, source: std::io::Error::other("worn out") });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        state.bytes[range].copy_from_slice(buf);
        self.note(&mut state, format!("{kind} {name}"));
        state.totals.written_bytes += buf.len() as u64;
        self.clock.sleep(Nanos::new(state.service));
        match kind {
            "write" => state.totals.waited += 1,
            _ => state.totals.behind += 1,
        }
        Ok(())
    }
}

impl BlockDevice for Recorder {
    fn len(&self) -> ByteLen {
        ByteLen::new(BLOCKS * BLOCK)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (range, name) = Self::place(at, buf.len());
        let mut state = self.state.lock().unwrap();
        buf.copy_from_slice(&state.bytes[range]);
        self.note(&mut state, format!("read {name}"));
        state.totals.reads += 1;
        state.totals.read_bytes += buf.len() as u64;
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.put("write", at, buf)
    }

    fn submit(&self, at: Lba, buf: &[u8], _: Durable) -> Result<Option<Ticket>, DeviceError> {
        self.put("behind", at, buf).map(|()| None)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        if state.bad_flushes > 0 {
            state.bad_flushes -= 1;
            let source = std::io::Error::other("worn out");
            return Err(DeviceError::Io { at: Lba::ZERO, source });
        }
        self.note(&mut state, "flush".into());
        state.totals.flushes += 1;
        Ok(())
    }
}
