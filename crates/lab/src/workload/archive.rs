//! A tree copied by a pair of archivers (`tar cf - . | tar xpf -`), whose source is in
//! memory, and read again from the disk by `tar cf /dev/zero`.

use super::postmark::Pool;
use super::process::{Process, Turn, run_all};
use super::steps::{Measured, parent, phase};
use crate::experiment::{Postmark, Workload};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_units::{ByteLen, Ino};

pub(super) const PHASES: [&str; 2] = ["tarcp", "tar"];

/// The default record of `tar`: 20 blocks of 512 bytes.
const RECORD: u64 = 10_240;
/// The header in front of each file in an archive; contents are padded to a multiple of it.
const HEADER: u64 = 512;

/// Copies a tree; each step is a system call or two.
struct Copy {
    tree: Vec<Entry>,
    made: Vec<Ino>,
    /// The file that is written: its length and how much of it there is.
    open: Option<(Ino, u64, u64)>,
    record: u64,
    /// Where in the archive the reader is: contents read are written up to the end of a record,
    /// wherever in the file that is.
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
            Some(len) => {
                machine.open(ino)?;
                self.open = Some((ino, len.get(), 0));
            }
        }
        self.made.push(ino);
        self.place += HEADER;
        Ok(())
    }

    /// Writes the part of a file that the reader has.
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
                machine.close_file(ino)?;
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
        let mut place = 0;
        tops.iter().try_for_each(|top| {
            let top = machine.find(top)?;
            read_back(machine, top, record, &mut place)
        })
    })?;
    Ok(vec![tarcp, tar])
}

/// Reads every file below a directory, into an archive that is full up to a place.
fn read_back(machine: &mut Machine, dir: Ino, record: u64, place: &mut u64) -> Result<(), FsError> {
    for (_, ino, is_dir) in machine.list(dir)? {
        *place += HEADER;
        if is_dir {
            read_back(machine, ino, record, place)?;
            continue;
        }
        machine.stat(ino)?;
        let len = machine.read_into(ino, record, *place)?;
        *place += len.get().next_multiple_of(HEADER);
    }
    Ok(())
}

/// Ages the volume by Postmark's operations.
fn age(machine: &mut Machine, pool: Postmark, seed: u64) -> Result<(), FsError> {
    let mut pool = Pool::new(machine, "pool", pool, seed)?;
    pool.use_all(machine)
}
