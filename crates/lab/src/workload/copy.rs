//! A directory copied in the order in which it is listed, from volume to volume.
//!
//! The calls of `cp -r` and `rm -r` of coreutils 6 for each name, in the order of the directory: no
//! names are sorted first.

use super::steps::{Measured, phase};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_units::Ino;

pub(super) const PHASES: [&str; 6] =
    ["make", "cp-first", "back", "cp-second", "rm-copy", "rm-first"];

const FIRST: &str = "sub";
const COPY: &str = "ordered1";
const SECOND: &str = "ordered2";

/// The volume where all begins, and the other.
const A: usize = 0;
const B: usize = 1;

pub(super) fn perform(
    machine: &mut Machine,
    tree: &[Entry],
    atime: bool,
) -> Result<Vec<Measured>, FsError> {
    let mut done = Vec::new();
    machine.select(A);
    done.push(phase(machine, "make", |machine| {
        let dir = machine.make(machine.root(), FIRST, NewFile::Directory)?;
        for entry in tree.iter().filter(|entry| entry.len.is_some()) {
            machine.run_program();
            machine.make(dir, &entry.name, NewFile::Regular)?;
        }
        Ok(())
    })?);
    let copied = |machine: &mut Machine, name, (from, source), (to, target)| {
        machine.select(from);
        phase(machine, name, |machine| copy(machine, (from, source), (to, target), atime))
    };
    machine.remount()?;
    done.push(copied(machine, "cp-first", (A, FIRST), (B, COPY))?);
    done.push(copied(machine, "back", (B, COPY), (A, COPY))?);
    machine.remount()?;
    done.push(copied(machine, "cp-second", (A, COPY), (B, SECOND))?);
    machine.remount()?;
    machine.select(A);
    done.push(phase(machine, "rm-copy", |machine| remove(machine, COPY))?);
    done.push(phase(machine, "rm-first", |machine| remove(machine, FIRST))?);
    Ok(done)
}

/// `cp -r SOURCE TARGET`.
fn copy(
    machine: &mut Machine,
    (from, source): (usize, &str),
    (to, target): (usize, &str),
    atime: bool,
) -> Result<(), FsError> {
    machine.select(from);
    let dir = machine.find(source)?;
    let names = machine.list(dir)?;
    machine.select(to);
    let new = machine.make(machine.root(), target, NewFile::Directory)?;
    for (name, ino, _) in names {
        machine.select(from);
        // lstat, open and fstat.
        machine.stat(ino)?;
        machine.look(2);
        machine.read(ino)?;
        if atime {
            machine.accessed(ino)?;
        }
        machine.select(to);
        // It looks whether there is one, and at the new one.
        machine.look(2);
        let name = String::from_utf8_lossy(&name);
        machine.make(new, &name, NewFile::Regular)?;
    }
    Ok(())
}

/// `rm -rf NAME`: each listed entry is looked at and removed, one after the other.
fn remove(machine: &mut Machine, name: &str) -> Result<(), FsError> {
    let dir: Ino = machine.find(name)?;
    for (name, ino, _) in machine.list(dir)? {
        machine.stat(ino)?;
        machine.unlink(dir, &name)?;
    }
    machine.rmdir(machine.root(), name.as_bytes())
}
