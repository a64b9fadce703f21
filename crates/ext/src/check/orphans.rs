//! Files that were deleted or cut while in use: a mount finishes them.

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use crate::ondisk::compat;
use seekless_fs::{FsError, Location};
use seekless_units::Ino;

impl Checker {
    /// Gathers the orphans, of the list through the inodes and of the file.
    pub(super) fn orphans(&mut self) -> Result<(), FsError> {
        let mut listed: Vec<Ino> = Vec::new();
        let walked = self.volume.orphans().listed(&mut |ino| listed.push(ino));
        match walked {
            Err(error @ FsError::Corrupt { .. }) => {
                // A mount ends the list there, and so does e2fsck, unasked.
                let (what, place) = error.finding(Location::of("orphan list"));
                self.found(problems::ORPHAN_LIST, what, place);
                self.fix(Stage::Orphans, Fix::OrphanList);
            }
            walked => walked?,
        }
        self.orphans.extend(listed);
        if self.sb().has_compat(compat::ORPHAN_FILE) {
            self.filed_orphans()?;
        }
        if !self.orphans.is_empty() {
            self.fix(Stage::Orphans, Fix::Orphans);
        }
        for ino in self.orphans.clone() {
            let what =
                "orphan inode: the next mount finishes deleting or truncating it".to_string();
            self.found(problems::INODE_ORPHAN, what, Location::of("inode").in_inode(ino));
        }
        Ok(())
    }

    fn filed_orphans(&mut self) -> Result<(), FsError> {
        let place = Location::of("orphan file");
        let mut filed: Vec<Ino> = Vec::new();
        let mut has_stale_sum = false;
        // A wrong checksum of its inode is reported with the inode.
        let file = Ino::new(self.sb().raw.s_orphan_file_inum.get());
        let is_sealed = self.strict.inodes().read(file).is_ok();
        let volume = if is_sealed { &self.strict } else { &self.volume };
        let read = volume.orphans().file_blocks(&mut |block| {
            filed.extend(block.numbers.iter().map(|&(_, ino)| ino));
            has_stale_sum |= block.checksum() != 0;
        });
        if has_stale_sum && !self.sb().has_metadata_csum() {
            let what = "its blocks have checksums, without metadata_csum".to_string();
            self.unexpected(problems::ORPHAN_FILE, what, place);
            self.fix(Stage::Orphans, Fix::OrphanFile);
        }
        if let Err(error @ FsError::Corrupt { .. }) = read {
            let (what, place) = error.finding(place);
            self.expected(problems::ORPHAN_FILE, what, place);
            self.fix(Stage::Orphans, Fix::OrphanFile);
        } else {
            read?;
        }
        if self.volume.sb.has_filed_orphans() {
            if filed.is_empty() {
                let what = "lists nothing, but the superblock says that it is in use".to_string();
                self.found(problems::ORPHAN_FILE_EMPTY, what, place);
                self.fix(Stage::Orphans, Fix::OrphanFile);
            }
            for ino in filed {
                if self.volume.bitmaps().is_allocated(ino).unwrap_or(false) {
                    self.orphans.insert(ino);
                } else {
                    let what = format!("lists inode {ino}, which is not in use");
                    self.expected(problems::ORPHAN_FILE, what, place);
                    self.fix(Stage::Orphans, Fix::OrphanFile);
                }
            }
        } else if let Some(first) = filed.first() {
            let what = format!(
                "lists {} inodes, {first} first, but the superblock says that it is empty",
                filed.len()
            );
            self.expected(problems::ORPHAN_FILE, what, place);
            self.fix(Stage::Orphans, Fix::OrphanFile);
        }
        Ok(())
    }
}
