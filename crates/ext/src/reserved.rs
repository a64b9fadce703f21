//! The volume's own inodes: reserved numbers, and those named in the superblock.

use crate::inode::Inodes;
use crate::ondisk::{compat, ro_compat, special};
use crate::superblock::Super;
use seekless_fs::FsError;
use seekless_fs::extents::union;
use seekless_units::{Extent, GroupNo, Ino};

/// A file that belongs to the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OwnFile {
    Journal,
    UserQuota,
    GroupQuota,
    ProjectQuota,
    Orphans,
}

impl OwnFile {
    const ALL: [Self; 5] =
        [Self::Journal, Self::UserQuota, Self::GroupQuota, Self::ProjectQuota, Self::Orphans];

    /// Whether it has the usage of users, groups or projects.
    pub(crate) const fn is_quota(self) -> bool {
        matches!(self, Self::UserQuota | Self::GroupQuota | Self::ProjectQuota)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Journal => "the journal",
            Self::UserQuota => "the quota file of users",
            Self::GroupQuota => "the quota file of groups",
            Self::ProjectQuota => "the quota file of projects",
            Self::Orphans => "the orphan file",
        }
    }
}

impl Super {
    /// The first inode number that is not reserved.
    fn first_ordinary(&self) -> u32 {
        match self.raw.s_rev_level.get() {
            0 => special::FIRST_ORDINARY,
            _ => self.raw.s_first_ino.get(),
        }
    }

    /// Whether an inode number is reserved for the file system's own use.
    pub(crate) fn is_reserved(&self, ino: Ino) -> bool {
        ino.get() < self.first_ordinary() && ino.get() != special::ROOT
    }

    /// The inode of a file that the superblock names, with or without its feature. It need not have
    /// a reserved number.
    fn named(&self, file: OwnFile) -> u32 {
        let raw = &self.raw;
        let number = match file {
            OwnFile::Journal => raw.s_journal_inum,
            OwnFile::UserQuota => raw.s_usr_quota_inum,
            OwnFile::GroupQuota => raw.s_grp_quota_inum,
            OwnFile::ProjectQuota => raw.s_prj_quota_inum,
            OwnFile::Orphans => raw.s_orphan_file_inum,
        };
        number.get()
    }

    /// Whether the volume has the feature of a file.
    fn has_feature_of(&self, file: OwnFile) -> bool {
        match file {
            OwnFile::Journal => self.has_compat(compat::HAS_JOURNAL),
            OwnFile::Orphans => self.has_compat(compat::ORPHAN_FILE),
            OwnFile::UserQuota | OwnFile::GroupQuota | OwnFile::ProjectQuota => {
                self.has_ro_compat(ro_compat::QUOTA)
            }
        }
    }

    /// The volume's own file in an inode.
    pub(crate) fn own_file(&self, ino: Ino) -> Option<OwnFile> {
        let number = ino.get();
        let found = OwnFile::ALL
            .into_iter()
            .find(|&file| self.named(file) == number && self.has_feature_of(file));
        found.filter(|_| number != special::ROOT)
    }

    /// Whether an inode is the volume's own: it has no name.
    pub(crate) fn is_own(&self, ino: Ino) -> bool {
        self.is_reserved(ino) || self.own_file(ino).is_some()
    }

    /// Inodes that may be the volume's own: the reserved ones from `first` to `last`, and those that
    /// the superblock names.
    pub(crate) fn may_be_own(&self, first: u32, last: u32) -> impl Iterator<Item = Ino> + '_ {
        let reserved = first..self.first_ordinary().min(last.saturating_add(1));
        let named = OwnFile::ALL.into_iter().map(|file| self.named(file));
        reserved.chain(named).map(Ino::new)
    }

    /// Whether a number is reserved for something that this volume does not have: a journal, quotas
    /// or an orphan file.
    pub(crate) fn is_kept_unused(&self, ino: Ino) -> bool {
        let kept = [special::USER_QUOTA, special::GROUP_QUOTA, special::JOURNAL];
        let is_named = OwnFile::ALL.into_iter().any(|file| self.named(file) == ino.get());
        (kept.contains(&ino.get()) || is_named)
            && self.own_file(ino).is_none()
            && ino.get() != special::ROOT
    }
}

impl Inodes<'_> {
    /// Inodes whose block of the inode table is on the list of bad blocks, in order: e2fsck counts
    /// them as used, and none may be used.
    pub(crate) fn in_bad_blocks(&self) -> Result<Vec<Ino>, FsError> {
        let list = Ino::new(special::BAD_BLOCKS);
        let mut inodes = Vec::new();
        // One that was never written has no checksum yet.
        if self.is_unused(list)? {
            return Ok(inodes);
        }
        let bad = union(self.volume().maps().blocks_of_any_kind(&self.read(list)?)?);
        let per_block = self.volume().sb.block_size / u32::from(self.volume().sb.inode_size);
        for group in (0..self.volume().sb.groups).map(GroupNo::new) {
            let table = Extent::new(
                self.volume().descriptors().read(group)?.inode_table(),
                self.volume().sb.itable_blocks(),
            );
            let before = group.get() * self.volume().sb.inodes_per_group;
            let first = bad.partition_point(|run| run.end() <= table.start);
            let inside = bad.iter().skip(first).take_while(|run| run.start < table.end());
            for run in inside {
                let first = run.start.max(table.start) - table.start;
                let end = run.end().min(table.end()) - table.start;
                let slot = |block: u64| {
                    let slot = block * u64::from(per_block);
                    u32::try_from(slot).unwrap_or(u32::MAX).min(self.volume().sb.inodes_per_group)
                };
                let slots = slot(first)..slot(end);
                inodes.extend(slots.map(|slot| Ino::new(before + slot + 1)));
            }
        }
        inodes.sort_unstable();
        inodes.dedup();
        Ok(inodes)
    }
}
