//! Reserve of blocks for copies: the device ([`Origin`]) copies blocks for snapshots when they are
//! overwritten, and cannot allocate blocks itself. Before each change, enough blocks for it and for
//! all earlier changes are allocated; a change without room for copies is refused (`ENOSPC`).

use super::allocator::{Allocator, by_block};
use super::groups::full;
use super::map::Core;
use crate::alloc::free_fragments;
use crate::origin::{MapMut, Origin};
use crate::superblock::Super;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_live::Ids;
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino};
use std::sync::Arc;

/// Upper bound of the blocks that a change and its deferred actions overwrite, contents of files
/// left out.
pub(super) const OF_A_CHANGE: usize = 32;

/// Blocks that the release of a file without a name overwrites as a rule: its inode, the heads of two
/// groups, and their summaries.
const OF_A_RELEASE: usize = 5;

/// Number of changes for which blocks are reserved ahead.
const CHANGES_AHEAD: usize = 16;

/// The snapshots of a volume in use.
pub(super) struct Copies {
    sb: Arc<Super>,
    origin: Arc<Origin>,
    /// Blocks that may be overwritten before dirty blocks have to be counted again.
    counted: usize,
    /// The superblock has listed snapshots since the volume was opened.
    were_listed: bool,
    /// Files without names are released, before the volume is closed.
    releasing: bool,
    /// The volume is about to be closed.
    closing: bool,
}

impl Copies {
    pub(super) fn new(sb: Arc<Super>, origin: Arc<Origin>) -> Self {
        let were_listed = sb.tuning.has_snapshots();
        Self { sb, origin, counted: 0, were_listed, releasing: false, closing: false }
    }

    /// The device that copies.
    pub(super) fn device(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The inodes of the snapshots, oldest first.
    pub(super) fn listed(&self) -> Vec<Ino> {
        self.origin.inodes()
    }

    /// Adds a snapshot, as the newest. From now on, blocks are copied for it.
    pub(super) fn add(&mut self, map: MapMut) {
        self.origin.add(map);
        self.were_listed = true;
        self.counted = 0;
    }

    /// Removes a snapshot, as [`Origin::remove`].
    pub(super) fn remove(&mut self, ino: Ino) {
        self.counted = 0;
        self.origin.remove(ino);
    }

    /// Whether the superblock may list snapshots.
    pub(super) fn may_be_listed(&self) -> bool {
        self.were_listed
    }

    /// Files without names are released from now on, and nothing else changes.
    pub(super) fn begin_releases(&mut self) {
        self.releasing = true;
    }

    /// The volume is about to be closed: the reserve is given back when all is written.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether the volume is about to be closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Upper bound of the bytes of a file that one operation may overwrite.
    pub(super) fn most_overwritten(&self) -> usize {
        match self.origin.snapshots() {
            0 => usize::MAX,
            _ => most(&self.sb) / 2 * index(self.sb.bsize),
        }
    }

    /// Reserves blocks for a change that overwrites `bytes` of files. If it returns true, the caller
    /// must run the ready actions and call it again.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; [`FsError::Device`].
    pub(super) fn reserve(
        &mut self,
        space: &mut Allocator,
        core: &mut Core,
        bytes: usize,
    ) -> Result<bool, FsError> {
        let snapshots = self.origin.snapshots();
        if snapshots == 0 {
            return Ok(false);
        }
        let blocks = self.blocks_of(bytes);
        if let Some(left) = self.counted.checked_sub(blocks) {
            self.counted = left;
            return Ok(false);
        }
        let most = most(&self.sb);
        if pending(core) + blocks > most {
            core.cache.sync()?;
            if core.cache.ready().next().is_some() {
                return Ok(true);
            }
        }
        if self.has_room(space, core, blocks)? {
            return Ok(false);
        }
        match core.cache.is_dirty() {
            true => core.cache.sync().map(|()| true),
            // Files without names that are left give blocks back, and few of theirs are overwritten.
            false if self.releasing && self.origin.reserved() >= OF_A_RELEASE * snapshots => {
                Ok(false)
            }
            false => Err(full("blocks for copies in snapshots")),
        }
    }

    /// As [`Copies::reserve`], within an operation, where actions cannot run.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; [`FsError::Device`].
    pub(super) fn reserve_within(
        &mut self,
        space: &mut Allocator,
        core: &mut Core,
        bytes: usize,
    ) -> Result<(), FsError> {
        if !self.reserve(space, core, bytes)? {
            return Ok(());
        }
        let blocks = self.blocks_of(bytes);
        match self.origin.snapshots() == 0 || self.has_room(space, core, blocks)? {
            true => Ok(()),
            false => Err(full("blocks for copies in snapshots")),
        }
    }

    /// Upper bound of the blocks overwritten by a change that writes `bytes` of a file.
    fn blocks_of(&self, bytes: usize) -> usize {
        OF_A_CHANGE + bytes.div_ceil(index(self.sb.bsize)) + usize::from(bytes > 0)
    }

    /// Fills the reserve for `blocks` and for earlier changes. Returns whether it suffices.
    fn has_room(
        &mut self,
        space: &mut Allocator,
        core: &mut Core,
        blocks: usize,
    ) -> Result<bool, FsError> {
        let snapshots = self.origin.snapshots();
        let least = pending(core) + blocks;
        let wanted = (least + CHANGES_AHEAD * OF_A_CHANGE).min(most(&self.sb).max(least));
        self.fill_reserve(space, core, wanted * snapshots)?;
        let room = self.origin.reserved() / snapshots;
        let left = room.checked_sub(pending(core) + blocks);
        self.counted = left.unwrap_or(0);
        Ok(left.is_some())
    }

    /// Fills the reserve up to `blocks`, as far as there are free ones.
    fn fill_reserve(
        &mut self,
        space: &mut Allocator,
        core: &mut Core,
        blocks: usize,
    ) -> Result<(), FsError> {
        let missing = blocks.saturating_sub(self.origin.reserved());
        let taken = self.take_blocks(space, core, missing)?;
        self.add_reserve(taken);
        Ok(())
    }

    /// Adds blocks to the reserve that [`Copies::take_blocks`] returned.
    pub(super) fn add_reserve(&self, taken: Vec<BlockNo>) {
        for block in taken {
            self.origin.reserve(block);
        }
    }

    /// Allocates up to `most` blocks whose contents no snapshot needs. On return they are marked as
    /// used on the disk, and clean in the cache. Free blocks that a snapshot needs (they were freed
    /// fragment by fragment) are transferred to it on the way.
    pub(super) fn take_blocks(
        &self,
        space: &mut Allocator,
        core: &mut Core,
        most: usize,
    ) -> Result<Vec<BlockNo>, FsError> {
        let mut taken = Vec::new();
        let may_spend_reserve = std::mem::replace(&mut core.may_spend_reserve, true);
        let done = self.take_more(space, core, most, &mut taken);
        core.may_spend_reserve = may_spend_reserve;
        done.map(|()| taken)
    }

    fn take_more(
        &self,
        space: &mut Allocator,
        core: &mut Core,
        most: usize,
        taken: &mut Vec<BlockNo>,
    ) -> Result<(), FsError> {
        let frag = u64::from(self.sb.frag);
        while taken.len() < most {
            let (mut blocks, mut ids) = (Vec::new(), Vec::new());
            while taken.len() + blocks.len() < most {
                match space.take_block(core) {
                    Ok((block, id)) => {
                        blocks.push(block);
                        ids.push(id);
                    }
                    Err(FsError::NoSpace(_)) => break,
                    Err(error) => return Err(error),
                }
            }
            if blocks.is_empty() {
                return Ok(());
            }
            core.cache.settle(&ids)?;
            let runs: Vec<Extent> = blocks.iter().map(|&at| Extent::new(at, frag)).collect();
            core.cache.settle_runs(&runs)?;
            let mut needed = Vec::new();
            for block in blocks {
                let list = if self.origin.needs(block)? { &mut needed } else { &mut *taken };
                list.push(block);
            }
            self.origin.claim(&needed)?;
        }
        Ok(())
    }

    /// Frees runs, except for blocks that snapshots need: these are transferred to them.
    pub(super) fn release(
        &self,
        space: &mut Allocator,
        core: &mut Core,
        runs: &[Extent],
    ) -> Result<Ids, FsError> {
        if self.origin.snapshots() == 0 {
            return space.free_runs(core, runs);
        }
        let frag = u64::from(self.sb.frag);
        let (mut free, mut needed) = (Vec::new(), Vec::new());
        let mut head = None;
        for piece in runs.iter().flat_map(|&run| by_block(run, frag)) {
            // A block that is free on the disk is not transferred: its number might get there before
            // its bitmap. The snapshot finds the contents in the free block, too.
            if piece.len == frag
                && self.origin.needs(piece.start)?
                && self.is_used(piece, &mut head)?
            {
                needed.push(piece.start);
            } else {
                free.push(piece);
            }
        }
        self.origin.claim(&needed)?;
        space.free_runs(core, &free)
    }

    /// Whether all fragments of a block are marked as used on the device. `head` is that of the last
    /// group, to be read once for neighbours.
    fn is_used(
        &self,
        block: Extent,
        head: &mut Option<(GroupNo, Vec<u8>)>,
    ) -> Result<bool, FsError> {
        let group = self.sb.group_of(block.start);
        let known = head.take().filter(|(of, _)| *of == group);
        let (_, bytes) = match known {
            Some(known) => head.insert(known),
            None => {
                let at = self.sb.in_group(group, self.sb.cblkno).get() * u64::from(self.sb.fsize);
                let mut bytes = vec![0; index(self.sb.cgsize)];
                self.origin.read_bytes(ByteLen::new(at), &mut bytes)?;
                head.insert((group, bytes))
            }
        };
        Ok(free_fragments(&self.sb, group, bytes, block)?.is_empty())
    }

    /// Gives all blocks of the reserve back.
    pub(super) fn release_reserve(
        &mut self,
        space: &mut Allocator,
        core: &mut Core,
    ) -> Result<(), FsError> {
        self.counted = 0;
        let frag = u64::from(self.sb.frag);
        let blocks = self.origin.take_reserve();
        let runs: Vec<Extent> = blocks.into_iter().map(|start| Extent::new(start, frag)).collect();
        space.free_runs(core, &runs).map(drop)
    }
}

/// Upper bound of the blocks reserved for each snapshot.
fn most(sb: &Super) -> usize {
    index((sb.size / u64::from(sb.frag) / 64).clamp(64, 1024))
}

/// Upper bound of the blocks that earlier changes will overwrite: dirty ones, and one for each change
/// or action that waits.
fn pending(core: &Core) -> usize {
    let ready = core.cache.ready().count();
    core.cache.blocks().dirty_blocks() + core.cache.blocks().softdeps() + ready
}
