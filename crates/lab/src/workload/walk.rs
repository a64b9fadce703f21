//! A tree that is walked, with cold caches: names, inodes, and contents.

use super::steps::{Measured, phase, untar};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::FsError;
use seekless_model::random::Random;
use seekless_units::Ino;

pub(super) const PHASES: [&str; 4] = ["find", "stat", "part", "read"];

/// An access to each file of a walk.
enum Visit {
    /// Its name is seen (`find`, with the kinds of files in the directory).
    Name,
    /// Its inode is read (`find -size`).
    Stat,
    /// One of this many, selected at random, is read.
    Part(u64, Random),
    /// It is read.
    Read,
}

/// Unpacks the tree and walks it.
pub(super) fn perform(
    machine: &mut Machine,
    tree: &[Entry],
    part: u32,
    seed: u64,
) -> Result<Vec<Measured>, FsError> {
    untar(machine, tree)?;
    let visits = [
        Visit::Name,
        Visit::Stat,
        Visit::Part(part.into(), Random::new(seed.wrapping_add(1))),
        Visit::Read,
    ];
    let phases = PHASES.into_iter().zip(visits).map(|(name, mut visit)| {
        machine.remount()?;
        phase(machine, name, |machine| walk(machine, machine.root(), &mut visit))
    });
    phases.collect()
}

/// Generated trees are a few directories deep.
fn walk(machine: &mut Machine, dir: Ino, visit: &mut Visit) -> Result<(), FsError> {
    for (_, ino, is_dir) in machine.list(dir)? {
        if is_dir {
            machine.stat(ino)?;
            walk(machine, ino, visit)?;
            continue;
        }
        let is_read = match visit {
            Visit::Name => continue,
            Visit::Stat => false,
            Visit::Part(of, chance) => {
                if chance.below(*of) > 0 {
                    continue;
                }
                true
            }
            Visit::Read => true,
        };
        machine.stat(ino)?;
        if is_read {
            machine.read(ino)?;
        }
    }
    Ok(())
}
