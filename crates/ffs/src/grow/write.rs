//! Writes a growth.
//!
//! 1. New groups (inodes, copy of the superblock, head) and the new place of the summary area: no
//!    structure of the old volume leads there.
//! 2. The copies of the superblock, brought up to date: from now on each has all settings, of which
//!    tunefs changes only the superblock's. A repair by any of the copies keeps them.
//! 3. The superblock of before, marked for a check. From here on neither this program nor FreeBSD
//!    mounts the volume without one.
//! 4. The head of the last group, extended, and the summary area if it stays.
//! 5. The superblock of the grown volume, still marked.
//! 6. Its copies in the groups of before. Until all are written, a repair goes by either size; no
//!    file uses the new space yet.
//! 7. The head of the group that had the summary area, which is free now.
//! 8. The superblock, clean, or in use if the volume is.
//!
//! Each step is on the disk before the next one begins.

use super::new_groups::{NewGroups, written_inodes};
use super::plan::Plan;
use crate::ondisk::{SUPERBLOCK_SIZE, flag};
use crate::superblock_edit::{SuperblockMut, set_recovery_groups};
use seekless_device::BlockDevice;
use seekless_fs::field::{index, wide};
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Timestamp};
use seekless_units::{BlockNo, GroupNo, SECTOR};
use std::sync::Arc;

/// Bytes of inodes that are cleared at once.
const CLEARED: u64 = 1 << 20;

/// A growth that is written.
pub(crate) struct GrowthWriter<'a> {
    plan: &'a Plan,
    secs: i64,
    disk: Patches,
}

impl<'a> GrowthWriter<'a> {
    /// Writes a growth to its device, which is as long as the volume will be. `now` becomes the time
    /// of superblock and changed groups.
    pub(crate) fn new(plan: &'a Plan, device: Arc<dyn BlockDevice>, now: Timestamp) -> Self {
        Self { plan, secs: now.secs, disk: Patches::new(device) }
    }

    /// Steps 1 and 2: the volume is as it was.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn prepare(&mut self) -> Result<(), FsError> {
        let plan = self.plan;
        self.new_groups(&mut plan.edited(self.secs, self.disk.device().len()))?;
        if plan.growth.moves_summary {
            self.put(plan.new.summaries.start, &plan.summaries)?;
        }
        self.disk.flush()?;
        self.copies(&mut plan.before())
    }

    /// The other steps, once it is prepared.
    ///
    /// # Errors
    /// Errors of the device, which leave the volume marked for a check.
    pub(crate) fn complete(&mut self) -> Result<(), FsError> {
        let (plan, len) = (self.plan, self.disk.device().len());
        self.put_marked(plan.before())?;
        self.last_group()?;
        self.put_marked(plan.edited(self.secs, len))?;
        self.copies(&mut plan.edited(self.secs, len))?;
        self.recovery()?;
        if let Some(freed) = &plan.freed {
            self.head(freed.number, &freed.sealed(&plan.new, self.secs)?)?;
            self.disk.flush()?;
        }
        let mut last = plan.last(self.secs, len);
        self.disk.put(plan.new.at, last.sealed())?;
        self.disk.flush()
    }

    /// Writes from a fragment on.
    fn put(&mut self, start: BlockNo, bytes: &[u8]) -> Result<(), FsError> {
        self.disk.put(start.get() * u64::from(self.plan.new.fsize), bytes)
    }

    /// Writes the head of a group.
    fn head(&mut self, number: GroupNo, bytes: &[u8]) -> Result<(), FsError> {
        let sb = &self.plan.new;
        self.put(sb.in_group(number, sb.cblkno), bytes)
    }

    /// The byte at which a group's copy of the superblock lies.
    fn copy_at(&self, number: GroupNo) -> u64 {
        let sb = &self.plan.new;
        sb.in_group(number, sb.sblkno).get() * u64::from(sb.fsize)
    }

    fn new_groups(&mut self, superblock: &mut SuperblockMut<'_>) -> Result<(), FsError> {
        let plan = self.plan;
        let mut groups = NewGroups::new(&plan.new, self.secs);
        for number in (plan.old.ncg..plan.new.ncg).map(GroupNo::new) {
            self.clear_inodes(number)?;
            let at = self.copy_at(number);
            let room = u64::from(plan.new.cblkno - plan.new.sblkno) * u64::from(plan.new.fsize);
            let mut copy = superblock.sealed_copy(at).to_vec();
            copy.resize(copy.len().max(index(room).min(SUPERBLOCK_SIZE)), 0);
            self.disk.put(at, &copy)?;
            self.head(number, groups.head(number)?)?;
        }
        Ok(())
    }

    /// Clears the inodes that a new group has as written. A hole of a file stays one.
    fn clear_inodes(&mut self, number: GroupNo) -> Result<(), FsError> {
        let sb = &self.plan.new;
        let len = u64::from(written_inodes(sb)) * u64::from(sb.inode_size());
        let start = sb.in_group(number, sb.iblkno).get() * u64::from(sb.fsize);
        let end = start + len;
        let zeros = vec![0; index(CLEARED.min(len))];
        let mut at = start;
        while at < end {
            let piece = (end - at).min(wide(zeros.len()));
            self.disk.put(at, zeros.get(..index(piece)).unwrap_or_default())?;
            at += piece;
        }
        Ok(())
    }

    /// Writes a superblock, marked for a check, in its place.
    fn put_marked(&mut self, mut superblock: SuperblockMut<'_>) -> Result<(), FsError> {
        superblock.set_flags(self.plan.old.flags | flag::NEEDS_FSCK);
        superblock.set_clean(false);
        self.disk.put(self.plan.old.at, superblock.sealed())?;
        self.disk.flush()
    }

    fn last_group(&mut self) -> Result<(), FsError> {
        let plan = self.plan;
        self.head(plan.last.number, &plan.last.sealed(&plan.new, self.secs)?)?;
        if !plan.growth.moves_summary {
            self.put(plan.new.summaries.start, &plan.summaries)?;
        }
        self.disk.flush()
    }

    /// Writes the copies of a superblock in the groups of before.
    fn copies(&mut self, superblock: &mut SuperblockMut<'_>) -> Result<(), FsError> {
        for number in (0..self.plan.old.ncg).map(GroupNo::new) {
            let at = self.copy_at(number);
            // A superblock may lie in the place of the first copy.
            if at != self.plan.new.at {
                self.disk.put(at, superblock.sealed_copy(at))?;
            }
        }
        self.disk.flush()
    }

    /// Writes the number of groups into the record by which lost copies are found.
    fn recovery(&mut self) -> Result<(), FsError> {
        if let Some(before) = self.plan.new.at.checked_sub(SECTOR) {
            let mut sector = self.disk.read(before, index(SECTOR))?;
            set_recovery_groups(&self.plan.new, &mut sector);
            self.disk.put(before, &sector)?;
        }
        self.disk.flush()
    }
}
