//! Summaries of traces, in files.

use crate::{Error, Stop};
use seekless_compose::traces::summary::{self, MergeLimits};
use seekless_units::ByteLen;
use std::path::{Path, PathBuf};

/// Memory for summaries that are added up.
const MEMORY: ByteLen = ByteLen::new(512 << 20);

/// The traces of a summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Summarized {
    /// The number of traces.
    pub traces: u64,
    /// The number of machines that they are of.
    pub machines: u64,
}

impl From<summary::Header> for Summarized {
    fn from(header: summary::Header) -> Self {
        Self { traces: header.traces, machines: header.machines }
    }
}

/// Summarizes traces of one machine in `out`: a file that takes the place of a trace, and contains
/// only the events that a layout needs. `weight` is that of each trace, 1 by default elsewhere; files of more
/// weight come first in a layout. `out` is replaced when the summary is complete.
///
/// # Errors
/// As [`Trace::load`](crate::Trace::load); [`ErrorKind::Usage`](crate::ErrorKind) without a trace, for
/// a weight that is not between 0 and 1,000,000, and for a summary among the traces.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Trace, merge_summaries, summarize};
///
/// let work = tempfile::tempdir()?;
/// let path = |name: &str| work.path().join(name);
/// for (name, file) in [("one", "/bin/a"), ("two", "/bin/b")] {
///     Trace::of_paths(["/bin/sh", file]).save(path("trace"))?;
///     summarize(&[path("trace")], 1.0, path(name))?;
/// }
/// let sum = merge_summaries(&[path("one"), path("two")], 2, path("sum"))?;
/// assert_eq!(sum.machines, 2);
/// // Files that only one machine read are left out.
/// assert!(Trace::load(path("sum"))?.paths().all(|path| path.ends_with("sh")));
/// # Ok(())
/// # }
/// ```
pub fn summarize<P: AsRef<Path>>(
    traces: &[P],
    weight: f64,
    out: impl AsRef<Path>,
) -> Result<Summarized, Error> {
    summarize_until(&Stop::new(), traces, weight, out)
}

/// As [`summarize`], until a request to stop, after which nothing is written.
///
/// # Errors
/// As [`summarize`]; [`ErrorKind::System`](crate::ErrorKind) after a request to stop.
pub fn summarize_until<P: AsRef<Path>>(
    stop: &Stop,
    traces: &[P],
    weight: f64,
    out: impl AsRef<Path>,
) -> Result<Summarized, Error> {
    let weight = summary::weight_of(weight)
        .ok_or_else(|| Error::usage("a weight is between 0 and 1000000"))?;
    let traces: Vec<_> = traces.iter().map(|path| (path.as_ref().to_path_buf(), weight)).collect();
    summary::summarize(&traces, out.as_ref(), stop).map(|(header, _)| header.into())
}

/// Adds up summaries, of one machine or of many, in `out`, and leaves out ranges that fewer than
/// `min_machines` machines touched. The result is the same, byte for byte, in whatever order and in
/// whatever steps they are added. `out` is replaced when the sum is complete; temporary files are
/// made in its directory.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind) without a summary,
/// [`ErrorKind::Unsupported`](crate::ErrorKind) for a file that is no summary or of another version,
/// [`ErrorKind::Corrupt`](crate::ErrorKind), [`ErrorKind::System`](crate::ErrorKind).
pub fn merge_summaries<P: AsRef<Path>>(
    summaries: &[P],
    min_machines: u64,
    out: impl AsRef<Path>,
) -> Result<Summarized, Error> {
    merge_summaries_until(&Stop::new(), summaries, min_machines, out)
}

/// As [`merge_summaries`], until a request to stop, after which nothing is written.
///
/// # Errors
/// As [`merge_summaries`]; [`ErrorKind::System`](crate::ErrorKind) after a request to stop.
pub fn merge_summaries_until<P: AsRef<Path>>(
    stop: &Stop,
    summaries: &[P],
    min_machines: u64,
    out: impl AsRef<Path>,
) -> Result<Summarized, Error> {
    let summaries: Vec<PathBuf> = summaries.iter().map(|path| path.as_ref().into()).collect();
    let out = out.as_ref();
    let temp_dir = match out.parent() {
        Some(dir) if dir.as_os_str().is_empty() => Path::new("."),
        Some(dir) => dir,
        None => Path::new("/"),
    };
    let limits = MergeLimits { memory: MEMORY, temp_dir };
    summary::add_up(&summaries, min_machines, limits, out, stop).map(Summarized::from)
}
