//! An image in memory whose requests take the time of a modelled drive.
//!
//! The drive serves one request at a time; waiting requests are sorted by the host. Reads and
//! synchronous writes let the virtual clock run until they are done. Asynchronous writes are done
//! beside all other work, until too many wait, and complete when the drive is done with them. The
//! bytes themselves are there at once.

mod shared;

pub(crate) use shared::shared;

use crate::queue::{Queue, Waiting};
use crate::seekplot::{PlotId, Plots, Plotter, RequestKind, SeekPlot};
use seekless_device::{
    BlockDevice, Clock, DeviceError, Durable, SparseDevice, Ticket, VirtualClock,
};
use seekless_model::{DeviceModel, Request};
use seekless_units::{ByteLen, Lba, Nanos, SECTOR};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt::Arguments;
use std::io::{Error, Write};
use std::iter::Sum;
use std::ops::Sub;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests to a drive, counted as they were given to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DiskTally {
    /// Reads.
    pub reads: u64,
    /// Bytes they took.
    pub read_bytes: u64,
    /// Synchronous writes, which a process waited for.
    pub sync_writes: u64,
    /// Asynchronous writes.
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

impl Sub for DiskTally {
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

impl Sum for DiskTally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |all, one| Self {
            reads: all.reads + one.reads,
            read_bytes: all.read_bytes + one.read_bytes,
            sync_writes: all.sync_writes + one.sync_writes,
            async_writes: all.async_writes + one.async_writes,
            written_bytes: all.written_bytes + one.written_bytes,
            seeks: all.seeks + one.seeks,
            seek_bytes: all.seek_bytes + one.seek_bytes,
            busy_ns: all.busy_ns + one.busy_ns,
        })
    }
}

/// Where a line for each request goes.
pub type Log = Box<dyn Write + Send>;

/// A step of a process that takes time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessStep {
    /// It computes for so long.
    Compute(Nanos),
    /// It sends a request to the drive; an asynchronous write has a ticket.
    Ask(Request, RequestKind, Option<Ticket>),
    /// It waits for a write that was asked for before, by itself or another.
    Wait(Ticket),
}

/// The request that a drive serves.
#[derive(Clone, Copy)]
struct Current {
    number: u64,
    done: Nanos,
    ticket: Option<Ticket>,
}

struct DriveState {
    model: Box<dyn DeviceModel>,
    queue: Queue,
    /// The request the drive serves, and when that is done.
    current: Option<Current>,
    issued: u64,
    /// Tickets given out, and those of writes that have not completed.
    tickets: u64,
    under_way: HashSet<Ticket>,
    tally: DiskTally,
    plots: Plots,
    log: Option<Log>,
    /// Why the log ends before the requests do.
    cut: Option<Error>,
    /// Steps done since time was stopped.
    stopped: Option<Vec<ProcessStep>>,
}

impl DriveState {
    /// Gives the drive the next request that waits, if it is idle.
    fn start(&mut self, at: Nanos) -> Result<(), DeviceError> {
        if self.current.is_some() {
            return Ok(());
        }
        let Some((waiting, distance)) = self.queue.pop() else { return Ok(()) };
        let Waiting { number, request, kind, ticket } = waiting;
        let refused = |error| DeviceError::Io { at: request.at, source: Error::other(error) };
        let done = self.model.serve(at, request).map_err(refused)?;
        self.tally.seeks += u64::from(distance > 0);
        self.tally.seek_bytes += distance * SECTOR;
        self.tally.busy_ns += done - at;
        self.current = Some(Current { number, done, ticket });
        self.plots.note(number, at, request.at.get(), kind);
        self.note(at, done, request, kind);
        Ok(())
    }

    fn note(&mut self, at: Nanos, done: Nanos, request: Request, kind: RequestKind) {
        let op = if kind == RequestKind::Read { "read" } else { "write" };
        let waited = if kind == RequestKind::AsyncWrite { "no" } else { "yes" };
        let (from, sectors) = (request.at, request.sectors);
        let (at, ms) = (at.get() as f64 / 1e6, (done - at) as f64 / 1e6);
        self.log(format_args!("{at:.3}\t{ms:.3}\t{op}\t{from}\t{sectors}\t{waited}"));
    }

    /// A line of the log. After the first that cannot be written there is none:
    /// a log with a hole would be worse than one that ends.
    fn log(&mut self, line: Arguments<'_>) {
        let Some(log) = &mut self.log else { return };
        if let Err(error) = writeln!(log, "{line}") {
            (self.log, self.cut) = (None, Some(error));
        }
    }

    /// Brings the drive up to a moment.
    fn run_to(&mut self, now: Nanos) -> Result<(), DeviceError> {
        while let Some(over) = self.current.filter(|current| current.done <= now) {
            self.current = None;
            if let Some(ticket) = over.ticket {
                self.under_way.remove(&ticket);
            }
            self.start(over.done)?;
        }
        Ok(())
    }

    /// A ticket for a write that is asked for now, or was.
    fn give_ticket(&mut self) -> Ticket {
        let ticket = Ticket::new(self.tickets);
        self.tickets += 1;
        self.under_way.insert(ticket);
        ticket
    }

    fn count(&mut self, request: Request, kind: RequestKind) {
        let bytes = u64::from(request.sectors) * SECTOR;
        let tally = &mut self.tally;
        let (count, total) = match kind {
            RequestKind::Read => (&mut tally.reads, &mut tally.read_bytes),
            RequestKind::SyncWrite => (&mut tally.sync_writes, &mut tally.written_bytes),
            RequestKind::AsyncWrite => (&mut tally.async_writes, &mut tally.written_bytes),
        };
        *count += 1;
        *total += bytes;
    }
}

/// An image on a modelled drive.
pub struct Disk {
    image: SparseDevice,
    clock: Arc<VirtualClock>,
    /// Most requests that wait.
    most: usize,
    state: Mutex<DriveState>,
}

impl Disk {
    /// An image on a drive at rest. `most` requests may wait for it; `log` gets a line for each:
    /// when it began and how long it took in milliseconds, its kind, its first sector and how many,
    /// and whether a process waited for it.
    #[must_use]
    pub fn new(
        image: SparseDevice,
        model: Box<dyn DeviceModel>,
        clock: Arc<VirtualClock>,
        most: u32,
        log: Option<Log>,
    ) -> Self {
        let state = DriveState {
            model,
            queue: Queue::default(),
            current: None,
            issued: 0,
            tickets: 0,
            under_way: HashSet::new(),
            tally: DiskTally::default(),
            plots: Plots::default(),
            log,
            cut: None,
            stopped: None,
        };
        Self { image, clock, most: most as usize, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, DriveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests to the drive so far.
    #[must_use]
    pub fn tally(&self) -> DiskTally {
        self.state().tally
    }

    /// Begins a plot: later requests are in it. `log` gets a line with its name.
    pub fn begin_plot(&self, name: &str) -> PlotId {
        let mut state = self.state();
        state.log(format_args!("# {name}"));
        let sectors = self.image.len().get() / SECTOR;
        let plotter = Plotter::new(self.clock.now(), state.issued, sectors);
        state.plots.begin(plotter)
    }

    /// Ends the log and flushes its buffer.
    ///
    /// # Errors
    /// The first error in writing the log, which ended there.
    pub fn end_log(&self) -> std::io::Result<()> {
        let mut state = self.state();
        let flushed = state.log.take().map_or(Ok(()), |mut log| log.flush());
        state.cut.take().map_or(flushed, Err)
    }

    /// Leaves later requests out of a plot. Those that wait are still in it.
    pub fn end_plot(&self, plot: PlotId) {
        let mut state = self.state();
        let issued = state.issued;
        state.plots.end(plot, issued);
    }

    /// The plot of the requests that the drive has begun so far; removes it.
    #[must_use]
    pub fn take_plot(&self, plot: PlotId) -> SeekPlot {
        self.state().plots.take(plot)
    }

    /// Lets time pass until nothing waits.
    ///
    /// # Errors
    /// [`DeviceError::Io`] for a request that the drive refuses.
    pub fn drain(&self) -> Result<(), DeviceError> {
        self.wait_until(|state| state.current.is_none())
    }

    /// Lets time pass until something is so; it must become so at the latest
    /// when nothing waits.
    fn wait_until(&self, over: impl Fn(&DriveState) -> bool) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.run_to(self.clock.now())?;
        while !over(&state) {
            let Some(Current { done, .. }) = state.current else { return Ok(()) };
            self.clock.sleep(Nanos::new(done.saturating_since(self.clock.now())));
            state.run_to(done)?;
        }
        Ok(())
    }

    /// Stops the time: until [`Disk::go_on`] nothing that is done takes any, but
    /// is written down.
    pub(crate) fn stop_time(&self) {
        self.state().stopped = Some(Vec::new());
    }

    /// Lets time pass again; returns the steps done meanwhile.
    pub(crate) fn go_on(&self) -> Vec<ProcessStep> {
        self.state().stopped.take().unwrap_or_default()
    }

    /// Whether time is stopped; if so, records the step.
    pub(crate) fn is_noted(&self, step: ProcessStep) -> bool {
        let mut state = self.state();
        state.stopped.as_mut().map(|steps| steps.push(step)).is_some()
    }

    /// Whether there is room for another asynchronous write.
    pub(crate) fn has_room(&self) -> bool {
        self.state().queue.len() <= self.most
    }

    /// Whether a request is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.state().is_done(number)
    }

    /// When the drive is done with the current request.
    pub(crate) fn next_done(&self) -> Option<Nanos> {
        self.state().current.map(|current| current.done)
    }

    /// Brings the drive up to now.
    ///
    /// # Errors
    /// [`DeviceError::Io`] for a request that the drive refuses.
    pub(crate) fn catch_up(&self) -> Result<(), DeviceError> {
        self.state().run_to(self.clock.now())
    }

    /// Whether a write with a ticket is done, as of the last update of the drive.
    pub(crate) fn is_over(&self, ticket: Ticket) -> bool {
        !self.state().under_way.contains(&ticket)
    }

    /// Gives a request to those that wait; its number.
    ///
    /// # Errors
    /// [`DeviceError::Io`] for a request that the drive refuses.
    pub(crate) fn ask(
        &self,
        request: Request,
        kind: RequestKind,
        ticket: Option<Ticket>,
    ) -> Result<u64, DeviceError> {
        let mut state = self.state();
        let now = self.clock.now();
        state.run_to(now)?;
        let number = state.issued;
        state.issued += 1;
        state.count(request, kind);
        state.queue.push(Waiting { number, request, kind, ticket });
        state.start(now)?;
        Ok(number)
    }

    /// Submits a request and waits for it.
    fn serve(&self, request: Request, kind: RequestKind) -> Result<(), DeviceError> {
        if self.is_noted(ProcessStep::Ask(request, kind, None)) {
            return Ok(());
        }
        let number = self.ask(request, kind, None)?;
        // A request is done if it was given to the drive and the drive does not serve it any more.
        self.wait_until(|state| state.is_done(number))
    }
}

impl DriveState {
    fn is_done(&self, number: u64) -> bool {
        self.current.is_none_or(|current| current.number != number) && !self.queue.holds(number)
    }
}

/// The sectors of a request from the start of one on: the last one counts as a whole.
fn sectors(len: usize) -> u32 {
    u32::try_from((len as u64).div_ceil(SECTOR)).unwrap_or(u32::MAX)
}

impl BlockDevice for Disk {
    fn len(&self) -> ByteLen {
        self.image.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.serve(Request::read(at, sectors(buf.len())), RequestKind::Read)?;
        self.image.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.serve(Request::write(at, sectors(buf.len())), RequestKind::SyncWrite)?;
        self.image.write(at, buf)
    }

    /// Done when the drive is done with it. Drives of the time keep no cache that
    /// they would not say so of: it is durable then, as far as anybody knew.
    fn submit(&self, at: Lba, buf: &[u8], _: Durable) -> Result<Option<Ticket>, DeviceError> {
        let request = Request::write(at, sectors(buf.len()));
        self.image.write(at, buf)?;
        let ticket = self.state().give_ticket();
        if self.is_noted(ProcessStep::Ask(request, RequestKind::AsyncWrite, Some(ticket))) {
            return Ok(Some(ticket));
        }
        self.ask(request, RequestKind::AsyncWrite, Some(ticket))?;
        self.wait_until(|state| state.queue.len() <= self.most)?;
        Ok(Some(ticket))
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.catch_up()?;
        Ok(self.is_over(ticket))
    }

    /// While time is stopped the wait is recorded, and counts as over: the process waits when it
    /// comes to the step.
    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        if self.is_over(ticket) || self.is_noted(ProcessStep::Wait(ticket)) {
            return Ok(());
        }
        self.wait_until(|state| !state.under_way.contains(&ticket))
    }

    /// The caches of the time never asked a drive to flush.
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
