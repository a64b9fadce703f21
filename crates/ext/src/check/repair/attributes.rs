//! Blocks of attributes, and the lists of them inside inodes.

use super::Work;
use super::inode::InodeMut;
use super::map::sectors_per_cluster;
use super::superblock::byte_of;
use crate::encode::rewrite::seal_xattr_block;
use crate::ondisk::{XattrHeader, flags};
use crate::xattr::inner_is_sound;
use seekless_fs::field::{index, truncated};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Ino};
use std::mem::offset_of;

/// Repairs attributes.
pub(super) struct AttributeRepair<'w, 'a> {
    work: &'w mut Work<'a>,
}

impl<'w, 'a> AttributeRepair<'w, 'a> {
    /// As a part of the work of a round.
    pub(super) fn of(work: &'w mut Work<'a>) -> Self {
        Self { work }
    }

    /// Drops the unreadable attributes of an inode: those that lie in it, or its block. An inode
    /// with unreadable inline data is unreadable itself; a file stays, and is empty.
    pub(super) fn discard(&mut self, ino: Ino) -> Result<(), FsError> {
        let volume = &self.work.checker.volume;
        let old = volume.inodes().read(ino)?;
        let block = volume.inodes().xattr_block_of(&old);
        let is_file = old.kind() == Some(FileKind::Regular);
        let is_inner = !inner_is_sound(&old) || block.is_none();
        let sectors = volume.inodes().allocated_sectors(&old);
        let block_sectors = sectors_per_cluster(&volume.sb);
        self.work.change(ino, |inode| {
            if is_inner && inode.has_flag(flags::INLINE_DATA) && is_file {
                inode.empty();
                inode.drop_inner_attributes();
            } else if is_inner && inode.has_flag(flags::INLINE_DATA) {
                inode.clear();
            } else if is_inner {
                inode.drop_inner_attributes();
            } else {
                inode.set_attribute_block(BlockNo::ZERO);
                inode.set_sectors(sectors.saturating_sub(block_sectors));
            }
        })
    }

    /// Gives an inode an attribute block of its own.
    pub(super) fn copy(&mut self, ino: Ino) -> Result<bool, FsError> {
        let volume = &self.work.checker.volume;
        let Some(block) = volume.inodes().xattr_block_of(&volume.inodes().read(ino)?) else {
            return Ok(true);
        };
        let Some(copy) = self.work.take_block() else { return Ok(false) };
        let bytes = self.work.disk.read(byte_of(&volume.sb, block), volume.block_len())?;
        self.put(copy, bytes, Some(1))?;
        self.work.disk.flush()?;
        let mut inode = InodeMut::read(volume, self.work.disk, ino)?;
        inode.set_attribute_block(copy);
        inode.write(volume, self.work.disk)?;
        Ok(true)
    }

    /// Renews the checksum of an inode's attribute block.
    pub(super) fn seal(&mut self, ino: Ino) -> Result<(), FsError> {
        let volume = &self.work.checker.volume;
        let Some(block) = volume.inodes().xattr_block_of(&volume.inodes().read(ino)?) else {
            return Ok(());
        };
        let bytes = self.work.disk.read(byte_of(&volume.sb, block), volume.block_len())?;
        self.put(block, bytes, None)
    }

    /// Sets the reference count of an attribute block.
    pub(super) fn set_shares(&mut self, block: BlockNo, count: u32) -> Result<(), FsError> {
        let sb = self.work.checker.sb();
        let bytes = self.work.disk.read(byte_of(sb, block), index(sb.block_size))?;
        self.put(block, bytes, Some(count))
    }

    /// Lowers the reference count of an attribute block.
    pub(super) fn leave(&mut self, block: BlockNo) -> Result<(), FsError> {
        let Some(shared) = self.work.checker.shared.get(&block) else { return Ok(()) };
        let sb = self.work.checker.sb();
        let bytes = self.work.disk.read(byte_of(sb, block), index(sb.block_size))?;
        let count =
            seekless_fs::field::le32(&bytes, offset_of!(XattrHeader, h_refcount)).unwrap_or(0);
        if shared.found > 1 && count > 1 {
            self.put(block, bytes, Some(count - 1))?;
        }
        Ok(())
    }

    fn put(&mut self, at: BlockNo, mut bytes: Vec<u8>, count: Option<u32>) -> Result<(), FsError> {
        let sb = self.work.checker.sb();
        let place = Location::of("attribute block").in_block(at);
        if let Some(count) = count {
            let slot = bytes.get_mut(offset_of!(XattrHeader, h_refcount)..);
            let slot = slot.and_then(<[u8]>::first_chunk_mut).ok_or_else(|| truncated(place))?;
            *slot = count.to_le_bytes();
        }
        if sb.has_metadata_csum() {
            seal_xattr_block(&mut bytes, at, sb.checksum_seed, place)?;
        }
        self.work.disk.put(byte_of(sb, at), &bytes)
    }
}
