//! Allocation for files that are mapped by indirect blocks.

use super::map::{Around, Core, Map};
use super::maps::FileMaps;
use super::node::InodeTables;
use seekless_cache::ChangeId;
use seekless_fs::field::{le32, low32};
use seekless_fs::{FsError, Location};
use seekless_live::indirect::{BlockPath, DIRECT, Files, Indirect, Purpose, Units};
use seekless_units::{BlockNo, Extent, Ino};

/// Bytes of a block number.
const POINTER: usize = 4;

impl FileMaps {
    /// The block before one in its map (`ext2_find_near`): the block that was allocated last, if
    /// the file goes on behind it; or else the last number before it in the same table, or the
    /// block that contains the table.
    fn nearest(&mut self, core: &mut Core, ino: Ino, lbn: u64) -> Result<Option<BlockNo>, FsError> {
        if let Some((last, at)) = core.node(ino)?.map.last
            && last.checked_add(1) == Some(lbn)
        {
            return Ok(Some(at));
        }
        let mut files = Files::of(self, core);
        let place = match files.way(lbn) {
            Some(BlockPath::Indirect { places, .. }) => places.last().copied().unwrap_or(0),
            _ => lbn,
        };
        debug_assert!(place <= lbn, "the blocks in front of one in its table are the file's");
        for back in 1..=place {
            if let Some(at) = files.lookup_block(ino, lbn - back)? {
                return Ok(Some(at));
            }
        }
        // The table itself, if it was taken for this block.
        let last = core.node(ino)?.map.last.filter(|&(last, _)| last == lbn);
        Ok(last.map(|(_, at)| at))
    }
}

impl Indirect for FileMaps {
    type Map = Map;
    type Table = InodeTables;
    type Wanted = ();

    fn table(&self) -> &InodeTables {
        self.tables()
    }

    fn units(&self) -> Units {
        let block = self.layout().sb().block_size;
        Units { block, unit: block }
    }

    fn pointer_width(&self) -> usize {
        POINTER
    }

    fn pointer_at(&self, bytes: &[u8], at: usize) -> u64 {
        u64::from(le32(bytes, at).unwrap_or(0))
    }

    fn put_pointer(&self, bytes: &mut [u8; 8], number: u64) {
        debug_assert!(u32::try_from(number).is_ok(), "block maps have numbers of 32 bits");
        bytes.iter_mut().zip(low32(number).to_le_bytes()).for_each(|(to, from)| *to = from);
    }

    fn may_end_in_hole(&self) -> bool {
        true
    }

    /// Sectors are counted in 32 bits, those of the map among them
    /// (`ext2_max_size` of `fs/ext2/super.c`); without large files, 2 GiB less one.
    fn max_size(&self) -> u64 {
        let sb = self.layout().sb();
        if sb.raw.s_rev_level.get() == 0 {
            return super::primary::LARGE - 1;
        }
        let bsize = u64::from(sb.block_size).max(1);
        let per_block = bsize / 4;
        let all = u64::from(u32::MAX) * 512 / bsize;
        let tables = all / per_block + per_block + 2;
        (all - tables) * bsize
    }

    fn volume(&self) -> u64 {
        self.layout().sb().blocks
    }

    fn check_run(&self, ino: Ino, number: u64, units: u32) -> Result<BlockNo, FsError> {
        let run = Extent::new(BlockNo::new(number), u64::from(units));
        self.layout().check_data(run, Location::of("block map").in_inode(ino))?;
        Ok(run.start)
    }

    fn wanted(&mut self, _: &mut Core, _: Ino, _: u64) -> Result<(), FsError> {
        Ok(())
    }

    fn take(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        count: u32,
        purpose: Purpose<()>,
    ) -> Result<(BlockNo, ChangeId), FsError> {
        debug_assert_eq!(count, 1, "there are no fragments");
        let last = core.node(ino)?.map.last;
        let left = last.filter(|&(last, _)| last.checked_add(1) == Some(lbn));
        let around = match purpose {
            Purpose::Indirect(_) => None,
            Purpose::Data(()) => Some(Around { left, right: None }),
        };
        let nearest = match purpose {
            // The table is allocated before the block: it follows the preceding one.
            Purpose::Indirect(_) if lbn >= u64::try_from(DIRECT).unwrap_or(0) => {
                let last = core.node(ino)?.map.last;
                match last.filter(|&(last, _)| last == lbn || last.checked_add(1) == Some(lbn)) {
                    Some((_, at)) => Some(at),
                    None => Files::of(self, core).lookup_block(ino, lbn - 1)?,
                }
            }
            _ => self.nearest(core, ino, lbn)?,
        };
        let (run, id) = self.space().take_run(core, ino, lbn, nearest, 1, around)?;
        debug_assert_eq!(run.len, 1, "one block is taken at a time");
        let at = run.start;
        core.node(ino)?.map.last = Some((lbn, at));
        Ok((at, id))
    }

    fn take_larger(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        count: u32,
        (): (),
    ) -> Result<(BlockNo, ChangeId), FsError> {
        debug_assert!(false, "a block is the smallest there is");
        self.take(core, ino, lbn, count, Purpose::Data(()))
    }

    fn give(&mut self, core: &mut Core, runs: &[Extent]) -> Result<(), FsError> {
        self.space().give(core, runs).map(drop)
    }

    fn extend(
        &mut self,
        _: &mut Core,
        _: BlockNo,
        _: u32,
        _: u32,
    ) -> Result<Option<ChangeId>, FsError> {
        debug_assert!(false, "a block is the smallest there is");
        Ok(None)
    }

    fn gathers(&self, (): (), _: BlockNo) -> u32 {
        0
    }

    fn take_cluster(
        &mut self,
        _: &mut Core,
        _: Ino,
        _: u64,
        _: &[BlockNo],
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        Ok(None)
    }
}
