//! The objects of a volume, in the form in which they are placed and written.

use crate::ondisk::{ENTRY_SIZE, MOST_ENTRIES};
use seekless_fs::FsError;
use seekless_fs::plan::{Demand, ObjectId, Placed, Run};
use seekless_units::{Ino, Lbn};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// A file or directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub(crate) is_dir: bool,
    /// Whether it is on the volume at all.
    pub(crate) is_kept: bool,
    /// Its directory, by number; the root is in itself.
    pub(crate) parent: u32,
    /// Its long and short entries in that directory, without the number of its first cluster.
    pub(crate) slots: Vec<u8>,
    /// The number of the first of them in the directory, if they have a place there. All others
    /// follow behind those that have one, in the order of the plan.
    pub(crate) first_slot: Option<u32>,
    /// Bytes of a file.
    pub(crate) size: u64,
    /// Directories only: its entries for itself and its parent, whose numbers of clusters do not count;
    /// empty if they are to have the times of its own entry.
    pub(crate) dots: Vec<u8>,
    /// Directories only: its children, in the order of a walk.
    pub(crate) children: Vec<u32>,
    /// Clusters that it has in any case, even if not needed.
    pub(crate) least_clusters: u64,
}

impl Object {
    fn slot_count(&self) -> u64 {
        (self.slots.len() / ENTRY_SIZE) as u64
    }
}

/// Unused slots of a directory in front of used ones, by length.
#[derive(Default)]
struct Holes(BTreeSet<(u64, u64)>);

impl Holes {
    /// Takes slots from the smallest hole that has so many (best fit).
    fn take(&mut self, len: u64) -> Option<u64> {
        let hole = *self.0.range((len, 0)..).next()?;
        self.0.remove(&hole);
        let (have, start) = hole;
        if have > len {
            self.0.insert((have - len, start + len));
        }
        Some(start)
    }
}

/// All objects; the root is number 0.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) all: Vec<Object>,
    /// Slots of the root directory that belong to no file: the label.
    pub(crate) front: Vec<u8>,
    /// The number of the first of them.
    pub(crate) front_slot: u32,
    /// Whether the root has a place of its own instead of clusters.
    pub(crate) fixed_root: bool,
    /// Bytes in a cluster; decided last.
    pub(crate) cluster: u64,
}

impl Objects {
    /// Entries of 32 bytes in a directory.
    pub(crate) fn dir_slots(&self, at: usize) -> u64 {
        let placed = self.placed_slots(at).map(|slots| slots.end).max().unwrap_or(0);
        let children = self.all[at].children.iter().map(|&child| &self.all[child as usize]);
        let others = children.filter(|child| child.first_slot.is_none());
        placed + others.map(Object::slot_count).sum::<u64>()
    }

    /// The slots of a directory that have a place: those of the label or of `.` and `..`, and
    /// those of its children that have one.
    fn placed_slots(&self, at: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        let own = if at == 0 {
            let first = u64::from(self.front_slot);
            first..first + (self.front.len() / ENTRY_SIZE) as u64
        } else {
            0..2
        };
        let children = self.all[at].children.iter().map(|&child| &self.all[child as usize]);
        let placed = children.filter_map(|child| {
            let first = u64::from(child.first_slot?);
            Some(first..first + child.slot_count())
        });
        std::iter::once(own).filter(|own| !own.is_empty()).chain(placed)
    }

    /// The unused slots of a directory in front of used ones.
    fn holes(&self, at: usize) -> Holes {
        let mut placed: Vec<Range<u64>> = self.placed_slots(at).collect();
        placed.sort_unstable_by_key(|slots| slots.start);
        let mut end = 0;
        let mut holes = Holes::default();
        for slots in placed {
            if end < slots.start {
                holes.0.insert((slots.start - end, end));
            }
            end = slots.end;
        }
        holes
    }

    /// Gives the label a slot that is unused, or the one behind the used ones.
    pub(crate) fn place_front(&mut self) {
        let front = std::mem::take(&mut self.front);
        let slot = match front.is_empty() {
            true => 0,
            false => self
                .holes(0)
                .take(1)
                .unwrap_or_else(|| self.placed_slots(0).map(|slots| slots.end).max().unwrap_or(0)),
        };
        (self.front, self.front_slot) = (front, slot as u32);
    }

    /// Places the entries of a directory that have no place in unused slots, the longest first, each
    /// in the fewest that suffice. Entries without a place are left if no unused slots do.
    pub(crate) fn fill_holes(&mut self, at: usize) {
        let mut holes = self.holes(at);
        let is_left = |&child: &u32| self.all[child as usize].first_slot.is_none();
        let mut left: Vec<u32> = self.all[at].children.iter().copied().filter(is_left).collect();
        left.sort_by_key(|&child| Reverse(self.all[child as usize].slot_count()));
        for child in left {
            let child = &mut self.all[child as usize];
            child.first_slot = holes.take(child.slot_count()).map(|first| first as u32);
        }
    }

    /// Leaves no slots unused in a directory.
    pub(crate) fn pack(&mut self, at: usize) {
        for child in self.all[at].children.clone() {
            self.all[child as usize].first_slot = None;
        }
        if at == 0 {
            self.front_slot = 0;
        }
    }

    /// Refuses directories with too many entries for the format. If unused slots are among them,
    /// the directory is packed.
    pub(crate) fn check_directories(
        &mut self,
        shown: &dyn Fn(usize) -> String,
    ) -> Result<(), FsError> {
        let limit = u64::from(MOST_ENTRIES);
        for at in 0..self.all.len() {
            if !self.all[at].is_dir {
                continue;
            }
            if self.dir_slots(at) > limit {
                self.pack(at);
            }
            let slots = self.dir_slots(at);
            if slots > limit {
                return Err(FsError::NoSpace(format!(
                    "{}: the directory needs {slots} entries, limit {MOST_ENTRIES} (a long name \
                     takes one, and one for each 13 characters)",
                    shown(at)
                )));
            }
        }
        Ok(())
    }

    /// Clusters that an object takes, for clusters of `cluster` bytes.
    pub(crate) fn clusters(&self, at: usize, cluster: u64) -> u64 {
        let object = &self.all[at];
        debug_assert!(object.is_dir || object.children.is_empty(), "files have no children");
        if !object.is_kept || (at == 0 && self.fixed_root) {
            return 0;
        }
        let needed = if object.is_dir {
            (self.dir_slots(at) * ENTRY_SIZE as u64).div_ceil(cluster).max(1)
        } else {
            object.size.div_ceil(cluster)
        };
        needed.max(object.least_clusters)
    }

    /// Clusters of all of them.
    pub(crate) fn total(&self, cluster: u64) -> u64 {
        (0..self.all.len()).map(|at| self.clusters(at, cluster)).sum()
    }

    /// The children of a directory with their first slots. Those that have no place follow in the
    /// order of the numbers that the plan has given.
    pub(crate) fn in_order(&self, at: usize, order: &[Ino]) -> Vec<(u64, u32)> {
        let mut next = self.placed_slots(at).map(|slots| slots.end).max().unwrap_or(0);
        let mut children = self.all[at].children.clone();
        children.sort_by_key(|&child| order[child as usize]);
        let with_slot = |child: u32| {
            let object = &self.all[child as usize];
            let first = object.first_slot.map_or(next, u64::from);
            if object.first_slot.is_none() {
                next += object.slot_count();
            }
            (first, child)
        };
        children.into_iter().map(with_slot).collect()
    }

    fn ids(&self, order: impl Iterator<Item = u32>) -> Vec<ObjectId> {
        order.map(ObjectId::new).collect()
    }

    /// Every directory before its children; files of a directory together.
    fn walk(&self, mut visit: impl FnMut(u32)) {
        let mut stack = vec![0u32];
        while let Some(dir) = stack.pop() {
            visit(dir);
            let children = &self.all[dir as usize].children;
            let (dirs, files): (Vec<u32>, Vec<u32>) =
                children.iter().partition(|&&child| self.all[child as usize].is_dir);
            files.into_iter().for_each(&mut visit);
            stack.extend(dirs.into_iter().rev());
        }
    }
}

impl Demand for Objects {
    fn objects(&self) -> usize {
        self.all.len()
    }

    fn fixed_ino(&self, _: ObjectId) -> Option<Ino> {
        None
    }

    fn is_directory(&self, object: ObjectId) -> bool {
        self.all[object.index()].is_dir
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let len = self.clusters(object.index(), self.cluster);
        runs.extend((len > 0).then_some(Run { lbn: Lbn::ZERO, len }));
    }

    fn overhead_blocks(&self, _: ObjectId, _: &[Placed]) -> u64 {
        // The map is the FAT.
        0
    }

    fn is_pinned(&self, object: ObjectId) -> bool {
        !self.all[object.index()].is_kept
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        let mut order = Vec::with_capacity(self.all.len());
        self.walk(|object| order.push(object));
        self.ids(order.into_iter())
    }

    fn parent(&self, directory: ObjectId) -> Option<ObjectId> {
        let parent = self.all[directory.index()].parent;
        (directory.index() > 0).then(|| ObjectId::new(parent))
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        // The order of entries: by name, directory by directory.
        let mut order = vec![0];
        self.walk(|object| order.extend_from_slice(&self.all[object as usize].children));
        self.ids(order.into_iter())
    }
}
