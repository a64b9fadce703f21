//! A solid-state drive: dies behind channels, pages that are read and programmed, blocks that are
//! erased as a whole.
//!
//! The location of a page depends on the time of its write, not on its address (Bouganim, Jónsson
//! and Bonnet, CIDR 2009; Agrawal et al., USENIX ATC 2008), so neighbouring addresses are no
//! cheaper than distant ones; the number of dies over which a request's pages are spread determines
//! its time.

mod translation;

use crate::device::{DeviceModel, Refused, check};
use crate::in_flight::InFlight;
use crate::request::{Completion, Op, Request, Tag};
use seekless_units::{Nanos, SECTOR};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use translation::Translation;

/// The way in which the drive was filled before the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum History {
    /// Once, from the first address to the last: neighbours are on neighbouring dies.
    Sequential,
    /// Over and over, at random addresses: a page may be on any die.
    #[default]
    Random,
}

/// The figures of a solid-state drive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSpec {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Channels from the controller to the dies.
    pub channels: u32,
    /// Dies on each channel; planes count as dies.
    pub dies_per_channel: u32,
    /// Bytes in a page.
    pub page: u32,
    /// Pages in a block, which is erased as a whole.
    pub pages_per_block: u32,
    /// Fraction of the flash that the host does not see.
    pub spare: f64,
    /// Read of a page from the cells, in microseconds.
    pub read_us: f64,
    /// Program of a page into the cells, in microseconds.
    pub program_us: f64,
    /// Erase of a block, in microseconds.
    pub erase_us: f64,
    /// Bytes per second over a channel.
    pub channel_bandwidth: u64,
    /// Bytes per second to and from the host.
    pub link_bandwidth: u64,
    /// Overhead of every command, in microseconds.
    pub command_us: f64,
    /// Minimum interval between the starts of two commands in the controller, in microseconds: the
    /// inverse of the maximum number of commands per second. 0 if only cells, channels and link
    /// limit them.
    #[serde(default)]
    pub interval_us: f64,
    /// The same for writes, which take more exchanges with the host (on SATA, the drive first asks
    /// for the data of each queued write). Default: `interval_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_interval_us: Option<f64>,
    /// Number of commands that the controller processes at once; the others wait.
    pub queue_depth: u32,
    /// Bytes of writes that the drive accepts before they are programmed; 0 if a write completes
    /// only then.
    #[serde(default)]
    pub write_cache: u64,
    /// The cache survives a loss of power, so a flush has nothing to wait for.
    #[serde(default)]
    pub power_safe: bool,
    /// The way in which the drive was filled before the run.
    #[serde(default)]
    pub history: History,
}

/// Bounds within which nothing overflows and tables stay small.
const DIES: u64 = 1 << 14;
const BLOCKS: u64 = 1 << 24;
const PAGE: u32 = 1 << 24;
const LONGEST_US: f64 = 1e8;

impl SsdSpec {
    /// The first fault in the figures: key and reason.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        let not = |key, value: u64, low: u64, high: u64| {
            let why = || format!("{value} is not in the range {low} to {high}");
            (value < low || value > high).then(|| (key, why()))
        };
        let time = |key, us: f64| {
            let fine = (0.0..=LONGEST_US).contains(&us);
            (!fine).then(|| (key, format!("{us} us is not in the range 0 to {LONGEST_US}")))
        };
        let dies = u64::from(self.channels) * u64::from(self.dies_per_channel);
        let found = not("channels", self.channels.into(), 1, DIES)
            .or_else(|| not("dies_per_channel", dies, 1, DIES))
            .or_else(|| not("page", self.page.into(), SECTOR, PAGE.into()))
            .or_else(|| not("pages_per_block", self.pages_per_block.into(), 1, 1 << 16))
            .or_else(|| not("queue_depth", self.queue_depth.into(), 1, 1 << 16))
            .or_else(|| not("channel_bandwidth", self.channel_bandwidth, 1, u64::MAX))
            .or_else(|| not("link_bandwidth", self.link_bandwidth, 1, u64::MAX))
            .or_else(|| time("read_us", self.read_us))
            .or_else(|| time("program_us", self.program_us))
            .or_else(|| time("erase_us", self.erase_us))
            .or_else(|| time("command_us", self.command_us))
            .or_else(|| time("interval_us", self.interval_us))
            .or_else(|| time("write_interval_us", self.write_interval_us.unwrap_or(0.0)));
        if found.is_some() {
            return found;
        }
        if !u64::from(self.page).is_multiple_of(SECTOR) {
            return Some(("page", format!("not a multiple of {SECTOR}")));
        }
        if !(0.01..=0.9).contains(&self.spare) {
            return Some(("spare", "must be from 0.01 to 0.9".into()));
        }
        let block = u64::from(self.page) * u64::from(self.pages_per_block) / SECTOR;
        let blocks = (self.sectors / block.max(1)).max(dies);
        not("sectors", self.sectors, block * dies, u64::MAX >> 16).or_else(|| {
            not("sectors", blocks, 1, BLOCKS).map(|(key, _)| (key, "too many blocks".into()))
        })
    }
}

/// A solid-state drive.
#[derive(Clone, Debug)]
pub struct Ssd {
    spec: SsdSpec,
    translation: Translation,
    dies: Vec<Nanos>,
    /// The page in each die's register, and since when: it can be read again without the cells.
    registers: Vec<Option<(u64, Nanos)>>,
    channels: Vec<Nanos>,
    link: Nanos,
    /// The time at which the controller can start the next command.
    controller: Nanos,
    /// Completion times of the commands in progress, in no order.
    working: Vec<Nanos>,
    /// The pages in the write cache: the time at which each one is programmed.
    cached: VecDeque<Nanos>,
    programmed: Nanos,
    /// Bytes of writes smaller than a page that wait in the cache until they fill one, and the last
    /// page to which they belong.
    gathered: (u64, u64),
    requests: InFlight,
}

fn nanos(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

fn transfer(bytes: u64, bandwidth: u64) -> u64 {
    let time = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}

impl Ssd {
    /// A drive that was filled according to its history and has rested since.
    #[must_use]
    pub fn new(spec: SsdSpec) -> Self {
        let dies = spec.channels as usize * spec.dies_per_channel as usize;
        Self {
            translation: Translation::new(&spec),
            dies: vec![Nanos::ZERO; dies],
            registers: vec![None; dies],
            controller: Nanos::ZERO,
            gathered: (0, 0),
            channels: vec![Nanos::ZERO; spec.channels as usize],
            link: Nanos::ZERO,
            working: Vec::new(),
            cached: VecDeque::new(),
            programmed: Nanos::ZERO,
            requests: InFlight::default(),
            spec,
        }
    }

    /// The pages of a request, each with the number of bytes requested of it.
    fn pages(&self, request: Request) -> impl Iterator<Item = (u64, u64)> + use<> {
        let page = u64::from(self.spec.page);
        let first = request.at.to_bytes().get();
        let end = request.end().to_bytes().get();
        (first / page..end.div_ceil(page)).map(move |number| {
            let from = first.max(number * page);
            (number, end.min((number + 1) * page) - from)
        })
    }

    /// Minimum interval between the start of a command and that of the next one.
    fn interval(&self, op: Op) -> u64 {
        let of_writes = self.spec.write_interval_us.filter(|_| op == Op::Write);
        nanos(of_writes.unwrap_or(self.spec.interval_us))
    }

    /// The time at which the controller starts a command.
    fn take_up(&mut self, at: Nanos, op: Op) -> Nanos {
        self.working.retain(|&done| done > at);
        let depth = self.spec.queue_depth as usize;
        let mut start = at;
        if self.working.len() >= depth {
            self.working.sort_unstable();
            let over = self.working.len() - depth;
            start = self.working[over];
            self.working.drain(..=over);
        }
        start = start.max(self.controller);
        self.controller = start + self.interval(op);
        start + nanos(self.spec.command_us)
    }

    fn channel_of(&self, die: usize) -> usize {
        die % self.channels.len()
    }

    /// Reads a page from its die. Returns the time at which its bytes are in the controller.
    fn read_page(&mut self, now: Nanos, page: u64, bytes: u64) -> Nanos {
        let die = self.translation.die(page);
        let sensed = match self.registers[die] {
            Some((held, since)) if held == page => since.max(now),
            _ => self.dies[die].max(now) + nanos(self.spec.read_us),
        };
        self.registers[die] = Some((page, sensed));
        let channel = self.channel_of(die);
        let moved = self.channels[channel].max(sensed);
        let moved = moved + transfer(bytes, self.spec.channel_bandwidth);
        self.channels[channel] = moved;
        self.dies[die] = self.dies[die].max(moved);
        moved
    }

    /// Programs a page at the drive's next location, with the garbage collection that this needs.
    /// Returns the time at which it is done.
    fn program_page(&mut self, now: Nanos, page: u64) -> Nanos {
        let written = self.translation.write(page);
        let die = written.die;
        self.registers[die] = None;
        let channel = self.channel_of(die);
        let moved = self.channels[channel].max(now);
        let moved = moved + transfer(self.spec.page.into(), self.spec.channel_bandwidth);
        self.channels[channel] = moved;
        let copy = nanos(self.spec.read_us) + nanos(self.spec.program_us);
        let collected = written.copied * copy + written.erased * nanos(self.spec.erase_us);
        let ready = (self.dies[die] + collected).max(moved);
        self.dies[die] = ready + nanos(self.spec.program_us);
        self.programmed = self.programmed.max(self.dies[die]);
        self.dies[die]
    }

    fn read(&mut self, start: Nanos, request: Request) -> Nanos {
        let mut there = start;
        for (page, bytes) in self.pages(request) {
            there = there.max(self.read_page(start, page, bytes));
        }
        self.over_link(there, request)
    }

    /// The time at which a request's bytes have been transferred, the last of them being available
    /// at `now`: the link works while pages come in, and adds only the last one's time.
    fn over_link(&mut self, now: Nanos, request: Request) -> Nanos {
        let bytes = u64::from(request.sectors) * SECTOR;
        let last = transfer(bytes.min(self.spec.page.into()), self.spec.link_bandwidth);
        let all = transfer(bytes, self.spec.link_bandwidth);
        self.link = (self.link + all).max(now + last);
        self.link
    }

    fn write(&mut self, start: Nanos, request: Request) -> Nanos {
        let taken = self.over_link(start, request);
        let page_len = u64::from(self.spec.page);
        let room = (self.spec.write_cache / page_len) as usize;
        let waits = room == 0 || request.durable && !self.spec.power_safe;
        let mut done = taken;
        for (page, bytes) in self.pages(request) {
            let mut now = taken;
            while self.cached.front().is_some_and(|&first| first <= now) {
                self.cached.pop_front();
            }
            if room > 0 && self.cached.len() >= room {
                now = self.cached.pop_front().unwrap_or(now).max(now);
            }
            if bytes < page_len && !waits {
                done = done.max(now);
                self.gather(now, page, bytes);
                continue;
            }
            if bytes < page_len {
                // The rest of the page is read first.
                now = self.read_page(now, page, page_len);
            }
            let programmed = self.program_page(now, page);
            if waits {
                done = done.max(programmed);
            } else {
                done = done.max(now);
                self.cache(programmed);
            }
        }
        done
    }

    /// Adds a write smaller than a page to those that wait in the cache, and programs a page when
    /// they fill one: the drive maps smaller units than it programs. Copies by garbage collection
    /// are counted in pages, so with many small writes they are underestimated.
    fn gather(&mut self, now: Nanos, page: u64, bytes: u64) {
        let page_len = u64::from(self.spec.page);
        self.gathered = (self.gathered.0 + bytes, page);
        if self.gathered.0 >= page_len {
            self.gathered.0 -= page_len;
            let programmed = self.program_page(now, page);
            self.cache(programmed);
        }
    }

    /// Records that a page is in the cache until it is programmed.
    fn cache(&mut self, programmed: Nanos) {
        let at = self.cached.partition_point(|&other| other <= programmed);
        self.cached.insert(at, programmed);
    }

    /// Programs the contents of the cache. Returns the time at which that is done.
    fn flush(&mut self, start: Nanos) -> Nanos {
        let (bytes, page) = std::mem::take(&mut self.gathered);
        if bytes > 0 {
            let programmed = self.program_page(start, page);
            self.cache(programmed);
        }
        start.max(self.programmed)
    }
}

impl DeviceModel for Ssd {
    fn capacity(&self) -> Option<u64> {
        Some(self.spec.sectors)
    }

    fn submit(&mut self, at: Nanos, tag: Tag, request: Request) -> Result<(), Refused> {
        check(request, self.capacity())?;
        let at = self.requests.arrive(at);
        let start = self.take_up(at, request.op);
        let done = match request.op {
            Op::Read => self.read(start, request),
            Op::Write => self.write(start, request),
            Op::Flush if self.spec.power_safe => start,
            Op::Flush => self.flush(start),
        };
        self.working.push(done);
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
mod tests;
