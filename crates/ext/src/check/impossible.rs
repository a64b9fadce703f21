//! Fields of the superblock whose values cannot be, whatever the volume holds.

use super::checker::Checker;
use crate::features::Features;
use crate::journal;
use crate::ondisk::{
    CHECKSUM_CRC32C, INODE_CORE_SIZE, OWN_FILE_MODE, compat, flags, incompat, ro_compat, special,
};
use crate::quota;
use crate::superblock::MAX_DESC_SIZE;
use seekless_fs::{FileKind, Location};
use seekless_units::Ino;
use zerocopy::little_endian::{U16, U32};

/// The largest `s_log_groups_per_flex` (`EXT2_MAX_LOG_GROUPS_PER_FLEX` of e2fsprogs).
const MAX_LOG_GROUPS_PER_FLEX: u64 = 31;

impl Checker {
    /// Fields of the superblock that nothing here depends on, with values for which e2fsck rejects
    /// the superblock (`ext2fs_open2`, `check_super_block`): copies of it must not be made.
    pub(super) fn impossible_fields(&self) -> Vec<(&'static str, u64)> {
        let (sb, raw) = (self.sb(), &self.sb().raw);
        let reserved = u64::from(raw.s_r_blocks_count_lo.get())
            | if sb.has_incompat(incompat::BIT64) {
                u64::from(raw.s_r_blocks_count_hi.get()) << 32
            } else {
                0
            };
        let clusters = u64::from(raw.s_clusters_per_group.get());
        let bigalloc = sb.has_ro_compat(ro_compat::BIGALLOC);
        let journal = u64::from(raw.s_journal_inum.get());
        let has_journal = sb.has_compat(compat::HAS_JOURNAL);
        let has_journal_uuid = raw.s_journal_uuid != [0; 16];
        let external = has_journal && has_journal_uuid;
        let (uuid_head, _) = raw.s_journal_uuid.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let wanted_journal = u64::from(if has_journal { special::JOURNAL } else { 0 });
        let desc_size = u64::from(raw.s_desc_size.get());
        let first_meta = u64::from(raw.s_first_meta_bg.get());
        let has_meta = sb.has_incompat(incompat::META_BG);
        let has_features = Features::of(raw) != Features::NONE;
        let revision = u64::from(raw.s_rev_level.get());
        let flex = u64::from(raw.s_log_groups_per_flex);
        let quota = |number: U32| u64::from(number.get());
        let extra = |bytes: U16| u64::from(bytes.get());
        let first = raw.s_first_ino.get();
        let sum = raw.s_checksum_type;
        let rules = [
            ("s_first_ino", first.into(), revision > 0 && self.is_no_first(first)),
            ("s_checksum_type", sum.into(), sb.has_metadata_csum() && sum != CHECKSUM_CRC32C),
            ("s_rev_level", revision, revision > 1 || (revision == 0 && has_features)),
            ("s_r_blocks_count", reserved, reserved > sb.blocks / 2),
            (
                "s_clusters_per_group",
                clusters,
                !bigalloc && clusters != u64::from(sb.blocks_per_group),
            ),
            ("s_log_groups_per_flex", flex, flex > MAX_LOG_GROUPS_PER_FLEX),
            (
                "s_first_meta_bg",
                first_meta,
                has_meta && first_meta > u64::from(sb.descriptor_blocks()),
            ),
            (
                "s_desc_size",
                desc_size,
                desc_size > MAX_DESC_SIZE.into()
                    || (desc_size != 0 && !desc_size.is_power_of_two()),
            ),
            (
                "s_journal_inum",
                journal,
                !external && journal != wanted_journal && !(has_journal && self.is_journal()),
            ),
            // e2fsck looks for a journal elsewhere then; the kernel takes the inode's.
            (
                "s_journal_uuid",
                u64::from_be_bytes(*uuid_head),
                has_journal_uuid && (!has_journal || raw.s_journal_inum.get() == special::JOURNAL),
            ),
            (
                "s_usr_quota_inum",
                quota(raw.s_usr_quota_inum),
                self.is_no_quota(0, raw.s_usr_quota_inum),
            ),
            (
                "s_grp_quota_inum",
                quota(raw.s_grp_quota_inum),
                self.is_no_quota(1, raw.s_grp_quota_inum),
            ),
            (
                "s_prj_quota_inum",
                quota(raw.s_prj_quota_inum),
                self.is_no_quota(2, raw.s_prj_quota_inum),
            ),
            (
                "s_min_extra_isize",
                extra(raw.s_min_extra_isize),
                self.is_no_extra(raw.s_min_extra_isize),
            ),
            (
                "s_want_extra_isize",
                extra(raw.s_want_extra_isize),
                self.is_no_extra(raw.s_want_extra_isize),
            ),
        ];
        rules
            .into_iter()
            .filter(|(.., is_wrong)| *is_wrong)
            .map(|(field, value, _)| (field, value))
            .collect()
    }

    /// Whether the journal's inode leads to a journal.
    fn is_journal(&self) -> bool {
        let number = Ino::new(self.sb().raw.s_journal_inum.get());
        let inode = self.volume.inodes().read(number);
        inode.is_ok_and(|inode| {
            inode.kind() == Some(FileKind::Regular)
                && journal::pending_start(&self.volume, &inode).is_ok()
        })
    }

    /// Whether a number cannot be that of a quota file with any features: it is neither reserved
    /// for one nor that of an ordinary inode (e2fsck, `check_super_block`), or it is that of another
    /// file, which a repair must not write to.
    fn is_no_quota(&self, kind: usize, number: U32) -> bool {
        let sb = self.sb();
        // Not from `s_first_ino`, which may be damaged too.
        let ordinary = special::FIRST_ORDINARY..=sb.raw.s_inodes_count.get();
        let reserved = [special::USER_QUOTA, special::GROUP_QUOTA];
        let number = number.get();
        if number == 0 {
            return false;
        }
        if self.is_quota_of_others(kind, number) {
            return true;
        }
        if reserved.contains(&number) {
            return false;
        }
        !ordinary.contains(&number) || self.is_other_file(kind, Ino::new(number))
    }

    /// Whether the superblock has a number for several kinds of quotas, and its file is of another
    /// one: by its contents, by its number, or else that of the first of them.
    fn is_quota_of_others(&self, kind: usize, number: u32) -> bool {
        let raw = &self.sb().raw;
        let numbers = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        let mut kinds = (0..numbers.len())
            .filter(|&it| numbers.get(it).is_some_and(|other| other.get() == number));
        let reserved = [special::USER_QUOTA, special::GROUP_QUOTA];
        let inode = self.volume.inodes().read(Ino::new(number));
        let is_of = |kind| {
            inode.as_ref().is_ok_and(|it| quota::has_magic(&self.volume, it, kind).unwrap_or(false))
        };
        let by_contents = kinds.clone().find(|&it| is_of(it));
        let by_number = kinds.clone().find(|&it| reserved.get(it) == Some(&number));
        by_contents.or(by_number).or_else(|| kinds.next()) != Some(kind)
    }

    /// Whether an inode in use has the contents of something else than a quota file of a kind, and
    /// not the flag and the mode of one, by which a damaged quota file is known.
    fn is_other_file(&self, kind: usize, ino: Ino) -> bool {
        let Ok(inode) = self.volume.inodes().read(ino) else { return false };
        // From a wrong place, any inode is another file.
        let root = self.volume.inodes().read(Ino::new(special::ROOT));
        let is_table = root.is_ok_and(|root| root.kind() == Some(FileKind::Directory))
            && self.strict.inodes().verify(&inode, Location::of("inode")).is_ok();
        let is_used =
            is_table && inode.core.i_mode.get() != 0 && inode.core.i_links_count.get() != 0;
        let is_file = inode.kind() == Some(FileKind::Regular);
        let is_quota = is_file && quota::has_magic(&self.volume, &inode, kind).unwrap_or(false);
        let is_marked =
            inode.core.i_mode.get() == OWN_FILE_MODE && inode.has_flag(flags::IMMUTABLE);
        is_used && !is_quota && !is_marked
    }

    /// The number that a quota file of a kind has where the superblock has an impossible one: the
    /// reserved one, if there is a file of that kind; else 0, for none.
    pub(super) fn quota_number(&self, kind: usize) -> u32 {
        let reserved = [special::USER_QUOTA, special::GROUP_QUOTA];
        let number = reserved.get(kind).copied().filter(|&number| {
            let inode = self.volume.inodes().read(Ino::new(number));
            inode.is_ok_and(|it| quota::has_magic(&self.volume, &it, kind).unwrap_or(false))
        });
        number.unwrap_or(0)
    }

    /// Whether a number cannot be that of the first ordinary inode: those before it are the
    /// volume's own, and have no names. It is 11 wherever it was not damaged (mke2fs).
    fn is_no_first(&self, first: u32) -> bool {
        let is_used = |number| {
            let inode = self.volume.inodes().read(Ino::new(number));
            inode.is_ok_and(|it| it.core.i_mode.get() != 0 && it.core.i_links_count.get() != 0)
        };
        let own = |number| self.volume.sb.own_file(Ino::new(number)).is_some();
        let count = self.sb().raw.s_inodes_count.get();
        let mut before = (special::FIRST_ORDINARY..first).take_while(|number| *number <= count);
        first < special::FIRST_ORDINARY
            || first > count
            || before.any(|number| is_used(number) && !own(number))
    }

    /// Whether inodes have no room for `bytes` of extra fields (e2fsck, `check_super_block`).
    fn is_no_extra(&self, bytes: U16) -> bool {
        let room =
            usize::from(self.sb().inode_size).checked_sub(INODE_CORE_SIZE).filter(|room| *room > 0);
        room.is_some_and(|room| usize::from(bytes.get()) > room || !bytes.get().is_multiple_of(4))
    }
}
