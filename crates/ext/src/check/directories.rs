//! Whether the contents of an inode are those of a directory, whatever its mode is.

use super::checker::Checker;
use super::inodes::place;
use super::salvage::salvage;
use crate::dir::entry_at;
use crate::inline;
use crate::inode::Inode;
use crate::ondisk::flags;
use seekless_fs::FsError;
use seekless_fs::field::le32;
use seekless_units::{Ino, Lbn};

impl Checker {
    /// Whether an inode of a kind without contents has those of a directory: its mode is wrong, not
    /// its contents (e2fsck, `check_is_really_dir`).
    pub(super) fn is_really_directory(&self, inode: &Inode) -> Result<bool, FsError> {
        if inode.has_flag(flags::INLINE_DATA) {
            return Ok(self.is_inline_directory(inode));
        }
        let found = salvage(&self.volume, inode)?;
        let Some(first) = found.block_of(Lbn::ZERO) else { return Ok(false) };
        let block = match self.volume.block(first, place(inode.ino)) {
            Err(FsError::Corrupt { .. }) => return Ok(false),
            block => block?,
        };
        let count = self.sb().raw.s_inodes_count.get();
        let dot = entry_at(&block, 0, count, place(inode.ino));
        let Ok(dot) = dot else { return Ok(false) };
        let parent = entry_at(&block, dot.next, count, place(inode.ino));
        let is_parent = parent.is_ok_and(|it| it.name == b".." && it.ino != Ino::ZERO);
        Ok(dot.name == b"." && dot.ino == inode.ino && is_parent)
    }

    /// Whether the contents in an inode are entries of a directory, behind the number of its
    /// parent.
    fn is_inline_directory(&self, inode: &Inode) -> bool {
        let count = self.sb().raw.s_inodes_count.get();
        let parent = le32(&inode.core.i_block.0, 0).unwrap_or(0);
        let Ok(ranges) = inline::entry_ranges(inode) else { return false };
        let is_list = |range: std::ops::Range<usize>| {
            let piece = inode.raw().get(range).unwrap_or_default();
            let mut at = 0;
            while at < piece.len() {
                match entry_at(piece, at, count, place(inode.ino)) {
                    Ok(entry) => at = entry.next,
                    Err(_) => return false,
                }
            }
            true
        };
        (1..=count).contains(&parent) && ranges.into_iter().all(is_list)
    }
}
