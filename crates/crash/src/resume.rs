//! The file of a campaign's results, so that it can go on after it was interrupted.
//!
//! The first line identifies the campaign, then each workload that is done has a line of JSON. A
//! line is complete or it is the last one, and then it is ignored.

use crate::campaign::UnitResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Most bytes of such a file that are read.
const LARGEST: u64 = 256 << 20;

/// Why a campaign's file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is of another campaign.
    #[error("{path}: belongs to another campaign ({found}); use another file, or remove this one")]
    Other {
        /// The file.
        path: PathBuf,
        /// The fingerprint of that one.
        found: String,
    },
    /// It is not a state file.
    #[error("{path}: line {line}: not a valid campaign state")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    campaign: String,
}

/// The file, open for more.
pub struct StateFile {
    path: PathBuf,
    file: File,
    done: BTreeMap<String, UnitResult>,
}

impl StateFile {
    /// Opens a campaign's file, or makes it.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(path: &Path, campaign: &str) -> Result<Self, StateError> {
        let failed = |source| StateError::Io { path: path.to_path_buf(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        let mut text = String::new();
        (&mut file).take(LARGEST).read_to_string(&mut text).map_err(failed)?;
        // An incomplete line was being written when the campaign ended.
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        text.truncate(whole);
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut state = Self { path: path.to_path_buf(), file, done: BTreeMap::new() };
        let mut lines = text.lines();
        match lines.next() {
            None => state.put(&Head { campaign: campaign.to_string() })?,
            Some(head) => state.check(head, campaign)?,
        }
        for (line, number) in lines.zip(2..) {
            let result: UnitResult =
                serde_json::from_str(line).map_err(|_| state.damaged(number))?;
            state.done.insert(result.workload.clone(), result);
        }
        Ok(state)
    }

    fn damaged(&self, line: usize) -> StateError {
        StateError::Damaged { path: self.path.clone(), line }
    }

    fn check(&self, head: &str, campaign: &str) -> Result<(), StateError> {
        let head: Head = serde_json::from_str(head).map_err(|_| self.damaged(1))?;
        if head.campaign != campaign {
            let path = self.path.clone();
            return Err(StateError::Other { path, found: head.campaign });
        }
        Ok(())
    }

    /// The result of a workload, if it is done.
    #[must_use]
    pub fn result(&self, workload: &str) -> Option<&UnitResult> {
        self.done.get(workload)
    }

    /// Notes that a workload is done.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn note(&mut self, result: &UnitResult) -> Result<(), StateError> {
        self.put(result)?;
        self.done.insert(result.workload.clone(), result.clone());
        Ok(())
    }

    fn put(&mut self, line: &impl Serialize) -> Result<(), StateError> {
        let failed = |source| StateError::Io { path: self.path.clone(), source };
        let mut text = serde_json::to_string(line).map_err(|error| failed(error.into()))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(failed)?;
        self.file.sync_data().map_err(failed)
    }
}
