//! Counts of requests to a disk, by phase.

use super::Kind;
use seekless_report::table::{Figure, Table};
use seekless_units::ByteLen;
use serde_json::{Value, json};

/// Counts of requests to a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes of the write cache.
    pub flushes: u64,
    /// Ranges discarded or zeroed.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded or zeroed.
    pub discarded_bytes: u64,
    /// Reads and writes that do not begin where the previous one ended.
    pub seeks: u64,
    /// Sum of the distances in bytes from the end of an access to the beginning of the next.
    pub seek_distance_bytes: u64,
    /// Maximum number of reads, writes and flushes in flight at once.
    pub most_in_flight: u64,
    /// Busy time of the modelled device in nanoseconds.
    pub busy_ns: u64,
    /// Nanoseconds on the clock of the modelled device.
    pub elapsed_ns: u64,
    /// Failed accesses.
    pub errors: u64,
}

impl Counters {
    pub(crate) fn count(&mut self, kind: Kind, bytes: u64) {
        match kind {
            Kind::Read => {
                self.reads += 1;
                self.read_bytes += bytes;
            }
            Kind::Write => {
                self.writes += 1;
                self.written_bytes += bytes;
            }
            Kind::Flush => self.flushes += 1,
            Kind::Discard => {
                self.discards += 1;
                self.discarded_bytes += bytes;
            }
        }
    }

    /// Whether there were no requests.
    pub(crate) fn is_idle(&self) -> bool {
        self.reads + self.writes + self.flushes + self.discards == 0
    }

    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.discarded_bytes += other.discarded_bytes;
        self.seeks += other.seeks;
        self.seek_distance_bytes += other.seek_distance_bytes;
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
        self.busy_ns += other.busy_ns;
        self.elapsed_ns += other.elapsed_ns;
        self.errors += other.errors;
    }

    fn as_json(&self) -> Value {
        json!({
            "requests": self.reads + self.writes,
            "reads": self.reads,
            "writes": self.writes,
            "flushes": self.flushes,
            "discards": self.discards,
            "bytes": self.read_bytes + self.written_bytes,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "discarded_bytes": self.discarded_bytes,
            "seeks": self.seeks,
            "seek_distance_bytes": self.seek_distance_bytes,
            "most_in_flight": self.most_in_flight,
            "busy_ns": self.busy_ns,
            "busy_ms": self.busy_ns as f64 / 1e6,
            "elapsed_ns": self.elapsed_ns,
            "errors": self.errors,
        })
    }
}

/// The requests to a disk, by phase.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The modelled device.
    pub model: String,
    /// The title of the disk.
    pub image: String,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Whether requests took as long as on the device.
    pub realtime: bool,
    /// Name and counts of each phase, in their order.
    pub phases: Vec<(String, Counters)>,
}

impl Report {
    fn total(&self) -> Counters {
        let mut total = Counters::default();
        self.phases.iter().for_each(|(_, counters)| total.add(counters));
        total
    }

    /// The figures in total and of each phase.
    #[must_use]
    pub fn as_json(&self) -> Value {
        let phase = |(name, counters): &(String, Counters)| {
            let mut value = counters.as_json();
            value["name"] = name.clone().into();
            value
        };
        let mut value = self.total().as_json();
        value["model"] = self.model.clone().into();
        value["image"] = self.image.clone().into();
        value["size"] = self.size.into();
        value["realtime"] = self.realtime.into();
        value["phases"] = self.phases.iter().map(phase).collect();
        value
    }

    /// A column for each phase; with several, one more for the total.
    #[must_use]
    pub fn text(&self) -> String {
        let mut columns = self.phases.clone();
        if columns.len() > 1 {
            columns.push(("all".into(), self.total()));
        }
        let mut table = Table::new(columns.iter().map(|(name, _)| name.clone()).collect(), false);
        let mut row = |label: &str, figure: &dyn Fn(&Counters) -> Figure| {
            table.push(label, columns.iter().map(|(_, counters)| figure(counters)).collect());
        };
        let bytes = |bytes| Figure::Bytes(ByteLen::new(bytes));
        row("requests", &|c| Figure::Count(c.reads + c.writes));
        row("  reads", &|c| Figure::Count(c.reads));
        row("  writes", &|c| Figure::Count(c.writes));
        row("flushes", &|c| Figure::Count(c.flushes));
        row("discards", &|c| Figure::Count(c.discards));
        row("bytes read", &|c| bytes(c.read_bytes));
        row("bytes written", &|c| bytes(c.written_bytes));
        row("seeks", &|c| Figure::Count(c.seeks));
        row("seek distance", &|c| bytes(c.seek_distance_bytes));
        row("most in flight", &|c| Figure::Count(c.most_in_flight));
        row("busy, ms", &|c| Figure::Count((c.busy_ns + 500_000) / 1_000_000));
        row("errors", &|c| Figure::Count(c.errors));
        format!("{} on {}\n{}", self.image, self.model, table.text())
    }
}
