//! Space: the policies choose places, a group's bytes tell which are free, the cache writes.

use super::{Core, Ffs};
use crate::alloc::{Allocation, Delta, GroupMut};
use crate::group::verify_group;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, invalid, range, wide};
use seekless_fs::{FsError, Location};
use seekless_placement::block::{Hints, Request, Wanted};
use seekless_placement::inode::{InodePlace, NewInode, Parent};
use seekless_placement::realloccg::{Ask, grow};
use seekless_placement::{first_with, hashalloc};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};

/// The error of a full volume.
pub(super) fn full(what: &str) -> FsError {
    FsError::NoSpace(format!("no free {what} left"))
}

impl Ffs {
    /// Checks a group's hash, once.
    fn verify(&mut self, core: &mut Core, number: GroupNo) -> Result<(), FsError> {
        debug_assert!(number.get() < self.sb.ncg, "group {number} of {}", self.sb.ncg);
        let done = self.verified_groups.get(index(number.get())).copied().unwrap_or(true);
        if done {
            return Ok(());
        }
        let at = self.sb.in_group(number, self.sb.cblkno);
        let bytes = core.cache.blocks_mut().read(at, 0, index(self.sb.cgsize))?;
        if !self.ignore_checksums {
            verify_group(&self.sb, bytes, number)?;
        }
        if let Some(done) = self.verified_groups.get_mut(index(number.get())) {
            *done = true;
        }
        Ok(())
    }

    /// Changes a group's bytes, and the totals with them; `None` when `change` finds too little
    /// free in the group.
    pub(super) fn change_group<R>(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        role: Role,
        change: impl FnOnce(&mut GroupMut<'_>) -> Result<Option<(R, Delta)>, FsError>,
    ) -> Result<Option<(R, ChangeId)>, FsError> {
        self.verify(core, number)?;
        let at = self.sb.in_group(number, self.sb.cblkno);
        let secs = core.now().secs;
        let sb = &self.sb;
        let edited = core.cache.changes().edit(at, 0, index(sb.cgsize), role, |bytes| {
            let mut group = GroupMut::check(sb, number, bytes)?;
            let (given, delta) = change(&mut group)?.ok_or_else(|| full("space"))?;
            group.touch(secs);
            Ok((given, delta))
        });
        match edited {
            Ok(((given, delta), id)) => {
                self.account(number, delta)?;
                Ok(Some((given, id)))
            }
            Err(FsError::NoSpace(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn account(&mut self, number: GroupNo, delta: Delta) -> Result<(), FsError> {
        let place = Location::of("summary").in_group(number);
        let wrong = || invalid("cs", u64::from(number.get()), place);
        let old = self.groups.summary(number).ok_or_else(wrong)?;
        self.groups.set(number, delta.of_group(old).ok_or_else(wrong)?);
        self.stale_summaries.insert(number);
        Ok(())
    }

    /// Fragments reserved for the superuser (`minfree`).
    pub(super) fn kept_frags(&self) -> u64 {
        let tuning = &self.sb.tuning;
        tuning.dsize * u64::from(tuning.minfree) / 100
    }

    /// Whether the caller may take `count` more fragments.
    fn may_take(&self, core: &Core, count: u32) -> bool {
        let left = self.groups.free_frags().saturating_sub(u64::from(count));
        core.may_spend_reserve || left >= self.kept_frags()
    }

    fn has_frags(&self, number: GroupNo, count: u32) -> bool {
        let enough = |nbfree, nffree| nbfree > 0 || (count < self.sb.frag && nffree >= count);
        let group = self.groups.summary(number);
        group.is_some_and(|group| enough(group.nbfree, group.nffree))
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
        let start = preference.map_or(group, |at| self.groups.shape().group_of(at));
        let frag = self.sb.frag;
        let order = hashalloc(self.sb.ncg, start);
        let found = first_with(order, |number, preferred| {
            let preference = preference.filter(|_| preferred);
            if !self.has_frags(number, count) {
                return Ok(None);
            }
            self.change_group(core, number, Role::BitmapSet, |group| {
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
        self.blocks.allocated(at);
        Ok((at, id))
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

    pub(super) fn preference(
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
        let preference = self.blocks.prefer(&self.groups, &request);
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
            grow(self.optim, tuning.minfree, self.groups.totals().nffree, tuning.dsize);
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
        let number = self.groups.shape().group_of(at);
        let extended = self.change_group(core, number, Role::BitmapSet, |group| {
            Ok(group.extend(at, old, new)?.map(|delta| ((), delta)))
        })?;
        Ok(extended.map(|((), id)| id))
    }

    /// Gives runs back.
    pub(super) fn free_runs(&mut self, core: &mut Core, runs: &[Extent]) -> Result<(), FsError> {
        let frag = u64::from(self.sb.frag);
        debug_assert!(
            runs.iter().all(|run| run.end().get() <= self.sb.size),
            "runs of the volume are freed: {runs:?}"
        );
        let mut pieces = runs.iter().flat_map(|&run| by_block(run, frag)).peekable();
        while let Some(&first) = pieces.peek() {
            let number = self.groups.shape().group_of(first.start);
            let shape = *self.groups.shape();
            let here = |piece: &Extent| shape.group_of(piece.start) == number;
            self.change_group(core, number, Role::BitmapClear, |group| {
                let mut all = Delta::default();
                while let Some(piece) = pieces.next_if(here) {
                    all = all.and(group.free(piece)?);
                }
                Ok(Some(((), all)))
            })?;
        }
        Ok(())
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
        let goal = self.inodes.goal(&self.groups, &new);
        let order = self.inodes.order(&self.groups, goal);
        let found = first_with(order, |number, preferred| {
            if self.groups.summary(number).is_none_or(|group| group.nifree == 0) {
                return Ok(None);
            }
            let slot = preferred.then_some(goal.slot);
            self.take_inode_in(core, number, slot, is_directory)
        });
        let at = match found {
            Ok(Some((ino, _))) => Some(self.inode_at(ino)?),
            _ => None,
        };
        self.inodes.taken(&new, goal, at);
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
        self.change_group(core, number, role, |group| {
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

    /// The fragment of an inode.
    pub(super) fn inode_fragment(&self, ino: Ino) -> Result<Extent, FsError> {
        let place = self.sb.inode_place(ino)?;
        let within = wide(place.skip / index(self.sb.fsize));
        Ok(Extent::new(place.block + within, 1))
    }

    /// Gives an inode back.
    pub(super) fn free_inode(
        &mut self,
        core: &mut Core,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError> {
        let at = self.inode_at(ino)?;
        self.change_group(core, at.group, Role::InodeBitmapClear, |group| {
            Ok(Some(((), group.free_inode(ino, is_directory)?)))
        })?;
        self.inodes.given_back(at, is_directory);
        Ok(())
    }

    /// Whether an inode is in use.
    pub(super) fn inode_in_use(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        slot: u32,
    ) -> Result<bool, FsError> {
        self.verify(core, number)?;
        let at = self.sb.in_group(number, self.sb.cblkno);
        let bytes = core.cache.blocks_mut().read(at, 0, index(self.sb.cgsize))?;
        GroupMut::inode_in_use(&self.sb, number, bytes, slot)
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
            let group = self.groups.shape().group_of(run.start);
            run.overlaps(self.sb.group_metadata(group))
        };
        if outside || crosses || in_metadata() {
            return Err(range("block number", number, self.sb.size, place));
        }
        Ok(run.start)
    }

    /// Fragments for a number of bytes.
    pub(super) fn frags(&self, bytes: u64) -> u32 {
        let frags = bytes.div_ceil(u64::from(self.sb.fsize));
        u32::try_from(frags).unwrap_or(u32::MAX)
    }

    /// Sectors of a number of fragments, as `di_blocks` counts them.
    pub(super) fn sectors(&self, frags: u64) -> u64 {
        frags * (u64::from(self.sb.fsize) / 512)
    }
}

/// A run, cut at the ends of blocks.
fn by_block(run: Extent, frag: u64) -> impl Iterator<Item = Extent> {
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
