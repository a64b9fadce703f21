//! Requests, their times and their counts.

use super::closed_loop::ClosedLoop;
use super::log::{Entry, Log};
use super::{Counters, Report};
use rustix::fs::FallocateFlags;
use seekless_model::{DeviceModel, Request, Tag};
use seekless_units::{Lba, Nanos, SECTOR};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
    Discard,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }

    fn request(self, offset: u64, bytes: u64) -> Option<Request> {
        let first = offset / SECTOR;
        let sectors = u32::try_from((offset + bytes).div_ceil(SECTOR) - first).ok()?;
        match self {
            Self::Read => Some(Request::read(Lba::new(first), sectors)),
            Self::Write => Some(Request::write(Lba::new(first), sectors)),
            Self::Flush => Some(Request::flush()),
            // It takes no time in the models.
            Self::Discard => None,
        }
    }
}

/// The clock of arriving requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The device's own: a request arrives at the completion of the last answered one. The host's
    /// time is not counted.
    Virtual,
    /// The machine's: each request takes as long as on the device.
    Real,
}

/// A callback with the name of a phase before it begins.
pub type BeforePhase = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// A file with the times of a device.
pub struct Disk {
    image: File,
    size: u64,
    name: (String, String),
    clock: Clock,
    start: Instant,
    state: Mutex<State>,
    progress: Condvar,
    before_phase: Option<BeforePhase>,
}

struct State {
    model: Box<dyn DeviceModel>,
    now: Nanos,
    next: u64,
    waiting: HashMap<Tag, Submitted>,
    closed_loop: ClosedLoop,
    done: HashMap<Tag, Nanos>,
    /// The end of the previous access.
    head: Option<u64>,
    phases: Vec<(String, Counters)>,
    /// The device's busy time and clock at the start of the phase.
    since: (Nanos, Nanos),
    log: Option<Log>,
    told: bool,
}

/// A request in flight.
struct Submitted {
    kind: Kind,
    offset: u64,
    bytes: u64,
    distance: u64,
    at: Nanos,
}

impl Disk {
    /// A disk of an image's size; `name` contains the image's and the model's names.
    ///
    /// # Errors
    /// I/O errors of the image.
    pub fn new(
        image: File,
        name: (String, String),
        model: Box<dyn DeviceModel>,
        clock: Clock,
        log: Option<Box<dyn Write + Send>>,
        before_phase: Option<BeforePhase>,
    ) -> io::Result<Self> {
        use std::io::{Seek, SeekFrom};
        let size = (&image).seek(SeekFrom::End(0))?;
        if model.capacity().is_some_and(|sectors| sectors.saturating_mul(SECTOR) < size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the image is larger than the device ({size} bytes)"),
            ));
        }
        let state = State {
            model,
            now: Nanos::ZERO,
            next: 0,
            waiting: HashMap::new(),
            closed_loop: ClosedLoop::new(0),
            done: HashMap::new(),
            head: None,
            phases: vec![("start".into(), Counters::default())],
            since: (Nanos::ZERO, Nanos::ZERO),
            log: log.map(Log::new),
            told: false,
        };
        let (state, progress, start) = (Mutex::new(state), Condvar::new(), Instant::now());
        Ok(Self { image, size, name, clock, start, state, progress, before_phase })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads; fewer bytes than requested only at the end.
    ///
    /// # Errors
    /// I/O errors of the image.
    pub fn read(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let bytes =
            usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes);
        let mut buf = vec![0; bytes];
        if bytes > 0 {
            self.perform(Kind::Read, offset, bytes as u64, || {
                self.image.read_exact_at(&mut buf, offset)
            })?;
        }
        Ok(buf)
    }

    /// Writes all of the data.
    ///
    /// # Errors
    /// I/O errors of the image.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let bytes = data.len() as u64;
        if offset.checked_add(bytes).is_none_or(|end| end > self.size) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        if bytes == 0 {
            return Ok(());
        }
        self.perform(Kind::Write, offset, bytes, || self.image.write_all_at(data, offset))
    }

    /// Returns when all answered writes are on stable storage, in the model and in the image.
    ///
    /// # Errors
    /// I/O errors of the image.
    pub fn flush(&self) -> io::Result<()> {
        self.perform(Kind::Flush, 0, 0, || self.image.sync_data())
    }

    /// Makes a range read as zeros, freeing its space if possible.
    ///
    /// # Errors
    /// I/O errors of the image.
    pub fn discard(&self, offset: u64, bytes: u64, zero: bool) -> io::Result<()> {
        let end = offset.saturating_add(bytes).min(self.size);
        let bytes = end.saturating_sub(offset);
        if bytes == 0 {
            return Ok(());
        }
        let how = if zero { FallocateFlags::ZERO_RANGE } else { FallocateFlags::PUNCH_HOLE };
        let work =
            || rustix::fs::fallocate(&self.image, how | FallocateFlags::KEEP_SIZE, offset, bytes);
        self.perform(Kind::Discard, offset, bytes, || work().map_err(io::Error::from))
    }

    /// Performs a request from its arrival to its answer.
    fn perform(
        &self,
        kind: Kind,
        offset: u64,
        bytes: u64,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let tag = self.submit(kind, offset, bytes)?;
        // While the image is read, other requests may arrive at the device.
        let worked = work();
        self.complete(tag);
        if let Err(error) = &worked {
            self.fail(kind, offset, error);
        }
        worked
    }

    fn time(&self, state: &State) -> Nanos {
        match self.clock {
            Clock::Virtual => state.now,
            Clock::Real => {
                let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                state.now.max(Nanos::new(elapsed))
            }
        }
    }

    fn submit(&self, kind: Kind, offset: u64, bytes: u64) -> io::Result<Option<Tag>> {
        let mut state = self.lock();
        let at = self.time(&state);
        let tag = Tag(state.next);
        state.next += 1;
        let Some(request) = kind.request(offset, bytes) else {
            state.counters().count(kind, bytes);
            state.log(&Submitted { kind, offset, bytes, distance: 0, at }, at);
            return Ok(None);
        };
        state.model.submit(at, tag, request).map_err(io::Error::other)?;
        let distance = state.seek(kind, offset, bytes);
        state.waiting.insert(tag, Submitted { kind, offset, bytes, distance, at });
        state.closed_loop.arrive();
        let in_flight = state.waiting.len() as u64;
        let counters = state.counters();
        counters.count(kind, bytes);
        counters.most_in_flight = counters.most_in_flight.max(in_flight);
        // Sleeping threads may have to wake earlier.
        self.progress.notify_all();
        Ok(Some(tag))
    }

    /// Returns when the device has completed a request.
    fn complete(&self, tag: Option<Tag>) {
        let Some(tag) = tag else { return };
        let mut state = self.lock();
        while state.done.remove(&tag).is_none() {
            if let Some(left) = self.hold(&mut state) {
                let woken = self.progress.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let until = match self.clock {
                Clock::Virtual => Nanos::new(u64::MAX),
                Clock::Real => self.time(&state),
            };
            let before = state.done.len();
            state.run(until);
            if state.done.len() > before {
                self.progress.notify_all();
                continue;
            }
            state = self.sleep(state);
        }
    }

    /// The time for which the device waits for requests that a closed loop will submit.
    fn hold(&self, state: &mut State) -> Option<Duration> {
        let in_flight = state.waiting.len();
        match self.clock {
            Clock::Virtual => state.closed_loop.hold(in_flight),
            Clock::Real => None,
        }
    }

    /// Sets the number of requests that the program keeps in flight: in virtual time, the device
    /// waits for them. 0 and 1 end that.
    pub fn keep_in_flight(&self, depth: usize) {
        self.lock().closed_loop = ClosedLoop::new(depth);
        self.progress.notify_all();
    }

    /// Sleeps until the next possible event of the device.
    fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let now = self.time(&state);
        let next = state.model.next_event().unwrap_or(now);
        let wait = Duration::from_nanos(next.saturating_since(now).max(1));
        let woken = self.progress.wait_timeout(state, wait);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    fn fail(&self, kind: Kind, offset: u64, error: &io::Error) {
        let mut state = self.lock();
        state.counters().errors += 1;
        if !std::mem::replace(&mut state.told, true) {
            let why = match error.kind() {
                io::ErrorKind::UnexpectedEof => "it has been truncated since it was opened".into(),
                _ => error.to_string(),
            };
            tracing::warn!("{}: {} at {offset}: {why}", self.name.0, kind.name());
        }
    }

    /// Lets time pass without requests to the device.
    pub fn wait(&self, time: Nanos) {
        if self.clock == Clock::Real {
            std::thread::sleep(Duration::from_nanos(time.get()));
            return;
        }
        let mut state = self.lock();
        let until = state.now + time.get();
        state.run(until);
        state.now = state.now.max(until);
        self.progress.notify_all();
    }

    /// Begins a phase, to which later figures belong.
    ///
    /// # Errors
    /// Those of the callback before a phase.
    pub fn phase(&self, name: &str) -> io::Result<()> {
        if let Some(before) = &self.before_phase {
            before(name)?;
        }
        let mut state = self.lock();
        let now = self.time(&state);
        state.close_phase(now);
        // An initial phase without requests that has no name of its own is dropped.
        if state.phases.len() == 1
            && state.phases.iter().all(|(name, c)| name == "start" && c.is_idle())
        {
            state.phases.clear();
        }
        state.phases.push((name.into(), Counters::default()));
        Ok(())
    }

    /// Resets all figures.
    pub fn reset(&self) {
        let mut state = self.lock();
        let now = self.time(&state);
        state.close_phase(now);
        state.phases = vec![("start".into(), Counters::default())];
    }

    /// Drops the figures before this phase.
    ///
    /// # Errors
    /// Those of the callback before a phase.
    pub fn first_phase(&self, name: &str) -> io::Result<()> {
        self.phase(name)?;
        let mut state = self.lock();
        let first = state.phases.len().saturating_sub(1);
        state.phases.drain(..first);
        Ok(())
    }

    /// The figures so far.
    pub fn report(&self) -> Report {
        let state = self.lock();
        let now = self.time(&state);
        let mut phases = state.phases.clone();
        if let Some((_, counters)) = phases.last_mut() {
            state.charge(counters, now);
        }
        Report {
            image: self.name.0.clone(),
            model: self.name.1.clone(),
            size: self.size,
            realtime: self.clock == Clock::Real,
            phases,
        }
    }

    /// Completes the log.
    ///
    /// # Errors
    /// I/O errors of the log.
    pub fn finish(&self) -> io::Result<()> {
        self.lock().log.as_mut().map_or(Ok(()), Log::finish)
    }
}

impl State {
    fn counters(&mut self) -> &mut Counters {
        if self.phases.is_empty() {
            self.phases.push(("start".into(), Counters::default()));
        }
        let last = self.phases.len() - 1;
        &mut self.phases[last].1
    }

    /// Moves the head. Returns the distance.
    fn seek(&mut self, kind: Kind, offset: u64, bytes: u64) -> u64 {
        if !matches!(kind, Kind::Read | Kind::Write) {
            return 0;
        }
        let distance = self.head.map_or(0, |head| head.abs_diff(offset));
        self.head = Some(offset + bytes);
        let counters = self.counters();
        counters.seeks += u64::from(distance > 0);
        counters.seek_distance_bytes += distance;
        distance
    }

    /// Runs the device up to a moment, or to the first completion.
    fn run(&mut self, until: Nanos) {
        while let Some(done) = self.model.advance(until) {
            self.now = self.now.max(done.at);
            if let Some(submitted) = self.waiting.remove(&done.tag) {
                self.log(&submitted, done.at);
                self.done.insert(done.tag, done.at);
            }
            if until == Nanos::new(u64::MAX) {
                return;
            }
        }
    }

    fn log(&mut self, submitted: &Submitted, done: Nanos) {
        let Some(log) = &mut self.log else { return };
        log.write(&Entry {
            phase: self.phases.last().map_or("", |(name, _)| name),
            kind: submitted.kind,
            offset: submitted.offset,
            bytes: submitted.bytes,
            seek_distance_bytes: submitted.distance,
            submitted_ns: submitted.at.get(),
            completed_ns: done.get(),
        });
    }

    /// Adds the device's times since the start of the phase.
    fn charge(&self, counters: &mut Counters, now: Nanos) {
        counters.busy_ns = self.model.busy().saturating_since(self.since.0);
        counters.elapsed_ns = now.saturating_since(self.since.1);
    }

    fn close_phase(&mut self, now: Nanos) {
        if let Some((name, mut counters)) = self.phases.pop() {
            self.charge(&mut counters, now);
            self.phases.push((name, counters));
        }
        self.since = (self.model.busy(), now);
    }
}
