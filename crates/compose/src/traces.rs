//! Traces by path.

use seekless_fs::term::{Term, Text};
use seekless_images::{Error, ErrorKind};
use seekless_layout::trace::{self, Event, Program, Reader, TraceError};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The error of a trace, with the file that it is in.
#[must_use]
pub fn failed(path: &Path, error: &TraceError) -> Error {
    let about = |kind| Error::new(kind, error.to_string()).about(path.display());
    match error {
        TraceError::Io(error) => Error::io(path.display(), error),
        TraceError::Version(_) => about(ErrorKind::Unsupported),
        TraceError::Header => about(ErrorKind::Unsupported)
            .hint(Text::from("traces are made by ").then(Term::Tracing)),
        TraceError::Line { .. } => about(ErrorKind::Corrupt),
    }
}

/// Opens a trace or a log.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory, [`ErrorKind::System`].
pub fn open(path: &Path) -> Result<BufReader<File>, Error> {
    seekless_images::refuse_directory(path)?;
    File::open(path).map(BufReader::new).map_err(|error| Error::io(path.display(), &error))
}

/// All events of a trace.
///
/// # Errors
/// As [`open`] and [`parse`].
pub fn load(path: &Path) -> Result<Vec<Event>, Error> {
    parse(open(path)?, path)
}

/// The program and all events of a trace.
///
/// # Errors
/// As [`load`].
pub fn load_recording(path: &Path) -> Result<(Program, Vec<Event>), Error> {
    let reader = Reader::new(open(path)?).map_err(|error| failed(path, &error))?;
    let program = Program::of(&reader);
    let events = reader.collect::<Result<_, _>>().map_err(|error| failed(path, &error))?;
    Ok((program, events))
}

/// All events of a trace that is read from somewhere; `path` is its name in errors.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a file that is no trace, or of a later version,
/// [`ErrorKind::Corrupt`] for a line that is none.
pub fn parse(input: impl BufRead, path: &Path) -> Result<Vec<Event>, Error> {
    let reader = Reader::new(input).map_err(|error| failed(path, &error))?;
    reader.collect::<Result<_, _>>().map_err(|error| failed(path, &error))
}

/// All events of all traces, in order of time.
///
/// # Errors
/// As [`load`].
pub fn load_merged(paths: &[PathBuf]) -> Result<Vec<Event>, Error> {
    Ok(trace::merge(load_all(paths)?))
}

/// All events of each of these traces.
///
/// # Errors
/// As [`load`].
pub fn load_all(paths: &[PathBuf]) -> Result<Vec<Vec<Event>>, Error> {
    paths.iter().map(|path| load(path)).collect()
}
