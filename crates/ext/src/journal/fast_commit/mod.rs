//! Fast commits: changes logged as file operations behind the ring, on top of
//! the last whole transaction.
//!
//! The format of a commit is that of Linux `fs/ext4/fast_commit.h`, its replay that of
//! `fast_commit.c`. Operations are applied to inodes, maps and directories in memory; the result is
//! then written into the overlay as one would build it: new directories and extent trees, bitmaps
//! and counts to match. Two things differ from a mount on purpose: directories keep their recorded
//! times, and their link counts are right (a kernel's replay leaves a new directory with one link).

mod ledger;
mod maps;
mod records;
mod scan;
mod state;
mod store;

use super::log::Log;
use crate::volume::Volume;
use seekless_device::Overlay;
use seekless_fs::FsError;
use std::sync::Arc;

/// Applies the fast commits on top of transaction `end - 1` to `overlay`, which already contains
/// the transactions of the ring.
pub(super) fn replay(log: &Log<'_>, end: u32, overlay: &Arc<Overlay>) -> Result<(), FsError> {
    let operations = scan::committed(log, end)?;
    if operations.is_empty() {
        return Ok(());
    }
    let volume = Volume::open(overlay.clone(), log.volume.ignore_checksums)?;
    let mut state = state::ReplayState::new(&volume);
    for operation in &operations {
        state.apply(operation)?;
    }
    store::write(state, &operations, overlay.as_ref())
}
