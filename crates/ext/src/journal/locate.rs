//! The journal of a damaged volume: found through its inode, a copy of the group descriptor,
//! or the copy of its block map in the superblock (`s_jnl_blocks`), as by e2fsck
//! (`e2fsck_get_journal`).

use super::log::Log;
use crate::extent;
use crate::inode::Inode;
use crate::ondisk::{IBlock, INODE_CORE_SIZE, InodeCore, OWN_FILE_MODE, flags};
use crate::part::Part;
use crate::volume::Volume;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;
use zerocopy::IntoBytes;

/// `s_jnl_backup_type` of a superblock that has a copy of the journal's map.
pub(crate) const BACKUP_BLOCKS: u8 = 1;
/// Words of `i_block`, in front of the two halves of the length.
const MAP_WORDS: usize = 15;

/// The copy of the journal's map in the superblock.
pub(crate) struct CopiedMap {
    pub(crate) i_block: IBlock,
    /// Bytes of the journal.
    pub(crate) len: u64,
    /// The map is an extent tree.
    pub(crate) has_extents: bool,
}

/// Reads the copy of the journal's map; `None` where the superblock has none.
pub(crate) fn copied_map(volume: &Volume) -> Option<CopiedMap> {
    let raw = &volume.sb.raw;
    if raw.s_jnl_backup_type != BACKUP_BLOCKS {
        return None;
    }
    let (map, len) = raw.s_jnl_blocks.split_at_checked(MAP_WORDS)?;
    let [high, low] = len.first_chunk().map(|pair| pair.map(|half| u64::from(half.get())))?;
    let i_block = IBlock(map.as_bytes().try_into().ok()?);
    let has_extents = extent::is_root(&i_block.0);
    Some(CopiedMap { i_block, len: (high << 32) | low, has_extents })
}

/// The journal's inode: from the first of its sources that leads to a superblock of a journal.
/// Otherwise, the inode in its table.
///
/// # Errors
/// [`FsError::Corrupt`] where the table has no sound inode and no copy leads to a journal;
/// [`FsError::Device`].
pub(crate) fn inode(volume: &Volume, ino: Ino) -> Result<Inode, FsError> {
    let primary = volume.inodes().read(ino);
    if let Ok(inode) = &primary
        && leads_to_journal(volume, inode)?
    {
        return primary;
    }
    for copy in [by_copied_descriptor(volume, ino), by_copied_map(volume, ino)] {
        match copy {
            Ok(Some(inode)) if leads_to_journal(volume, &inode)? => return Ok(inode),
            Ok(_) | Err(FsError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    primary
}

/// Whether the first block of a file is a superblock of a journal.
fn leads_to_journal(volume: &Volume, inode: &Inode) -> Result<bool, FsError> {
    if inode.kind() != Some(FileKind::Regular) {
        return Ok(false);
    }
    match Log::head(volume, inode) {
        Ok(_) => Ok(true),
        Err(FsError::Corrupt { .. } | FsError::Unsupported(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The inode in the table of a copy of its group's descriptor.
fn by_copied_descriptor(volume: &Volume, ino: Ino) -> Result<Option<Inode>, FsError> {
    let (number, slot) = volume.sb.inode_slot(ino)?;
    let Some(bytes) = volume.descriptors().backup(number)? else { return Ok(None) };
    let group = volume.descriptors().parse(number, &bytes)?;
    let table = Part::Table.of(&group, volume.sb.itable_blocks());
    let (block, offset) = volume.inodes().table_slot(table, slot);
    let block = volume.block(block, Location::of("inode table").in_inode(ino))?;
    volume.inodes().read_in(ino, block, offset).map(Some)
}

/// An inode with the map copied in the superblock.
fn by_copied_map(volume: &Volume, ino: Ino) -> Result<Option<Inode>, FsError> {
    let Some(copy) = copied_map(volume) else { return Ok(None) };
    let [low, high] = [copy.len, copy.len >> 32].map(seekless_fs::field::low32);
    let core = InodeCore {
        i_mode: OWN_FILE_MODE.into(),
        i_links_count: 1.into(),
        i_size_lo: low.into(),
        i_size_high: high.into(),
        i_flags: (if copy.has_extents { flags::EXTENTS } else { 0 }).into(),
        i_block: copy.i_block,
        ..InodeCore::default()
    };
    let mut bytes = vec![0; usize::from(volume.sb.inode_size)];
    if let Some(head) = bytes.get_mut(..INODE_CORE_SIZE) {
        head.copy_from_slice(core.as_bytes());
    }
    volume.inodes().read_in(ino, bytes.into(), 0).map(Some)
}
