//! What is done to a file system, in phases.

use crate::experiment::WorkloadKind;
use crate::machine::{Machine, Reading};
use crate::tree::Entry;
use seekless_fs::operate::NewFile;
use seekless_fs::{DeviceNumber, FileKind, FsError};
use seekless_units::Ino;

/// A phase that is over: its name, how things stood before and after.
pub type Measured = (&'static str, Reading, Reading);

impl WorkloadKind {
    /// The names of its phases, in order.
    #[must_use]
    pub fn phases(self) -> &'static [&'static str] {
        match self {
            Self::UntarRm => &["untar", "rm"],
            Self::MakeNodes => &["make"],
            Self::Remove => &["rm"],
        }
    }

    /// Does it. What is dirty when a phase ends is written after it, in no
    /// phase's time; but its writes count as the phase's.
    ///
    /// # Errors
    /// What the file system says.
    pub fn perform(self, machine: &mut Machine, tree: &[Entry]) -> Result<Vec<Measured>, FsError> {
        match self {
            Self::UntarRm => {
                let untar = phase(machine, "untar", |machine| untar(machine, tree))?;
                Ok(vec![untar, phase(machine, "rm", |machine| remove_all(machine, tree))?])
            }
            Self::MakeNodes => Ok(vec![phase(machine, "make", |machine| nodes(machine, tree))?]),
            Self::Remove => {
                untar(machine, tree)?;
                machine.settle()?;
                Ok(vec![phase(machine, "rm", |machine| remove_all(machine, tree))?])
            }
        }
    }
}

fn phase(
    machine: &mut Machine,
    name: &'static str,
    work: impl FnOnce(&mut Machine) -> Result<(), FsError>,
) -> Result<Measured, FsError> {
    let before = machine.reading();
    work(machine)?;
    let done = machine.reading();
    machine.settle()?;
    let settled = machine.reading();
    Ok((name, before, Reading { now: done.now, cpu: done.cpu, ..settled }))
}

/// Where an entry's parent is.
fn parent(machine: &Machine, made: &[Ino], entry: &Entry) -> Ino {
    entry.parent.and_then(|at| made.get(at)).copied().unwrap_or_else(|| machine.root())
}

/// `tar -xzf`: entry after entry, and the times of directories at the end.
fn untar(machine: &mut Machine, tree: &[Entry]) -> Result<(), FsError> {
    let mut made = Vec::with_capacity(tree.len());
    for entry in tree {
        let dir = parent(machine, &made, entry);
        let ino = match entry.len {
            None => machine.make(dir, &entry.name, NewFile::Directory)?,
            Some(len) => {
                let ino = machine.make(dir, &entry.name, NewFile::Regular)?;
                machine.fill(ino, len)?;
                machine.stamp(ino)?;
                ino
            }
        };
        made.push(ino);
    }
    for (entry, &ino) in tree.iter().zip(&made).rev() {
        if entry.len.is_none() {
            machine.stamp(ino)?;
        }
    }
    Ok(())
}

/// `MAKEDEV`: the files of the tree as device nodes.
fn nodes(machine: &mut Machine, tree: &[Entry]) -> Result<(), FsError> {
    let mut made = Vec::with_capacity(tree.len());
    for (minor, entry) in (0..).zip(tree) {
        let dir = parent(machine, &made, entry);
        let number = DeviceNumber { major: 4, minor: minor & 0xFF };
        let new = match entry.len {
            None => NewFile::Directory,
            Some(_) => NewFile::Device(FileKind::CharDevice, number),
        };
        made.push(machine.make(dir, &entry.name, new)?);
    }
    Ok(())
}

/// `rm -rf` of all that lies directly below the root.
fn remove_all(machine: &mut Machine, tree: &[Entry]) -> Result<(), FsError> {
    let root = machine.root();
    for (name, ino, is_dir) in machine.list(root)? {
        let ours = |entry: &&Entry| entry.parent.is_none() && entry.name.as_bytes() == name;
        if tree.iter().find(ours).is_some() {
            remove(machine, root, &name, ino, is_dir)?;
        }
    }
    Ok(())
}

/// Trees here are a few directories deep; what is generated has no more.
fn remove(
    machine: &mut Machine,
    dir: Ino,
    name: &[u8],
    ino: Ino,
    is_dir: bool,
) -> Result<(), FsError> {
    if !is_dir {
        return machine.unlink(dir, name);
    }
    let inside = machine.list(ino)?;
    for (_, ino, _) in &inside {
        machine.stat(*ino)?;
    }
    for (name, inner, is_dir) in inside {
        remove(machine, ino, &name, inner, is_dir)?;
    }
    machine.rmdir(dir, name)
}
