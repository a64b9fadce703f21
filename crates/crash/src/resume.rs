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

/// Most parts of a campaign.
pub const MOST_PARTS: u32 = 100_000;

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
    /// It does not say of which campaign it is a part.
    #[error("{path}: does not say which part it is, as those of older versions do not")]
    NoPart {
        /// The file.
        path: PathBuf,
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

/// The campaign of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CampaignHead {
    /// The settings of the results ([`Settings::fingerprint`](crate::Settings::fingerprint)).
    pub campaign: String,
    /// Its place among the parts of a campaign; older files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartOf>,
}

/// A part of a campaign whose states are divided.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartOf {
    /// The settings of the results of all parts together.
    pub campaign: String,
    /// Its number, from 1, and that of all parts.
    pub shard: (u32, u32),
    /// Its workloads.
    pub workloads: usize,
    /// The version of the program.
    pub version: String,
}

/// A file that is read to be merged with others.
#[derive(Debug)]
pub struct StatePart {
    /// The file.
    pub path: PathBuf,
    /// The campaign of which it is a part, with the version of the program.
    pub campaign: String,
    /// Its number, from 1, and that of all parts.
    pub shard: (u32, u32),
    /// The workloads that it should have.
    pub workloads: usize,
    /// The results that it has, by workload.
    pub results: Vec<UnitResult>,
}

impl StatePart {
    /// Reads a file.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn read(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Io { path: path.to_path_buf(), source };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LARGEST).read_to_string(&mut text))
            .map_err(failed)?;
        let (head, done) = parse(path, whole_lines(&text))?;
        let head = head.ok_or_else(|| damaged(path, 1))?;
        let Some(part) = head.part else {
            return Err(StateError::NoPart { path: path.to_path_buf() });
        };
        let (number, of) = part.shard;
        if !(1..=of.min(MOST_PARTS)).contains(&number) || of > MOST_PARTS {
            return Err(damaged(path, 1));
        }
        Ok(Self {
            path: path.to_path_buf(),
            campaign: format!("{}; version {}", part.campaign, part.version),
            shard: part.shard,
            workloads: part.workloads,
            results: done.into_values().collect(),
        })
    }
}

/// The lines that were written whole: the last one was being written when the campaign ended.
fn whole_lines(text: &str) -> &str {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    &text[..end]
}

/// A line of the file.
fn line_of(line: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

type Done = BTreeMap<String, UnitResult>;

fn damaged(path: &Path, line: usize) -> StateError {
    StateError::Damaged { path: path.to_path_buf(), line }
}

/// The campaign and the results in the lines of a file.
fn parse(path: &Path, text: &str) -> Result<(Option<CampaignHead>, Done), StateError> {
    let mut lines = text.lines().zip(1..);
    let mut done = Done::new();
    let Some((head, _)) = lines.next() else { return Ok((None, done)) };
    let head = serde_json::from_str(head).map_err(|_| damaged(path, 1))?;
    for (line, number) in lines {
        let result: UnitResult = serde_json::from_str(line).map_err(|_| damaged(path, number))?;
        done.insert(result.workload.clone(), result);
    }
    Ok((Some(head), done))
}

/// The file, open for more.
pub struct StateFile {
    path: PathBuf,
    file: File,
    done: Done,
}

impl StateFile {
    /// Opens a campaign's file, or makes it.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(path: &Path, campaign: &CampaignHead) -> Result<Self, StateError> {
        let failed = |source| StateError::Io { path: path.to_path_buf(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        let mut text = String::new();
        (&mut file).take(LARGEST).read_to_string(&mut text).map_err(failed)?;
        let whole = whole_lines(&text);
        let (head, done) = parse(path, whole)?;
        match &head {
            // At most, its first line was being written.
            None if !line_of(campaign).map_err(failed)?.starts_with(&text) => {
                return Err(damaged(path, 1));
            }
            Some(head) if head.campaign != campaign.campaign => {
                let (path, found) = (path.to_path_buf(), head.campaign.clone());
                return Err(StateError::Other { path, found });
            }
            _ => {}
        }
        // The line that is cut short, of a file that is known to be that of the campaign.
        file.set_len(whole.len() as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut state = Self { path: path.to_path_buf(), file, done };
        if head.is_none() {
            state.put(campaign)?;
        }
        Ok(state)
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
        let text = line_of(line).map_err(failed)?;
        self.file.write_all(text.as_bytes()).map_err(failed)?;
        self.file.sync_data().map_err(failed)
    }
}
