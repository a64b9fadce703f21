//! Cylinder groups: their bytes in the cache, and their counts in memory and in the summary area.

use super::map::Core;
use crate::alloc::{Delta, GroupMut, count_maps, decode_summaries, encode_summary, free_fragments};
use crate::group::verify_group;
use crate::superblock::Super;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, invalid};
use seekless_fs::{FsError, Location};
use seekless_placement::{GroupSummary, Groups};
use seekless_units::{Extent, GroupNo};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The error of a full volume.
pub(super) fn full(what: &str) -> FsError {
    FsError::NoSpace(format!("no free {what} left"))
}

/// The parts of a group that are believed when it is first used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Its bytes, if they match the check hash.
    Hashes,
    /// Its bytes with any hash.
    All,
    /// Its maps and its number of directories: a crash may have torn it. All other counts, and
    /// those in the summary area, are hints until it is first used.
    Maps,
}

/// The cylinder groups of a volume in use.
pub(super) struct CylinderGroups {
    sb: Arc<Super>,
    counts: Groups,
    /// Groups whose counts in the summary area are out of date.
    stale: BTreeSet<GroupNo>,
    /// Groups whose check hash was compared.
    verified: Vec<bool>,
    trust: Trust,
}

impl CylinderGroups {
    /// Their counts are not read yet.
    pub(super) fn new(sb: Arc<Super>, trust: Trust) -> Self {
        let (counts, verified) = (sb.groups(), vec![false; index(sb.ncg)]);
        Self { sb, counts, stale: BTreeSet::new(), verified, trust }
    }

    /// Their counts.
    pub(super) fn counts(&self) -> &Groups {
        &self.counts
    }

    /// Whether the summary area has all counts.
    pub(super) fn is_current(&self) -> bool {
        self.stale.is_empty()
    }

    /// Checks a group's hash, or sets its counts right, once.
    fn verify(&mut self, core: &mut Core, number: GroupNo) -> Result<(), FsError> {
        debug_assert!(number.get() < self.sb.ncg, "group {number} of {}", self.sb.ncg);
        let done = self.verified.get(index(number.get())).copied().unwrap_or(true);
        if done {
            return Ok(());
        }
        let at = self.sb.in_group(number, self.sb.cblkno);
        match self.trust {
            Trust::Hashes => {
                let bytes = core.cache.blocks_mut().read(at, 0, index(self.sb.cgsize))?;
                verify_group(&self.sb, bytes, number)?;
            }
            Trust::All => {}
            Trust::Maps => self.count_maps(core, number)?,
        }
        if let Some(done) = self.verified.get_mut(index(number.get())) {
            *done = true;
        }
        Ok(())
    }

    /// Sets the counts of a group right that are wrong on the disk, but for directories.
    pub(super) fn recount(&mut self, core: &mut Core, number: GroupNo) -> Result<(), FsError> {
        self.verify(core, number)?;
        self.count_maps(core, number)
    }

    /// Sets the counts of a group right by its maps.
    fn count_maps(&mut self, core: &mut Core, number: GroupNo) -> Result<(), FsError> {
        let at = self.sb.in_group(number, self.sb.cblkno);
        let sb = &self.sb;
        let mut bytes = core.cache.blocks_mut().read(at, 0, index(sb.cgsize))?.to_vec();
        let is_torn = verify_group(sb, &bytes, number).is_err();
        let found = bytes.clone();
        let mut group = GroupMut::check(sb, number, &mut bytes)?;
        count_maps(&mut group);
        let summary = group.summary();
        // After a failed write it is read all the same.
        if (is_torn || bytes != found) && core.cache.blocks().may_change() {
            core.cache.changes().edit(at, 0, index(sb.cgsize), Role::Summary, |to| {
                to.copy_from_slice(&bytes);
                Ok(())
            })?;
        }
        self.counts.set(number, summary);
        self.stale.insert(number);
        Ok(())
    }

    /// Counts so many more directories in a group.
    pub(super) fn add_directories(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        ndir: i32,
    ) -> Result<(), FsError> {
        let delta = Delta { ndir, ..Delta::default() };
        if ndir == 0 {
            return self.verify(core, number);
        }
        self.change(core, number, Role::Summary, |group| {
            let summary = group.changed(delta)?;
            group.set_summary(summary);
            Ok(Some(((), delta)))
        })
        .map(drop)
    }

    /// The counts of a group, which are hints no longer.
    pub(super) fn summary(
        &mut self,
        core: &mut Core,
        number: GroupNo,
    ) -> Result<GroupSummary, FsError> {
        if self.trust == Trust::Maps {
            self.verify(core, number)?;
        }
        debug_assert!(number.get() < self.sb.ncg, "group {number} of {}", self.sb.ncg);
        Ok(self.counts.summary(number).unwrap_or_default())
    }

    /// Changes a group's bytes, and the totals with them; `None` when `change` finds too little
    /// free in the group.
    pub(super) fn change<R>(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        role: Role,
        change: impl FnOnce(&mut GroupMut<'_>) -> Result<Option<(R, Delta)>, FsError>,
    ) -> Result<Option<(R, ChangeId)>, FsError> {
        self.verify(core, number)?;
        let at = self.sb.in_group(number, self.sb.cblkno);
        let secs = core.now().secs;
        let sb = &self.sb;
        let edited = core.cache.changes().edit(at, 0, index(sb.cgsize), role, |bytes| {
            let mut group = GroupMut::check(sb, number, bytes)?;
            let (given, delta) = change(&mut group)?.ok_or_else(|| full("space"))?;
            group.touch(secs);
            Ok((given, delta))
        });
        match edited {
            Ok(((given, delta), id)) => {
                self.account(number, delta)?;
                Ok(Some((given, id)))
            }
            Err(FsError::NoSpace(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn account(&mut self, number: GroupNo, delta: Delta) -> Result<(), FsError> {
        let place = Location::of("summary").in_group(number);
        let wrong = || invalid("cs", u64::from(number.get()), place);
        let old = self.counts.summary(number).ok_or_else(wrong)?;
        self.counts.set(number, delta.of_group(old).ok_or_else(wrong)?);
        self.stale.insert(number);
        Ok(())
    }

    /// Whether a group may have a run of `count` fragments in a block.
    pub(super) fn has_frags(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        count: u32,
    ) -> Result<bool, FsError> {
        let GroupSummary { nbfree, nffree, .. } = self.summary(core, number)?;
        Ok(nbfree > 0 || (count < self.sb.frag && nffree >= count))
    }

    /// Whether an inode is in use.
    pub(super) fn inode_in_use(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        slot: u32,
    ) -> Result<bool, FsError> {
        self.verify(core, number)?;
        let at = self.sb.in_group(number, self.sb.cblkno);
        let bytes = core.cache.blocks_mut().read(at, 0, index(self.sb.cgsize))?;
        GroupMut::inode_in_use(&self.sb, number, bytes, slot)
    }

    /// The parts of a run that are free.
    pub(super) fn free_parts(
        &mut self,
        core: &mut Core,
        run: Extent,
    ) -> Result<Vec<Extent>, FsError> {
        let mut parts = Vec::new();
        let mut at = run.start;
        while at < run.end() {
            let number = self.counts.shape().group_of(at);
            let group = self.sb.group_blocks(number);
            let end = group.end().min(run.end());
            self.verify(core, number)?;
            let head = self.sb.in_group(number, self.sb.cblkno);
            let bytes = core.cache.blocks_mut().read(head, 0, index(self.sb.cgsize))?;
            let here = Extent::new(at, end - at);
            parts.extend(free_fragments(&self.sb, number, bytes, here)?);
            at = end;
        }
        Ok(parts)
    }

    /// Reads the groups' counts: from the summary area of a clean image and, as hints, of one that
    /// is being recovered; from the groups themselves of any other.
    pub(super) fn read_summaries(&mut self, core: &mut Core) -> Result<(), FsError> {
        let numbers = (0..self.sb.ncg).map(GroupNo::new);
        if self.sb.clean || self.trust == Trust::Maps {
            let mut area = vec![0; index(self.sb.tuning.cssize)];
            core.cache.blocks_mut().read_run(self.sb.summaries.start, 0, &mut area)?;
            let summaries = match decode_summaries(&self.sb, &area) {
                // Nothing is a hint as well.
                Err(_) if self.trust == Trust::Maps => Vec::new(),
                summaries => summaries?,
            };
            for (number, summary) in numbers.zip(summaries) {
                self.counts.set(number, summary);
            }
        } else {
            for number in numbers.clone() {
                let summary = self.own_summary(core, number)?;
                self.counts.set(number, summary);
            }
            self.stale = numbers.collect();
        }
        Ok(())
    }

    fn own_summary(&mut self, core: &mut Core, number: GroupNo) -> Result<GroupSummary, FsError> {
        let at = self.sb.in_group(number, self.sb.cblkno);
        let mut bytes = core.cache.blocks_mut().read(at, 0, index(self.sb.cgsize))?.to_vec();
        Ok(GroupMut::check(&self.sb, number, &mut bytes)?.summary())
    }

    /// Brings the summary area up to date in the cache.
    pub(super) fn write_summaries(&mut self, core: &mut Core) -> Result<(), FsError> {
        let fsize = u64::from(self.sb.fsize);
        for number in std::mem::take(&mut self.stale) {
            let summary = self.counts.summary(number).unwrap_or_default();
            let byte = u64::from(number.get()) * crate::superblock::SUMMARY;
            debug_assert!(byte < u64::from(self.sb.tuning.cssize), "group {number} has a summary");
            let at = self.sb.summaries.start + byte / fsize;
            let skip = index(byte % fsize);
            let order = self.sb.order;
            core.cache.changes().edit(
                at,
                skip,
                index(crate::superblock::SUMMARY),
                Role::Summary,
                |to| {
                    encode_summary(order, to, GroupNo::ZERO, summary);
                    Ok(())
                },
            )?;
        }
        Ok(())
    }
}
