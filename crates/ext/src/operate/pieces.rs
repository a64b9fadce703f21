//! How much of a file goes into one transaction.

use super::contents::FileContents;
use super::extents;
use super::map::Core;
use super::maps::FileMaps;
use crate::superblock::Super;
use seekless_cache::{CREDITS, JournalMode};
use seekless_fs::FsError;
use seekless_units::{GroupNo, Ino};
use std::collections::BTreeSet;

/// Blocks that an operation on a file changes besides bitmaps and descriptors: its
/// inode, its map, the superblock.
const APART: u64 = 10;

/// Bytes of a file that one operation writes at most: each new block may take a
/// bitmap and a descriptor, and is logged itself where contents are.
pub(super) fn most_written(sb: &Super, core: &Core) -> u64 {
    let groups = u64::from(sb.groups);
    let logs = core.cache.blocks().config().discipline.journal_mode() == Some(JournalMode::Data);
    let room = CREDITS - APART;
    let for_groups = groups * 2;
    let blocks = match (logs, for_groups < room / 2) {
        (false, true) => 256,
        (true, true) => room - for_groups,
        (false, false) => room / 2,
        (true, false) => room / 3,
    };
    // Each `per_table` blocks have an indirect block of their own.
    let per_table = u64::from(sb.block_size / 4).max(1);
    let blocks = blocks.min(per_table).max(1);
    blocks * u64::from(sb.block_size)
}

/// How far a file can be cut towards a length, by the changes that are left to the operation:
/// all bitmaps of the freed blocks, with their descriptors.
pub(super) fn next_cut(
    maps: &mut FileMaps,
    core: &mut Core,
    ino: Ino,
    len: u64,
) -> Result<u64, FsError> {
    let Some(left) = core.cache.credits_left() else { return Ok(len) };
    let sb = maps.layout().sb();
    let (bsize, groups) = (u64::from(sb.block_size).max(1), u64::from(sb.groups));
    let node = core.node(ino)?;
    let blocks = node.sectors / (bsize / 512);
    let most = blocks.min(groups) * 2 + APART;
    if left >= most || core.cache.extend(most - left) {
        return Ok(len);
    }
    // Blocks freed with the last ones of a map: a table for so many numbers, or extents, which
    // may be of one block each.
    let number = if extents::maps(core, ino)? { 12 } else { 4 };
    let per_table = bsize / number - 1;
    let room = left.saturating_sub(APART) / 2;
    let mut met: BTreeSet<GroupNo> = BTreeSet::new();
    let mut gone = 0u64;
    let mut runs = FileContents::of(maps, core, ino).mapped_runs()?;
    let shape = maps.free_space().groups().summaries().shape();
    runs.sort_unstable_by_key(|run| run.lbn);
    for run in runs.iter().rev() {
        for within in (0..run.extent.len).rev() {
            let lbn = run.lbn.get() + within;
            if lbn * bsize < len {
                return Ok(len);
            }
            let at = run.extent.start + within;
            met.insert(shape.group_of(at));
            gone += 1;
            let tables = gone.div_ceil(per_table) + 3;
            let groups = u64::try_from(met.len()).unwrap_or(u64::MAX);
            if groups + tables > room {
                let next = (lbn + 1) * bsize;
                return Ok(next.max(len));
            }
        }
    }
    Ok(len)
}
