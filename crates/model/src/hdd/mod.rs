//! A disk drive: moving heads, a rotating medium, and a buffer with read-ahead.
//!
//! The drive serves one command at a time from its queue; activity of the heads besides commands
//! (read-ahead, writing accepted data) is computed when it is queried. Behaviour and parameters are
//! those of the disks in DiskSim 4.0 (Bucy, Schindler, Schlosser, Ganger 2008) as far as one
//! command is served at a time, so drives measured for it can be used; seek curves are those of
//! Ruemmler and Wilkes (IEEE Computer, March 1994).

mod buffer;
mod check;
mod join;
mod layout;
mod media;
mod overhead;
mod queue;
mod read;
mod schedule;
mod seek;
pub mod spec;
mod write;

use crate::device::{DeviceModel, Refused, check};
use crate::in_flight::InFlight;
use crate::request::{Completion, Op, Request, Tag};
use buffer::Buffer;
use join::Trail;
use media::{Arrivals, Media, Stream};
use overhead::Overheads;
use queue::{Queue, Sweep};
use schedule::Start;
use seek::Place;
use seekless_units::Nanos;
use spec::HddSpec;

/// A request in the drive's queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tag: Tag,
    request: Request,
    arrived: Nanos,
    /// Cylinder of its first block.
    cylinder: u32,
}

impl Waiting {
    fn start(&self) -> u64 {
        self.request.at.get()
    }

    fn end(&self) -> u64 {
        self.request.end().get()
    }
}

/// A write that the buffer has accepted and the heads have not begun.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    segment: usize,
    start: u64,
    end: u64,
    accepted: Nanos,
    /// The arrival of its last part, if that was joined to it.
    last: Option<Arrivals>,
}

/// Read-ahead in progress.
#[derive(Clone, Copy, Debug)]
struct Reading {
    segment: usize,
    stream: Stream,
}

/// The activity of the heads.
#[derive(Clone, Copy, Debug, Default)]
struct Heads {
    place: Place,
    /// The time at which they can move again.
    free: Nanos,
    /// The segment that they write until then, if any.
    writing: Option<usize>,
}

/// A disk drive.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: HddSpec,
    media: Media,
    buffer: Buffer,
    overheads: Overheads,
    heads: Heads,
    reading: Option<Reading>,
    dirty: Sweep<Dirty>,
    trail: Trail,
    /// The last command was a read.
    after_read: bool,
    /// The time at which the next command may start.
    command_free: Nanos,
    queue: Queue,
    /// The next action and its time, recomputed after each change.
    next: Option<(Nanos, Start)>,
    requests: InFlight,
}

impl Hdd {
    /// A drive at rest, with an empty buffer and its heads on cylinder 0. The figures must be sound
    /// by [`HddSpec::fault`].
    #[must_use]
    pub fn new(spec: HddSpec) -> Self {
        Self {
            media: Media::new(&spec),
            buffer: Buffer::new(&spec.buffer),
            overheads: Overheads::new(&spec),
            heads: Heads::default(),
            reading: None,
            dirty: Sweep::new(spec.queue.policy),
            trail: Trail::default(),
            after_read: true,
            command_free: Nanos::ZERO,
            queue: Queue::new(&spec.queue),
            next: None,
            requests: InFlight::default(),
            spec,
        }
    }

    /// Updates read-ahead and writing to a moment.
    fn catch_up(&mut self, now: Nanos) {
        if self.heads.writing.is_some() && self.heads.free <= now {
            self.heads.writing = None;
        }
        let Some(mut reading) = self.reading else { return };
        let limit = self.buffer.get(reading.segment).limit;
        let end = reading.stream.read_by(&self.media, now, limit);
        self.buffer.extend(reading.segment, end);
        self.heads.place = reading.stream.leg.track.place;
        if end >= limit {
            self.heads.free = self.heads.free.max(self.media.done(&reading.stream.leg, end));
            self.reading = None;
        } else {
            self.reading = Some(reading);
        }
    }

    /// Stops read-ahead: a movement continues to its target; a sector is read to its end, unless
    /// the drive can stop within it.
    fn stop_reading(&mut self, now: Nanos) {
        let Some(reading) = self.reading.take() else { return };
        let leg = &reading.stream.leg;
        self.heads.place = leg.track.place;
        let stopped = if now < leg.on_track {
            leg.on_track
        } else if self.spec.buffer.stop_in_sector || now < leg.begin {
            now
        } else {
            self.media.sector_end(leg, now)
        };
        self.heads.free = self.heads.free.max(stopped);
    }

    /// Serves one request that starts at `now`.
    fn serve_one(&mut self, waiting: Waiting, now: Nanos) {
        self.catch_up(now);
        let done = match waiting.request.op {
            Op::Read => self.read(waiting, now),
            Op::Write => self.write(waiting, now),
            Op::Flush => now + self.overheads.command,
        };
        if waiting.request.op != Op::Flush {
            self.after_read = waiting.request.op == Op::Read;
        }
        self.command_free = self.command_free.max(done);
        self.requests.push(waiting.arrived, done, waiting.tag);
    }

    /// Performs all actions that start at `until` or before.
    fn run(&mut self, until: Nanos) {
        while let Some((at, next)) = self.next.filter(|start| start.0 <= until) {
            self.begin(at, next);
        }
    }

    fn begin(&mut self, at: Nanos, start: Start) {
        self.catch_up(at);
        let waiting = match start {
            Start::Request(spot) => self.queue.take(spot),
            Start::Flush => self.queue.take_flush(),
            Start::Writing(spot) => {
                self.write_back(spot, at);
                None
            }
        };
        if let Some(waiting) = waiting {
            self.serve_one(waiting, at);
        }
        self.next = self.next_start();
    }
}

impl DeviceModel for Hdd {
    fn capacity(&self) -> Option<u64> {
        Some(self.media.layout.blocks())
    }

    fn submit(&mut self, at: Nanos, tag: Tag, request: Request) -> Result<(), Refused> {
        check(request, self.capacity())?;
        let arrived = self.requests.arrive(at);
        if let Some(before) = arrived.get().checked_sub(1) {
            self.run(Nanos::new(before));
        }
        let cylinder = self.media.layout.track(request.at.get()).place.cylinder;
        self.queue.push(Waiting { tag, request, arrived, cylinder });
        self.next = self.next_start();
        Ok(())
    }

    fn advance(&mut self, until: Nanos) -> Option<Completion> {
        loop {
            let next = self.requests.next();
            if self.queue.is_empty() && next.is_none() {
                return self.requests.advance(until);
            }
            let limit = next.map_or(until, |next| next.min(until));
            match self.next {
                Some((at, start)) if at <= limit => self.begin(at, start),
                _ => return self.requests.advance(until),
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let start = self.next.filter(|_| !self.queue.is_empty());
        [self.requests.next(), start.map(|start| start.0)].into_iter().flatten().min()
    }

    fn in_flight(&self) -> usize {
        self.queue.len() + self.requests.len()
    }

    fn busy(&self) -> Nanos {
        self.requests.busy()
    }
}

#[cfg(test)]
mod tests;
