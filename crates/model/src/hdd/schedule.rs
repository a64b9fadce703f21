//! What the drive does next: which request, or which accepted write.

use super::spec::Policy;
use super::{Hdd, Waiting};
use crate::request::Op;
use seekless_units::Nanos;

/// Something that can begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// The queue's n-th request.
    Request(usize),
    /// The n-th accepted write.
    Writing(usize),
}

impl Hdd {
    /// What begins next, and when, if nothing else arrives before.
    pub(super) fn next_start(&self) -> Option<(Nanos, Start)> {
        let request = self.next_request();
        let writing = self.next_writing();
        match (request, writing) {
            (Some(request), Some(writing)) if writing.0 < request.0 => Some(writing),
            (Some(request), _) => Some(request),
            (None, writing) => writing,
        }
    }

    /// The requests that the drive sees: none behind a flush.
    fn visible(&self) -> impl Iterator<Item = (usize, &Waiting)> {
        let depth = self.spec.queue.depth as usize;
        let flush = self.queue.iter().position(|waiting| waiting.request.op == Op::Flush);
        let until = flush.map_or(depth, |flush| depth.min(flush.max(1)));
        self.queue.iter().enumerate().take(until)
    }

    fn next_request(&self) -> Option<(Nanos, Start)> {
        let starts = self.visible().filter_map(|(n, waiting)| {
            let at = self.can_start(waiting)?;
            Some((at, n))
        });
        // Among those that can start first, the policy decides.
        let mut best: Option<(Nanos, (u64, u64), usize)> = None;
        for (at, n) in starts {
            let waiting = self.queue.get(n)?;
            let rank = (self.distance(waiting), n as u64);
            if best.is_none_or(|best| (at, rank) < (best.0, best.1)) {
                best = Some((at, rank, n));
            }
        }
        best.map(|(at, _, n)| (at, Start::Request(n)))
    }

    /// When a request can be taken up; `None` while it needs a segment that
    /// something else must free first.
    fn can_start(&self, waiting: &Waiting) -> Option<Nanos> {
        let at = waiting.arrived.max(self.command_free);
        let heads = match self.heads.writing {
            Some(_) if self.heads.free > at => Some(self.heads.free),
            _ => None,
        };
        match waiting.request.op {
            Op::Flush if self.dirty.is_empty() => Some(heads.unwrap_or(at)),
            Op::Flush => None,
            Op::Read | Op::Write => match heads {
                None if !self.dirty.is_empty() && self.full(waiting, at) => None,
                None => Some(at),
                Some(_) if self.needs_no_heads(waiting, at) => Some(at),
                Some(heads) => Some(heads),
            },
        }
    }

    /// Whether every segment that the request could take is waiting to be
    /// written.
    fn full(&self, waiting: &Waiting, at: Nanos) -> bool {
        match waiting.request.op {
            Op::Read => {
                self.buffer.hit(waiting.start(), waiting.end()).is_none()
                    && !self.buffer.room(false, at)
            }
            _ => !self.buffer.room(true, at),
        }
    }

    /// Whether a request can be served while the heads write.
    fn needs_no_heads(&self, waiting: &Waiting, at: Nanos) -> bool {
        let (start, end) = (waiting.start(), waiting.end());
        if waiting.request.op == Op::Write && self.continued(waiting).is_some() {
            return true;
        }
        if !self.spec.buffer.serve_while_writing {
            return false;
        }
        match waiting.request.op {
            Op::Read => {
                self.buffer.hit(start, end).is_some_and(|hit| self.buffer.get(hit).end >= end)
            }
            Op::Write => {
                let accepted = self.spec.buffer.write_back && !waiting.request.durable;
                accepted && self.buffer.room(true, at)
            }
            Op::Flush => false,
        }
    }

    /// What the policy orders requests by.
    fn distance(&self, waiting: &Waiting) -> u64 {
        if self.queue.len() < 2 {
            return 0;
        }
        self.rank(waiting.cylinder)
    }

    fn rank(&self, cylinder: u32) -> u64 {
        let (here, there) = (u64::from(self.heads.place.cylinder), u64::from(cylinder));
        match self.spec.queue.policy {
            Policy::Fifo => 0,
            Policy::Sstf => there.abs_diff(here),
            Policy::CLook => {
                // Those behind the heads come after all that lie ahead.
                if there >= here { there - here } else { there + (1 << 40) }
            }
        }
    }

    fn next_writing(&self) -> Option<(Nanos, Start)> {
        let by = |n: usize| {
            let dirty = self.dirty.get(n)?;
            Some((self.heads.free.max(dirty.accepted), self.rank(dirty.cylinder), n))
        };
        let best = (0..self.dirty.len()).filter_map(by).min()?;
        Some((best.0, Start::Writing(best.2)))
    }
}
