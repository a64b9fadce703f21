//! Files that were deleted or cut while in use: a mount finishes that.

use super::Checker;
use super::fix::{Fix, Stage};
use crate::ondisk::compat;
use seekless_fs::{FsError, Location};
use seekless_units::Ino;

impl Checker {
    /// Gathers the orphans, of the list through the inodes and of the file.
    pub(super) fn orphans(&mut self) -> Result<(), FsError> {
        let mut listed: Vec<Ino> = Vec::new();
        let walked = self.volume.listed_orphans(&mut |ino| listed.push(ino));
        match walked {
            Err(error @ FsError::Corrupt { .. }) => {
                // A mount ends the list there, and so does e2fsck, unasked.
                let (what, place) = error.finding(Location::of("orphan list"));
                self.expected("orphan.list", what, place);
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
            self.expected("inode.orphan", what, Location::of("inode").in_inode(ino));
        }
        Ok(())
    }

    fn filed_orphans(&mut self) -> Result<(), FsError> {
        let place = Location::of("orphan file");
        let mut filed: Vec<Ino> = Vec::new();
        let read = self
            .strict
            .orphan_blocks(&mut |block| filed.extend(block.numbers.iter().map(|&(_, ino)| ino)));
        if let Err(error @ FsError::Corrupt { .. }) = read {
            let (what, place) = error.finding(place);
            self.expected("orphan.file", what, place);
            self.fix(Stage::Orphans, Fix::OrphanFile);
        } else {
            read?;
        }
        if self.volume.has_filed_orphans() {
            for ino in filed {
                if self.volume.is_allocated(ino).unwrap_or(false) {
                    self.orphans.insert(ino);
                } else {
                    let what = format!("lists inode {ino}, which is not in use");
                    self.expected("orphan.file", what, place);
                    self.fix(Stage::Orphans, Fix::OrphanFile);
                }
            }
        } else if let Some(first) = filed.first() {
            let what = format!(
                "lists {} inodes, {first} first, but the superblock says that it is empty",
                filed.len()
            );
            self.expected("orphan.file", what, place);
            self.fix(Stage::Orphans, Fix::OrphanFile);
        }
        Ok(())
    }
}
