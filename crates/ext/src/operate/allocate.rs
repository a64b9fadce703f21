//! Blocks taken for files: the policy chooses places, the bitmaps whether they are free.

use super::ahead::Ahead;
use super::groups::BlockGroups;
use super::layout::Layout;
use super::map::{Around, Core};
use super::mballoc::Mballoc;
use super::search::{barred, first_free, flip, free_bit, full, has_bit};
use crate::ondisk::flags;
use seekless_cache::ChangeId;
use seekless_fs::{FileKind, FsError};
use seekless_live::Ids;
use seekless_placement::block::{BlockPlacement, ChunkWanted, ExtHints, Request};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};
use std::ops::Range;
use std::sync::Arc;

/// A run of at most `most` free bits, from the one that is allocated for `goal`; with `next`, from
/// the next free one.
fn free_run(bitmap: &[u8], bits: u32, goal: u32, most: u32, next: bool) -> Option<Range<u32>> {
    let search = if next { first_free } else { free_bit };
    let first = search(bitmap, bits, goal)?;
    debug_assert!(first < bits && most > 0, "bit {first} of {bits}");
    let end = (first + most).min(bits);
    let end = (first..end).find(|&bit| has_bit(bitmap, bit)).unwrap_or(end);
    Some(first..end)
}

/// Allocates blocks of the groups of a volume.
pub(super) struct BlockAllocator {
    layout: Arc<Layout>,
    groups: BlockGroups,
    policy: Box<dyn BlockPlacement<ExtHints>>,
    /// Blocks taken ahead for files.
    ahead: Ahead,
}

impl BlockAllocator {
    /// Allocates where a policy wants blocks to be.
    pub(super) fn new(
        layout: Arc<Layout>,
        groups: BlockGroups,
        policy: Box<dyn BlockPlacement<ExtHints>>,
    ) -> Self {
        Self { layout, groups, policy, ahead: Ahead::default() }
    }

    /// The groups.
    pub(super) fn groups(&self) -> &BlockGroups {
        &self.groups
    }

    /// The groups, for the allocation of inodes.
    pub(super) fn groups_mut(&mut self) -> &mut BlockGroups {
        &mut self.groups
    }

    /// Free blocks that may be taken now.
    pub(super) fn room_with_reserved(&self, core: &Core) -> u64 {
        let kept = if core.may_spend_reserve { 0 } else { self.layout.sb().kept_blocks() };
        self.groups.summaries().free_frags().saturating_sub(kept)
    }

    /// The same, without those that are reserved for delayed contents.
    fn room(&self, core: &Core) -> u64 {
        self.room_with_reserved(core).saturating_sub(core.delayed.barred())
    }

    /// Gives runs back.
    pub(super) fn give(&mut self, core: &mut Core, runs: &[Extent]) -> Result<Ids, FsError> {
        self.groups.give(core, runs)
    }

    /// The parts of a run that are free.
    pub(super) fn free_parts(&self, core: &mut Core, run: Extent) -> Result<Vec<Extent>, FsError> {
        self.groups.free_parts(core, run)
    }

    /// A block for a file's contents or its map.
    pub(super) fn take_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        nearest: Option<BlockNo>,
    ) -> Result<(BlockNo, ChangeId), FsError> {
        let (run, id) = self.take_run(core, ino, lbn, nearest, 1, None)?;
        Ok((run.start, id))
    }

    /// Blocks for a file's contents or its map: the one that is found as if it were the only one,
    /// and as many behind it as are free, up to `most` in all. For contents, `around` has the
    /// neighbouring blocks of the file.
    pub(super) fn take_run(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        nearest: Option<BlockNo>,
        most: u32,
        around: Option<Around>,
    ) -> Result<(Extent, ChangeId), FsError> {
        debug_assert_ne!(most, 0, "somebody wants a block");
        let mut room = self.room(core);
        if room == 0 {
            self.ahead.give_up_all();
            self.give_back(core)?;
            room = self.room(core);
        }
        let most = u32::try_from(room.min(u64::from(most))).unwrap_or(u32::MAX);
        if most == 0 {
            return Err(full("blocks"));
        }
        let (group, _) = self.layout.slot(ino)?;
        let node = core.node(ino)?;
        let is_directory = node.kind == FileKind::Directory;
        // Block maps have numbers of 32 bits.
        let limit = if node.flags & flags::EXTENTS != 0 { u64::MAX } else { 1 << 32 };
        let is_regular = node.kind == FileKind::Regular;
        let has_map = node.flags & flags::EXTENTS == 0;
        let size = node.size.div_ceil(u64::from(self.layout.sb().block_size));
        let hints = ExtHints { is_regular };
        let request = Request { group, is_directory, lbn: Lbn::new(lbn), nearest, hints };
        let goal = self.policy.prefer(self.groups.summaries(), &request);
        // Blocks are taken ahead only for a file's contents and the tables before them.
        let is_mapped = is_regular && has_map && (around.is_some() || nearest.is_some());
        let chunk_goal = goal.unwrap_or_else(|| self.groups.summaries().shape().base(group));
        if let Some(chunks) = self.policy.chunks() {
            let wanted = around.filter(|_| is_regular).map(|Around { left, right }| ChunkWanted {
                ino,
                lbn,
                len: most,
                size,
                left,
                right,
                goal: chunk_goal,
                ends_closed: core.delayed.places_closed() && lbn + u64::from(most) == size,
            });
            let groups = (&*self.layout, &mut self.groups);
            let mut search = Mballoc::of(groups, chunks, core, limit);
            return search.take(chunk_goal, wanted.as_ref());
        }
        let ahead = u32::try_from(room.min(self.policy.ahead().into())).unwrap_or(1);
        let ahead = if is_mapped { ahead } else { 1 };
        let taken = self.take_once(core, ino, (group, goal), (most, ahead), limit);
        if !matches!(taken, Err(FsError::NoSpace(_))) {
            return taken;
        }
        // Blocks taken ahead by other files.
        self.ahead.give_up_all();
        if !self.give_back(core)? {
            return taken;
        }
        self.take_once(core, ino, (group, goal), (most, ahead), limit)
    }

    fn take_once(
        &mut self,
        core: &mut Core,
        ino: Ino,
        place: (GroupNo, Option<BlockNo>),
        (most, ahead): (u32, u32),
        limit: u64,
    ) -> Result<(Extent, ChangeId), FsError> {
        if ahead > 1 {
            debug_assert_eq!(most, 1, "block maps are given one block after the other");
            return self.take_ahead(core, ino, place, ahead, limit);
        }
        self.find_run(core, place, most, limit)
    }

    /// Looks for blocks from a goal on, in one group after the other.
    fn find_run(
        &mut self,
        core: &mut Core,
        (group, goal): (GroupNo, Option<BlockNo>),
        most: u32,
        limit: u64,
    ) -> Result<(Extent, ChangeId), FsError> {
        debug_assert!(most > 0, "somebody wants a block");
        self.give_back(core)?;
        let sb = self.layout.sb();
        let goal = goal.filter(|at| at.get() < sb.blocks && *at >= sb.first_block);
        let start = goal.map_or(group, |at| self.groups.summaries().shape().group_of(at));
        let ncg = u64::from(sb.groups);
        // The first group once more at the end, from its first block on.
        let order =
            (0..=ncg).map(|by| (by, self.groups.summaries().shape().group_after(start, by)));
        for (by, number) in order.collect::<Vec<_>>() {
            if self.groups.summaries().summary(number).is_none_or(|group| group.nbfree == 0) {
                continue;
            }
            let blocks = self.layout.sb().group_blocks(number);
            if blocks.end().get() > limit {
                continue;
            }
            let first = blocks.start;
            let within = goal.filter(|_| by == 0).map_or(0, |at| at - first);
            let within = u32::try_from(within).unwrap_or(0);
            if let Some(taken) = self.take_run_in(core, number, within, most)? {
                let (run, _) = taken;
                debug_assert!(run.len > 0 && run.len <= most.into(), "{run} of {most} blocks");
                debug_assert!(run.end().get() <= limit, "a map can hold the numbers of {run}");
                self.policy.allocated(run.start + (run.len - 1));
                return Ok(taken);
            }
        }
        Err(full("blocks"))
    }

    fn take_run_in(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        goal: u32,
        most: u32,
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let run = self.layout.sb().group_blocks(number);
        let bits = u32::try_from(run.len).unwrap_or(u32::MAX);
        let barred = barred(core, run);
        let next = self.policy.takes_next();
        self.groups.take_bits(core, number, |bitmap| {
            if barred.is_empty() {
                return free_run(bitmap, bits, goal, most, next);
            }
            let mut seen = bitmap.to_vec();
            let set = |bit: u32| (!has_bit(&seen, bit)).then(|| flip(&mut seen, bit));
            barred.iter().cloned().flatten().map(set).for_each(drop);
            free_run(&seen, bits, goal, most, next)
        })
    }

    /// Frees the blocks that were taken ahead and released. False if there were none.
    pub(super) fn give_back(&mut self, core: &mut Core) -> Result<bool, FsError> {
        let runs = self.ahead.drain();
        self.groups.give(core, &runs)?;
        debug_assert!(self.ahead.is_drained(), "nothing is released meanwhile");
        Ok(!runs.is_empty())
    }

    /// A block for a file: the next one of those taken ahead, if that is the goal or the block
    /// behind it; or one that is found, with as many behind it as are free, up to `most` in all.
    fn take_ahead(
        &mut self,
        core: &mut Core,
        ino: Ino,
        (group, goal): (GroupNo, Option<BlockNo>),
        most: u32,
        limit: u64,
    ) -> Result<(Extent, ChangeId), FsError> {
        let (run, id) = match self.ahead.hit(ino, goal) {
            Some(hit) => hit,
            None => {
                self.ahead.give_up(ino);
                self.give_back(core)?;
                self.find_run(core, (group, goal), most, limit)?
            }
        };
        debug_assert!(run.len > 0, "blocks taken ahead are dropped with the last one");
        self.ahead.keep(ino, Extent::new(run.start + 1, run.len - 1), id);
        Ok((Extent::new(run.start, 1), id))
    }

    /// Discards the preallocations of a file.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.ahead.give_up(ino);
        if let Some(chunks) = self.policy.chunks() {
            chunks.forget(ino);
        }
    }

    /// Releases the blocks taken ahead for any file.
    pub(super) fn release_all(&mut self) {
        self.ahead.give_up_all();
    }
}
