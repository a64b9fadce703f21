//! Inodes from their bytes, and the fields of a file that only ext has.

use super::layout::Layout;
use super::map::{Core, Node};
use crate::inline;
use crate::inode::Inode;
use crate::ondisk::flags::{APPEND, EA_INODE, ENCRYPT, EXTENTS, IMMUTABLE, INLINE_DATA};
use crate::ondisk::{INODE_CORE_SIZE, incompat};
use seekless_fs::field::{index, invalid, le32};
use seekless_fs::{FileKind, FsError, Location, Timestamp};
use seekless_live::indirect::Trees;
use seekless_live::{Restrictions, Table, gone};
use seekless_units::Ino;
use std::sync::Arc;

/// A time as an inode keeps it: with fields behind the first 128 bytes, 34 bits of
/// seconds, and nanoseconds. The first and the last second are whole ones, as under Linux
/// (`timestamp_truncate`).
pub(super) fn representable(has_more: bool, time: Timestamp) -> Timestamp {
    let low = i64::from(i32::MIN);
    if has_more {
        let high = low + (1 << 34) - 1;
        let nanos = if time.secs > low && time.secs < high { time.nanos } else { 0 };
        return Timestamp { secs: time.secs.clamp(low, high), nanos };
    }
    Timestamp { secs: time.secs.clamp(low, i64::from(i32::MAX)), nanos: 0 }
}

/// The inodes of a volume, in the tables of its groups.
pub(super) struct InodeTables {
    layout: Arc<Layout>,
}

/// The restrictions that `i_flags` say.
pub(super) fn restrictions(flags: u32) -> Restrictions {
    Restrictions {
        immutable: flags & IMMUTABLE != 0,
        append_only: flags & APPEND != 0,
        ..Restrictions::default()
    }
}

impl InodeTables {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self { layout }
    }

    /// The layout of the volume.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// An inode's bytes in the cache.
    pub(super) fn read(&self, core: &mut Core, ino: Ino) -> Result<Inode, FsError> {
        let (block, skip) = self.layout.inode_place(ino)?;
        let bytes =
            core.cache.blocks_mut().read(block, skip, index(self.layout.sb().inode_size))?;
        self.layout.volume().inodes().read_in(ino, Arc::from(bytes), 0)
    }

    /// The node of an inode that is in use.
    ///
    /// # Errors
    /// [`FsError::NotFound`] without links.
    pub(super) fn load(&self, core: &mut Core, ino: Ino) -> Result<Node, FsError> {
        let inode = self.read(core, ino)?;
        if inode.core.i_links_count.get() == 0 {
            return Err(gone(ino));
        }
        self.decode(&inode)
    }

    /// As [`InodeTables::load`], for a file that may have no links any more.
    pub(super) fn load_orphan(&self, core: &mut Core, ino: Ino) -> Result<Node, FsError> {
        self.decode(&self.read(core, ino)?)
    }

    /// Whether an inode that is in use has links: else it is about to be freed.
    pub(super) fn has_links(&self, core: &mut Core, ino: Ino) -> Result<bool, FsError> {
        Ok(self.read(core, ino)?.core.i_links_count.get() != 0)
    }

    /// Whether inodes have fields behind the first 128 bytes: a time of birth,
    /// nanoseconds and seconds beyond 2038.
    pub(super) fn has_birth(&self) -> bool {
        self.inode_len() > INODE_CORE_SIZE
    }

    /// An inode in native terms, checked.
    fn decode(&self, inode: &Inode) -> Result<Node, FsError> {
        let place = Location::of("inode").in_inode(inode.ino);
        let Some(kind) = inode.kind() else {
            return Err(invalid("i_mode", u64::from(inode.core.i_mode.get()), place));
        };
        let by_extents = self.layout.sb().has_incompat(incompat::EXTENTS);
        let has_inline = self.layout.sb().has_incompat(incompat::INLINE_DATA);
        let refused = ENCRYPT
            | EA_INODE
            | if by_extents { 0 } else { EXTENTS }
            | if has_inline { 0 } else { INLINE_DATA };
        let flags = inode.core.i_flags.get();
        if flags & refused != 0 {
            return Err(invalid("i_flags", u64::from(flags), place));
        }
        let attr = self.layout.volume().inodes().attr(inode, kind);
        let mut node = Node::empty(inode.ino, kind);
        node.perm = attr.perm;
        node.links = inode.core.i_links_count.get();
        node.effective = node.links;
        (node.uid, node.gid) = (attr.uid, attr.gid);
        (node.size, node.sectors) =
            (inode.len, self.layout.volume().inodes().allocated_sectors(inode));
        (node.atime, node.mtime, node.ctime) = (attr.atime, attr.mtime, attr.ctime);
        (node.birth, node.device) = (attr.crtime, attr.device);
        (node.generation, node.flags) = (attr.generation, flags);
        node.restrictions = restrictions(flags);
        node.map.attributes = self.layout.volume().inodes().xattr_block_of(inode);
        // In an inode on the list of orphans this is the next one.
        node.map.deleted = inode.core.i_dtime.get();
        if flags & INLINE_DATA != 0 {
            inline::check(inode, kind)?;
            if kind == FileKind::Symlink {
                node.target = Some(inline::contents(inode)?.into());
            }
            node.map.root = inode.core.i_block;
        } else if self.layout.volume().inodes().is_fast_symlink(inode) {
            let target = inode.core.i_block.0.get(..index(inode.len));
            let target = target.ok_or_else(|| invalid("i_size", inode.len, place))?;
            node.target = Some(target.into());
        } else if node.has_blocks() && flags & EXTENTS != 0 {
            node.map.root = inode.core.i_block;
        } else if node.has_blocks() {
            let numbers = inode.core.i_block.0.chunks_exact(4);
            let numbers = numbers.map(|word| u64::from(le32(word, 0).unwrap_or(0)));
            let Trees { direct, indirect } = &mut node.map.trees;
            direct.iter_mut().chain(indirect).zip(numbers).for_each(|(to, from)| *to = from);
        }
        debug_assert!(kind != FileKind::Directory || node.target.is_none());
        Ok(node)
    }
}
