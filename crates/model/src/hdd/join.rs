//! Joining of sequential writes: the heads continue, and no revolution is lost between two writes.

use super::media::{Arrivals, Leg, Media};
use super::queue::QueueKey;
use super::{Hdd, Waiting};
use crate::request::Op;
use seekless_units::Nanos;
use std::collections::VecDeque;

/// Number of parts into which a segment's room is divided when a write has to wait for it.
const PARTS: u64 = 16;

/// A run of blocks on its way from the buffer to the medium.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    leg: Leg,
    data: Arrivals,
    written: Nanos,
}

/// The writes that the heads perform without a break, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail {
    pieces: VecDeque<Piece>,
    /// The time at which the host had sent the last of it.
    pub(super) sent: Nanos,
}

impl Trail {
    /// Clears the trail, when the heads start elsewhere.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Adds a leg that is written up to a block.
    pub(super) fn push(&mut self, leg: Leg, end: u64, data: Arrivals, written: Nanos) {
        self.pieces.push_back(Piece { start: leg.first, end, leg, data, written });
    }

    /// Drops pieces that are on the medium at a moment, except the last one.
    fn forget(&mut self, now: Nanos) {
        while self.pieces.len() > 1 && self.pieces.front().is_some_and(|one| one.written <= now) {
            self.pieces.pop_front();
        }
    }

    /// The time at which all blocks before `block` are on the medium; `None` for a block behind the
    /// end.
    fn written_before(&self, media: &Media, block: u64) -> Option<Nanos> {
        let at = self.pieces.partition_point(|piece| piece.end < block);
        let piece = self.pieces.get(at)?;
        if block == piece.end {
            return Some(piece.written);
        }
        if block <= piece.start {
            return Some(
                at.checked_sub(1).map_or(Nanos::ZERO, |before| self.pieces[before].written),
            );
        }
        Some(media.write(piece.leg, block, &piece.data).1)
    }
}

impl Hdd {
    /// The segment being written that a write continues at a moment. `None` if its room is not free
    /// yet and another segment's is, which the write takes instead.
    pub(super) fn continued(&self, waiting: &Waiting, at: Nanos) -> Option<usize> {
        let segment = self.heads.writing.filter(|_| self.spec.buffer.combine_writes)?;
        let goes_on = waiting.request.op == Op::Write
            && self.heads.free > at
            && self.buffer.get(segment).end == waiting.start();
        let goes_on = goes_on && (self.fits(waiting.end(), at) || !self.accepts(waiting, at));
        goes_on.then_some(segment)
    }

    /// Whether the blocks before `end` that are not on the medium yet fit in a segment.
    fn fits(&self, end: u64, at: Nanos) -> bool {
        let room = u64::from(self.spec.buffer.segment_sectors);
        let over = end.saturating_sub(room);
        self.trail.written_before(&self.media, over).is_some_and(|written| written <= at)
    }

    /// Whether the drive accepts a write while the heads write another one.
    fn accepts(&self, waiting: &Waiting, at: Nanos) -> bool {
        let buffer = &self.spec.buffer;
        let accepts = buffer.write_back && buffer.serve_while_writing && !waiting.request.durable;
        accepts && (self.joined(waiting).is_some() || self.buffer.room(true, at))
    }

    /// The earliest start of a write that continues the one being written: when the host has sent
    /// that one, on the medium or not.
    pub(super) fn can_continue(&self, waiting: &Waiting) -> Option<Nanos> {
        let at = waiting.arrived.max(self.trail.sent.min(self.command_free));
        self.continued(waiting, at).map(|_| at)
    }

    /// Performs a write that continues the one being written.
    pub(super) fn append(&mut self, waiting: Waiting, now: Nanos, segment: usize) -> Nanos {
        let (start, end) = (waiting.start(), waiting.end());
        let plan = self.plan(&waiting, now, None);
        self.trail.forget(now);
        self.buffer.invalidate(start, end, segment);
        self.buffer.touch(segment);
        self.buffer.extend(segment, end);
        let room = u64::from(self.spec.buffer.segment_sectors);
        let each = self.overheads.write_sector;
        let (mut from, mut sent, mut written) = (start, plan.bus, plan.bus);
        while from < end {
            // As much at once as fits: the blocks before it are written.
            let part = if self.fits(end, sent) { end } else { from + (room / PARTS).max(1) };
            let to = part.min(end);
            let free = self.trail.written_before(&self.media, to.saturating_sub(room));
            let begin = sent.max(free.unwrap_or(self.heads.free));
            let data = Arrivals { first: from, start: begin, each, least: 1 };
            written = self.go_on_writing(from, to, plan.ready, &data);
            sent = begin + (to - from) * each;
            from = to;
        }
        self.buffer.set_dirty(segment, written);
        self.complete(&waiting, segment, sent, written, &plan)
    }

    /// An accepted write that the heads have not begun and that this write continues.
    pub(super) fn joined(&self, waiting: &Waiting) -> Option<QueueKey> {
        let buffer = &self.spec.buffer;
        if !buffer.combine_writes || !buffer.write_back || waiting.request.durable {
            return None;
        }
        let room = u64::from(buffer.segment_sectors);
        self.dirty.find(|dirty| {
            dirty.end == waiting.start() && waiting.end().saturating_sub(dirty.start) <= room
        })
    }

    /// Joins a write to one that waits for the heads.
    pub(super) fn join(&mut self, waiting: Waiting, now: Nanos, spot: QueueKey) -> Nanos {
        let plan = self.plan(&waiting, now, None);
        let (start, end) = (waiting.start(), waiting.end());
        let each = self.overheads.write_sector;
        let data = Arrivals { first: start, start: plan.bus, each, least: 1 };
        if let Some(dirty) = self.dirty.get_mut(spot) {
            let segment = dirty.segment;
            (dirty.end, dirty.last) = (end, Some(data));
            self.buffer.invalidate(start, end, segment);
            self.buffer.touch(segment);
            self.buffer.extend(segment, end);
        }
        let sent = u64::from(waiting.request.sectors) * each;
        plan.bus + sent + self.overheads.write_completion
    }
}
