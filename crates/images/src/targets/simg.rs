//! Conversion to an Android sparse image.

use crate::error::{Error, ErrorKind};
use crate::output::Output;
use crate::stop::Stop;
use seekless_device::FileDevice;
use seekless_fs::FsError;
use seekless_simg::WriteError;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes `raw` to the output as a sparse image; messages call it `path`. It ends after a request to
/// stop.
pub(super) fn convert(raw: File, output: &Output, path: &Path, stop: &Stop) -> Result<(), Error> {
    let io = |error: &io::Error| Error::io(path.display(), error);
    let raw = FileDevice::from_file(raw, false).map_err(|error| io(&error))?;
    let mut out = BufWriter::with_capacity(1 << 20, output.file()?);
    let mut proceed = || match stop.is_requested() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    };
    let written = seekless_simg::write(&raw, &mut out, &mut proceed);
    stop.check()?;
    written.map_err(|error| match error {
        WriteError::TooLong => {
            Error::new(ErrorKind::Unsupported, error.to_string()).about(path.display())
        }
        WriteError::Device(error) => Error::from(FsError::from(error)).about(path.display()),
        WriteError::Io(error) => io(&error),
    })?;
    out.flush().map_err(|error| io(&error))
}
