//! Access traces: touched files and ranges, in order.
//!
//! A trace is JSON Lines: a header object, then one object an event; see
//! `docs/trace.md`. Fields and operations that are not known here are kept, so
//! a trace can pass through unharmed.

mod blocks;
mod events;
mod export;
mod packed;
mod paths;
mod prefetch_lists;
mod program;
mod quick;
mod steps;
mod strace;

pub use blocks::{BlockLog, BlockRead, read_block_log};
pub use events::{EventRef, Events, merge};
pub use export::{first_touches, write_paths, write_squashfs_sort};
pub use packed::{Packed, write_packed};
pub use paths::read_paths;
pub use prefetch_lists::{PrefetchList, Unlisted, first_files};
pub use program::Program;
pub use steps::Steps;
pub use strace::{StraceOptions, read_strace};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use seekless_units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{self, BufRead, Read, Write};

/// The version of the format that is written here.
pub const VERSION: u64 = 1;

/// The longest line of a trace, with its line feed. A small compressed file may have longer ones than
/// memory has room for.
const LONGEST_LINE: usize = 1 << 20;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It does not begin as a trace does.
    #[error("line 1: not the header of a trace")]
    Header,
    /// A line does not match the format.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// The error.
        why: String,
    },
    /// It ends within a line, or within a part that is compressed.
    #[error("line {0}: cut short")]
    CutShort(u64),
    /// It cannot be decompressed.
    #[error("line {line}: its compressed data are damaged: {why}")]
    Damaged {
        /// The first line that cannot be read.
        line: u64,
        /// The decoder's error.
        why: String,
    },
    /// The trace is of a later version of the format.
    #[error("trace format {0} is not supported (this is {VERSION})")]
    Version(u64),
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A name was looked up in its directory.
    Lookup,
    /// A file or directory was opened.
    Open,
    /// Attributes were read.
    Stat,
    /// A directory was listed.
    Readdir,
    /// A symlink's target was read.
    Readlink,
    /// A range of a file was read.
    Read,
    /// A program was started.
    Exec,
    /// A range of a file was mapped into memory.
    Mmap,
    /// A page of a mapping was touched that was not in memory.
    Fault,
    /// A range of the device was read, of no file: labels that are looked for, the
    /// bitmaps of a volume. Its path is the root's; it stays where it is in every
    /// layout of the volume.
    Device,
    /// Something not known here.
    Other(String),
}

const OPS: [(&str, Op); 10] = [
    ("lookup", Op::Lookup),
    ("open", Op::Open),
    ("stat", Op::Stat),
    ("readdir", Op::Readdir),
    ("readlink", Op::Readlink),
    ("read", Op::Read),
    ("exec", Op::Exec),
    ("mmap", Op::Mmap),
    ("fault", Op::Fault),
    ("device", Op::Device),
];

impl Op {
    /// The name in the format.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => OPS.iter().find(|(_, op)| op == known).map_or("", |(name, _)| name),
        }
    }

    /// The operation with a name of the format.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let known = OPS.iter().find(|(known, _)| *known == name).map(|(_, op)| op.clone());
        known.unwrap_or_else(|| Self::Other(name.into()))
    }
}

/// One thing that was done.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Since the start of the trace.
    pub time: Nanos,
    /// The process; 0 when not known.
    pub pid: u32,
    /// The process's name.
    pub comm: Option<String>,
    /// The operation.
    pub op: Op,
    /// Its path: from the root of the image, with a leading slash.
    pub path: Vec<u8>,
    /// First byte read or mapped.
    pub offset: u64,
    /// Bytes read or mapped; `None`: to the end.
    pub length: Option<u64>,
    /// The name was not there.
    pub missing: bool,
    /// The range came from the disk in one go, read-ahead included: nothing more is fetched along
    /// with it.
    pub fetched: bool,
    /// Fields not known here.
    pub extra: Map<String, Value>,
}

impl Event {
    /// An event without a process or range.
    #[must_use]
    pub fn new(time: Nanos, op: Op, path: Vec<u8>) -> Self {
        let extra = Map::new();
        Self {
            time,
            pid: 0,
            comm: None,
            op,
            path,
            offset: 0,
            length: None,
            missing: false,
            fetched: false,
            extra,
        }
    }

    /// The same event by a process.
    #[must_use]
    pub fn by(mut self, pid: u32) -> Self {
        self.pid = pid;
        self
    }

    /// The same event on a range.
    #[must_use]
    pub fn on(mut self, offset: u64, length: u64) -> Self {
        (self.offset, self.length) = (offset, Some(length));
        self
    }

    /// The byte behind its range, which a trace may put anywhere; `None`: to the end.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.length.map(|length| self.offset.saturating_add(length))
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(default)]
    time: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comm: Option<String>,
    op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    missing: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fetched: bool,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Line {
    fn into_event(self) -> Result<Event, String> {
        let path = match (self.path, self.path_b64) {
            (Some(path), None) => path.into_bytes(),
            (None, Some(path)) => STANDARD.decode(path).map_err(|error| error.to_string())?,
            _ => return Err("needs one of path and path_b64".into()),
        };
        Ok(Event {
            time: Nanos::new(self.time),
            pid: self.pid,
            comm: self.comm,
            op: Op::named(&self.op),
            path,
            offset: self.offset.unwrap_or(0),
            length: self.length,
            missing: self.missing,
            fetched: self.fetched,
            extra: self.extra,
        })
    }

    fn from_event(event: &Event) -> Self {
        let (path, path_b64) = match std::str::from_utf8(&event.path) {
            Ok(path) => (Some(path.to_string()), None),
            Err(_) => (None, Some(STANDARD.encode(&event.path))),
        };
        let has_range = event.offset != 0 || event.length.is_some();
        Self {
            time: event.time.get(),
            pid: event.pid,
            comm: event.comm.clone(),
            op: event.op.name().to_string(),
            path,
            path_b64,
            offset: has_range.then_some(event.offset),
            length: event.length,
            missing: event.missing,
            fetched: event.fetched,
            extra: event.extra.clone(),
        }
    }
}

/// Reads a trace event by event.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: u64,
    header: Map<String, Value>,
    buf: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`TraceError::Header`] when the first line is no header,
    /// [`TraceError::Version`] when it is of a later version.
    pub fn new(input: R) -> Result<Self, TraceError> {
        let mut reader = Self { input, line: 0, header: Map::new(), buf: Vec::new() };
        match reader.fill() {
            Ok(true) => {}
            // A file of another kind may have no line feed for long.
            Ok(false) | Err(TraceError::Line { .. }) => return Err(TraceError::Header),
            Err(error) => return Err(error),
        }
        let header: Map<String, Value> =
            serde_json::from_slice(&reader.buf).map_err(|_| TraceError::Header)?;
        match header.get("seekless_trace").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(version) => return Err(TraceError::Version(version)),
            None => return Err(TraceError::Header),
        }
        reader.header = header;
        Ok(reader)
    }

    /// All of the header.
    #[must_use]
    pub fn header(&self) -> &Map<String, Value> {
        &self.header
    }

    /// The next event, and its line; `None` behind the last one.
    ///
    /// # Errors
    /// [`TraceError::Line`], [`TraceError::CutShort`], [`TraceError::Io`].
    pub fn next_line(&mut self) -> Result<Option<TraceLine<'_>>, TraceError> {
        if self.fill()? { self.parsed().map(Some) } else { Ok(None) }
    }

    /// The line that was read.
    fn parsed(&self) -> Result<TraceLine<'_>, TraceError> {
        if let Some(event) = quick::parse(&self.buf) {
            return Ok(TraceLine::Plain { event, line: &self.buf });
        }
        let line = self.line;
        let failed = |why| TraceError::Line { line, why };
        let is_cut = !self.buf.ends_with(b"\n");
        let parsed: Line = serde_json::from_slice(&self.buf).map_err(|error| {
            if is_cut && error.is_eof() {
                TraceError::CutShort(line)
            } else {
                failed(error.to_string())
            }
        })?;
        parsed.into_event().map(TraceLine::Other).map_err(failed)
    }

    /// The time of the next event, of which nothing else need be checked.
    ///
    /// # Errors
    /// As [`Reader::next_line`].
    pub fn next_time(&mut self) -> Result<Option<Nanos>, TraceError> {
        if !self.fill()? {
            return Ok(None);
        }
        match quick::time(&self.buf) {
            Some(time) => Ok(Some(time)),
            None => self.parsed().map(|line| Some(line.time())),
        }
    }

    /// Adds all events that are left.
    ///
    /// # Errors
    /// As [`Reader::next_line`].
    pub fn read_into(mut self, events: &mut Events) -> Result<(), TraceError> {
        while let Some(line) = self.next_line()? {
            match line {
                TraceLine::Plain { event, .. } => events.push_ref(event),
                TraceLine::Other(event) => events.push(&event),
            }
        }
        Ok(())
    }

    /// Whether there was another line that is not empty.
    fn fill(&mut self) -> Result<bool, TraceError> {
        loop {
            self.buf.clear();
            let mut input = (&mut self.input).take(LONGEST_LINE as u64 + 1);
            let line = self.line + 1;
            let got = input.read_until(b'\n', &mut self.buf);
            if got.map_err(|error| unreadable(line, error))? == 0 {
                return Ok(false);
            }
            self.line = line;
            if self.buf.len() > LONGEST_LINE {
                let why = format!("longer than {LONGEST_LINE} bytes");
                return Err(TraceError::Line { line: self.line, why });
            }
            if !self.buf.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        Ok(self.next_line()?.map(TraceLine::into_event))
    }
}

/// Why a line cannot be read. Errors of the system have a number, others are of the decoder.
fn unreadable(line: u64, error: io::Error) -> TraceError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => TraceError::CutShort(line),
        _ if error.raw_os_error().is_some() => TraceError::Io(error),
        _ => TraceError::Damaged { line, why: error.to_string() },
    }
}

/// A line of a trace with an event.
#[derive(Debug)]
pub enum TraceLine<'a> {
    /// A line that [`Writer`] would write for the event.
    Plain {
        /// The event.
        event: EventRef<'a>,
        /// The line, which may lack its line feed.
        line: &'a [u8],
    },
    /// Any other event.
    Other(Event),
}

impl TraceLine<'_> {
    /// When it happened.
    #[must_use]
    pub fn time(&self) -> Nanos {
        match self {
            Self::Plain { event, .. } => event.time,
            Self::Other(event) => event.time,
        }
    }

    /// The event.
    #[must_use]
    pub fn into_event(self) -> Event {
        match self {
            Self::Plain { event, .. } => event.to_event(),
            Self::Other(event) => event,
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.event().transpose()
    }
}

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the header: the version, then `fields`.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn new(mut out: W, fields: &Map<String, Value>) -> io::Result<Self> {
        // The version comes first: it tells a trace from other files.
        write!(out, "{{\"seekless_trace\":{VERSION}")?;
        for (key, value) in fields.iter().filter(|(key, _)| *key != "seekless_trace") {
            write!(out, ",{}:{value}", Value::from(key.as_str()))?;
        }
        out.write_all(b"}\n")?;
        Ok(Self { out })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &Line::from_event(event))?;
        self.out.write_all(b"\n")
    }

    /// Continues a trace whose header is written.
    pub const fn continued(out: W) -> Self {
        Self { out }
    }

    /// Writes lines with their line feeds, as [`Writer::write_line`] writes them.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn write_text(&mut self, lines: &[u8]) -> io::Result<()> {
        self.out.write_all(lines)
    }

    /// Writes a line that was read.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn write_line(&mut self, line: &TraceLine<'_>) -> io::Result<()> {
        match line {
            TraceLine::Plain { line, .. } => {
                self.out.write_all(line)?;
                if line.ends_with(b"\n") { Ok(()) } else { self.out.write_all(b"\n") }
            }
            TraceLine::Other(event) => self.write(event),
        }
    }

    /// Hands everything on to the system.
    ///
    /// # Errors
    /// When the system does not take it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A path without `.`, `..` and empty components, with a leading slash.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    [b"/", parts.join(&b'/').as_slice()].concat()
}

/// The part of a normal path below `root`, itself as `/`.
fn below<'a>(path: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    match path.strip_prefix(root)? {
        b"" => Some(b"/"),
        rest if rest.starts_with(b"/") => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: &[Event]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &Map::new()).unwrap();
        events.iter().for_each(|event| writer.write(event).unwrap());
        writer.out
    }

    #[test]
    fn what_is_not_known_is_kept() {
        let text = "{\"seekless_trace\":1}\n\n{\"time\":5,\"op\":\"chroot\",\"path\":\"/a\",\"cpu\":3}\n\
                    {\"time\":6,\"pid\":7,\"op\":\"read\",\"path_b64\":\"L/8=\",\"offset\":4096,\"length\":10}\n";
        let events: Vec<Event> =
            Reader::new(text.as_bytes()).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(events[0].op, Op::Other("chroot".into()));
        assert_eq!(events[0].extra["cpu"], 3);
        assert_eq!((&*events[1].path, events[1].offset), (&b"/\xff"[..], 4096));
        let again: Vec<Event> =
            Reader::new(&*written(&events)).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(again, events);
    }

    #[test]
    fn faults_and_what_was_fetched_are_read_as_written() {
        let fault = Event::new(Nanos::new(9), Op::Fault, b"/lib".to_vec()).by(3).on(8192, 65536);
        let events = [Event { fetched: true, ..fault.clone() }, fault];
        let text = String::from_utf8(written(&events)).unwrap();
        assert_eq!(text.matches("\"op\":\"fault\"").count(), 2, "{text}");
        assert_eq!(text.matches("\"fetched\":true").count(), 1, "{text}");
        let again: Vec<Event> =
            Reader::new(text.as_bytes()).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(again, events);
    }

    #[test]
    fn errors_name_the_line() {
        for (body, line) in [("{\"op\":1}", 2), ("\n{\"op\":\"read\"}", 3), ("x", 2)] {
            let text = format!("{{\"seekless_trace\":1}}\n{body}\n");
            let mut reader = Reader::new(text.as_bytes()).unwrap();
            let Some(Err(TraceError::Line { line: at, .. })) = reader.next() else {
                panic!("{body}")
            };
            assert_eq!(at, line);
        }
        assert!(matches!(Reader::new(&b"{\"seekless_trace\":2}"[..]), Err(TraceError::Version(2))));
        let long = |len| format!("{{\"seekless_trace\":1}}\n{}", " ".repeat(len));
        let read = |text: String| Reader::new(text.as_bytes()).unwrap().next();
        assert!(read(long(LONGEST_LINE)).is_none());
        assert!(matches!(
            read(long(LONGEST_LINE + 1)),
            Some(Err(TraceError::Line { line: 2, .. }))
        ));
        assert!(Reader::new(&b""[..]).is_err() && Reader::new(&b"[]\n"[..]).is_err());
        let image = vec![0; 2 * LONGEST_LINE];
        assert!(matches!(Reader::new(&*image), Err(TraceError::Header)));
    }
}
