//! Operations on a file system, in phases.

mod andrew;
mod archive;
mod copy;
mod postmark;
mod process;
mod snapshots;
mod steps;
mod torture;
mod walk;

pub use steps::Measured;

use crate::experiment::{Workload, WorkloadKind};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::operate::NewFile;
use seekless_fs::{DeviceNumber, FileKind, FsError};
use seekless_model::random::Random;
use seekless_units::{ByteLen, Ino};
use std::collections::HashMap;
use steps::{parent, phase, remove_all, untar};

impl WorkloadKind {
    /// The names of its phases, in order.
    #[must_use]
    pub fn phases(self) -> &'static [&'static str] {
        match self {
            Self::UntarRm => &["untar", "rm"],
            Self::MakeNodes => &["make"],
            Self::Remove => &["rm"],
            Self::Andrew => &andrew::PHASES,
            Self::Torture => &["all"],
            Self::TreeThenFiles => &["mkdir", "files", "read", "rm"],
            Self::CopyInOrder => &copy::PHASES,
            Self::Archive => &archive::PHASES,
            Self::Postmark => &postmark::PHASES,
            Self::Walk => &walk::PHASES,
            Self::Snapshots => &snapshots::PHASES,
        }
    }
}

impl Workload {
    /// Performs it. Blocks dirty when a phase ends are written after it, in no phase's time; but
    /// these writes count as the phase's.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn perform(&self, machine: &mut Machine, seed: u64) -> Result<Vec<Measured>, FsError> {
        let tree = &*self.tree.entries(seed);
        match self.kind {
            WorkloadKind::UntarRm => {
                let untar = phase(machine, "untar", |machine| untar(machine, tree).map(|_| ()))?;
                Ok(vec![untar, phase(machine, "rm", |machine| remove_all(machine, tree))?])
            }
            WorkloadKind::MakeNodes => {
                Ok(vec![phase(machine, "make", |machine| nodes(machine, tree))?])
            }
            WorkloadKind::Remove => {
                untar(machine, tree)?;
                machine.settle()?;
                Ok(vec![phase(machine, "rm", |machine| remove_all(machine, tree))?])
            }
            WorkloadKind::Andrew => andrew::perform(machine, tree),
            WorkloadKind::Torture => {
                let etc = self.copied.as_ref().map_or_else(Vec::new, |tree| tree.entries(seed));
                torture::perform(machine, tree, &etc, self.rounds.unwrap_or(1), seed)
            }
            WorkloadKind::TreeThenFiles => {
                let order = match (self.shuffled, self.in_turn) {
                    (true, _) => CreationOrder::Chance(Random::new(seed)),
                    (false, true) => CreationOrder::InTurn(self.remount_after),
                    (false, false) => CreationOrder::Tree,
                };
                tree_then_files(machine, tree, order, self)
            }
            WorkloadKind::CopyInOrder => copy::perform(machine, tree, self.atime),
            WorkloadKind::Archive => archive::perform(machine, self, seed),
            WorkloadKind::Postmark => postmark::perform(machine, self, seed),
            WorkloadKind::Walk => walk::perform(machine, tree, self.part.unwrap_or(1), seed),
            WorkloadKind::Snapshots => {
                snapshots::perform(machine, tree, self.snapshots.unwrap_or(0))
            }
        }
    }
}

/// The order in which the files of a tree are made.
enum CreationOrder {
    /// As they stand in it, directory by directory.
    Tree,
    /// By chance.
    Chance(Random),
    /// The first of each directory, then the second of each; after this number of rounds the
    /// volume is remounted.
    InTurn(Option<u32>),
}

/// Makes directories first, then their files, then reads all of it from the disk, directory by
/// directory, and removes it.
fn tree_then_files(
    machine: &mut Machine,
    tree: &[Entry],
    order: CreationOrder,
    workload: &Workload,
) -> Result<Vec<Measured>, FsError> {
    let mut made = Vec::with_capacity(tree.len());
    let mkdir = phase(machine, "mkdir", |machine| {
        for entry in tree {
            let dir = parent(machine, &made, entry);
            made.push(match entry.len {
                None => machine.make(dir, &entry.name, NewFile::Directory)?,
                Some(_) => dir,
            });
        }
        Ok(())
    })?;
    let mut files: Vec<(&str, Ino, ByteLen)> = tree
        .iter()
        .zip(&made)
        .filter_map(|(entry, &dir)| Some((&*entry.name, dir, entry.len?)))
        .collect();
    let mut first_mount = None;
    match order {
        CreationOrder::Tree => {}
        CreationOrder::Chance(mut chance) => chance.shuffle(&mut files),
        CreationOrder::InTurn(remount_after) => {
            let mut made_in: HashMap<Ino, u32> = HashMap::new();
            let round = |(_, dir, _): &(&str, Ino, ByteLen)| {
                let round = made_in.entry(*dir).or_default();
                *round += 1;
                *round
            };
            let rounds: Vec<u32> = files.iter().map(round).collect();
            let mut in_turn: Vec<_> = rounds.into_iter().zip(files).collect();
            in_turn.sort_by_key(|(round, _)| *round);
            first_mount =
                remount_after.map(|rounds| in_turn.partition_point(|&(round, _)| round <= rounds));
            files = in_turn.into_iter().map(|(_, file)| file).collect();
        }
    }
    let files = phase(machine, "files", |machine| {
        for (count, (name, dir, len)) in files.into_iter().enumerate() {
            if first_mount == Some(count) {
                machine.remount()?;
            }
            let ino = machine.make(dir, name, NewFile::Regular)?;
            machine.write(ino, len)?;
        }
        Ok(())
    })?;
    machine.remount()?;
    let check = match workload.check {
        true => Some(phase(machine, "check", Machine::check)?),
        false => None,
    };
    let read = phase(machine, "read", |machine| read_below(machine, machine.root()))?;
    machine.remount()?;
    let rm = phase(machine, "rm", |machine| remove_all(machine, tree))?;
    Ok([Some(mkdir), Some(files), check, Some(read), Some(rm)].into_iter().flatten().collect())
}

/// Reads every file below a directory. Trees here are a few directories deep.
fn read_below(machine: &mut Machine, dir: Ino) -> Result<(), FsError> {
    for (_, ino, is_dir) in machine.list(dir)? {
        if is_dir {
            read_below(machine, ino)?;
        } else {
            machine.stat(ino)?;
            machine.read(ino)?;
        }
    }
    Ok(())
}

/// `MAKEDEV`: the files of the tree as device nodes. It is a shell script: each
/// node takes a program.
fn nodes(machine: &mut Machine, tree: &[Entry]) -> Result<(), FsError> {
    let mut made = Vec::with_capacity(tree.len());
    for (minor, entry) in (0..).zip(tree) {
        let dir = parent(machine, &made, entry);
        let number = DeviceNumber { major: 4, minor: minor & 0xFF };
        let new = match entry.len {
            None => NewFile::Directory,
            Some(_) => NewFile::Device(FileKind::CharDevice, number),
        };
        machine.run_program();
        made.push(machine.make(dir, &entry.name, new)?);
    }
    Ok(())
}
