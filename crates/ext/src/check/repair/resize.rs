//! The resize inode, written as it was made.

use super::Work;
use super::inode::InodeMut;
use super::superblock::{byte_of, time};
use crate::check::checker::Checker;
use crate::encode::resize::ResizeMap;
use crate::indirect;
use crate::ondisk::{I_BLOCK_DOUBLE, IBlock};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, GroupNo, Ino};

/// `i_mode`: a regular file, read and written by root.
const MODE: u16 = 0o100_600;

impl Checker {
    /// The map that the resize inode should have.
    pub(in crate::check) fn resize_map(&self) -> ResizeMap {
        let sb = self.sb();
        let descriptor_blocks = u64::from(sb.descriptor_blocks());
        let start = sb.group_blocks(GroupNo::ZERO).start.get();
        let distance = |number| sb.group_blocks(number).start.get() - start;
        ResizeMap {
            block_size: sb.block_size,
            descriptor_blocks,
            reserved: u64::from(sb.raw.s_reserved_gdt_blocks.get()),
            first: sb.superblock_block().get() + 1 + descriptor_blocks,
            copies: (1..sb.groups)
                .map(GroupNo::new)
                .filter(|&number| sb.group_has_super(number))
                .map(distance)
                .collect(),
        }
    }
}

impl Work<'_> {
    /// Writes the resize inode and the blocks of its map. Its double-indirect block stays in place,
    /// unless it belongs to something else. Returns whether there was room for one; otherwise
    /// nothing is written.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn restore_resize(&mut self, ino: Ino) -> Result<bool, FsError> {
        let volume = &self.checker.volume;
        let map = self.checker.resize_map();
        let place = Location::of("resize inode").in_inode(ino);
        let old = volume.inodes().read(ino).map(|inode| indirect::double_block(&inode));
        let old = match old {
            Err(FsError::Corrupt { .. }) => None,
            old => old?,
        };
        let is_own = |block: &BlockNo| {
            volume.check_block(*block, place).is_ok() && !self.is_claimed_twice(*block)
        };
        let Some(double) = old.filter(is_own).or_else(|| self.take_block()) else {
            return Ok(false);
        };
        for (block, bytes) in map.blocks(double) {
            volume.check_block(block, place)?;
            self.disk.put(byte_of(&volume.sb, block), &bytes)?;
        }
        self.disk.flush()?;
        let size = u64::from(volume.sb.block_size);
        let slots = size >> 2;
        let len = slots * slots + slots + 12;
        let mut i_block = IBlock::default();
        if let Some(slot) = i_block.0.get_mut(I_BLOCK_DOUBLE..).and_then(<[u8]>::first_chunk_mut) {
            *slot = seekless_fs::field::low32(double.get()).to_le_bytes();
        }
        let extra = volume.sb.raw.s_want_extra_isize.get();
        let time = time(self.checker.sb());
        self.change(ino, |inode: &mut InodeMut| {
            inode.begin(MODE, extra, time);
            inode.core_mut().i_links_count = 1.into();
            inode.set_len(len * size);
            inode.set_map(i_block);
            inode.set_sectors(map.count() * (size >> 9));
        })?;
        Ok(true)
    }
}
