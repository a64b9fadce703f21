//! An inode changed in place.

use crate::encode::rewrite::seal_inode;
use crate::inode::{EPOCH_BITS, late_times};
use crate::ondisk::{IBlock, INODE_CORE_SIZE, InodeCore, InodeExtra, flags, ro_compat};
use crate::volume::Volume;
use seekless_fs::field::{index, low16, low32, truncated};
use seekless_fs::patches::Patches;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Ino};
use std::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

/// The bytes of an inode, and where they lie.
pub(super) struct InodeMut {
    ino: Ino,
    at: u64,
    core: InodeCore,
    /// The bytes behind [`InodeCore`].
    rest: Vec<u8>,
    /// `i_blocks` counts in this many bytes and has this many bits; lengths too.
    huge: bool,
    block_size: u32,
}

impl InodeMut {
    /// Reads an inode as it lies on the disk now.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where there is no such inode; errors of the device.
    pub(super) fn read(volume: &Volume, disk: &Patches, ino: Ino) -> Result<Self, FsError> {
        let place = Location::of("inode").in_inode(ino);
        let found = volume.inodes().location(ino)?;
        let start = found.block.get() * u64::from(volume.sb.block_size);
        let at = start + u64::from(found.offset);
        let bytes = disk.read(at, usize::from(volume.sb.inode_size))?;
        let (core, rest) = InodeCore::read_from_prefix(&bytes).map_err(|_| truncated(place))?;
        let huge = volume.sb.has_ro_compat(ro_compat::HUGE_FILE);
        Ok(Self { ino, at, core, rest: rest.to_vec(), huge, block_size: volume.sb.block_size })
    }

    /// Writes it with its checksum.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn write(&self, volume: &Volume, disk: &mut Patches) -> Result<(), FsError> {
        let mut raw = self.core.as_bytes().to_vec();
        raw.extend_from_slice(&self.rest);
        // An inode that was never in use has no checksum.
        if volume.sb.has_metadata_csum() && raw.iter().any(|&byte| byte != 0) {
            let place = Location::of("inode").in_inode(self.ino);
            let (generation, seed) = (self.core.i_generation.get(), volume.sb.checksum_seed);
            let extra = usize::from(self.extra_size());
            seal_inode(&mut raw, self.ino, generation, extra, seed, place)?;
        }
        disk.put(self.at, &raw)
    }

    pub(super) fn core_mut(&mut self) -> &mut InodeCore {
        &mut self.core
    }

    pub(super) fn core(&self) -> &InodeCore {
        &self.core
    }

    fn extra_size(&self) -> u16 {
        self.rest.first_chunk().map_or(0, |pair| u16::from_le_bytes(*pair))
    }

    /// Makes it unused, as if it had never been in use.
    pub(super) fn clear(&mut self) {
        self.core = InodeCore::default();
        self.rest.fill(0);
    }

    /// Sets `i_extra_isize`, to a size that fits and covers the checksum at least; the bytes behind
    /// it are no attribute list any more.
    pub(super) fn set_extra_size(&mut self, wanted: u16) {
        let most = u16::try_from(self.rest.len()).unwrap_or(u16::MAX);
        let least = low16(u32::try_from(size_of::<InodeExtra>()).unwrap_or(0));
        let size = if wanted & 3 == 0 && (4..=most).contains(&wanted) { wanted } else { least };
        for (to, from) in self.rest.iter_mut().zip(size.min(most).to_le_bytes()) {
            *to = from;
        }
        let tail = usize::from(size.min(most));
        if let Some(magic) = self.rest.get_mut(tail..).and_then(<[u8]>::first_chunk_mut::<4>) {
            *magic = [0; 4];
        }
    }

    /// Drops the attributes that lie in it.
    pub(super) fn drop_inner_attributes(&mut self) {
        let tail = usize::from(self.extra_size());
        if let Some(rest) = self.rest.get_mut(tail..) {
            rest.fill(0);
        }
    }

    pub(super) fn has_flag(&self, bit: u32) -> bool {
        self.core.i_flags.get() & bit != 0
    }

    /// Sets or clears flags.
    pub(super) fn set_flag(&mut self, bits: u32, set: bool) {
        let old = self.core.i_flags.get();
        self.core.i_flags = (if set { old | bits } else { old & !bits }).into();
    }

    /// Sets how many attributes have their value in it (`ext2fs_set_ea_inode_ref`).
    pub(super) fn set_value_count(&mut self, count: u64) {
        self.core.i_ctime = low32(count >> 32).into();
        self.core.i_version = low32(count).into();
    }

    /// Clears the bits of epoch of times after the year 2310.
    pub(super) fn clear_late_times(&mut self) {
        for at in late_times(&self.core, &self.rest) {
            let slot = self.rest.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
            if let Some(slot) = slot {
                *slot = (u32::from_le_bytes(*slot) & !EPOCH_BITS).to_le_bytes();
            }
        }
    }

    /// Sets its length, in bytes.
    pub(super) fn set_len(&mut self, len: u64) {
        self.core.i_size_lo = low32(len).into();
        self.core.i_size_high = low32(len >> 32).into();
    }

    /// Sets `i_blocks`, given in sectors of 512 bytes.
    pub(super) fn set_sectors(&mut self, sectors: u64) {
        let mut count = sectors;
        let bits = self.core.i_flags.get() & !flags::HUGE_FILE;
        let mut huge = 0;
        if self.huge && sectors >> 48 != 0 {
            count = sectors / u64::from(self.block_size >> 9);
            huge = flags::HUGE_FILE;
        }
        if self.huge {
            self.core.i_flags = (bits | huge).into();
            self.core.i_blocks_high = low16(low32(count >> 32)).into();
        }
        self.core.i_blocks_lo = low32(count).into();
    }

    pub(super) fn set_map(&mut self, map: IBlock) {
        self.core.i_block = map;
    }

    /// Sets its attribute block; 0 for none.
    pub(super) fn set_attribute_block(&mut self, block: BlockNo) {
        self.core.i_file_acl_lo = low32(block.get()).into();
        self.core.i_file_acl_high = low16(low32(block.get() >> 32)).into();
    }

    /// Releases blocks and attributes, and keeps the other fields.
    pub(super) fn release(&mut self) {
        self.core.i_links_count = 0.into();
        self.set_len(0);
        self.set_sectors(0);
        self.core.i_block = IBlock::default();
        self.set_attribute_block(BlockNo::ZERO);
        self.core.i_flags = (self.core.i_flags.get()
            & !(flags::EXTENTS | flags::INDEX | flags::INLINE_DATA))
            .into();
    }

    /// Removes its inline contents.
    pub(super) fn empty(&mut self) {
        self.set_len(0);
        self.core.i_block = IBlock::default();
        self.core.i_flags = (self.core.i_flags.get() & !flags::INLINE_DATA).into();
    }

    /// Changes its bytes, as one slice.
    pub(super) fn with_bytes(&mut self, with: impl FnOnce(&mut [u8])) {
        let mut raw = self.core.as_bytes().to_vec();
        raw.extend_from_slice(&self.rest);
        with(&mut raw);
        let (core, rest) = raw.split_at_checked(INODE_CORE_SIZE).unwrap_or_default();
        if let Ok(core) = InodeCore::read_from_bytes(core) {
            self.core = core;
            self.rest = rest.to_vec();
        }
    }

    /// The seed of the checksums of its own blocks.
    pub(super) fn seed(&self, volume: &Volume) -> u32 {
        let generation = self.core.i_generation.get();
        crate::encode::rewrite::inode_seed(volume.sb.checksum_seed, self.ino, generation)
    }

    /// Makes it a new inode.
    pub(super) fn begin(&mut self, mode: u16, extra: u16, time: u32) {
        debug_assert!(FileKind::from_mode(mode).is_some(), "mode {mode:#o} has a file type");
        self.clear();
        self.core.i_mode = mode.into();
        for slot in [&mut self.core.i_atime, &mut self.core.i_ctime, &mut self.core.i_mtime] {
            *slot = time.into();
        }
        if !self.rest.is_empty() {
            self.set_extra_size(extra);
            let at = offset_of!(InodeExtra, i_crtime);
            if index(self.extra_size()) >= at + 4 {
                let slot = self.rest.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
                if let Some(slot) = slot {
                    *slot = time.to_le_bytes();
                }
            }
        }
    }
}
