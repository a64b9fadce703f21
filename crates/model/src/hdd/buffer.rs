//! The drive's buffer: segments of one run of blocks each.

use super::spec::BufferSpec;
use seekless_units::Nanos;
use std::ops::Range;

/// A run of blocks in the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    /// First block.
    pub(super) start: u64,
    /// The block after the last; equal to `start` when empty.
    pub(super) end: u64,
    /// Read-ahead extends up to this block.
    pub(super) limit: u64,
    /// The end of the last read that it served.
    pub(super) served: u64,
    /// The time at which the host had received that.
    pub(super) served_at: Nanos,
    /// Its contents came from the host.
    pub(super) written: bool,
    /// The time until which it has contents that are not on the medium.
    pub(super) dirty_until: Nanos,
    /// The segment that has borrowed its room, if any.
    lent: Option<usize>,
    used: u64,
}

impl Segment {
    #[cfg(test)]
    pub(super) fn last_used(&self) -> u64 {
        self.used
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }
}

/// All segments.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    segments: Vec<Segment>,
    /// First block and index of every segment, sorted. No segment has more than `segment_sectors`
    /// blocks, so those that contain a block are neighbours here.
    by_start: Vec<(u64, usize)>,
    /// Number of segments that have lent their room.
    lent: usize,
    clock: u64,
    spec: BufferSpec,
}

impl Buffer {
    pub(super) fn new(spec: &BufferSpec) -> Self {
        let count = spec.segments as usize;
        Self {
            segments: vec![Segment::default(); count],
            by_start: (0..count).map(|at| (0, at)).collect(),
            lent: 0,
            clock: 0,
            spec: spec.clone(),
        }
    }

    pub(super) fn get(&self, at: usize) -> &Segment {
        &self.segments[at]
    }

    fn for_reads(&self) -> impl Iterator<Item = (usize, &Segment)> {
        let writes_only = usize::from(self.spec.separate_write_segment);
        self.segments.iter().enumerate().skip(writes_only).filter(|(_, own)| own.lent.is_none())
    }

    fn for_writes(&self) -> impl Iterator<Item = (usize, &Segment)> {
        let count = if self.spec.separate_write_segment { 1 } else { self.segments.len() };
        self.segments.iter().enumerate().take(count).filter(|(_, own)| own.lent.is_none())
    }

    /// Room of a segment in sectors, including borrowed room.
    pub(super) fn room_of(&self, at: usize) -> u64 {
        let own = u64::from(self.spec.segment_sectors);
        if self.lent == 0 {
            return own;
        }
        let lenders = self.segments.iter().filter(|segment| segment.lent == Some(at)).count();
        own * (lenders as u64 + 1)
    }

    /// Upper bound of the sectors in a segment.
    fn longest(&self) -> u64 {
        u64::from(self.spec.segment_sectors) * (self.lent as u64 + 1)
    }

    /// Lends a segment that serves reads in order the room of the least recently used one, as long
    /// as enough are left for all writes that the drive accepts.
    pub(super) fn grow(&mut self, at: usize, now: Nanos) {
        let kept = self.spec.write_segments as usize + 1;
        if !self.spec.adaptive_segments || self.lent + kept >= self.segments.len() {
            return;
        }
        let free = self.for_reads().filter(|(n, other)| *n != at && other.dirty_until <= now);
        let Some(lender) = free.min_by_key(|(_, other)| other.used).map(|(n, _)| n) else { return };
        self.reset(lender, 0, false);
        self.segments[lender].lent = Some(at);
        self.lent += 1;
    }

    /// Assigns a segment to a read that begins at a block, with as much room as reads take.
    pub(super) fn reset_for_read(&mut self, at: usize, start: u64, now: Nanos) {
        self.reset(at, start, false);
        while self.room_of(at) + u64::from(self.spec.segment_sectors)
            <= u64::from(self.spec.read_room_sectors)
        {
            let free = self.for_reads().filter(|(n, other)| *n != at && other.dirty_until <= now);
            let Some(lender) = free.min_by_key(|(_, other)| other.used).map(|(n, _)| n) else {
                return;
            };
            self.reset(lender, 0, false);
            self.segments[lender].lent = Some(at);
            self.lent += 1;
        }
    }

    /// Returns the room that a segment has borrowed.
    fn give_back(&mut self, at: usize) {
        if self.lent > 0 {
            for lender in self.segments.iter_mut().filter(|segment| segment.lent == Some(at)) {
                lender.lent = None;
                self.lent -= 1;
            }
        }
    }

    /// The segment that contains the read's first block; one with all of the read is preferred.
    pub(super) fn hit(&self, start: u64, end: u64) -> Option<usize> {
        if !self.spec.caching {
            return None;
        }
        let writes_only = usize::from(self.spec.separate_write_segment);
        self.by_start[self.reaching(start, start + 1)]
            .iter()
            .map(|&(_, at)| (at, &self.segments[at]))
            .filter(|(at, segment)| *at >= writes_only && start < segment.end)
            .filter(|(_, segment)| self.spec.hits_on_written || !segment.written)
            .max_by_key(|(_, segment)| (segment.end.min(end), segment.used))
            .map(|(at, _)| at)
    }

    /// The entries of `by_start` that begin before `end` and may reach past `start`.
    fn reaching(&self, start: u64, end: u64) -> Range<usize> {
        let longest = self.longest();
        let until = self.by_start.partition_point(|&(first, _)| first < end);
        // Few do, if any: they are the last ones.
        let near = self.by_start[..until].iter().rev();
        let count = near.take_while(|&&(first, _)| first + longest > start).count();
        until - count..until
    }

    /// Updates `by_start` when a segment's start moves.
    fn move_start(&mut self, at: usize, start: u64) {
        let old = std::mem::replace(&mut self.segments[at].start, start);
        if let Ok(from) = self.by_start.binary_search(&(old, at)) {
            let to = self.by_start.partition_point(|&entry| entry < (start, at));
            if from < to {
                self.by_start[from..to].rotate_left(1);
                self.by_start[to - 1].0 = start;
            } else {
                self.by_start[to..=from].rotate_right(1);
                self.by_start[to].0 = start;
            }
        }
    }

    /// The segment that a read or write may take over at `now`: an empty one, for a write one that
    /// it makes stale, or the least recently used one.
    pub(super) fn victim(&self, write: Option<(u64, u64)>, now: Nanos) -> Option<usize> {
        let free = |segment: &Segment| segment.dirty_until <= now;
        // Segments with contents rank after all empty ones.
        const HOLDS: u64 = 1 << 63;
        let rank = |segment: &Segment| {
            if segment.start == segment.end {
                return segment.used;
            }
            match write {
                Some((start, end)) if segment.overlaps(start, end) => 0,
                _ => segment.used | HOLDS,
            }
        };
        let least = |best: Option<(usize, u64)>, (at, segment): (usize, &Segment)| {
            let rank = rank(segment);
            if best.is_none_or(|best| rank < best.1) { Some((at, rank)) } else { best }
        };
        let found = match write {
            Some(_) if self.dirty(now) >= self.spec.write_segments as usize => None,
            Some(_) => self.for_writes().filter(|(_, s)| free(s)).fold(None, least),
            None => self.for_reads().filter(|(_, s)| free(s)).fold(None, least),
        };
        found.map(|(at, _)| at)
    }

    /// Whether a read or a write finds a segment to take over at `now`.
    pub(super) fn room(&self, write: bool, now: Nanos) -> bool {
        let free = |(_, segment): (usize, &Segment)| segment.dirty_until <= now;
        if write {
            self.dirty(now) < self.spec.write_segments as usize && self.for_writes().any(free)
        } else {
            self.for_reads().any(free)
        }
    }

    pub(super) fn dirty(&self, now: Nanos) -> usize {
        self.segments.iter().filter(|segment| segment.dirty_until > now).count()
    }

    /// Marks a segment as the most recently used one.
    pub(super) fn touch(&mut self, at: usize) {
        self.clock += 1;
        self.segments[at].used = self.clock;
    }

    /// Whether the most recent use was a write to this segment.
    pub(super) fn just_written(&self, at: usize) -> bool {
        let segment = &self.segments[at];
        segment.written && segment.used == self.clock && self.clock > 0
    }

    /// Assigns a segment to a run that begins at a block.
    pub(super) fn reset(&mut self, at: usize, start: u64, written: bool) {
        self.give_back(at);
        self.move_start(at, start);
        let segment = &mut self.segments[at];
        segment.end = start;
        segment.limit = 0;
        segment.served = 0;
        segment.written = written;
        segment.dirty_until = Nanos::ZERO;
    }

    /// Drops a segment's blocks before `start`.
    pub(super) fn drop_before(&mut self, at: usize, start: u64) {
        let start = start.max(self.segments[at].start);
        self.move_start(at, start);
        let segment = &mut self.segments[at];
        segment.end = segment.end.max(start);
    }

    /// Sets the end of read-ahead.
    pub(super) fn set_limit(&mut self, at: usize, limit: u64) {
        self.segments[at].limit = limit;
    }

    /// Records that the host has received a segment's blocks before `end`.
    pub(super) fn set_served(&mut self, at: usize, end: u64, now: Nanos) {
        (self.segments[at].served, self.segments[at].served_at) = (end, now);
    }

    /// Sets the time until which a segment has contents that are not on the medium.
    pub(super) fn set_dirty(&mut self, at: usize, until: Nanos) {
        self.segments[at].dirty_until = until;
    }

    /// Extends a segment to a block; its first blocks are dropped if they no longer fit.
    pub(super) fn extend(&mut self, at: usize, end: u64) {
        let room = self.room_of(at);
        let segment = &mut self.segments[at];
        segment.end = segment.end.max(end);
        let start = segment.end.saturating_sub(room);
        if start > segment.start {
            self.move_start(at, start);
        }
    }

    /// Drops contents that a write makes stale, except in its own segment.
    pub(super) fn invalidate(&mut self, start: u64, end: u64, own: usize) {
        for near in self.reaching(start, end) {
            let at = self.by_start[near].1;
            let segment = &mut self.segments[at];
            if at != own && segment.overlaps(start, end) {
                segment.end = segment.start;
                segment.limit = segment.start;
            }
        }
    }
}
