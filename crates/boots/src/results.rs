//! Results of boots, in a directory if one is given.

use crate::{Subject, error_of};
use seekless_images::{Error, ErrorKind};
use seekless_lab::LabError;
use seekless_lab::boots::outcome::{Boot, BootId};
use seekless_lab::store::{EXPERIMENT, Store};
use std::path::Path;

/// Prefix and suffix of their files.
const PREFIX: &str = "boot-";
const SUFFIX: &str = ".json";

/// The boots of an experiment, those of earlier runs too if they are kept in a directory.
pub struct BootResults {
    store: Option<Store>,
    boots: Vec<Boot>,
}

impl BootResults {
    /// Reads the boots of the same experiment in a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if they are of another experiment or version,
    /// [`ErrorKind::Corrupt`] for a file that is no boot, [`ErrorKind::System`].
    pub fn open(dir: Option<&Path>, subject: &Subject) -> Result<Self, Error> {
        let Some(dir) = dir else { return Ok(Self { store: None, boots: Vec::new() }) };
        let store = Store::create(dir).map_err(error_of)?;
        let locked = store.lock().map_err(error_of)?;
        let boots = read(dir)?;
        let now = [subject.digest(), seekless_lab::run::VERSION];
        if let Some(other) = boots.iter().find(|boot| [&*boot.digest, &*boot.version] != now) {
            return Err(error_of(LabError::Mismatch(format!(
                "{}: {} was measured by another experiment or version (use another directory, or \
                 remove it)",
                dir.display(),
                other.id
            ))));
        }
        locked.sweep().map_err(error_of)?;
        locked.put(EXPERIMENT, subject.text().as_bytes()).map_err(error_of)?;
        drop(locked);
        Ok(Self { store: Some(store), boots })
    }

    /// Whether a boot was measured.
    #[must_use]
    pub fn has(&self, id: &BootId) -> bool {
        self.boots.iter().any(|boot| boot.id == *id)
    }

    pub(crate) fn keep(&mut self, boot: Boot) -> Result<(), Error> {
        if let Some(store) = &self.store {
            let name = format!("{PREFIX}{}{SUFFIX}", boot.id.to_string().replace('/', "+"));
            let text = serde_json::to_string_pretty(&boot)
                .map_err(|error| Error::new(ErrorKind::System, error.to_string()))?;
            let locked = store.lock().map_err(error_of)?;
            locked.put(&name, text.as_bytes()).map_err(error_of)?;
        }
        self.boots.push(boot);
        Ok(())
    }

    /// All boots, those of earlier runs first.
    #[must_use]
    pub fn all(&self) -> &[Boot] {
        &self.boots
    }
}

fn read(dir: &Path) -> Result<Vec<Boot>, Error> {
    let failed = |path: &Path, error| Error::io(path.display(), &error);
    let mut boots = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| failed(dir, error))? {
        let path = entry.map_err(|error| failed(dir, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let text = std::fs::read(&path).map_err(|error| failed(&path, error))?;
        boots.push(serde_json::from_slice(&text).map_err(|error| {
            error_of(LabError::Damaged { path: path.display().to_string(), why: error.to_string() })
        })?);
    }
    boots.sort_by(|a: &Boot, b: &Boot| a.id.cmp(&b.id));
    Ok(boots)
}
