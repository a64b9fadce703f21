//! The inodes in memory, by number.

use crate::node::{MOST_NODES, Node};
use hashbrown::HashMap;
use seekless_units::Ino;
use std::ops::Deref;

/// Nodes by the numbers of their inodes. Each has memory of its own: tens of thousands may wait for
/// changes, and a table of entries as large as a node is slow to look into and to grow.
///
/// The memory of dropped nodes is kept for new ones, up to as many as are kept when none waits.
/// Soft updates drop thousands at once, and an allocator joins, files and takes apart again memory
/// that is freed in such numbers.
#[derive(Debug)]
pub struct Nodes<M> {
    of: HashMap<Ino, Box<Node<M>>>,
    spare: Vec<Box<Node<M>>>,
}

impl<M> Default for Nodes<M> {
    fn default() -> Self {
        Self { of: HashMap::new(), spare: Vec::new() }
    }
}

impl<M> Deref for Nodes<M> {
    type Target = HashMap<Ino, Box<Node<M>>>;

    fn deref(&self) -> &Self::Target {
        &self.of
    }
}

impl<M> Nodes<M> {
    /// A node, to be changed.
    pub fn get_mut(&mut self, ino: &Ino) -> Option<&mut Node<M>> {
        self.of.get_mut(ino).map(Box::as_mut)
    }

    /// Keeps a node, in the place of one with the same number.
    pub fn insert(&mut self, ino: Ino, node: Node<M>) {
        let kept = match self.spare.pop() {
            Some(mut place) => {
                *place = node;
                place
            }
            None => Box::new(node),
        };
        self.spare.extend(self.of.insert(ino, kept));
        self.spare.truncate(MOST_NODES);
    }

    /// Forgets a node. The returned node can be read until the next one is removed.
    pub fn remove(&mut self, ino: &Ino) -> Option<&Node<M>> {
        self.spare.truncate(MOST_NODES - 1);
        self.spare.push(self.of.remove(ino)?);
        self.spare.last().map(Box::as_ref)
    }

    /// Forgets all but those that are to stay.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&mut Node<M>) -> bool) {
        for (_, node) in self.of.extract_if(|_, node| !stays(node)) {
            if self.spare.len() < MOST_NODES {
                self.spare.push(node);
            }
        }
    }
}
