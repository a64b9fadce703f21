//! Steps that workloads share: a phase, a tree unpacked, a tree removed.

use crate::machine::{Machine, Reading};
use crate::seekplot::SeekPlot;
use crate::tree::Entry;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_units::Ino;

/// A phase that is over: its name, how things stood before and after, and the
/// picture of its requests.
pub type Measured = (&'static str, Reading, Reading, SeekPlot);

pub(super) fn phase<T>(
    machine: &mut Machine,
    name: &'static str,
    work: impl FnOnce(&mut Machine) -> Result<T, FsError>,
) -> Result<Measured, FsError> {
    let ends = machine.phases;
    if ends.cold {
        machine.remount()?;
    }
    machine.wait_a_moment();
    let begun = machine.begin_phase(name);
    work(machine)?;
    if ends.sync {
        machine.sync()?;
    }
    let after = settled(machine)?;
    Ok((name, begun.before, after, machine.picture(&begun)))
}

/// The time now, and the counters once all is on the disk.
pub(super) fn settled(machine: &mut Machine) -> Result<Reading, FsError> {
    let done = machine.reading();
    machine.settle()?;
    Ok(Reading { now: done.now, cpu: done.cpu, ..machine.reading() })
}

/// Where an entry's parent is.
pub(super) fn parent(machine: &Machine, made: &[Ino], entry: &Entry) -> Ino {
    entry.parent.and_then(|at| made.get(at)).copied().unwrap_or_else(|| machine.root())
}

/// `tar -xzf`: entry after entry, and the times of directories at the end.
pub(super) fn untar(machine: &mut Machine, tree: &[Entry]) -> Result<Vec<Ino>, FsError> {
    let mut made = Vec::with_capacity(tree.len());
    for entry in tree {
        let dir = parent(machine, &made, entry);
        let ino = match entry.len {
            None => machine.make(dir, &entry.name, NewFile::Directory)?,
            Some(len) => {
                let ino = machine.make(dir, &entry.name, NewFile::Regular)?;
                machine.unpack(ino, len)?;
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
    Ok(made)
}

/// `rm -rf` of all that lies directly below the root.
pub(super) fn remove_all(machine: &mut Machine, tree: &[Entry]) -> Result<(), FsError> {
    let root = machine.root();
    for (name, ino, is_dir) in machine.list(root)? {
        let ours = |entry: &&Entry| entry.parent.is_none() && entry.name.as_bytes() == name;
        if tree.iter().find(ours).is_some() {
            remove(machine, root, &name, ino, is_dir)?;
        }
    }
    Ok(())
}

/// Generated trees are only a few directories deep.
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
