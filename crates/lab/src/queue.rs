//! Requests waiting for the drive, in the order the host gives them out: by sector, from the last
//! one given upwards, then from the lowest again (`disksort` of 4.4BSD).

use crate::seekplot::RequestKind;
use seekless_device::Ticket;
use seekless_model::{Op, Request};
use std::collections::{BTreeMap, HashSet};

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) number: u64,
    pub(crate) request: Request,
    pub(crate) kind: RequestKind,
    /// The ticket by which its completion is polled.
    pub(crate) ticket: Option<Ticket>,
}

/// Requests sorted by place; those for the same place in their order of arrival.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<(u64, u64), Waiting>,
    numbers: HashSet<u64>,
    /// Where the last one given out ended.
    at: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.numbers.insert(waiting.number);
        self.waiting.insert((waiting.request.at.get(), waiting.number), waiting);
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn holds(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// The next one, and how many sectors lie between it and the one before.
    pub(crate) fn pop(&mut self) -> Option<(Waiting, u64)> {
        let ahead = self.waiting.range((self.at, 0)..).next();
        let key = *ahead.or_else(|| self.waiting.first_key_value())?.0;
        let next = self.waiting.remove(&key)?;
        self.numbers.remove(&next.number);
        let distance = next.request.at.get().abs_diff(self.at);
        if next.request.op != Op::Flush {
            self.at = next.request.end().get();
        }
        Some((next, distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::Lba;

    #[test]
    fn goes_up_and_begins_again() {
        let mut queue = Queue::default();
        let mut next = |places: &[u64]| {
            for (number, &at) in (places.len() as u64 * 10..).zip(places) {
                let (request, kind) = (Request::write(Lba::new(at), 8), RequestKind::AsyncWrite);
                queue.push(Waiting { number, request, kind, ticket: None });
            }
            let (first, distance) = queue.pop().unwrap();
            (first.request.at.get(), distance)
        };
        assert_eq!(next(&[500, 100, 300]), (100, 100));
        assert_eq!(next(&[50]), (300, 192));
        assert_eq!(next(&[]), (500, 192));
        assert_eq!(next(&[]), (50, 458));
    }
}
