//! The directory of `seekless lab run -o`, and another one for runs that cannot be saved in it.

use super::subject::{Subject, check_of, keep_tables};
use crate::failure::Failure;
use crate::say::warning;
use seekless_lab::LabError;
use seekless_lab::plan::Wanted;
use seekless_lab::run::Run;
use seekless_lab::store::{EXPERIMENT, Store, merge};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A directory of runs, and the runs that could not be saved in it.
pub(super) struct Keeper {
    dir: PathBuf,
    store: Store,
    have: Vec<Run>,
    left: Vec<Run>,
}

impl Keeper {
    /// Opens a directory, new or with runs of the same experiment.
    pub(super) fn open(dir: &Path, subject: &Subject, wanted: &Wanted) -> Result<Self, Failure> {
        let store = Store::create(dir)?;
        let locked = store.lock()?;
        for path in locked.set_damaged_aside()? {
            warning!("{}: not the results of a run: it is performed again", path.display());
        }
        let have = store.runs()?;
        check_of(subject, &have)?;
        locked.sweep()?;
        locked.put(EXPERIMENT, subject.text.as_bytes())?;
        locked.note(wanted)?;
        drop(locked);
        Ok(Self { dir: dir.into(), store, have, left: Vec::new() })
    }

    /// The runs that the directory had when it was opened.
    pub(super) fn have(&self) -> &[Run] {
        &self.have
    }

    /// Saves a run, and tries again to save those that failed before.
    pub(super) fn keep(&mut self, run: &Run) {
        self.left.push(run.clone());
        // `finish` reports the error if the last attempt fails too.
        let _ = self.retry();
    }

    fn retry(&mut self) -> Result<(), LabError> {
        let mut last = Ok(());
        self.left.retain(|run| match self.store.keep(run) {
            Ok(()) => false,
            Err(error) => {
                last = Err(error);
                true
            }
        });
        last
    }

    /// Tries again to save the runs that failed, and writes the tables. Returns all runs, including
    /// those that other processes saved meanwhile, and the failure.
    pub(super) fn finish(
        mut self,
        subject: &Subject,
        runs: Vec<Run>,
    ) -> (Vec<Run>, Option<Failure>) {
        let kept = self.retry();
        let all = self.store.runs().and_then(|there| merge(vec![there, runs.clone()]));
        let (runs, tables) = match all {
            Ok(all) => (all, self.tables(subject)),
            Err(error) => (runs, Err(error)),
        };
        let failure = match (kept, tables) {
            (Err(error), _) => Some(self.rescue(subject, runs.len(), error)),
            (Ok(()), Err(error)) => {
                let what = "all runs were saved, but not their tables (run the command again)";
                Some(Failure::from(error).about(what))
            }
            (Ok(()), Ok(())) => None,
        };
        (runs, failure)
    }

    /// Writes the tables of all runs in the directory: the last of several processes that fill it
    /// includes them all.
    fn tables(&self, subject: &Subject) -> Result<(), LabError> {
        let locked = self.store.lock()?;
        let mut runs = self.store.runs()?;
        runs.sort_by_key(|run| run.id.to_string());
        keep_tables(&locked, subject, &runs)
    }

    /// Saves the remaining runs in a temporary directory, and names it in the error.
    fn rescue(&self, subject: &Subject, all: usize, error: LabError) -> Failure {
        let (lost, dir) = (self.left.len(), self.dir.display());
        let what = match elsewhere(subject, &self.left) {
            Ok(other) => {
                let other = other.display();
                format!(
                    "{lost} of {all} runs shown here are not in {dir} but in {other} \
                     (make room, then: mv {other}/run-* {dir})"
                )
            }
            Err(also) => {
                format!(
                    "{lost} of {all} runs shown here could not be saved, here or elsewhere ({also})"
                )
            }
        };
        Failure::from(error).about(what)
    }
}

/// Creates a new temporary directory. One that exists is not used: in a world-writable place it may
/// belong to somebody else.
fn new_dir(name: &str) -> Result<PathBuf, LabError> {
    let mut number = 0;
    loop {
        let dir = std::env::temp_dir().join(format!("{name}-{number}"));
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(source) => return Err(LabError::Io { path: dir.display().to_string(), source }),
        }
    }
}

/// Saves runs in a new temporary directory.
fn elsewhere(subject: &Subject, runs: &[Run]) -> Result<PathBuf, LabError> {
    let dir = new_dir(&format!("seekless-lab-{}-{}", subject.experiment.name, std::process::id()))?;
    let store = Store::create(&dir)?;
    let locked = store.lock()?;
    let put = locked.put(EXPERIMENT, subject.text.as_bytes());
    let kept = put.and_then(|()| runs.iter().try_for_each(|run| locked.keep(run)));
    if let Err(error) = kept {
        // An incomplete set is of no use: nothing lists its missing runs.
        let _ = std::fs::remove_dir_all(&dir);
        return Err(error);
    }
    Ok(dir)
}
