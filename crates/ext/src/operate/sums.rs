//! Checksums of changed metadata in a volume with `metadata_csum`.
//!
//! Blocks of directories and of extent trees are sealed when they are written: they
//! have an owner in the cache from when they are checked, once each time that they come
//! from the disk.
//! Structures that are alone in their block or found without an owner are sealed as they change: an
//! inode, whose neighbours keep their sums, even wrong ones; a block of attributes; a bitmap, whose
//! sum lies in a descriptor.

use super::layout::Layout;
use super::map::Core;
use crate::checksum::crc32c;
use crate::dir::{seal_leaf, verify_leaf};
use crate::encode::rewrite::seal_extent_block;
use crate::extent::verify_block as verify_extent_block;
use crate::htree;
use crate::inode::{CHECKSUM_HI_AT, CHECKSUM_LO_AT, inode_sum, seed_of};
use crate::ondisk::{INODE_CORE_SIZE, InodeCore, XattrHeader, compat, flags};
use crate::superblock::Super;
use seekless_cache::{Owner, Role, Seal};
use seekless_fs::field::{index, le32, low16};
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::Fields;
use seekless_units::{BlockNo, Ino, Lbn};
use smallvec::smallvec;
use std::mem::offset_of;
use std::sync::Arc;

/// Kinds of owned blocks.
mod kind {
    /// A block of a directory's, of names or of its index.
    pub(super) const DIRECTORY: u8 = 1;
    /// A bitmap of the group with the number, which was checked.
    pub(super) const BITMAP: u8 = 2;
    /// A node of a file's extents.
    pub(super) const NODE: u8 = 3;
}

/// Seals blocks that are about to be written; `seed` is the volume's.
pub(super) struct Sealer {
    pub(super) seed: u32,
}

impl Seal for Sealer {
    /// Names lie in blocks of directories; names in inodes are changed in other roles.
    fn needs_owner(&self, role: Role) -> bool {
        use Role::{EntryAdd, EntryAddDirectory, EntryChange, EntryRemove};
        matches!(role, EntryAdd | EntryAddDirectory | EntryChange | EntryRemove)
    }

    fn seal(&self, _: BlockNo, owner: Option<Owner>, bytes: &mut [u8]) {
        let Some(owner) = owner else { return };
        let seed = seed_of(self.seed, owner.number, owner.generation);
        match owner.kind {
            kind::DIRECTORY => seal_directory(bytes, seed),
            kind::NODE => {
                let sealed = seal_extent_block(bytes, seed, Location::of("extent block"));
                debug_assert!(sealed.is_ok(), "it was checked, or made here");
            }
            _ => debug_assert_eq!(owner.kind, kind::BITMAP, "nothing else is owned"),
        }
    }
}

/// Sets the checksum of a directory's block.
fn seal_directory(bytes: &mut [u8], seed: u32) {
    if !htree::is_index_by_entries(bytes) {
        return seal_leaf(bytes, seed);
    }
    let sealed = htree::seal(bytes, seed, Location::of("directory block"));
    debug_assert!(sealed.is_ok(), "it was checked, or made here");
}

/// The checksum of a block of attributes, its own field counting as zero.
pub(super) fn attributes_sum(seed: u32, at: BlockNo, bytes: &[u8]) -> u32 {
    let field = offset_of!(XattrHeader, h_checksum);
    let (before, rest) = bytes.split_at_checked(field).unwrap_or_default();
    let crc = crc32c(crc32c(seed, &at.get().to_le_bytes()), before);
    crc32c(crc32c(crc, &[0; 4]), rest.get(4..).unwrap_or_default())
}

/// Whether a bitmap was checked since it came into memory.
pub(super) fn is_checked(core: &Core, at: BlockNo) -> bool {
    core.cache.blocks().owner(at).is_some_and(|owner| owner.kind == kind::BITMAP)
}

/// Notes that a bitmap in memory is checked.
pub(super) fn note_checked(core: &mut Core, at: BlockNo) {
    core.cache.blocks_mut().set_owner(at, Owner { kind: kind::BITMAP, number: 0, generation: 0 });
}

/// Sets the checksum in the bytes of an inode, and returns its place.
pub(super) fn sum_inode(sb: &Super, ino: Ino, raw: &mut [u8]) -> Fields {
    let wide = extra_len(raw) >= 4;
    let generation = le32(raw, offset_of!(InodeCore, i_generation)).unwrap_or(0);
    let seed = seed_of(sb.checksum_seed, ino.get(), generation);
    debug_assert_eq!(raw.len(), index(sb.inode_size));
    let sum = inode_sum(raw, wide, seed);
    let pair = |at: usize| at..at + 2;
    let mut fields: Fields = smallvec![pair(CHECKSUM_LO_AT)];
    if wide {
        fields.push(pair(CHECKSUM_HI_AT));
    }
    for (at, half) in fields.iter().zip([low16(sum), low16(sum >> 16)]) {
        if let Some(to) = raw.get_mut(at.clone()) {
            to.copy_from_slice(&half.to_le_bytes());
        }
    }
    fields
}

/// `i_extra_isize` of an inode's bytes, as far as there is room for it.
pub(super) fn extra_len(raw: &[u8]) -> usize {
    let rest = raw.len() - INODE_CORE_SIZE;
    let told = raw.get(INODE_CORE_SIZE..).and_then(|rest| rest.first_chunk());
    told.map_or(0, |pair| usize::from(u16::from_le_bytes(*pair))).min(rest)
}

/// The checksums of blocks that have an owner.
pub(super) struct Checksums {
    layout: Arc<Layout>,
}

impl Checksums {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self { layout }
    }

    /// The owner of a directory's blocks.
    fn directory(core: &mut Core, dir: Ino) -> Result<Owner, FsError> {
        let generation = core.node(dir)?.generation;
        Ok(Owner { kind: kind::DIRECTORY, number: dir.get(), generation })
    }

    /// Sets the checksum of a new block of a directory.
    pub(super) fn seal_names(
        &self,
        core: &mut Core,
        dir: Ino,
        bytes: &mut [u8],
    ) -> Result<(), FsError> {
        if self.layout.has_sums() {
            let Owner { number, generation, .. } = Self::directory(core, dir)?;
            seal_directory(bytes, seed_of(self.layout.sb().checksum_seed, number, generation));
        }
        Ok(())
    }

    /// Checks a directory's block, unless that was done since it came into memory;
    /// from then on it is sealed when it is written.
    pub(super) fn claim(
        &self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        at: BlockNo,
    ) -> Result<(), FsError> {
        if !self.layout.has_sums() || core.node(ino)?.kind != FileKind::Directory {
            return Ok(());
        }
        let owner = Self::directory(core, ino)?;
        if core.cache.blocks().owner(at) == Some(owner) {
            return Ok(());
        }
        let is_hashed = core.node(ino)?.flags & flags::INDEX != 0
            && self.layout.sb().has_compat(compat::DIR_INDEX);
        let place = Location::of("directory block").in_inode(ino).in_block(at);
        let seed = seed_of(self.layout.sb().checksum_seed, owner.number, owner.generation);
        let bytes = core.cache.blocks_mut().read(at, 0, self.layout.block_len())?;
        if is_hashed && htree::is_index_block(bytes, Lbn::new(lbn)) {
            htree::verify(self.layout.volume(), bytes, seed, place)?;
        } else {
            verify_leaf(self.layout.volume(), bytes, seed, place)?;
        }
        core.cache.blocks_mut().set_owner(at, owner);
        Ok(())
    }

    /// Checks a node of a file's extents in the cache, unless that was done since it
    /// came into memory; from then on it is sealed when it is written.
    pub(super) fn claim_node(&self, core: &mut Core, ino: Ino, at: BlockNo) -> Result<(), FsError> {
        if !self.layout.has_sums() {
            return Ok(());
        }
        let generation = core.node(ino)?.generation;
        let owner = Owner { kind: kind::NODE, number: ino.get(), generation };
        if core.cache.blocks().owner(at) == Some(owner) {
            return Ok(());
        }
        let place = Location::of("extent block").in_inode(ino).in_block(at);
        let seed = seed_of(self.layout.sb().checksum_seed, owner.number, generation);
        let bytes = core.cache.blocks_mut().read(at, 0, self.layout.block_len())?;
        verify_extent_block(self.layout.volume(), bytes, seed, place)?;
        core.cache.blocks_mut().set_owner(at, owner);
        Ok(())
    }

    /// Sets the checksum of a new node of a file's extents.
    pub(super) fn seal_node(
        &self,
        core: &mut Core,
        ino: Ino,
        bytes: &mut [u8],
    ) -> Result<(), FsError> {
        if self.layout.has_sums() {
            let generation = core.node(ino)?.generation;
            let seed = seed_of(self.layout.sb().checksum_seed, ino.get(), generation);
            seal_extent_block(bytes, seed, Location::of("extent block").in_inode(ino))?;
        }
        Ok(())
    }
}
