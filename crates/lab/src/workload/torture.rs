//! The tests that soft updates were run under for days: the Andrew benchmark
//! again and again, a tree copied and removed with pauses, and all names of the
//! volume looked at, all three at once (FreeBSD,
//! `sys/contrib/softupdates/README`).

use super::andrew::{Andrew, Source};
use super::process::{Process, Turn, run_all};
use super::steps::{Measured, parent, phase, untar};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_model::random::Random;
use seekless_units::{Ino, Nanos};

const SECOND: u64 = 1_000_000_000;
/// Longest pause between a copy and its removal, in seconds.
const COPY_PAUSE: u64 = 60;
/// Longest pause between two walks, in seconds.
const WALK_PAUSE: u64 = 100;

/// The Andrew benchmark, several times.
struct Benchmarks<'a> {
    run: Andrew<'a>,
    left: u32,
}

impl Process for Benchmarks<'_> {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        if self.run.step(machine)? != Turn::Over {
            return Ok(Turn::Again);
        }
        self.run.clear(machine)?;
        self.left -= 1;
        Ok(if self.left == 0 { Turn::Over } else { Turn::Again })
    }
}

/// A tree copied and removed, with pauses.
struct Copies<'a> {
    source: &'a Source<'a>,
    made: Vec<Ino>,
    removing: bool,
    left: u32,
    chance: Random,
}

impl Copies<'_> {
    fn copy(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        let at = self.made.len();
        let entry = &self.source.entries[at];
        let dir = parent(machine, &self.made, entry);
        let name = if entry.parent.is_none() { "copy" } else { &*entry.name };
        self.made.push(match entry.len {
            None => machine.make(dir, name, NewFile::Directory)?,
            Some(len) => {
                machine.read(self.source.inos[at])?;
                let ino = machine.make(dir, name, NewFile::Regular)?;
                machine.write(ino, len)?;
                ino
            }
        });
        Ok(())
    }

    /// Removes the youngest entry: entries of a directory are younger than it.
    fn remove(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        self.made.pop();
        let entry = &self.source.entries[self.made.len()];
        let dir = parent(machine, &self.made, entry);
        let name = if entry.parent.is_none() { "copy" } else { &*entry.name };
        match entry.len {
            None => machine.rmdir(dir, name.as_bytes()),
            Some(_) => machine.unlink(dir, name.as_bytes()),
        }
    }
}

impl Process for Copies<'_> {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        let over = if self.removing {
            self.remove(machine)?;
            self.made.is_empty()
        } else {
            self.copy(machine)?;
            self.made.len() == self.source.entries.len()
        };
        if !over {
            return Ok(Turn::Again);
        }
        self.left -= u32::from(self.removing);
        self.removing = !self.removing;
        if self.left == 0 {
            return Ok(Turn::Over);
        }
        machine.run_program();
        Ok(Turn::Pause(Nanos::new(self.chance.below(COPY_PAUSE * SECOND))))
    }
}

/// `find /`, several times.
struct Walks {
    open: Vec<Ino>,
    left: u32,
    chance: Random,
}

/// An entry may be gone, or be of another kind, since its directory was read.
fn if_still_there<T: Default>(result: Result<T, FsError>) -> Result<T, FsError> {
    match result {
        Err(FsError::NotFound(_) | FsError::NotDirectory(_)) => Ok(T::default()),
        other => other,
    }
}

impl Process for Walks {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        let Some(dir) = self.open.pop() else {
            if self.left == 0 {
                return Ok(Turn::Over);
            }
            self.left -= 1;
            self.open.push(machine.root());
            machine.run_program();
            return Ok(Turn::Pause(Nanos::new(self.chance.below(WALK_PAUSE * SECOND))));
        };
        for (_, ino, is_dir) in if_still_there(machine.list(dir))? {
            if_still_there(machine.stat(ino))?;
            if is_dir {
                self.open.push(ino);
            }
        }
        Ok(Turn::Again)
    }
}

/// `rounds` runs of the benchmark and copies of `copied`, half as many walks.
pub(super) fn perform(
    machine: &mut Machine,
    tree: &[Entry],
    copied: &[Entry],
    rounds: u32,
    seed: u64,
) -> Result<Vec<Measured>, FsError> {
    let mut copied = copied.to_vec();
    copied.iter_mut().filter(|e| e.parent.is_none()).for_each(|e| e.name = "etc".into());
    let source = Source { entries: tree, inos: untar(machine, tree)? };
    let etc = Source { entries: &copied, inos: untar(machine, &copied)? };
    machine.remount()?;
    let mut benchmarks = Benchmarks { run: Andrew::new(&source, "andrew"), left: rounds };
    let mut copies = Copies {
        source: &etc,
        made: Vec::new(),
        removing: false,
        left: rounds,
        chance: Random::new(seed),
    };
    let chance = Random::new(seed.wrapping_add(1));
    let mut walks = Walks { open: Vec::new(), left: rounds.div_ceil(2), chance };
    let all = phase(machine, "all", |machine| {
        run_all(machine, &mut [&mut benchmarks, &mut copies, &mut walks])
    })?;
    Ok(vec![all])
}
