//! Summaries of traces by path.

use super::load_plain;
use seekless_images::output::Output;
use seekless_images::{Error, ErrorKind, Stop};
use seekless_layout::trace::Events;
use seekless_summary::{Summary, SummaryError};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use seekless_summary::{Header, MergeLimits, weight_of};

/// The error of a summary, with the file that it is in.
#[must_use]
pub fn failed(path: &Path, error: &SummaryError) -> Error {
    let about = |kind| Error::new(kind, error.to_string()).about(path.display());
    match error {
        SummaryError::Io(error) => Error::io(path.display(), error),
        SummaryError::NoSummary | SummaryError::Version(_) | SummaryError::TooMany => {
            about(ErrorKind::Unsupported)
        }
        SummaryError::Corrupt(_) | SummaryError::Parquet(_) => about(ErrorKind::Corrupt),
    }
}

/// Whether a file is a summary, by its first bytes.
///
/// # Errors
/// [`ErrorKind::System`].
pub fn is_summary(path: &Path) -> Result<bool, Error> {
    // A pipe can be read once only, and a summary not at all from one.
    if !path.is_file() {
        return Ok(false);
    }
    let mut first = Vec::new();
    file(path)?
        .take(4)
        .read_to_end(&mut first)
        .map_err(|error| Error::io(path.display(), &error))?;
    Ok(Summary::may_begin_with(&first))
}

fn file(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| Error::io(path.display(), &error))
}

/// Reads a summary.
///
/// # Errors
/// [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`] for another version, [`ErrorKind::System`].
pub fn read(path: &Path) -> Result<Summary, Error> {
    Summary::read(file(path)?).map_err(|error| failed(path, &error))
}

/// The events that stand for a summary.
pub(super) fn load(path: &Path) -> Result<Events, Error> {
    Ok(read(path)?.to_events())
}

/// Summarizes traces of one machine, each with a weight, and writes the summary. Returns its header
/// and the number of its rows. After a request to stop, nothing is written.
///
/// # Errors
/// As [`super::load`]; errors of the output.
pub fn summarize(
    traces: &[(PathBuf, u64)],
    out: &Path,
    stop: &Stop,
) -> Result<(Header, usize), Error> {
    let mut sum: Option<Summary> = None;
    for (path, weight) in traces {
        stop.check()?;
        if is_summary(path)? {
            let what = "is a summary already, which can be merged with others";
            return Err(Error::usage(what).about(path.display()));
        }
        let summary = Summary::of(&load_plain(path, Events::default())?.1, *weight);
        sum = Some(match sum {
            None => summary,
            Some(sum) => sum.plus(summary).map_err(|error| failed(path, &error))?,
        });
    }
    let Some(sum) = sum else { return Err(Error::usage("no trace to summarize")) };
    let sum = sum.of_one_machine();
    let output = Output::create(out, true, traces.iter().map(|(path, _)| path))?;
    sum.write(output.file()?).map_err(|error| failed(out, &error))?;
    stop.check()?;
    output.finish()?;
    Ok((sum.header().clone(), sum.len()))
}

/// Adds up summaries, and writes the sum without ranges that fewer than `min_machines` machines
/// touched. After a request to stop, nothing is written.
///
/// # Errors
/// As [`read`]; [`ErrorKind::Usage`] without a summary; errors of the output.
pub fn add_up(
    summaries: &[PathBuf],
    min_machines: u64,
    limits: MergeLimits<'_>,
    out: &Path,
    stop: &Stop,
) -> Result<Header, Error> {
    if summaries.is_empty() {
        return Err(Error::usage("no summary to add up"));
    }
    let output = Output::create(out, true, summaries)?;
    let about = |(at, error): (Option<usize>, SummaryError)| {
        failed(at.and_then(|at| summaries.get(at)).map_or(out, PathBuf::as_path), &error)
    };
    let header =
        seekless_summary::merge(summaries, min_machines, limits, output.file()?).map_err(about)?;
    stop.check()?;
    output.finish()?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::ByteLen;

    #[test]
    fn no_summary_makes_no_sum() {
        let dir = tempfile::tempdir().unwrap();
        let limits = MergeLimits { memory: ByteLen::new(1 << 20), temp_dir: dir.path() };
        let out = dir.path().join("sum");
        let error = add_up(&[], 0, limits, &out, &Stop::new()).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Usage, "no summary to add up".into())
        );
        assert!(!out.exists());
    }
}
