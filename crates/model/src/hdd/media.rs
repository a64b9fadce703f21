//! The medium under the heads: times at which sectors are read or written.
//!
//! Rotation is a function of time: the angle under the heads is the time since the start of the
//! run, modulo the period.

use super::layout::{Layout, Track};
use super::seek::{Place, Seek};
use super::spec::HddSpec;
use seekless_units::Nanos;

/// Tolerance at a sector's start, in nanoseconds: more than rounding errors of times, less than any
/// gap between sectors.
const SLACK: u64 = 32;

/// Number of sectors that pass before a drive that reads passing sectors first knows its position.
const BEARINGS: u64 = 2;

/// Geometry and mechanics.
#[derive(Clone, Debug)]
pub(super) struct Media {
    pub(super) layout: Layout,
    pub(super) seek: Seek,
    period: u64,
}

impl Media {
    pub(super) fn new(spec: &HddSpec) -> Self {
        let period = (60e9 / spec.rpm).round() as u64;
        Self { layout: Layout::new(spec), seek: Seek::new(&spec.seek), period: period.max(1) }
    }

    /// Nanoseconds per revolution.
    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// Time in which `sectors` sectors of a track pass.
    fn passing(&self, track: &Track, sectors: u64) -> u64 {
        let all = u128::from(self.period) * u128::from(sectors);
        u64::try_from(all / u128::from(track.sectors)).unwrap_or(u64::MAX)
    }

    /// The time at which a sector of a track begins to pass, at `now` or later.
    fn arrives(&self, track: &Track, sector: u32, now: Nanos) -> Nanos {
        let angle = (track.angle + f64::from(sector) / f64::from(track.sectors)).fract();
        let target = (angle * self.period as f64).round() as u64;
        let wait = (target + self.period - now.get() % self.period) % self.period;
        if wait + SLACK >= self.period { now } else { now + wait }
    }

    /// The sector of a track that begins next.
    fn next_sector(&self, track: &Track, now: Nanos) -> u32 {
        let here = (now.get() % self.period) as f64 / self.period as f64;
        let sectors = f64::from(track.sectors);
        let past = (here - track.angle).rem_euclid(1.0) * sectors;
        let slack = SLACK as f64 / self.period as f64 * sectors;
        ((past - slack).ceil().max(0.0) as u32) % track.sectors
    }

    /// Moves the heads to a block, which begins to pass at `begin`.
    pub(super) fn go(&self, from: Place, depart: Nanos, block: u64, write: bool) -> Leg {
        let mut track = self.layout.track(block);
        let mut end = track.end;
        let mut sector = None;
        match self.layout.remapped(&track, block, track.end) {
            Some((at, elsewhere, there)) if at == block => {
                (track, end, sector) = (elsewhere, block + 1, Some(there));
            }
            Some((at, ..)) => end = at,
            None => {}
        }
        let sector = sector.unwrap_or_else(|| self.layout.sector(&track, block));
        let moving = self.seek.between(from, track.place, write);
        let on_track = depart + moving.get();
        let begin = self.arrives(&track, sector, on_track);
        Leg { track, first: block, end, sector, on_track, begin, leap: None }
    }

    /// Adjusts a read's first leg so that it begins with the sectors that pass first, if the drive
    /// supports that.
    pub(super) fn land(&self, mut leg: Leg, end: u64, passing: bool, zero_latency: bool) -> Leg {
        if !leg.track.holds(leg.first) {
            return leg;
        }
        let under = self.next_sector(&leg.track, leg.on_track);
        let block = self.layout.block_from(&leg.track, u64::from(under));
        let wanted = leg.first;
        let (first, last) = (block + BEARINGS, end.min(leg.end));
        if zero_latency && block > wanted && first < last {
            leg.leap = Some((first, last));
        }
        if passing {
            let first = if block <= wanted { block } else { leg.track.first };
            leg.first = first;
            leg.sector = self.layout.sector(&leg.track, first);
            leg.begin = self.arrives(&leg.track, leg.sector, leg.on_track);
        }
        leg
    }

    /// The time at which every block of the leg before `end` has passed.
    pub(super) fn done(&self, leg: &Leg, end: u64) -> Nanos {
        if end <= leg.first {
            return leg.begin;
        }
        let end = match leg.leap {
            Some((from, to)) if end > from && end <= to => from,
            _ => end,
        };
        let sectors = if leg.track.holds(leg.first) {
            let last = self.layout.sector(&leg.track, end.min(leg.end) - 1);
            u64::from(last.saturating_sub(leg.sector)) + 1
        } else {
            1
        };
        leg.begin + self.passing(&leg.track, sectors)
    }

    /// The block before which all of the leg has passed by `now`.
    pub(super) fn read_by(&self, leg: &Leg, now: Nanos) -> u64 {
        if now <= leg.begin {
            return leg.first;
        }
        if !leg.track.holds(leg.first) {
            return if now >= self.done(leg, leg.end) { leg.end } else { leg.first };
        }
        let since = u128::from(now.saturating_since(leg.begin) + SLACK / 2);
        let sectors = since * u128::from(leg.track.sectors) / u128::from(self.period);
        let sectors = u64::try_from(sectors).unwrap_or(u64::MAX).min(u64::from(u32::MAX));
        let block = self.layout.block_from(&leg.track, u64::from(leg.sector) + sectors);
        let block = match leg.leap {
            Some((from, to)) if block >= from => block.max(to),
            _ => block,
        };
        block.clamp(leg.first, leg.end)
    }

    /// The end of the sector that is passing at `now`.
    pub(super) fn sector_end(&self, leg: &Leg, now: Nanos) -> Nanos {
        let one = self.passing(&leg.track, 1).max(1);
        let since = now.saturating_since(leg.begin);
        leg.begin + since.div_ceil(one) * one
    }

    /// The leg that follows a completed one.
    pub(super) fn next(&self, leg: &Leg, write: bool) -> Option<Leg> {
        (leg.end < self.layout.blocks())
            .then(|| self.go(leg.track.place, self.done(leg, leg.end), leg.end, write))
    }

    /// Writes blocks, starting with a leg: each needs its data in the buffer when it begins to
    /// pass, or waits for the next revolution. Returns the last leg and the time at which the last
    /// block is written.
    pub(super) fn write(&self, mut leg: Leg, end: u64, data: &Arrivals) -> (Leg, Nanos) {
        loop {
            let to = end.min(leg.end);
            let mut from = leg.first;
            loop {
                leg.begin = self.passing_with(leg.begin, data.at(from));
                leg.first = from;
                if leg.track.holds(from) {
                    leg.sector = self.layout.sector(&leg.track, from);
                }
                let starved = self.starved(&leg, to, data);
                if starved >= to {
                    break;
                }
                // The block passes, and comes round again.
                let passed = self.done(&leg, starved);
                leg.begin = passed + self.period;
                from = starved;
            }
            let done = self.done(&leg, to);
            match self.next(&leg, true) {
                Some(next) if to < end => leg = next,
                _ => return (leg, done),
            }
        }
    }

    /// The first pass of a block at or after `begin` for which its data have arrived.
    fn passing_with(&self, begin: Nanos, data: Nanos) -> Nanos {
        let late = data.saturating_since(begin);
        begin + late.div_ceil(self.period) * self.period
    }

    /// The first block of the leg whose data arrive too late; `to` if none do. Data and sectors
    /// both come at a steady pace, so the last block is representative of all.
    fn starved(&self, leg: &Leg, to: u64, data: &Arrivals) -> u64 {
        let late = |block: u64| {
            let start = if block == leg.first { leg.begin } else { self.done(leg, block) };
            data.at(block) > start + SLACK
        };
        if to <= leg.first + 1 || !late(to - 1) {
            return to;
        }
        let (mut low, mut high) = (leg.first, to - 1);
        while low + 1 < high {
            let mid = u64::midpoint(low, high);
            if late(mid) { high = mid } else { low = mid }
        }
        high
    }
}

/// Arrival of a write's data in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    /// The write's first block.
    pub(super) first: u64,
    /// The start of the transfer.
    pub(super) start: Nanos,
    /// Nanoseconds per block.
    pub(super) each: u64,
    /// Writing starts only after this many blocks have arrived.
    pub(super) least: u64,
}

impl Arrivals {
    /// Whether all data before block `end` have arrived by `now`.
    pub(super) fn all_by(&self, end: u64, now: Nanos) -> bool {
        self.at(end.saturating_sub(1)) <= now
    }

    /// The time at which a block's data have arrived.
    fn at(&self, block: u64) -> Nanos {
        let blocks = (block.saturating_sub(self.first) + 1).max(self.least);
        self.start + blocks * self.each
    }
}

/// A run of blocks on one track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leg {
    pub(super) track: Track,
    /// First block of the run.
    pub(super) first: u64,
    /// The block after the run.
    pub(super) end: u64,
    /// The first block's sector on the track.
    sector: u32,
    /// The time at which the heads are on the track.
    pub(super) on_track: Nanos,
    /// The time at which the first block begins to pass.
    pub(super) begin: Nanos,
    /// Blocks read before their turn: once all blocks before the first number are read, so are all
    /// before the second.
    leap: Option<(u64, u64)>,
}

/// Continuous reading from a block on, over all following tracks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) leg: Leg,
    /// The end of the device has been reached.
    ended: bool,
}

impl Stream {
    pub(super) fn new(leg: Leg) -> Self {
        Self { leg, ended: false }
    }

    /// The time at which every block before `end` has been read. To be called in rising order.
    pub(super) fn done(&mut self, media: &Media, end: u64) -> Nanos {
        while end > self.leg.end && !self.ended {
            self.step(media);
        }
        media.done(&self.leg, end.min(self.leg.end))
    }

    /// The block before which all have been read by `now`. To be called in rising order.
    pub(super) fn read_by(&mut self, media: &Media, now: Nanos, limit: u64) -> u64 {
        loop {
            let read = media.read_by(&self.leg, now);
            if read < self.leg.end || read >= limit || self.ended {
                return read.min(limit);
            }
            self.step(media);
        }
    }

    fn step(&mut self, media: &Media) {
        match media.next(&self.leg, false) {
            Some(next) => self.leg = next,
            None => self.ended = true,
        }
    }
}
