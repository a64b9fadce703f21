//! Inodes.

use super::Delta;
use super::group::{GroupMut, at, is_lazy};
use crate::superblock::Super;
use seekless_fs::FsError;
use seekless_fs::field::{index, range};
use seekless_units::{GroupNo, Ino};
use std::ops::Range;

/// An inode that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TakenInode {
    pub(crate) ino: Ino,
    pub(crate) delta: Delta,
    /// UFS2: inodes that had never been written. They must be zeroed on the disk before the group
    /// is written: it now counts them as written.
    pub(crate) initialize: Range<u32>,
}

impl GroupMut<'_> {
    /// Whether some inodes of a group have never been written, by its bytes.
    pub(crate) fn has_uninitialized(sb: &Super, bytes: &[u8]) -> bool {
        let done = sb.order.get_u32(bytes, at!(cg_initediblk));
        is_lazy(sb) && done.is_some_and(|done| done < sb.ipg)
    }

    /// Whether an inode of a group is in use, by its bytes.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the map does not lie in the group.
    pub(crate) fn inode_in_use(
        sb: &Super,
        number: GroupNo,
        bytes: &[u8],
        slot: u32,
    ) -> Result<bool, FsError> {
        let map = sb.order.get_u32(bytes, at!(cg_iusedoff)).unwrap_or(u32::MAX);
        let byte = bytes.get(index(map) + index(slot >> 3));
        let place = super::group::place(number);
        let byte =
            byte.ok_or_else(|| range("cg_iusedoff", u64::from(map), u64::from(sb.cgsize), place))?;
        Ok(byte >> (slot & 7) & 1 == 1)
    }

    /// Takes an inode: the preferred one, a place below the number of inodes in a
    /// group, or else the first free one from the last taken on. `None` when none is free.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the group's map and counts contradict.
    pub(crate) fn alloc_inode(
        &mut self,
        preferred: Option<u32>,
        is_directory: bool,
    ) -> Result<Option<TakenInode>, FsError> {
        if self.summary().nifree == 0 {
            return Ok(None);
        }
        debug_assert!(preferred.is_none_or(|slot| slot < self.sb.ipg), "{preferred:?}");
        let slot = match preferred.filter(|&slot| !self.bit(self.maps.inodes, slot)) {
            Some(slot) => slot,
            None => self.search_inode()?,
        };
        debug_assert!(slot < self.sb.ipg, "slot {slot} of a group of {}", self.sb.ipg);
        debug_assert!(!self.bit(self.maps.inodes, slot), "an inode is taken once");
        let delta = Delta { nifree: -1, ndir: i32::from(is_directory), ..Delta::default() };
        let summary = self.changed(delta)?;
        let fresh = self.initialized_by(slot)?;
        self.set_summary(summary);
        self.set_bit(self.maps.inodes, slot, true);
        self.set_word(at!(cg_irotor), slot);
        if !fresh.is_empty() {
            self.set_word(at!(cg_initediblk), fresh.end);
        }
        let written = self.word(at!(cg_initediblk));
        debug_assert!(!is_lazy(self.sb) || slot < written, "an inode in use is initialised");
        let first = self.number.get() * self.sb.ipg;
        Ok(Some(TakenInode {
            ino: Ino::new(first + slot),
            delta,
            initialize: first + fresh.start..first + fresh.end,
        }))
    }

    /// Gives an inode back.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for an inode of another group, or one that is free already.
    pub(crate) fn free_inode(&mut self, ino: Ino, is_directory: bool) -> Result<Delta, FsError> {
        let first = self.number.get() * self.sb.ipg;
        let slot = ino.get().checked_sub(first).filter(|&slot| slot < self.sb.ipg);
        let place = super::group::place(self.number).in_inode(ino);
        let slot = slot
            .ok_or_else(|| range("inode", u64::from(ino.get()), u64::from(self.sb.ipg), place))?;
        if !self.bit(self.maps.inodes, slot) {
            return Err(self.contradiction("cg_inosused", slot));
        }
        let delta = Delta { nifree: 1, ndir: -i32::from(is_directory), ..Delta::default() };
        let summary = self.changed(delta)?;
        self.set_summary(summary);
        self.set_bit(self.maps.inodes, slot, false);
        if slot < self.word(at!(cg_irotor)) {
            self.set_word(at!(cg_irotor), slot);
        }
        Ok(delta)
    }

    /// The first free inode from the map's byte of the last one taken on.
    fn search_inode(&self) -> Result<u32, FsError> {
        let ipg = self.sb.ipg;
        let end = ipg.div_ceil(8);
        let start = (self.word(at!(cg_irotor)) >> 3).min(end);
        let in_byte = |at: u32| {
            let place = self.maps.inodes + index(at);
            let used = self.bytes.get(place).copied().unwrap_or(u8::MAX);
            let slot = at * 8 + used.trailing_ones();
            (used != u8::MAX && slot < ipg).then_some(slot)
        };
        (start..end)
            .chain(0..start)
            .find_map(in_byte)
            .ok_or_else(|| self.contradiction("cg_inosused", self.summary().nifree))
    }

    /// The inodes of the group to be initialised before `slot` may be used: one block of them more
    /// than its own is kept initialised, while there are more.
    fn initialized_by(&self, slot: u32) -> Result<Range<u32>, FsError> {
        let done = self.word(at!(cg_initediblk)).min(self.sb.ipg);
        if !is_lazy(self.sb) || done == self.sb.ipg {
            return Ok(done..done);
        }
        let per_block = self.sb.inodes_per_block();
        if !done.is_multiple_of(per_block) {
            return Err(self.contradiction("cg_initediblk", done));
        }
        let ahead = (slot + per_block).next_multiple_of(per_block);
        let fresh = done..ahead.min(self.sb.ipg).max(done);
        if fresh.clone().any(|slot| self.bit(self.maps.inodes, slot)) {
            // It would be zeroed.
            return Err(self.contradiction("cg_initediblk", done));
        }
        Ok(fresh)
    }
}
