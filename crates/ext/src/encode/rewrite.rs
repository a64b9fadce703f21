//! Replaces inode numbers, places and checksums inside blocks and inodes of an image. Everything
//! around them stays as it is, byte for byte.

use crate::checksum::crc32c;
use crate::dir::entry_at;
use crate::htree;
use crate::ondisk::{
    DirEntryTail, ExtentHeader, IBlock, INODE_CORE_SIZE, InodeCore, InodeExtra, ORPHAN_BLOCK_MAGIC,
    OrphanBlockTail, XATTR_MAGIC, XattrEntry, XattrHeader,
};
use crate::orphans::block_sum;
use seekless_fs::field::{byte, invalid, le32, parse, range, slice, truncated, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino, Lbn};
use std::mem::offset_of;

/// New inode numbers by old ones.
pub(crate) type Renumber<'a> = &'a dyn Fn(Ino) -> Option<Ino>;

/// Puts `bytes` at byte `at`.
fn put(out: &mut [u8], at: usize, bytes: &[u8], place: Location) -> Result<(), FsError> {
    let end = at + bytes.len();
    out.get_mut(at..end)
        .ok_or_else(|| truncated(place.at_offset(byte(at))))?
        .copy_from_slice(bytes);
    Ok(())
}

/// The new number of a referenced inode.
pub(crate) fn renumbered(
    old: Ino,
    renumber: Renumber<'_>,
    place: Location,
) -> Result<Ino, FsError> {
    renumber(old).ok_or_else(|| invalid("inode", u64::from(old.get()), place))
}

/// Replaces the inode numbers of all entries in a piece of a directory.
pub(crate) fn entries(
    piece: &mut [u8],
    inodes: u32,
    renumber: Renumber<'_>,
    place: Location,
) -> Result<(), FsError> {
    let mut at = 0;
    while at < piece.len() {
        let entry = entry_at(piece, at, inodes, place)?;
        let (old, next) = (entry.ino, entry.next);
        if old != Ino::ZERO {
            let new = renumbered(old, renumber, place.at_offset(byte(at)))?;
            put(piece, at, &new.get().to_le_bytes(), place)?;
        }
        at = next;
    }
    Ok(())
}

/// Sets the checksum of a directory block. `seed` is the directory's new one.
pub(crate) fn seal_directory_block(
    block: &mut [u8],
    lbn: Lbn,
    hashed: bool,
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    if hashed && htree::is_index_block(block, lbn) {
        return htree::seal(block, seed, place);
    }
    let at = block.len() - size_of::<DirEntryTail>();
    let sum = crc32c(seed, block.get(..at).unwrap_or_default());
    put(block, at + offset_of!(DirEntryTail, det_checksum), &sum.to_le_bytes(), place)
}

/// Replaces the numbers of inodes that hold large values in a list of
/// attributes that starts at byte `at`.
fn value_inodes(
    region: &mut [u8],
    mut at: usize,
    renumber: Renumber<'_>,
    place: Location,
) -> Result<(), FsError> {
    loop {
        let here = place.at_offset(byte(at));
        if le32(region, at).ok_or_else(|| truncated(here))? == 0 {
            return Ok(());
        }
        let entry: XattrEntry = parse(region, at).ok_or_else(|| truncated(here))?;
        let old = entry.e_value_inum.get();
        if old != 0 {
            let new = renumbered(Ino::new(old), renumber, here)?;
            let slot = at + offset_of!(XattrEntry, e_value_inum);
            put(region, slot, &new.get().to_le_bytes(), here)?;
        }
        let len = size_of::<XattrEntry>() + usize::from(entry.e_name_len);
        at += len.next_multiple_of(4);
    }
}

/// An attribute block at its new place; `seed` is the volume's.
pub(crate) fn xattr_block(
    block: &mut [u8],
    to: BlockNo,
    seed: Option<u32>,
    renumber: Renumber<'_>,
    place: Location,
) -> Result<(), FsError> {
    value_inodes(block, size_of::<XattrHeader>(), renumber, place)?;
    seed.map_or(Ok(()), |seed| seal_xattr_block(block, to, seed, place))
}

/// Sets the checksum of an attribute block that lies at `at`; `seed` is the volume's.
pub(crate) fn seal_xattr_block(
    block: &mut [u8],
    at: BlockNo,
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    let slot = offset_of!(XattrHeader, h_checksum);
    put(block, slot, &[0; 4], place)?;
    let sum = crc32c(crc32c(seed, &at.get().to_le_bytes()), block);
    put(block, slot, &sum.to_le_bytes(), place)
}

/// Sets the checksum of a block of an extent tree, which stands behind the room for
/// its entries; `seed` is the inode's.
pub(crate) fn seal_extent_block(
    block: &mut [u8],
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    let header: ExtentHeader = parse(block, 0).ok_or_else(|| truncated(place))?;
    let entries = usize::from(header.eh_max.get()) + 1;
    let at = entries * (size_of::<ExtentHeader>());
    let covered = block.get(..at).ok_or_else(|| truncated(place))?;
    let sum = crc32c(seed, covered);
    put(block, at, &sum.to_le_bytes(), place)
}

/// Sets the magic number of a block of the orphan file that lies at `at`, and its checksum if the
/// volume has these; `seed` is the file's.
pub(crate) fn seal_orphan_block(
    block: &mut [u8],
    at: BlockNo,
    seed: Option<u32>,
    place: Location,
) -> Result<(), FsError> {
    let tail = block.len() - size_of::<OrphanBlockTail>();
    put(block, tail, &ORPHAN_BLOCK_MAGIC.to_le_bytes(), place)?;
    let sum = seed.map_or(0, |seed| block_sum(block, at, seed));
    let slot = tail + offset_of!(OrphanBlockTail, ob_checksum);
    put(block, slot, &sum.to_le_bytes(), place)
}

/// Changed fields of an inode.
#[derive(Clone, Debug)]
pub(crate) struct InodeChange {
    /// The map's root, when it has a map.
    pub(crate) i_block: Option<IBlock>,
    pub(crate) file_acl: Option<BlockNo>,
    /// Added to `i_blocks`, in its own unit.
    pub(crate) blocks: i64,
    /// The places of an inline directory's entries in the inode.
    pub(crate) inline_entries: Vec<std::ops::Range<usize>>,
    /// Whether it is an inline directory, which contains its parent's number.
    pub(crate) inline_directory: bool,
    /// The old number of the value's owner, if `i_mtime` contains it.
    pub(crate) owner: Option<Ino>,
    /// The old number of the successor, for an orphan in the list.
    pub(crate) next_orphan: Option<Option<Ino>>,
}

/// Rewrites an inode. `seed` is the volume's checksum seed, if it has one.
pub(crate) fn inode(
    raw: &mut [u8],
    to: Ino,
    change: &InodeChange,
    inodes: u32,
    seed: Option<u32>,
    renumber: Renumber<'_>,
) -> Result<(), FsError> {
    debug_assert!(
        change.inline_entries.is_empty() || change.inline_directory,
        "only directories have entries in the inode"
    );
    let place = Location::of("inode").in_inode(to);
    let core: InodeCore = parse(raw, 0).ok_or_else(|| truncated(place))?;
    let block_at = offset_of!(InodeCore, i_block);
    if let Some(root) = change.i_block {
        put(raw, block_at, &root.0, place)?;
    }
    if let Some(acl) = change.file_acl {
        let [a, b, c, d, e, f, ..] = acl.get().to_le_bytes();
        put(raw, offset_of!(InodeCore, i_file_acl_lo), &[a, b, c, d], place)?;
        put(raw, offset_of!(InodeCore, i_file_acl_high), &[e, f], place)?;
    }
    if change.blocks != 0 {
        let old = (u64::from(core.i_blocks_high.get()) << 32) | u64::from(core.i_blocks_lo.get());
        let new =
            old.checked_add_signed(change.blocks).ok_or_else(|| invalid("i_blocks", old, place))?;
        let [a, b, c, d, e, f, ..] = new.to_le_bytes();
        put(raw, offset_of!(InodeCore, i_blocks_lo), &[a, b, c, d], place)?;
        put(raw, offset_of!(InodeCore, i_blocks_high), &[e, f], place)?;
    }
    if let Some(owner) = change.owner {
        let owner = renumbered(owner, renumber, place)?;
        put(raw, offset_of!(InodeCore, i_mtime), &owner.get().to_le_bytes(), place)?;
    }
    if let Some(next) = change.next_orphan {
        let next = next.map_or(Ok(Ino::ZERO), |next| renumbered(next, renumber, place))?;
        put(raw, offset_of!(InodeCore, i_dtime), &next.get().to_le_bytes(), place)?;
    }
    if change.inline_directory {
        let parent = Ino::new(le32(&core.i_block.0, 0).unwrap_or(0));
        let parent = renumbered(parent, renumber, place)?;
        put(raw, block_at, &parent.get().to_le_bytes(), place)?;
    }
    for piece in &change.inline_entries {
        let limit = wide(raw.len());
        let bytes = raw
            .get_mut(piece.clone())
            .ok_or_else(|| range("inline data", wide(piece.end), limit, place))?;
        entries(bytes, inodes, renumber, place)?;
    }
    let extra = slice(raw, INODE_CORE_SIZE, 2).and_then(<[u8]>::first_chunk);
    let extra = extra.map_or(0, |pair| usize::from(u16::from_le_bytes(*pair)));
    let tail = INODE_CORE_SIZE + extra;
    if raw.len() > INODE_CORE_SIZE && le32(raw, tail) == Some(XATTR_MAGIC) {
        let region = raw.get_mut(tail..).ok_or_else(|| truncated(place))?;
        value_inodes(region, 4, renumber, place)?;
    }
    if let Some(seed) = seed {
        seal_inode(raw, to, core.i_generation.get(), extra, seed, place)?;
    }
    Ok(())
}

/// The seed of the checksums of an inode's own blocks.
pub(crate) fn inode_seed(seed: u32, ino: Ino, generation: u32) -> u32 {
    crc32c(crc32c(seed, &ino.get().to_le_bytes()), &generation.to_le_bytes())
}

/// Sets an inode's checksum; `extra` is its `i_extra_isize`.
pub(crate) fn seal_inode(
    raw: &mut [u8],
    to: Ino,
    generation: u32,
    extra: usize,
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    let low_at = offset_of!(InodeCore, i_checksum_lo);
    let high_at = INODE_CORE_SIZE + offset_of!(InodeExtra, i_checksum_hi);
    let wide = raw.len() > INODE_CORE_SIZE && extra >= 4;
    put(raw, low_at, &[0; 2], place)?;
    if wide {
        put(raw, high_at, &[0; 2], place)?;
    }
    let [a, b, c, d] = crc32c(inode_seed(seed, to, generation), raw).to_le_bytes();
    put(raw, low_at, &[a, b], place)?;
    if wide {
        put(raw, high_at, &[c, d], place)?;
    }
    Ok(())
}
