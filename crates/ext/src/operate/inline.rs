//! Files and directories with inline data in use: contents in `i_block` and behind
//! them in the attribute `system.data` (`fs/ext4/inline.c`). They stay in the inode as
//! long as they fit there, and are moved out to a block when they grow.
//!
//! The names of such a directory are shown as those of a unit: `.`, `..`, the entries in `i_block`
//! behind the number of the parent, and the value of the attribute. No entry crosses from one of
//! these parts to the next, so nothing is moved in them.
//!
//! Inode and contents change together, in one block: this is used only under disciplines that need
//! no order of single writes, or with a journal.

use super::entries::Entries;
use super::extents::{self, Tree};
use super::{Core, Ext, Node};
use crate::inline::{PARENT, find};
use crate::inode::Inode;
use crate::ondisk::{DOTDOT_INO, IBlock, INODE_CORE_SIZE, flags, incompat};
use crate::xattr::{data_room, empty_data, inline_value, with_data};
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, invalid, le32, range, slice, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::indirect::{Files, Trees};
use seekless_live::{Codec, Contents, Entry, Linked, NamePlace, Part, Table};
use seekless_units::Ino;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes in `i_block`.
const HEAD: usize = size_of::<IBlock>();
/// Bytes of the entries `.` and `..` of a directory.
const DOTS: usize = 24;

fn place(ino: Ino) -> Location {
    Location::of("inline data").in_inode(ino)
}

/// Checks the inline data of an inode.
///
/// # Errors
/// [`FsError::Corrupt`] without the attribute, for a file longer than both parts, and a
/// directory that is not as long as they are.
pub(super) fn check(inode: &Inode, kind: FileKind) -> Result<(), FsError> {
    let place = place(inode.ino);
    if inode.has_flag(flags::EXTENTS) || inode.has_flag(flags::INDEX) {
        return Err(invalid("i_flags", u64::from(inode.core.i_flags.get()), place));
    }
    let Some(value) = inline_value(inode)? else {
        return Err(invalid("system.data", 0, place));
    };
    let room = wide(HEAD + value.len());
    let fits = match kind {
        FileKind::Regular | FileKind::Symlink => inode.len <= room,
        FileKind::Directory => inode.len == room,
        _ => return Err(invalid("i_flags", u64::from(inode.core.i_flags.get()), place)),
    };
    if fits { Ok(()) } else { Err(range("i_size", inode.len, room, place)) }
}

/// The contents of an inode, as far as its length goes.
pub(super) fn contents(inode: &Inode) -> Result<Vec<u8>, FsError> {
    let mut whole = find(inode)?.whole();
    whole.truncate(index(inode.len));
    Ok(whole)
}

/// Whether a file's contents are in its inode.
pub(super) fn is_inline(core: &mut Core, ino: Ino) -> Result<bool, FsError> {
    Ok(core.node(ino)?.flags & flags::INLINE_DATA != 0)
}

/// The entries of an inline directory without any: all of `i_block` behind the parent.
fn put_empty(entries: &Entries, part: &mut [u8]) {
    part.fill(0);
    entries.put_len(part, 0, part.len());
}

impl Ext {
    /// Gives a new file or directory inline data, if the volume has that feature.
    pub(super) fn fit_inline(&self, node: &mut Node) {
        debug_assert!(node.has_blocks(), "nothing else has contents of its own");
        if !self.volume.sb.has_incompat(incompat::INLINE_DATA) {
            return;
        }
        let room = self.inode_len() - INODE_CORE_SIZE;
        let Some(inner) = empty_data(room - usize::from(self.extra_isize())) else {
            return;
        };
        debug_assert!(node.map.inner.is_none(), "a new inode has no attributes yet");
        node.flags |= flags::INLINE_DATA;
        node.map.inner = Some(inner.into());
    }

    /// The contents of a file in memory, if they are in its inode.
    pub(super) fn inline_contents(
        &self,
        core: &mut Core,
        ino: Ino,
    ) -> Result<Option<Vec<u8>>, FsError> {
        if !is_inline(core, ino)? {
            return Ok(None);
        }
        contents(&self.inode_now(core, ino)?).map(Some)
    }

    /// Writes all contents of a file into the inode. False where they do not fit.
    fn put_inline(&mut self, core: &mut Core, ino: Ino, bytes: &[u8]) -> Result<bool, FsError> {
        debug_assert!(is_inline(core, ino)?, "contents stay where they are");
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
        let Some(inner) = with_data(&self.inode_now(core, ino)?, Some(rest))? else {
            return Ok(false);
        };
        let mut root = IBlock::default();
        root.0.iter_mut().zip(head).for_each(|(to, &from)| *to = from);
        let node = core.node(ino)?;
        (node.map.root, node.size) = (root, wide(bytes.len()));
        self.put_both(core, ino, Some(inner), &[])?;
        Ok(true)
    }

    /// Writes size, `i_block` and flags of a node, and the bytes of its attributes.
    fn put_both(
        &mut self,
        core: &mut Core,
        ino: Ino,
        inner: Option<Vec<u8>>,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        debug_assert!(core.node(ino)?.map.inner.is_none(), "one change is made at a time");
        core.node(ino)?.map.inner = inner.map(Into::into);
        let changed = self.put_part(core, ino, Part::Map, Role::PointerSet, after, None)?.id;
        let rest = self.put_rest(core, ino);
        core.node(ino)?.map.inner = None;
        rest.map(|()| changed)
    }

    /// Most bytes of contents that an inode can hold beside its attributes.
    fn inline_room(&self, core: &mut Core, ino: Ino) -> Result<u64, FsError> {
        let room = data_room(&self.inode_now(core, ino)?)?;
        Ok(room.map_or(0, |room| wide(room + HEAD)))
    }

    /// Writes bytes of a file that has its contents in its inode. False if they do not fit: then
    /// its contents are in a block now, and nothing is written.
    pub(super) fn write_inline(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<bool, FsError> {
        let end = offset.checked_add(wide(bytes.len()));
        let room = self.inline_room(core, ino)?;
        if let Some(end) = end.filter(|&end| end <= room) {
            let mut all = contents(&self.inode_now(core, ino)?)?;
            all.resize(all.len().max(index(end)), 0);
            if let Some(to) = all.get_mut(index(offset)..index(end)) {
                to.copy_from_slice(bytes);
            }
            if self.put_inline(core, ino, &all)? {
                return Ok(true);
            }
        }
        self.move_out(core, ino)?;
        Ok(false)
    }

    /// Prepares a file for delayed bytes ([`Format::delays`]). False for bytes that are not
    /// delayed: those that fit in the inode, and those of files with block maps.
    pub(super) fn make_ready(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<bool, FsError> {
        if !self.delays {
            return Ok(false);
        }
        let end = offset.checked_add(len);
        if is_inline(core, ino)? {
            let room = self.inline_room(core, ino)?;
            if end.is_some_and(|end| end <= room) {
                return Ok(false);
            }
            self.move_out(core, ino)?;
        }
        if !extents::maps(core, ino)? {
            return Ok(false);
        }
        let end = Tree::of(self, core, ino).check_len(end)?;
        self.allow_length(core, end)?;
        let size = core.node(ino)?.size;
        Tree::of(self, core, ino).zero_tail(size, offset)?;
        Ok(true)
    }

    /// Sets the length of a file that has its contents in its inode. False if they do not fit any
    /// more: then they are in a block, and the length is unchanged.
    pub(super) fn truncate_inline(
        &mut self,
        core: &mut Core,
        ino: Ino,
        len: u64,
    ) -> Result<bool, FsError> {
        if len == core.node(ino)?.size {
            return Ok(true);
        }
        if len <= self.inline_room(core, ino)?.max(core.node(ino)?.size) {
            let mut all = contents(&self.inode_now(core, ino)?)?;
            all.resize(index(len), 0);
            if self.put_inline(core, ino, &all)? {
                return Ok(true);
            }
        }
        self.move_out(core, ino)?;
        Ok(false)
    }

    /// Moves the contents of a file from its inode to a block, if there are any. When
    /// there is no space for it nothing has changed.
    pub(super) fn move_out(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        let inode = self.inode_now(core, ino)?;
        let (bytes, inner) = (contents(&inode)?, without_data(&inode)?);
        let saved = core.node(ino)?.clone();
        debug_assert_eq!(saved.kind, FileKind::Regular);
        self.leave_inode(core.node(ino)?);
        core.node(ino)?.size = 0;
        let written = if bytes.is_empty() {
            Ok(0)
        } else if extents::maps(core, ino)? {
            Tree::of(self, core, ino).write_over(0, &bytes, saved.size)
        } else {
            Files::of(self, core).write_over(ino, 0, &bytes, saved.size)
        };
        if let Err(error) = written {
            *core.node(ino)? = saved;
            self.put_both(core, ino, None, &[])?;
            return Err(error);
        }
        debug_assert_eq!(written.ok(), Some(bytes.len()), "it is less than a block");
        self.put_both(core, ino, Some(inner), &[])?;
        Ok(())
    }

    /// Turns a node into one with blocks, of which it has none yet.
    fn leave_inode(&self, node: &mut Node) {
        debug_assert_ne!(node.flags & flags::INLINE_DATA, 0, "its contents are in the inode");
        node.flags &= !flags::INLINE_DATA;
        (node.map.trees, node.map.root) = (Trees::default(), IBlock::default());
        (node.map.near, node.map.last) = (None, None);
        if self.volume.sb.has_incompat(incompat::EXTENTS) {
            node.flags |= flags::EXTENTS;
            node.map.root = extents::empty_root();
        }
    }

    /// The first entries of a new directory that has its names in its inode.
    pub(super) fn first_names(
        &mut self,
        core: &mut Core,
        dir: Ino,
        unit: &[u8],
    ) -> Result<Contents, FsError> {
        let parent = le32(unit, DOTDOT_INO).unwrap_or(0);
        debug_assert_ne!(parent, 0, "it has a parent");
        let mut root = IBlock::default();
        let (number, part) = root.0.split_at_mut(PARENT);
        number.copy_from_slice(&parent.to_le_bytes());
        put_empty(&self.entries, part);
        let node = core.node(dir)?;
        (node.map.root, node.size, node.sectors) = (root, wide(HEAD), 0);
        Ok(Contents::default())
    }

    /// The names of a directory in memory as a unit, if they are in its inode.
    pub(super) fn inline_names(
        &self,
        core: &mut Core,
        dir: Ino,
    ) -> Result<Option<Vec<u8>>, FsError> {
        let Some(bytes) = self.inline_contents(core, dir)? else { return Ok(None) };
        let parent = Ino::new(le32(&bytes, 0).unwrap_or(0));
        let mut unit = vec![0; DOTS];
        let kind = self.entries.code_of(FileKind::Directory);
        for (at, ino, name) in [(0, dir, &b"."[..]), (DOTS / 2, parent, b"..")] {
            let (len, needed) = (DOTS / 2, Entries::needed(name.len()));
            let entry = Entry { at, len, needed, ino, kind, is_name: true, name };
            self.entries.put(&mut unit, &entry);
        }
        unit.extend(bytes.get(PARENT..).unwrap_or_default());
        // If blocks end with a checksum, units do.
        unit.resize(unit.len() + self.entries.tail, 0);
        self.check_parts(&unit, dir)?;
        Ok(Some(unit))
    }

    /// Where the entries of a unit stand in `i_block`, and those behind.
    fn parts(&self, unit: &[u8]) -> [Range<usize>; 2] {
        debug_assert!(unit.len() >= DOTS + self.entries.tail, "a unit has both dots");
        let middle = DOTS + HEAD - PARENT;
        let end = unit.len() - self.entries.tail;
        [DOTS..middle.min(end), middle.min(end)..end]
    }

    /// Checks that no entry crosses from one part to the other.
    fn check_parts(&self, unit: &[u8], dir: Ino) -> Result<(), FsError> {
        let [_, behind] = self.parts(unit);
        let mut starts = behind.is_empty();
        let (parent, inodes) = (le32(unit, DOTDOT_INO).unwrap_or(0), self.entries.inodes);
        if parent == 0 || parent > inodes {
            return Err(range("..", u64::from(parent), u64::from(inodes), place(dir)));
        }
        for entry in self.entries.entries(unit, place(dir)) {
            starts |= entry?.at == behind.start;
        }
        if starts { Ok(()) } else { Err(invalid("rec_len", wide(behind.start), place(dir))) }
    }

    /// Writes the names of a directory, as a unit, back into its inode.
    pub(super) fn put_inline_names(
        &mut self,
        core: &mut Core,
        dir: Ino,
        unit: &[u8],
    ) -> Result<(), FsError> {
        self.check_parts(unit, dir)?;
        let [first, behind] = self.parts(unit);
        let parent = slice(unit, DOTDOT_INO, PARENT).unwrap_or_default();
        let names = unit.get(first.start..behind.end).unwrap_or_default();
        if self.put_inline(core, dir, &[parent, names].concat())? {
            return Ok(());
        }
        // The old number of bytes does not fit: attributes overlap.
        Err(invalid("system.data", wide(behind.len()), place(dir)))
    }

    /// Room for a name in a directory that has its names in its inode: in place, in a longer value
    /// of the attribute, or in a block, to which all of them move.
    pub(super) fn inline_place(
        &mut self,
        core: &mut Core,
        dir: Ino,
        unit: &[u8],
        needed: usize,
    ) -> Result<NamePlace, FsError> {
        let here = NamePlace { unit: Some(0), ..NamePlace::default() };
        if self.entries.fit(unit, place(dir), needed)?.is_some() {
            return Ok(here);
        }
        let longer = self.lengthened(core, dir, unit)?;
        if self.entries.fit(&longer, place(dir), needed)?.is_some() {
            self.put_inline_names(core, dir, &longer)?;
            return Ok(here);
        }
        let reached = self.move_names_out(core, dir, unit)?;
        let (rewritten, reached) = (SmallVec::from_slice(&[0]), SmallVec::from_slice(&[reached]));
        Ok(NamePlace { unit: None, rewritten, reached })
    }

    /// A unit with the longest possible value of the attribute: the new bytes belong to the last
    /// entry (`ext4_update_final_de`), or are an unused one.
    fn lengthened(&self, core: &mut Core, dir: Ino, unit: &[u8]) -> Result<Vec<u8>, FsError> {
        let [_, behind] = self.parts(unit);
        let room = data_room(&self.inode_now(core, dir)?)?.unwrap_or(0);
        let mut longer = unit.to_vec();
        // Attributes that overlap leave less than there is.
        let Some(more) = room.checked_sub(behind.len()).filter(|it| *it >= Entries::needed(1))
        else {
            return Ok(longer);
        };
        longer.resize(longer.len() + more, 0);
        let mut last = None;
        for entry in self.entries.entries(unit, place(dir)) {
            let entry = entry?;
            last = Some((entry.at, entry.len)).filter(|_| entry.at >= behind.start);
        }
        let (at, len) = last.unwrap_or((behind.end, 0));
        self.entries.put_len(&mut longer, at, len + more);
        Ok(longer)
    }

    /// Moves the names of a directory to a block. The returned change must be on the disk for them
    /// to be reached.
    fn move_names_out(
        &mut self,
        core: &mut Core,
        dir: Ino,
        unit: &[u8],
    ) -> Result<ChangeId, FsError> {
        let inner = without_data(&self.inode_now(core, dir)?)?;
        let mut block = vec![0; self.volume.block_len()];
        self.entries.blank(&mut block);
        let end = block.len() - self.entries.tail;
        let (mut at, mut last) = (0usize, 0usize);
        for entry in self.entries.entries(unit, place(dir)) {
            let entry = entry?;
            if entry.is_used() {
                self.entries.put(&mut block, &Entry { at, len: entry.needed, ..entry });
                (last, at) = (at, at + entry.needed);
            }
        }
        debug_assert!(at <= end, "an inode is no longer than a block");
        self.entries.put_len(&mut block, last, end - last);
        debug_assert!(at >= 2 * Entries::needed(2), "the names begin with both dots");
        let saved = core.node(dir)?.clone();
        debug_assert_eq!(saved.kind, FileKind::Directory, "only these have names");
        self.leave_inode(core.node(dir)?);
        let mut fill = |to: &mut [u8]| to.copy_from_slice(&block);
        let made = self.first_block(core, dir, block.len(), Role::DirectoryInit, &mut fill);
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                *core.node(dir)? = saved;
                return Err(error);
            }
        };
        let node = core.node(dir)?;
        // Its attributes may have a block already.
        node.sectors += saved.sectors;
        self.put_both(core, dir, Some(inner), &made.after)
    }
}

/// The bytes behind an inode's extra fields without its inline data.
fn without_data(inode: &Inode) -> Result<Vec<u8>, FsError> {
    let inner = with_data(inode, None)?;
    inner.ok_or_else(|| invalid("system.data", wide(inode.tail().len()), place(inode.ino)))
}
