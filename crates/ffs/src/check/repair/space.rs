//! Free space, by the findings of the check and not by the maps.

use super::groups;
use crate::check::checker::Checker;
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_fs::patches::Patches;
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::BTreeSet;

/// Allocates space for a repair. It is marked as used on the disk before it is written: a crash
/// may leave a map with too many bits set.
pub(super) struct RepairAllocator<'a> {
    checker: &'a Checker,
    /// The first fragment that the search has not come to.
    next: u64,
    /// Fragments that were taken.
    taken: BTreeSet<u64>,
    /// There is no run of this length, in fragments.
    too_long: u64,
}

impl<'a> RepairAllocator<'a> {
    pub(super) fn new(checker: &'a Checker) -> Self {
        let too_long = u64::from(checker.sb().frag) + 1;
        Self { checker, next: 0, taken: BTreeSet::new(), too_long }
    }

    /// Takes a whole block; `None` when none is free.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn block(&mut self, disk: &mut Patches) -> Result<Option<Extent>, FsError> {
        self.fragments(u64::from(self.checker.sb().frag), disk)
    }

    /// Takes a block, or if none is wholly free a fragment.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn block_or_part(&mut self, disk: &mut Patches) -> Result<Option<Extent>, FsError> {
        match self.block(disk)? {
            Some(block) => Ok(Some(block)),
            None => self.fragments(1, disk),
        }
    }

    /// Takes so many fragments of one block; `None` when no block has them.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn fragments(
        &mut self,
        len: u64,
        disk: &mut Patches,
    ) -> Result<Option<Extent>, FsError> {
        let sb = self.checker.sb();
        debug_assert!((1..=u64::from(sb.frag)).contains(&len), "{len} fragments of a block");
        if len >= self.too_long {
            return Ok(None);
        }
        let found = self.search(self.next, len).or_else(|| self.search(0, len));
        let Some(run) = found else {
            self.too_long = len;
            return Ok(None);
        };
        self.next = run.end().get();
        self.taken.extend(run.start.get()..run.end().get());
        groups::reserve_run(self.checker, disk, sb.group_of(run.start), run)?;
        Ok(Some(run))
    }

    /// The first free run of a length within a block, from a fragment on.
    fn search(&self, from: u64, len: u64) -> Option<Extent> {
        let sb = self.checker.sb();
        let frag = u64::from(sb.frag);
        let mut at = from;
        loop {
            at = wide(self.checker.used.next_clear(index(at)));
            if at % frag + len > frag {
                at = at.next_multiple_of(frag);
            }
            let run = Extent::new(BlockNo::new(at), len);
            if run.end().get() > sb.size {
                return None;
            }
            let is_used = |at: &u64| self.checker.used.get(index(*at)) || self.taken.contains(at);
            let in_one = sb.group_blocks(sb.group_of(run.start)).end() >= run.end();
            let used = (at..run.end().get()).rfind(is_used);
            match used {
                None if in_one => return Some(run),
                Some(used) => at = used + 1,
                None => at += 1,
            }
        }
    }

    /// Takes an inode that was written before; `None` when none is free.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn inode(&self, disk: &mut Patches) -> Result<Option<Ino>, FsError> {
        let sb = self.checker.sb();
        for group in (0..sb.ncg).map(GroupNo::new) {
            let first = group.get() * sb.ipg;
            let written = self.checker.written.get(index(group.get())).copied().unwrap_or(0);
            debug_assert!(written <= sb.ipg, "{written} inodes of group {group}");
            let mut all = (first..first + written).map(Ino::new);
            if let Some(ino) = all.find(|&ino| !self.checker.is_taken(ino)) {
                groups::reserve_inode(self.checker, disk, group, ino)?;
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }
}
