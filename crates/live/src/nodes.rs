//! The inodes in memory, by number.

use crate::node::{MOST_NODES, Node};
use crate::quota::{Charge, Ledger};
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
    /// Charges of the nodes, where quotas are kept.
    ledger: Option<Box<Ledger>>,
}

impl<M> Default for Nodes<M> {
    fn default() -> Self {
        Self { of: HashMap::new(), spare: Vec::new(), ledger: None }
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
        let node = self.of.get_mut(ino)?;
        if let Some(ledger) = &mut self.ledger {
            ledger.touch(node);
        }
        Some(node)
    }

    /// Keeps the node of a file that is being made.
    pub(crate) fn insert_new(&mut self, ino: Ino, node: Node<M>) {
        if let Some(ledger) = &mut self.ledger {
            ledger.begin(ino);
        }
        self.insert(ino, node);
    }

    /// Keeps a node as it is on the disk, in the place of one with the same number.
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

    /// Forgets the node of a file that is no more. The returned node can be read until the next
    /// one is removed.
    pub fn remove(&mut self, ino: &Ino) -> Option<&Node<M>> {
        self.spare.truncate(MOST_NODES - 1);
        let node = self.of.remove(ino)?;
        if let Some(ledger) = &mut self.ledger {
            ledger.leave(&node, true);
        }
        self.spare.push(node);
        self.spare.last().map(Box::as_ref)
    }

    /// Forgets all but those that are to stay.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&mut Node<M>) -> bool) {
        for (_, node) in self.of.extract_if(|_, node| !stays(node)) {
            if let Some(ledger) = &mut self.ledger {
                ledger.leave(&node, false);
            }
            if self.spare.len() < MOST_NODES {
                self.spare.push(node);
            }
        }
    }

    /// Notes charges of nodes from now on.
    pub(crate) fn keep_ledger(&mut self, ledger: Ledger) {
        self.ledger = Some(Box::new(ledger));
    }

    /// The charges of nodes, where quotas are kept.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_deref()
    }

    /// Takes all changes of charges, before and after.
    pub(crate) fn take_moved(&mut self) -> Vec<(Option<Charge>, Option<Charge>)> {
        let Some(ledger) = &mut self.ledger else { return Vec::new() };
        let of = &self.of;
        ledger.take(|ino| of.get(&ino).map(Box::as_ref))
    }
}
