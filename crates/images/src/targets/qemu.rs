//! Conversion to the formats of virtual machines by QEMU's own program.

use crate::error::{Error, ErrorKind};
use crate::output::{Output, directory_of, name_of};
use crate::stop::Stop;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The converter.
const PROGRAM: &str = "qemu-img";

/// The time between two looks at a conversion.
const PAUSE: Duration = Duration::from_millis(5);

/// A format that the program writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QemuFormat {
    Qcow2,
    Vhdx,
    Vmdk,
}

impl QemuFormat {
    /// The format in a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2 image",
            Self::Vhdx => "VHDX image",
            Self::Vmdk => "VMDK image",
        }
    }

    /// The name that the program has for it.
    fn argument(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Vhdx => "vhdx",
            Self::Vmdk => "vmdk",
        }
    }
}

/// Refuses `path` where the converter is not installed.
pub(super) fn require_converter(path: &Path, format: QemuFormat) -> Result<(), Error> {
    let found = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
    match found {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (path, name) = (path.display(), format.name());
            let what = format!("{path}: {name}s are written by {PROGRAM}");
            let hint = "which is not installed: its package is qemu-utils, or qemu-img";
            Err(Error::new(ErrorKind::Unsupported, what).hint(hint))
        }
        Err(error) => Err(Error::io(PROGRAM, &error)),
    }
}

/// Writes `raw` to the output in a format; messages call it `path`. It ends after a request to stop.
pub(super) fn convert(
    raw: &File,
    output: &Output,
    path: &Path,
    format: QemuFormat,
    stop: &Stop,
) -> Result<(), Error> {
    let raw = name_of(raw);
    let failed = |error: io::Error| Error::io(PROGRAM, &error);
    // A pipe that nobody reads meanwhile would stop the program once it is full.
    let mut messages = tempfile::tempfile_in(directory_of(path)).map_err(failed)?;
    let mut conversion = Command::new(PROGRAM)
        .args(["convert", "-f", "raw", "-O", format.argument()])
        .args([raw, output.path_now()])
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
        let what = format!("{}: {PROGRAM}: {}", path.display(), said.trim());
        return Err(Error::new(kind, what.replace('\n', "; ")));
    }
    Ok(())
}
