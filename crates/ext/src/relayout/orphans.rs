//! Orphans under their new numbers, so that the next mount finishes them as it would have on the
//! old image.
#![allow(clippy::indexing_slicing, reason = "slots are of blocks that were just read")]

use super::write::RelayoutWriter;
use crate::encode::rewrite::{inode_seed, renumbered};
use crate::ondisk::{OrphanBlockTail, compat};
use crate::orphans::block_sum;
use crate::volume::Volume;
use seekless_fs::{FsError, Location};
use seekless_units::Ino;
use std::collections::HashMap;
use std::mem::offset_of;

/// The list of orphans, by old numbers.
#[derive(Default)]
pub(crate) struct OrphanList {
    first: Option<Ino>,
    next: HashMap<Ino, Option<Ino>>,
}

impl OrphanList {
    /// Reads the list. It ends where it would for a mount.
    pub(super) fn read(volume: &Volume) -> Result<Self, FsError> {
        let mut list = Self::default();
        let mut last = None;
        let walked = volume.orphans().listed(&mut |ino| {
            match last.replace(ino) {
                Some(last) => list.next.insert(last, Some(ino)),
                None => list.first.replace(ino).map(Some),
            };
            list.next.insert(ino, None);
        });
        match walked {
            Ok(()) | Err(FsError::Corrupt { .. }) => Ok(list),
            Err(error) => Err(error),
        }
    }

    /// The successor of an inode in the list; `None` if it is not in the list.
    pub(super) fn next(&self, ino: Ino) -> Option<Option<Ino>> {
        self.next.get(&ino).copied()
    }
}

impl RelayoutWriter<'_> {
    /// The first inode of the list: zero if it is empty.
    pub(super) fn first_orphan(&self) -> Result<Ino, FsError> {
        let Some(first) = self.survey.orphans.first else { return Ok(Ino::ZERO) };
        renumbered(first, &|old| self.renumber(old), Location::of("orphan list").in_inode(first))
    }

    /// Whether the orphan file has inodes. It has none, despite the mark of the superblock, after a
    /// crash while no file was deleted: a kernel sets the mark when it mounts.
    pub(super) fn has_filed_orphans(&self) -> Result<bool, FsError> {
        let volume = self.survey.volume;
        if !volume.sb.has_compat(compat::ORPHAN_FILE) || !volume.sb.has_filed_orphans() {
            return Ok(false);
        }
        let mut has_any = false;
        volume.orphans().file_blocks(&mut |block| has_any |= !block.numbers.is_empty())?;
        Ok(has_any)
    }

    /// Replaces the numbers in the orphan file, which stays in place.
    pub(super) fn write_orphan_file(&self) -> Result<(), FsError> {
        if !self.has_filed_orphans()? {
            return Ok(());
        }
        let volume = self.survey.volume;
        let file = Ino::new(volume.sb.raw.s_orphan_file_inum.get());
        let generation = volume.inodes().read(file)?.core.i_generation.get();
        let mut blocks = Vec::new();
        volume.orphans().file_blocks(&mut |block| blocks.push(block))?;
        for mut orphans in blocks.into_iter().filter(|orphans| !orphans.numbers.is_empty()) {
            let place = Location::of("orphan file").in_block(orphans.block);
            for (slot, old) in orphans.numbers {
                let new = renumbered(old, &|old| self.renumber(old), place)?;
                orphans.bytes[slot * 4..slot * 4 + 4].copy_from_slice(&new.get().to_le_bytes());
            }
            if let Some(seed) = self.seed() {
                let sum =
                    block_sum(&orphans.bytes, orphans.block, inode_seed(seed, file, generation));
                let tail = orphans.bytes.len() - size_of::<OrphanBlockTail>();
                let at = tail + offset_of!(OrphanBlockTail, ob_checksum);
                orphans.bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            }
            self.put(orphans.block, &orphans.bytes)?;
        }
        Ok(())
    }
}
