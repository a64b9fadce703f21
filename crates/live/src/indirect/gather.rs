//! Gathering the blocks that a file was just given, where they do not lie in one
//! piece (`ffs_reallocblks`): before any of them is written.

use super::geometry::BlockPath;
use super::{Files, Indirect, Mapped};
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::{BlockNo, Extent, Ino};

impl<F: Indirect> Files<'_, F> {
    /// Moves a new block of a file, and those in front of it that are not on
    /// the disk yet, into one piece; if the policy asks for that, and there is such
    /// a piece.
    pub(super) fn gather(
        &mut self,
        ino: Ino,
        lbn: u64,
        wanted: F::Wanted,
        at: BlockNo,
    ) -> Result<(), FsError> {
        let is_file = self.core.node(ino)?.kind == FileKind::Regular;
        let most = if is_file { self.maps.gathers(wanted, at) } else { 0 };
        if most < 2 {
            return Ok(());
        }
        let blocks = self.unwritten_up_to(ino, lbn, most)?;
        let Some((run, bitmap)) = self.maps.take_cluster(self.core, ino, lbn, &blocks)? else {
            return Ok(());
        };
        let first = lbn + 1 - wide(blocks.len());
        let step = index(u64::from(self.geometry.per_block()));
        let places = (run.start.get()..).step_by(step).map(BlockNo::new);
        for ((lbn, &old), new) in (first..).zip(&blocks).zip(places) {
            self.move_block(ino, lbn, old, (new, bitmap))?;
        }
        Ok(())
    }

    /// The blocks up to this one, at most a cluster of them, whose numbers are in one map and that
    /// the disk has nothing of; in the order of the file.
    fn unwritten_up_to(&mut self, ino: Ino, lbn: u64, most: u32) -> Result<Vec<BlockNo>, FsError> {
        let frag = u64::from(self.geometry.per_block());
        let in_map = match self.geometry.way(lbn) {
            Some(BlockPath::Indirect { places, .. }) => places.last().copied().unwrap_or(0),
            _ => lbn,
        };
        let count = u64::from(most).min(in_map + 1);
        let size = self.core.node(ino)?.size;
        let mut blocks = Vec::new();
        for lbn in (lbn + 1 - count..=lbn).rev() {
            let whole = self.geometry.units_at(size, lbn) == self.geometry.per_block();
            match self.lookup_block(ino, lbn)? {
                Some(at) if whole && self.core.cache.is_unwritten(Extent::new(at, frag)) => {
                    blocks.push(at);
                }
                _ => break,
            }
        }
        blocks.reverse();
        Ok(blocks)
    }

    /// Moves one block of a file to a new place.
    fn move_block(
        &mut self,
        ino: Ino,
        lbn: u64,
        old: BlockNo,
        (new, bitmap): (BlockNo, ChangeId),
    ) -> Result<(), FsError> {
        let bsize = index(self.geometry.block());
        let bytes = self.core.cache.blocks_mut().read(old, 0, bsize)?.to_vec();
        let ((), data) = self.core.cache.changes().fill(new, bsize, Role::DataMove, |to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })?;
        let frag = u64::from(self.geometry.per_block());
        let old = Extent::new(old, frag);
        self.core.note_unsettled(ino, Extent::new(new, frag));
        self.core.forget_unsettled(ino, &[old]);
        let after = [bitmap, data];
        match self.geometry.way(lbn) {
            Some(BlockPath::Direct(at)) => {
                if let Some(number) = self.core.node(ino)?.map.trees_mut().direct.get_mut(at) {
                    *number = new.get();
                }
                self.move_run(ino, old, &after)?;
            }
            Some(BlockPath::Indirect { tree, places }) => {
                let path = self.map().existing_path(ino, tree, &places)?;
                if let (Some(&block), Some(&place)) = (path.last(), places.last()) {
                    let dropped = self.core.cache.changes_in(old);
                    let number = new.get();
                    let role = Role::PointerMove;
                    let changed = self.map().put_pointer(
                        (block, place),
                        number,
                        role,
                        &after,
                        Some(&dropped),
                    )?;
                    self.core.note_unsettled(ino, Extent::new(block, frag));
                    self.free_moved(old, changed)?;
                }
            }
            None => {}
        }
        Ok(())
    }
}
