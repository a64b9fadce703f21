//! Recovery by the journal of soft updates ("SU+J"; McKusick and Roberson, "Journaled Soft-updates",
//! 2010), in time proportional to the journal.
//!
//! Soft updates leave, after a crash, nothing worse than names that are counted too often and space
//! that is marked as used. Before each change that may leave such, FreeBSD writes a record into the
//! file `.sujournal` of the root: a name that is added or removed, blocks that are allocated or
//! freed, a file that is cut. Recovery looks only at the places that records name: names and
//! blocks that are there count, others are released. Nothing is redone.
//!
//! - [`locate`]: the journal's file, and whether it belongs to the last mount
//! - [`segments`]: the segments in it that count, in order
//! - [`records`]: their records, checked; [`parts`]: parts of files in them; [`tables`]: all records
//!   of a file, of a block, of a name
//! - [`staged`], [`bitmaps`]: changes of the volume that are not written yet; [`maps`]: files
//! - [`claims`]: allocated and freed blocks, and [`truncation`], cut files
//! - [`links`]: names and the links that remain; [`reclaim`]: files that have none
//! - [`write`](mod@write): the changes, in an order in which they can be cut off
//!
//! The pass is computed completely before anything is written. A journal that contradicts itself or
//! the volume is an error, and then the whole volume is to be checked, as `fsck_ffs` does. The same
//! applies where the device cannot read a block that the pass needs.

mod bitmaps;
mod claims;
mod links;
mod locate;
mod maps;
mod parts;
mod reclaim;
mod records;
mod segments;
mod staged;
mod tables;
#[cfg(test)]
mod tests;
mod truncation;
mod write;

use crate::ondisk::flag;
use crate::superblock::Super;
use crate::volume::Volume;
use locate::Found;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::check::Tally;
use seekless_fs::field::range;
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_placement::{GroupSummary, Totals};
use std::sync::Arc;
use tables::Pass;

/// Inodes 0 and 1, which belong to no file.
const RESERVED_INODES: u64 = 2;

/// The use of a volume's journal.
pub(crate) enum Journal {
    /// There is none, or the volume is clean, or it is marked for a full check.
    Unneeded,
    /// The volume should have one, but there is no file of it.
    Missing,
    /// There is no journal of the last mount, for a reason: the whole volume is to be checked.
    Unusable(String),
    /// The device cannot read the journal, or a block that its records lead to: the whole volume is
    /// to be checked.
    Unreadable(DeviceError),
    /// The journal contradicts itself or the volume, for a reason, and no crash explains it: the whole
    /// volume is to be checked.
    Damaged(FsError),
    /// It tells how to recover the volume.
    Pending(Box<JournalRecovery>),
}

/// A recovery that is computed, and not written yet.
pub(crate) struct JournalRecovery {
    pass: Pass,
    segments: u64,
    records: u64,
    /// Of all groups.
    summaries: Vec<GroupSummary>,
}

/// Whether a volume has a journal by which it should be recovered.
pub(crate) fn is_pending(sb: &Super) -> bool {
    let has = |bit: u32| sb.flags & bit != 0;
    sb.is_journaled() && !sb.clean && !has(flag::NEEDS_FSCK)
}

/// Looks at the journal of a volume that was not unmounted, and computes its recovery. Nothing is
/// written.
pub(crate) fn look(device: &Arc<dyn BlockDevice>, sb: &Super) -> Journal {
    if !is_pending(sb) {
        return Journal::Unneeded;
    }
    if let Some(why) = unsuited(sb) {
        return Journal::Unusable(why.into());
    }
    let volume = Volume::with(Arc::clone(device), sb.clone(), false);
    match computed(volume) {
        Err(FsError::Device(error)) => Journal::Unreadable(error),
        Err(error) => Journal::Damaged(error),
        Ok(journal) => journal,
    }
}

/// The reason for which no journal of the volume is used, if there is one.
fn unsuited(sb: &Super) -> Option<&'static str> {
    if sb.tuning.has_snapshots() {
        return Some("snapshots would need copies of what it frees");
    }
    if sb.flags & flag::SOFT_UPDATES == 0 {
        return Some("the volume was in use without soft updates");
    }
    (sb.check_writable_beside_snapshots().is_err() || !sb.typed_entries)
        .then_some("the superblock has fields or features that a recovery does not keep")
}

fn computed(volume: Volume) -> Result<Journal, FsError> {
    let inode = match locate::find(&volume)? {
        Found::Journal(inode) => inode,
        Found::Missing => return Ok(Journal::Missing),
        Found::Unusable(why) => return Ok(Journal::Unusable(why)),
    };
    let Some(runs) = locate::runs(&volume, &inode)? else {
        return Ok(Journal::Unusable("its file has holes".into()));
    };
    let found = segments::scan(&volume, &runs)?;
    let records = segments::read(&volume, &found)?;
    locate::check_apart(&inode, &runs, &records)?;
    let (segments, count) = (found.count(), seekless_fs::field::wide(records.len()));
    let mut pass = Pass::new(volume, &records);
    // Files without names go first: their names and blocks count no more. Directories are as long as
    // they are to be before names are looked for in them.
    pass.release_unlinked()?;
    pass.cut_files()?;
    pass.settle_blocks()?;
    pass.count_sectors()?;
    if let Some(ino) = pass.settle_directories()? {
        return Ok(Journal::Unusable(format!(
            "it does not tell where the name of directory {ino} is"
        )));
    }
    pass.settle_names()?;
    let summaries = pass.finish()?;
    check_totals(&pass.staged.volume.sb, summaries.iter().copied().collect())?;
    Ok(Journal::Pending(Box::new(JournalRecovery { pass, segments, records: count, summaries })))
}

/// Checks that no more is free than there is.
fn check_totals(sb: &Super, totals: Totals) -> Result<(), FsError> {
    let free = totals.nbfree * u64::from(sb.frag) + totals.nffree;
    for (field, free, all) in [
        ("cs_nbfree", free, sb.tuning.dsize),
        ("cs_nifree", totals.nifree + RESERVED_INODES, u64::from(sb.inodes())),
    ] {
        if free > all {
            return Err(range(field, free, all, Location::of("cylinder groups")));
        }
    }
    Ok(())
}

impl JournalRecovery {
    /// For people: how much there is in the journal.
    pub(crate) fn summary(&self) -> String {
        let freed = self.pass.staged.groups.freed();
        format!(
            "{} segments with {} records; {} inodes and {} fragments become free",
            self.segments, self.records, freed.inodes, freed.fragments
        )
    }

    /// The numbers of inodes, directories and fragments in use on the recovered volume, by its
    /// counts.
    pub(crate) fn tally(&self) -> Tally {
        let sb = &self.pass.staged.volume.sb;
        let totals: Totals = self.summaries.iter().copied().collect();
        let free = totals.nbfree * u64::from(sb.frag) + totals.nffree;
        debug_assert!(free <= sb.tuning.dsize, "the totals were checked");
        Tally {
            inodes: u64::from(sb.inodes()) - totals.nifree - RESERVED_INODES,
            directories: totals.ndir,
            blocks: sb.tuning.dsize - free,
            ..Tally::default()
        }
    }

    /// Writes it. The volume is clean in the end.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn write(&self, disk: &mut Patches) -> Result<(), FsError> {
        write::write(&self.pass, &self.summaries, disk)
    }
}

/// The result of [`recover`].
pub(crate) enum Recovered {
    /// The volume is clean now.
    Yes,
    /// There was nothing to recover, or no journal for it.
    No,
    /// The journal contradicts itself or the volume.
    Damaged(FsError),
}

/// Recovers a volume by its journal, if it was not unmounted and has a usable one.
///
/// # Errors
/// Errors of the device while it is written.
pub(crate) fn recover(device: &Arc<dyn BlockDevice>, sb: &Super) -> Result<Recovered, FsError> {
    match look(device, sb) {
        Journal::Unneeded | Journal::Missing | Journal::Unusable(_) | Journal::Unreadable(_) => {
            Ok(Recovered::No)
        }
        Journal::Damaged(error) => Ok(Recovered::Damaged(error)),
        Journal::Pending(recovery) => {
            recovery.write(&mut Patches::new(Arc::clone(device)))?;
            Ok(Recovered::Yes)
        }
    }
}
