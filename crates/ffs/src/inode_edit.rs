//! An inode's bytes, changed in place.

use crate::checksum::crc32c;
use crate::ondisk::{DIRECT, Dinode1, Dinode2, SNAPSHOT, check_hash};
use crate::superblock::{Format, Super};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::{index, low32, wide};
use seekless_fs::patches::Patches;
use seekless_units::Ino;
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// The place of a field in an inode, of UFS1 or of UFS2.
macro_rules! at {
    ($sb:expr, $field:ident) => {
        match $sb.format {
            Format::Ufs1 => offset_of!(Dinode1<LE>, $field),
            Format::Ufs2 => offset_of!(Dinode2<LE>, $field),
        }
    };
}

/// An inode being changed. Its block is read again: inodes in it may have been changed before.
pub(crate) struct InodeMut<'a> {
    sb: &'a Super,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> InodeMut<'a> {
    /// # Errors
    /// [`FsError::Corrupt`] for an inode that does not exist.
    pub(crate) fn read(volume: &'a Volume, disk: &Patches, ino: Ino) -> Result<Self, FsError> {
        let sb = &volume.sb;
        let place = sb.inode_place(ino)?;
        let block = place.block.get() * u64::from(sb.fsize);
        let at = block + wide(place.skip);
        Ok(Self { sb, at, bytes: disk.read(at, index(sb.inode_size()))? })
    }

    /// Takes the bytes of an inode that are written elsewhere.
    pub(crate) fn of(sb: &'a Super, bytes: Vec<u8>) -> Self {
        debug_assert_eq!(bytes.len(), index(sb.inode_size()), "the bytes of one inode");
        Self { sb, at: 0, bytes }
    }

    /// The bytes to be written.
    pub(crate) fn sealed(mut self) -> Vec<u8> {
        self.seal();
        self.bytes
    }

    /// Writes it: one sector.
    pub(crate) fn write(self, disk: &mut Patches) -> Result<(), FsError> {
        let at = self.at;
        disk.put(at, &self.sealed())
    }

    /// Makes a snapshot an ordinary file without contents.
    pub(crate) fn empty(&mut self) {
        (0..DIRECT + 3).for_each(|n| self.set_pointer(n, 0));
        self.set_len(0);
        self.set_sectors(0);
        self.unmark();
    }

    fn seal(&mut self) {
        let hashed = self.sb.format == Format::Ufs2 && self.sb.has_check_hash(check_hash::INODE);
        if hashed && self.bytes.iter().any(|&byte| byte != 0) {
            let at = offset_of!(Dinode2<LE>, di_ckhash);
            self.put32(at, 0);
            let hash = crc32c(&self.bytes);
            self.put32(at, hash);
        }
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.sb.order.put_u32(&mut self.bytes, at, value);
    }

    /// Zeroes all but the generation, from which new files go on.
    pub(crate) fn clear(&mut self) {
        let at = at!(self.sb, di_gen);
        let generation = self.sb.order.get_u32(&self.bytes, at).unwrap_or(0);
        self.bytes.fill(0);
        self.put32(at, generation);
    }

    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.sb.order.put_u16(&mut self.bytes, at!(self.sb, di_mode), mode);
    }

    pub(crate) fn links(&self) -> u16 {
        self.sb.order.get_u16(&self.bytes, at!(self.sb, di_nlink)).unwrap_or(0)
    }

    pub(crate) fn set_links(&mut self, links: u16) {
        self.sb.order.put_u16(&mut self.bytes, at!(self.sb, di_nlink), links);
    }

    /// In bytes.
    pub(crate) fn len(&self) -> u64 {
        self.sb.order.get_u64(&self.bytes, at!(self.sb, di_size)).unwrap_or(0)
    }

    /// In bytes.
    pub(crate) fn set_len(&mut self, len: u64) {
        self.sb.order.put_u64(&mut self.bytes, at!(self.sb, di_size), len);
    }

    /// `di_blocks`, in sectors.
    pub(crate) fn sectors(&self) -> u64 {
        let at = at!(self.sb, di_blocks);
        match self.sb.format {
            Format::Ufs1 => self.sb.order.get_u32(&self.bytes, at).map(u64::from),
            Format::Ufs2 => self.sb.order.get_u64(&self.bytes, at),
        }
        .unwrap_or(0)
    }

    /// `di_blocks`, in sectors.
    pub(crate) fn set_sectors(&mut self, sectors: u64) {
        let at = at!(self.sb, di_blocks);
        match self.sb.format {
            Format::Ufs1 => self.put32(at, low32(sectors)),
            Format::Ufs2 => self.sb.order.put_u64(&mut self.bytes, at, sectors),
        }
    }

    /// Clears its flag of a snapshot.
    pub(crate) fn unmark(&mut self) {
        let at = at!(self.sb, di_flags);
        let flags = self.sb.order.get_u32(&self.bytes, at).unwrap_or(0);
        self.put32(at, flags & !SNAPSHOT);
    }

    /// The n-th of the twelve direct and three indirect block numbers.
    pub(crate) fn pointer(&self, n: usize) -> u64 {
        debug_assert!(n < DIRECT + 3, "an inode has fifteen numbers");
        let width = index(self.sb.pointer_size());
        let at = at!(self.sb, di_db) + n * width;
        match self.sb.format {
            Format::Ufs1 => self.sb.order.get_u32(&self.bytes, at).map(u64::from),
            Format::Ufs2 => self.sb.order.get_u64(&self.bytes, at),
        }
        .unwrap_or(0)
    }

    /// Sets the n-th of the twelve direct and three indirect block numbers.
    pub(crate) fn set_pointer(&mut self, n: usize, block: u64) {
        debug_assert!(n < DIRECT + 3, "an inode has fifteen numbers");
        let width = index(self.sb.pointer_size());
        let at = at!(self.sb, di_db) + n * width;
        put_pointer(self.sb, &mut self.bytes, at, block);
    }

    /// Sets the depth of a directory, which is the next file in the list of those that are in use
    /// without a name.
    pub(crate) fn set_depth(&mut self, depth: u32) {
        let at = match self.sb.format {
            Format::Ufs1 => offset_of!(Dinode1<LE>, di_oldids),
            Format::Ufs2 => offset_of!(Dinode2<LE>, di_dirdepth),
        };
        self.put32(at, depth);
    }

    /// Sets one of the two numbers of blocks with extended attributes.
    pub(crate) fn set_attribute_block(&mut self, n: usize, block: u64) {
        debug_assert!(n < 2, "attributes have two blocks");
        if self.sb.format == Format::Ufs2 {
            let at = offset_of!(Dinode2<LE>, di_extb) + n * 8;
            self.sb.order.put_u64(&mut self.bytes, at, block);
        }
    }

    pub(crate) fn drop_attributes(&mut self) {
        if self.sb.format == Format::Ufs2 {
            self.put32(offset_of!(Dinode2<LE>, di_extsize), 0);
            self.set_attribute_block(0, 0);
            self.set_attribute_block(1, 0);
        }
    }

    /// All three times, and on UFS2 that of birth, in seconds of the epoch.
    pub(crate) fn set_times(&mut self, secs: i64) {
        let fields = [at!(self.sb, di_atime), at!(self.sb, di_mtime), at!(self.sb, di_ctime)];
        for at in fields {
            match self.sb.format {
                Format::Ufs1 => self.put32(at, low32(secs.cast_unsigned())),
                Format::Ufs2 => {
                    self.sb.order.put_u64(&mut self.bytes, at, secs.cast_unsigned());
                }
            }
        }
        if self.sb.format == Format::Ufs2 {
            let at = offset_of!(Dinode2<LE>, di_birthtime);
            self.sb.order.put_u64(&mut self.bytes, at, secs.cast_unsigned());
            self.put32(offset_of!(Dinode2<LE>, di_blksize), self.sb.bsize);
        }
    }
}

/// Writes a block number, which has four or eight bytes.
pub(crate) fn put_pointer(sb: &Super, bytes: &mut [u8], at: usize, block: u64) {
    debug_assert!(block <= sb.size, "block {block} lies in the volume");
    debug_assert!(at + index(sb.pointer_size()) <= bytes.len(), "a number at byte {at}");
    match sb.format {
        Format::Ufs1 => sb.order.put_u32(bytes, at, low32(block)),
        Format::Ufs2 => sb.order.put_u64(bytes, at, block),
    }
}
