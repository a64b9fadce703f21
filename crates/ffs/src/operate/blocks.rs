//! Allocation for files that are mapped by indirect blocks.

use super::Ffs;
use super::map::Core;
use super::map::Map;
use crate::superblock::Format;
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_fs::field::{index, low32};
use seekless_live::indirect::{BlockPath, Files, Indirect, Mapped, Purpose, Trees, Units};
use seekless_placement::block::Wanted;
use seekless_units::{BlockNo, Extent, Ino};

impl Mapped for Map {
    fn trees(&self) -> &Trees {
        &self.trees
    }

    fn trees_mut(&mut self) -> &mut Trees {
        &mut self.trees
    }
}

impl Ffs {
    /// The preferred place of a block by policy, from the blocks before it in its map.
    pub(super) fn wish(&mut self, core: &mut Core, ino: Ino, lbn: u64) -> Result<Wanted, FsError> {
        let maxcontig = u64::from(self.sb.tuning.maxcontig);
        let mut files = Files::of(self, core);
        let at = match files.way(lbn) {
            Some(BlockPath::Indirect { places, .. }) => places.last().copied().unwrap_or(0),
            _ => lbn,
        };
        debug_assert!(at <= lbn, "place {at} in a block of numbers for block {lbn}");
        let mut neighbour = |place: Option<u64>| -> Result<Option<BlockNo>, FsError> {
            let Some(place) = place else { return Ok(None) };
            files.lookup_block(ino, lbn - (at - place))
        };
        let previous = neighbour(at.checked_sub(1))?;
        let before = at.checked_sub(maxcontig);
        let run_before = if previous.is_some() { neighbour(before)? } else { None };
        Ok(Wanted::Data { index: at, previous, run_before })
    }
}

impl Indirect for Ffs {
    type Map = super::map::Map;
    type Table = Self;
    type Wanted = Wanted;

    fn table(&self) -> &Self {
        self
    }

    fn units(&self) -> Units {
        Units { block: self.limits.block, unit: self.limits.unit }
    }

    fn pointer_width(&self) -> usize {
        index(self.sb.pointer_size())
    }

    fn pointer_at(&self, bytes: &[u8], at: usize) -> u64 {
        match self.sb.format {
            Format::Ufs1 => u64::from(self.sb.order.get_u32(bytes, at).unwrap_or(0)),
            Format::Ufs2 => self.sb.order.get_u64(bytes, at).unwrap_or(0),
        }
    }

    fn put_pointer(&self, bytes: &mut [u8; 8], number: u64) {
        match self.sb.format {
            Format::Ufs1 => self.sb.order.put_u32(bytes, 0, low32(number)),
            Format::Ufs2 => self.sb.order.put_u64(bytes, 0, number),
        }
    }

    fn max_size(&self) -> u64 {
        self.sb.tuning.maxfilesize
    }

    fn volume(&self) -> u64 {
        self.sb.size
    }

    fn check_run(&self, ino: Ino, number: u64, units: u32) -> Result<BlockNo, FsError> {
        self.allocator.check_run(ino, number, units)
    }

    fn wanted(&mut self, core: &mut Core, ino: Ino, lbn: u64) -> Result<Wanted, FsError> {
        self.wish(core, ino, lbn)
    }

    fn take(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        count: u32,
        purpose: Purpose<Wanted>,
    ) -> Result<(BlockNo, ChangeId), FsError> {
        let wanted = match purpose {
            Purpose::Data(wanted) => wanted,
            Purpose::Indirect(level) => Wanted::Indirect(level),
        };
        self.allocator.take_data(core, ino, lbn, count, wanted)
    }

    fn take_larger(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        count: u32,
        wanted: Wanted,
    ) -> Result<(BlockNo, ChangeId), FsError> {
        self.allocator.take_larger(core, ino, lbn, count, wanted)
    }

    fn extend(
        &mut self,
        core: &mut Core,
        at: BlockNo,
        old: u32,
        new: u32,
    ) -> Result<Option<ChangeId>, FsError> {
        self.allocator.extend(core, at, old, new)
    }

    fn give(&mut self, core: &mut Core, runs: &[Extent]) -> Result<(), FsError> {
        self.copies.release(&mut self.allocator, core, runs).map(drop)
    }

    fn gathers(&self, wanted: Wanted, at: BlockNo) -> u32 {
        self.allocator.longest_cluster(wanted, at)
    }

    fn take_cluster(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        blocks: &[BlockNo],
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let Some(cluster) = self.allocator.cluster_for(lbn, blocks) else { return Ok(None) };
        let wanted = self.wish(core, ino, cluster.start.get())?;
        self.allocator.take_cluster(core, ino, &cluster, wanted)
    }
}
