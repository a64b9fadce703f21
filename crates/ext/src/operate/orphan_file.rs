//! The orphan file: numbers of orphans in slots of blocks that a transaction changes
//! without going through a list (`fs/ext4/orphan.c`,
//! `Documentation/filesystems/ext4/orphan.rst`). Like the kernel, a mount sets
//! `orphan_present` as long as the volume is in use, and takes it away when it ends
//! with an empty file. When the file is full the list is used.

use super::map::Core;
use crate::encode::rewrite::seal_orphan_block;
use crate::ondisk::{OrphanBlockTail, compat};
use crate::volume::Volume;
use seekless_cache::Role;
use seekless_fs::field::{invalid, truncated};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino};
use std::collections::BTreeMap;

/// Bytes of a slot.
const SLOT: usize = 4;

/// The orphan file of a volume in use.
pub(super) struct OrphanFile {
    ino: Ino,
    /// The seed of the checksums of its blocks, if these have any.
    seed: Option<u32>,
    blocks: Vec<BlockNo>,
    /// Bytes of a block.
    block_len: usize,
    /// Slots of a block.
    per_block: usize,
    /// The slot of each file in it.
    taken: BTreeMap<Ino, usize>,
    /// Slots that were given back, in front of `next`.
    returned: Vec<usize>,
    /// No slot from this one on is taken.
    next: usize,
}

impl OrphanFile {
    /// The orphan file of a volume, if it has one that is in order: its numbers are those of files
    /// in use, each there once, and there are none where the superblock says so. A check repairs
    /// any other.
    pub(super) fn usable(volume: &Volume) -> Result<Option<Self>, FsError> {
        if !volume.sb.has_compat(compat::ORPHAN_FILE) {
            return Ok(None);
        }
        let file = match Self::read(volume) {
            Err(FsError::Corrupt { .. }) => return Ok(None),
            file => file?,
        };
        if !volume.sb.has_filed_orphans() {
            return Ok(Some(file).filter(Self::is_empty));
        }
        for ino in file.numbers() {
            if !volume.bitmaps().is_allocated(ino)? {
                return Ok(None);
            }
        }
        Ok(Some(file))
    }

    fn read(volume: &Volume) -> Result<Self, FsError> {
        let ino = Ino::new(volume.sb.raw.s_orphan_file_inum.get());
        let sums = volume.sb.has_metadata_csum();
        let seed =
            if sums { Some(volume.inodes().seed(&volume.inodes().read(ino)?)) } else { None };
        let block_len = volume.block_len();
        let room = block_len - size_of::<OrphanBlockTail>();
        let per_block = room / SLOT;
        let (mut blocks, mut taken, mut next) = (Vec::new(), BTreeMap::new(), 0);
        let mut twice = None;
        volume.orphans().file_blocks(&mut |block| {
            let first = blocks.len() * per_block;
            for (slot, number) in block.numbers {
                let slot = first + slot;
                twice = taken.insert(number, slot).map(|_| number).or(twice);
                next = slot + 1;
            }
            blocks.push(block.block);
        })?;
        if let Some(number) = twice {
            // Only one of its slots would be freed.
            let place = Location::of("orphan file").in_inode(ino);
            return Err(invalid("orphan", u64::from(number.get()), place));
        }
        let returned = Vec::new();
        Ok(Self { ino, seed, blocks, block_len, per_block, taken, returned, next })
    }

    /// Whether it contains no file.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The files whose numbers are in it.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Ino> + '_ {
        self.taken.keys().copied()
    }

    /// A slot for a file that has none; `None` when all are taken.
    fn free_slot(&self) -> Option<usize> {
        let all = self.blocks.len() * self.per_block;
        debug_assert!(self.next <= all, "{} slots of {all} are taken", self.next);
        debug_assert!(
            self.returned.last().is_none_or(|&slot| slot < self.next),
            "slots that were returned were taken before"
        );
        self.returned.last().copied().or_else(|| Some(self.next).filter(|&next| next < all))
    }

    fn take(&mut self, ino: Ino, slot: usize) {
        if self.returned.pop().is_none() {
            debug_assert_eq!(slot, self.next, "the first that was never taken");
            self.next = slot + 1;
        }
        let before = self.taken.insert(ino, slot);
        debug_assert_eq!(before, None, "inode {ino} has one slot");
        debug_assert!(
            self.taken.len() + self.returned.len() <= self.next,
            "a slot is either taken or returned"
        );
    }

    fn give(&mut self, ino: Ino, slot: usize) {
        let before = self.taken.remove(&ino);
        debug_assert_eq!(before, Some(slot), "inode {ino} has this slot");
        debug_assert!(slot < self.next, "slot {slot} was taken");
        self.returned.push(slot);
        if self.taken.is_empty() {
            self.returned.clear();
            self.next = 0;
        }
    }

    /// Puts a number into a slot.
    fn put(&self, core: &mut Core, slot: usize, number: Ino) -> Result<(), FsError> {
        let place = Location::of("orphan file").in_inode(self.ino);
        debug_assert!(slot / self.per_block < self.blocks.len(), "slot {slot} is in the file");
        let block = self.blocks.get(slot / self.per_block).copied();
        let block = block.ok_or_else(|| truncated(place))?;
        let place = place.in_block(block);
        let at = (slot % self.per_block) * SLOT;
        core.cache.changes().edit(block, 0, self.block_len, Role::Summary, |bytes| {
            let to = bytes.get_mut(at..at + SLOT).ok_or_else(|| truncated(place))?;
            to.copy_from_slice(&number.get().to_le_bytes());
            seal_orphan_block(bytes, block, self.seed, place)
        })?;
        Ok(())
    }

    /// Enters a file. False without room.
    pub(super) fn add(&mut self, core: &mut Core, ino: Ino) -> Result<bool, FsError> {
        if self.taken.contains_key(&ino) {
            return Ok(true);
        }
        let Some(slot) = self.free_slot() else { return Ok(false) };
        self.put(core, slot, ino)?;
        self.take(ino, slot);
        Ok(true)
    }

    /// Takes a file out, if it is there.
    pub(super) fn remove(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        let Some(&slot) = self.taken.get(&ino) else { return Ok(()) };
        self.put(core, slot, Ino::ZERO)?;
        self.give(ino, slot);
        Ok(())
    }
}

/// Whether a volume's orphan file, if it has one, is in order ([`OrphanFile::usable`]).
pub(super) fn is_sound(volume: &Volume) -> Result<bool, FsError> {
    Ok(!volume.sb.has_compat(compat::ORPHAN_FILE) || OrphanFile::usable(volume)?.is_some())
}
