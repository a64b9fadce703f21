//! After the passes: the usage of users, groups and projects, against the quota files (e2fsck,
//! `quota_compare_and_update`).

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use crate::ondisk::ro_compat;
use crate::quota::{self, QuotaContents, Usage};
use seekless_fs::{FsError, Location};
use std::collections::{BTreeMap, BTreeSet};

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
        if !self.checker.sb().has_ro_compat(ro_compat::QUOTA)
            || self.checker.has_lost_blocks()
            || self.checker.seen.iter().any(|(_, seen)| seen.bad_map)
        {
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
            let Some(usage) = self.checker.usage.get(kind) else { continue };
            let wrong = wrong_ids(&found, usage);
            if let Some(first) = wrong.first() {
                let what = format!("the usage of {} ids is wrong, {first} first", wrong.len());
                self.checker.found(problems::QUOTA_USAGE, what, place);
                self.checker.fix(Stage::Quotas, Fix::QuotaFile(ino));
            }
        }
        Ok(())
    }
}

/// The ids whose usage a file tells wrongly, or not at all.
fn wrong_ids(file: &QuotaContents, usage: &BTreeMap<u32, Usage>) -> Vec<u32> {
    let mut wrong = BTreeSet::new();
    let mut missing: BTreeSet<u32> = usage.keys().copied().collect();
    for entry in &file.entries {
        let id = entry.dqb_id.get();
        missing.remove(&id);
        if usage.get(&id).copied().unwrap_or_default() != Usage::of(entry) {
            wrong.insert(id);
        }
    }
    wrong.append(&mut missing);
    wrong.into_iter().collect()
}
