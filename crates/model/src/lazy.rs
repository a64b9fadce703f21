//! A volume whose contents are fetched from an object store at the first access: snapshots, lazily
//! pulled container images.
//!
//! The store returns whole chunks; a request waits until all of its chunks have arrived and then
//! reads them from the local volume. Chunks dropped locally are fetched again.

use crate::device::{DeviceModel, Refused, check};
use crate::in_flight::InFlight;
use crate::random::Random;
use crate::request::{Completion, Op, Request, Tag};
use crate::tokens::Tokens;
use crate::volume::{Quantile, Volume, VolumeSpec, draw, latency_fault};
use hashbrown::HashMap;
use seekless_units::{Nanos, SECTOR};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The figures of a lazily fetched volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LazySpec {
    /// Bytes in a chunk.
    pub chunk: u64,
    /// From the request for a chunk to its first byte.
    pub first_byte: Vec<Quantile>,
    /// Bytes per second of one fetch.
    pub stream_bandwidth: u64,
    /// Bytes per second of all fetches together.
    pub total_bandwidth: u64,
    /// Maximum number of parallel fetches.
    pub parallel: u32,
    /// Number of chunks fetched ahead after a chunk that follows the previously fetched one.
    #[serde(default)]
    pub fetch_ahead: u32,
    /// Number of chunks kept locally, evicted in the order in which they were fetched; 0 for all.
    #[serde(default)]
    pub cache_chunks: u64,
    /// Seed of the random latencies.
    #[serde(default)]
    pub seed: u64,
    /// The local volume.
    pub local: VolumeSpec,
}

const CHUNK: u64 = 1 << 30;
const PARALLEL: u32 = 1 << 16;
const AHEAD: u32 = 1 << 10;

impl LazySpec {
    /// The first fault in the figures: key and reason.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        let not = |key, value: u64, low: u64, high: u64| {
            let why = || format!("{value} is not in the range {low} to {high}");
            (value < low || value > high).then(|| (key, why()))
        };
        not("chunk", self.chunk, SECTOR, CHUNK)
            .or_else(|| not("parallel", self.parallel.into(), 1, PARALLEL.into()))
            .or_else(|| not("fetch_ahead", self.fetch_ahead.into(), 0, AHEAD.into()))
            .or_else(|| not("stream_bandwidth", self.stream_bandwidth, 1, u64::MAX))
            .or_else(|| not("total_bandwidth", self.total_bandwidth, 1, u64::MAX))
            .or_else(|| latency_fault(&self.first_byte).map(|why| ("first_byte", why)))
            .or_else(|| self.local.fault())
    }
}

/// A lazily fetched volume.
#[derive(Clone, Debug)]
pub struct Lazy {
    spec: LazySpec,
    local: Volume,
    /// The arrival time of each requested chunk.
    chunks: HashMap<u64, Nanos>,
    order: VecDeque<u64>,
    /// The end of each parallel fetch.
    slots: BinaryHeap<Reverse<Nanos>>,
    total: Tokens,
    chance: Random,
    last_fetched: Option<u64>,
    requests: InFlight,
}

impl Lazy {
    /// A volume of which nothing has been fetched.
    #[must_use]
    pub fn new(spec: LazySpec) -> Self {
        Self {
            local: Volume::new(spec.local.clone()),
            chunks: HashMap::new(),
            order: VecDeque::new(),
            slots: (0..spec.parallel).map(|_| Reverse(Nanos::ZERO)).collect(),
            total: Tokens::new(spec.total_bandwidth, 0),
            chance: Random::new(spec.seed),
            last_fetched: None,
            requests: InFlight::default(),
            spec,
        }
    }

    /// The time at which a chunk requested at `now` is available.
    fn there(&mut self, now: Nanos, chunk: u64) -> Nanos {
        if let Some(&there) = self.chunks.get(&chunk) {
            return there.max(now);
        }
        let there = self.fetch(now, chunk);
        let goes_on = self.last_fetched.is_some_and(|last| last.checked_add(1) == Some(chunk));
        self.last_fetched = Some(chunk);
        if goes_on {
            for ahead in (1..=u64::from(self.spec.fetch_ahead)).map_while(|n| chunk.checked_add(n))
            {
                if !self.chunks.contains_key(&ahead) {
                    self.fetch(now, ahead);
                }
            }
        }
        there
    }

    fn fetch(&mut self, now: Nanos, chunk: u64) -> Nanos {
        let free = self.slots.pop().map_or(Nanos::ZERO, |slot| slot.0);
        let started = self.total.take(now.max(free), self.spec.chunk);
        let first = draw(&self.spec.first_byte, &mut self.chance);
        let stream = u128::from(self.spec.chunk) * 1_000_000_000;
        let stream = stream / u128::from(self.spec.stream_bandwidth.max(1));
        let there = started + first.get() + u64::try_from(stream).unwrap_or(u64::MAX);
        self.slots.push(Reverse(there));
        self.keep(chunk, there);
        there
    }

    fn keep(&mut self, chunk: u64, there: Nanos) {
        self.chunks.insert(chunk, there);
        if self.spec.cache_chunks > 0 {
            self.order.push_back(chunk);
            if self.order.len() as u64 > self.spec.cache_chunks
                && let Some(oldest) = self.order.pop_front()
            {
                self.chunks.remove(&oldest);
            }
        }
    }

    /// The time at which all chunks of a request are available. A write that covers a whole chunk
    /// does not need it.
    fn all_there(&mut self, at: Nanos, request: Request) -> Nanos {
        let chunk = self.spec.chunk;
        let first = request.at.to_bytes().get();
        let end = first + u64::from(request.sectors) * SECTOR;
        let mut there = at;
        for number in first / chunk..end.div_ceil(chunk) {
            let covered = number * chunk >= first && (number + 1) * chunk <= end;
            if request.op == Op::Write && covered && !self.chunks.contains_key(&number) {
                self.keep(number, at);
            } else {
                there = there.max(self.there(at, number));
            }
        }
        there
    }
}

impl DeviceModel for Lazy {
    fn capacity(&self) -> Option<u64> {
        self.spec.local.sectors
    }

    fn submit(&mut self, at: Nanos, tag: Tag, request: Request) -> Result<(), Refused> {
        check(request, self.capacity())?;
        let at = self.requests.arrive(at);
        let there = if request.op == Op::Flush { at } else { self.all_there(at, request) };
        let done = self.local.completion(there, request);
        self.requests.push(at, done, tag);
        Ok(())
    }

    fn advance(&mut self, until: Nanos) -> Option<Completion> {
        self.requests.advance(until)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.requests.next()
    }

    fn in_flight(&self) -> usize {
        self.requests.len()
    }

    fn busy(&self) -> Nanos {
        self.requests.busy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Limit;
    use seekless_units::Lba;

    fn spec() -> LazySpec {
        let at = |us| vec![Quantile { share: 1.0, us }];
        let plenty = Limit { rate: 1_000_000_000, burst: 0, burst_rate: None };
        LazySpec {
            chunk: 1 << 20,
            first_byte: at(20_000.0),
            stream_bandwidth: 100 << 20,
            total_bandwidth: 1 << 40,
            parallel: 2,
            fetch_ahead: 0,
            cache_chunks: 0,
            seed: 0,
            local: VolumeSpec {
                sectors: None,
                iops: plenty,
                bandwidth: Limit { rate: 1 << 40, ..plenty },
                write_cost: 1.0,
                io_size: 1 << 20,
                merge_from: None,
                read_latency: at(100.0),
                write_latency: at(100.0),
                flush_us: 0.0,
                seed: 0,
            },
        }
    }

    /// A small read of a chunk, in milliseconds.
    fn read(lazy: &mut Lazy, at_ms: u64, chunk: u64) -> f64 {
        let request = Request::read(Lba::new(chunk * 2048), 8);
        let at = Nanos::new(at_ms * 1_000_000);
        lazy.serve(at, request).unwrap().saturating_since(at) as f64 / 1e6
    }

    fn close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 0.01, "{value} instead of {expected}");
    }

    #[test]
    fn a_chunk_is_fetched_once() {
        let mut lazy = Lazy::new(spec());
        close(read(&mut lazy, 0, 5), 20.0 + 10.0 + 0.1);
        close(read(&mut lazy, 1000, 5), 0.1);
        close(read(&mut lazy, 2000, 6), 30.1);
    }

    #[test]
    fn only_so_many_fetches_run_at_once() {
        let mut lazy = Lazy::new(spec());
        for chunk in 0..3 {
            let request = Request::read(Lba::new(chunk * 10 * 2048), 8);
            lazy.submit(Nanos::ZERO, Tag(chunk), request).unwrap();
        }
        let mut done = Vec::new();
        while let Some(one) = lazy.advance(Nanos::new(u64::MAX)) {
            done.push(one.at.get() as f64 / 1e6);
        }
        close(done[1], 30.1);
        close(done[2], 60.1);
    }

    #[test]
    fn a_stream_is_fetched_ahead() {
        let mut lazy = Lazy::new(LazySpec { fetch_ahead: 2, parallel: 8, ..spec() });
        close(read(&mut lazy, 0, 0), 30.1);
        close(read(&mut lazy, 100, 1), 30.1);
        close(read(&mut lazy, 200, 2), 0.1);
        close(read(&mut lazy, 300, 3), 0.1);
    }

    #[test]
    fn what_is_not_kept_is_fetched_again() {
        let mut lazy = Lazy::new(LazySpec { cache_chunks: 2, ..spec() });
        for chunk in [0, 10, 20] {
            close(read(&mut lazy, chunk * 100, chunk), 30.1);
        }
        close(read(&mut lazy, 5000, 20), 0.1);
        close(read(&mut lazy, 6000, 0), 30.1);
    }

    #[test]
    fn a_write_of_a_whole_chunk_fetches_nothing() {
        let mut lazy = Lazy::new(spec());
        let whole = Request::write(Lba::new(2048), 2048);
        assert!(lazy.serve(Nanos::ZERO, whole).unwrap().get() < 1_000_000);
        let part = Request::write(Lba::new(4096), 8);
        let at = Nanos::new(1_000_000_000);
        assert!(lazy.serve(at, part).unwrap().saturating_since(at) > 30_000_000);
    }
}
