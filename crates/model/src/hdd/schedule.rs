//! The choice of the drive's next action: a request, or an accepted write.

use super::queue::QueueKey;
use super::{Hdd, Waiting};
use crate::request::Op;
use seekless_units::Nanos;

/// An action that can start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// A request that the drive sees.
    Request(QueueKey),
    /// The flush that all others wait for.
    Flush,
    /// An accepted write.
    Writing(QueueKey),
}

/// Whether the buffer has room at a moment, cached for all requests with the same moment.
#[derive(Default)]
struct Room {
    read: Option<(Nanos, bool)>,
    write: Option<(Nanos, bool)>,
}

impl Room {
    fn find(&mut self, drive: &Hdd, write: bool, at: Nanos) -> bool {
        let known = if write { &mut self.write } else { &mut self.read };
        match *known {
            Some((then, room)) if then == at => room,
            _ => {
                let room = drive.buffer.room(write, at);
                *known = Some((at, room));
                room
            }
        }
    }
}

impl Hdd {
    /// The next action and its time, if no other request arrives before.
    pub(super) fn next_start(&self) -> Option<(Nanos, Start)> {
        let request = self.next_request();
        let writing = self.next_writing();
        match (request, writing) {
            (Some(request), Some(writing)) if writing.0 < request.0 => Some(writing),
            (Some(request), _) => Some(request),
            (None, writing) => writing,
        }
    }

    /// The request that can start first; the policy decides among equals.
    fn next_request(&self) -> Option<(Nanos, Start)> {
        if let Some(flush) = self.queue.flush() {
            let at = flush.arrived.max(self.command_free);
            let at = self.heads_write_past(at).unwrap_or(at);
            return self.dirty.is_empty().then_some((at, Start::Flush));
        }
        let mut room = Room::default();
        let here = self.heads.place.cylinder;
        let start = |waiting: &Waiting| self.can_start(waiting, &mut room);
        // A write that joins another does not wait for that one's end.
        let soonest =
            if self.heads.writing.is_some() { self.trail.sent } else { self.command_free };
        let soonest = soonest.min(self.command_free);
        let found = self.queue.seen().earliest(here, soonest, start);
        found.map(|(at, spot)| (at, Start::Request(spot)))
    }

    /// The time until which the heads write, if that is after a moment.
    fn heads_write_past(&self, at: Nanos) -> Option<Nanos> {
        self.heads.writing.and(Some(self.heads.free)).filter(|&free| free > at)
    }

    /// The time at which a read or write can start; `None` while it needs a segment that another
    /// action must free first.
    fn can_start(&self, waiting: &Waiting, room: &mut Room) -> Option<Nanos> {
        if let Some(at) = self.can_continue(waiting) {
            return Some(at);
        }
        let at = waiting.arrived.max(self.command_free);
        match self.heads_write_past(at) {
            None if !self.dirty.is_empty() && self.full(waiting, at, room) => None,
            None => Some(at),
            Some(_) if self.needs_no_heads(waiting, at, room) => Some(at),
            free => free,
        }
    }

    /// Whether every segment that the request could take contains unwritten data.
    fn full(&self, waiting: &Waiting, at: Nanos, room: &mut Room) -> bool {
        match waiting.request.op {
            Op::Read => {
                !room.find(self, false, at)
                    && self.buffer.hit(waiting.start(), waiting.end()).is_none()
            }
            _ => !room.find(self, true, at) && !self.takes_no_segment(waiting),
        }
    }

    /// Whether a write replaces or joins one that waits for the heads.
    fn takes_no_segment(&self, waiting: &Waiting) -> bool {
        self.replaced(waiting).is_some() || self.joined(waiting).is_some()
    }

    /// Whether a request can be served while the heads write.
    fn needs_no_heads(&self, waiting: &Waiting, at: Nanos, room: &mut Room) -> bool {
        let (start, end) = (waiting.start(), waiting.end());
        if !self.spec.buffer.serve_while_writing {
            return false;
        }
        match waiting.request.op {
            Op::Read => {
                self.buffer.hit(start, end).is_some_and(|hit| self.buffer.get(hit).end >= end)
            }
            Op::Write => {
                let accepted = self.spec.buffer.write_back && !waiting.request.durable;
                accepted && (room.find(self, true, at) || self.takes_no_segment(waiting))
            }
            Op::Flush => false,
        }
    }

    fn next_writing(&self) -> Option<(Nanos, Start)> {
        let free = self.heads.free;
        let start = |dirty: &super::Dirty| Some(dirty.accepted.max(free));
        let found = self.dirty.earliest(self.heads.place.cylinder, free, start);
        found.map(|(at, spot)| (at, Start::Writing(spot)))
    }
}
