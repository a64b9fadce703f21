//! A log of the requests to a disk.

use super::Kind;
use serde_json::json;
use std::io::{self, Write};

/// A line of JSON for each request, in order of arrival.
pub(crate) struct Log {
    out: Box<dyn Write + Send>,
    sequence: u64,
    failed: Option<io::Error>,
}

/// The contents of a line.
pub(crate) struct Entry<'a> {
    pub(crate) phase: &'a str,
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) seek_distance_bytes: u64,
    pub(crate) submitted_ns: u64,
    pub(crate) completed_ns: u64,
}

impl Log {
    pub(crate) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, sequence: 0, failed: None }
    }

    pub(crate) fn write(&mut self, entry: &Entry<'_>) {
        let line = json!({
            "sequence": self.sequence,
            "phase": entry.phase,
            "op": entry.kind.name(),
            "offset": entry.offset,
            "bytes": entry.bytes,
            "seek_distance_bytes": entry.seek_distance_bytes,
            "submitted_ns": entry.submitted_ns,
            "completed_ns": entry.completed_ns,
        });
        self.sequence += 1;
        if let Err(error) = writeln!(self.out, "{line}") {
            self.failed.get_or_insert(error);
        }
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error);
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}
