use super::Kind;
use serde_json::json;
use std::io::{self, Write};

/// A line of JSON for each request, in the order in which they came.
pub(super) struct Log {
    out: Box<dyn Write + Send>,
    sequence: u64,
    failed: Option<io::Error>,
}

/// What a line says.
pub(super) struct Entry<'a> {
    pub(super) phase: &'a str,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) seek_distance_bytes: u64,
    pub(super) submitted_ns: u64,
    pub(super) completed_ns: u64,
}

impl Log {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, sequence: 0, failed: None }
    }

    pub(super) fn write(&mut self, entry: &Entry<'_>) {
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

    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error);
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}
