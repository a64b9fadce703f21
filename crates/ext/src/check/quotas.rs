//! After the passes: the usage of users, groups and projects, against the quota files (e2fsck,
//! `quota_compare_and_update`).

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use crate::ondisk::ro_compat;
use crate::quota::{self, UsageByKind, wrong_ids};
use seekless_fs::check::Finding;
use seekless_fs::{FsError, Location};

/// After the passes: quota files.
pub(super) struct QuotaPass<'a> {
    checker: &'a mut Checker,
}

impl<'a> QuotaPass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }
}

impl QuotaPass<'_> {
    /// Compares the quota files with the usage, where all inodes could be read.
    pub(super) fn quotas(&mut self) -> Result<(), FsError> {
        if !self.checker.sb().has_ro_compat(ro_compat::QUOTA) || !self.checker.counts_usage() {
            return Ok(());
        }
        for (kind, ino) in quota::files(self.checker.sb()) {
            let place = Location::of("quota file").in_inode(ino);
            let found = quota::read_file(&self.checker.volume, kind, ino);
            let Some(found) = self.checker.sound(found, problems::QUOTA_UNREADABLE, place)? else {
                self.checker.fix(Stage::Quotas, Fix::QuotaFile(ino));
                continue;
            };
            if !found.is_whole {
                let what = "a reference leads out of the file".to_string();
                self.checker.found(problems::QUOTA_UNREADABLE, what, place);
                self.checker.fix(Stage::Quotas, Fix::QuotaFile(ino));
                continue;
            }
            let usage = self.checker.usage.get(kind).zip(self.checker.uncounted_usage.get(kind));
            let Some((usage, uncounted)) = usage else { continue };
            let wrong = wrong_ids(&found, usage);
            if let Some((first, _)) = wrong.first() {
                // e2fsck has written it.
                if wrong_ids(&found, &quota::without(usage, uncounted)).is_empty() {
                    continue;
                }
                let what = format!("the usage of {} ids is wrong, {first} first", wrong.len());
                self.checker.found(problems::QUOTA_USAGE, what, place);
                self.checker.fix(Stage::Quotas, Fix::QuotaFile(ino));
            }
        }
        Ok(())
    }
}

/// Usage that a check counted.
pub(crate) struct CountedUsage {
    /// Usage by kind and id; none if it could not be counted on a damaged volume.
    pub(crate) usage: Option<UsageByKind>,
    /// The first finding that is not about the quota files.
    pub(crate) other: Option<Finding>,
}

impl CountedUsage {
    pub(super) fn of(checker: &mut Checker) -> Self {
        let usage = checker.counts_usage().then(|| std::mem::take(&mut checker.usage));
        let is_of_quotas = |finding: &&Finding| {
            finding.is(problems::QUOTA_USAGE) || finding.is(problems::QUOTA_UNREADABLE)
        };
        let other = checker.report.findings.iter().find(|finding| !is_of_quotas(finding)).cloned();
        Self { usage, other }
    }
}
