//! The order of the blocks and inodes that no trace touches.
//!
//! A run with another input than the recorded one reads other files beside the same ones: other
//! modules of a language, other packages of a library. These lie in the directories around the files
//! that the traces touch. The walk therefore visits, in each directory, the subdirectories in which
//! more of all objects are touched before the others, so that the first files behind the touched
//! blocks are those nearest to them in the tree. The objects below a directory stay together.

use super::Touch;
use seekless_fs::field::wide;
use seekless_fs::plan::{Demand, ObjectId};

/// An order of all objects, directory by directory.
pub(super) struct TreeWalk {
    order: Vec<ObjectId>,
    /// By object: the place in which the walk visits the directory that lists it, [`UNLISTED`] for
    /// one that none lists. Empty if the order is that of [`Demand::walk_order`].
    listed: Vec<u32>,
}

/// The place of the directory of an object that none lists: before all others.
const UNLISTED: u32 = 0;

/// A directory with the objects that follow it in a walk up to the next directory: its files.
struct Directory {
    objects: std::ops::Range<usize>,
    /// Directories in it, by their places in the walk.
    below: Vec<usize>,
    /// Number of touched objects in it and below it, and of all.
    touched: u64,
    all: u64,
}

impl TreeWalk {
    pub(super) fn new(demand: &dyn Demand, hot: &[Touch]) -> Self {
        let order = demand.walk_order();
        if hot.is_empty() {
            return Self { order, listed: Vec::new() };
        }
        let (mut directories, roots) = directories(demand, &order, hot);
        let mut stack = by_density(&directories, roots);
        stack.reverse();
        let mut sorted = Vec::with_capacity(order.len());
        // By object, for those that begin a directory.
        let mut visited = vec![UNLISTED; demand.objects()];
        let mut visits = UNLISTED;
        while let Some(at) = stack.pop() {
            let below = std::mem::take(&mut directories[at].below);
            let objects = &order[directories[at].objects.clone()];
            visits += 1;
            visited[objects[0].index()] = visits;
            sorted.extend_from_slice(objects);
            stack.extend(by_density(&directories, below).into_iter().rev());
        }
        assert_eq!(sorted.len(), order.len(), "each directory is below one that precedes it");
        let mut listed = vec![UNLISTED; demand.objects()];
        let mut directory = None;
        for &object in &sorted {
            let lists = match demand.is_directory(object) {
                true => {
                    directory = Some(object);
                    demand.parent(object)
                }
                false => directory,
            };
            listed[object.index()] = lists.map_or(UNLISTED, |lists| visited[lists.index()]);
        }
        Self { order: sorted, listed }
    }

    /// The order in which the blocks of objects are placed.
    pub(super) fn order(&self) -> impl Iterator<Item = ObjectId> {
        self.order.iter().copied()
    }

    /// The order of [`Demand::inode_order`], with the directories in this walk's order.
    pub(super) fn inode_order(&self, demand: &dyn Demand) -> Vec<ObjectId> {
        let mut order = demand.inode_order();
        if !self.listed.is_empty() {
            order.sort_by_key(|object| self.listed[object.index()]);
        }
        order
    }
}

/// The directories of a walk, and which of them are in none.
fn directories(
    demand: &dyn Demand,
    order: &[ObjectId],
    hot: &[Touch],
) -> (Vec<Directory>, Vec<usize>) {
    let mut is_touched = vec![false; demand.objects()];
    for touch in hot {
        is_touched[touch.object.index()] = true;
    }
    let mut directories: Vec<Directory> = Vec::new();
    // By object; `usize::MAX` for those that begin no directory.
    let mut places = vec![usize::MAX; demand.objects()];
    let (mut roots, mut parents) = (Vec::new(), Vec::new());
    for (at, &object) in order.iter().enumerate() {
        if at == 0 || demand.is_directory(object) {
            let place = directories.len();
            let objects = at..at;
            directories.push(Directory { objects, below: Vec::new(), touched: 0, all: 0 });
            places[object.index()] = place;
            let parent = demand.parent(object).map(|parent| places[parent.index()]);
            let parent = parent.filter(|&parent| parent < place);
            match parent {
                Some(parent) => directories[parent].below.push(place),
                None => roots.push(place),
            }
            parents.push(parent);
        }
        let last = directories.last_mut().expect("the first object begins one");
        last.objects.end += 1;
        last.all += 1;
        last.touched += u64::from(is_touched[object.index()]);
    }
    for (at, parent) in parents.iter().enumerate().rev() {
        if let Some(parent) = *parent {
            let (touched, all) = (directories[at].touched, directories[at].all);
            directories[parent].touched += touched;
            directories[parent].all += all;
        }
    }
    debug_assert_eq!(
        roots.iter().map(|&root| directories[root].all).sum::<u64>(),
        wide(order.len()),
        "each object is counted once"
    );
    (directories, roots)
}

/// Those of which a larger part is touched first; equal ones stay in order.
fn by_density(directories: &[Directory], mut some: Vec<usize>) -> Vec<usize> {
    some.sort_by(|&one, &other| {
        let (one, other) = (&directories[one], &directories[other]);
        (other.touched * one.all).cmp(&(one.touched * other.all))
    });
    some
}
