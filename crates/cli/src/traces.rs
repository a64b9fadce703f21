//! Traces by path.

use crate::failure::{Failure, Kind};
use seekless_layout::trace::{Event, Reader, TraceError};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A trace's failure with the file it is in.
pub(crate) fn failed(path: &Path, error: &TraceError) -> Failure {
    match error {
        TraceError::Io(error) => Failure::io(path.display(), error),
        TraceError::Version(_) => {
            Failure::new(Kind::Unsupported, format!("{}: {error}", path.display()))
        }
        TraceError::Header => {
            let failure = Failure::new(Kind::Unsupported, format!("{}: {error}", path.display()));
            failure.hint("traces are made by record, mount --record and trace import")
        }
        TraceError::Line { .. } => {
            Failure::new(Kind::Corrupt, format!("{}: {error}", path.display()))
        }
    }
}

/// A trace or a log, as a file.
pub(crate) fn open(path: &Path) -> Result<BufReader<File>, Failure> {
    seekless_images::refuse_directory(path)?;
    File::open(path).map(BufReader::new).map_err(|error| Failure::io(path.display(), &error))
}

/// All events of a trace.
pub(crate) fn load(path: &Path) -> Result<Vec<Event>, Failure> {
    parse(open(path)?, path)
}

/// All events of a trace that is read from somewhere; `path` is its name in errors.
pub(crate) fn parse(input: impl BufRead, path: &Path) -> Result<Vec<Event>, Failure> {
    let reader = Reader::new(input).map_err(|error| failed(path, &error))?;
    reader.collect::<Result<_, _>>().map_err(|error| failed(path, &error))
}

/// All events of each of these traces.
pub(crate) fn load_all(paths: &[PathBuf]) -> Result<Vec<Vec<Event>>, Failure> {
    paths.iter().map(|path| load(path)).collect()
}
