//! Block allocation as in mballoc: buddies and runs in the bitmaps of groups, with preallocated
//! blocks counted as in use (`fs/ext4/mballoc.c`).

use super::descriptor::Bitmap;
use super::groups::BlockGroups;
use super::layout::Layout;
use super::map::Core;
use super::search::{barred, first_free, flip, full, has_bit};
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_fs::field::wide;
use seekless_placement::block::{ChunkWanted, Chunks, Search};
use seekless_units::{BlockNo, Extent, GroupNo};
use std::ops::Range;

/// mballoc's largest buddy is a quarter of the group that a bitmap of one block describes
/// (`MB_NUM_ORDERS`).
const LARGEST: u32 = 4;

/// Runs that are looked at in a group once one of them is long enough (`s_mb_min_to_scan`).
const MOST_RUNS_TRIED: usize = 10;

/// The criterion by which a group is searched for blocks (`enum criteria`).
#[derive(Clone, Copy)]
enum Criterion {
    /// This many, a power of two, in an aligned piece: the first one of the smallest size that
    /// there is.
    Aligned(u32),
    /// This many in a row, in a group whose free pieces are as long on average: only those that are
    /// long enough are looked at.
    LikelyRun(u32),
    /// This many in a row.
    Run(u32),
}

impl Criterion {
    const fn len(self) -> u32 {
        match self {
            Self::Aligned(len) | Self::LikelyRun(len) | Self::Run(len) => len,
        }
    }

    fn find(self, bitmap: &[u8], bits: u32, largest: u32) -> Option<Range<u32>> {
        match self {
            Self::Aligned(len) => buddy(bitmap, bits, len, largest),
            Self::LikelyRun(len) if average_piece(bitmap, bits) < index(len) => None,
            Self::LikelyRun(len) | Self::Run(len) => {
                let least = if matches!(self, Self::LikelyRun(_)) { len } else { 1 };
                let run = best_run(bitmap, bits, (len, least), largest)?;
                let run = Some(run).filter(|run| run.len() >= index(len))?;
                Some(run.start..run.start + len)
            }
        }
    }
}

/// A bitmap in which blocks that may not be used now are set, and its bits.
struct View {
    bitmap: Vec<u8>,
    bits: u32,
}

/// The first free piece of `len` blocks: of those that are aligned by their own size, and not part
/// of a free one twice as large, the first one of the smallest size.
fn buddy(bitmap: &[u8], bits: u32, len: u32, largest: u32) -> Option<Range<u32>> {
    debug_assert!(len.is_power_of_two(), "a buddy of {len} blocks");
    let count = bits.checked_div(len)?;
    let is_free = |start: u32| first_used(bitmap, start..start + len).is_none();
    let mut free: Vec<bool> = (0..count).map(|at| is_free(at * len)).collect();
    let mut size = len;
    while !free.is_empty() {
        let mut pairs = free.chunks_exact(2);
        let whole: Vec<bool> = pairs.by_ref().map(|pair| pair.iter().all(|&free| free)).collect();
        let is_last = size >= largest;
        let part_of_larger = |at: usize| !is_last && whole.get(at / 2) == Some(&true);
        let mut all = free.iter().enumerate();
        if let Some((at, _)) = all.find(|&(at, &free)| free && !part_of_larger(at)) {
            let start = u32::try_from(at).ok()?.checked_mul(size)?;
            return Some(start..start.checked_add(len)?);
        }
        if is_last {
            return None;
        }
        (free, size) = (whole, size.checked_mul(2)?);
    }
    None
}

/// Free bits of a bitmap in a row, on average (`bb_free` by `bb_fragments`).
fn average_piece(bitmap: &[u8], bits: u32) -> usize {
    let (mut free, mut pieces, mut from) = (0usize, 0usize, 0);
    while let Some(start) = first_free(bitmap, bits, from) {
        from = first_used(bitmap, start..bits).unwrap_or(bits);
        free += (start..from).len();
        pieces += 1;
    }
    free / pieces.max(1)
}

/// The first set bit of a range.
fn first_used(bitmap: &[u8], mut range: Range<u32>) -> Option<u32> {
    range.find(|&bit| has_bit(bitmap, bit))
}

/// The bits of the free buddy that has a free bit: the largest aligned piece around it that
/// is wholly free.
fn buddy_of(bitmap: &[u8], bits: u32, bit: u32, largest: u32) -> Range<u32> {
    debug_assert!(!has_bit(bitmap, bit), "bit {bit} is free");
    let mut piece = bit..bit + 1;
    let mut size = 1u32;
    while size < largest {
        size *= 2;
        let start = bit - bit % size;
        let larger = start..start + size;
        let halves = [larger.start..piece.start, piece.end..larger.end];
        let is_free = |half: Range<u32>| first_used(bitmap, half).is_none();
        if larger.end > bits || !halves.into_iter().all(is_free) {
            break;
        }
        piece = larger;
    }
    piece
}

/// `len` blocks in consecutive free buddies (`ext4_mb_complex_scan_group`): the first run of
/// exactly as many, or the shortest that is enough of the first few; or else the longest. Pieces of
/// less than `least` are passed over.
fn best_run(
    bitmap: &[u8],
    bits: u32,
    (len, least): (u32, u32),
    largest: u32,
) -> Option<Range<u32>> {
    let wanted = index(len);
    let mut best: Option<Range<u32>> = None;
    let (mut from, mut seen) = (0, 0usize);
    while let Some(start) = first_free(bitmap, bits, from) {
        if least > 1 {
            let end = first_used(bitmap, start..bits).unwrap_or(bits);
            if (start..end).len() < index(least) {
                from = end;
                continue;
            }
        }
        let mut end = buddy_of(bitmap, bits, start, largest).end;
        while (start..end).len() < wanted && first_free(bitmap, bits, end) == Some(end) {
            end = buddy_of(bitmap, bits, end, largest).end;
        }
        let run = start..end;
        debug_assert!(start < end && end <= bits, "{run:?} of {bits} bits");
        if run.len() == wanted {
            return Some(run);
        }
        let is_better = best.as_ref().is_none_or(|best| match best.len() >= wanted {
            true => run.len() >= wanted && run.len() < best.len(),
            false => run.len() > best.len(),
        });
        if is_better {
            best = Some(run);
        }
        seen += 1;
        if seen > MOST_RUNS_TRIED && best.as_ref().is_some_and(|best| best.len() >= wanted) {
            break;
        }
        from = end;
    }
    best
}

/// A search for blocks in the groups, by a policy that preallocates blocks for files.
pub(super) struct Mballoc<'a> {
    layout: &'a Layout,
    groups: &'a mut BlockGroups,
    chunks: &'a mut Chunks,
    core: &'a mut Core,
    /// Blocks from here on have numbers that the file's map cannot hold.
    limit: u64,
}

impl<'a> Mballoc<'a> {
    /// A search for blocks in front of `limit`.
    pub(super) fn of(
        (layout, groups): (&'a Layout, &'a mut BlockGroups),
        chunks: &'a mut Chunks,
        core: &'a mut Core,
        limit: u64,
    ) -> Self {
        Self { layout, groups, chunks, core, limit }
    }

    /// Blocks for the contents of a regular file, or a block for anything else.
    pub(super) fn take(
        &mut self,
        goal: BlockNo,
        wanted: Option<&ChunkWanted>,
    ) -> Result<(Extent, ChangeId), FsError> {
        loop {
            if let Some(wanted) = wanted {
                if let Some(taken) = self.take_kept(wanted)? {
                    return Ok(taken);
                }
            } else {
                for number in self.groups_from(goal, 1) {
                    if let Some(taken) = self.take_first(number)? {
                        return Ok(taken);
                    }
                }
            }
            // Preallocations of other files are discarded before there is no space.
            if !self.give_up_kept() {
                return Err(full("blocks"));
            }
        }
    }

    /// Blocks for the contents of a regular file, from its preallocation or from one that is made
    /// now; not more than are wanted.
    fn take_kept(&mut self, wanted: &ChunkWanted) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let run = match self.chunks.take(wanted) {
            Some(run) => run,
            None => {
                let search = self.chunks.search(wanted);
                let Some(found) = self.look_for(&search)? else {
                    return Ok(None);
                };
                self.chunks.found(wanted, &search, found)
            }
        };
        debug_assert!(
            run.len > 0 && run.len <= wanted.len.into(),
            "{run} where {} blocks are wanted",
            wanted.len
        );
        self.take_exactly(run)
    }

    /// A block of a group that is not preallocated: the first free one that is alone, or one of the
    /// smallest of the first free pieces.
    fn take_first(&mut self, number: GroupNo) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let View { bitmap, bits } = self.view(number)?;
        let Some(found) = Criterion::Run(1).find(&bitmap, bits, self.largest_buddy()) else {
            return Ok(None);
        };
        let run = self.run_in(number, &found);
        self.take_exactly(run)
    }

    /// Discards all preallocations. False when there were none.
    fn give_up_kept(&mut self) -> bool {
        self.chunks.clear()
    }

    /// Takes blocks that are known to be free.
    fn take_exactly(&mut self, run: Extent) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let number = self.groups.summaries().shape().group_of(run.start);
        let group = self.layout.sb().group_blocks(number);
        let bit = |at: BlockNo| u32::try_from(at - group.start).unwrap_or(u32::MAX);
        debug_assert!(
            run.start >= group.start && run.end() <= group.end(),
            "{run} lies in one group"
        );
        let bits = bit(run.start)..bit(run.end());
        let taken = self.groups.take_bits(self.core, number, |bitmap| {
            first_used(bitmap, bits.clone()).is_none().then(|| bits.clone())
        })?;
        debug_assert!(taken.is_some(), "{run:?} was free when it was kept");
        Ok(taken)
    }

    /// A group's bitmap, with bits set for blocks that may not be used. A bitmap that was never
    /// written stays so until a block is taken: a search may look at more groups than an operation
    /// can change.
    fn view(&mut self, number: GroupNo) -> Result<View, FsError> {
        let group = self.layout.sb().group_blocks(number);
        let bits = u32::try_from(group.len).unwrap_or(u32::MAX);
        let mut not_now = barred(self.core, group);
        let bit = |at: BlockNo| {
            let within = at.clamp(group.start, group.end()) - group.start;
            u32::try_from(within).unwrap_or(u32::MAX)
        };
        let kept = self.chunks.kept().filter(|run| run.overlaps(group));
        not_now.extend(kept.map(|run| bit(run.start)..bit(run.end())));
        let written = self.groups.bitmap(self.core, number, Bitmap::Blocks)?.map(<[u8]>::to_vec);
        let mut bitmap = match written {
            Some(bitmap) => bitmap,
            None => self.groups.first_bitmap(number, Bitmap::Blocks)?,
        };
        let set = |bit: u32| (!has_bit(&bitmap, bit)).then(|| flip(&mut bitmap, bit));
        not_now.into_iter().flatten().map(set).for_each(drop);
        debug_assert!(index(bits) <= bitmap.len() * 8, "a bitmap has a bit for each block");
        Ok(View { bitmap, bits })
    }

    /// Looks for blocks: at the exact goal; in an aligned piece; in a row, in one group after the
    /// other from the goal's on; or as many as there are anywhere.
    fn look_for(&mut self, search: &Search) -> Result<Option<Extent>, FsError> {
        if let Some(at) = search.exact
            && let Some(run) = self.is_free_at(at, search.len)?
        {
            return Ok(Some(run));
        }
        let aligned = search.len.is_power_of_two() && search.len >= 4;
        let criteria = [
            aligned.then_some(Criterion::Aligned(search.len)),
            Some(Criterion::LikelyRun(search.len)),
            Some(Criterion::Run(search.len)),
        ];
        for criterion in criteria.into_iter().flatten() {
            for number in self.groups_from(search.from, criterion.len()) {
                let is_aligned = matches!(criterion, Criterion::Aligned(_));
                if is_aligned && self.chunks.avoids(number) {
                    continue;
                }
                let View { bitmap, bits } = self.view(number)?;
                let largest = self.largest_buddy();
                if let Some(found) = criterion.find(&bitmap, bits, largest) {
                    return Ok(Some(self.run_in(number, &found)));
                }
            }
        }
        let mut longest: Option<Extent> = None;
        for number in self.groups_from(search.from, 1) {
            let View { bitmap, bits } = self.view(number)?;
            let found = best_run(&bitmap, bits, (bits, 1), self.largest_buddy())
                .map(|run| self.run_in(number, &run));
            if let Some(run) = found
                && longest.is_none_or(|longest| run.len > longest.len)
            {
                longest = Some(run);
            }
        }
        Ok(longest.map(|run| Extent::new(run.start, run.len.min(search.len.into()))))
    }

    /// The groups from that of `goal` on that have `least` free blocks, and whose numbers a map can
    /// hold.
    fn groups_from(&self, goal: BlockNo, least: u32) -> Vec<GroupNo> {
        let shape = *self.groups.summaries().shape();
        let start = shape.group_of(goal);
        let all = (0..u64::from(shape.ncg)).map(|by| shape.group_after(start, by));
        let has = |number: &GroupNo| {
            let free = self.groups.summaries().summary(*number).map_or(0, |group| group.nbfree);
            let end = self.layout.sb().group_blocks(*number).end().get();
            free >= least && end <= self.limit
        };
        all.filter(has).collect()
    }

    fn largest_buddy(&self) -> u32 {
        self.layout.sb().block_size * 8 / LARGEST
    }

    fn run_in(&self, number: GroupNo, bits: &Range<u32>) -> Extent {
        debug_assert!(!bits.is_empty(), "a run has blocks");
        let start = self.layout.sb().group_blocks(number).start;
        Extent::new(start + u64::from(bits.start), wide(bits.len()))
    }

    /// Blocks from one on, if all of them are free.
    fn is_free_at(&mut self, at: BlockNo, len: u32) -> Result<Option<Extent>, FsError> {
        let run = Extent::new(at, u64::from(len));
        let number = self.groups.summaries().shape().group_of(at);
        if u64::from(number.get()) >= u64::from(self.layout.sb().groups) {
            return Ok(None);
        }
        let group = self.layout.sb().group_blocks(number);
        if run.start < group.start || run.end() > group.end() {
            return Ok(None);
        }
        let View { bitmap, .. } = self.view(number)?;
        let first = u32::try_from(at - group.start).unwrap_or(u32::MAX);
        let is_free = first_used(&bitmap, first..first + len).is_none();
        Ok(is_free.then_some(run))
    }
}
