//! Pass 3: whether every directory is connected to the root.

use super::checker::Checker;
use super::fix::{Fix, Spot, Stage};
use super::names::place;
use super::problems;
use crate::ondisk::{flags, special};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;
use std::collections::BTreeSet;

/// Free blocks, besides those for the root, that are left when `lost+found` is made.
const SPARE: u64 = 8;

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
                seen.kind == FileKind::Directory && !self.checker.orphans.contains(ino)
            })
            .map(|(ino, _)| {
                (ino, self.checker.seen.place_of(ino).named_in.is_none() && ino != root)
            })
            .collect();
        let alone: Vec<Ino> =
            dirs.iter().filter(|(_, nameless)| *nameless).map(|&(ino, _)| ino).collect();
        for ino in alone {
            // Its parent may have an entry for it, and be unreadable.
            let parent = self.checker.seen.place_of(ino).parent;
            if parent.is_some_and(|parent| self.is_unreadable(parent)) {
                continue;
            }
            let what = "in use, but not referenced by any directory entry".to_string();
            self.checker.found(problems::DIRECTORY_UNCONNECTED, what, place(ino));
            self.checker.fix(Stage::Connections, Fix::Connect(ino));
        }
        let lost = self.in_loops(dirs.into_iter().map(|(ino, _)| ino));
        for &ino in &lost {
            let what = "its only names are in directories below itself".to_string();
            self.checker.found(problems::DIRECTORY_LOOP, what, place(ino));
        }
        self.open_loops(&lost);
    }

    /// A volume with other findings gets a `lost+found` if it has none (e2fsck,
    /// `e2fsck_get_lost_and_found`); not for itself, as many are used without one. Where room is
    /// short the files come first, and a root in its inode has no room for the name.
    pub(super) fn lost_found(&mut self) -> Result<(), FsError> {
        let root = Ino::new(special::ROOT);
        let checker = &mut *self.checker;
        let has_one = checker.lost_found.is_some() || checker.may_have_more_names();
        if checker.report.is_clean() || has_one || !checker.is_directory(root) {
            return Ok(());
        }
        let inode = checker.volume.inodes().read(root)?;
        let blocks = inode.len / u64::from(checker.sb().block_size);
        let has_room = checker.free.0 > 2 * blocks + SPARE && checker.free.1 > 0;
        if has_room && !inode.has_flag(flags::INLINE_DATA) {
            let what = "there is no lost+found".to_string();
            checker.found(problems::LOST_FOUND_MISSING, what, place(root));
            checker.fix(Stage::Connections, Fix::LostFound);
        }
        Ok(())
    }

    /// Those of some directories from which the way up leads neither to the root nor to one without a
    /// name.
    fn in_loops(&self, dirs: impl Iterator<Item = Ino>) -> Vec<Ino> {
        let root = Ino::new(special::ROOT);
        let seen = &self.checker.seen;
        // Whether a way up that begins at a directory ends, by their position.
        let mut ends: Vec<Option<bool>> = vec![None; seen.directories()];
        let mut lost = Vec::new();
        let mut way = Vec::new();
        for dir in dirs {
            let mut here = dir;
            let is_end = loop {
                let Some(at) = seen.position_of(here) else { break false };
                let Some(known) = ends.get_mut(at) else { break false };
                if let Some(known) = *known {
                    break known;
                }
                // It leads into a loop if it comes here again.
                *known = Some(false);
                way.push(at);
                match seen.place_of(here).named_in {
                    _ if here == root => break true,
                    Some(spot) => here = spot.dir,
                    None => break !self.checker.orphans.contains(&here),
                }
            };
            for at in way.drain(..) {
                if let Some(known) = ends.get_mut(at) {
                    *known = Some(is_end);
                }
            }
            if !is_end {
                lost.push(dir);
            }
        }
        lost
    }

    /// Removes a name from each loop: then the first of its directories is unconnected, and gets a
    /// name.
    fn open_loops(&mut self, lost: &[Ino]) {
        let mut met: BTreeSet<Ino> = BTreeSet::new();
        for &start in lost {
            let mut way: Vec<(Ino, Spot)> = Vec::new();
            let mut here = start;
            while met.insert(here) {
                let Some(spot) = self.checker.seen.place_of(here).named_in else {
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
}
