//! Which number each inode gets.

use super::base::Held;
use super::fill::Filled;
use super::walk::TreeWalk;
use super::{Touch, objects};
use seekless_fs::FsError;
use seekless_fs::plan::{Demand, ObjectId, Space};
use seekless_units::{BlockNo, Ino};

/// The free inode numbers, counted without listing them.
struct Slots<'a> {
    space: &'a Space,
    /// Free numbers before each range.
    before: Vec<u64>,
    total: u64,
}

impl<'a> Slots<'a> {
    fn new(space: &'a Space) -> Self {
        let mut before = Vec::with_capacity(space.inodes.len());
        let mut total = 0;
        for &(_, count) in &space.inodes {
            before.push(total);
            total += u64::from(count);
        }
        Self { space, before, total }
    }

    fn ino(&self, slot: u64) -> Ino {
        let at = self.before.partition_point(|&before| before <= slot) - 1;
        self.space.inodes[at].0 + (slot - self.before[at]) as u32
    }

    /// The first slot of the first table that lies at a boundary of chunks of `align` blocks and has
    /// `reserve` slots between it and `next`; `next` if there is none.
    fn behind_reserve(&self, next: u64, reserve: u32, align: u64) -> u64 {
        let Some(table) = self.space.tables.first() else { return next };
        let start = table.blocks.start.get();
        let first = start.next_multiple_of(align);
        let boundaries = (first..table.blocks.end().get()).step_by(align as usize);
        boundaries
            .map(|block| (block - start) as u32 * self.space.inodes_per_block)
            .map(|skipped| self.at_or_after(table.first + skipped))
            .find(|&slot| slot >= next + u64::from(reserve))
            .unwrap_or(next)
    }

    /// The first slot whose number is not below `ino`.
    fn at_or_after(&self, ino: Ino) -> u64 {
        let at = self.space.inodes.partition_point(|&(first, _)| first <= ino);
        match at.checked_sub(1) {
            None => 0,
            Some(at) => {
                let (first, count) = self.space.inodes[at];
                self.before[at] + u64::from((ino - first).min(count))
            }
        }
    }
}

pub(super) fn number_inodes(
    demand: &dyn Demand,
    held: &Held,
    hot: &[Touch],
    filled: &Filled,
    walk: &TreeWalk,
    align: u64,
) -> Result<Vec<Ino>, FsError> {
    let space = &held.space;
    let slots = Slots::new(space);
    let mut inodes = vec![Ino::ZERO; demand.objects()];
    let mut done = vec![false; demand.objects()];
    for object in objects(demand) {
        if demand.is_pinned(object) {
            done[object.index()] = true;
        } else if let Some(ino) = demand.fixed_ino(object).or_else(|| held.ino(object)) {
            inodes[object.index()] = ino;
            done[object.index()] = true;
        }
    }
    let mut remaining = done.iter().filter(|done| !**done).count() as u64;
    if remaining > slots.total {
        return Err(FsError::NoSpace(format!(
            "{remaining} inodes are needed, {} are free",
            slots.total
        )));
    }
    let mut next = 0;
    for touch in hot {
        let at = touch.object.index();
        if !std::mem::replace(&mut done[at], true) {
            inodes[at] = slots.ino(next);
            next += 1;
            remaining -= 1;
        }
    }
    let (gathered, others): (Vec<ObjectId>, Vec<ObjectId>) = walk
        .inode_order(demand)
        .into_iter()
        .filter(|object| !std::mem::replace(&mut done[object.index()], true))
        .partition(|&object| held.gathers(demand.is_directory(object)));
    for object in gathered {
        inodes[object.index()] = slots.ino(next);
        next += 1;
        remaining -= 1;
    }
    if let Some(reserve) = held.inode_reserve() {
        next = slots.behind_reserve(next, reserve, align);
    }
    let mut goal = next;
    let tables = Tables::new(space);
    for object in others {
        let at = object.index();
        if let Some(piece) = filled.pieces(object).first() {
            goal = tables.near(&slots, piece.extent.start);
        }
        let slot = goal.max(next).min(slots.total - remaining);
        inodes[at] = slots.ino(slot);
        next = slot + 1;
        remaining -= 1;
    }
    Ok(inodes)
}

/// The inode tables, those that follow each other on the disk together: with
/// flexible groups (`flex_bg`), any slot of such a run is as near to the groups'
/// blocks as any other, and one that is filled from its beginning takes the fewest
/// blocks and chunks to read.
struct Tables<'a> {
    space: &'a Space,
    /// For each table, the first inode of the run that it is in.
    first: Vec<Ino>,
}

impl<'a> Tables<'a> {
    fn new(space: &'a Space) -> Self {
        let mut first: Vec<Ino> = Vec::with_capacity(space.tables.len());
        for (at, table) in space.tables.iter().enumerate() {
            let joined = at
                .checked_sub(1)
                .filter(|&before| space.tables[before].blocks.end() == table.blocks.start);
            first.push(joined.map_or(table.first, |before| first[before]));
        }
        Self { space, first }
    }

    /// The first slot of the tables of the group that holds `block`.
    fn near(&self, slots: &Slots<'_>, block: BlockNo) -> u64 {
        let at = self.space.tables.partition_point(|table| table.group.start <= block);
        at.checked_sub(1).map_or(0, |at| slots.at_or_after(self.first[at]))
    }
}
