//! Pass 3: whether every directory is connected to the root.

use super::checker::Checker;
use super::fix::{Fix, Spot, Stage};
use super::names::place;
use super::problems;
use crate::ondisk::special;
use seekless_fs::FileKind;
use seekless_units::Ino;
use std::collections::BTreeSet;

/// Pass 3: directories that are not connected to the root.
pub(super) struct ConnectivityPass<'a> {
    checker: &'a mut Checker,
}

impl<'a> ConnectivityPass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }
}

impl ConnectivityPass<'_> {
    /// Finds directories that are not connected to the root.
    pub(super) fn unconnected(&mut self) {
        let root = Ino::new(special::ROOT);
        let dirs: Vec<(Ino, bool)> = self
            .checker
            .seen
            .iter()
            .filter(|(ino, seen)| {
                seen.kind == FileKind::Directory && !self.checker.orphans.contains(*ino)
            })
            .map(|(&ino, seen)| (ino, seen.named_in.is_none() && ino != root))
            .collect();
        let alone: Vec<Ino> =
            dirs.iter().filter(|(_, nameless)| *nameless).map(|&(ino, _)| ino).collect();
        let reached = self.below(alone.iter().copied().chain([root]).collect());
        for ino in alone {
            // Its parent may have an entry for it, and be unreadable.
            let parent = self.checker.seen.get(&ino).and_then(|seen| seen.parent);
            if parent.is_some_and(|parent| self.is_unreadable(parent)) {
                continue;
            }
            let what = "in use, but not referenced by any directory entry".to_string();
            self.checker.found(problems::DIRECTORY_UNCONNECTED, what, place(ino));
            self.checker.fix(Stage::Connections, Fix::Connect(ino));
        }
        let lost: Vec<Ino> =
            dirs.into_iter().map(|(ino, _)| ino).filter(|ino| !reached.contains(ino)).collect();
        for &ino in &lost {
            let what = "its only names are in directories below itself".to_string();
            self.checker.found(problems::DIRECTORY_LOOP, what, place(ino));
        }
        self.open_loops(&lost);
    }

    /// Removes a name from each loop: then the first of its directories is unconnected, and gets a
    /// name.
    fn open_loops(&mut self, lost: &[Ino]) {
        let mut met: BTreeSet<Ino> = BTreeSet::new();
        for &start in lost {
            let mut way: Vec<(Ino, Spot)> = Vec::new();
            let mut here = start;
            while met.insert(here) {
                let Some(spot) = self.checker.seen.get(&here).and_then(|seen| seen.named_in) else {
                    break;
                };
                way.push((here, spot));
                here = spot.dir;
            }
            // The walk came back to its own path: the loop begins here.
            let Some(from) = way.iter().position(|(dir, _)| *dir == here) else { continue };
            if let Some((_, spot)) = way.iter().skip(from).min() {
                self.checker.fix(Stage::Names, Fix::Remove(*spot));
            }
        }
    }

    /// Whether a directory may have names that were not found.
    fn is_unreadable(&self, dir: Ino) -> bool {
        self.checker.is_lost(dir) || self.checker.cut_short.contains(&dir)
    }

    /// Some directories, and all below them.
    fn below(&self, mut next: Vec<Ino>) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::new();
        while let Some(dir) = next.pop() {
            if reached.insert(dir) {
                next.extend(self.checker.children.get(&dir).into_iter().flatten());
            }
        }
        reached
    }
}
