//! Files of the volume's own: the resize inode, written as it was made, and quota files, with the
//! usage that the check counted.

use super::Work;
use super::inode::InodeMut;
use super::map::{contiguous, sectors_per_cluster};
use super::superblock::{byte_of, time};
use crate::check::checker::Checker;
use crate::encode::resize::ResizeMap;
use crate::indirect;
use crate::ondisk::{I_BLOCK_DOUBLE, IBlock, OWN_FILE_MODE, flags, incompat};
use crate::quota;
use seekless_fs::field::{index, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, GroupNo, Ino};

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
        let sectors = sectors_per_cluster(&volume.sb);
        self.change(ino, |inode: &mut InodeMut| {
            inode.begin(OWN_FILE_MODE, extra, time);
            inode.core_mut().i_links_count = 1.into();
            inode.set_len(len * size);
            inode.set_map(i_block);
            // Each block counts as a cluster.
            inode.set_sectors(map.count() * sectors);
        })?;
        Ok(true)
    }

    /// Gives the blocks of a file's contents back that nothing else claims, to write others there.
    fn give_contents(&mut self, ino: Ino) -> Result<(), FsError> {
        let volume = &self.checker.volume;
        let old = volume.inodes().read(ino)?;
        if self.checker.seen.get(ino).is_none_or(|seen| seen.bad_map)
            || !volume.maps().has_blocks(&old)
        {
            return Ok(());
        }
        let is_own = |at| !self.checker.twice.get(index(at)) && !self.checker.fixed.get(index(at));
        for run in volume.maps().block_map(&old)?.runs {
            if volume.sb.clusters_of(run.extent).all(is_own) {
                self.space.give(&volume.sb, run.extent);
            }
        }
        Ok(())
    }

    /// Writes a quota file with the limits that can be read in the old one: to free blocks, or on a
    /// full volume to its own, as e2fsck does. Returns whether there was room.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn write_quotas(&mut self, ino: Ino) -> Result<bool, FsError> {
        let checker = self.checker;
        let Some((kind, _)) = quota::files(checker.sb()).find(|(_, file)| *file == ino) else {
            return Ok(false);
        };
        let old = match quota::read_file(&checker.volume, kind, ino) {
            Err(FsError::Corrupt { .. }) => quota::QuotaContents::default(),
            old => old?,
        };
        if self.write_quota_file(ino, &old)? {
            return Ok(true);
        }
        self.give_contents(ino)?;
        self.write_quota_file(ino, &old)
    }

    /// Writes a quota file with these limits and the usage that was counted to free blocks. Returns
    /// whether there was room. Until the contents are on stable storage, the inode leads to the old
    /// file.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn write_quota_file(
        &mut self,
        ino: Ino,
        old: &quota::QuotaContents,
    ) -> Result<bool, FsError> {
        let checker = self.checker;
        let sb = checker.sb();
        let Some((kind, _)) = quota::files(sb).find(|(_, file)| *file == ino) else {
            return Ok(false);
        };
        let Some(usage) = checker.usage.get(kind) else { return Ok(false) };
        let Some(mut bytes) = quota::encode(&checker.volume, kind, old, usage) else {
            return Ok(false);
        };
        let len = wide(bytes.len());
        let size = u64::from(sb.block_size);
        bytes.resize(index(len.next_multiple_of(size)), 0);
        let count = len.div_ceil(size);
        let Some(blocks) = self.take_blocks(count) else { return Ok(false) };
        for (&block, chunk) in blocks.iter().zip(bytes.chunks(index(size))) {
            self.disk.put(byte_of(sb, block), chunk)?;
        }
        let mut inode = InodeMut::read(&checker.volume, self.disk, ino)?;
        inode.begin(OWN_FILE_MODE, sb.raw.s_want_extra_isize.get(), time(sb));
        inode.core_mut().i_links_count = 1.into();
        let extents = if sb.has_incompat(incompat::EXTENTS) { flags::EXTENTS } else { 0 };
        inode.core_mut().i_flags = (extents | flags::IMMUTABLE).into();
        if !self.put_map(&mut inode, &contiguous(&blocks))? {
            self.give_blocks(&blocks);
            return Ok(false);
        }
        inode.set_len(len);
        inode.write(&checker.volume, self.disk)?;
        Ok(true)
    }
}
