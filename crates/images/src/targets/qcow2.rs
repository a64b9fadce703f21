//! An image that is written as a qcow2 image by QEMU's own program.

use crate::error::{Error, ErrorKind};
use crate::output::{Output, directory_of, name_of};
use crate::stop::Stop;
use seekless_device::{BlockDevice, FileDevice};
use seekless_units::ByteLen;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The converter.
const PROGRAM: &str = "qemu-img";

/// The time between two looks at a conversion.
const PAUSE: Duration = Duration::from_millis(5);

/// An image whose bytes go to a sparse file without a name first.
pub(crate) struct Qcow2Target {
    raw: File,
    output: Output,
    path: PathBuf,
}

impl Qcow2Target {
    /// Begins an image. Impossible requests are refused before anything is built.
    pub(crate) fn begin(path: &Path, force: bool) -> Result<Self, Error> {
        let output = Output::create(path, force)?;
        let found = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
        match found {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = format!("{}: qcow2 images are written by {PROGRAM}", path.display());
                let hint = "which is not installed: its package is qemu-utils, or qemu-img";
                return Err(Error::new(ErrorKind::Unsupported, what).hint(hint));
            }
            Err(error) => return Err(Error::io(PROGRAM, &error)),
        }
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
        let raw = name_of(&self.raw);
        let failed = |error: io::Error| Error::io(PROGRAM, &error);
        // A pipe that nobody reads meanwhile would stop the program once it is full.
        let mut messages = tempfile::tempfile_in(directory_of(&self.path)).map_err(failed)?;
        let mut conversion = Command::new(PROGRAM)
            .args(["convert", "-f", "raw", "-O", "qcow2"])
            .args([raw, self.output.path_now()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let status = loop {
            if let Some(status) = conversion.try_wait().map_err(failed)? {
                break status;
            }
            if stop.is_requested() {
                conversion.kill().map_err(failed)?;
            }
            thread::sleep(PAUSE);
        };
        stop.check()?;
        if !status.success() {
            let mut said = Vec::new();
            let read = messages.rewind().and_then(|()| messages.read_to_end(&mut said));
            read.map_err(failed)?;
            let said = String::from_utf8_lossy(&said);
            let kind = match said.contains("No space left") {
                true => ErrorKind::NoSpace,
                false => ErrorKind::System,
            };
            let what = format!("{}: {PROGRAM}: {}", self.path.display(), said.trim());
            return Err(Error::new(kind, what.replace('\n', "; ")));
        }
        self.output.finish()
    }
}

/// A file as a device, extended to `len` bytes; messages call it `path`.
pub(crate) fn file_of_length(
    file: &File,
    len: ByteLen,
    path: &Path,
) -> Result<Arc<dyn BlockDevice>, Error> {
    let io = |error: io::Error| Error::io(path.display(), &error);
    file.set_len(len.get()).map_err(io)?;
    let file = file.try_clone().map_err(io)?;
    Ok(Arc::new(FileDevice::from_file(file, true).map_err(io)?))
}
