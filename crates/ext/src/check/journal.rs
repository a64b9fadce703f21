//! Pass 1, the journal: its inode, and the head of its log (e2fsck, `e2fsck_get_journal` and
//! `e2fsck_journal_load`).

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::inodes::InodePass;
use super::{metadata, problems};
use crate::inode::Inode;
use crate::journal::{self, Site};
use seekless_fs::field::index;
use seekless_fs::{FsError, Location};

/// Checks the journal.
pub(super) struct JournalCheck<'w, 'a> {
    pass: &'w mut InodePass<'a>,
}

impl<'w, 'a> JournalCheck<'w, 'a> {
    /// As a part of the pass over inodes.
    pub(super) fn of(pass: &'w mut InodePass<'a>) -> Self {
        Self { pass }
    }

    /// Looks at the journal; whether its inode is to be checked as that of a file.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn inode(&mut self, inode: &Inode) -> Result<bool, FsError> {
        let place = Location::of("journal");
        // Where something waits in the journal, its head has been read and reported.
        let is_told = self
            .pass
            .checker
            .report
            .findings
            .iter()
            .any(|found| found.is(problems::JOURNAL_CORRUPT));
        if is_told {
            return Ok(self.pass.has_other_map(inode) || !self.gives_up(inode)?);
        }
        let start = journal::pending_start(&self.pass.checker.volume, inode).and_then(|start| {
            journal::check_whole(&self.pass.checker.volume, inode)?;
            Ok(start)
        });
        let start = self.pass.checker.sound(start, problems::JOURNAL_CORRUPT, place)?;
        if let Some(Some(_)) = start {
            self.pass.checker.unexpected(
                problems::JOURNAL_PENDING,
                metadata::UNMARKED_JOURNAL.into(),
                place,
            );
            self.pass.checker.fix(Stage::Journal, Fix::Replay);
        }
        let strict = journal::pending_start(&self.pass.checker.strict, inode);
        let is_wrong = self.pass.checker.checksum(strict, problems::JOURNAL_CHECKSUM, place)?;
        if start.is_none() && self.pass.has_other_map(inode) {
            // The copy of its map in the superblock leads to the journal. The present map may
            // lead into a file, which owns these blocks.
            self.pass.checker.fix(Stage::Inodes, Fix::JournalInode(inode.ino));
            match journal::locate(&self.pass.checker.volume, inode.ino) {
                Ok(journal) => self.pass.claim_map(&journal).map(drop)?,
                Err(FsError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
            return Ok(false);
        }
        if is_wrong || start.is_none() {
            self.pass.checker.fix(Stage::Journal, Fix::EmptyJournal);
        }
        // Pending transactions are written first; the check after that finds the rest.
        let is_pending =
            self.pass.checker.report.findings.iter().any(|it| it.is(problems::JOURNAL_PENDING));
        if start.is_none() {
            return Ok(!self.gives_up(inode)?);
        }
        if !is_pending {
            head(self.pass.checker, inode)?;
        }
        Ok(true)
    }

    /// Whether a journal is given up with its blocks, so that these may belong to files.
    fn gives_up(&mut self, inode: &Inode) -> Result<bool, FsError> {
        let is_lost = journal::is_lost(&self.pass.checker.volume, inode)?;
        if is_lost {
            self.pass.checker.lost_journal = Some(inode.ino);
        }
        Ok(is_lost)
    }

    /// Counts those blocks of a journal that is given up as used that no file has: that they become
    /// free is no finding of its own.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn reserve_lost(&mut self) -> Result<(), FsError> {
        let Some(ino) = self.pass.checker.lost_journal else { return Ok(()) };
        let volume = &self.pass.checker.volume;
        let runs = volume.inodes().read(ino).and_then(|it| volume.maps().blocks_of_any_kind(&it));
        let runs = match runs {
            Err(FsError::Corrupt { .. }) => return Ok(()),
            runs => runs?,
        };
        for run in runs {
            for cluster in self.pass.checker.sb().clusters_of(run) {
                self.pass.checker.used.set(index(cluster));
            }
        }
        Ok(())
    }
}

/// The head of an empty journal.
///
/// # Errors
/// As [`journal::pending_start`].
pub(super) fn head<'s>(checker: &mut Checker, site: impl Into<Site<'s>>) -> Result<(), FsError> {
    let (site, place) = (site.into(), Location::of("journal"));
    let error = journal::error_of(&checker.volume, site)?;
    if error != 0 {
        let what = format!("left after error {error}");
        checker.found(problems::JOURNAL_ERROR, what, place);
        checker.fix(Stage::Journal, Fix::EmptyJournal);
    }
    if journal::has_foreign_fields(&checker.volume, site)? {
        let what = "its superblock has fields of another version, or several users".to_string();
        checker.found(problems::JOURNAL_FIELDS, what, place);
        checker.fix(Stage::Journal, Fix::JournalFields);
    }
    Ok(())
}
