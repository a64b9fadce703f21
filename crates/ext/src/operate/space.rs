//! Space: the policies choose places, bitmaps whether they are free, the cache writes.

use super::descriptor::Bitmap;
use super::map::Around;
use super::search::{first_free, flip, free_bit, full, has_bit};
use super::{Core, Ext, Places};
use crate::ondisk::{flags, incompat};
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, invalid, range};
use seekless_fs::{FileKind, FsError, Location};
use seekless_placement::GroupSummary;
use seekless_placement::block::{ChunkWanted, ExtHints, Request};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};
use std::ops::Range;

/// The bits of a group's blocks that are free, but not to be used again yet.
pub(super) fn barred(core: &Core, group: Extent) -> Vec<Range<u32>> {
    if core.cache.may_reuse(group) {
        return Vec::new();
    }
    let bit = |at: BlockNo| {
        let within = at.clamp(group.start, group.end()) - group.start;
        u32::try_from(within).unwrap_or(u32::MAX)
    };
    let runs = core.cache.quarantined().into_iter();
    runs.filter(|run| run.overlaps(group)).map(|run| bit(run.start)..bit(run.end())).collect()
}

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

/// Changes of a group's counts.
#[derive(Clone, Copy, Default)]
pub(super) struct Delta {
    pub(super) blocks: i32,
    pub(super) inodes: i32,
    pub(super) directories: i32,
}

impl Ext {
    /// Where the parts of a group are.
    pub(super) fn places(&self, number: GroupNo) -> Result<Places, FsError> {
        let found = self.places.get(index(number.get())).copied();
        found.ok_or_else(|| self.no_group(number))
    }

    pub(super) fn account(&mut self, number: GroupNo, delta: Delta) -> Result<(), FsError> {
        let place = Location::of("group descriptor").in_group(number);
        let wrong = || invalid("free count", u64::from(number.get()), place);
        let old = self.groups.summary(number).ok_or_else(wrong)?;
        let sum = |count: u32, by: i32| count.checked_add_signed(by).ok_or_else(wrong);
        let new = GroupSummary {
            ndir: sum(old.ndir, delta.directories)?,
            nbfree: sum(old.nbfree, delta.blocks)?,
            nifree: sum(old.nifree, delta.inodes)?,
            nffree: 0,
        };
        self.groups.set(number, new);
        if delta.blocks != 0 {
            self.inodes.blocks_changed(delta.blocks.into());
        }
        self.stale.insert(number);
        Ok(())
    }

    /// Blocks reserved for the superuser, at most all.
    pub(super) fn kept_blocks(&self) -> u64 {
        let raw = &self.volume.sb.raw;
        let wide = self.volume.sb.has_incompat(incompat::BIT64);
        let high = if wide { u64::from(raw.s_r_blocks_count_hi.get()) } else { 0 };
        (high << 32 | u64::from(raw.s_r_blocks_count_lo.get())).min(self.volume.sb.blocks)
    }

    /// Blocks that `statfs(2)` leaves out of the available ones: the reserve of the volume, and,
    /// where files may have extents, the blocks that the kernel keeps for their trees
    /// (`ext4_set_resv_clusters` of `fs/ext4/super.c`: a fiftieth, at most 4,096 clusters).
    pub(super) fn unavailable_blocks(&self) -> u64 {
        let sb = &self.volume.sb;
        let for_trees = if sb.has_incompat(incompat::EXTENTS) {
            // Volumes with clusters of several blocks are not opened for changes.
            (sb.blocks / 50).min(4096)
        } else {
            0
        };
        self.kept_blocks() + for_trees
    }

    /// Free blocks that may be taken now.
    pub(super) fn room_with_reserved(&self, core: &Core) -> u64 {
        let kept = if core.may_spend_reserve { 0 } else { self.kept_blocks() };
        self.groups.free_frags().saturating_sub(kept)
    }

    /// The same, without those that are reserved for delayed contents.
    fn room(&self, core: &Core) -> u64 {
        self.room_with_reserved(core).saturating_sub(core.delayed.barred())
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
            self.give_back_ahead(core)?;
            room = self.room(core);
        }
        let most = u32::try_from(room.min(u64::from(most))).unwrap_or(u32::MAX);
        if most == 0 {
            return Err(full("blocks"));
        }
        let (group, _) = self.volume.inode_slot(ino)?;
        let node = core.node(ino)?;
        let is_directory = node.kind == FileKind::Directory;
        // Block maps have numbers of 32 bits.
        let limit = if node.flags & flags::EXTENTS != 0 { u64::MAX } else { 1 << 32 };
        let is_regular = node.kind == FileKind::Regular;
        let has_map = node.flags & flags::EXTENTS == 0;
        let size = node.size.div_ceil(u64::from(self.volume.sb.block_size));
        let hints = ExtHints { is_regular };
        let request = Request { group, is_directory, lbn: Lbn::new(lbn), nearest, hints };
        let goal = self.blocks.prefer(&self.groups, &request);
        // Blocks are taken ahead only for a file's contents and the tables before them.
        let is_mapped = is_regular && has_map && (around.is_some() || nearest.is_some());
        if self.blocks.chunks().is_some() {
            let goal = goal.unwrap_or_else(|| self.groups.shape().base(group));
            let wanted = around.filter(|_| is_regular).map(|Around { left, right }| ChunkWanted {
                ino,
                lbn,
                len: most,
                size,
                left,
                right,
                goal,
                ends_closed: core.delayed.places_closed() && lbn + u64::from(most) == size,
            });
            return self.take_by_chunks(core, goal, wanted.as_ref(), limit);
        }
        let ahead = u32::try_from(room.min(self.blocks.ahead().into())).unwrap_or(1);
        let ahead = if is_mapped { ahead } else { 1 };
        let taken = self.take_once(core, ino, (group, goal), (most, ahead), limit);
        if !matches!(taken, Err(FsError::NoSpace(_))) {
            return taken;
        }
        // Blocks taken ahead by other files.
        self.ahead.give_up_all();
        if !self.give_back_ahead(core)? {
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
    pub(super) fn find_run(
        &mut self,
        core: &mut Core,
        (group, goal): (GroupNo, Option<BlockNo>),
        most: u32,
        limit: u64,
    ) -> Result<(Extent, ChangeId), FsError> {
        debug_assert!(most > 0, "somebody wants a block");
        self.give_back_ahead(core)?;
        let sb = &self.volume.sb;
        let goal = goal.filter(|at| at.get() < sb.blocks && *at >= sb.first_block);
        let start = goal.map_or(group, |at| self.groups.shape().group_of(at));
        let ncg = u64::from(sb.groups);
        // The first group once more at the end, from its first block on.
        let order = (0..=ncg).map(|by| (by, self.groups.shape().group_after(start, by)));
        for (by, number) in order.collect::<Vec<_>>() {
            if self.groups.summary(number).is_none_or(|group| group.nbfree == 0) {
                continue;
            }
            let blocks = self.volume.sb.group_blocks(number);
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
                self.blocks.allocated(run.start + (run.len - 1));
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
        let run = self.volume.sb.group_blocks(number);
        let bits = u32::try_from(run.len).unwrap_or(u32::MAX);
        let barred = barred(core, run);
        let next = self.blocks.takes_next();
        self.take_bits(core, number, |bitmap| {
            if barred.is_empty() {
                return free_run(bitmap, bits, goal, most, next);
            }
            let mut seen = bitmap.to_vec();
            let set = |bit: u32| (!has_bit(&seen, bit)).then(|| flip(&mut seen, bit));
            barred.iter().cloned().flatten().map(set).for_each(drop);
            free_run(&seen, bits, goal, most, next)
        })
    }

    /// Takes the blocks of a group that are chosen by its bitmap.
    pub(super) fn take_bits(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        choose: impl FnOnce(&[u8]) -> Option<Range<u32>>,
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let run = self.volume.sb.group_blocks(number);
        let which = (number, Bitmap::Blocks);
        let taken = self.change_bitmap(core, which, Role::BitmapSet, |bitmap| {
            let found = choose(bitmap);
            debug_assert!(
                found.iter().cloned().flatten().all(|bit| !has_bit(bitmap, bit)),
                "blocks are free before they are taken"
            );
            Ok(found.inspect(|run| run.clone().for_each(|bit| flip(bitmap, bit))))
        })?;
        let Some((bits, id)) = taken else { return Ok(None) };
        let at = run.start + u64::from(bits.start);
        let run = Extent::new(at, seekless_fs::field::wide(bits.len()));
        // The bitmap of a damaged image may have it free.
        self.check_data(run, Location::of("block bitmap").in_group(number))?;
        let blocks = -i32::try_from(bits.len()).unwrap_or(i32::MAX);
        self.account(number, Delta { blocks, ..Delta::default() })?;
        Ok(Some((run, id)))
    }

    /// Gives runs back.
    pub(super) fn give_blocks(&mut self, core: &mut Core, runs: &[Extent]) -> Result<(), FsError> {
        for &run in runs {
            let mut at = run.start;
            while at < run.end() {
                let number = self.groups.shape().group_of(at);
                let group = self.volume.sb.group_blocks(number);
                let end = group.end().min(run.end());
                let bit = |at: BlockNo| u32::try_from(at - group.start).unwrap_or(u32::MAX);
                debug_assert!(at >= group.start, "block {at} lies in group {number}");
                let bits = bit(at)..bit(end);
                debug_assert_eq!(bits.len(), index(end - at), "a bit for each block");
                let place = Location::of("block bitmap").in_group(number);
                let which = (number, Bitmap::Blocks);
                let given = self.change_bitmap(core, which, Role::BitmapClear, |bitmap| {
                    if let Some(free) = bits.clone().find(|&bit| !has_bit(bitmap, bit)) {
                        return Err(invalid("free block", u64::from(free), place));
                    }
                    bits.clone().for_each(|bit| flip(bitmap, bit));
                    Ok(Some(()))
                })?;
                debug_assert!(given.is_some(), "there is nothing to be found");
                let blocks = i32::try_from(bits.len()).unwrap_or(i32::MAX);
                self.account(number, Delta { blocks, ..Delta::default() })?;
                debug_assert!(end > at, "each round does some");
                at = end;
            }
        }
        Ok(())
    }

    /// Checks that a run lies in the volume, and in no metadata.
    pub(super) fn check_data(&self, run: Extent, place: Location) -> Result<(), FsError> {
        let sb = &self.volume.sb;
        let outside = run.end().get() > sb.blocks || run.start < sb.first_block;
        debug_assert!(run.len > 0, "a run has blocks");
        let before = self.metadata.partition_point(|fixed| fixed.end() <= run.start);
        let meets = self.metadata.get(before).is_some_and(|fixed| fixed.overlaps(run));
        if outside || meets {
            return Err(range("block number", run.start.get(), sb.blocks, place));
        }
        Ok(())
    }
}
