//! An image in memory whose requests take the time of a modelled drive.
//!
//! The drive serves one request at a time; what waits is sorted by the host.
//! Reads, and writes somebody waits for, let the virtual clock run until they
//! are done. Writes nobody waits for are done beside whatever else happens,
//! until too many wait. The bytes themselves are there at once.

use crate::queue::{Queue, Waiting};
use seekless_device::{BlockDevice, Clock, DeviceError, SparseDevice, VirtualClock};
use seekless_model::{DeviceModel, Op, Request};
use seekless_units::{ByteLen, Lba, Nanos, SECTOR};
use serde::{Deserialize, Serialize};
use std::io::{Error, Write};
use std::ops::Sub;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a drive was asked, counted as requests were given to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Reads.
    pub reads: u64,
    /// Bytes they took.
    pub read_bytes: u64,
    /// Writes somebody waited for.
    pub sync_writes: u64,
    /// Writes nobody waited for.
    pub async_writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests that did not begin where the one before ended.
    pub seeks: u64,
    /// Bytes between such requests, added up.
    pub seek_bytes: u64,
    /// Nanoseconds that the drive worked.
    pub busy_ns: u64,
}

impl Sub for Tally {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            sync_writes: self.sync_writes - before.sync_writes,
            async_writes: self.async_writes - before.async_writes,
            written_bytes: self.written_bytes - before.written_bytes,
            seeks: self.seeks - before.seeks,
            seek_bytes: self.seek_bytes - before.seek_bytes,
            busy_ns: self.busy_ns - before.busy_ns,
        }
    }
}

/// Where a line for each request goes.
pub type Log = Box<dyn Write + Send>;

struct State {
    model: Box<dyn DeviceModel>,
    queue: Queue,
    /// What the drive works on, and when that is done.
    current: Option<(u64, Nanos)>,
    issued: u64,
    tally: Tally,
    log: Option<Log>,
}

impl State {
    /// Gives the drive the next request that waits, if it is idle.
    fn start(&mut self, at: Nanos) -> Result<(), DeviceError> {
        if self.current.is_some() {
            return Ok(());
        }
        let Some((Waiting { number, request, .. }, distance)) = self.queue.pop() else {
            return Ok(());
        };
        let refused = |error| DeviceError::Io { at: request.at, source: Error::other(error) };
        let done = self.model.serve(at, request).map_err(refused)?;
        self.tally.seeks += u64::from(distance > 0);
        self.tally.seek_bytes += distance * SECTOR;
        self.tally.busy_ns += done.saturating_since(at);
        self.current = Some((number, done));
        self.note(at, done, request)
    }

    fn note(&mut self, at: Nanos, done: Nanos, request: Request) -> Result<(), DeviceError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let op = if request.op == Op::Read { "read" } else { "write" };
        let (at, ms) = (at.get() as f64 / 1e6, done.saturating_since(at) as f64 / 1e6);
        let line = writeln!(log, "{at:.3}\t{ms:.3}\t{op}\t{}\t{}", request.at, request.sectors);
        line.map_err(|source| DeviceError::Io { at: request.at, source })
    }

    /// Brings the drive up to a moment.
    fn run_to(&mut self, now: Nanos) -> Result<(), DeviceError> {
        while let Some((_, done)) = self.current.filter(|(_, done)| *done <= now) {
            self.current = None;
            self.start(done)?;
        }
        Ok(())
    }

    fn count(&mut self, request: Request, waited: bool) {
        let bytes = u64::from(request.sectors) * SECTOR;
        let tally = &mut self.tally;
        match (request.op, waited) {
            (Op::Read, _) => {
                (tally.reads, tally.read_bytes) = (tally.reads + 1, tally.read_bytes + bytes)
            }
            (_, true) => tally.sync_writes += 1,
            (_, false) => tally.async_writes += 1,
        }
        if request.op == Op::Write {
            tally.written_bytes += bytes;
        }
    }
}

/// An image on a modelled drive.
pub struct Disk {
    image: SparseDevice,
    clock: Arc<VirtualClock>,
    /// Most requests that wait.
    most: usize,
    state: Mutex<State>,
}

impl Disk {
    /// An image on a drive at rest. `most` requests may wait for it; `log` gets
    /// a line for each: when it began and how long it took in milliseconds,
    /// what it was, its first sector and how many.
    #[must_use]
    pub fn new(
        image: SparseDevice,
        model: Box<dyn DeviceModel>,
        clock: Arc<VirtualClock>,
        most: u32,
        log: Option<Log>,
    ) -> Self {
        let state = State {
            model,
            queue: Queue::default(),
            current: None,
            issued: 0,
            tally: Tally::default(),
            log,
        };
        Self { image, clock, most: most as usize, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the drive has been asked so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.state().tally
    }

    /// Lets time pass until nothing waits.
    ///
    /// # Errors
    /// [`DeviceError::Io`] for a request that the drive refuses.
    pub fn drain(&self) -> Result<(), DeviceError> {
        self.wait(|state| state.current.is_none())
    }

    /// Lets time pass until something is so; it must become so at the latest
    /// when nothing waits.
    fn wait(&self, over: impl Fn(&State) -> bool) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.run_to(self.clock.now())?;
        while !over(&state) {
            let Some((_, done)) = state.current else { return Ok(()) };
            self.clock.sleep(Nanos::new(done.saturating_since(self.clock.now())));
            state.run_to(done)?;
        }
        Ok(())
    }

    fn submit(&self, request: Request, waited: bool) -> Result<u64, DeviceError> {
        let mut state = self.state();
        let now = self.clock.now();
        state.run_to(now)?;
        let number = state.issued;
        state.issued += 1;
        state.count(request, waited);
        state.queue.push(Waiting { number, request });
        state.start(now)?;
        Ok(number)
    }

    /// Submits a request and waits for it.
    fn serve(&self, request: Request) -> Result<(), DeviceError> {
        let number = self.submit(request, true)?;
        // Done is what was given to the drive and is not in its hands any more.
        self.wait(|state| state.is_done(number))
    }
}

impl State {
    fn is_done(&self, number: u64) -> bool {
        self.current.is_none_or(|(current, _)| current != number) && !self.queue.holds(number)
    }
}

fn sectors(len: usize) -> u32 {
    u32::try_from(len as u64 / SECTOR).unwrap_or(u32::MAX)
}

impl BlockDevice for Disk {
    fn len(&self) -> ByteLen {
        self.image.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.serve(Request::read(at, sectors(buf.len())))?;
        self.image.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.serve(Request::write(at, sectors(buf.len())))?;
        self.image.write(at, buf)
    }

    fn write_behind(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.submit(Request::write(at, sectors(buf.len())), false)?;
        self.image.write(at, buf)?;
        self.wait(|state| state.queue.len() <= self.most)
    }

    /// The caches of the time never asked a drive to flush.
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_model::preset;

    fn disk(most: u32) -> (Disk, Arc<VirtualClock>) {
        let clock = Arc::new(VirtualClock::new());
        let model = preset("sata-7200").unwrap();
        let image = SparseDevice::new(ByteLen::new(1 << 30));
        (Disk::new(image, model, clock.clone(), most, None), clock)
    }

    #[test]
    fn only_what_is_waited_for_takes_the_callers_time() {
        let (disk, clock) = disk(100);
        for at in 0..50 {
            disk.write_behind(Lba::new(at * 30_000), &[1; 8192]).unwrap();
        }
        assert_eq!(clock.now(), Nanos::ZERO);
        disk.read(Lba::new(1_000_003), &mut [0; 512]).unwrap();
        let read = clock.now();
        assert!(read > Nanos::new(1_000_000), "waits for its turn and the drive");
        disk.drain().unwrap();
        assert!(clock.now() > read);
        let tally = disk.tally();
        assert_eq!((tally.reads, tally.async_writes, tally.sync_writes), (1, 50, 0));
        assert_eq!(tally.busy_ns, clock.now().get(), "it was never idle");
        let mut byte = [0; 512];
        disk.read(Lba::new(30_000), &mut byte).unwrap();
        assert_eq!(byte, [1; 512]);
    }

    #[test]
    fn too_many_that_wait_hold_the_caller_up() {
        let (disk, clock) = disk(3);
        for at in 0..4 {
            disk.write_behind(Lba::new(at * 30_000), &[1; 512]).unwrap();
        }
        assert_eq!(clock.now(), Nanos::ZERO, "one is served, three wait");
        disk.write_behind(Lba::new(7), &[1; 512]).unwrap();
        assert!(clock.now() > Nanos::ZERO);
    }
}
