//! Pass 0, a journal on another device: the head of its log (e2fsck, `e2fsck_journal_load`).

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::journal::head;
use super::{metadata, problems};
use crate::journal::{self, External};
use seekless_fs::{FsError, Location};

/// Looks at the journal of a volume that has it on another device, as a replay leaves it. Without
/// the device nothing is known of it.
///
/// # Errors
/// [`FsError::Refused`] for a device that is not the journal of this volume,
/// [`FsError::Unsupported`] for a journal with features that are not supported; errors of the
/// devices.
pub(super) fn look(checker: &mut Checker, replayed: Option<External>) -> Result<(), FsError> {
    let external = match replayed {
        // The superblock is a copy: nothing was replayed.
        None => External::of(checker.sb(), checker.journal.as_ref())?,
        replayed => replayed,
    };
    let Some(external) = external else { return Ok(()) };
    let place = Location::of("journal");
    // Where something waits in the journal, its head has been read and reported.
    if checker.report.findings.iter().any(|found| found.is(problems::JOURNAL_CORRUPT)) {
        return Ok(());
    }
    let start = journal::pending_start(&checker.volume, &external);
    let Some(start) = checker.sound(start, problems::JOURNAL_CORRUPT, place)? else {
        checker.fix(Stage::Journal, Fix::EmptyJournal);
        return Ok(());
    };
    let strict = journal::pending_start(&checker.strict, &external);
    if checker.checksum(strict, problems::JOURNAL_CHECKSUM, place)? {
        checker.fix(Stage::Journal, Fix::EmptyJournal);
    }
    if start.is_some() {
        let what = metadata::UNMARKED_JOURNAL.to_string();
        checker.unexpected(problems::JOURNAL_PENDING, what, place);
        checker.fix(Stage::Journal, Fix::Replay);
    }
    // Pending transactions are written first; the check after that finds the rest.
    if !checker.report.findings.iter().any(|it| it.is(problems::JOURNAL_PENDING)) {
        head(checker, &external)?;
    }
    Ok(())
}
