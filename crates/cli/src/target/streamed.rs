//! An image that goes to standard output.
//!
//! Images are not written from their beginning to their end: this one is written to a file
//! without a name, and copied when it is complete.

use crate::failure::Failure;
use crate::source::temp_dir;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};

/// Bytes copied at once.
const COPY_BUF: usize = 1 << 20;

/// The file, before it is copied.
pub(super) struct StreamTarget(File);

impl StreamTarget {
    /// Begins writing; a terminal is refused.
    pub(super) fn begin() -> Result<Self, Failure> {
        if io::stdout().is_terminal() {
            let what = "standard output is a terminal: an image is not written to it";
            return Err(Failure::usage(what).hint("redirect it to a file or a program"));
        }
        let dir = temp_dir();
        let failed =
            |error| Failure::io(format_args!("temporary file in {}", dir.display()), &error);
        Ok(Self(tempfile::tempfile_in(&dir).map_err(failed)?))
    }

    pub(super) fn file(&self) -> Result<File, Failure> {
        self.0.try_clone().map_err(|error| Failure::io("temporary file", &error))
    }

    /// Copies all of it, holes as zeros.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let read = |error| Failure::io("temporary file", &error);
        let write = |error| Failure::io("standard output", &error);
        self.0.rewind().map_err(read)?;
        let mut out = io::stdout().lock();
        let mut buf = vec![0; COPY_BUF];
        loop {
            match self.0.read(&mut buf).map_err(read)? {
                0 => return out.flush().map_err(write),
                got => out.write_all(&buf[..got]).map_err(write)?,
            }
        }
    }
}
