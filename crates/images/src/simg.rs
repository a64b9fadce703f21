//! Android sparse images: read by all commands, changed by none.

use crate::error::{Error, ErrorKind};
use crate::output::{Output, directory_of};
use crate::stop::Stop;
use crate::targets::file_of_length;
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::FsError;
use seekless_simg::{SimgError, WriteError};
use seekless_units::ByteLen;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disk in a sparse image, or another device as it is.
pub(crate) fn disk(
    device: Arc<dyn BlockDevice>,
    path: &Path,
) -> Result<Arc<dyn BlockDevice>, Error> {
    seekless_simg::disk_in(device).map_err(|error| {
        let error = match error {
            SimgError::Unsupported(why) => Error::new(ErrorKind::Unsupported, why),
            SimgError::Device(error) => Error::from(FsError::from(error)),
        };
        error.about(path.display())
    })
}

/// Whether a file is a sparse image, if it can be opened.
pub(crate) fn is_simg(path: &Path) -> bool {
    FileDevice::open(path).is_ok_and(|file| seekless_simg::is_image(&file))
}

/// A sparse image, whose bytes go to a file without a name first.
pub(crate) struct SimgTarget {
    raw: File,
    output: Output,
    path: PathBuf,
}

impl SimgTarget {
    pub(crate) fn begin(path: &Path, force: bool) -> Result<Self, Error> {
        let output = Output::create(path, force)?;
        let dir = directory_of(path);
        let raw = tempfile::tempfile_in(dir).map_err(|error| Error::io(dir.display(), &error))?;
        Ok(Self { raw, output, path: path.into() })
    }

    /// The file to convert, extended to `len` bytes.
    pub(crate) fn device(&self, len: ByteLen) -> Result<Arc<dyn BlockDevice>, Error> {
        file_of_length(&self.raw, len, &self.path)
    }

    /// Converts the file, and gives the result its name. The conversion ends after a request to stop.
    pub(crate) fn finish(self, stop: &Stop) -> Result<(), Error> {
        let io = |error: &io::Error| Error::io(self.path.display(), error);
        let raw = FileDevice::from_file(self.raw, false).map_err(|error| io(&error))?;
        let mut out = BufWriter::with_capacity(1 << 20, self.output.file()?);
        let mut proceed = || match stop.is_requested() {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        };
        let written = seekless_simg::write(&raw, &mut out, &mut proceed);
        stop.check()?;
        written.map_err(|error| match error {
            WriteError::TooLong => {
                Error::new(ErrorKind::Unsupported, error.to_string()).about(self.path.display())
            }
            WriteError::Device(error) => {
                Error::from(FsError::from(error)).about(self.path.display())
            }
            WriteError::Io(error) => io(&error),
        })?;
        out.flush().map_err(|error| io(&error))?;
        self.output.finish()
    }
}
