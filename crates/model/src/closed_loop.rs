//! A closed loop: a job keeps a fixed number of requests in flight and measures how long each takes,
//! as fio does with `iodepth`.
//!
//! The job is one thread, as fio's with asynchronous I/O. It needs [`thinktime`](Job::thinktime) for
//! each request; while it is busy with one, others that have completed wait for it, and that wait is
//! part of their latency. Where the thread is the bottleneck, a model is therefore not faster than
//! the measured host was.
//!
//! ```
//! use seekless_model::closed_loop::{Job, Pattern};
//! use seekless_model::preset;
//!
//! let job = Job { iodepth: 8, ..Job::new(Pattern::RandRead) };
//! let outcome = job.run(preset("gp3")?.as_mut())?;
//! // The volume's limit.
//! assert!((outcome.iops() / 3000.0 - 1.0).abs() < 0.01);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::device::{DeviceModel, Refused};
use crate::random::Random;
use crate::request::{Completion, Request, Tag};
use seekless_units::{Lba, Nanos, SECTOR};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// The addresses and the operation of a job's requests: fio's `rw`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Reads at random addresses.
    RandRead,
    /// Writes at random addresses.
    RandWrite,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::RandRead, Self::RandWrite];

    /// fio's word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
        }
    }

    const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite)
    }

    const fn request(self, at: Lba, sectors: u32) -> Request {
        match self {
            Self::Read | Self::RandRead => Request::read(at, sectors),
            Self::Write | Self::RandWrite => Request::write(at, sectors),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Maximum number of requests in flight.
pub const DEEPEST: u32 = 1 << 16;
/// Maximum number of requests of a job, whose latencies are kept in memory.
pub const LONGEST: u64 = 10_000_000;
/// Maximum length of a request, in bytes.
pub(crate) const LARGEST: u32 = 1 << 30;
/// Maximum time of the job's thread for a request, in nanoseconds: a second.
const SLOWEST: u64 = 1_000_000_000;
/// The length, in bytes, over which a job runs on a device without a size.
const WITHOUT_SIZE: u64 = 1 << 40;

/// Whether a request may have this length, in bytes.
pub(crate) const fn is_length(bs: u32) -> bool {
    bs > 0 && bs <= LARGEST && (bs as u64).is_multiple_of(SECTOR)
}

/// The reason why a job cannot run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JobError {
    /// The length of a request is not a multiple of a sector, or out of range.
    #[error("bs: {0} is not a multiple of 512 from 512 to {LARGEST}")]
    BlockSize(u32),
    /// The number of requests in flight is out of range.
    #[error("iodepth: {0} is not in the range 1 to {DEEPEST}")]
    Depth(u32),
    /// The number of requests is out of range.
    #[error("number_ios: {0} is not in the range 1 to {LONGEST}")]
    Requests(u64),
    /// The time of the job's thread for a request is out of range.
    #[error("thinktime: {0} ns is more than a second")]
    ThinkTime(u64),
    /// The device, or the part of it to which the job is limited, is shorter than a request.
    #[error("size: {size} bytes are less than a request of {bs}")]
    Small {
        /// Bytes over which the job would run.
        size: u64,
        /// Bytes in a request.
        bs: u32,
    },
    /// The device refused a request.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A job, with fio's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Addresses and operation.
    pub rw: Pattern,
    /// Bytes in a request: a multiple of 512. Addresses are multiples of it.
    pub bs: u32,
    /// Requests in flight, from 1 to [`DEEPEST`].
    pub iodepth: u32,
    /// Time of the job's thread for a request, between the completion that it takes in and the
    /// submission that follows: system calls and fio's own work. At most a second.
    pub thinktime: Nanos,
    /// Bytes from the beginning of the device over which the job runs; `None` for the whole device.
    pub size: Option<u64>,
    /// Number of requests, from 1 to [`LONGEST`].
    pub number_ios: u64,
    /// Seed of the random addresses.
    pub randseed: u64,
}

impl Job {
    /// A job of 100,000 requests of 4 KiB, one at a time, by a thread that needs no time.
    #[must_use]
    pub const fn new(rw: Pattern) -> Self {
        Self {
            rw,
            bs: 4096,
            iodepth: 1,
            thinktime: Nanos::ZERO,
            size: None,
            number_ios: 100_000,
            randseed: 1,
        }
    }

    /// Runs the job on a device at rest, from time zero.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn run(&self, device: &mut dyn DeviceModel) -> Result<Outcome, JobError> {
        let mut thread = Thread::new(self, device)?;
        let depth = u64::from(self.iodepth).min(self.number_ios);
        for slot in 0..depth {
            thread.submit(slot)?;
        }
        let mut latencies = Vec::with_capacity(self.number_ios as usize);
        let mut left = self.number_ios - depth;
        while let Some((slot, latency)) = thread.take_in() {
            latencies.push(latency);
            if left > 0 {
                left -= 1;
                thread.submit(slot)?;
            }
        }
        debug_assert_eq!(latencies.len() as u64, self.number_ios, "every request completes");
        latencies.sort_unstable();
        Ok(Outcome { bs: self.bs, elapsed: thread.now, latencies })
    }

    /// The number of requests at different addresses that fit on the device.
    fn places(&self, device: &dyn DeviceModel) -> Result<u64, JobError> {
        if !(1..=DEEPEST).contains(&self.iodepth) {
            return Err(JobError::Depth(self.iodepth));
        }
        if !(1..=LONGEST).contains(&self.number_ios) {
            return Err(JobError::Requests(self.number_ios));
        }
        if self.thinktime.get() > SLOWEST {
            return Err(JobError::ThinkTime(self.thinktime.get()));
        }
        if !is_length(self.bs) {
            return Err(JobError::BlockSize(self.bs));
        }
        let there =
            device.capacity().map_or(WITHOUT_SIZE, |sectors| sectors.saturating_mul(SECTOR));
        let size = self.size.map_or(there, |size| size.min(there));
        match size / u64::from(self.bs) {
            0 => Err(JobError::Small { size, bs: self.bs }),
            places => Ok(places),
        }
    }
}

/// The job's thread at work.
struct Thread<'a> {
    job: &'a Job,
    device: &'a mut dyn DeviceModel,
    /// The time up to which the thread has run.
    now: Nanos,
    /// The time of submission of the request in each slot.
    submitted: Vec<Nanos>,
    /// Completions that wait for the thread, in order.
    completed: VecDeque<Completion>,
    chance: Random,
    /// Number of different addresses.
    places: u64,
    /// Number of requests so far.
    count: u64,
}

impl<'a> Thread<'a> {
    fn new(job: &'a Job, device: &'a mut dyn DeviceModel) -> Result<Self, JobError> {
        let places = job.places(device)?;
        Ok(Self {
            job,
            device,
            now: Nanos::ZERO,
            submitted: vec![Nanos::ZERO; job.iodepth as usize],
            completed: VecDeque::new(),
            chance: Random::new(job.randseed),
            places,
            count: 0,
        })
    }

    /// Prepares and submits a request.
    fn submit(&mut self, slot: u64) -> Result<(), JobError> {
        self.now += self.job.thinktime.get();
        // The device must not be ahead of the submission, nor behind it.
        while let Some(done) = self.device.advance(self.now) {
            self.completed.push_back(done);
        }
        let random = self.job.rw.is_random();
        let place = if random { self.chance.below(self.places) } else { self.count % self.places };
        self.count += 1;
        let sectors = self.job.bs / SECTOR as u32;
        let request = self.job.rw.request(Lba::new(place * u64::from(sectors)), sectors);
        self.submitted[slot as usize] = self.now;
        self.device.submit(self.now, Tag(slot), request)?;
        Ok(())
    }

    /// Waits for the next completion. Returns its slot and its latency.
    fn take_in(&mut self) -> Option<(u64, Nanos)> {
        let waiting = self.completed.pop_front();
        let done = waiting.or_else(|| self.device.advance(Nanos::new(u64::MAX)))?;
        self.now = self.now.max(done.at);
        let since = self.submitted[done.tag.0 as usize];
        Some((done.tag.0, Nanos::new(self.now.saturating_since(since))))
    }
}

/// The measurements of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    bs: u32,
    elapsed: Nanos,
    /// In rising order; never empty.
    latencies: Vec<Nanos>,
}

impl Outcome {
    /// Number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.latencies.len() as u64
    }

    /// Time from the start to the last completion.
    #[must_use]
    pub fn elapsed(&self) -> Nanos {
        self.elapsed
    }

    /// Requests per second; infinite if they took no time.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.requests() as f64 * 1e9 / self.elapsed.get() as f64
    }

    /// Bytes per second; infinite if they took no time.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.iops() * f64::from(self.bs)
    }

    /// Mean latency, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        let sum: u128 = self.latencies.iter().map(|latency| u128::from(latency.get())).sum();
        sum as f64 / 1e3 / self.requests() as f64
    }

    /// The latency, in microseconds, at or below which this share of the requests is, from 0 to 1
    /// (nearest rank).
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let rank = (share * self.requests() as f64).ceil() as usize;
        let at = rank.clamp(1, self.latencies.len()) - 1;
        self.latencies[at].get() as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::{from_toml, preset};

    /// A volume that takes 100 us for every request, and has no limit that matters.
    fn plain() -> Box<dyn DeviceModel> {
        let text = "
            name = 'plain'
            summary = ''
            [volume]
            iops = { rate = 1000000000 }
            bandwidth = { rate = 1000000000000000 }
            io_size = 4096
            read_latency = [{ share = 1.0, us = 100.0 }]
            write_latency = [{ share = 1.0, us = 200.0 }]";
        from_toml(text, "plain").unwrap()
    }

    fn run(job: Job) -> Outcome {
        job.run(plain().as_mut()).unwrap()
    }

    #[test]
    fn requests_in_flight_multiply_the_rate_and_not_the_latency() {
        for iodepth in [1, 8, 32] {
            let job = Job { iodepth, number_ios: 3200, ..Job::new(Pattern::RandRead) };
            let outcome = run(job);
            assert_eq!(outcome.requests(), 3200);
            assert!((outcome.mean_us() - 100.0).abs() < 0.1, "{}", outcome.mean_us());
            let expected = f64::from(iodepth) * 10_000.0;
            assert!((outcome.iops() / expected - 1.0).abs() < 1e-3, "{}", outcome.iops());
            let bytes = outcome.bandwidth() / outcome.iops();
            assert!((bytes - 4096.0).abs() < 1e-6, "{bytes}");
        }
        let writes = run(Job { number_ios: 10, ..Job::new(Pattern::Write) });
        assert!((writes.quantile_us(0.99) - 200.0).abs() < 0.1);
    }

    /// The bottleneck is the thread: 50 us for each request. Completions wait for it.
    #[test]
    fn one_thread_prepares_one_request_at_a_time() {
        let thinktime = Nanos::new(50_000);
        let job = Job { thinktime, iodepth: 8, number_ios: 8000, ..Job::new(Pattern::RandRead) };
        let outcome = run(job);
        assert!((outcome.iops() / 20_000.0 - 1.0).abs() < 1e-2, "{}", outcome.iops());
        // Of eight turns of 50 us, one is before the submission.
        assert!((outcome.quantile_us(0.5) - 350.0).abs() < 0.1, "{}", outcome.quantile_us(0.5));
        let alone = run(Job { iodepth: 1, ..job });
        assert!((alone.iops() - 1e6 / 150.0).abs() < 10.0, "{}", alone.iops());
        assert!((alone.mean_us() - 100.0).abs() < 0.1, "{}", alone.mean_us());
    }

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let latencies = (1..=100).map(|us| Nanos::new(us * 1000)).collect();
        let outcome = Outcome { bs: 512, elapsed: Nanos::new(1), latencies };
        let found = [0.0, 0.005, 0.5, 0.99, 0.995, 1.0].map(|share| outcome.quantile_us(share));
        assert_eq!(found, [1.0, 1.0, 50.0, 99.0, 100.0, 100.0]);
        assert!((outcome.mean_us() - 50.5).abs() < 1e-9);
    }

    #[test]
    fn a_seed_gives_the_same_run_on_every_model() {
        for name in ["cheetah-9lp", "nvme-ssd", "gp3", "lazy-gp3", "null"] {
            for rw in Pattern::ALL {
                let job = Job { iodepth: 4, number_ios: 500, bs: 8192, ..Job::new(rw) };
                let run = |job: Job| job.run(preset(name).unwrap().as_mut()).unwrap();
                assert_eq!(run(job), run(job), "{name} {rw}");
            }
        }
        let place = |randseed| {
            let job = Job { randseed, number_ios: 50, ..Job::new(Pattern::RandRead) };
            job.run(preset("cheetah-9lp").unwrap().as_mut()).unwrap()
        };
        assert_ne!(place(1), place(2));
    }

    #[test]
    fn impossible_jobs_are_refused() {
        let good = Job::new(Pattern::Read);
        let error = |job: Job| job.run(preset("cheetah-9lp").unwrap().as_mut()).unwrap_err();
        assert_eq!(error(Job { bs: 1000, ..good }), JobError::BlockSize(1000));
        assert_eq!(error(Job { bs: 0, ..good }), JobError::BlockSize(0));
        assert_eq!(error(Job { iodepth: 0, ..good }), JobError::Depth(0));
        assert_eq!(error(Job { number_ios: 0, ..good }), JobError::Requests(0));
        let small = JobError::Small { size: 512, bs: 4096 };
        assert_eq!(error(Job { size: Some(512), ..good }), small);
        let thinktime = Nanos::new(2_000_000_000);
        assert_eq!(error(Job { thinktime, ..good }), JobError::ThinkTime(2_000_000_000));
    }
}
