//! Results of boots, in a directory if one is given.

use super::Subject;
use crate::cmd::lab::subject::EXPERIMENT;
use crate::failure::{Failure, Kind};
use seekless_lab::LabError;
use seekless_lab::boots::outcome::{Boot, BootId};
use seekless_lab::store::Store;
use std::path::Path;

/// Prefix and suffix of their files.
const PREFIX: &str = "boot-";
const SUFFIX: &str = ".json";

pub(super) struct BootResults {
    store: Option<Store>,
    boots: Vec<Boot>,
}

impl BootResults {
    /// Reads the boots of the same experiment in a directory.
    pub(super) fn open(dir: Option<&Path>, subject: &Subject) -> Result<Self, Failure> {
        let Some(dir) = dir else { return Ok(Self { store: None, boots: Vec::new() }) };
        let store = Store::create(dir)?;
        let locked = store.lock()?;
        let boots = read(dir)?;
        let now = [&*subject.digest, seekless_lab::run::VERSION];
        if let Some(other) = boots.iter().find(|boot| [&*boot.digest, &*boot.version] != now) {
            return Err(LabError::Mismatch(format!(
                "{}: {} was measured by another experiment or version (use another directory, or \
                 remove it)",
                dir.display(),
                other.id
            ))
            .into());
        }
        locked.sweep()?;
        locked.put(EXPERIMENT, subject.text.as_bytes())?;
        drop(locked);
        Ok(Self { store: Some(store), boots })
    }

    pub(super) fn has(&self, id: &BootId) -> bool {
        self.boots.iter().any(|boot| boot.id == *id)
    }

    pub(super) fn keep(&mut self, boot: Boot) -> Result<(), Failure> {
        if let Some(store) = &self.store {
            let name = format!("{PREFIX}{}{SUFFIX}", boot.id.to_string().replace('/', "+"));
            let text = serde_json::to_string_pretty(&boot)
                .map_err(|error| Failure::new(Kind::System, error.to_string()))?;
            store.lock()?.put(&name, text.as_bytes())?;
        }
        self.boots.push(boot);
        Ok(())
    }

    pub(super) fn all(&self) -> &[Boot] {
        &self.boots
    }
}

fn read(dir: &Path) -> Result<Vec<Boot>, Failure> {
    let failed = |path: &Path, error| Failure::io(path.display(), &error);
    let mut boots = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| failed(dir, error))? {
        let path = entry.map_err(|error| failed(dir, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let text = std::fs::read(&path).map_err(|error| failed(&path, error))?;
        boots.push(serde_json::from_slice(&text).map_err(|error| LabError::Damaged {
            path: path.display().to_string(),
            why: error.to_string(),
        })?);
    }
    boots.sort_by(|a: &Boot, b: &Boot| a.id.cmp(&b.id));
    Ok(boots)
}
