//! Heads of groups that are new, or become it.

use super::group::{GroupMut, at};
use super::stored::{count_maps, put_head_fields};
use crate::ondisk::MAGIC_GROUP;
use crate::superblock::{Format, Super};
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_units::GroupNo;

/// Sets the fields that make bytes the head of a group: its magic number, its number and its size,
/// and those that are constant or follow from the superblock. Maps and counts stay.
pub(crate) fn identify_head(sb: &Super, number: GroupNo, bytes: &mut [u8]) {
    let ndblk = u32::try_from(sb.group_blocks(number).len).unwrap_or(u32::MAX);
    for (at, value) in
        [(at!(cg_magic), MAGIC_GROUP), (at!(cg_cgx), number.get()), (at!(cg_ndblk), ndblk)]
    {
        sb.order.put_u32(bytes, at, value);
    }
    put_head_fields(sb, number, bytes);
}

/// The head of a group without files, a block of bytes: only its metadata are in use, and the
/// summary area as far as it lies in the group. On UFS2, `initialised` inodes count as written. It
/// has no time and no check hash yet.
///
/// # Errors
/// [`FsError::Corrupt`] for a superblock whose heads have no room for their maps.
pub(crate) fn new_head(sb: &Super, number: GroupNo, initialised: u32) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; index(sb.bsize)];
    identify_head(sb, number, &mut bytes);
    let mut group = GroupMut::check(sb, number, &mut bytes)?;
    let (blocks, metadata) = (sb.group_blocks(number), sb.group_metadata(number));
    for at in 0..group.maps.ndblk {
        let block = blocks.start + u64::from(at);
        let is_used = metadata.contains(block) || sb.summaries.contains(block);
        group.set_fragment_free(at, !is_used);
    }
    count_maps(&mut group);
    if sb.format == Format::Ufs2 {
        group.set_initialised(initialised);
    }
    Ok(bytes)
}
