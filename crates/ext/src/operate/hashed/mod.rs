//! Indexed directories in use: the leaf that a name belongs to, by its hash
//! (`ext4_dx_add_entry` and `dx_probe` of `fs/ext4/namei.c`).
//!
//! A directory that outgrows its first block gets an index. A leaf without room is split by hashes,
//! a node of the index without room in two, and a root without room gets a level below it. Such a
//! change spans several blocks and fails a check when half done: where writes may be torn and a
//! crash must leave a sound directory, an index lives until a leaf must be split, and is dropped
//! then.
//!
//! - `blocks`: bytes of the index; `split`: making room; `listing`: in which order the
//!   kernel shows names.

mod blocks;
mod listing;
mod order;
mod split;

pub use order::ListingOrder;

use super::entries::Entries;
use super::{Core, Ext};
use crate::hash::name_hash;
use crate::htree::{self, Branch};
use crate::ondisk::{compat, flags};
use seekless_fs::field::{index, invalid, range};
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::{Codec, Ids, NamePlace, Table};
use seekless_units::{BlockNo, Ino};
use smallvec::SmallVec;

/// Most steps to make room for a name: each level of the index once, and leaves until one has room.
const MOST_STEPS: usize = 32;

/// A block of the index on the path to a leaf (`struct dx_frame`).
#[derive(Clone, Copy)]
struct DxFrame {
    lbn: u64,
    at: BlockNo,
    /// The block's header, without the children.
    branch: Branch,
    /// The child on the path.
    chosen: usize,
}

/// The path in the index to the leaf of a hash.
struct DxPath {
    /// How names are hashed.
    version: u8,
    /// Levels of the index below the root.
    levels: u8,
    steps: SmallVec<[DxFrame; 3]>,
    leaf: u64,
    leaf_at: BlockNo,
}

/// The changes of the splits that made room.
#[derive(Default)]
struct SplitChanges {
    /// Blocks of the directory whose names have moved.
    rewritten: SmallVec<[u64; 4]>,
    /// Changes that must be on the disk for its new blocks to be reached.
    reached: Ids,
}

impl Ext {
    fn dir_place(dir: Ino) -> Location {
        Location::of("htree").in_inode(dir)
    }

    /// The place of a block of a directory.
    fn dir_block(&mut self, core: &mut Core, dir: Ino, lbn: u64) -> Result<BlockNo, FsError> {
        let blocks = self.dir_blocks(core, dir)?;
        let found = if lbn < blocks { self.lookup_dir_block(core, dir, lbn)? } else { None };
        found.ok_or_else(|| range("block", lbn, blocks, Self::dir_place(dir)))
    }

    fn dir_blocks(&self, core: &mut Core, dir: Ino) -> Result<u64, FsError> {
        let bsize = u64::from(self.volume.sb.block_size);
        Ok(core.node(dir)?.size / bsize)
    }

    /// The place for a new name in a directory; room is made for it.
    pub(super) fn name_place(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
    ) -> Result<NamePlace, FsError> {
        let needed = Entries::needed(name.len());
        if let Some(unit) = self.inline_names(core, dir)? {
            return self.inline_place(core, dir, &unit, needed);
        }
        let mut made = SplitChanges::default();
        if !self.is_indexed(core, dir)? {
            self.drop_index(core, dir)?;
            if !self.outgrows_first_block(core, dir, needed)?
                || !self.make_index(core, dir, &mut made)?
            {
                return Ok(NamePlace::default());
            }
        }
        let unit = self.leaf_with_room(core, dir, name, needed, &mut made)?;
        Ok(NamePlace { unit, rewritten: made.rewritten, reached: made.reached })
    }

    fn is_indexed(&self, core: &mut Core, dir: Ino) -> Result<bool, FsError> {
        let is_known = self.volume.sb.has_compat(compat::DIR_INDEX);
        Ok(is_known && core.node(dir)?.flags & flags::INDEX != 0)
    }

    /// The leaf for a name, with room for it; `None` if there is no index any more.
    fn leaf_with_room(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
        needed: usize,
        made: &mut SplitChanges,
    ) -> Result<Option<u64>, FsError> {
        for _ in 0..MOST_STEPS {
            let Some(path) = self.path(core, dir, name)? else {
                // The kernel, too, goes on without an index of an unknown format.
                if self.has_sums() {
                    return Err(invalid("info_length", 0, Self::dir_place(dir)));
                }
                self.drop_index(core, dir)?;
                return Ok(None);
            };
            let place = Self::dir_place(dir).in_block(path.leaf_at);
            let leaf = core.cache.blocks_mut().read(path.leaf_at, 0, self.volume.block_len())?;
            if self.entries.room(leaf, place)? >= needed {
                return Ok(Some(path.leaf));
            }
            if self.entries.torn {
                self.drop_index(core, dir)?;
                return Ok(None);
            }
            if path.steps.last().is_some_and(|step| step.branch.is_full()) {
                self.widen(core, dir, &path, made)?;
            } else {
                self.split_leaf(core, dir, &path, made)?;
            }
        }
        // If neither half of a leaf has room, its names cannot be told apart by hash.
        Err(invalid("hash", 0, Self::dir_place(dir)))
    }

    /// The path to the leaf of a name. `None` for an index of an unknown kind.
    fn path(&mut self, core: &mut Core, dir: Ino, name: &[u8]) -> Result<Option<DxPath>, FsError> {
        let place = Self::dir_place(dir);
        let len = self.volume.block_len();
        let mut at = self.dir_block(core, dir, 0)?;
        let root = htree::head(&self.volume, core.cache.blocks_mut().read(at, 0, len)?, place)?;
        let Some((version, levels)) = root else { return Ok(None) };
        let Some(hash) = name_hash(version, self.volume.sb.hash_seed(), name) else {
            return Ok(None);
        };
        let mut steps: SmallVec<[DxFrame; 3]> = SmallVec::new();
        let mut lbn = 0;
        for level in 0..=levels {
            let bytes = core.cache.blocks_mut().read(at, 0, len)?;
            let branch = Branch::of(&self.volume, bytes, level == 0, place.in_block(at))?;
            let chosen = branch.find(bytes, hash.major);
            let child = branch.child(bytes, chosen);
            steps.push(DxFrame { lbn, at, branch, chosen });
            lbn = child.lbn.get();
            // No block leads to itself or back.
            if steps.iter().any(|step| step.lbn == lbn) {
                return Err(range("block", lbn, self.dir_blocks(core, dir)?, place));
            }
            at = self.dir_block(core, dir, lbn)?;
        }
        Ok(Some(DxPath { version, levels, steps, leaf: lbn, leaf_at: at }))
    }

    /// Drops a directory's index. It is gone from the disk before a name lies where the index does
    /// not lead.
    fn drop_index(&mut self, core: &mut Core, dir: Ino) -> Result<(), FsError> {
        if core.node(dir)?.flags & flags::INDEX == 0 {
            return Ok(());
        }
        debug_assert_eq!(core.node(dir)?.kind, FileKind::Directory, "inode {dir} has an index");
        core.node(dir)?.flags &= !flags::INDEX;
        self.put_rest(core, dir)?;
        if self.entries.torn {
            let (block, _) = self.inode_place(dir)?;
            core.cache.settle_runs(&[seekless_units::Extent::new(block, 1)])?;
        }
        Ok(())
    }

    /// Whether a directory without an index is one block, which has no room.
    fn outgrows_first_block(
        &mut self,
        core: &mut Core,
        dir: Ino,
        needed: usize,
    ) -> Result<bool, FsError> {
        if self.entries.torn
            || !self.volume.sb.has_compat(compat::DIR_INDEX)
            || self.dir_blocks(core, dir)? != 1
        {
            return Ok(false);
        }
        let at = self.dir_block(core, dir, 0)?;
        let bytes = core.cache.blocks_mut().read(at, 0, index(self.volume.sb.block_size))?;
        Ok(self.entries.room(bytes, Self::dir_place(dir).in_block(at))? < needed)
    }
}
