//! Files that are mapped by extents, in use.
//!
//! A tree is changed as a whole: its new nodes are computed first, and their blocks allocated, so
//! that nothing has changed when space runs out. Then it is written from the bottom up, the inode
//! last (`plan`).
//!
//! The order of the writes:
//!
//! - contents and bitmaps before the extent that shows them, new blocks of the tree
//!   before the number that leads to them; the change of the tree waits for both;
//! - runs that leave a file are given back after the change that took the last number
//!   of them out, the inode's at the latest;
//! - a node is changed in place if the part of it that readers see changes within one sector, and
//!   nothing above it. Where order is kept by nothing but the order of writes (`sync`, `normal`),
//!   all else is done in copies, up to a node in which a number in one sector changes, at the
//!   latest the root: a torn write could leave an extent twice, or not at all. With a journal, and
//!   where no order is asked for, nodes are changed in place.
//!
//! A truncated tree is cut in place under all disciplines, since that takes no space: entries only
//! go from the end of a node, first from the count in its header.
//!
//! - `path`: the path to a leaf, and lookups;
//! - `plan`: new nodes computed and written; `nodes`: their bytes;
//! - `edit`: extents inserted and converted;
//! - `cut`: files made shorter and taken apart;
//! - `write`: bytes put in, space allocated.

mod cut;
mod edit;
mod nodes;
mod path;
mod plan;
mod write;

pub(super) use path::unnoted;

use super::map::{Core, Node};
use super::maps::FileMaps;
use crate::encode::mapping::{IN_INODE, put_node};
use crate::ondisk::{IBlock, flags, ro_compat};
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_live::{Part, Table};
use seekless_units::Ino;

/// The root of a tree without extents.
pub(super) fn empty_root() -> IBlock {
    let mut root = IBlock::default();
    put_node(&mut root.0, &[], index(IN_INODE), 0);
    root
}

/// Whether a file is mapped by extents.
pub(super) fn maps(core: &mut Core, ino: Ino) -> Result<bool, FsError> {
    Ok(core.node(ino)?.flags & flags::EXTENTS != 0)
}

/// A file that is mapped by extents. All functions fail as those of
/// [`Format`](seekless_live::Format) do.
pub(super) struct Tree<'a> {
    maps: &'a mut FileMaps,
    core: &'a mut Core,
    ino: Ino,
}

impl<'a> Tree<'a> {
    /// The tree of an inode that is in memory.
    pub(super) fn of(maps: &'a mut FileMaps, core: &'a mut Core, ino: Ino) -> Self {
        Self { maps, core, ino }
    }

    fn node(&mut self) -> Result<&mut Node, FsError> {
        self.core.node(self.ino)
    }

    /// Bytes of a block.
    fn block(&self) -> u64 {
        u64::from(self.maps.layout().sb().block_size)
    }

    /// Sectors of 512 bytes in blocks.
    fn sectors(&self, blocks: u64) -> u64 {
        blocks * (self.block() / 512)
    }

    /// Writes size, sectors and root.
    fn put_map(&mut self, role: Role, after: &[ChangeId]) -> Result<ChangeId, FsError> {
        Ok(self.maps.tables().put_part(self.core, self.ino, Part::Map, role, after, None)?.id)
    }

    /// Most bytes of a file: blocks are counted in 32 bits, and the last is not used; without
    /// `huge_file` so are sectors (`ext4_max_size` of `fs/ext4/super.c`).
    fn max_size(&self) -> u64 {
        let sb = self.maps.layout().sb();
        let mut blocks = u64::from(u32::MAX);
        if !sb.has_ro_compat(ro_compat::HUGE_FILE) {
            blocks /= u64::from(sb.block_size / 512);
        }
        blocks * self.block()
    }

    /// Refuses a length past the reach of the map.
    pub(super) fn check_len(&self, end: Option<u64>) -> Result<u64, FsError> {
        let end = end.filter(|&end| end <= self.max_size());
        end.ok_or_else(|| FsError::TooLarge(format!("inode {}", self.ino)))
    }
}
