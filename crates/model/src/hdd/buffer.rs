//! The drive's memory: segments that each hold one run of blocks.

use super::spec::BufferSpec;
use seekless_units::Nanos;

/// A run of blocks in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    /// First block.
    pub(super) start: u64,
    /// The block after the last; equal to `start` when empty.
    pub(super) end: u64,
    /// Read-ahead goes up to here.
    pub(super) limit: u64,
    /// What it holds came from the host.
    pub(super) written: bool,
    /// Until when it holds what is not on the medium yet.
    pub(super) dirty_until: Nanos,
    used: u64,
}

impl Segment {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }
}

/// All segments.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    segments: Vec<Segment>,
    clock: u64,
    spec: BufferSpec,
}

impl Buffer {
    pub(super) fn new(spec: &BufferSpec) -> Self {
        let count = spec.segments as usize;
        Self { segments: vec![Segment::default(); count], clock: 0, spec: spec.clone() }
    }

    pub(super) fn get(&self, at: usize) -> &Segment {
        &self.segments[at]
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut Segment {
        &mut self.segments[at]
    }

    fn for_reads(&self) -> impl Iterator<Item = (usize, &Segment)> {
        let writes_only = usize::from(self.spec.separate_write_segment);
        self.segments.iter().enumerate().skip(writes_only)
    }

    fn for_writes(&self) -> impl Iterator<Item = (usize, &Segment)> {
        let count = if self.spec.separate_write_segment { 1 } else { self.segments.len() };
        self.segments.iter().enumerate().take(count)
    }

    /// The segment that holds the read's first block, one with all of it before
    /// one with a part.
    pub(super) fn hit(&self, start: u64, end: u64) -> Option<usize> {
        if !self.spec.caching {
            return None;
        }
        self.for_reads()
            .filter(|(_, segment)| segment.start <= start && start < segment.end)
            .filter(|(_, segment)| self.spec.hits_on_written || !segment.written)
            .max_by_key(|(_, segment)| (segment.end.min(end), segment.used))
            .map(|(at, _)| at)
    }

    /// The segment that a read or write may take over at `now`: an empty one,
    /// for a write one that it makes worthless, or the one not used for longest.
    pub(super) fn victim(&self, write: Option<(u64, u64)>, now: Nanos) -> Option<usize> {
        let free = |segment: &Segment| segment.dirty_until <= now;
        let rank = |segment: &Segment| {
            if segment.start == segment.end {
                return (0, segment.used);
            }
            match write {
                Some((start, end)) if segment.overlaps(start, end) => (0, 0),
                _ => (1, segment.used),
            }
        };
        let least = |best: Option<(usize, (u32, u64))>, (at, segment): (usize, &Segment)| {
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

    fn dirty(&self, now: Nanos) -> usize {
        self.segments.iter().filter(|segment| segment.dirty_until > now).count()
    }

    /// Marks a segment as the one used last.
    pub(super) fn touch(&mut self, at: usize) {
        self.clock += 1;
        self.segments[at].used = self.clock;
    }

    /// Whether a segment is the one used last, and that by a write.
    pub(super) fn just_written(&self, at: usize) -> bool {
        let segment = &self.segments[at];
        segment.written && segment.used == self.clock && self.clock > 0
    }

    /// Gives a segment to a run that begins at a block.
    pub(super) fn reset(&mut self, at: usize, start: u64, written: bool) {
        let used = self.segments[at].used;
        self.segments[at] =
            Segment { start, end: start, limit: 0, written, dirty_until: Nanos::ZERO, used };
    }

    /// Extends a segment to a block; what does not fit any more falls out.
    pub(super) fn extend(&mut self, at: usize, end: u64) {
        let segment = &mut self.segments[at];
        segment.end = segment.end.max(end);
        let room = u64::from(self.spec.segment_sectors);
        segment.start = segment.start.max(segment.end.saturating_sub(room));
    }

    /// Forgets what a write makes stale, its own segment aside.
    pub(super) fn invalidate(&mut self, start: u64, end: u64, own: usize) {
        for (at, segment) in self.segments.iter_mut().enumerate() {
            if at != own && segment.overlaps(start, end) {
                segment.end = segment.start;
                segment.limit = segment.start;
            }
        }
    }
}
