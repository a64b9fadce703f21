//! A tree copied by a pair of archivers (`tar cf - . | tar xpf -`), whose source is in
//! memory, and read again from the disk by `tar cf /dev/zero`.

use super::process::{Process, Turn, run_all};
use super::{Measured, parent, phase, read_below};
use crate::experiment::{Postmark, Workload};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_model::random::Random;
use seekless_units::{ByteLen, Ino};

pub(super) const PHASES: [&str; 2] = ["tarcp", "tar"];

/// A record of 20 blocks of 512 bytes, which `tar` reads and writes if not told otherwise.
const RECORD: u64 = 10_240;
/// What stands in front of each file in an archive, and what contents are filled up to.
const HEADER: u64 = 512;
/// Lengths of Postmark's files, and of what is put behind them: its defaults.
const POOL_LENS: (u64, u64) = (500, 10_000);

/// Copies a tree; each step is a system call or two.
struct Copy {
    tree: Vec<Entry>,
    made: Vec<Ino>,
    /// The file that is written: its length and how much of it there is.
    open: Option<(Ino, u64, u64)>,
    record: u64,
    /// Where in the archive the reader is: what is read is written up to the end of a
    /// record, wherever in the file that is.
    place: u64,
    /// Directories whose times are still to be set, at the end.
    stamps: Vec<Ino>,
    over: bool,
}

impl Copy {
    fn new(mut tree: Vec<Entry>, top: &str, record: u64) -> Self {
        tree.iter_mut().filter(|e| e.parent.is_none()).for_each(|e| e.name = top.into());
        let (made, stamps) = (Vec::new(), Vec::new());
        Self { tree, made, open: None, record, place: 0, stamps, over: false }
    }

    fn make(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        let entry = &self.tree[self.made.len()];
        // The source is looked at and opened.
        machine.look(2);
        let dir = parent(machine, &self.made, entry);
        let new = if entry.len.is_none() { NewFile::Directory } else { NewFile::Regular };
        let ino = machine.make(dir, &entry.name, new)?;
        match entry.len {
            None => self.stamps.push(ino),
            Some(len) => self.open = Some((ino, len.get(), 0)),
        }
        self.made.push(ino);
        self.place += HEADER;
        Ok(())
    }

    /// Writes what the reader has of a file.
    fn write(
        &mut self,
        machine: &mut Machine,
        (ino, len, at): (Ino, u64, u64),
    ) -> Result<u64, FsError> {
        let part = (len - at).min(self.record - self.place % self.record);
        machine.write_record(ino, ByteLen::new(at), part as usize)?;
        self.place += part.next_multiple_of(HEADER);
        Ok(at + part)
    }
}

impl Process for Copy {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        match self.open {
            Some((ino, len, done)) if done < len => {
                let done = self.write(machine, (ino, len, done))?;
                self.open = Some((ino, len, done));
            }
            Some((ino, ..)) => {
                machine.stamp(ino)?;
                self.open = None;
            }
            None if self.made.len() < self.tree.len() => self.make(machine)?,
            None => match self.stamps.pop() {
                Some(dir) => machine.stamp(dir)?,
                None => self.over = true,
            },
        }
        Ok(if self.over { Turn::Over } else { Turn::Again })
    }
}

/// Copies and reads back. The disciplines and policies that a volume is aged under are
/// those of the copy.
pub(super) fn perform(
    machine: &mut Machine,
    workload: &Workload,
    seed: u64,
) -> Result<Vec<Measured>, FsError> {
    if let Some(pool) = workload.aged {
        age(machine, pool, seed)?;
        machine.remount()?;
    }
    let record = workload.record.map_or(RECORD, |size| size.0.get());
    let mut copies: Vec<Copy> = match workload.writers.unwrap_or(1) {
        1 => vec![Copy::new(workload.tree.entries(seed), "srcs", record)],
        writers => (0..writers)
            .filter_map(|number| {
                let part = workload.tree.part(number, writers)?;
                let tree = part.entries(seed.wrapping_add(u64::from(number)));
                Some(Copy::new(tree, &format!("srcs{number}"), record))
            })
            .collect(),
    };
    let tops: Vec<String> =
        copies.iter().filter_map(|copy| Some(copy.tree.first()?.name.clone())).collect();
    let tarcp = phase(machine, "tarcp", |machine| {
        let mut all: Vec<&mut dyn Process> =
            copies.iter_mut().map(|copy| copy as &mut dyn Process).collect();
        run_all(machine, &mut all)
    })?;
    machine.remount()?;
    let tar = phase(machine, "tar", |machine| {
        tops.iter().try_for_each(|top| {
            let top = machine.find(top)?;
            read_below(machine, top)
        })
    })?;
    Ok(vec![tarcp, tar])
}

/// A pool of files in use.
struct Pool {
    directories: Vec<Ino>,
    /// The directory, the number in the name, and the file.
    files: Vec<(Ino, u32, Ino)>,
    made: u32,
    chance: Random,
}

impl Pool {
    fn len(&mut self) -> ByteLen {
        let (least, most) = POOL_LENS;
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
            let (dir, name, _) = self.files.swap_remove(at);
            machine.unlink(dir, name.to_string().as_bytes())?;
        }
        let Some(at) = self.any() else { return Ok(()) };
        let ino = self.files[at].2;
        if self.chance.below(2) == 0 {
            return machine.read(ino);
        }
        let (len, more) = (machine.len_of(ino)?, self.len());
        machine.write_record(ino, len, more.get() as usize)
    }
}

fn age(machine: &mut Machine, pool: Postmark, seed: u64) -> Result<(), FsError> {
    let top = machine.make(machine.root(), "pool", NewFile::Directory)?;
    let directories = (0..pool.directories)
        .map(|number| machine.make(top, &format!("s{number}"), NewFile::Directory))
        .collect::<Result<_, _>>()?;
    let chance = Random::new(seed.wrapping_mul(31).wrapping_add(7));
    let mut files = Pool { directories, files: Vec::new(), made: 0, chance };
    (0..pool.files).try_for_each(|_| files.make(machine))?;
    (0..pool.transactions).try_for_each(|_| files.transaction(machine))
}
