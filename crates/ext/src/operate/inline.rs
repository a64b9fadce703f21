//! Files with inline data in use: contents in `i_block` and behind them in the attribute
//! `system.data` (`fs/ext4/inline.c`). They stay in the inode as long as they fit there, and are
//! moved out to a block when they grow.
//!
//! Inode and contents change together, in one block: this is used only under disciplines that need
//! no order of single writes, or with a journal.

use super::extents::{self, Tree};
use super::map::{Core, Node};
use super::maps::FileMaps;
use super::node::InodeTables;
use crate::inline::{HEAD, contents, place};
use crate::inode::Inode;
use crate::ondisk::{IBlock, INODE_CORE_SIZE, flags, incompat};
use crate::xattr::{data_room, empty_data, with_data};
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, invalid, wide};
use seekless_fs::{FileKind, FsError};
use seekless_live::indirect::{Files, Trees};
use seekless_live::{Part, Table};
use seekless_units::Ino;

/// Whether a file's contents are in its inode.
pub(super) fn is_inline(core: &mut Core, ino: Ino) -> Result<bool, FsError> {
    Ok(core.node(ino)?.flags & flags::INLINE_DATA != 0)
}

/// Gives a new file or directory inline data, if the volume has that feature.
pub(super) fn fit(has_inline: bool, tables: &InodeTables, node: &mut Node) {
    debug_assert!(node.has_blocks(), "nothing else has contents of its own");
    if !has_inline {
        return;
    }
    let room = tables.inode_len() - INODE_CORE_SIZE;
    let Some(inner) = empty_data(room - usize::from(tables.extra_isize())) else {
        return;
    };
    debug_assert!(node.map.inner.is_none(), "a new inode has no attributes yet");
    node.flags |= flags::INLINE_DATA;
    node.map.inner = Some(inner.into());
}

/// A file whose contents are in its inode.
pub(super) struct InlineContents<'a> {
    maps: &'a mut FileMaps,
    core: &'a mut Core,
    ino: Ino,
}

impl<'a> InlineContents<'a> {
    /// The contents of an inode that is in memory.
    pub(super) fn of(maps: &'a mut FileMaps, core: &'a mut Core, ino: Ino) -> Self {
        Self { maps, core, ino }
    }

    fn node(&mut self) -> Result<&mut Node, FsError> {
        self.core.node(self.ino)
    }

    fn inode(&mut self) -> Result<Inode, FsError> {
        self.maps.tables().read(self.core, self.ino)
    }

    /// The contents.
    pub(super) fn get(&mut self) -> Result<Vec<u8>, FsError> {
        contents(&self.inode()?)
    }

    /// Writes all contents of a file into the inode. False where they do not fit.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<bool, FsError> {
        debug_assert!(is_inline(self.core, self.ino)?, "contents stay where they are");
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
        let Some(inner) = with_data(&self.inode()?, Some(rest))? else {
            return Ok(false);
        };
        let mut root = IBlock::default();
        root.0.iter_mut().zip(head).for_each(|(to, &from)| *to = from);
        let node = self.node()?;
        (node.map.root, node.size) = (root, wide(bytes.len()));
        self.put_both(Some(inner), &[])?;
        Ok(true)
    }

    /// Writes size, `i_block` and flags of a node, and the bytes of its attributes.
    pub(super) fn put_both(
        &mut self,
        inner: Option<Vec<u8>>,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        debug_assert!(self.node()?.map.inner.is_none(), "one change is made at a time");
        self.node()?.map.inner = inner.map(Into::into);
        let changed = self
            .maps
            .tables()
            .put_part(self.core, self.ino, Part::Map, Role::PointerSet, after, None)?
            .id;
        let rest = self.maps.tables().put_rest(self.core, self.ino);
        self.node()?.map.inner = None;
        rest.map(|()| changed)
    }

    /// Most bytes of contents that an inode can hold beside its attributes.
    pub(super) fn room(&mut self) -> Result<u64, FsError> {
        let room = data_room(&self.inode()?)?;
        Ok(room.map_or(0, |room| wide(room + HEAD)))
    }

    /// Writes bytes of a file that has its contents in its inode. False if they do not fit: then
    /// its contents are in a block now, and nothing is written.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<bool, FsError> {
        let end = offset.checked_add(wide(bytes.len()));
        let room = self.room()?;
        if let Some(end) = end.filter(|&end| end <= room) {
            let mut all = contents(&self.inode()?)?;
            all.resize(all.len().max(index(end)), 0);
            if let Some(to) = all.get_mut(index(offset)..index(end)) {
                to.copy_from_slice(bytes);
            }
            if self.put(&all)? {
                return Ok(true);
            }
        }
        self.move_out()?;
        Ok(false)
    }

    /// Sets the length of a file that has its contents in its inode. False if they do not fit any
    /// more: then they are in a block, and the length is unchanged.
    pub(super) fn truncate(&mut self, len: u64) -> Result<bool, FsError> {
        if len == self.node()?.size {
            return Ok(true);
        }
        if len <= self.room()?.max(self.node()?.size) {
            let mut all = contents(&self.inode()?)?;
            all.resize(index(len), 0);
            if self.put(&all)? {
                return Ok(true);
            }
        }
        self.move_out()?;
        Ok(false)
    }

    /// Moves the contents of a file from its inode to a block, if there are any. When
    /// there is no space for it nothing has changed.
    pub(super) fn move_out(&mut self) -> Result<(), FsError> {
        let inode = self.inode()?;
        let (bytes, inner) = (contents(&inode)?, without_data(&inode)?);
        let saved = self.node()?.clone();
        debug_assert_eq!(saved.kind, FileKind::Regular);
        self.leave_inode()?;
        self.node()?.size = 0;
        let written = if bytes.is_empty() {
            Ok(0)
        } else if extents::maps(self.core, self.ino)? {
            Tree::of(self.maps, self.core, self.ino).write_over(0, &bytes, saved.size)
        } else {
            Files::of(self.maps, self.core).write_over(self.ino, 0, &bytes, saved.size)
        };
        if let Err(error) = written {
            *self.node()? = saved;
            self.put_both(None, &[])?;
            return Err(error);
        }
        debug_assert_eq!(written.ok(), Some(bytes.len()), "it is less than a block");
        self.put_both(Some(inner), &[])?;
        Ok(())
    }

    /// Turns a node into one with blocks, of which it has none yet.
    pub(super) fn leave_inode(&mut self) -> Result<(), FsError> {
        let by_extents = self.maps.layout().sb().has_incompat(incompat::EXTENTS);
        let node = self.node()?;
        debug_assert_ne!(node.flags & flags::INLINE_DATA, 0, "its contents are in the inode");
        node.flags &= !flags::INLINE_DATA;
        (node.map.trees, node.map.root) = (Trees::default(), IBlock::default());
        (node.map.near, node.map.last) = (None, None);
        if by_extents {
            node.flags |= flags::EXTENTS;
            node.map.root = extents::empty_root();
        }
        Ok(())
    }
}

/// The bytes behind an inode's extra fields without its inline data.
pub(super) fn without_data(inode: &Inode) -> Result<Vec<u8>, FsError> {
    let inner = with_data(inode, None)?;
    inner.ok_or_else(|| invalid("system.data", wide(inode.tail().len()), place(inode.ino)))
}
