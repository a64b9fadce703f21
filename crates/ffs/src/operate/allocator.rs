//! Space: the policies choose places, a group's bytes tell which are free, the cache writes.

use super::groups::{CylinderGroups, full};
use super::map::Core;
use super::policies::Policies;
use crate::alloc::{Allocation, Delta, GroupMut};
use crate::superblock::Super;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, range};
use seekless_fs::{FsError, Location};
use seekless_live::Ids;
use seekless_placement::block::{Hints, Request, Wanted};
use seekless_placement::inode::{InodePlace, NewInode, Parent};
use seekless_placement::reallocblks::{Cluster, groups, permit};
use seekless_placement::realloccg::{Ask, Optimization, grow};
use seekless_placement::{first_with, hashalloc};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};
use std::sync::Arc;

/// The allocator of inodes and blocks.
pub(super) struct Allocator {
    sb: Arc<Super>,
    groups: CylinderGroups,
    optim: Optimization,
    policies: Policies,
}

impl Allocator {
    pub(super) fn new(sb: Arc<Super>, groups: CylinderGroups, policies: Policies) -> Self {
        let optim = if sb.tuning.optim == 0 { Optimization::Time } else { Optimization::Space };
        Self { sb, groups, optim, policies }
    }

    /// The cylinder groups.
    pub(super) fn groups(&self) -> &CylinderGroups {
        &self.groups
    }

    /// The cylinder groups, to be changed.
    pub(super) fn groups_mut(&mut self) -> &mut CylinderGroups {
        &mut self.groups
    }

    /// The policies, to be changed.
    #[cfg(test)]
    pub(super) fn policies_mut(&mut self) -> &mut Policies {
        &mut self.policies
    }

    /// Whether the caller may take `count` more fragments.
    fn may_take(&self, core: &Core, count: u32) -> bool {
        let left = self.groups.counts().free_frags().saturating_sub(u64::from(count));
        core.may_spend_reserve || left >= self.sb.kept_frags()
    }

    /// Takes `count` fragments in a row, all in one block: near a preferred place, or else in a
    /// group, or else anywhere.
    fn take(
        &mut self,
        core: &mut Core,
        count: u32,
        ask: Ask,
        group: GroupNo,
        preference: Option<BlockNo>,
    ) -> Result<(BlockNo, ChangeId), FsError> {
        debug_assert!((1..=self.sb.frag).contains(&count), "{count} fragments of a block");
        if !self.may_take(core, count) {
            return Err(full("blocks for ordinary users"));
        }
        let preference = preference.filter(|at| at.get() < self.sb.size);
        let start = preference.map_or(group, |at| self.groups.counts().shape().group_of(at));
        let frag = self.sb.frag;
        let order = hashalloc(self.sb.ncg, start);
        let found = first_with(order, |number, preferred| {
            let preference = preference.filter(|_| preferred);
            if !self.groups.has_frags(core, number, count)? {
                return Ok(None);
            }
            self.groups.change(core, number, Role::BitmapSet, |group| {
                let taken = match ask {
                    _ if count == frag => group.alloc_block(preference)?,
                    Ask::Block => group.alloc_in_block(count, preference)?,
                    Ask::Exact => group.alloc_frags(count, preference)?,
                };
                Ok(taken.map(|Allocation { run, delta }| (run.start, delta)))
            })
        })?;
        let (at, id) = found.ok_or_else(|| full("blocks"))?;
        debug_assert!(at.get() + u64::from(count) <= self.sb.size, "{at} lies in the volume");
        self.policies.blocks.allocated(at);
        Ok((at, id))
    }

    /// Takes a block for no file, in the group with the most free ones.
    pub(super) fn take_block(&mut self, core: &mut Core) -> Result<(BlockNo, ChangeId), FsError> {
        let counts = self.groups.counts();
        let free = |&group: &GroupNo| counts.summary(group).map_or(0, |summary| summary.nbfree);
        let group = (0..self.sb.ncg).map(GroupNo::new).max_by_key(free).unwrap_or(GroupNo::ZERO);
        self.take(core, self.sb.frag, Ask::Block, group, None)
    }

    /// A new run for a block of a file, of `count` fragments.
    pub(super) fn take_data(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        count: u32,
        wanted: Wanted,
    ) -> Result<(BlockNo, ChangeId), FsError> {
        let (group, preference) = self.preference(core, ino, lbn, wanted)?;
        self.take(core, count, Ask::Exact, group, preference)
    }

    fn preference(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        wanted: Wanted,
    ) -> Result<(GroupNo, Option<BlockNo>), FsError> {
        let (group, _) = self.sb.inode_slot(ino)?;
        let node = core.node(ino)?;
        // Block numbers as they are on the disk: one outside of the volume is no hint.
        let some = |number: u64| (1..self.sb.size).contains(&number).then(|| BlockNo::new(number));
        let hints = Hints {
            wanted,
            last_direct: node.map.trees.direct.last().copied().and_then(some),
            first_indirect: node.map.trees.indirect.first().copied().and_then(some),
        };
        let request = Request {
            group,
            is_directory: node.kind == seekless_fs::FileKind::Directory,
            lbn: Lbn::new(lbn),
            nearest: hints.nearest(),
            hints,
        };
        let preference = self.policies.blocks.prefer(self.groups.counts(), &request);
        Ok((group, preference))
    }

    /// A longer run for a tail that cannot grow in place.
    pub(super) fn take_larger(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        count: u32,
        wanted: Wanted,
    ) -> Result<(BlockNo, ChangeId), FsError> {
        let (group, preference) = self.preference(core, ino, lbn, wanted)?;
        let tuning = &self.sb.tuning;
        let (ask, then) =
            grow(self.optim, tuning.minfree, self.groups.counts().totals().nffree, tuning.dsize);
        self.optim = then;
        match self.take(core, count, ask, group, preference) {
            // There may be no whole block, and yet a run that fits.
            Err(FsError::NoSpace(_)) if ask == Ask::Block => {
                self.take(core, count, Ask::Exact, group, preference)
            }
            taken => taken,
        }
    }

    /// Lets a run grow in place, if it can.
    pub(super) fn extend(
        &mut self,
        core: &mut Core,
        at: BlockNo,
        old: u32,
        new: u32,
    ) -> Result<Option<ChangeId>, FsError> {
        debug_assert!(old < new && new <= self.sb.frag, "a tail grows in its block");
        if !self.may_take(core, new - old) {
            return Ok(None);
        }
        let number = self.groups.counts().shape().group_of(at);
        let extended = self.groups.change(core, number, Role::BitmapSet, |group| {
            Ok(group.extend(at, old, new)?.map(|delta| ((), delta)))
        })?;
        Ok(extended.map(|((), id)| id))
    }

    /// Gives runs back, and returns the changes that do.
    pub(super) fn free_runs(&mut self, core: &mut Core, runs: &[Extent]) -> Result<Ids, FsError> {
        let mut ids = Ids::new();
        let frag = u64::from(self.sb.frag);
        debug_assert!(
            runs.iter().all(|run| run.end().get() <= self.sb.size),
            "runs of the volume are freed: {runs:?}"
        );
        let mut pieces = runs.iter().flat_map(|&run| by_block(run, frag)).peekable();
        while let Some(&first) = pieces.peek() {
            let number = self.groups.counts().shape().group_of(first.start);
            let shape = *self.groups.counts().shape();
            let here = |piece: &Extent| shape.group_of(piece.start) == number;
            let freed = self.groups.change(core, number, Role::BitmapClear, |group| {
                let mut all = Delta::default();
                while let Some(piece) = pieces.next_if(here) {
                    all = all.and(group.free(piece)?);
                }
                Ok(Some(((), all)))
            })?;
            ids.extend(freed.map(|((), id)| id));
        }
        Ok(ids)
    }

    /// Takes an inode for a file that gets its first name in a directory.
    pub(super) fn take_inode(
        &mut self,
        core: &mut Core,
        parent: Ino,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(Ino, ChangeId), FsError> {
        let at = self.inode_at(parent)?;
        let node = core.node(parent)?;
        let parent = Parent {
            at,
            is_root: parent.get() == crate::ondisk::ROOT,
            depth: node.depth,
            subdirectories: u32::from(node.effective.saturating_sub(2)),
            last: None,
        };
        let new = NewInode { parent, name, hash: None, is_directory };
        let goal = self.policies.inodes.goal(self.groups.counts(), &new);
        let order = self.policies.inodes.order(self.groups.counts(), goal);
        let found = first_with(order, |number, preferred| {
            if self.groups.summary(core, number)?.nifree == 0 {
                return Ok(None);
            }
            let slot = preferred.then_some(goal.slot);
            self.take_inode_in(core, number, slot, is_directory)
        });
        let at = match found {
            Ok(Some((ino, _))) => Some(self.inode_at(ino)?),
            _ => None,
        };
        self.policies.inodes.taken(&new, goal, at);
        found?.ok_or_else(|| full("inodes"))
    }

    fn inode_at(&self, ino: Ino) -> Result<InodePlace, FsError> {
        let (group, slot) = self.sb.inode_slot(ino)?;
        Ok(InodePlace { group, slot })
    }

    fn take_inode_in(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        wanted: Option<u32>,
        is_directory: bool,
    ) -> Result<Option<(Ino, ChangeId)>, FsError> {
        // Initialized inodes are in no map that a repair would rebuild.
        let grown = self.initialize_inodes(core, number, wanted, is_directory)?;
        let role = if grown { Role::TableInit } else { Role::InodeBitmapSet };
        self.groups.change(core, number, role, |group| {
            let taken = group.alloc_inode(wanted, is_directory)?;
            Ok(taken.map(|taken| (taken.ino, taken.delta)))
        })
    }

    /// UFS2: zeroes the inodes that the next allocation would initialise, and waits for them to be
    /// on the disk, before the group counts them. False if there were none.
    fn initialize_inodes(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        wanted: Option<u32>,
        is_directory: bool,
    ) -> Result<bool, FsError> {
        let at = self.sb.in_group(number, self.sb.cblkno);
        let bytes = core.cache.blocks_mut().read(at, 0, index(self.sb.cgsize))?;
        if !GroupMut::has_uninitialized(&self.sb, bytes) {
            return Ok(false);
        }
        let mut trial = bytes.to_vec();
        let taken =
            GroupMut::check(&self.sb, number, &mut trial)?.alloc_inode(wanted, is_directory)?;
        let Some(fresh) = taken.map(|taken| taken.initialize).filter(|fresh| !fresh.is_empty())
        else {
            return Ok(false);
        };
        let bsize = index(self.sb.bsize);
        let mut ids = Vec::new();
        for ino in fresh.step_by(index(self.sb.inodes_per_block())) {
            let place = self.sb.inode_place(Ino::new(ino))?;
            debug_assert_eq!(place.skip, 0, "whole blocks of inodes are initialised");
            let ((), id) =
                core.cache.changes().fill(place.block, bsize, Role::TableInit, |_| Ok(()))?;
            ids.push((place.block, id));
        }
        let frags = u64::from(self.sb.frag);
        let runs: Vec<Extent> = ids.iter().map(|&(at, _)| Extent::new(at, frags)).collect();
        core.cache.settle_runs(&runs)?;
        Ok(true)
    }

    /// Gives an inode back.
    pub(super) fn free_inode(
        &mut self,
        core: &mut Core,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError> {
        let at = self.inode_at(ino)?;
        self.groups.change(core, at.group, Role::InodeBitmapClear, |group| {
            Ok(Some(((), group.free_inode(ino, is_directory)?)))
        })?;
        self.policies.inodes.given_back(at, is_directory);
        Ok(())
    }

    /// The longest cluster, in blocks, if a new block does not lie behind the preceding one.
    pub(super) fn longest_cluster(&self, wanted: Wanted, at: BlockNo) -> u32 {
        let Wanted::Data { previous: Some(previous), .. } = wanted else { return 0 };
        let follows = previous + u64::from(self.sb.frag) == at;
        if !self.policies.reallocblks || follows {
            return 0;
        }
        self.sb.tuning.maxcontig.min(self.sb.tuning.contigsumsize)
    }

    /// The cluster that is to hold the last blocks of a file up to `lbn`, if there is reason to
    /// look for one.
    pub(super) fn cluster_for(&self, lbn: u64, blocks: &[BlockNo]) -> Option<Cluster> {
        let (&[first, .., last], Ok(len)) = (blocks, u32::try_from(blocks.len())) else {
            return None;
        };
        let start = lbn + 1 - u64::from(len);
        let cluster = Cluster { start: Lbn::new(start), len, first, last };
        let (counts, tuning) = (self.groups.counts(), &self.sb.tuning);
        permit(counts, tuning.contigsumsize, tuning.dsize, &cluster).is_ok().then_some(cluster)
    }

    /// Takes a cluster, at the policy's preferred place for its first block.
    pub(super) fn take_cluster(
        &mut self,
        core: &mut Core,
        ino: Ino,
        cluster: &Cluster,
        wanted: Wanted,
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let (group, preference) = self.preference(core, ino, cluster.start.get(), wanted)?;
        let preference = preference.filter(|at| at.get() < self.sb.size);
        let from = preference.map_or(group, |at| self.groups.counts().shape().group_of(at));
        for number in groups(self.sb.ncg, from) {
            let taken = self.groups.change(core, number, Role::BitmapSet, |group| {
                let taken = group.alloc_cluster(cluster.len, preference)?;
                Ok(taken.map(|taken| (taken.run, taken.delta)))
            })?;
            if let Some((run, bitmap)) = taken {
                let frag = u64::from(self.sb.frag);
                debug_assert_eq!(run.len, u64::from(cluster.len) * frag, "as long as asked for");
                self.policies.blocks.allocated(BlockNo::new(run.end().get() - frag));
                return Ok(Some((run, bitmap)));
            }
        }
        Ok(None)
    }

    /// Checks a block number from the disk: the run lies in the volume, in one
    /// block, and in no group's metadata.
    pub(super) fn check_run(&self, ino: Ino, number: u64, frags: u32) -> Result<BlockNo, FsError> {
        let place = Location::of("block map").in_inode(ino);
        let run = Extent::new(BlockNo::new(number), u64::from(frags));
        let frag = u64::from(self.sb.frag);
        debug_assert!(run.len <= frag, "{frags} fragments of a block");
        let outside = number.checked_add(run.len).is_none_or(|end| end > self.sb.size);
        let crosses = number % frag + run.len > frag;
        let in_metadata = || {
            let group = self.groups.counts().shape().group_of(run.start);
            run.overlaps(self.sb.group_metadata(group))
        };
        if outside || crosses || in_metadata() {
            return Err(range("block number", number, self.sb.size, place));
        }
        Ok(run.start)
    }
}

/// A run, cut at the ends of blocks.
pub(super) fn by_block(run: Extent, frag: u64) -> impl Iterator<Item = Extent> {
    let (mut at, end) = (run.start.get(), run.end().get());
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let stop = (at + 1).next_multiple_of(frag).min(end);
        let piece = Extent::new(BlockNo::new(at), stop - at);
        at = stop;
        Some(piece)
    })
}
