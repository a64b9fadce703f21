//! Lists of parts to read.

use std::io::{self, BufRead, Write};

/// First words of the line that begins a list of chunks.
const HEADER: &str = "# seekless chunks";

/// The version of such lists that this program reads and writes.
const VERSION: u32 = 1;

/// A part of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes, at least one.
    pub length: u64,
    /// Bytes that the user has read by the time it needs the part.
    pub after: u64,
    /// Percentage of the traces in which it is needed.
    pub sure: u8,
}

/// Parts of a volume, in the order in which they will be needed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FetchList {
    /// Bytes of the volume, if they are known.
    pub volume: Option<u64>,
    /// Bytes of a chunk, if the parts are chunks.
    pub chunk: Option<u64>,
    /// Number of traces that the list is made of.
    pub traces: u64,
    /// The parts.
    pub fetches: Vec<Fetch>,
}

/// A list that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The list has another version.
    #[error("a list of version {0}; version {VERSION} can be read")]
    Version(String),
    /// A line is no part of a volume.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The fault in it.
        what: &'static str,
    },
    /// There are no parts.
    #[error("the list is empty")]
    Empty,
}

impl FetchList {
    /// Parses a list: lines of offset and length in bytes, and optionally of the bytes read before
    /// and a percentage. Lines that begin with `#` are comments, but for the first one of a list of
    /// chunks. Sizes are not bounded by a volume yet.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn parse(text: impl BufRead) -> Result<Self, ListError> {
        let mut list = Self { traces: 1, ..Self::default() };
        let mut before = 0u64;
        for (line, text) in (1..).zip(text.lines()) {
            let text = text?;
            let wrong = |what| ListError::Line { line, what };
            if let Some(header) = text.strip_prefix(HEADER).filter(|_| line == 1) {
                list.header(header, line)?;
                continue;
            }
            if text.starts_with('#') || text.trim().is_empty() {
                continue;
            }
            let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
            let numbers = numbers.map_err(|_| wrong("not all words are numbers"))?;
            let (offset, length, after, sure) = match numbers[..] {
                [offset, length] => (offset, length, before, 100),
                [offset, length, after, sure] => (offset, length, after, sure),
                _ => return Err(wrong("neither two nor four numbers")),
            };
            if length == 0 || offset.checked_add(length).is_none() {
                return Err(wrong("no bytes, or an end beyond all volumes"));
            }
            let sure = u8::try_from(sure).ok().filter(|&sure| sure <= 100);
            let sure = sure.ok_or_else(|| wrong("more than 100 percent"))?;
            list.fetches.push(Fetch { offset, length, after, sure });
            before = before.checked_add(length).ok_or_else(|| wrong("too many bytes in all"))?;
        }
        if list.fetches.is_empty() { Err(ListError::Empty) } else { Ok(list) }
    }

    /// Parses the words behind [`HEADER`].
    fn header(&mut self, header: &str, line: usize) -> Result<(), ListError> {
        let mut words = header.split_whitespace();
        let version = words.next().unwrap_or_default();
        if version != VERSION.to_string() {
            return Err(ListError::Version(version.into()));
        }
        for word in words {
            let wrong = || ListError::Line { line, what: "not a key with a number" };
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            let value: u64 = value.parse().map_err(|_| wrong())?;
            match key {
                "volume" => self.volume = Some(value),
                "chunk" => self.chunk = Some(value),
                "traces" => self.traces = value,
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the list, as [`FetchList::parse`] reads it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{HEADER} {VERSION}")?;
        for (key, value) in [("volume", self.volume), ("chunk", self.chunk)] {
            if let Some(value) = value {
                write!(out, " {key}={value}")?;
            }
        }
        writeln!(out, " traces={}", self.traces)?;
        for Fetch { offset, length, after, sure } in &self.fetches {
            writeln!(out, "{offset} {length} {after} {sure}")?;
        }
        Ok(())
    }
}
