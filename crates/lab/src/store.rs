//! Runs kept in a directory, each in a file of its own, written when it is over: an interrupted
//! experiment goes on where it was.
//!
//! A file has its name only when all of it is on the disk; until then it has a hidden one, which
//! the next to open the directory removes. A writer locks the directory, so that several may fill
//! it at once.

use crate::LabError;
use crate::plan::Wanted;
use crate::run::{Run, RunId};
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Name of the experiment's file in a directory of results.
pub const EXPERIMENT: &str = "experiment.toml";

/// How the files of runs begin and end.
const PREFIX: &str = "run-";
const SUFFIX: &str = ".json";
/// How the files of the selections begin that filled the directory.
const SELECTION: &str = "selection-";
/// How the names of files begin and end that are being written.
const HALF: (&str, &str) = (".", ".part");

/// A directory of results.
pub struct Store {
    dir: PathBuf,
}

/// A directory of results, locked against other writers.
pub struct Locked<'a> {
    dir: &'a Path,
    /// Open as long as the lock holds.
    handle: File,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> LabError + '_ {
    move |source| LabError::Io { path: path.display().to_string(), source }
}

impl Store {
    /// A directory, made if it is not there.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn create(dir: &Path) -> Result<Self, LabError> {
        fs::create_dir_all(dir).map_err(failed(dir))?;
        Ok(Self { dir: dir.into() })
    }

    /// Waits until no other process writes to it. Where directories cannot be locked it does not
    /// wait.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn lock(&self) -> Result<Locked<'_>, LabError> {
        let handle = File::open(&self.dir).map_err(failed(&self.dir))?;
        // Without a lock all is as it should be but for two that end at once.
        let _ = rustix::io::retry_on_intr(|| flock(&handle, FlockOperation::LockExclusive));
        Ok(Locked { dir: &self.dir, handle })
    }

    /// As [`Locked::keep`].
    ///
    /// # Errors
    /// [`LabError::Io`], as when the disk is full.
    pub fn keep(&self, run: &Run) -> Result<(), LabError> {
        self.lock()?.keep(run)
    }

    /// The selections of runs that were requested here ([`Locked::note`]).
    ///
    /// # Errors
    /// As [`Store::runs`].
    pub fn selections(&self) -> Result<Vec<Wanted>, LabError> {
        let is = |name: &str| name.starts_with(SELECTION) && name.ends_with(SUFFIX);
        named(&self.dir, is)?.iter().map(|path| read(path)).collect()
    }

    /// The runs that can be read, by name, and why others cannot.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn readable_runs(&self) -> Result<(Vec<Run>, Vec<LabError>), LabError> {
        let (mut runs, mut damaged) = (Vec::new(), Vec::new());
        for path in named(&self.dir, is_run)? {
            match read(&path) {
                Ok(run) => runs.push(run),
                Err(error @ LabError::Damaged { .. }) => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok((runs, damaged))
    }

    /// All runs kept, by name.
    ///
    /// # Errors
    /// [`LabError::Io`]; [`LabError::Damaged`] for a file that is not a run.
    pub fn runs(&self) -> Result<Vec<Run>, LabError> {
        named(&self.dir, is_run)?.iter().map(|path| read(path)).collect()
    }
}

fn is_run(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// The files of a directory whose names are so, sorted.
fn named(dir: &Path, is: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, LabError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed(dir))? {
        let entry = entry.map_err(failed(dir))?;
        if is(&entry.file_name().to_string_lossy()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// The name of a run's file: all its names, each percent-encoded where a character is not allowed
/// in names of files. Two runs never have the same: the separators are in no name.
fn file_name(run: &Run) -> String {
    let id = &run.id;
    let names = [&run.experiment, &id.workload, &id.system, &id.discipline, &id.policy];
    let names: Vec<String> = names.into_iter().map(|name| encoded(name)).collect();
    let again = if id.repetition > 0 { format!("+{}", id.repetition) } else { String::new() };
    format!("{PREFIX}{}+{}{again}{SUFFIX}", names.join("+"), id.seed)
}

fn encoded(name: &str) -> String {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let one = |byte| if fit(byte) { char::from(byte).into() } else { format!("%{byte:02X}") };
    name.bytes().map(one).collect()
}

impl Locked<'_> {
    /// Keeps a run. Either all of it is on the disk when this returns, or the
    /// directory is as before.
    ///
    /// # Errors
    /// [`LabError::Io`], as when the disk is full.
    pub fn keep(&self, run: &Run) -> Result<(), LabError> {
        let text = serde_json::to_string_pretty(run).map_err(|error| LabError::Damaged {
            path: run.id.to_string(),
            why: error.to_string(),
        })?;
        self.put(&file_name(run), text.as_bytes())
    }

    /// Notes which runs are requested here, so that a merge knows which there should be.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn note(&self, wanted: &Wanted) -> Result<(), LabError> {
        let damaged = |why: serde_json::Error| LabError::Damaged {
            path: wanted.to_string(),
            why: why.to_string(),
        };
        let text = serde_json::to_string_pretty(wanted).map_err(damaged)?;
        let sum = Sha256::digest(&text);
        let sum: String = sum.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        self.put(&format!("{SELECTION}{sum}{SUFFIX}"), text.as_bytes())
    }

    /// Writes a file of the directory, all of it or nothing. One that holds the
    /// same is left alone, also where nothing may be written.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), LabError> {
        let path = self.dir.join(name);
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let half = self.dir.join(format!("{}{name}{}", HALF.0, HALF.1));
        let written = File::create(&half).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        let done = written.and_then(|()| fs::rename(&half, &path));
        if done.is_err() {
            // A partly written file is useless; failure to remove it adds nothing to the error
            // itself.
            let _ = fs::remove_file(&half);
        }
        // The name as well; file systems that cannot sync a directory have to do without.
        let _ = self.handle.sync_all();
        done.map_err(failed(&path))
    }

    /// Renames files that should be runs and are not, such as those that were cut short, so that
    /// these runs count as missing. Returns their new names, which end in `.damaged`.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn set_damaged_aside(&self) -> Result<Vec<PathBuf>, LabError> {
        let mut aside = Vec::new();
        for path in named(self.dir, is_run)? {
            if matches!(read::<Run>(&path), Err(LabError::Damaged { .. })) {
                let mut name = path.clone().into_os_string();
                name.push(".damaged");
                fs::rename(&path, &name).map_err(failed(&path))?;
                aside.push(name.into());
            }
        }
        Ok(aside)
    }

    /// Removes the partial files of writers that were killed.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn sweep(&self) -> Result<(), LabError> {
        let is_half = |name: &str| name.starts_with(HALF.0) && name.ends_with(HALF.1);
        let halves = named(self.dir, is_half)?;
        halves.iter().try_for_each(|path| fs::remove_file(path).map_err(failed(path)))
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    let text = fs::read(path).map_err(failed(path))?;
    serde_json::from_slice(&text).map_err(|error| LabError::Damaged {
        path: path.display().to_string(),
        why: error.to_string(),
    })
}

/// Refuses runs that do not measure the same thing: of several experiments, of files that differ,
/// of different versions.
///
/// # Errors
/// [`LabError::Mismatch`], with the difference.
pub fn check_alike(runs: &[Run]) -> Result<(), LabError> {
    let Some(first) = runs.first() else { return Ok(()) };
    for run in runs {
        let pairs = [
            ("experiments", &first.experiment, &run.experiment),
            ("versions of seekless", &first.version, &run.version),
            ("versions of the experiment file", &first.digest, &run.digest),
        ];
        if let Some((what, a, b)) = pairs.into_iter().find(|(_, a, b)| a != b) {
            return Err(LabError::Mismatch(format!(
                "results of different {what} cannot be merged: {a} ({}) and {b} ({})",
                first.id, run.id
            )));
        }
    }
    Ok(())
}

/// Runs of several directories as one list. A run that is there twice is there
/// once, if both say the same.
///
/// # Errors
/// As [`check_alike`]; [`LabError::Mismatch`] for a run with two results.
pub fn merge(sets: Vec<Vec<Run>>) -> Result<Vec<Run>, LabError> {
    let mut all: Vec<Run> = sets.into_iter().flatten().collect();
    check_alike(&all)?;
    all.sort_by_key(|run| run.id.to_string());
    if let Some(pair) = all.windows(2).find(|pair| pair[0].id == pair[1].id && pair[0] != pair[1]) {
        return Err(LabError::Mismatch(format!("there are two results of {}", pair[0].id)));
    }
    all.dedup_by(|a, b| a.id == b.id);
    Ok(all)
}

/// Of the runs wanted, those that are not there yet.
#[must_use]
pub fn missing(wanted: &[RunId], have: &[Run]) -> Vec<RunId> {
    wanted.iter().filter(|id| !have.iter().any(|run| run.id == **id)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, version: &str) -> Run {
        let id = RunId {
            workload: "w".into(),
            system: "../s".into(),
            discipline: "sync".into(),
            policy: "orlov".into(),
            seed,
            repetition: 0,
        };
        let (experiment, digest) = ("e".to_string(), "d".to_string());
        Run { experiment, digest, version: version.into(), id, phases: Vec::new() }
    }

    #[test]
    fn what_is_kept_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(&dir.path().join("new")).unwrap();
        store.keep(&run(2, "1")).unwrap();
        store.keep(&run(1, "1")).unwrap();
        store.keep(&run(1, "1")).unwrap();
        let half = store.dir.join(".run-half.json.part");
        fs::write(&half, "{").unwrap();
        let found = store.runs().unwrap();
        assert_eq!(found, [run(1, "1"), run(2, "1")]);
        let wanted = [run(2, "1").id, run(3, "1").id];
        assert_eq!(missing(&wanted, &found), [run(3, "1").id]);
        store.lock().unwrap().sweep().unwrap();
        assert!(!half.exists() && store.runs().unwrap() == found);
        fs::write(store.dir.join("run-x.json"), "{").unwrap();
        assert!(matches!(store.runs(), Err(LabError::Damaged { .. })));
        fs::write(store.dir.join("run-y.json"), b"{\xFF").unwrap();
        let aside = store.lock().unwrap().set_damaged_aside().unwrap();
        assert_eq!(aside, ["x", "y"].map(|n| store.dir.join(format!("run-{n}.json.damaged"))));
        assert_eq!(fs::read(&aside[0]).unwrap(), b"{");
        assert_eq!(store.runs().unwrap(), found);
    }

    #[test]
    fn no_two_runs_share_a_file() {
        let named = |workload: &str, system: &str, repetition| {
            let mut run = run(1, "1");
            (run.id.workload, run.id.system) = (workload.into(), system.into());
            run.id.repetition = repetition;
            file_name(&run)
        };
        let names =
            ["a_b", "a b", "a/b", "a+b", "a%2Fb", "ä", "../a", ""].map(|n| named("w", n, 0));
        let more = [named("w", "a", 0), named("w", "a", 1), named("w+a", "b", 0)];
        let all: Vec<String> = names.into_iter().chain(more).collect();
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        let fit = |c: char| c.is_ascii_alphanumeric() || "._-+%".contains(c);
        assert!(all.iter().all(|name| name.chars().all(fit)), "{all:?}");
        let mut long = run(u64::MAX, "1");
        let name = "n".repeat(crate::quantity::NAME_MOST);
        long.experiment.clone_from(&name);
        (long.id.workload, long.id.system) = (name.clone(), name);
        (long.id.policy, long.id.repetition) = ("old-dirpref".into(), 999);
        assert!(file_name(&long).len() + HALF.0.len() + HALF.1.len() <= 255);
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(dir.path()).unwrap();
        let locked = store.lock().unwrap();
        locked.put("a", b"old").unwrap();
        let made = fs::metadata(dir.path().join("a")).unwrap().modified().unwrap();
        // The name of the partial file is taken.
        fs::create_dir(dir.path().join(".a.part")).unwrap();
        locked.put("a", b"old").unwrap();
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().modified().unwrap(), made);
        assert!(matches!(locked.put("a", b"new"), Err(LabError::Io { .. })));
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"old");
    }

    #[test]
    fn one_writes_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = [0, 1].map(|_| Store::create(dir.path()).unwrap());
        let locked = one.lock().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| other.keep(&run(1, "1")));
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(!waits.is_finished());
            drop(locked);
            waits.join().unwrap().unwrap();
        });
        assert_eq!(one.runs().unwrap().len(), 1);
    }

    #[test]
    fn what_does_not_go_together_is_not_merged() {
        let merged = merge(vec![vec![run(2, "1"), run(1, "1")], vec![run(1, "1")]]).unwrap();
        assert_eq!(merged.len(), 2);
        let error = merge(vec![vec![run(1, "1")], vec![run(2, "2")]]).unwrap_err().to_string();
        assert!(error.contains("versions of seekless") && error.contains("1 (w/"), "{error}");
        let mut other = run(1, "1");
        other.phases.push(crate::run::Phase {
            phase: "rm".into(),
            seconds: 1.0,
            counts: crate::run::Counts::default(),
            plot: crate::seekplot::SeekPlot::default(),
        });
        assert!(merge(vec![vec![run(1, "1")], vec![other]]).is_err());
    }
}
