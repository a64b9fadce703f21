//! Which inodes leave their numbers in an older layout, so that a trace reads fewer parts of inode
//! tables.
//!
//! A kernel reads inodes in windows of a table (`inode_readahead_blks`). Those that the trace reads
//! leave a window all together, or stay: the windows come first that are emptied at the least price.
//! The new numbers are free ones behind one another, in the order of first touch. A number costs the
//! blocks in which it stands: of the table, of the directories that name the inode, of its map, and,
//! for a directory, its own and those of the directories in it.

use super::Touch;
use super::base::Held;
use crate::replay::Machine;
use seekless_fs::plan::{Base, Demand, ObjectId, Run, Space};
use seekless_units::Ino;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The gain and the price of other numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Renumbered {
    /// Inodes of the older layout that get another number.
    pub inodes: u64,
    /// Blocks that change for it, at most.
    pub blocks: u64,
    /// Windows of inode tables that the trace reads without it.
    pub windows_before: u64,
    /// Windows that it reads then.
    pub windows_after: u64,
}

/// Inodes that are read, and the price of their numbers.
struct Numbers<'a> {
    demand: &'a dyn Demand,
    space: &'a Space,
    held: &'a Held,
    /// The directories that name an object.
    named_in: HashMap<ObjectId, Vec<ObjectId>>,
    /// The directories in a directory.
    below: HashMap<ObjectId, Vec<ObjectId>>,
}

/// Blocks that other numbers change.
#[derive(Default)]
struct Changed {
    tables: BTreeSet<u64>,
    /// Blocks of directories that need not change yet: each name changes one of them at most.
    unchanged: HashMap<ObjectId, u64>,
    /// Their number, at most.
    blocks: u64,
}

/// The older layout with other numbers for some of the touched inodes, for which at most `budget`
/// blocks change. None get others where the demand does not tell names.
#[must_use]
pub fn renumber_touched(
    base: Base,
    demand: &dyn Demand,
    space: &Space,
    hot: &[Touch],
    budget: u64,
) -> (Base, Renumbered) {
    if budget == 0 {
        return (base, Renumbered::default());
    }
    let mut named_in: HashMap<ObjectId, Vec<ObjectId>> = HashMap::new();
    let mut below: HashMap<ObjectId, Vec<ObjectId>> = HashMap::new();
    for dir in super::objects(demand).filter(|&object| demand.is_directory(object)) {
        for object in demand.named_in(dir) {
            named_in.entry(object).or_default().push(dir);
            if demand.is_directory(object) {
                below.entry(dir).or_default().push(object);
            }
        }
    }
    if named_in.is_empty() {
        return (base, Renumbered::default());
    }
    let held = Held::new(demand, space, &base);
    let numbers = Numbers { demand, space, held: &held, named_in, below };
    let (given, renumbered) = numbers.choose(hot, budget);
    let mut base = base;
    for (object, ino) in given {
        base.plan.inodes[object.index()] = ino;
    }
    (base, renumbered)
}

impl Numbers<'_> {
    /// The table's block with an inode; `None` outside of the tables.
    fn block(&self, ino: Ino) -> Option<u64> {
        let at = self.space.tables.partition_point(|table| table.first <= ino).checked_sub(1)?;
        let table = &self.space.tables[at];
        let slot = (ino - table.first) / self.space.inodes_per_block.max(1);
        let block = table.blocks.start + u64::from(slot);
        (block < table.blocks.end()).then(|| block.get())
    }

    fn window(&self, ino: Ino) -> Option<u64> {
        Some(self.block(ino)? / Machine::for_layout().inode_read_ahead_blocks.max(1))
    }

    /// The new numbers.
    fn choose(&self, hot: &[Touch], budget: u64) -> (Vec<(ObjectId, Ino)>, Renumbered) {
        // Those that are read, by window; those without a number yet come to the new ones.
        let mut windows: BTreeMap<u64, Vec<ObjectId>> = BTreeMap::new();
        let mut fixed: BTreeSet<u64> = BTreeSet::new();
        let mut fresh: HashSet<ObjectId> = HashSet::new();
        let mut order: Vec<ObjectId> = Vec::new();
        let mut seen = HashSet::new();
        for object in hot.iter().map(|touch| touch.object).filter(|&object| seen.insert(object)) {
            if self.demand.is_pinned(object) {
                continue;
            }
            if let Some(ino) = self.demand.fixed_ino(object) {
                fixed.extend(self.window(ino));
                continue;
            }
            order.push(object);
            match self.held.ino(object).and_then(|ino| self.window(ino)) {
                Some(window) => windows.entry(window).or_default().push(object),
                None => drop(fresh.insert(object)),
            }
        }
        let before: BTreeSet<u64> = windows.keys().copied().chain(fixed.iter().copied()).collect();
        let none = Renumbered {
            windows_before: before.len() as u64,
            windows_after: before.len() as u64,
            ..Renumbered::default()
        };
        let free = self.free_numbers(order.len() as u64, &before);
        // That of the new numbers is read in any case.
        let home = free.first().and_then(|&ino| self.window(ino));
        let may_empty = |window: &u64| !fixed.contains(window) && home != Some(*window);
        let mut by_price: Vec<u64> = windows.keys().copied().filter(may_empty).collect();
        by_price.sort_by_cached_key(|window| (self.price(&windows[window], &free), *window));
        let mut best = (none, 0);
        let mut changed = Changed::default();
        let (mut moved, mut given) = (0, 0);
        // The windows that are left, and those of the new numbers.
        let (mut left, mut new) = (before, BTreeSet::new());
        for (emptied, window) in by_price.iter().enumerate() {
            for &object in &windows[window] {
                self.add(object, &mut changed);
            }
            left.remove(window);
            moved += windows[window].len();
            let Some(targets) = free.get(given..moved + fresh.len()) else { break };
            given += targets.len();
            for &ino in targets {
                changed.add_table(self.block(ino));
                new.extend(self.window(ino));
            }
            if changed.blocks > budget {
                break;
            }
            let renumbered = Renumbered {
                inodes: moved as u64,
                blocks: changed.blocks,
                windows_after: left.union(&new).count() as u64,
                ..none
            };
            if renumbered.windows_after < best.0.windows_after {
                best = (renumbered, emptied + 1);
            }
        }
        let (renumbered, emptied) = best;
        let moved: HashSet<ObjectId> =
            by_price[..emptied].iter().flat_map(|window| &windows[window]).copied().collect();
        let leaves =
            |object: &ObjectId| emptied > 0 && (moved.contains(object) || fresh.contains(object));
        (order.into_iter().filter(leaves).zip(free).collect(), renumbered)
    }

    /// At most `count` free numbers behind one another, in as few windows besides those that are read
    /// as possible; of the longest runs if none has so many.
    fn free_numbers(&self, count: u64, read: &BTreeSet<u64>) -> Vec<Ino> {
        let numbers = |&(first, len): &(Ino, u32)| (0..len).map(move |at| first + at);
        let runs = &self.held.space.inodes;
        let long = runs.iter().filter(|run| u64::from(run.1) >= count);
        let more = |run: &&(Ino, u32)| {
            let numbers = numbers(run).take(count as usize);
            let windows: BTreeSet<u64> = numbers.filter_map(|ino| self.window(ino)).collect();
            windows.difference(read).count()
        };
        if let Some(run) = long.min_by_key(more) {
            return numbers(run).take(count as usize).collect();
        }
        let mut longest = runs.clone();
        longest.sort_by_key(|run| Reverse(run.1));
        longest.iter().flat_map(numbers).take(count as usize).collect()
    }

    /// An upper bound of the blocks that change if these objects get other numbers.
    fn price(&self, objects: &[ObjectId], free: &[Ino]) -> u64 {
        let mut changed = Changed::default();
        for &object in objects {
            self.add(object, &mut changed);
        }
        for &ino in free.iter().take(objects.len()) {
            changed.add_table(self.block(ino));
        }
        changed.blocks
    }

    /// Adds the blocks in which an object's number stands.
    fn add(&self, object: ObjectId, changed: &mut Changed) {
        changed.add_table(self.held.ino(object).and_then(|ino| self.block(ino)));
        changed.blocks += self.held.overhead(object).iter().map(|run| run.len).sum::<u64>();
        for &dir in self.named_in.get(&object).into_iter().flatten() {
            self.add_directory(dir, 1, changed);
        }
        if self.demand.is_directory(object) {
            // Its blocks have its number, by their checksums if not by a name.
            self.add_directory(object, u64::MAX, changed);
            for &dir in self.below.get(&object).into_iter().flatten() {
                self.add_directory(dir, 1, changed);
            }
        }
    }

    /// Adds so many blocks of a directory, as far as it has them.
    fn add_directory(&self, dir: ObjectId, blocks: u64, changed: &mut Changed) {
        let unchanged = changed.unchanged.entry(dir).or_insert_with(|| {
            let mut runs: Vec<Run> = Vec::new();
            self.demand.runs(dir, &mut runs);
            runs.iter().map(|run| run.len).sum()
        });
        let more = blocks.min(*unchanged);
        *unchanged -= more;
        changed.blocks += more;
    }
}

impl Changed {
    fn add_table(&mut self, block: Option<u64>) {
        self.blocks += u64::from(block.is_some_and(|block| self.tables.insert(block)));
    }
}
