//! An image for standard output.
//!
//! Images are not written sequentially: this one is written to a file without a name, and copied
//! when it is complete.

use crate::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::path::Path;

/// Bytes copied at once.
const COPY_BUF: usize = 1 << 20;

/// The file, before it is copied.
pub(crate) struct StreamTarget(File);

impl StreamTarget {
    /// Begins writing; a terminal is refused.
    pub(crate) fn begin(dir: &Path) -> Result<Self, Error> {
        if io::stdout().is_terminal() {
            let what = "standard output is a terminal: an image is not written to it";
            return Err(Error::usage(what).hint("redirect it to a file or a program"));
        }
        let failed = |error| Error::io(format_args!("temporary file in {}", dir.display()), &error);
        Ok(Self(tempfile::tempfile_in(dir).map_err(failed)?))
    }

    pub(crate) fn file(&self) -> Result<File, Error> {
        self.0.try_clone().map_err(|error| Error::io("temporary file", &error))
    }

    /// Copies all of it, holes as zeros.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let read = |error| Error::io("temporary file", &error);
        let write = |error| Error::io("standard output", &error);
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
