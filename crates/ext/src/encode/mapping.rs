//! Encodes the map of a file's blocks: extent trees, and the indirect blocks of volumes without
//! extents.

#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "lengths are of our own making, not an image's"
)]

use crate::checksum::crc32c;
use crate::ondisk::{EXTENT_MAGIC, EXTENT_MAX_LEN, ExtentHeader, ExtentIndex, ExtentLeaf, IBlock};
use seekless_fs::FsError;
use seekless_fs::plan::{Placed, Run};
use seekless_units::{BlockNo, Extent};
use zerocopy::IntoBytes;

/// Extents that fit in the inode.
pub(crate) const IN_INODE: u64 = 4;
/// Block numbers in the inode before the first indirect block.
const DIRECT: u64 = 12;

/// A piece of a file with a place, at most as long as one on-disk extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) placed: Placed,
    /// Allocated but never written.
    pub(crate) unwritten: bool,
}

/// An encoded block map: an inode's `i_block` and the blocks of the rest.
#[derive(Debug)]
pub(crate) struct EncodedMap {
    pub(crate) i_block: IBlock,
    pub(crate) blocks: Vec<(BlockNo, Vec<u8>)>,
}

/// Extents in a tree block. Behind them there is room for a checksum of 4 bytes.
pub(crate) fn fan_out(block_size: u32) -> u64 {
    (u64::from(block_size) - size_of::<ExtentHeader>() as u64) / size_of::<ExtentLeaf>() as u64
}

/// Tree blocks needed for `extents` extents.
pub(crate) fn extent_tree_blocks(extents: u64, block_size: u32) -> u64 {
    let (mut level, mut blocks) = (extents, 0);
    while level > IN_INODE {
        level = level.div_ceil(fan_out(block_size));
        blocks += level;
    }
    blocks
}

/// Extents needed for a run of `blocks` blocks in one place.
pub(crate) fn extents_of(blocks: u64, unwritten: bool) -> u64 {
    blocks.div_ceil(max_len(unwritten))
}

/// The longest extent; one less when unwritten, which the length's top bit marks.
pub(crate) const fn max_len(unwritten: bool) -> u64 {
    if unwritten { EXTENT_MAX_LEN as u64 - 1 } else { EXTENT_MAX_LEN as u64 }
}

/// Builds an extent tree in the given blocks, top level first. `seed` is the
/// inode's checksum seed when tree blocks carry a checksum.
pub(crate) fn extent_tree(
    pieces: &[Piece],
    block_size: u32,
    seed: Option<u32>,
    blocks: &mut dyn Iterator<Item = BlockNo>,
) -> Result<EncodedMap, FsError> {
    debug_assert!(rises(pieces), "pieces come in the order of the file");
    let mut leaves: Vec<ExtentLeaf> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let (mut lbn, mut start) = (piece.placed.lbn.get(), piece.placed.extent.start.get());
        let mut left = piece.placed.extent.len;
        while left > 0 {
            let len = left.min(max_len(piece.unwritten));
            let run = Extent::new(BlockNo::new(start), len);
            leaves.push(leaf_entry(to_lbn(lbn)?, run, piece.unwritten));
            lbn += len;
            start += len;
            left -= len;
        }
    }
    let mut out = EncodedMap { i_block: IBlock::default(), blocks: Vec::new() };
    let mut level: Vec<[u8; 12]> = leaves.iter().map(entry_bytes).collect();
    let mut firsts: Vec<u32> = leaves.iter().map(|leaf| leaf.ee_block.get()).collect();
    let mut depth = 0u16;
    // Blocks are handed out from the top of the tree down, so collect the
    // levels from the bottom up first.
    let per_block = fan_out(block_size) as usize;
    let mut levels: Vec<Vec<Vec<[u8; 12]>>> = Vec::new();
    let mut level_firsts: Vec<Vec<u32>> = Vec::new();
    while level.len() as u64 > IN_INODE {
        let nodes: Vec<Vec<[u8; 12]>> = level.chunks(per_block).map(<[_]>::to_vec).collect();
        firsts = firsts.chunks(per_block).map(|chunk| chunk[0]).collect();
        level = vec![[0; 12]; nodes.len()];
        levels.push(nodes);
        level_firsts.push(firsts.clone());
        depth += 1;
    }
    let total: usize = levels.iter().map(Vec::len).sum();
    let given: Vec<BlockNo> = blocks.take(total).collect();
    if given.len() < total {
        return Err(FsError::NoSpace(format!(
            "an extent tree of {total} blocks was planned with {}",
            given.len()
        )));
    }
    let mut given = given.into_iter();
    let places: Vec<Vec<BlockNo>> =
        levels.iter().rev().map(|nodes| given.by_ref().take(nodes.len()).collect()).collect();
    let places: Vec<Vec<BlockNo>> = places.into_iter().rev().collect();
    for at in 0..levels.len() {
        let pointers: Vec<[u8; 12]> = places[at]
            .iter()
            .zip(&level_firsts[at])
            .map(|(block, first)| entry_bytes(&index_entry(*first, *block)))
            .collect();
        match levels.get_mut(at + 1) {
            Some(above) => {
                for (node, entries) in above.iter_mut().zip(pointers.chunks(per_block)) {
                    *node = entries.to_vec();
                }
            }
            None => level = pointers,
        }
    }
    for (at, nodes) in levels.iter().enumerate() {
        for (entries, &place) in nodes.iter().zip(&places[at]) {
            let mut bytes = vec![0; block_size as usize];
            put_node(&mut bytes, entries, per_block, at as u16);
            if let Some(seed) = seed {
                let tail = size_of::<ExtentHeader>() + per_block * size_of::<ExtentLeaf>();
                let sum = crc32c(seed, &bytes[..tail]);
                bytes[tail..tail + 4].copy_from_slice(&sum.to_le_bytes());
            }
            out.blocks.push((place, bytes));
        }
    }
    debug_assert!(given.next().is_none(), "each block that was given is a node");
    debug_assert_eq!(out.blocks.len(), total, "each node is written");
    put_node(&mut out.i_block.0, &level, IN_INODE as usize, depth);
    Ok(out)
}

/// Whether pieces are in order, each behind the one before it.
fn rises(pieces: &[Piece]) -> bool {
    let end = |piece: &Piece| piece.placed.lbn.get() + piece.placed.extent.len;
    pieces.is_sorted_by(|one, next| end(one) <= next.placed.lbn.get())
}

/// An extent of at most [`max_len`] blocks.
pub(crate) fn leaf_entry(lbn: u32, run: Extent, unwritten: bool) -> ExtentLeaf {
    debug_assert!(run.len > 0 && run.len <= max_len(unwritten), "{run:?} as one extent");
    debug_assert_eq!(run.start.get() >> 48, 0, "numbers of blocks have 48 bits");
    let flag = if unwritten { EXTENT_MAX_LEN } else { 0 };
    ExtentLeaf {
        ee_block: lbn.into(),
        ee_len: (run.len as u16 + flag).into(),
        ee_start_hi: ((run.start.get() >> 32) as u16).into(),
        ee_start_lo: (run.start.get() as u32).into(),
    }
}

/// The index entry of a block below.
pub(crate) fn index_entry(first: u32, block: BlockNo) -> ExtentIndex {
    debug_assert_eq!(block.get() >> 48, 0, "numbers of blocks have 48 bits");
    ExtentIndex {
        ei_block: first.into(),
        ei_leaf_lo: (block.get() as u32).into(),
        ei_leaf_hi: ((block.get() >> 32) as u16).into(),
        ei_unused: 0.into(),
    }
}

/// An entry of either kind, as bytes of a node.
pub(crate) fn entry_bytes<T: IntoBytes + zerocopy::Immutable>(entry: &T) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes.copy_from_slice(entry.as_bytes());
    bytes
}

/// Writes a node's header and entries to the front of `out`; the bytes behind stay.
pub(crate) fn put_node(out: &mut [u8], entries: &[[u8; 12]], max: usize, depth: u16) {
    debug_assert!(entries.len() <= max, "{} entries in a node of {max}", entries.len());
    let header = ExtentHeader {
        eh_magic: EXTENT_MAGIC.into(),
        eh_entries: (entries.len() as u16).into(),
        eh_max: (max as u16).into(),
        eh_depth: depth.into(),
        eh_generation: 0.into(),
    };
    let at = size_of::<ExtentHeader>();
    out[..at].copy_from_slice(header.as_bytes());
    out[at..at + entries.len() * 12].copy_from_slice(entries.as_flattened());
}

fn to_lbn(lbn: u64) -> Result<u32, FsError> {
    u32::try_from(lbn).map_err(|_| {
        FsError::NoSpace(format!("logical block {lbn} is beyond the largest possible file"))
    })
}

/// The end of the last block that a map of direct and indirect blocks reaches, in bytes.
pub(crate) fn block_map_reach(block_size: u32) -> u64 {
    let size = u64::from(block_size);
    let slots = size / 4;
    (DIRECT + slots + slots.pow(2) + slots.pow(3)) * size
}

/// The longest file, in bytes, whether it has contents at its end or a hole: Linux, `ext4_max_size`
/// and `ext4_max_bitmap_size`. Without the feature huge_file, a file with contents everywhere, and its
/// indirect blocks, must have less than 2^32 sectors of 512 bytes; Linux reads nothing beyond.
pub(crate) fn longest_file(has_extents: bool, has_huge_files: bool, block_size: u32) -> u64 {
    let size = u64::from(block_size);
    let counted = match has_huge_files {
        true => u64::MAX,
        false => u64::from(u32::MAX) / (size / 512),
    };
    if has_extents {
        return u64::from(u32::MAX).min(counted) * size;
    }
    let (slots, reach) = (size / 4, block_map_reach(block_size));
    // One indirect block, one tree of two levels, one of three.
    let indirect = 3 + 2 * slots + slots.pow(2);
    if reach / size + indirect <= counted {
        return reach;
    }
    // The indirect blocks of a tree of two levels, and of one of three, for the rest of the count.
    let rest = counted.saturating_sub(DIRECT + slots);
    let mut indirect = 2 + rest.min(slots.pow(2)).div_ceil(slots);
    if rest >= slots.pow(2) {
        let third = rest - slots.pow(2);
        indirect += 1 + third.div_ceil(slots) + third.div_ceil(slots.pow(2));
    }
    counted.saturating_sub(indirect) * size
}

/// Indirect blocks needed to map these runs.
pub(crate) fn indirect_blocks(runs: &[Run], block_size: u32) -> u64 {
    let per_block = u64::from(block_size / 4);
    let mut used = 0;
    let mut base = DIRECT;
    let mut span = 1;
    for level in 1..=3u32 {
        span *= per_block;
        // Every block of this tree's levels that maps a part of a run.
        for depth in 0..level {
            let reach = per_block.pow(depth + 1);
            let mut last = None;
            for run in runs {
                let from = run.lbn.get().max(base);
                let to = (run.lbn.get() + run.len).min(base + span);
                if from >= to {
                    continue;
                }
                let (first, end) = ((from - base) / reach, (to - 1 - base) / reach);
                used += end - first + u64::from(last != Some(first));
                last = Some(end);
            }
        }
        base += span;
    }
    used
}

/// Builds an ext2 block map: direct numbers, then one, two and three levels of indirect blocks
/// taken from `blocks` in the order of the blocks that they map.
pub(crate) fn block_map(
    pieces: &[Piece],
    block_size: u32,
    blocks: &mut dyn Iterator<Item = BlockNo>,
) -> Result<EncodedMap, FsError> {
    debug_assert!(rises(pieces), "pieces come in the order of the file");
    let per_block = u64::from(block_size / 4);
    let mut slots = [0u32; 15];
    let mut builder = IndirectBuilder { block_size, out: Vec::new(), open: vec![None; 4], blocks };
    for piece in pieces {
        let Placed { lbn, extent } = piece.placed;
        for n in 0..extent.len {
            let lbn = lbn.get() + n;
            let block = u32::try_from(extent.start.get() + n).map_err(|_| {
                FsError::NoSpace("a block map cannot point beyond 2^32 blocks".into())
            })?;
            if lbn < DIRECT {
                slots[lbn as usize] = block;
                continue;
            }
            let (mut base, mut span, mut level) = (DIRECT, per_block, 1);
            while lbn >= base + span {
                base += span;
                span *= per_block;
                level += 1;
                if level > 3 {
                    return Err(FsError::NoSpace(format!(
                        "logical block {lbn} is beyond what a block map reaches"
                    )));
                }
            }
            let slot = &mut slots[DIRECT as usize + level - 1];
            *slot = builder.put(*slot, level, lbn - base, block)?;
        }
    }
    let mut i_block = IBlock::default();
    for (bytes, slot) in i_block.0.chunks_mut(4).zip(slots) {
        bytes.copy_from_slice(&slot.to_le_bytes());
    }
    Ok(EncodedMap { i_block, blocks: builder.out })
}

struct IndirectBuilder<'a> {
    block_size: u32,
    out: Vec<(BlockNo, Vec<u8>)>,
    /// By level, the index in `out` of the block written last: files are
    /// mapped in order, so nothing older is needed again.
    open: Vec<Option<usize>>,
    blocks: &'a mut dyn Iterator<Item = BlockNo>,
}

impl IndirectBuilder<'_> {
    /// Sets the pointer at `at` below the indirect block `root` (0: none yet)
    /// of `level` levels; returns the root's number.
    fn put(&mut self, root: u32, level: usize, at: u64, block: u32) -> Result<u32, FsError> {
        let per_block = u64::from(self.block_size / 4);
        debug_assert!((1..=3).contains(&level), "{level} levels of indirect blocks");
        debug_assert!(at < per_block.pow(level as u32), "pointer {at} below {level} levels");
        let index = match self.open[level] {
            Some(index) if root != 0 && self.out[index].0.get() == u64::from(root) => index,
            _ => self.fresh(level)?,
        };
        let reach = per_block.pow(level as u32 - 1);
        let slot = (at / reach) as usize * 4;
        let mut value = block;
        debug_assert!(
            level > 1 || self.out[index].1[slot..slot + 4] == [0; 4],
            "a logical block is mapped once"
        );
        if level > 1 {
            let bytes = &self.out[index].1[slot..slot + 4];
            let child = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            value = self.put(child, level - 1, at % reach, block)?;
        }
        self.out[index].1[slot..slot + 4].copy_from_slice(&value.to_le_bytes());
        Ok(self.out[index].0.get() as u32)
    }

    fn fresh(&mut self, level: usize) -> Result<usize, FsError> {
        let block = self.blocks.next().ok_or_else(|| {
            FsError::NoSpace("a block map was planned with too few indirect blocks".into())
        })?;
        if block.get() > u64::from(u32::MAX) {
            return Err(FsError::NoSpace("an indirect block lies beyond 2^32 blocks".into()));
        }
        self.out.push((block, vec![0; self.block_size as usize]));
        self.open[level] = Some(self.out.len() - 1);
        Ok(self.out.len() - 1)
    }
}

/// Blocks of a map of these pieces, besides the inode.
pub(crate) fn blocks_of_map(pieces: &[Piece], has_extents: bool, block_size: u32) -> u64 {
    if has_extents {
        let extents = pieces.iter().map(|it| extents_of(it.placed.extent.len, it.unwritten));
        return extent_tree_blocks(extents.sum(), block_size);
    }
    let run = |it: &Piece| Run { lbn: it.placed.lbn, len: it.placed.extent.len };
    indirect_blocks(&pieces.iter().map(run).collect::<Vec<_>>(), block_size)
}

/// Adds a piece of one block, joined to the last where they touch.
pub(crate) fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    if let Some(last) = pieces.last_mut() {
        let run = &mut last.placed;
        let follows = run.lbn + run.extent.len == piece.placed.lbn
            && run.extent.end() == piece.placed.extent.start
            && last.unwritten == piece.unwritten;
        if follows {
            run.extent.len += 1;
            return;
        }
    }
    pieces.push(piece);
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::Lbn;

    fn piece(lbn: u64, start: u64, len: u64) -> Piece {
        let extent = Extent::new(BlockNo::new(start), len);
        Piece { placed: Placed { lbn: Lbn::new(lbn), extent }, unwritten: false }
    }

    /// The greatest lengths that Linux's ftruncate accepts on such volumes.
    #[test]
    fn the_longest_file_is_that_of_the_kernel() {
        for (has_extents, has_huge_files, block_size, len) in [
            (false, false, 1024, 17_247_252_480),
            (false, false, 2048, 275_415_851_008),
            (false, false, 4096, 2_196_873_666_560),
            (false, true, 4096, 4_402_345_721_856),
            (true, false, 1024, 2_199_023_254_528),
            (true, false, 4096, 2_199_023_251_456),
            (true, true, 4096, 17_592_186_040_320),
        ] {
            let longest = longest_file(has_extents, has_huge_files, block_size);
            assert_eq!(longest, len, "{has_extents} {has_huge_files} {block_size}");
        }
    }

    #[test]
    fn the_tree_has_as_many_blocks_as_announced() {
        for count in [0, 1, 4, 5, 84, 85, 84 * 4, 84 * 4 + 1, 84 * 84 + 7] {
            let pieces: Vec<Piece> = (0..count).map(|at| piece(at * 2, 1000 + at * 3, 1)).collect();
            let mut blocks = (0..).map(BlockNo::new);
            let map = extent_tree(&pieces, 1024, Some(0), &mut blocks).unwrap();
            assert_eq!(map.blocks.len() as u64, extent_tree_blocks(count, 1024), "{count}");
        }
    }

    #[test]
    fn indirect_blocks_are_counted_as_they_are_made() {
        let cases: [&[(u64, u64)]; 6] = [
            &[(0, 12)],
            &[(0, 13)],
            &[(0, 12 + 256 + 256 * 3)],
            &[(5, 2), (300, 10), (70_000, 300)],
            &[(12 + 256 + 256 * 256 - 1, 2)],
            &[(20, 1), (22, 1), (12 + 255, 2), (12 + 256 + 256, 1)],
        ];
        for runs in cases {
            let pieces: Vec<Piece> = runs.iter().map(|&(lbn, len)| piece(lbn, 99, len)).collect();
            let mut blocks = (500_000..).map(BlockNo::new);
            let map = block_map(&pieces, 1024, &mut blocks).unwrap();
            let runs: Vec<Run> =
                runs.iter().map(|&(lbn, len)| Run { lbn: Lbn::new(lbn), len }).collect();
            assert_eq!(map.blocks.len() as u64, indirect_blocks(&runs, 1024), "{runs:?}");
        }
    }

    #[test]
    fn a_plan_with_too_few_blocks_is_an_error() {
        let pieces: Vec<Piece> = (0..5).map(|at| piece(at * 2, 1000 + at * 3, 1)).collect();
        assert!(extent_tree(&pieces, 1024, None, &mut std::iter::empty()).is_err());
    }
}
