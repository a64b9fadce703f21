//! Files that were deleted or cut while in use: a mount finishes that.

use super::Checker;
use crate::ondisk::{ORPHAN_BLOCK_MAGIC, OrphanBlockTail, ro_compat};
use seekless_fs::field::{index, le32, parse, range, truncated};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{ByteLen, Ino};

impl Checker {
    /// Gathers the orphans, of the list through the inodes and of the file.
    pub(super) fn orphans(&mut self) -> Result<(), FsError> {
        let place = Location::of("orphan list");
        let listed = self.listed_orphans();
        self.sound(listed, "orphan.list", place)?;
        if self.sb().has_ro_compat(ro_compat::ORPHAN_PRESENT) {
            let place = Location::of("orphan file");
            let filed = self.filed_orphans();
            self.sound(filed, "orphan.file", place)?;
        }
        for ino in self.orphans.clone() {
            let what =
                "orphan inode: the next mount finishes deleting or truncating it".to_string();
            self.expected("inode.orphan", what, Location::of("inode").in_inode(ino));
        }
        Ok(())
    }

    fn listed_orphans(&mut self) -> Result<(), FsError> {
        let mut next = self.sb().raw.s_last_orphan.get();
        while next != 0 {
            let ino = Ino::new(next);
            let place = Location::of("orphan list").in_inode(ino);
            let inode = self.volume.inode(ino)?;
            if !self.orphans.insert(ino) {
                return Err(FsError::corrupt(Corruption::Cycle, place));
            }
            // Of a file with links it leads on all the same.
            next = inode.core.i_dtime.get();
        }
        Ok(())
    }

    fn filed_orphans(&mut self) -> Result<(), FsError> {
        let file = Ino::new(self.sb().raw.s_orphan_file_inum.get());
        let place = Location::of("orphan file").in_inode(file);
        let inode = self.volume.inode(file)?;
        let bsize = self.sb().block_size;
        let mut block = vec![0; index(bsize)];
        let room = block.len().saturating_sub(size_of::<OrphanBlockTail>());
        let count = inode.len.checked_div(u64::from(bsize)).unwrap_or(0).min(self.sb().blocks);
        for at in (0..count).map(|n| n.saturating_mul(u64::from(bsize))) {
            self.volume.read_mapped(&inode, ByteLen::new(at), &mut block)?;
            let tail: OrphanBlockTail = parse(&block, room).ok_or_else(|| truncated(place))?;
            let magic = tail.ob_magic.get();
            if magic != ORPHAN_BLOCK_MAGIC {
                return Err(FsError::corrupt(Corruption::Magic { found: magic.into() }, place));
            }
            let entries = block.get(..room).unwrap_or_default().chunks_exact(4);
            for number in entries.filter_map(|entry| le32(entry, 0)).filter(|&number| number != 0) {
                let most = self.sb().raw.s_inodes_count.get();
                if number > most {
                    return Err(range("orphan", u64::from(number), u64::from(most), place));
                }
                self.orphans.insert(Ino::new(number));
            }
        }
        Ok(())
    }
}
