//! Pass 1, of the volume's own inodes: what e2fsck asks of them
//! (`e2fsck_pass1`), and no more.

use super::Checker;
use super::fix::{Fix, Stage};
use super::inodes::{Claims, place};
use crate::inode::Inode;
use crate::journal;
use crate::ondisk::{compat, flags, special};
use crate::reserved::OwnFile;
use seekless_fs::{FileKind, FsError, Location};
use zerocopy::IntoBytes;

impl Checker {
    /// Looks at one of the volume's own inodes; whether the rest of it is to be
    /// looked at as that of a file. Where the volume has no journal or no quotas,
    /// the inode kept for them is only looked at for contents.
    pub(super) fn reserved(&mut self, inode: &Inode) -> Result<bool, FsError> {
        if self.volume.is_kept_unused(inode.ino) {
            if !inode.is_idle() {
                let what = "not in use, but contains data".to_string();
                self.expected("inode.reserved", what, place(inode.ino));
                self.fix(Stage::Inodes, Fix::Clear(inode.ino));
            }
            return Ok(false);
        }
        if let Some(what) = self.misuse(inode) {
            self.unexpected("inode.reserved", what, place(inode.ino));
            // Its blocks are its own all the same.
            self.claim_map(inode)?;
            return Ok(false);
        }
        // Where something waits in the journal, its head has been read and reported.
        let is_told = self.report.findings.iter().any(|found| found.code == "journal.corrupt");
        if self.volume.own_file(inode.ino) == Some(OwnFile::Journal) && !is_told {
            let place = Location::of("journal");
            let idle = journal::check_idle(&self.volume, inode);
            let is_sound = self.sound(idle, "journal.corrupt", place)?.is_some();
            let idle = journal::check_idle(&self.strict, inode);
            if self.checksum(idle, "journal.checksum", place)? || !is_sound {
                self.fix(Stage::Journal, Fix::EmptyJournal);
            }
        }
        if inode.ino.get() == special::BAD_BLOCKS {
            self.claim_map(inode)?;
            // A list that cannot be read was reported just now.
            self.unusable = self.volume.inodes_in_bad_blocks().unwrap_or_default();
            return Ok(false);
        }
        Ok(inode.core.i_mode.get() != 0)
    }

    /// What is wrong with the mode and the links of one of the volume's own
    /// inodes.
    fn misuse(&self, inode: &Inode) -> Option<String> {
        let (mode, links) = (inode.core.i_mode.get(), inode.core.i_links_count.get());
        let is_file = inode.kind() == Some(FileKind::Regular);
        if let Some(file) = self.volume.own_file(inode.ino) {
            let name = file.name();
            if !is_file {
                return Some(format!("{name}, its mode {mode:#o} is not that of a file"));
            }
            // The kernel takes it for a deleted one.
            let is_lost = file == OwnFile::Journal && links == 0 && !self.has_copied_map(inode);
            return is_lost.then(|| format!("{name}, without links"));
        }
        let is_wrong = match inode.ino.get() {
            special::BAD_BLOCKS | special::JOURNAL => false,
            special::USER_QUOTA | special::GROUP_QUOTA => false,
            special::BOOT_LOADER => inode.kind() == Some(FileKind::Directory),
            special::RESIZE => {
                let is_used = self.sb().has_compat(compat::RESIZE_INODE);
                let has_extents = inode.has_flag(flags::EXTENTS);
                (mode != 0 && !is_file) || (is_used && (links == 0 || has_extents))
            }
            _ => self.volume.is_reserved(inode.ino) && mode != 0,
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
        let raw = &self.sb().raw;
        raw.s_jnl_backup_type == BLOCKS
            && !inode.has_flag(flags::EXTENTS)
            && raw.s_jnl_blocks.as_bytes().starts_with(&inode.core.i_block.0)
    }

    /// Claims what an inode's map leads to, whatever its kind.
    fn claim_map(&mut self, inode: &Inode) -> Result<(), FsError> {
        let blocks = self.volume.blocks_of_any_kind(inode);
        let blocks = self.sound(blocks, "inode.block-map", place(inode.ino))?;
        let mut claims = Claims::default();
        for run in blocks.unwrap_or_default() {
            self.claim(run, &mut claims);
        }
        Ok(())
    }
}
