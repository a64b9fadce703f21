//! Attributes of directory entries as flags of files.

use crate::ondisk::attr;
use seekless_fs::inode_flag;

/// Flags of [`inode_flag`] that a file keeps in a FAT image.
pub const KEPT_FLAGS: u32 = inode_flag::HIDDEN | inode_flag::SYSTEM;

const PAIRS: [(u8, u32); 2] =
    [(attr::HIDDEN, inode_flag::HIDDEN), (attr::SYSTEM, inode_flag::SYSTEM)];

/// The flags of a file whose entry has these attributes (`DIR_Attr`).
pub(crate) fn flags_of(attributes: u8) -> u32 {
    let set = PAIRS.iter().filter(|(bit, _)| attributes & bit != 0);
    set.fold(0, |all, (_, flag)| all | flag)
}

/// The attributes for flags of a file; those that FAT does not have are left out.
pub(crate) fn attributes_of(flags: u32) -> u8 {
    let set = PAIRS.iter().filter(|(_, flag)| flags & flag != 0);
    set.fold(0, |all, (bit, _)| all | bit)
}
