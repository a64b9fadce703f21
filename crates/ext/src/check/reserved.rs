//! Pass 1, the volume's own inodes: the checks of e2fsck (`e2fsck_pass1`), and no more.

use super::bad_blocks::BadBlockCheck;
use super::fix::{Fix, Stage};
use super::inodes::InodePass;
use super::inodes::{Claims, place};
use super::journal::JournalCheck;
use super::problems;
use crate::inode::Inode;
use crate::journal;
use crate::ondisk::{compat, flags, incompat, special};
use crate::reserved::OwnFile;
use seekless_fs::{FileKind, FsError};
use zerocopy::IntoBytes;

impl InodePass<'_> {
    /// Looks at one of the volume's own inodes; whether the rest of it is to be
    /// looked at as that of a file. Where the volume has no journal or no quotas,
    /// the inode kept for them is only looked at for contents.
    pub(super) fn reserved(&mut self, inode: &Inode) -> Result<bool, FsError> {
        if self.checker.volume.sb.is_kept_unused(inode.ino) {
            // Quotas that were switched off leave the flag for extents.
            let has_extents = self.checker.sb().has_incompat(incompat::EXTENTS);
            let left = if has_extents { flags::EXTENTS } else { 0 };
            let has_flags = inode.core.i_flags.get() & !left != 0;
            if !inode.is_idle() {
                let what = "not in use, but contains data".to_string();
                self.checker.expected(problems::INODE_RESERVED, what, place(inode.ino));
                self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
            } else if has_flags {
                let what = format!("not in use, but has flags {:#x}", inode.core.i_flags.get());
                self.checker.unexpected(problems::INODE_RESERVED, what, place(inode.ino));
                self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
            }
            return Ok(false);
        }
        let is_resize = inode.ino.get() == special::RESIZE;
        let has_blocks = inode.core.i_block.0.iter().any(|&byte| byte != 0);
        if is_resize && has_blocks && !self.checker.sb().has_compat(compat::RESIZE_INODE) {
            let what = "the resize inode is in use, without the feature".to_string();
            self.checker.unexpected(problems::INODE_RESERVED, what, place(inode.ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
            return Ok(false);
        }
        let number = inode.ino.get();
        let has_use = [special::BAD_BLOCKS, special::RESIZE, special::BOOT_LOADER]
            .contains(&number)
            || self.checker.volume.sb.own_file(inode.ino).is_some();
        if !has_use && self.checker.volume.sb.is_reserved(inode.ino) && inode.core.i_mode.get() == 0
        {
            let core = &inode.core;
            let words = [core.i_size_lo, core.i_size_high, core.i_flags, core.i_file_acl_lo];
            let is_idle = words.iter().all(|word| word.get() == 0);
            if !is_idle || self.checker.volume.inodes().allocated_sectors(inode) != 0 {
                let what = "a reserved inode that is not in use has a length, blocks or flags";
                self.checker.unexpected(
                    problems::INODE_RESERVED,
                    what.to_string(),
                    place(inode.ino),
                );
                self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
                return Ok(false);
            }
        }
        if let Some(what) = self.misuse(inode) {
            let own = self.checker.volume.sb.own_file(inode.ino);
            let is_quota = own.is_some_and(OwnFile::is_quota);
            // Not by `s_first_ino`, which may be damaged: ordinary files would be cleared.
            let is_idle = own.is_none() && !is_resize && number < special::FIRST_ORDINARY;
            let is_expected = own == Some(OwnFile::Journal) || is_quota || is_idle;
            if is_quota {
                let fix = Fix::Kind(inode.ino, FileKind::Regular);
                self.checker.fix(Stage::Inodes, fix);
            }
            self.checker.graded(is_expected, problems::INODE_RESERVED, what, place(inode.ino));
            if is_resize {
                self.checker.fix(Stage::Inodes, Fix::ResizeInode(inode.ino));
            }
            match self.checker.volume.sb.own_file(inode.ino) {
                Some(OwnFile::Journal) if inode.raw().iter().all(|&byte| byte == 0) => {
                    self.checker.fix(Stage::NewJournal, Fix::NewJournal(inode.ino));
                }
                Some(OwnFile::Journal) => {
                    self.checker.fix(Stage::Inodes, Fix::JournalInode(inode.ino));
                }
                Some(OwnFile::Orphans) => {
                    self.checker.fix(Stage::Inodes, Fix::DropOrphanFile(inode.ino));
                }
                None if number == special::BOOT_LOADER => {
                    self.checker.fix(Stage::Inodes, Fix::Kind(inode.ino, FileKind::Regular));
                }
                None if is_idle => self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino)),
                _ => {}
            }
            // Its blocks are its own all the same.
            self.claim_map(inode)?;
            return Ok(false);
        }
        let bsize = u64::from(self.checker.sb().block_size);
        let whole = inode.len / bsize * bsize;
        let has_blocks = matches!(
            self.checker.volume.sb.own_file(inode.ino),
            Some(OwnFile::Journal | OwnFile::Orphans)
        );
        if has_blocks && whole != inode.len {
            let what = format!("{} bytes long, which are not whole blocks", inode.len);
            self.checker.unexpected(problems::INODE_LENGTH, what, place(inode.ino));
            self.checker.fix(Stage::Inodes, Fix::Length(inode.ino, whole));
        }
        if self.checker.volume.sb.own_file(inode.ino) == Some(OwnFile::Journal)
            && !JournalCheck::of(self).inode(inode)?
        {
            return Ok(false);
        }
        if inode.ino.get() == special::BAD_BLOCKS {
            let core = &inode.core;
            let fields = [core.i_mode, core.i_uid, core.i_gid, core.i_links_count];
            let has_more = core.i_file_acl_lo.get() != 0 || inode.has_flag(flags::INLINE_DATA);
            if has_more || fields.iter().any(|field| field.get() != 0) {
                let what = "the list of bad blocks has the fields of a file".to_string();
                self.checker.unexpected(problems::INODE_RESERVED, what, place(inode.ino));
                self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
            }
            if !self.claim_map(inode)? {
                self.checker.fix(Stage::Inodes, Fix::Map(inode.ino));
            }
            BadBlockCheck::of(self).metadata(inode)?;
            return Ok(false);
        }
        Ok(inode.core.i_mode.get() != 0)
    }

    /// Counts those blocks of a journal that is given up as used that no file has.
    pub(super) fn reserve_lost_journal(&mut self) -> Result<(), FsError> {
        JournalCheck::of(self).reserve_lost()
    }

    /// A wrong mode or link count of one of the volume's own inodes.
    fn misuse(&self, inode: &Inode) -> Option<String> {
        let (mode, links) = (inode.core.i_mode.get(), inode.core.i_links_count.get());
        let is_file = inode.kind() == Some(FileKind::Regular);
        if let Some(file) = self.checker.volume.sb.own_file(inode.ino) {
            let name = file.name();
            if !is_file {
                return Some(format!("{name}, its mode {mode:#o} is not that of a file"));
            }
            // The kernel takes it for a deleted one.
            let is_lost = links == 0
                && match file {
                    OwnFile::Journal => !self.has_copied_map(inode),
                    file => file == OwnFile::Orphans,
                };
            let is_secret = file == OwnFile::Journal && inode.has_flag(flags::ENCRYPT);
            return match (is_lost, is_secret) {
                (true, _) => Some(format!("{name}, without links")),
                (_, true) => Some(format!("{name}, which is encrypted")),
                _ => None,
            };
        }
        let is_wrong = match inode.ino.get() {
            special::BAD_BLOCKS | special::JOURNAL => false,
            special::USER_QUOTA | special::GROUP_QUOTA => false,
            special::BOOT_LOADER => inode.kind() == Some(FileKind::Directory),
            special::RESIZE => {
                let is_used = self.checker.sb().has_compat(compat::RESIZE_INODE);
                let has_extents = inode.has_flag(flags::EXTENTS);
                let is_other = !is_file && (is_used || mode != 0);
                is_other || (is_used && (links == 0 || has_extents))
            }
            _ => self.checker.volume.sb.is_reserved(inode.ino) && mode != 0,
        };
        is_wrong.then(|| {
            format!(
                "a reserved inode, with mode {mode:#o}, {links} links and flags {:#x}",
                inode.core.i_flags.get()
            )
        })
    }

    /// Whether the superblock has a copy of the journal's map that e2fsck goes by
    /// where the inode is damaged (`e2fsck_get_journal`): of block numbers, not of
    /// extents, since it drops the inode's flags.
    fn has_copied_map(&self, inode: &Inode) -> bool {
        const BLOCKS: u8 = 1;
        let raw = &self.checker.sb().raw;
        raw.s_jnl_backup_type == BLOCKS
            && !inode.has_flag(flags::EXTENTS)
            && raw.s_jnl_blocks.as_bytes().starts_with(&inode.core.i_block.0)
    }

    /// Whether the superblock's copy of the journal's map leads to a journal, and is not the
    /// map that its inode has, or of another length.
    pub(super) fn has_other_map(&self, inode: &Inode) -> bool {
        let found = journal::locate(&self.checker.volume, inode.ino);
        found.is_ok_and(|found| {
            found.core.i_block.0 != inode.core.i_block.0
                || found.core.i_flags != inode.core.i_flags
                || found.len != inode.len
        })
    }

    /// Claims the blocks of the map of an inode of any kind; whether it can be followed.
    pub(super) fn claim_map(&mut self, inode: &Inode) -> Result<bool, FsError> {
        let blocks = self.checker.volume.maps().blocks_of_any_kind(inode);
        let blocks = self.checker.sound(blocks, problems::INODE_BLOCK_MAP, place(inode.ino))?;
        let is_followed = blocks.is_some();
        let mut claims = Claims::default();
        for run in blocks.unwrap_or_default() {
            self.claim(run, &mut claims);
        }
        Ok(is_followed)
    }
}
