//! The cost of snapshots of a volume: of those that are there, of one more, and of their removal.

use super::steps::{Measured, phase, remove_all, untar};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::FsError;

/// Its phases.
pub(super) const PHASES: [&str; 5] = ["untar", "rm", "sync", "take", "remove"];

/// The tree with another name on top.
fn named(tree: &[Entry], name: &str) -> Vec<Entry> {
    let mut tree = tree.to_vec();
    tree.iter_mut().filter(|entry| entry.parent.is_none()).for_each(|top| top.name = name.into());
    tree
}

/// Takes `before` snapshots of a volume with a tree, then measures. The phases `untar` and `rm` end
/// when all of their changes are on the disk: the copies are made when blocks are written. The
/// phase `sync` writes the changes of a third tree, which was just unpacked; no change waits when
/// `take` begins.
pub(super) fn perform(
    machine: &mut Machine,
    tree: &[Entry],
    before: u32,
) -> Result<Vec<Measured>, FsError> {
    let [kept, new, last] = ["kept", "new", "last"].map(|name| named(tree, name));
    untar(machine, &kept)?;
    machine.settle()?;
    for number in 0..before {
        machine.take_snapshot(&format!("snapshot{number}"))?;
    }
    machine.settle()?;
    let untarred = phase(machine, "untar", |machine| {
        untar(machine, &new)?;
        machine.settle()
    })?;
    let rm = phase(machine, "rm", |machine| {
        remove_all(machine, &kept)?;
        machine.settle()
    })?;
    untar(machine, &last)?;
    let sync = phase(machine, "sync", Machine::settle)?;
    let take = phase(machine, "take", |machine| machine.take_snapshot("snapshot"))?;
    let remove = phase(machine, "remove", Machine::remove_snapshots)?;
    Ok(vec![untarred, rm, sync, take, remove])
}
