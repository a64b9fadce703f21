//! Traces by path.

pub mod merge;
pub mod summary;

use seekless_fs::term::{Term, Text};
use seekless_images::{Error, ErrorKind};
use seekless_layout::trace::{self, Event, Events, Program, Reader, TraceError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// First bytes of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Bytes of a read from a file.
const BUFFER: usize = 256 << 10;

/// The error of a trace, with the file that it is in.
#[must_use]
pub fn failed(path: &Path, error: &TraceError) -> Error {
    let about = |kind| Error::new(kind, error.to_string()).about(path.display());
    match error {
        // A frame of zstd that ends early.
        TraceError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Corrupt, "cut short").about(path.display())
        }
        // Errors of the system have a number; others are of the decoder.
        TraceError::Io(error) if error.raw_os_error().is_none() => {
            Error::new(ErrorKind::Corrupt, error.to_string()).about(path.display())
        }
        TraceError::Io(error) => Error::io(path.display(), error),
        TraceError::Version(_) => about(ErrorKind::Unsupported),
        TraceError::Header => about(ErrorKind::Unsupported)
            .hint(Text::from("traces are made by ").then(Term::Tracing)),
        TraceError::Line { .. } | TraceError::CutShort(_) | TraceError::Damaged { .. } => {
            about(ErrorKind::Corrupt)
        }
    }
}

/// Opens a trace or a log, which may be compressed with zstd.
///
/// # Errors
/// [`ErrorKind::Usage`] for a directory, [`ErrorKind::System`].
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, Error> {
    seekless_images::refuse_directory(path)?;
    let about = |error: io::Error| Error::io(path.display(), &error);
    let file = File::open(path).map_err(about)?;
    let mut magic = Vec::new();
    (&file).take(4).read_to_end(&mut magic).map_err(about)?;
    let is_compressed = magic == ZSTD;
    let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(magic).chain(file));
    if !is_compressed {
        return Ok(Box::new(whole));
    }
    let plain = zstd::stream::read::Decoder::with_buffer(whole).map_err(about)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER, plain)))
}

/// All events of a trace.
///
/// # Errors
/// As [`open`] and [`parse`].
pub fn load(path: &Path) -> Result<Events, Error> {
    load_into(path, Events::default()).map(|(_, events)| events)
}

/// The program and all events of a trace.
///
/// # Errors
/// As [`load`].
pub fn load_recording(path: &Path) -> Result<(Program, Events), Error> {
    load_into(path, Events::default())
}

/// The program and all events of a trace, with the fields that are unknown here.
///
/// # Errors
/// As [`load`].
pub fn load_completely(path: &Path) -> Result<(Program, Events), Error> {
    load_into(path, Events::with_unknown_fields())
}

fn load_into(path: &Path, events: Events) -> Result<(Program, Events), Error> {
    if summary::is_summary(path)? {
        return Ok((Program::default(), summary::load(path)?));
    }
    load_plain(path, events)
}

/// Adds the events of a trace that is no summary.
fn load_plain(path: &Path, mut events: Events) -> Result<(Program, Events), Error> {
    let reader = Reader::new(open(path)?).map_err(|error| failed(path, &error))?;
    let program = Program::of(&reader);
    reader.read_into(&mut events).map_err(|error| failed(path, &error))?;
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
pub fn load_merged(paths: &[PathBuf]) -> Result<Events, Error> {
    match paths {
        [path] => {
            let events = load(path)?;
            Ok(if events.is_in_order() { events } else { trace::merge(&[events]) })
        }
        paths => Ok(trace::merge(&load_all(paths)?)),
    }
}

/// All events of each of these traces.
///
/// # Errors
/// As [`load`].
pub fn load_all(paths: &[PathBuf]) -> Result<Vec<Events>, Error> {
    paths.iter().map(|path| load(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_compressed_trace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.zst");
        let mut packed = Vec::new();
        trace::write_packed(&path, &mut packed, |out| {
            writeln!(out, "{{\"seekless_trace\":1}}")?;
            (0..200).try_for_each(|n| {
                writeln!(out, "{{\"time\":{n},\"op\":\"open\",\"path\":\"/{}\"}}", n * n % 97)
            })
        })
        .unwrap();
        std::fs::write(&path, &packed).unwrap();
        let whole = load(&path).unwrap();
        assert_eq!(whole.len(), 200);
        let mut refused = 0;
        for at in ZSTD.len()..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, damaged).unwrap();
            match load(&path) {
                // The size of a window matters only if it is too small.
                Ok(events) => assert!(events == whole, "other events by byte {at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused * 100 > packed.len() * 95, "{refused} of {} refused", packed.len());
    }
}
