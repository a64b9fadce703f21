//! Files made shorter or longer.

use super::cut::MapCut;
use super::geometry::BlockPath;
use super::{Files, Indirect};
use crate::Fault;
use crate::table::Table;
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_units::{Extent, Ino};

impl<F: Indirect> Files<'_, F> {
    /// Gives a file another length.
    pub fn truncate(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        let size = self.core.node(ino)?.size;
        if len > size {
            self.check_len(ino, Some(len))?;
            let grown = self.lengthen(ino, len);
            if grown.is_err() && self.core.node(ino)?.size > size {
                self.shrink(ino, size)?;
            }
            return grown;
        }
        if len < size { self.shrink(ino, len) } else { Ok(()) }
    }

    /// The last block of a file is no hole, where the format wants that.
    fn lengthen(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        self.open_gap(ino, len)?;
        if self.maps.may_end_in_hole() {
            return self.announce(ino, len).map(drop);
        }
        self.touch_last(ino, len).map(|_| ())
    }

    fn touch_last(&mut self, ino: Ino, len: u64) -> Result<ChangeId, FsError> {
        let bsize = self.geometry.block();
        let last = len.saturating_sub(1);
        let within = index(last % bsize);
        self.write_in_block(ino, last / bsize, within, &[0])
    }

    /// Makes a file shorter.
    pub(super) fn shrink(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        let bsize = self.geometry.block();
        let kept = len.div_ceil(bsize);
        // Where the end is to be no hole the block there comes before the length.
        let mut before = Vec::new();
        let solid = kept > 0 && !self.maps.may_end_in_hole();
        if solid && self.lookup_block(ino, kept - 1)?.is_none() {
            before.push(self.touch_last(ino, len)?);
            self.settle_way(ino, kept - 1)?;
        }
        if !len.is_multiple_of(bsize) {
            self.zero(ino, len, kept * bsize)?;
        }
        self.settle_cut(ino, kept)?;
        let cut = MapCut::new(self.maps, self.core, ino).behind(len)?;
        let sectors = self.geometry.sectors(cut.blocks);
        let node = self.core.node(ino)?;
        node.size = len;
        node.drop_sectors(sectors);
        // No number past the end stays in an indirect block that stays.
        before.extend(self.core.unless(Fault::PartialCut, cut.cleared.clone()));
        let role = if len == 0 { Role::PointerClear } else { Role::PointerCut };
        let cleared = self.put_blocks(ino, role, &before)?;
        self.core.node(ino)?.pending.sized = cleared;
        self.core.forget_unsettled(ino, &cut.runs);
        self.core.free_cut(cleared, cut);
        Ok(())
    }

    /// Waits, under every discipline, until the indirect blocks that lead to a block are on the
    /// disk.
    fn settle_way(&mut self, ino: Ino, lbn: u64) -> Result<(), FsError> {
        let Some(BlockPath::Indirect { tree, places }) = self.geometry.way(lbn) else {
            return Ok(());
        };
        let frag = u64::from(self.geometry.per_block());
        let path = self.map().existing_path(ino, tree, &places)?;
        let runs: Vec<Extent> = path.iter().map(|&at| Extent::new(at, frag)).collect();
        self.core.cache.settle_runs(&runs)?;
        let run = self.maps.table().inode_unit(ino, self.maps.units().unit)?;
        self.core.cache.settle_runs(&[run])
    }

    /// Where a tree of indirect blocks is cut in two, none of its changes may be under way: those
    /// of the kept part would wait for those of the cut one. That happens rarely, and
    /// `ffs_truncate` writes the whole file first in this case.
    fn settle_cut(&mut self, ino: Ino, kept: u64) -> Result<(), FsError> {
        let Some(BlockPath::Indirect { tree, places }) = self.geometry.way(kept) else {
            return Ok(());
        };
        let path = self.map().existing_path(ino, tree, &places)?;
        if path.is_empty() || places.iter().all(|&place| place == 0) {
            return Ok(());
        }
        self.map().settle_blocks(&path)?;
        let run = self.maps.table().inode_unit(ino, self.maps.units().unit)?;
        self.core.cache.settle_runs(&[run])
    }
}
