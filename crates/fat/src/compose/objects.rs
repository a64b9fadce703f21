//! The objects of a volume, in the form in which they are placed and written.

use crate::ondisk::{ENTRY_SIZE, MOST_ENTRIES};
use seekless_fs::FsError;
use seekless_fs::plan::{Demand, ObjectId, Placed, Run};
use seekless_units::{Ino, Lbn};

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
    /// Bytes of a file.
    pub(crate) size: u64,
    /// Directories only: its children, in the order of a walk.
    pub(crate) children: Vec<u32>,
    /// Clusters that it has in any case, even if not needed.
    pub(crate) least_clusters: u64,
}

/// All objects; the root is number 0.
pub(crate) struct Objects {
    pub(crate) all: Vec<Object>,
    /// The first slots of the root directory: the label.
    pub(crate) front: Vec<u8>,
    /// Whether the root has a place of its own instead of clusters.
    pub(crate) fixed_root: bool,
    /// Bytes in a cluster; decided last.
    pub(crate) cluster: u64,
}

impl Objects {
    /// Entries of 32 bytes in a directory.
    pub(crate) fn dir_slots(&self, at: usize) -> u64 {
        let slots = |object: &Object| (object.slots.len() / ENTRY_SIZE) as u64;
        let children = self.all[at].children.iter().map(|&child| slots(&self.all[child as usize]));
        let own = if at == 0 { (self.front.len() / ENTRY_SIZE) as u64 } else { 2 };
        own + children.sum::<u64>()
    }

    /// Refuses directories with too many entries for the format.
    pub(crate) fn check_directories(&self, shown: &dyn Fn(usize) -> String) -> Result<(), FsError> {
        for (at, _) in self.all.iter().enumerate().filter(|(_, object)| object.is_dir) {
            let slots = self.dir_slots(at);
            if slots > u64::from(MOST_ENTRIES) {
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

    /// The children of a directory in the order of their entries: by the numbers that the plan has
    /// given.
    pub(crate) fn in_order(&self, at: usize, order: &[Ino]) -> Vec<u32> {
        let mut children = self.all[at].children.clone();
        children.sort_by_key(|&child| order[child as usize]);
        children
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

    fn inode_order(&self) -> Vec<ObjectId> {
        // The order of entries: by name, directory by directory.
        let mut order = vec![0];
        self.walk(|object| order.extend_from_slice(&self.all[object as usize].children));
        self.ids(order.into_iter())
    }
}
