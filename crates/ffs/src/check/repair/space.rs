//! Free space, by the findings of the check and not by the maps.

use super::groups;
use crate::check::checker::Checker;
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_fs::patches::Patches;
use seekless_units::{BlockNo, Extent, GroupNo, Ino};

/// Allocates space for a repair. It is marked as used on the disk before it is written: a crash
/// may leave a map with too many bits set.
pub(super) struct RepairAllocator<'a> {
    checker: &'a Checker,
    /// The first block that was not looked at, in fragments.
    next: u64,
}

impl<'a> RepairAllocator<'a> {
    pub(super) fn new(checker: &'a Checker) -> Self {
        Self { checker, next: 0 }
    }

    /// Takes a whole block; `None` when none is free.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn block(&mut self, disk: &mut Patches) -> Result<Option<Extent>, FsError> {
        self.run(self.checker.sb().frag, disk)
    }

    /// Takes a block, or if none is wholly free its first fragments.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn block_or_part(&mut self, disk: &mut Patches) -> Result<Option<Extent>, FsError> {
        if let Some(block) = self.block(disk)? {
            return Ok(Some(block));
        }
        self.next = 0;
        self.run(1, disk)
    }

    fn run(&mut self, len: u32, disk: &mut Patches) -> Result<Option<Extent>, FsError> {
        let sb = self.checker.sb();
        let frag = u64::from(sb.frag);
        debug_assert!(len == 1 || len == sb.frag, "a block or a fragment of one");
        let steps = if u64::from(len) == frag { frag } else { 1 };
        while self.next + u64::from(len) <= sb.size {
            let run = Extent::new(BlockNo::new(self.next), u64::from(len));
            self.next += steps;
            let mut blocks = run.start.get()..run.end().get();
            let group = self.checker.sb().group_of(run.start);
            let in_one = sb.group_blocks(group).end() >= run.end();
            if in_one && blocks.all(|block| !self.checker.used.get(index(block))) {
                groups::reserve_run(self.checker, disk, group, run)?;
                return Ok(Some(run));
            }
        }
        Ok(None)
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
