//! Volumes with a journal of soft updates that were not unmounted.

use super::{examine, problems, superblock};
use crate::journal::{Journal, JournalRecovery, is_pending, look};
use seekless_device::{BlockDevice, DeviceError, Overlay};
use seekless_fs::check::Report;
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_units::BlockNo;
use std::sync::Arc;

/// Bytes that are copied at a time where a recovery is not to be written.
const CHUNK: u64 = 4096;

/// How the journal of a volume is used.
pub(super) enum JournalUse {
    /// It is not.
    Unneeded,
    /// The volume is recovered by it.
    Pending(Box<JournalRecovery>),
    /// The whole volume is checked, for the reason that the one finding gives; and whether there is
    /// a file of a journal.
    Noted(Report, bool),
}

/// Looks at the journal of a volume.
///
/// # Errors
/// As [`check`](super::check()).
pub(super) fn state(device: &Arc<dyn BlockDevice>) -> Result<JournalUse, FsError> {
    // The copies, one in each group, are read only where they matter.
    if superblock::in_place(device).is_some_and(|sb| !is_pending(&sb)) {
        return Ok(JournalUse::Unneeded);
    }
    let chosen = superblock::choose(device)?;
    let mut report = Report::default();
    if chosen.report(&mut report) {
        return Ok(JournalUse::Unneeded);
    }
    let place = Location::of("journal");
    let (mut report, mut exists) = (Report::default(), true);
    match look(device, &chosen.sb) {
        Journal::Unneeded => return Ok(JournalUse::Unneeded),
        Journal::Pending(recovery) => return Ok(JournalUse::Pending(recovery)),
        Journal::Missing => {
            exists = false;
            let what = "the root has no file .sujournal".into();
            report.add(problems::JOURNAL_UNUSABLE, what, place);
        }
        Journal::Unusable(why) => report.add(problems::JOURNAL_UNUSABLE, why, place),
        Journal::Unreadable(error) => {
            let place = match &error {
                DeviceError::Io { at, .. } => {
                    let fragment = at.to_bytes().get() / u64::from(chosen.sb.fsize);
                    place.in_block(BlockNo::new(fragment))
                }
                _ => place,
            };
            report.add(problems::JOURNAL_UNUSABLE, format!("it cannot be read: {error}"), place);
        }
        Journal::Damaged(error) => {
            let (what, place) = error.finding(place);
            report.add(problems::JOURNAL_DAMAGED, what, place);
        }
    }
    Ok(JournalUse::Noted(report, exists))
}

/// The findings that a recovery repairs, with the tally of the recovered volume.
pub(super) fn report(recovery: &JournalRecovery) -> Report {
    let mut report = Report { tally: recovery.tally(), ..Report::default() };
    report.add(problems::JOURNAL_PENDING, recovery.summary(), Location::of("journal"));
    let what = "not marked clean".into();
    report.add(problems::SUPERBLOCK_NOT_CLEAN, what, Location::of("superblock"));
    report
}

/// Checks a volume, as it will be after a recovery by its journal.
///
/// # Errors
/// As [`check`](super::check()).
pub(super) fn check(device: &Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    let (noted, checked) = match state(device)? {
        JournalUse::Unneeded => return Ok(examine(device)?.report),
        JournalUse::Noted(noted, _) => (noted, Arc::clone(device)),
        JournalUse::Pending(recovery) => {
            let recovered: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(device), CHUNK));
            recovery.write(&mut Patches::new(Arc::clone(&recovered)))?;
            (report(&recovery), recovered)
        }
    };
    let mut found = examine(&checked)?.report;
    found.findings.splice(0..0, noted.findings);
    found.unexpected += noted.unexpected;
    Ok(found)
}
