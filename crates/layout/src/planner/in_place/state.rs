//! Where things lie while they move.

use super::room::FreeRuns;
use seekless_fs::FsError;
use seekless_fs::plan::in_place::{Changed, Copied, Occupied, Step};
use seekless_fs::plan::{ObjectId, Placed, Run};
use seekless_units::{BlockNo, Extent, Lbn};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A run of blocks inside the region, with its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub(super) extent: Extent,
    pub(super) object: ObjectId,
    /// The first logical block; none for a block of the object's map.
    pub(super) lbn: Option<Lbn>,
}

impl Owned {
    /// The part of it that lies in `range`, which it overlaps.
    pub(super) fn within(self, range: Extent) -> Self {
        debug_assert!(self.extent.overlaps(range), "{:?} and {range:?}", self.extent);
        let start = self.extent.start.max(range.start);
        let end = self.extent.end().min(range.end());
        let skip = start - self.extent.start;
        Self {
            extent: Extent::new(start, end - start),
            lbn: self.lbn.map(|lbn| lbn + skip),
            ..self
        }
    }
}

pub(super) struct State<'a> {
    occupied: &'a dyn Occupied,
    /// The region being laid out again; free blocks in it are not listed.
    pub(super) region: Extent,
    /// Objects that were looked at.
    data: HashMap<ObjectId, Vec<Placed>>,
    maps: HashMap<ObjectId, Vec<BlockNo>>,
    /// Runs in the region that are not in place yet, by first block.
    owners: BTreeMap<u64, Owned>,
    /// Free blocks outside the region.
    pub(super) outside: FreeRuns,
    /// Blocks freed by the last step: the next one may use them.
    freed: Vec<Extent>,
}

/// A step under way.
#[derive(Default)]
pub(super) struct Making {
    pub(super) step: Step,
    /// Changed objects, each with its map before the step.
    changed: BTreeMap<ObjectId, Vec<BlockNo>>,
    groups: BTreeSet<u64>,
}

impl Making {
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    pub(super) fn blocks(&self) -> u64 {
        self.step.blocks()
    }

    pub(super) fn objects(&self) -> usize {
        self.changed.len()
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Notes the groups that a run lies in.
    pub(super) fn touch(&mut self, run: Extent, group_len: u64) {
        debug_assert!(run.len > 0, "a run has blocks");
        let last = run.end().get() - 1;
        self.groups.extend(run.start.get() / group_len..=last / group_len);
    }
}

impl<'a> State<'a> {
    pub(super) fn new(occupied: &'a dyn Occupied, region: Extent, free: &[Extent]) -> Self {
        let mut state = Self {
            occupied,
            region,
            data: HashMap::new(),
            maps: HashMap::new(),
            owners: BTreeMap::new(),
            outside: FreeRuns::default(),
            freed: free.to_vec(),
        };
        state.take_up();
        for object in super::super::objects(occupied) {
            for placed in occupied.data(object) {
                if placed.extent.overlaps(region) {
                    let lbn = Some(placed.lbn);
                    let owned = Owned { extent: placed.extent, object, lbn }.within(region);
                    state.owners.insert(owned.extent.start.get(), owned);
                }
            }
            for block in occupied.map(object) {
                if region.contains(block) {
                    let owned = Owned { extent: Extent::new(block, 1), object, lbn: None };
                    state.owners.insert(block.get(), owned);
                }
            }
        }
        state
    }

    /// Frees the blocks given up by the last step.
    pub(super) fn take_up(&mut self) {
        for run in std::mem::take(&mut self.freed) {
            let (low, high) = (self.region.start, self.region.end());
            let before = run.end().min(low).saturating_since(run.start);
            self.outside.give(Extent::new(run.start, before));
            let from = run.start.max(high);
            self.outside.give(Extent::new(from, run.end().saturating_since(from)));
        }
    }

    pub(super) fn data(&mut self, object: ObjectId) -> &mut Vec<Placed> {
        let occupied = self.occupied;
        self.data.entry(object).or_insert_with(|| occupied.data(object))
    }

    pub(super) fn map(&mut self, object: ObjectId) -> &mut Vec<BlockNo> {
        let occupied = self.occupied;
        self.maps.entry(object).or_insert_with(|| occupied.map(object))
    }

    /// Where a run of an object lies now, piece by piece.
    pub(super) fn places(&mut self, object: ObjectId, run: Run) -> Vec<Placed> {
        let (from, to) = (run.lbn.get(), run.lbn.get() + run.len);
        let data = self.data(object);
        let first = data.partition_point(|placed| placed.lbn.get() + placed.extent.len <= from);
        let mut places = Vec::new();
        for placed in &data[first..] {
            let (low, high) = (placed.lbn.get(), placed.lbn.get() + placed.extent.len);
            if low >= to {
                break;
            }
            let start = low.max(from);
            let at = placed.extent.start + (start - low);
            let extent = Extent::new(at, high.min(to) - start);
            places.push(Placed { lbn: Lbn::new(start), extent });
        }
        debug_assert_eq!(places.iter().map(|placed| placed.extent.len).sum::<u64>(), run.len);
        places
    }

    /// Runs in a part of the region that are not in place yet, in order.
    pub(super) fn owners(&self, range: Extent) -> Vec<Owned> {
        let end = range.end().get();
        let before = self.owners.range(..range.start.get()).next_back().map(|(_, owned)| *owned);
        let within = self.owners.range(range.start.get()..end).map(|(_, owned)| *owned);
        before.into_iter().filter(|owned| owned.extent.overlaps(range)).chain(within).collect()
    }

    /// Counts a part of the region as free, or as in place.
    pub(super) fn disown(&mut self, range: Extent) {
        for owned in self.owners(range) {
            self.owners.remove(&owned.extent.start.get());
            let (start, end) = (owned.extent.start, owned.extent.end());
            let head = Extent::new(start, range.start.saturating_since(start));
            let from = range.end().max(start);
            let tail = Extent::new(from, end.saturating_since(from));
            for rest in [head, tail] {
                if rest.len > 0 {
                    self.owners.insert(rest.start.get(), owned.within(rest));
                }
            }
        }
    }

    fn note_change(&mut self, making: &mut Making, object: ObjectId) {
        making.changed.entry(object).or_insert_with(|| self.map(object).clone());
    }

    /// Lets a run of an object go to `to`, which is as long and was free.
    pub(super) fn relocate(
        &mut self,
        making: &mut Making,
        object: ObjectId,
        run: Run,
        to: &[Extent],
        group_len: u64,
    ) {
        debug_assert_eq!(to.iter().map(|extent| extent.len).sum::<u64>(), run.len);
        self.note_change(making, object);
        let from = self.places(object, run);
        for placed in &from {
            making.step.freed.push(placed.extent);
            making.touch(placed.extent, group_len);
            self.disown(placed.extent);
        }
        for extent in to {
            making.step.taken.push(*extent);
            making.touch(*extent, group_len);
        }
        let first = making.step.copies.len();
        pair(object, &from, to, &mut making.step.copies);
        let copies = &making.step.copies[first..];
        let new: Vec<Placed> =
            copies.iter().map(|copy| Placed { lbn: copy.lbn, extent: copy.to }).collect();
        put(self.data(object), run, new);
    }

    /// Gives an object these blocks for its map instead of those that it has.
    pub(super) fn replace_map(
        &mut self,
        making: &mut Making,
        object: ObjectId,
        blocks: Vec<BlockNo>,
    ) {
        self.note_change(making, object);
        let kept: BTreeSet<BlockNo> = blocks.iter().copied().collect();
        let old = std::mem::replace(self.map(object), blocks);
        for block in old.into_iter().filter(|block| !kept.contains(block)) {
            self.disown(Extent::new(block, 1));
        }
    }

    /// The step, when every map that changed has the blocks that it needs.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when there are none.
    pub(super) fn finish(&mut self, making: Making, group_len: u64) -> Result<Step, FsError> {
        let mut making = making;
        for (object, before) in std::mem::take(&mut making.changed) {
            let data = self.data(object).clone();
            let needed = self.occupied.map_needed(object, &data);
            let mut map = std::mem::take(self.map(object));
            let kept = usize::try_from(needed).unwrap_or(usize::MAX).min(map.len());
            for block in map.drain(kept..) {
                self.disown(Extent::new(block, 1));
            }
            while (map.len() as u64) < needed {
                let more = needed - map.len() as u64;
                let run = self.outside.take(more).ok_or_else(|| {
                    FsError::NoSpace("not enough free blocks for the maps of what moves".into())
                })?;
                map.extend((0..run.len).map(|n| run.start + n));
            }
            let (old, new): (BTreeSet<_>, BTreeSet<_>) =
                (before.iter().copied().collect(), map.iter().copied().collect());
            for &block in new.difference(&old) {
                making.step.taken.push(Extent::new(block, 1));
                making.touch(Extent::new(block, 1), group_len);
            }
            for &block in old.difference(&new) {
                making.step.freed.push(Extent::new(block, 1));
                making.touch(Extent::new(block, 1), group_len);
            }
            self.map(object).clone_from(&map);
            making.step.changed.push(Changed { object, data, map });
        }
        self.freed.clone_from(&making.step.freed);
        Ok(making.step)
    }
}

/// Puts pieces in the place of those of `run`, joined to each other and to their
/// neighbours.
fn put(data: &mut Vec<Placed>, run: Run, pieces: Vec<Placed>) {
    let (low, high) = (run.lbn.get(), run.lbn.get() + run.len);
    let first = data.partition_point(|placed| placed.lbn.get() + placed.extent.len <= low);
    let end = data.partition_point(|placed| placed.lbn.get() < high);
    let (first, end) = (first.saturating_sub(1), (end + 1).min(data.len()));
    let mut new: Vec<Placed> = Vec::with_capacity(pieces.len() + 4);
    for placed in &data[first..end] {
        let (start, end) = (placed.lbn.get(), placed.lbn.get() + placed.extent.len);
        for (from, to) in [(start, end.min(low)), (start.max(high), end)] {
            if from < to {
                let at = placed.extent.start + (from - start);
                new.push(Placed { lbn: Lbn::new(from), extent: Extent::new(at, to - from) });
            }
        }
    }
    new.extend(pieces);
    new.sort_unstable_by_key(|placed| placed.lbn);
    new.dedup_by(|later, earlier| {
        let joins = earlier.extent.end() == later.extent.start
            && earlier.lbn + earlier.extent.len == later.lbn;
        if joins {
            earlier.extent.len += later.extent.len;
        }
        joins
    });
    data.splice(first..end, new);
}

/// Which blocks go where, in runs that are contiguous on both sides.
fn pair(object: ObjectId, from: &[Placed], to: &[Extent], copies: &mut Vec<Copied>) {
    let mut to = to.iter().copied();
    let mut place = Extent::default();
    for placed in from {
        let (mut lbn, mut at, mut left) = (placed.lbn, placed.extent.start, placed.extent.len);
        while left > 0 {
            if place.len == 0 {
                let Some(next) = to.next() else { return };
                place = next;
                continue;
            }
            let len = left.min(place.len);
            copies.push(Copied { object, lbn, from: at, to: Extent::new(place.start, len) });
            (lbn, at) = (lbn + len, at + len);
            place = Extent::new(place.start + len, place.len - len);
            left -= len;
        }
    }
}
