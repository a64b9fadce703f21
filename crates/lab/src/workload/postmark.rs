//! Postmark (J. Katcher, Network Appliance TR3022, 1997): pools of small files that are made,
//! read, appended to and removed by chance.

use super::process::{Process, Turn, run_all};
use super::steps::{Measured, phase};
use crate::experiment::{Postmark, Workload};
use crate::machine::Machine;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_model::random::Random;
use seekless_units::{ByteLen, Ino};

pub(super) const PHASES: [&str; 1] = ["postmark"];

/// Lengths of files, and of appended pieces: its defaults.
const LENS: (u64, u64) = (500, 10_000);

/// A pool of files in use.
pub(super) struct Pool {
    spec: Postmark,
    directories: Vec<Ino>,
    /// The directory, the number in the name, and the file.
    files: Vec<(Ino, u32, Ino)>,
    made: u32,
    /// Transactions done.
    done: u32,
    chance: Random,
}

impl Pool {
    /// Its directories, in one of the root.
    ///
    /// # Errors
    /// As [`Machine::make`].
    pub(super) fn new(
        machine: &mut Machine,
        name: &str,
        spec: Postmark,
        seed: u64,
    ) -> Result<Self, FsError> {
        let top = machine.make(machine.root(), name, NewFile::Directory)?;
        let directories = (0..spec.directories)
            .map(|number| machine.make(top, &format!("s{number}"), NewFile::Directory))
            .collect::<Result<_, _>>()?;
        let chance = Random::new(seed.wrapping_mul(31).wrapping_add(7));
        Ok(Self { spec, directories, files: Vec::new(), made: 0, done: 0, chance })
    }

    /// Makes all files and does all transactions; the files stay.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn use_all(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        while self.advance(machine)? {}
        Ok(())
    }

    /// Makes a file or does a transaction; false when there is nothing left to do.
    fn advance(&mut self, machine: &mut Machine) -> Result<bool, FsError> {
        if self.made < self.spec.files {
            self.make(machine)?;
        } else if self.done < self.spec.transactions {
            self.done += 1;
            self.transaction(machine)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn len(&mut self) -> ByteLen {
        let (least, most) = LENS;
        ByteLen::new(least + self.chance.below(most - least + 1))
    }

    fn make(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        let dir = self.directories[self.chance.below(self.directories.len() as u64) as usize];
        let ino = machine.make(dir, &self.made.to_string(), NewFile::Regular)?;
        let len = self.len();
        machine.write(ino, len)?;
        self.files.push((dir, self.made, ino));
        self.made += 1;
        Ok(())
    }

    /// One of the files, by chance.
    fn any(&mut self) -> Option<usize> {
        let count = self.files.len() as u64;
        (count > 0).then(|| self.chance.below(count) as usize)
    }

    fn transaction(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        if self.chance.below(2) == 0 {
            self.make(machine)?;
        } else if let Some(at) = self.any() {
            self.remove(machine, at)?;
        }
        let Some(at) = self.any() else { return Ok(()) };
        let ino = self.files[at].2;
        if self.chance.below(2) == 0 {
            return machine.read(ino);
        }
        let (len, more) = (machine.len_of(ino)?, self.len());
        machine.write_record(ino, len, more.get() as usize)
    }

    fn remove(&mut self, machine: &mut Machine, at: usize) -> Result<(), FsError> {
        let (dir, name, _) = self.files.swap_remove(at);
        machine.unlink(dir, name.to_string().as_bytes())
    }
}

/// At the end it removes the remaining files.
impl Process for Pool {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        if self.advance(machine)? {
            return Ok(Turn::Again);
        }
        let Some(last) = self.files.len().checked_sub(1) else { return Ok(Turn::Over) };
        self.remove(machine, last)?;
        Ok(Turn::Again)
    }
}

/// A part of Postmark.
#[derive(Clone, Copy)]
enum PostmarkPhase {
    Create,
    Transactions,
    Delete,
}

/// A pool whose process ends with a stage.
struct Staged<'a> {
    pool: &'a mut Pool,
    stage: PostmarkPhase,
}

impl Process for Staged<'_> {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        let Self { pool, stage } = self;
        let goes_on = match stage {
            PostmarkPhase::Create => pool.made < pool.spec.files,
            PostmarkPhase::Transactions => pool.done < pool.spec.transactions,
            PostmarkPhase::Delete => !pool.files.is_empty(),
        };
        if goes_on { pool.step(machine) } else { Ok(Turn::Over) }
    }
}

/// As many processes as are asked for, each with its own pool.
pub(super) fn perform(
    machine: &mut Machine,
    workload: &Workload,
    seed: u64,
) -> Result<Vec<Measured>, FsError> {
    let Some(spec) = workload.pool else { return Ok(Vec::new()) };
    let writers = u64::from(workload.writers.unwrap_or(1));
    let mut pools = (0..writers)
        .map(|number| {
            let seed = seed.wrapping_add(number);
            Pool::new(machine, &format!("pool{number}"), spec, seed)
        })
        .collect::<Result<Vec<_>, _>>()?;
    machine.settle()?;
    if workload.by_phase {
        let stages = [
            ("create", PostmarkPhase::Create),
            ("transactions", PostmarkPhase::Transactions),
            ("delete", PostmarkPhase::Delete),
        ];
        let staged = stages.into_iter().map(|(name, stage)| {
            phase(machine, name, |machine| {
                let mut all: Vec<Staged<'_>> =
                    pools.iter_mut().map(|pool| Staged { pool, stage }).collect();
                let mut all: Vec<&mut dyn Process> =
                    all.iter_mut().map(|one| one as &mut dyn Process).collect();
                run_all(machine, &mut all)
            })
        });
        return staged.collect();
    }
    let all = phase(machine, "postmark", |machine| {
        let mut all: Vec<&mut dyn Process> =
            pools.iter_mut().map(|pool| pool as &mut dyn Process).collect();
        run_all(machine, &mut all)
    })?;
    Ok(vec![all])
}
