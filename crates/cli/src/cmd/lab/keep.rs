//! The directory that `seekless lab run -o` fills, and what is done when it has
//! no room.

use super::{EXPERIMENT, Subject, check_of, keep_tables};
use crate::failure::Failure;
use seekless_lab::LabError;
use seekless_lab::run::Run;
use seekless_lab::store::{Store, merge};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A directory that runs are kept in, and those that it has no room for.
pub(super) struct Keeper {
    dir: PathBuf,
    store: Store,
    have: Vec<Run>,
    left: Vec<Run>,
}

impl Keeper {
    /// A directory, new or with runs of the same experiment.
    pub(super) fn open(dir: &Path, subject: &Subject) -> Result<Self, Failure> {
        let store = Store::create(dir)?;
        let locked = store.lock()?;
        let have = store.runs()?;
        check_of(subject, &have)?;
        locked.sweep()?;
        locked.put(EXPERIMENT, subject.text.as_bytes())?;
        drop(locked);
        Ok(Self { dir: dir.into(), store, have, left: Vec::new() })
    }

    /// The runs that were there.
    pub(super) fn have(&self) -> &[Run] {
        &self.have
    }

    /// Keeps a run and, should there be room again, those that found none.
    pub(super) fn keep(&mut self, run: &Run) {
        self.left.push(run.clone());
        // What went wrong is said at the end, if it still does.
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

    /// Tries once more to keep what found no room, and makes the tables. Gives
    /// all runs, also those that others kept meanwhile, and what went wrong.
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

    /// Tables over all that is in the directory: the last of several that fill
    /// it finds everything there.
    fn tables(&self, subject: &Subject) -> Result<(), LabError> {
        let locked = self.store.lock()?;
        let mut runs = self.store.runs()?;
        runs.sort_by_key(|run| run.id.to_string());
        keep_tables(&locked, subject, &runs)
    }

    /// Keeps what found no room among temporary files, and says so.
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

/// A new directory among temporary files. In a place for everybody another's
/// could wait for us: one that is there is not taken.
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

/// Keeps runs in a new directory among temporary files.
fn elsewhere(subject: &Subject, runs: &[Run]) -> Result<PathBuf, LabError> {
    let dir = new_dir(&format!("seekless-lab-{}-{}", subject.experiment.name, std::process::id()))?;
    let store = Store::create(&dir)?;
    let locked = store.lock()?;
    let put = locked.put(EXPERIMENT, subject.text.as_bytes());
    let kept = put.and_then(|()| runs.iter().try_for_each(|run| locked.keep(run)));
    if let Err(error) = kept {
        // Some of them are no help: which, nobody could tell.
        let _ = std::fs::remove_dir_all(&dir);
        return Err(error);
    }
    Ok(dir)
}
