//! The state of a check, which its passes share, and its findings.

use super::encryption::Policy;
use super::fix::{Fix, Fixes, Spot, Stage};
use super::seen::CheckedInodes;
use crate::part::Part;
use crate::quota::UsageByKind;
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::bits::Bits;
use seekless_fs::check::{Class, Problem, Report, Watch};
use seekless_fs::field::{index, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{BlockNo, GroupNo, Ino};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// With `shared_blocks`: files a cluster is believed to belong to, on average.
const MOST_SHARES: u64 = 64;

/// How often a cluster may belong to something else besides, on average. The maps of further inodes
/// are given up: else a hostile image could claim all of itself in each inode.
const MOST_CONFLICTS: u64 = 4;

/// Bytes of the cache: tables and directories are read in order, past it or once.
const CACHE: u64 = 4 << 20;

/// A block of attributes.
pub(super) struct SharedBlock {
    /// Its reference count (`h_refcount`).
    pub(super) count: u32,
    /// Files that lead to it.
    pub(super) found: u32,
    /// The first of them.
    pub(super) owner: Ino,
}

/// A check under way.
pub(super) struct Checker {
    pub(super) volume: Volume,
    /// The same volume, with its checksums compared.
    pub(super) strict: Volume,
    pub(super) report: Report,
    /// Repairs of the findings.
    pub(super) fixes: Fixes,
    /// Clusters in use, those of the volume's own metadata, and those that were claimed twice.
    pub(super) used: Bits,
    pub(super) fixed: Bits,
    pub(super) twice: Bits,
    pub(super) seen: CheckedInodes,
    /// Inodes that a mount would delete or truncate.
    pub(super) orphans: BTreeSet<Ino>,
    /// Inodes in bad blocks, in order: they count as used.
    pub(super) unusable: Vec<Ino>,
    /// The superblock is a copy.
    pub(super) from_copy: bool,
    /// The entry of the root named `lost+found`, and its inode.
    pub(super) lost_found: Option<(Spot, Ino)>,
    /// Groups whose descriptor's checksum does not match: its flags for never written bitmaps and
    /// tables are ignored.
    pub(super) doubtful_groups: BTreeSet<GroupNo>,
    /// Groups whose descriptor was reported: its counts are not compared.
    pub(super) damaged_descriptors: BTreeSet<GroupNo>,
    /// Groups whose inode table cannot be found.
    pub(super) lost_groups: BTreeSet<GroupNo>,
    /// Groups whose bitmaps cannot be found.
    pub(super) lost_block_bitmaps: BTreeSet<GroupNo>,
    pub(super) lost_inode_bitmaps: BTreeSet<GroupNo>,
    /// The policies of encrypted inodes.
    pub(super) policies: HashMap<Ino, Policy>,
    /// The inode of a journal that is given up.
    pub(super) lost_journal: Option<Ino>,
    /// Blocks of attributes, which files may share.
    pub(super) shared: HashMap<BlockNo, SharedBlock>,
    /// Inodes that hold values, with how often they are named.
    pub(super) values: HashMap<Ino, u64>,
    /// The space and the inodes that users, groups and projects use, with the quota feature.
    pub(super) usage: UsageByKind,
    /// The part of it that e2fsck does not count.
    pub(super) uncounted_usage: UsageByKind,
    /// How often clusters may still be shared, with `shared_blocks`.
    pub(super) shares_left: u64,
    /// How often clusters may still belong to something else besides.
    pub(super) conflicts_left: u64,
    /// Directories that could not be read to their end.
    pub(super) cut_short: BTreeSet<Ino>,
    /// There is a directory with too many links without the feature for it.
    pub(super) has_many_links: bool,
    /// There is a large file without the feature for it.
    pub(super) has_large: bool,
    /// Free clusters and inodes.
    pub(super) free: (u64, u32),
    /// Blocks are read on this thread only.
    pub(super) is_sequential: bool,
    /// Follows the progress.
    pub(super) watch: Option<Arc<dyn Watch>>,
    /// The device of a journal that is not in the volume.
    pub(super) journal: Option<Arc<dyn BlockDevice>>,
}

impl Checker {
    /// Nothing has been looked at yet.
    pub(super) fn new(
        device: Arc<dyn BlockDevice>,
        mut volume: Volume,
        from_copy: bool,
        report: Report,
        fixes: Fixes,
    ) -> Result<Self, FsError> {
        volume.limit_cache(CACHE);
        let mut strict = Volume::with_superblock(device, volume.sb.clone(), true)?;
        strict.ignore_checksums = false;
        strict.share_cache(&volume);
        let clusters = index(volume.sb.clusters());
        Ok(Self {
            volume,
            strict,
            report,
            fixes,
            used: Bits::new(clusters),
            fixed: Bits::new(clusters),
            twice: Bits::new(clusters),
            seen: CheckedInodes::default(),
            orphans: BTreeSet::new(),
            unusable: Vec::new(),
            from_copy,
            lost_found: None,
            doubtful_groups: BTreeSet::new(),
            damaged_descriptors: BTreeSet::new(),
            lost_groups: BTreeSet::new(),
            lost_block_bitmaps: BTreeSet::new(),
            lost_inode_bitmaps: BTreeSet::new(),
            policies: HashMap::new(),
            lost_journal: None,
            shared: HashMap::new(),
            values: HashMap::new(),
            usage: UsageByKind::default(),
            uncounted_usage: UsageByKind::default(),
            shares_left: wide(clusters) * MOST_SHARES,
            conflicts_left: wide(clusters) * MOST_CONFLICTS,
            cut_short: BTreeSet::new(),
            has_many_links: false,
            has_large: false,
            free: (0, 0),
            is_sequential: false,
            watch: None,
            journal: None,
        })
    }

    pub(super) fn sb(&self) -> &Super {
        &self.volume.sb
    }

    /// Tells the progress of a pass.
    pub(super) fn reach(&self, pass: u8, done: usize, of: usize) {
        if let Some(watch) = &self.watch {
            watch.reach(pass, wide(done), wide(of));
        }
    }

    pub(super) fn fix(&mut self, stage: Stage, fix: Fix) {
        self.fixes.add(stage, fix);
    }

    pub(super) fn found(&mut self, problem: &'static Problem, what: String, location: Location) {
        self.report.add(problem, what, location);
    }

    /// Reports a finding that `e2fsck -p` repairs, of a problem of which it does not repair all.
    pub(super) fn expected(&mut self, problem: &'static Problem, what: String, location: Location) {
        self.graded(true, problem, what, location);
    }

    /// Reports a finding at which `e2fsck -p` stops, of a problem of which it repairs some.
    pub(super) fn unexpected(
        &mut self,
        problem: &'static Problem,
        what: String,
        location: Location,
    ) {
        self.graded(false, problem, what, location);
    }

    /// Reports a finding of a problem that `e2fsck -p` repairs only under a condition.
    pub(super) fn graded(
        &mut self,
        expected: bool,
        problem: &'static Problem,
        what: String,
        location: Location,
    ) {
        let class = if expected { Class::Expected } else { Class::Unexpected };
        self.report.add_as(problem, class, what, location);
    }

    /// Reports damage in a result as a finding; errors of the device are passed on.
    pub(super) fn sound<T>(
        &mut self,
        result: Result<T, FsError>,
        problem: &'static Problem,
        place: Location,
    ) -> Result<Option<T>, FsError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ FsError::Corrupt { .. }) => {
                let (what, place) = error.finding(place);
                match problem.class() {
                    Some(_) => self.found(problem, what, place),
                    // The place decides the class; a checksum or a structure that is wrong is damage.
                    None => self.unexpected(problem, what, place),
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports a checksum that does not match, and no other error; whether there is one.
    pub(super) fn checksum<T>(
        &mut self,
        result: Result<T, FsError>,
        problem: &'static Problem,
        place: Location,
    ) -> Result<bool, FsError> {
        match result {
            Err(error @ FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }) => {
                let (what, place) = error.finding(place);
                self.found(problem, what, place);
                Ok(true)
            }
            Ok(_) | Err(FsError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether some names may not have been found, so that a missing name is no proof of damage.
    pub(super) fn may_have_more_names(&self) -> bool {
        !self.cut_short.is_empty() || !self.lost_groups.is_empty()
    }

    /// Whether blocks in use may belong to inodes or bitmaps that cannot be found.
    pub(super) fn has_lost_blocks(&self) -> bool {
        let lost = [&self.lost_groups, &self.lost_block_bitmaps, &self.lost_inode_bitmaps];
        lost.into_iter().any(|groups| !groups.is_empty())
    }

    /// Whether the usage of all files could be counted.
    pub(super) fn counts_usage(&self) -> bool {
        !self.has_lost_blocks() && !self.seen.iter().any(|(_, seen)| seen.bad_map)
    }

    /// Blocks and inodes that are free.
    pub(super) fn free_totals(&self) -> (u64, u32) {
        (self.free.0 * u64::from(self.sb().cluster_ratio), self.free.1)
    }

    /// Whether an inode is a directory in use.
    pub(super) fn is_directory(&self, ino: Ino) -> bool {
        self.seen.get(ino).is_some_and(|seen| seen.kind == FileKind::Directory)
    }

    /// Whether an inode lies in a group that cannot be read.
    pub(super) fn is_lost(&self, ino: Ino) -> bool {
        let slot = self.volume.sb.inode_slot(ino);
        slot.is_ok_and(|(group, _)| self.lost_groups.contains(&group))
    }

    /// Whether a part of a group cannot be found.
    pub(super) fn is_lost_part(&self, number: GroupNo, part: Part) -> bool {
        match part {
            Part::BlockBitmap => self.lost_block_bitmaps.contains(&number),
            Part::InodeBitmap => self.lost_inode_bitmaps.contains(&number),
            Part::Table => self.lost_groups.contains(&number),
        }
    }

    /// Whether an inode lies in a block on the list of bad blocks.
    pub(super) fn is_unusable(&self, ino: Ino) -> bool {
        self.unusable.binary_search(&ino).is_ok()
    }

    /// Inodes of a group that may be in use: the slots behind were never written.
    pub(super) fn used_slots(&self, group: &crate::group::Group) -> u32 {
        let all = self.sb().inodes_per_group;
        let counted = self.has_uninit() && !self.doubtful_groups.contains(&group.number);
        match (counted, group.inode_uninit()) {
            (false, _) => all,
            (true, true) => 0,
            (true, false) => all.saturating_sub(group.itable_unused()),
        }
    }

    /// Whether a group is the last one.
    pub(super) fn is_last(&self, number: GroupNo) -> bool {
        number.get() + 1 == self.sb().groups
    }

    pub(super) fn has_uninit(&self) -> bool {
        self.sb().has_metadata_csum() || self.sb().has_ro_compat(crate::ondisk::ro_compat::GDT_CSUM)
    }

    /// The inodes of a group that are in use, by their slots, and how many are directories. Most slots
    /// of a large volume are free: they are not looked at one by one.
    pub(super) fn taken_of_group(&self, number: GroupNo) -> (Bits, u32) {
        let count = self.sb().inodes_per_group;
        let first = number.get() * count + 1;
        let last = first + (count - 1);
        let mut taken = Bits::new(index(count));
        let mut directories = 0;
        for (ino, seen) in self.seen.between(first, last) {
            taken.set(index(ino.get() - first));
            directories += u32::from(seen.kind == FileKind::Directory);
        }
        for ino in self.may_be_taken_unseen(first, last).filter(|ino| self.is_taken(*ino)) {
            taken.set(index(ino.get() - first));
        }
        (taken, directories)
    }

    /// Inodes from `first` to `last` that may be in use although none was found there: the volume's
    /// own, and those in bad blocks. [`Self::is_taken`] decides.
    fn may_be_taken_unseen(&self, first: u32, last: u32) -> impl Iterator<Item = Ino> + '_ {
        let project = self.volume.sb.raw.s_prj_quota_inum.get();
        let own = self.volume.sb.may_be_own(first, last).chain([Ino::new(project)]);
        let own = own.filter(move |ino| (first..=last).contains(&ino.get()));
        // In order, and there may be many.
        let before = self.unusable.partition_point(|ino| ino.get() < first);
        let unusable = self.unusable.iter().skip(before).copied();
        own.chain(unusable.take_while(move |ino| ino.get() <= last))
    }

    /// Whether an inode is in use. e2fsck does not reach those in bad blocks that were never
    /// written.
    fn is_taken(&self, ino: Ino) -> bool {
        let is_scanned = || {
            let Ok((number, slot)) = self.volume.sb.inode_slot(ino) else { return false };
            let group = self.volume.descriptors().read(number);
            group.is_ok_and(|group| slot < self.used_slots(&group))
        };
        self.seen.contains(ino)
            || self.volume.sb.is_own(ino)
            // e2fsck counts the inode of project quotas without the feature too.
            || (self.volume.sb.raw.s_prj_quota_inum.get() == ino.get() && is_scanned())
            || (self.is_unusable(ino) && is_scanned())
    }
}
