//! A network-attached block volume: limits on requests and bytes per second, each with a burst, and
//! a variable latency.
//!
//! Neighbouring addresses are not cheaper than distant ones; the numbers of requests and of bytes
//! determine the time. Requests larger than `io_size` count as several, and neighbouring ones that
//! wait together as one up to that size, as cloud providers meter them.

use crate::device::{DeviceModel, Refused, check};
use crate::in_flight::InFlight;
use crate::random::Random;
use crate::request::{Completion, Op, Request, Tag};
use crate::tokens::Tokens;
use seekless_units::{Lba, Nanos, SECTOR};
use serde::{Deserialize, Serialize};

/// A limit: a sustained rate, and a burst above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Sustained rate, per second.
    pub rate: u64,
    /// Amount that may be used at once after a long rest; 0 for none.
    #[serde(default)]
    pub burst: u64,
    /// Maximum rate per second while the burst lasts; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_rate: Option<u64>,
}

/// A point of a latency distribution: this fraction of requests is at or below this latency.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantile {
    /// From 0 to 1.
    pub share: f64,
    /// In microseconds.
    pub us: f64,
}

/// The figures of a volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// Sectors of 512 bytes; absent for a volume without a size limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sectors: Option<u64>,
    /// Requests per second.
    pub iops: Limit,
    /// Cost of a write in `iops`, relative to a read: 0.5 if a volume may write twice as often as
    /// it may read, with one budget for both. From 0.001 to 1000, in steps of 0.001.
    #[serde(default = "as_a_read")]
    pub write_cost: f64,
    /// Bytes per second.
    pub bandwidth: Limit,
    /// Maximum number of bytes that count as one request.
    pub io_size: u64,
    /// Minimum size in bytes of a request that is merged with a waiting one that ends where it
    /// begins: both count as one up to `io_size`. Absent if none are merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_from: Option<u64>,
    /// Latency of a read that waits for no limit, without the transfer from first to last byte;
    /// points in rising order, from share 0 to share 1.
    pub read_latency: Vec<Quantile>,
    /// The same for a write. A write is stable when it completes.
    pub write_latency: Vec<Quantile>,
    /// Time of a flush that has nothing to wait for, in microseconds.
    #[serde(default)]
    pub flush_us: f64,
    /// Seed of the random latencies.
    #[serde(default)]
    pub seed: u64,
}

const fn as_a_read() -> f64 {
    1.0
}

/// Requests are metered in thousandths, for `write_cost`.
const PARTS: u64 = 1000;

impl VolumeSpec {
    /// The first fault in the figures: key and reason.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        if self.iops.rate == 0 || self.bandwidth.rate == 0 {
            return Some(("rate", "a rate must be at least 1 per second".into()));
        }
        if self.io_size < SECTOR {
            return Some(("io_size", format!("must be at least {SECTOR}")));
        }
        if self.merge_from.is_some_and(|least| least < SECTOR) {
            return Some(("merge_from", format!("must be at least {SECTOR}")));
        }
        if !(0.001..=1000.0).contains(&self.write_cost) {
            return Some((
                "write_cost",
                format!("{} is not in the range 0.001 to 1000", self.write_cost),
            ));
        }
        if !(0.0..=LONGEST_US).contains(&self.flush_us) {
            return Some(("flush_us", format!("{} is not in the range 0 to 1e9", self.flush_us)));
        }
        latency_fault(&self.read_latency)
            .map(|why| ("read_latency", why))
            .or_else(|| latency_fault(&self.write_latency).map(|why| ("write_latency", why)))
    }
}

/// Maximum latency: a quarter of an hour.
const LONGEST_US: f64 = 1e9;

pub(crate) fn latency_fault(points: &[Quantile]) -> Option<String> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Some("at least one point is required".into());
    };
    let rising = points.windows(2).all(|two| two[0].share < two[1].share && two[0].us <= two[1].us);
    let sane = points.iter().all(|point| (0.0..=LONGEST_US).contains(&point.us));
    if points.len() > 1 && (first.share != 0.0 || last.share != 1.0) {
        return Some("shares must go from 0 to 1".into());
    }
    (!rising || !sane).then(|| "shares and latencies must increase, from 0 to 1e9 us".into())
}

/// Draws a latency, interpolating linearly between the points.
pub(crate) fn draw(points: &[Quantile], chance: &mut Random) -> Nanos {
    let share = chance.unit();
    let after = points.partition_point(|point| point.share <= share);
    let us = match (after.checked_sub(1).and_then(|at| points.get(at)), points.get(after)) {
        (Some(low), Some(high)) => {
            let part = (share - low.share) / (high.share - low.share);
            low.us + part * (high.us - low.us)
        }
        (Some(only), None) | (None, Some(only)) => only.us,
        (None, None) => 0.0,
    };
    Nanos::new((us * 1000.0).round() as u64)
}

/// A limit with its burst: two buckets, one for the sustained rate and one for the rate while the
/// burst lasts.
#[derive(Clone, Debug)]
struct Meter {
    sustained: Tokens,
    peak: Option<Tokens>,
}

impl Meter {
    /// A limit whose unit is divided into `parts` parts.
    fn new(limit: Limit, parts: u64) -> Self {
        let scaled = |rate: u64| rate.saturating_mul(parts);
        let peak = limit.burst_rate.map(|rate| Tokens::new(scaled(rate), 0));
        Self { sustained: Tokens::new(scaled(limit.rate), scaled(limit.burst)), peak }
    }

    fn take(&mut self, now: Nanos, tokens: u64) -> Nanos {
        let start = self.sustained.take(now, tokens);
        self.peak.as_mut().map_or(start, |peak| peak.take(start, tokens))
    }
}

/// Neighbouring requests that count as one.
#[derive(Clone, Copy, Debug)]
struct Run {
    op: Op,
    /// The sector behind the last of them.
    end: Lba,
    /// Number of bytes from the first to the last.
    bytes: u64,
    /// The time at which the limit on requests let the last of them begin.
    started: Nanos,
    /// The completion of the last of them: a later request is not merged.
    done: Nanos,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Volume {
    spec: VolumeSpec,
    iops: Meter,
    bandwidth: Meter,
    /// Bytes per second of one request's own transfer.
    wire: u64,
    /// Cost of a write in `iops`, in parts.
    write_parts: u64,
    chance: Random,
    requests: InFlight,
    /// The requests with which the next one may be merged.
    run: Option<Run>,
}

impl Volume {
    /// A volume that has rested: its bursts are full.
    #[must_use]
    pub fn new(spec: VolumeSpec) -> Self {
        Self {
            iops: Meter::new(spec.iops, PARTS),
            bandwidth: Meter::new(spec.bandwidth, 1),
            wire: spec.bandwidth.burst_rate.unwrap_or(spec.bandwidth.rate).max(1),
            write_parts: (spec.write_cost * PARTS as f64).round() as u64,
            chance: Random::new(spec.seed),
            spec,
            requests: InFlight::default(),
            run: None,
        }
    }

    /// The time at which a request that arrives at `at` is done.
    pub(crate) fn completion(&mut self, at: Nanos, request: Request) -> Nanos {
        let bytes = u64::from(request.sectors) * SECTOR;
        let run = self.merged_with(at, request, bytes);
        let mut started = at;
        let done = match request.op {
            Op::Read => {
                let latency = draw(&self.spec.read_latency, &mut self.chance);
                started = self.start(at, run, bytes, PARTS);
                self.transfer(started, bytes) + latency.get()
            }
            Op::Write => {
                let latency = draw(&self.spec.write_latency, &mut self.chance);
                started = self.start(at, run, bytes, self.write_parts);
                let done = self.transfer(started, bytes) + latency.get();
                self.requests.wrote(done);
                done
            }
            Op::Flush => {
                let flush = (self.spec.flush_us * 1000.0) as u64;
                at.max(self.requests.all_stable()) + flush
            }
        };
        let end = request.at + u64::from(request.sectors);
        let is_mergeable =
            request.op != Op::Flush && self.spec.merge_from.is_some_and(|least| bytes >= least);
        let bytes = run.map_or(0, |run| run.bytes) + bytes;
        self.run = is_mergeable.then_some(Run { op: request.op, end, bytes, started, done });
        done
    }

    /// The run with which a request is merged: it ends where the request begins, and its last
    /// request has not been served.
    fn merged_with(&self, at: Nanos, request: Request, bytes: u64) -> Option<Run> {
        let is_large = self.spec.merge_from.is_some_and(|least| bytes >= least);
        let merges = |run: &Run| run.op == request.op && run.end == request.at && at < run.done;
        self.run.filter(|run| is_large && merges(run))
    }

    /// The time at which the limit on requests lets a request begin: each `io_size` that begins in
    /// it costs `parts`. A merged request begins with its run.
    fn start(&mut self, at: Nanos, run: Option<Run>, bytes: u64, parts: u64) -> Nanos {
        let units = |bytes: u64| bytes.div_ceil(self.spec.io_size);
        let Some(run) = run else { return self.iops.take(at, units(bytes).max(1) * parts) };
        match units(run.bytes + bytes) - units(run.bytes) {
            0 => at.max(run.started),
            more => self.iops.take(at, more * parts),
        }
    }

    /// The time at which the last byte of a request that begins at `started` is transferred,
    /// without latency.
    fn transfer(&mut self, started: Nanos, bytes: u64) -> Nanos {
        let started = self.bandwidth.take(started, bytes);
        let wire = u128::from(bytes) * 1_000_000_000 / u128::from(self.wire);
        started + u64::try_from(wire).unwrap_or(u64::MAX)
    }
}

impl DeviceModel for Volume {
    fn capacity(&self) -> Option<u64> {
        self.spec.sectors
    }

    fn submit(&mut self, at: Nanos, tag: Tag, request: Request) -> Result<(), Refused> {
        check(request, self.spec.sectors)?;
        let at = self.requests.arrive(at);
        let done = self.completion(at, request);
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

    fn plain() -> VolumeSpec {
        let point = |us| vec![Quantile { share: 1.0, us }];
        VolumeSpec {
            sectors: Some(1 << 20),
            iops: Limit { rate: 1000, burst: 0, burst_rate: None },
            bandwidth: Limit { rate: 100 << 20, burst: 0, burst_rate: None },
            write_cost: 1.0,
            io_size: 256 << 10,
            merge_from: None,
            read_latency: point(500.0),
            write_latency: point(800.0),
            flush_us: 50.0,
            seed: 0,
        }
    }

    fn completions(volume: &mut Volume) -> Vec<(u64, u64)> {
        let mut list = Vec::new();
        while let Some(done) = volume.advance(Nanos::new(u64::MAX)) {
            list.push((done.tag.0, done.at.get()));
        }
        list
    }

    #[test]
    fn a_read_alone_takes_latency_and_transfer() {
        let mut volume = Volume::new(plain());
        let done = volume.serve(Nanos::new(7), Request::read(Lba::ZERO, 2048)).unwrap();
        // 1 MiB at 100 MiB/s, and half a millisecond.
        assert_eq!(done.get(), 7 + 10_000_000 + 500_000);
        assert_eq!(volume.busy().get(), done.get() - 7);
    }

    #[test]
    fn the_request_limit_spaces_small_reads() {
        let mut volume = Volume::new(plain());
        for tag in 0..3 {
            volume.submit(Nanos::ZERO, Tag(tag), Request::read(Lba::ZERO, 1)).unwrap();
        }
        assert_eq!(volume.in_flight(), 3);
        let wire = 512 * 1_000_000_000 / (100 << 20);
        let at = |n: u64| (n, n * 1_000_000 + 500_000 + wire);
        assert_eq!(completions(&mut volume), [at(0), at(1), at(2)]);
    }

    #[test]
    fn writes_may_take_less_of_the_limit_than_reads() {
        let mut volume = Volume::new(VolumeSpec { write_cost: 0.5, ..plain() });
        for tag in 0..4 {
            let request = if tag < 2 { Request::write } else { Request::read };
            volume.submit(Nanos::ZERO, Tag(tag), request(Lba::ZERO, 1)).unwrap();
        }
        let wire = 512 * 1_000_000_000 / (100 << 20);
        let at = |tag: u64, start: u64| (tag, start + wire);
        // Half a millisecond after a write, a whole one after a read.
        let (writes, reads) = ([800_000, 1_300_000], [1_500_000, 2_500_000]);
        let expected = [at(0, writes[0]), at(1, writes[1]), at(2, reads[0]), at(3, reads[1])];
        assert_eq!(completions(&mut volume), expected);
    }

    #[test]
    fn large_requests_count_by_their_size() {
        let mut volume = Volume::new(plain());
        // Four times 256 KiB: four requests in the one limit, 1 MiB in the other.
        volume.submit(Nanos::ZERO, Tag(0), Request::read(Lba::ZERO, 2048)).unwrap();
        let next = volume.serve_behind();
        assert_eq!(next, 10_000_000 + 500_000 + 512 * 1_000_000_000 / (100 << 20));
    }

    /// Eight sequential requests of 32 KiB count as one, eight random ones as eight, and so do
    /// smaller ones and those that follow one after the other (Amazon EBS, *I/O characteristics*).
    #[test]
    fn neighbours_that_wait_together_count_as_one() {
        let spec = VolumeSpec {
            merge_from: Some(32 << 10),
            bandwidth: Limit { rate: 1 << 40, burst: 0, burst_rate: None },
            ..plain()
        };
        // Completion of the last, in tenths of a millisecond, without the microseconds of transfer.
        let last = |count: u64, sectors: u32, step: u64, apart: u64| {
            let mut volume = Volume::new(spec.clone());
            for n in 0..count {
                let request = Request::read(Lba::new(n * step), sectors);
                volume.submit(Nanos::new(n * apart), Tag(n), request).unwrap();
            }
            completions(&mut volume).last().unwrap().1 / 100_000
        };
        assert_eq!(last(8, 64, 64, 0), 5, "32 KiB, sequential");
        assert_eq!(last(8, 64, 1000, 0), 75, "32 KiB, random");
        assert_eq!(last(8, 8, 8, 0), 75, "4 KiB, sequential");
        // Two pieces of 256 KiB, the second of which waits for the limit.
        assert_eq!(last(8, 128, 128, 0), 15, "64 KiB, sequential");
        assert_eq!(last(2, 64, 64, 400_000), 9, "the second while the first waits");
        assert_eq!(last(2, 64, 64, 600_000), 15, "the second after the first");
    }

    impl Volume {
        /// Completion of a small read that was submitted right after another.
        fn serve_behind(&mut self) -> u64 {
            self.submit(Nanos::ZERO, Tag(9), Request::read(Lba::ZERO, 1)).unwrap();
            completions(self).iter().find(|done| done.0 == 9).unwrap().1
        }
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it() {
        let mut volume = Volume::new(plain());
        volume.submit(Nanos::ZERO, Tag(0), Request::write(Lba::ZERO, 2048)).unwrap();
        volume.submit(Nanos::new(1), Tag(1), Request::flush()).unwrap();
        volume.submit(Nanos::new(2), Tag(2), Request::write(Lba::ZERO, 1)).unwrap();
        let list = completions(&mut volume);
        assert_eq!(list[0], (0, 10_800_000));
        // A small write that came later is done earlier, and is not waited for.
        assert_eq!(list[2], (1, 10_850_000));
        assert_eq!(list[1].0, 2);
    }

    #[test]
    fn a_burst_runs_at_its_own_rate_until_it_is_spent() {
        let mut spec = plain();
        spec.iops = Limit { rate: 100, burst: 50, burst_rate: Some(1000) };
        let mut volume = Volume::new(spec);
        for tag in 0..100 {
            volume.submit(Nanos::ZERO, Tag(tag), Request::read(Lba::ZERO, 1)).unwrap();
        }
        let list = completions(&mut volume);
        let gap = |n: usize| list[n + 1].1 - list[n].1;
        assert_eq!(gap(10), 1_000_000);
        assert_eq!(gap(90), 10_000_000);
    }

    #[test]
    fn latencies_follow_their_distribution() {
        let points = [(0.0, 100.0), (0.5, 200.0), (0.99, 1000.0), (1.0, 5000.0)];
        let points: Vec<Quantile> =
            points.map(|(share, us)| Quantile { share, us }).into_iter().collect();
        let mut chance = Random::new(3);
        let mut drawn: Vec<u64> =
            (0..100_000).map(|_| draw(&points, &mut chance).get() / 1000).collect();
        drawn.sort_unstable();
        assert!(drawn[0] >= 100 && drawn[99_999] <= 5000);
        assert!(drawn[50_000].abs_diff(200) < 4, "{}", drawn[50_000]);
        assert!(drawn[98_000].abs_diff(983) < 15, "{}", drawn[98_000]);
        assert!(drawn[99_500] > 1500, "{}", drawn[99_500]);
    }

    #[test]
    fn what_lies_past_the_end_is_refused() {
        let mut volume = Volume::new(plain());
        let past = Request::read(Lba::new((1 << 20) - 1), 2);
        assert!(matches!(volume.serve(Nanos::ZERO, past), Err(Refused::PastTheEnd { .. })));
        assert_eq!(volume.serve(Nanos::ZERO, Request::read(Lba::ZERO, 0)), Err(Refused::Empty));
        assert_eq!(volume.in_flight(), 0);
    }
}
