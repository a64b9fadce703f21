//! The parts of a volume besides the tree: the journal, the resize inode's map and the orphan file.

use super::base::BaseVolume;
use super::geometry::Geometry;
use crate::encode::mapping::{Piece, extent_tree_blocks, extents_of, indirect_blocks};
use crate::encode::resize::ResizeMap;
use crate::ondisk::{
    JOURNAL_MAGIC, JournalHeader, JournalSuperblock, ORPHAN_BLOCK_MAGIC, OrphanBlockTail, incompat,
    journal_block,
};
use crate::orphans;
use seekless_fs::FsError;
use seekless_fs::extents::union;
use seekless_fs::plan::{Placed, Run};
use seekless_units::{BlockNo, Extent, Lbn};
use zerocopy::{FromZeros, IntoBytes};

/// A file of the volume's own, with its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct FixedFile {
    pub(crate) data: Vec<Placed>,
    /// Blocks for its map.
    pub(crate) map: Vec<BlockNo>,
}

impl FixedFile {
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        self.data.iter().map(|&placed| Piece { placed, unwritten: false }).collect()
    }

    /// Whether a new volume can have it as it is: of so many blocks from the first on, with as many
    /// blocks of its map as the new volume's form of it takes.
    fn suits(&self, geometry: &Geometry, blocks: u64) -> bool {
        let runs: Vec<Run> = self
            .data
            .iter()
            .map(|placed| Run { lbn: placed.lbn, len: placed.extent.len })
            .collect();
        let map = if geometry.features.has_incompat(incompat::EXTENTS) {
            let extents = runs.iter().map(|run| extents_of(run.len, false)).sum();
            extent_tree_blocks(extents, geometry.block_size)
        } else {
            indirect_blocks(&runs, geometry.block_size)
        };
        let mut next = Lbn::ZERO;
        let is_whole = runs.iter().all(|run| {
            let follows = run.lbn == next;
            next = run.lbn + run.len;
            follows
        });
        is_whole && next == Lbn::new(blocks) && map == self.map.len() as u64
    }

    pub(crate) fn data_blocks(&self) -> u64 {
        self.data.iter().map(|placed| placed.extent.len).sum()
    }

    /// All blocks it occupies.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Extent> + '_ {
        let map = self.map.iter().map(|&block| Extent::new(block, 1));
        self.data.iter().map(|placed| placed.extent).chain(map)
    }
}

/// Places of everything fixed, and the space left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fixed {
    pub(crate) journal: FixedFile,
    pub(crate) orphans: FixedFile,
    /// The resize inode's double-indirect block.
    pub(crate) resize: Option<BlockNo>,
    pub(crate) free: Vec<Extent>,
}

impl Fixed {
    /// Puts the journal behind the first `contents` free blocks: near the data, but not in its way.
    /// The orphan file comes before the data: a kernel reads all of it when it mounts the volume
    /// for writing, after the descriptors and the first inodes (`ext4_init_orphan_info` in
    /// `fs/ext4/orphan.c`), and so fetches few chunks.
    /// Files of an older volume stay in their places if they have the right length; those that it
    /// lacks lie behind the data.
    pub(crate) fn place(
        geometry: &Geometry,
        contents: u64,
        base: Option<&BaseVolume>,
    ) -> Result<Self, FsError> {
        let mut free = geometry.free_runs();
        let mut fixed = Self::default();
        if let Some(base) = base.filter(|base| base.block_size() == geometry.block_size) {
            let journal = (&mut fixed.journal, &base.journal, geometry.journal_blocks);
            let orphans = (&mut fixed.orphans, &base.orphans, geometry.orphan_blocks);
            for (own, old, blocks) in [journal, orphans] {
                if blocks > 0 && old.suits(geometry, blocks) && take(&mut free, old.blocks()) {
                    *own = old.clone();
                }
            }
            let resize = base.resize.filter(|_| geometry.reserved_gdt_blocks > 0);
            let run = |block| Extent::new(block, 1);
            fixed.resize = resize.filter(|&block| take(&mut free, [run(block)].into_iter()));
        }
        if geometry.reserved_gdt_blocks > 0 && fixed.resize.is_none() {
            let first = free.first_mut().filter(|run| run.len > 0).ok_or_else(no_room)?;
            fixed.resize = Some(first.start);
            *first = Extent::new(first.start + 1, first.len - 1);
        }
        let missing = |file: &FixedFile, blocks| if file.data.is_empty() { blocks } else { 0 };
        let journal = missing(&fixed.journal, geometry.journal_blocks);
        let mut orphans = missing(&fixed.orphans, geometry.orphan_blocks);
        if base.is_none() {
            fixed.orphans = take_file(geometry, &mut free, std::mem::take(&mut orphans))?;
        }
        let total: u64 = free.iter().map(|run| run.len).sum();
        let own = journal + orphans;
        let map_room = own.div_ceil(u64::from(geometry.block_size / 4)) + 8;
        let skip = match geometry.packs_metadata {
            true => 0,
            false => contents.min(total.saturating_sub(own + map_room)),
        };
        let (mut front, mut back) = split(&free, skip);
        if journal > 0 {
            fixed.journal = take_file(geometry, &mut back, journal)?;
        }
        if orphans > 0 {
            fixed.orphans = take_file(geometry, &mut back, orphans)?;
        }
        match (front.last_mut(), back.first()) {
            (Some(last), Some(first)) if last.end() == first.start => {
                last.len += first.len;
                back.remove(0);
            }
            _ => {}
        }
        front.extend(back);
        front.retain(|run| run.len > 0);
        fixed.free = front;
        Ok(fixed)
    }

    /// All blocks in use by these.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Extent> + '_ {
        self.journal
            .blocks()
            .chain(self.orphans.blocks())
            .chain(self.resize.map(|block| Extent::new(block, 1)))
    }
}

/// Takes runs out of the free ones, if all of them are free.
fn take(free: &mut Vec<Extent>, runs: impl Iterator<Item = Extent>) -> bool {
    let mut left = free.clone();
    for run in runs {
        let at = left.partition_point(|free| free.end() <= run.start);
        let Some(&free) = left.get(at) else { return false };
        if free.start > run.start || free.end() < run.end() {
            return false;
        }
        let before = Extent::new(free.start, run.start - free.start);
        let after = Extent::new(run.end(), free.end() - run.end());
        left.splice(at..=at, [before, after].into_iter().filter(|run| run.len > 0));
    }
    *free = left;
    true
}

fn no_room() -> FsError {
    FsError::NoSpace("the volume has no room for its own metadata".into())
}

/// The runs of the first `blocks` blocks, and the rest.
fn split(runs: &[Extent], mut blocks: u64) -> (Vec<Extent>, Vec<Extent>) {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for run in runs {
        let here = blocks.min(run.len);
        blocks -= here;
        if here > 0 {
            front.push(Extent::new(run.start, here));
        }
        if here < run.len {
            back.push(Extent::new(run.start + here, run.len - here));
        }
    }
    (front, back)
}

/// Takes a file of `blocks` blocks, and the blocks of its map, off the front of `free`.
fn take_file(
    geometry: &Geometry,
    free: &mut Vec<Extent>,
    blocks: u64,
) -> Result<FixedFile, FsError> {
    let mut file = FixedFile::default();
    if blocks == 0 {
        return Ok(file);
    }
    let map_blocks = if geometry.features.has_incompat(incompat::EXTENTS) {
        // At worst, one extent for each group boundary.
        extent_tree_blocks(blocks.div_ceil(geometry.blocks_per_group / 2) + 1, geometry.block_size)
    } else {
        indirect_blocks(&[Run { lbn: Lbn::ZERO, len: blocks }], geometry.block_size)
    };
    let (map, rest) = split(free, map_blocks);
    let (data, rest) = split(&rest, blocks);
    if data.iter().map(|run| run.len).sum::<u64>() < blocks {
        return Err(no_room());
    }
    *free = rest;
    debug_assert_eq!(data.iter().map(|run| run.len).sum::<u64>(), blocks, "all blocks are taken");
    file.map = map.iter().flat_map(|run| (0..run.len).map(|at| run.start + at)).collect();
    let mut lbn = Lbn::ZERO;
    for extent in data {
        file.data.push(Placed { lbn, extent });
        lbn += extent.len;
    }
    if geometry.features.has_incompat(incompat::EXTENTS) {
        // Blocks that the extent tree does not need after all go back.
        let needed = extent_tree_blocks(
            file.data.iter().map(|placed| extents_of(placed.extent.len, false)).sum(),
            geometry.block_size,
        );
        for block in file.map.drain(needed as usize..).rev() {
            free.insert(0, Extent::new(block, 1));
        }
        *free = union(std::mem::take(free));
    }
    Ok(file)
}

/// The first block of an empty journal of `blocks` blocks.
pub(crate) fn journal_superblock(block_size: u32, blocks: u64) -> Vec<u8> {
    let mut superblock = JournalSuperblock::new_zeroed();
    superblock.s_header = JournalHeader {
        h_magic: JOURNAL_MAGIC.into(),
        h_blocktype: journal_block::SUPERBLOCK_V2.into(),
        h_sequence: 0.into(),
    };
    superblock.s_blocksize = block_size.into();
    superblock.s_maxlen = (blocks as u32).into();
    superblock.s_first = 1.into();
    superblock.s_sequence = 1.into();
    superblock.s_nr_users = 1.into();
    let mut bytes = superblock.as_bytes().to_vec();
    bytes.resize(block_size as usize, 0);
    bytes
}

/// An empty block of the orphan file, for the place `block`. `seed` is the orphan file's checksum
/// seed when it has checksums.
pub(crate) fn orphan_block(block_size: u32, block: BlockNo, seed: Option<u32>) -> Vec<u8> {
    let mut bytes = vec![0; block_size as usize];
    let entries = bytes.len() - size_of::<OrphanBlockTail>();
    let sum = seed.map_or(0, |seed| orphans::block_sum(&bytes, block, seed));
    let tail = OrphanBlockTail { ob_magic: ORPHAN_BLOCK_MAGIC.into(), ob_checksum: sum.into() };
    bytes[entries..].copy_from_slice(tail.as_bytes());
    bytes
}

/// The resize inode's map.
pub(crate) fn resize_map(geometry: &Geometry) -> ResizeMap {
    let start = geometry.group_start(0);
    let copies = (1..geometry.groups).filter(|&group| geometry.has_super(group));
    ResizeMap {
        block_size: geometry.block_size,
        descriptor_blocks: geometry.desc_blocks,
        reserved: geometry.reserved_gdt_blocks,
        first: start + 1 + geometry.desc_blocks,
        copies: copies.map(|group| geometry.group_start(group) - start).collect(),
    }
}
