//! Summaries of traces: all that a layout needs of them, and no more.
//!
//! For each file and range a summary has the number of traces that touched it, their weight, where in
//! the traces this was, and in which process. Its size grows with the ranges that are touched, not with
//! events or machines.
//!
//! A summary of one trace is exact ([`Form::Exact`]): it has all events that the layout depends on, and
//! gives the layout of the trace. Summaries of several traces are on a grid of pages
//! ([`Form::Pages`]), for each of which counts and sums of whole numbers add up. Adding is therefore
//! associative and commutative: any tree of merges gives the same bytes.
//!
//! ```
//! use seekless_layout::trace::{Event, Events, Op};
//! use seekless_summary::{Summary, UNIT};
//! use seekless_units::Nanos;
//!
//! let read = |path: &str| Event::new(Nanos::ZERO, Op::Read, path.into());
//! let first: Events = [read("/a"), read("/b"), read("/a")].into_iter().collect();
//! let second: Events = [read("/b"), read("/c")].into_iter().collect();
//! let (first, second) = (Summary::of(&first, UNIT), Summary::of(&second, UNIT));
//! let sum = first.clone().plus(second.clone())?;
//! assert_eq!(sum, second.plus(first)?);
//! // The file that both read comes first.
//! let paths: Vec<Vec<u8>> = sum.to_events().iter().map(|event| event.path.to_vec()).collect();
//! assert_eq!(paths, [b"/b", b"/a", b"/c"]);
//! # Ok::<(), seekless_summary::SummaryError>(())
//! ```
//!
//! # Files
//!
//! `row.rs` has the rows, `of_events.rs` makes them of a trace, `to_events.rs` turns them into the
//! events that stand for them, `pages.rs` adds ranges up on the grid, `merge.rs` adds up whole
//! summaries, in memory or as streams of files, `file.rs` reads and writes Parquet, and `decode.rs`
//! limits its decoders.

mod decode;
mod file;
mod merge;
mod of_events;
mod pages;
mod row;
mod to_events;

pub use merge::{MergeLimits, merge};
pub use row::{UNIT, weight_of};
pub use to_events::Touched;

use row::Group;
use std::fs::File;
use std::io;

/// The version of the format.
pub const VERSION: u64 = 1;

/// Why a summary cannot be read, written or added to another one.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// It is another file.
    #[error("not a summary of traces")]
    NoSummary,
    /// It is of another version.
    #[error("version {0} of summaries is not supported (this is {VERSION})")]
    Version(String),
    /// It contradicts the format.
    #[error("damaged summary: {0}")]
    Corrupt(&'static str),
    /// It is damaged, as the reader of Parquet says.
    #[error("damaged summary: {0}")]
    Parquet(String),
    /// The counts of a sum are larger than its numbers.
    #[error("the summaries have too many traces to be added")]
    TooMany,
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How a summary has ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As the trace has them: of one trace.
    Exact,
    /// On a grid of pages: of several traces.
    Pages,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Pages => "pages",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Exact, Self::Pages].into_iter().find(|form| form.name() == name)
    }
}

/// The traces of a summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number of traces.
    pub traces: u64,
    /// The number of machines that they are of.
    pub machines: u64,
    /// How it has ranges.
    pub form: Form,
    /// Ranges that fewer machines touched have been left out of all summaries that were added.
    pub min_machines: u64,
}

/// A summary in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    header: Header,
    /// In order of their keys.
    groups: Vec<Group>,
}

impl Summary {
    /// Whether a file that begins with these bytes may be a summary.
    #[must_use]
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.starts_with(file::MAGIC)
    }

    /// Reads a summary.
    ///
    /// # Errors
    /// [`SummaryError`].
    pub fn read(file: File) -> Result<Self, SummaryError> {
        let mut reader = file::Reader::new(file)?;
        let mut groups = Vec::new();
        while let Some(group) = reader.group()? {
            groups.push(group);
        }
        Ok(Self { header: reader.header().clone(), groups })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`SummaryError::Io`].
    pub fn write(&self, file: File) -> Result<(), SummaryError> {
        let mut writer = file::Writer::new(file, &self.header)?;
        self.groups.iter().try_for_each(|group| writer.write(group))?;
        writer.finish()
    }

    /// Its traces.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.iter().map(|group| group.runs.len()).sum()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}
