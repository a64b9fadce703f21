//! The inodes that a check found in use, in order.

use super::fix::Spot;
use seekless_fs::FileKind;
use seekless_fs::field::{index, low32, wide};
use seekless_units::Ino;

/// An inode in use, with its links and the names counted so far.
#[derive(Clone, Copy)]
pub(super) struct CheckedInode {
    pub(super) kind: FileKind,
    /// It has neither blocks nor inline contents.
    pub(super) is_empty: bool,
    /// It needs no name: it belongs to the volume.
    pub(super) is_special: bool,
    /// It may be without a name (`EXT2_IMAGIC_FL`).
    pub(super) is_magic: bool,
    /// It holds an attribute value.
    pub(super) is_value: bool,
    /// Its map cannot be followed, and is not read.
    pub(super) bad_map: bool,
    /// Links it says it has.
    pub(super) links: u16,
    /// Names that lead to it; for a directory also its `.` and the `..` of its subdirectories.
    pub(super) names: u64,
}

/// The place of a directory in the tree.
#[derive(Clone, Copy, Default)]
pub(super) struct DirectoryPlace {
    /// The inode of its `..`.
    pub(super) parent: Option<Ino>,
    /// The entry that names it.
    pub(super) named_in: Option<Spot>,
}

/// Inodes whose memory is allocated together.
const PAGE: usize = 1024;

/// Inodes with numbers behind one another.
struct Page {
    inodes: [Option<CheckedInode>; PAGE],
    /// Directories with lower numbers.
    directories_before: usize,
}

/// Inodes by number. There are up to 2^32 of them, so that each takes 16 bytes; fields of directories
/// alone are kept apart.
#[derive(Default)]
pub(super) struct CheckedInodes {
    pages: Vec<Option<Box<Page>>>,
    /// In the order of their numbers.
    directories: Vec<(Ino, DirectoryPlace)>,
}

const _: () = assert!(size_of::<Option<CheckedInode>>() == 16);

fn slot_of(ino: Ino) -> (usize, usize) {
    let at = index(ino.get());
    (at / PAGE, at % PAGE)
}

impl CheckedInodes {
    fn page(&self, page: usize) -> Option<&Page> {
        self.pages.get(page)?.as_deref()
    }

    pub(super) fn get(&self, ino: Ino) -> Option<&CheckedInode> {
        let (page, at) = slot_of(ino);
        self.page(page)?.inodes.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> Option<&mut CheckedInode> {
        let (page, at) = slot_of(ino);
        self.pages.get_mut(page)?.as_mut()?.inodes.get_mut(at)?.as_mut()
    }

    pub(super) fn contains(&self, ino: Ino) -> bool {
        self.get(ino).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds an inode; each is found once, and those with higher numbers later.
    pub(super) fn insert(&mut self, ino: Ino, inode: CheckedInode) {
        let (page, at) = slot_of(ino);
        debug_assert!(
            self.directories.last().is_none_or(|(last, _)| *last < ino)
                && self.pages.len() <= page + 1,
            "inode {ino} is found in the order of numbers"
        );
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let directories_before = self.directories.len();
        let new = || Box::new(Page { inodes: [const { None }; PAGE], directories_before });
        let slots = self.pages.get_mut(page).map(|page| page.get_or_insert_with(new));
        if inode.kind == FileKind::Directory {
            self.directories.push((ino, DirectoryPlace::default()));
        }
        if let Some(slot) = slots.and_then(|page| page.inodes.get_mut(at)) {
            debug_assert!(slot.is_none(), "inode {ino} is looked at once");
            *slot = Some(inode);
        }
    }

    /// All inodes, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ino, &CheckedInode)> {
        let numbered = (0u64..).step_by(PAGE).zip(&self.pages);
        numbered
            .filter_map(|(first, page)| Some((first, page.as_ref()?)))
            .flat_map(|(first, page)| (first..).zip(page.inodes.iter()))
            .filter_map(|(number, inode)| Some((number, inode.as_ref()?)))
            .map(|(number, inode)| (Ino::new(low32(number)), inode))
    }

    /// The inodes with numbers from `first` to `last`, by number.
    pub(super) fn between(
        &self,
        first: u32,
        last: u32,
    ) -> impl Iterator<Item = (Ino, &CheckedInode)> {
        let (first, last) = (index(first), index(last));
        let pages = first / PAGE..(last / PAGE + 1).min(self.pages.len());
        let pages = pages.filter_map(|page| Some((page, self.page(page)?)));
        pages
            .flat_map(|(page, inodes)| (page * PAGE..).zip(inodes.inodes.iter()))
            .filter(move |(number, _)| (first..=last).contains(number))
            .filter_map(|(number, inode)| Some((Ino::new(low32(wide(number))), inode.as_ref()?)))
    }

    /// The number of directories.
    pub(super) fn directories(&self) -> usize {
        self.directories.len()
    }

    /// How many directories have lower numbers than this one.
    pub(super) fn position_of(&self, dir: Ino) -> Option<usize> {
        let before = self.page(slot_of(dir).0)?.directories_before;
        let end = (before + PAGE).min(self.directories.len());
        let near = self.directories.get(before..end)?;
        Some(before + near.binary_search_by_key(&dir, |(ino, _)| *ino).ok()?)
    }

    /// The place of a directory, as far as it was found.
    pub(super) fn place_of(&self, dir: Ino) -> DirectoryPlace {
        let found = self.position_of(dir).and_then(|at| self.directories.get(at));
        found.map_or_else(DirectoryPlace::default, |(_, place)| *place)
    }

    /// The place of a directory, to be set.
    pub(super) fn place_mut(&mut self, dir: Ino) -> Option<&mut DirectoryPlace> {
        let at = self.position_of(dir)?;
        self.directories.get_mut(at).map(|(_, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_inodes_between_their_ends() {
        let inode = CheckedInode {
            kind: FileKind::Regular,
            is_empty: true,
            is_special: false,
            is_magic: false,
            is_value: false,
            bad_map: false,
            links: 1,
            names: 0,
        };
        let numbers = [1, 2, 11, 1023, 1024, 1025, 4095, 5120, 5121];
        let mut seen = CheckedInodes::default();
        assert_eq!(seen.between(1, u32::MAX).count(), 0);
        for number in numbers {
            seen.insert(Ino::new(number), inode);
        }
        let ends = [1, 2, 3, 1022, 1023, 1024, 1025, 2048, 4096, 5121, 5122, 9000];
        for (first, last) in ends.iter().flat_map(|first| ends.map(|last| (*first, last))) {
            let found: Vec<u32> = seen.between(first, last).map(|(ino, _)| ino.get()).collect();
            let is_between = |number: &u32| (first..=last).contains(number);
            let wanted: Vec<u32> = numbers.into_iter().filter(is_between).collect();
            assert_eq!(found, wanted, "from {first} to {last}");
        }
    }
}
