//! Models of devices by name: presets and parameter files.

use crate::failure::{Failure, Kind};
use seekless_model::disksim::{self, ImportError};
use seekless_model::preset::{self, Spec, SpecError};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum length of a parameter file, in bytes; the defect lists of all known drives are shorter.
const LARGEST: u64 = 64 << 20;

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        match error {
            SpecError::Unknown { .. } => Self::usage(format!(
                "{error} (`seekless model list` shows all; a path names a file)"
            )),
            SpecError::Invalid { .. } => Self::new(Kind::Corrupt, error.to_string()),
        }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match &error {
            ImportError::Io { file, source } => Self::io(file, source),
            _ => Self::new(Kind::Corrupt, error.to_string()),
        }
    }
}

/// The model of a preset's name, or of a parameter file's path.
pub(crate) fn spec(name: &str) -> Result<Spec, Failure> {
    let path = Path::new(name);
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("parv" | "diskspecs" | "model") => import(path),
        _ if extension == Some("toml") || name.contains('/') => {
            let text = read(path).map_err(|error| Failure::io(name, &error))?;
            Ok(preset::parse(&text, name)?)
        }
        _ => Ok(preset::spec(name)?),
    }
}

/// Imports a drive from DiskSim's parameter files. Files that they name are read from the same
/// directory.
pub(crate) fn import(path: &Path) -> Result<Spec, Failure> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    disksim::import(&name, &mut |file| read(&dir.join(file)))
        .map_err(Failure::from)
        // The message names the file, which may be one that the given file names.
        .map_err(
            |failure| if dir == Path::new("") { failure } else { failure.about(dir.display()) },
        )
}

/// Reads a parameter file, or a table of results, of at most [`LARGEST`] bytes.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if read as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large for a parameter file"));
    }
    Ok(text)
}
