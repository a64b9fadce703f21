//! The names of directories with inline data in use, shown as those of a unit: `.`, `..`, the
//! entries in `i_block` behind the number of the parent, and the value of the attribute. No entry
//! crosses from one of these parts to the next, so nothing is moved in them.

use super::contents::FileContents;
use super::entries::Entries;
use super::inline::{InlineContents, without_data};
use super::map::{Core, Node};
use super::maps::FileMaps;
use crate::inline::{HEAD, PARENT, place};
use crate::inode::Inode;
use crate::ondisk::{DOTDOT_INO, IBlock};
use crate::xattr::data_room;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{invalid, le32, range, slice, wide};
use seekless_fs::{FileKind, FsError};
use seekless_live::{Codec, Contents, Entry, NamePlace};
use seekless_units::Ino;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of the entries `.` and `..` of a directory.
const DOTS: usize = 24;

/// The entries of an inline directory without any: all of `i_block` behind the parent.
fn put_empty(entries: &Entries, part: &mut [u8]) {
    part.fill(0);
    entries.put_len(part, 0, part.len());
}

/// A directory that has its names in its inode.
pub(super) struct InlineNames<'a> {
    maps: &'a mut FileMaps,
    core: &'a mut Core,
    entries: Entries,
    dir: Ino,
}

impl<'a> InlineNames<'a> {
    /// The names of a directory that is in memory.
    pub(super) fn of(
        maps: &'a mut FileMaps,
        core: &'a mut Core,
        entries: Entries,
        dir: Ino,
    ) -> Self {
        Self { maps, core, entries, dir }
    }

    fn inline(&mut self) -> InlineContents<'_> {
        InlineContents::of(self.maps, self.core, self.dir)
    }

    fn node(&mut self) -> Result<&mut Node, FsError> {
        self.core.node(self.dir)
    }

    fn inode(&mut self) -> Result<Inode, FsError> {
        self.maps.tables().read(self.core, self.dir)
    }

    /// The first entries of a new directory that has its names in its inode.
    pub(super) fn first(&mut self, unit: &[u8]) -> Result<Contents, FsError> {
        let parent = le32(unit, DOTDOT_INO).unwrap_or(0);
        debug_assert_ne!(parent, 0, "it has a parent");
        let mut root = IBlock::default();
        let (number, part) = root.0.split_at_mut(PARENT);
        number.copy_from_slice(&parent.to_le_bytes());
        put_empty(&self.entries, part);
        let node = self.node()?;
        (node.map.root, node.size, node.sectors) = (root, wide(HEAD), 0);
        Ok(Contents::default())
    }

    /// The names of a directory in memory as a unit.
    pub(super) fn unit(&mut self) -> Result<Vec<u8>, FsError> {
        let bytes = self.inline().get()?;
        let parent = Ino::new(le32(&bytes, 0).unwrap_or(0));
        let mut unit = vec![0; DOTS];
        let kind = self.entries.code_of(FileKind::Directory);
        for (at, ino, name) in [(0, self.dir, &b"."[..]), (DOTS / 2, parent, b"..")] {
            let (len, needed) = (DOTS / 2, Entries::needed(name.len()));
            let entry = Entry { at, len, needed, ino, kind, is_name: true, name };
            self.entries.put(&mut unit, &entry);
        }
        unit.extend(bytes.get(PARENT..).unwrap_or_default());
        // If blocks end with a checksum, units do.
        unit.resize(unit.len() + self.entries.tail, 0);
        self.check_parts(&unit)?;
        Ok(unit)
    }

    /// Where the entries of a unit stand in `i_block`, and those behind.
    fn parts(&self, unit: &[u8]) -> [Range<usize>; 2] {
        debug_assert!(unit.len() >= DOTS + self.entries.tail, "a unit has both dots");
        let middle = DOTS + HEAD - PARENT;
        let end = unit.len() - self.entries.tail;
        [DOTS..middle.min(end), middle.min(end)..end]
    }

    /// Checks that no entry crosses from one part to the other.
    fn check_parts(&self, unit: &[u8]) -> Result<(), FsError> {
        let [_, behind] = self.parts(unit);
        let mut starts = behind.is_empty();
        let (parent, inodes) = (le32(unit, DOTDOT_INO).unwrap_or(0), self.entries.inodes);
        if parent == 0 || parent > inodes {
            return Err(range("..", u64::from(parent), u64::from(inodes), place(self.dir)));
        }
        for entry in self.entries.entries(unit, place(self.dir)) {
            starts |= entry?.at == behind.start;
        }
        if starts { Ok(()) } else { Err(invalid("rec_len", wide(behind.start), place(self.dir))) }
    }

    /// Writes the names of a directory, as a unit, back into its inode.
    pub(super) fn put(&mut self, unit: &[u8]) -> Result<(), FsError> {
        self.check_parts(unit)?;
        let [first, behind] = self.parts(unit);
        let parent = slice(unit, DOTDOT_INO, PARENT).unwrap_or_default();
        let names = unit.get(first.start..behind.end).unwrap_or_default();
        if self.inline().put(&[parent, names].concat())? {
            return Ok(());
        }
        // The old number of bytes does not fit: attributes overlap.
        Err(invalid("system.data", wide(behind.len()), place(self.dir)))
    }

    /// Room for a name in a directory that has its names in its inode: in place, in a longer value
    /// of the attribute, or in a block, to which all of them move.
    pub(super) fn name_place(&mut self, name: &[u8]) -> Result<NamePlace, FsError> {
        let needed = Entries::needed(name.len());
        let unit = &self.unit()?;
        let here = NamePlace { unit: Some(0), ..NamePlace::default() };
        if self.entries.fit(unit, place(self.dir), needed)?.is_some() {
            return Ok(here);
        }
        let longer = self.lengthened(unit)?;
        if self.entries.fit(&longer, place(self.dir), needed)?.is_some() {
            self.put(&longer)?;
            return Ok(here);
        }
        let reached = self.move_names_out(unit)?;
        let (rewritten, reached) = (SmallVec::from_slice(&[0]), SmallVec::from_slice(&[reached]));
        Ok(NamePlace { unit: None, rewritten, reached })
    }

    /// A unit with the longest possible value of the attribute: the new bytes belong to the last
    /// entry (`ext4_update_final_de`), or are an unused one.
    fn lengthened(&mut self, unit: &[u8]) -> Result<Vec<u8>, FsError> {
        let [_, behind] = self.parts(unit);
        let room = data_room(&self.inode()?)?.unwrap_or(0);
        let mut longer = unit.to_vec();
        // Attributes that overlap leave less than there is.
        let Some(more) = room.checked_sub(behind.len()).filter(|it| *it >= Entries::needed(1))
        else {
            return Ok(longer);
        };
        longer.resize(longer.len() + more, 0);
        let mut last = None;
        for entry in self.entries.entries(unit, place(self.dir)) {
            let entry = entry?;
            last = Some((entry.at, entry.len)).filter(|_| entry.at >= behind.start);
        }
        let (at, len) = last.unwrap_or((behind.end, 0));
        self.entries.put_len(&mut longer, at, len + more);
        Ok(longer)
    }

    /// Moves the names of a directory to a block. The returned change must be on the disk for them
    /// to be reached.
    fn move_names_out(&mut self, unit: &[u8]) -> Result<ChangeId, FsError> {
        let inner = without_data(&self.inode()?)?;
        let mut block = vec![0; self.maps.layout().block_len()];
        self.entries.blank(&mut block);
        let end = block.len() - self.entries.tail;
        let (mut at, mut last) = (0usize, 0usize);
        for entry in self.entries.entries(unit, place(self.dir)) {
            let entry = entry?;
            if entry.is_used() {
                self.entries.put(&mut block, &Entry { at, len: entry.needed, ..entry });
                (last, at) = (at, at + entry.needed);
            }
        }
        debug_assert!(at <= end, "an inode is no longer than a block");
        self.entries.put_len(&mut block, last, end - last);
        debug_assert!(at >= 2 * Entries::needed(2), "the names begin with both dots");
        let saved = self.node()?.clone();
        debug_assert_eq!(saved.kind, FileKind::Directory, "only these have names");
        self.inline().leave_inode()?;
        let len = block.len();
        let made = FileContents::of(self.maps, self.core, self.dir).first_block(
            len,
            Role::DirectoryInit,
            block,
        );
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                *self.node()? = saved;
                return Err(error);
            }
        };
        let node = self.node()?;
        // Its attributes may have a block already.
        node.sectors += saved.sectors;
        self.inline().put_both(Some(inner), &made.after)
    }
}
