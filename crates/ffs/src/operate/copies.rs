//! Room for the copies that snapshots need: blocks are taken in advance, and given to the device
//! ([`Origin`]), which copies when blocks are overwritten. They count as used. A change is refused
//! for lack of space before it could leave the device without room.

use super::allocator::{Allocator, by_block};
use super::groups::full;
use super::map::Core;
use crate::origin::{MapMut, Origin};
use crate::superblock::Super;
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_live::Ids;
use seekless_units::{BlockNo, Extent, Ino};
use std::sync::Arc;

/// Blocks that one change overwrites at most, with the actions that follow from it, but for the
/// contents of files.
const OF_A_CHANGE: usize = 32;

/// For how many changes the room suffices before everything is counted again.
const CHANGES_AHEAD: usize = 16;

/// The snapshots of a volume in use.
pub(super) struct Copies {
    sb: Arc<Super>,
    origin: Arc<Origin>,
    /// Blocks that may still be overwritten before everything is counted again.
    counted: usize,
    /// The volume is about to be closed.
    closing: bool,
}

impl Copies {
    pub(super) fn new(sb: Arc<Super>, origin: Arc<Origin>) -> Self {
        Self { sb, origin, counted: 0, closing: false }
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
        self.counted = 0;
    }

    /// The volume is about to be closed: the reserve is given back when all is written.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether the volume is about to be closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// The bytes of a file that one operation may overwrite.
    pub(super) fn most_overwritten(&self) -> usize {
        match self.origin.snapshots() {
            0 => usize::MAX,
            _ => most(&self.sb) / 2 * index(self.sb.bsize),
        }
    }

    /// Sees that a change can be made that overwrites so many bytes of files.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; [`FsError::Device`].
    pub(super) fn reserve(
        &mut self,
        space: &mut Allocator,
        core: &mut Core,
        bytes: usize,
    ) -> Result<(), FsError> {
        let snapshots = self.origin.snapshots();
        if snapshots == 0 {
            return Ok(());
        }
        let blocks = OF_A_CHANGE + bytes.div_ceil(index(self.sb.bsize)) + usize::from(bytes > 0);
        if let Some(left) = self.counted.checked_sub(blocks) {
            self.counted = left;
            return Ok(());
        }
        let most = most(&self.sb);
        if pending(core) + blocks > most {
            core.cache.sync()?;
        }
        let wanted = (pending(core) + blocks + CHANGES_AHEAD * OF_A_CHANGE).min(most.max(blocks));
        self.fill_reserve(space, core, wanted * snapshots)?;
        let room = |it: &Self| it.origin.reserved() / snapshots;
        if room(self) < pending(core) + blocks {
            core.cache.sync()?;
            self.fill_reserve(space, core, blocks * snapshots)?;
        }
        let left = room(self).checked_sub(pending(core) + blocks);
        self.counted = left.ok_or_else(|| full("blocks for copies in snapshots"))?;
        Ok(())
    }

    /// Brings the reserve to so many blocks, if there are as many, and waits for them to be used on
    /// the disk.
    fn fill_reserve(
        &mut self,
        space: &mut Allocator,
        core: &mut Core,
        blocks: usize,
    ) -> Result<(), FsError> {
        let missing = blocks.saturating_sub(self.origin.reserved());
        let (taken, ids) = self.take_blocks(space, core, missing)?;
        core.cache.settle(&ids)?;
        for block in taken {
            self.origin.reserve(block);
        }
        Ok(())
    }

    /// Takes up to so many blocks that no snapshot needs, and returns them with the changes after
    /// which they are used on the disk. Free blocks that a snapshot does need, since they were
    /// freed in parts, become its own on the way.
    pub(super) fn take_blocks(
        &self,
        space: &mut Allocator,
        core: &mut Core,
        most: usize,
    ) -> Result<(Vec<BlockNo>, Vec<ChangeId>), FsError> {
        let (mut taken, mut ids) = (Vec::new(), Vec::new());
        let may_spend_reserve = std::mem::replace(&mut core.may_spend_reserve, true);
        let mut done = Ok(());
        while done.is_ok() && taken.len() < most {
            match space.take_block(core) {
                Ok((block, id)) => {
                    ids.push(id);
                    match self.origin.claim(block) {
                        Ok(true) => {}
                        Ok(false) => taken.push(block),
                        Err(error) => done = Err(error),
                    }
                }
                Err(FsError::NoSpace(_)) => break,
                Err(error) => done = Err(error),
            }
        }
        core.may_spend_reserve = may_spend_reserve;
        done.map(|()| (taken, ids))
    }

    /// Frees runs but for the blocks that snapshots need, which get them.
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
        let mut free = Vec::new();
        for piece in runs.iter().flat_map(|&run| by_block(run, frag)) {
            if piece.len < frag || !self.origin.claim(piece.start)? {
                free.push(piece);
            }
        }
        space.free_runs(core, &free)
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

/// Blocks that may be reserved for each snapshot.
fn most(sb: &Super) -> usize {
    index((sb.size / u64::from(sb.frag) / 64).clamp(64, 1024))
}

/// Blocks that may still be overwritten because of earlier changes: those that are not written, and
/// at most one for each change that is left to be made.
fn pending(core: &Core) -> usize {
    core.cache.blocks().dirty_blocks() + core.cache.blocks().softdeps()
}
