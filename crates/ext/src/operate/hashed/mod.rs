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

use super::directory::DirectoryBlocks;
use super::entries::Entries;
use crate::hash::name_hash;
use crate::htree::{self, Branch};
use crate::ondisk::{compat, flags};
use seekless_fs::field::{invalid, range};
use seekless_fs::{FileKind, FsError};
use seekless_live::{Codec, Ids, NamePlace};
use seekless_units::BlockNo;
use smallvec::SmallVec;
use split::Splitter;

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

/// A directory in blocks, with an index or without.
pub(super) struct Htree<'a> {
    blocks: DirectoryBlocks<'a>,
    entries: Entries,
}

impl<'a> Htree<'a> {
    pub(super) fn of(blocks: DirectoryBlocks<'a>, entries: Entries) -> Self {
        Self { blocks, entries }
    }

    fn splitter<'s>(&'s mut self, made: &'s mut SplitChanges) -> Splitter<'s, 'a> {
        Splitter::of(&mut self.blocks, self.entries, made)
    }

    /// The place for a new name in a directory; room is made for it.
    pub(super) fn name_place(&mut self, name: &[u8]) -> Result<NamePlace, FsError> {
        let needed = Entries::needed(name.len());
        let mut made = SplitChanges::default();
        if !self.is_indexed()? {
            self.drop_index()?;
            if !self.outgrows_first_block(needed)? || !self.splitter(&mut made).make_index()? {
                return Ok(NamePlace::default());
            }
        }
        let unit = self.leaf_with_room(name, needed, &mut made)?;
        Ok(NamePlace { unit, rewritten: made.rewritten, reached: made.reached })
    }

    fn is_indexed(&mut self) -> Result<bool, FsError> {
        let is_known = self.blocks.layout().sb().has_compat(compat::DIR_INDEX);
        Ok(is_known && self.blocks.node()?.flags & flags::INDEX != 0)
    }

    /// The leaf for a name, with room for it; `None` if there is no index any more.
    fn leaf_with_room(
        &mut self,
        name: &[u8],
        needed: usize,
        made: &mut SplitChanges,
    ) -> Result<Option<u64>, FsError> {
        for _ in 0..MOST_STEPS {
            let Some(path) = self.path(name)? else {
                // The kernel, too, goes on without an index of an unknown format.
                if self.blocks.layout().has_sums() {
                    return Err(invalid("info_length", 0, self.blocks.place()));
                }
                self.drop_index()?;
                return Ok(None);
            };
            let place = self.blocks.place().in_block(path.leaf_at);
            let (_, leaf) = self.blocks.read(path.leaf_at)?;
            if self.entries.room(leaf, place)? >= needed {
                return Ok(Some(path.leaf));
            }
            if self.entries.torn {
                self.drop_index()?;
                return Ok(None);
            }
            if path.steps.last().is_some_and(|step| step.branch.is_full()) {
                self.splitter(made).widen(&path)?;
            } else {
                self.splitter(made).split_leaf(&path)?;
            }
        }
        // If neither half of a leaf has room, its names cannot be told apart by hash.
        Err(invalid("hash", 0, self.blocks.place()))
    }

    /// The path to the leaf of a name. `None` for an index of an unknown kind.
    fn path(&mut self, name: &[u8]) -> Result<Option<DxPath>, FsError> {
        let place = self.blocks.place();
        let mut at = self.blocks.at(0)?;
        let (volume, bytes) = self.blocks.read(at)?;
        let root = htree::head(volume, bytes, place)?;
        let Some((version, levels)) = root else { return Ok(None) };
        let Some(hash) = name_hash(version, self.blocks.layout().sb().hash_seed(), name) else {
            return Ok(None);
        };
        let mut steps: SmallVec<[DxFrame; 3]> = SmallVec::new();
        let mut lbn = 0;
        for level in 0..=levels {
            let (volume, bytes) = self.blocks.read(at)?;
            let branch = Branch::of(volume, bytes, level == 0, place.in_block(at))?;
            let chosen = branch.find(bytes, hash.major);
            let child = branch.child(bytes, chosen);
            steps.push(DxFrame { lbn, at, branch, chosen });
            lbn = child.lbn.get();
            // No block leads to itself or back.
            if steps.iter().any(|step| step.lbn == lbn) {
                return Err(range("block", lbn, self.blocks.count()?, place));
            }
            at = self.blocks.at(lbn)?;
        }
        Ok(Some(DxPath { version, levels, steps, leaf: lbn, leaf_at: at }))
    }

    /// Drops a directory's index. It is gone from the disk before a name lies where the index does
    /// not lead.
    fn drop_index(&mut self) -> Result<(), FsError> {
        if self.blocks.node()?.flags & flags::INDEX == 0 {
            return Ok(());
        }
        debug_assert_eq!(self.blocks.node()?.kind, FileKind::Directory, "only these have an index");
        self.blocks.node()?.flags &= !flags::INDEX;
        self.blocks.put_rest()?;
        if self.entries.torn {
            self.blocks.settle_inode()?;
        }
        Ok(())
    }

    /// Whether a directory without an index is one block, which has no room.
    fn outgrows_first_block(&mut self, needed: usize) -> Result<bool, FsError> {
        if self.entries.torn
            || !self.blocks.layout().sb().has_compat(compat::DIR_INDEX)
            || self.blocks.count()? != 1
        {
            return Ok(false);
        }
        let at = self.blocks.at(0)?;
        let place = self.blocks.place().in_block(at);
        let (_, bytes) = self.blocks.read(at)?;
        Ok(self.entries.room(bytes, place)? < needed)
    }
}
