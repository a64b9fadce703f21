//! Inodes that the next mount deletes, or truncates to their size: a list from
//! inode to inode, or a file of their numbers.
//!
//! The list begins in the superblock and goes on through `i_dtime` (kernel
//! `fs/ext4/orphan.c`); the file has been there since Linux 5.15
//! (`Documentation/filesystems/ext4/orphan.rst`).

use crate::checksum::crc32c;
use crate::ondisk::{ORPHAN_BLOCK_MAGIC, OrphanBlockTail, special};
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, le32, parse, range, truncated};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, Ino, Lbn};
use std::collections::HashSet;

/// A block of the orphan file.
pub(crate) struct OrphanBlock {
    pub(crate) block: BlockNo,
    /// Numbers in use by their slots.
    pub(crate) numbers: Vec<(usize, Ino)>,
    pub(crate) bytes: Vec<u8>,
}

impl OrphanBlock {
    /// Its checksum as stored.
    pub(crate) fn checksum(&self) -> u32 {
        let tail: Option<OrphanBlockTail> = parse(&self.bytes, slots_end(self.bytes.len()));
        tail.map_or(0, |tail| tail.ob_checksum.get())
    }
}

impl Volume {
    /// Inodes that the next mount deletes or truncates.
    pub(crate) fn orphans(&self) -> OrphanReader<'_> {
        OrphanReader { volume: self }
    }
}

/// Reads the list of orphans and the orphan file.
#[derive(Clone, Copy)]
pub(crate) struct OrphanReader<'a> {
    volume: &'a Volume,
}

impl<'a> OrphanReader<'a> {
    /// Visits the inodes of the list, in order.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where the list comes back to an inode, or leads to an unused one: a
    /// mount stops there too.
    pub(crate) fn listed(&self, visit: &mut dyn FnMut(Ino)) -> Result<(), FsError> {
        let mut met = HashSet::new();
        let mut next = Ino::new(self.volume.sb.raw.s_last_orphan.get());
        while next != Ino::ZERO {
            let ino = next;
            let place = Location::of("orphan list").in_inode(ino);
            self.check(ino, place)?;
            if !self.volume.bitmaps().is_allocated(ino)? {
                return Err(invalid("orphan", u64::from(ino.get()), place));
            }
            let inode = self.volume.inodes().read(ino)?;
            if !met.insert(ino) {
                return Err(FsError::corrupt(Corruption::Cycle, place));
            }
            // For a file with links this is the next one all the same.
            next = Ino::new(inode.core.i_dtime.get());
            visit(ino);
        }
        Ok(())
    }

    /// Visits the blocks of the orphan file.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] at the first block that does not belong to an orphan file: its magic
    /// number, checksum or a number in it is wrong.
    pub(crate) fn file_blocks(&self, visit: &mut dyn FnMut(OrphanBlock)) -> Result<(), FsError> {
        let file = Ino::new(self.volume.sb.raw.s_orphan_file_inum.get());
        let place = Location::of("orphan file").in_inode(file);
        let inode = self.volume.inodes().read(file)?;
        let bsize = u64::from(self.volume.sb.block_size);
        let count = (inode.len / bsize).min(self.volume.sb.blocks);
        for lbn in (0..count).map(Lbn::new) {
            // The kernel reads each of its blocks when it mounts.
            let Some(run) = self.volume.maps().map_block(&inode, lbn)? else {
                return Err(invalid("hole", lbn.get(), place));
            };
            let block = run.extent.start;
            let place = place.in_block(block);
            let mut bytes = vec![0; index(bsize)];
            self.volume.read_bytes(block, 0, &mut bytes)?;
            let room = slots_end(bytes.len());
            let tail: OrphanBlockTail = parse(&bytes, room).ok_or_else(|| truncated(place))?;
            let magic = tail.ob_magic.get();
            if magic != ORPHAN_BLOCK_MAGIC {
                return Err(FsError::corrupt(Corruption::Magic { found: magic.into() }, place));
            }
            if self.volume.sb.has_metadata_csum() {
                let sum = block_sum(&bytes, block, self.volume.inodes().seed(&inode));
                self.volume.verify(tail.ob_checksum.get(), sum, place)?;
            }
            let slots = bytes.get(..room).unwrap_or_default().chunks_exact(4);
            let numbers: Vec<(usize, Ino)> = slots
                .enumerate()
                .filter_map(|(slot, number)| Some((slot, Ino::new(le32(number, 0)?))))
                .filter(|&(_, ino)| ino != Ino::ZERO)
                .collect();
            numbers.iter().try_for_each(|&(_, ino)| self.check(ino, place))?;
            visit(OrphanBlock { block, numbers, bytes });
        }
        Ok(())
    }

    /// Whether a block has the magic number of an orphan file's block.
    pub(crate) fn is_file_block(&self, block: BlockNo) -> Result<bool, FsError> {
        let bytes = self.volume.block(block, Location::of("orphan file").in_block(block))?;
        let tail: Option<OrphanBlockTail> = parse(&bytes, slots_end(bytes.len()));
        Ok(tail.is_some_and(|tail| tail.ob_magic.get() == ORPHAN_BLOCK_MAGIC))
    }

    /// Refuses a number that is not an ordinary file's.
    fn check(&self, ino: Ino, place: Location) -> Result<(), FsError> {
        let number = ino.get();
        let most = self.volume.sb.raw.s_inodes_count.get();
        if number > most {
            return Err(range("orphan", u64::from(number), u64::from(most), place));
        }
        if self.volume.sb.is_reserved(ino) || number == special::ROOT {
            return Err(invalid("orphan", u64::from(number), place));
        }
        Ok(())
    }
}

/// The end of the slots of a block.
fn slots_end(block_len: usize) -> usize {
    block_len - size_of::<OrphanBlockTail>()
}

/// The checksum of a block that lies at `block`; `seed` is the file's.
pub(crate) fn block_sum(bytes: &[u8], block: BlockNo, seed: u32) -> u32 {
    let numbers = bytes.get(..slots_end(bytes.len())).unwrap_or_default();
    crc32c(crc32c(seed, &block.get().to_le_bytes()), numbers)
}
