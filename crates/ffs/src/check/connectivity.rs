//! Phase 3: directories that are not connected to the root.

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::names::{Children, place};
use super::problems;
use crate::ondisk::ROOT;
use seekless_fs::FileKind;
use seekless_units::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// Phase 3: directories that are not connected to the root.
pub(super) struct ConnectivityPass<'a> {
    checker: &'a mut Checker,
    children: Children,
}

impl<'a> ConnectivityPass<'a> {
    pub(super) fn new(checker: &'a mut Checker, children: Children) -> Self {
        Self { checker, children }
    }

    /// Finds directories that are not connected to the root.
    pub(super) fn unconnected(&mut self) {
        let root = Ino::new(ROOT);
        let dirs: Vec<Ino> = self
            .checker
            .seen
            .iter()
            .filter(|(_, seen)| seen.kind == FileKind::Directory)
            .map(|(&ino, _)| ino)
            .collect();
        let nameless = |ino: &&Ino| {
            **ino != root && self.checker.seen.get(*ino).is_some_and(|seen| seen.named_in.is_none())
        };
        let alone: Vec<Ino> = dirs.iter().filter(nameless).copied().collect();
        let reached = self.below(alone.iter().copied().chain([root]).collect());
        for ino in alone {
            let what = "in use, but not referenced by any directory entry".to_string();
            self.checker.for_want_of_names(problems::DIRECTORY_UNCONNECTED, what, place(ino));
            self.checker.fix(Stage::Connections, Fix::Connect(ino));
        }
        let unreached: Vec<Ino> = dirs.into_iter().filter(|ino| !reached.contains(ino)).collect();
        for &ino in &unreached {
            let what = "its only names are in directories below itself".to_string();
            self.checker.found(problems::DIRECTORY_LOOP, what, place(ino));
        }
        self.open_loops(&unreached);
    }

    /// Removes a name from each loop of directories.
    fn open_loops(&mut self, unreached: &[Ino]) {
        let mut walks: BTreeMap<Ino, Ino> = BTreeMap::new();
        for &start in unreached {
            let mut at = start;
            // Upwards to a directory that was walked before: if by this walk, it is a loop.
            while !walks.contains_key(&at) {
                walks.insert(at, start);
                let Some(slot) = self.checker.seen.get(&at).and_then(|seen| seen.named_in) else {
                    break;
                };
                at = slot.dir;
                if walks.get(&at) == Some(&start)
                    && let Some(name) = self.checker.seen.get(&at).and_then(|seen| seen.named_in)
                {
                    self.checker.fix(Stage::Names, Fix::Remove(name));
                }
            }
        }
    }

    /// Some directories, and all below them.
    fn below(&self, mut next: Vec<Ino>) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::new();
        while let Some(dir) = next.pop() {
            if reached.insert(dir) {
                next.extend(self.children.get(&dir).into_iter().flatten());
            }
        }
        reached
    }
}
