//! An experiment, with the files that it names.

use crate::error_of;
use seekless_compose::traces;
use seekless_images::{Error, ErrorKind};
use seekless_lab::boots::BootExperiment;
use seekless_lab::boots::system::InstalledSystem;
use seekless_lab::{LabError, builtin};
use seekless_layout::trace::{Event, Op};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum length of a list of packages, and of a trace, decompressed.
const UNPACKED_MAX: usize = 1 << 30;

/// Magic number of zstd (RFC 8878, 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// An experiment, with the files that it names.
#[derive(Debug)]
pub struct Subject {
    text: String,
    experiment: BootExperiment,
    system: InstalledSystem,
    trace: BootTrace,
    digest: String,
}

impl Subject {
    /// Reads the experiment of a text, and its files; `name` is its name in errors.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a text that is no experiment, [`ErrorKind::Corrupt`] for one of its
    /// files, [`ErrorKind::System`].
    pub fn new(text: &str, name: &str) -> Result<Self, Error> {
        let experiment = BootExperiment::parse(text, name).map_err(LabError::from);
        let experiment = experiment.map_err(error_of)?;
        let system = read(&experiment.system, builtin::system(&experiment.system))?;
        let about = |error: &dyn Display, what: &str| {
            Error::new(ErrorKind::Corrupt, format!("{what}: {error}"))
        };
        let parsed = std::str::from_utf8(&system).map_err(|error| about(&error, "system"))?;
        let parsed =
            parsed.parse::<InstalledSystem>().map_err(|error| about(&error, &experiment.system))?;
        let trace = read(&experiment.trace, builtin::boot_trace(&experiment.trace))?;
        let digest = experiment.digest([text.as_bytes(), &system, &trace]);
        let events = traces::parse(&*trace, Path::new(&experiment.trace))?;
        let trace = BootTrace { text: trace, events };
        Ok(Self { text: text.into(), experiment, system: parsed, trace, digest })
    }

    /// The same experiment with another number of seeds, counted from its first.
    #[must_use]
    pub fn with_seeds(mut self, count: u64) -> Self {
        let first = self.experiment.seeds[0];
        self.experiment.seeds = (first..first.saturating_add(count)).collect();
        self
    }

    /// The same experiment with another number of boots of each image.
    #[must_use]
    pub fn with_repetitions(mut self, count: u64) -> Self {
        self.experiment.repetitions = count;
        self
    }

    /// The experiment.
    #[must_use]
    pub fn experiment(&self) -> &BootExperiment {
        &self.experiment
    }

    /// The text of its file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn system(&self) -> &InstalledSystem {
        &self.system
    }

    pub(crate) fn trace(&self) -> &BootTrace {
        &self.trace
    }

    /// The digest of the experiment as it is in its files.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}

/// Contents of a built-in name or of a file, decompressed if it is zstd.
fn read(name: &str, built_in: Option<&'static [u8]>) -> Result<Vec<u8>, Error> {
    let bytes: Cow<'_, [u8]> = match built_in {
        Some(bytes) => bytes.into(),
        None => std::fs::read(name).map_err(|error| Error::io(name, &error))?.into(),
    };
    if !bytes.starts_with(&ZSTD) {
        return Ok(bytes.into_owned());
    }
    let unpacked = zstd::bulk::decompress(&bytes, UNPACKED_MAX);
    unpacked.map_err(|error| Error::new(ErrorKind::Corrupt, format!("{name}: {error}")))
}

/// Trace of a boot.
#[derive(Debug)]
pub(crate) struct BootTrace {
    text: Vec<u8>,
    events: Vec<Event>,
}

impl BootTrace {
    /// The text of its file.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// The paths of its events, from the root of the file system.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.events.iter().map(|event| relative(&event.path).to_path_buf())
    }

    /// The byte ranges read, by file.
    pub(crate) fn ranges(&self) -> BTreeMap<&[u8], Vec<(u64, u64)>> {
        let mut ranges: BTreeMap<&[u8], Vec<(u64, u64)>> = BTreeMap::new();
        for event in &self.events {
            if let (Op::Read | Op::Fault | Op::Exec | Op::Mmap, Some(len)) =
                (&event.op, event.length)
            {
                ranges.entry(&event.path).or_default().push((event.offset, len));
            }
        }
        ranges
    }
}

/// A path of a trace, from the root of the file system.
pub(crate) fn relative(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
}
