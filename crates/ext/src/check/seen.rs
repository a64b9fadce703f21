//! The inodes that a check found in use, in order.

use super::fix::Spot;
use seekless_fs::FileKind;
use seekless_fs::field::{index, low32};
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
