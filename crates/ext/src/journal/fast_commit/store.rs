//! Writes the result of the operations in its on-disk form.

use super::ledger::Ledger;
use super::maps;
use super::records::{Operation, place};
use super::state::{Names, ReplayState, ReplayedInode};
use crate::encode::dirblocks::{DirFormat, DirRecord};
use crate::encode::mapping::{self, Piece};
use crate::encode::rewrite;
use crate::ondisk::{compat, flags, incompat, ro_compat};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, invalid, le32, low16, low32, truncated, wide};
use seekless_fs::plan::Placed;
use seekless_fs::{FileKind, FsError, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba, Lbn};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// The maximum link count of a directory; one with more subdirectories has 1.
const LINK_MAX: usize = 65_000;

struct Store<'a> {
    volume: &'a Volume,
    ledger: Ledger<'a>,
    /// Blocks whose places are in the commits themselves.
    reserved: Vec<Extent>,
    device: &'a dyn BlockDevice,
}

/// Writes the state to `device`.
pub(super) fn write(
    mut state: ReplayState<'_>,
    operations: &[Operation],
    device: &dyn BlockDevice,
) -> Result<(), FsError> {
    let volume = state.volume;
    let reserved = operations.iter().filter_map(|operation| match operation {
        Operation::AddRange { run, .. } => Some(run.extent),
        _ => None,
    });
    let reserved = reserved.collect();
    let mut store = Store { volume, ledger: Ledger::new(volume), reserved, device };
    let nodes = std::mem::take(&mut state.nodes);
    // First all freed blocks, then all used ones: a block may have gone from one file to another.
    for run in &state.freed {
        store.ledger.mark(*run, false)?;
    }
    store.release(&state.released)?;
    for run in nodes.values().filter_map(|node| node.runs.as_ref()).flatten() {
        store.ledger.mark(run.extent, true)?;
    }
    for (ino, mut node) in nodes {
        let before = state.was_in_use(ino)?;
        store.inode(ino, &mut node, before)?;
    }
    store.ledger.write(device)
}

impl Store<'_> {
    fn put(&self, at: BlockNo, bytes: &[u8]) -> Result<(), FsError> {
        let byte = at.get() * u64::from(self.volume.sb.block_size);
        self.device.write(Lba::containing(ByteLen::new(byte)), bytes)?;
        Ok(())
    }

    /// Lowers the reference count of each of these attribute blocks.
    fn release(&mut self, blocks: &[BlockNo]) -> Result<(), FsError> {
        let mut owners: BTreeMap<BlockNo, u32> = BTreeMap::new();
        for &block in blocks {
            let gone = owners.entry(block).or_default();
            *gone += 1;
        }
        for (block, gone) in owners {
            let place = place().in_block(block);
            let mut bytes = self.volume.block(block, place)?.to_vec();
            let left = le32(&bytes, 4).unwrap_or(0).saturating_sub(gone);
            if left == 0 {
                self.ledger.mark(Extent::new(block, 1), false)?;
                continue;
            }
            let count = bytes.get_mut(4..8).ok_or_else(|| truncated(place))?;
            count.copy_from_slice(&left.to_le_bytes());
            let seed = self.volume.sb.has_metadata_csum().then_some(self.volume.sb.checksum_seed);
            rewrite::xattr_block(&mut bytes, block, seed, &Some, place)?;
            self.put(block, &bytes)?;
        }
        Ok(())
    }

    /// Writes an inode with its names and its map; `before`: whether it was in use before.
    fn inode(&mut self, ino: Ino, node: &mut ReplayedInode, before: bool) -> Result<(), FsError> {
        let is_dir = node.kind() == Some(FileKind::Directory);
        if node.removed {
            debug_assert!(node.runs.is_none() && node.index.is_empty(), "its blocks are free");
            let directories = if before && is_dir { -1 } else { 0 };
            self.ledger.mark_inode(ino, false, directories)?;
            return self.put_inode(ino, &vec![0; usize::from(self.volume.sb.inode_size)]);
        }
        let was_dir = before && self.volume.inodes().read(ino)?.kind() == Some(FileKind::Directory);
        let directories = i32::from(is_dir) - i32::from(was_dir);
        self.ledger.mark_inode(ino, true, directories)?;
        if let Some(names) = node.names.take() {
            self.directory(ino, node, &names)?;
        }
        if node.runs.is_some() {
            self.map(ino, node)?;
        }
        let mut raw = node.core.as_bytes().to_vec();
        raw.extend_from_slice(&node.rest);
        debug_assert_eq!(
            raw.len(),
            usize::from(self.volume.sb.inode_size),
            "an inode keeps its size"
        );
        if self.volume.sb.has_metadata_csum() {
            let extra = node.rest.first_chunk().map_or(0, |pair| u16::from_le_bytes(*pair));
            let (generation, seed) = (node.core.i_generation.get(), self.volume.sb.checksum_seed);
            rewrite::seal_inode(&mut raw, ino, generation, index(extra), seed, place())?;
        }
        self.put_inode(ino, &raw)
    }

    fn put_inode(&self, ino: Ino, raw: &[u8]) -> Result<(), FsError> {
        let at = self.volume.inodes().location(ino)?;
        let byte = at.block.get() * u64::from(self.volume.sb.block_size);
        let lba = Lba::containing(ByteLen::new(byte));
        let mut block = vec![0; self.volume.block_len()];
        self.device.read(lba, &mut block)?;
        let room = block.get_mut(index(at.offset)..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(raw) {
            *to = *from;
        }
        self.device.write(lba, &block)?;
        Ok(())
    }

    fn seed(&self, ino: Ino, node: &ReplayedInode) -> u32 {
        rewrite::inode_seed(self.volume.sb.checksum_seed, ino, node.core.i_generation.get())
    }

    /// Rewrites a directory's blocks, in the blocks it has as far as they suffice.
    fn directory(
        &mut self,
        ino: Ino,
        node: &mut ReplayedInode,
        names: &Names,
    ) -> Result<(), FsError> {
        let Some(mut runs) = node.runs.take() else { return Ok(()) };
        let format = self.dir_format(node)?;
        let mut records: Vec<DirRecord<'_>> = names
            .entries
            .iter()
            .map(|(name, &(ino, kind))| DirRecord { name, ino, kind })
            .collect();
        if format.indexed {
            records.sort_by_key(|record| format.hash(record.name));
        }
        let packing = format.pack(records.iter().map(|record| record.name.len()))?;
        let seed = self.seed(ino, node);
        let bytes = format.encode(ino, names.parent, &records, &packing, seed);
        debug_assert_eq!(
            wide(bytes.len()),
            packing.blocks() * wide(self.volume.block_len()),
            "a directory is whole blocks"
        );
        let mut dropped = Vec::new();
        maps::cut(&mut runs, Lbn::new(packing.blocks()), u64::from(u32::MAX), &mut dropped);
        for run in dropped {
            self.ledger.mark(run, false)?;
        }
        // If a cluster lost some of its blocks the others are still in use.
        for run in &runs {
            self.ledger.mark(run.extent, true)?;
        }
        for (lbn, block) in (0u64..).zip(bytes.chunks(self.volume.block_len())) {
            let at = self.block_of(&mut runs, Lbn::new(lbn))?;
            self.put(at, block)?;
        }
        node.runs = Some(runs);
        self.describe_directory(node, names, packing.index_blocks > 0, wide(bytes.len()));
        Ok(())
    }

    fn describe_directory(&self, node: &mut ReplayedInode, names: &Names, hashed: bool, len: u64) {
        let subdirectories =
            names.entries.values().filter(|(_, kind)| *kind == FileKind::Directory).count();
        let links = subdirectories + 2;
        let many = links >= LINK_MAX || node.core.i_links_count.get() == 1 && links > 2;
        let dir_nlink = self.volume.sb.has_ro_compat(ro_compat::DIR_NLINK);
        let links = if many && dir_nlink && links >= LINK_MAX { 1 } else { links };
        node.core.i_links_count = u16::try_from(links).unwrap_or(1).into();
        node.core.i_size_lo = low32(len).into();
        node.core.i_size_high = low32(len >> 32).into();
        let bits = node.core.i_flags.get() & !flags::INDEX;
        node.core.i_flags = (bits | if hashed { flags::INDEX } else { 0 }).into();
    }

    /// The block of a logical block of a directory, a new one if there is none.
    fn block_of(&mut self, runs: &mut Vec<Mapping>, lbn: Lbn) -> Result<BlockNo, FsError> {
        let behind = runs.partition_point(|run| run.lbn <= lbn);
        if let Some(run) = behind.checked_sub(1).and_then(|at| runs.get(at)) {
            let skip = lbn - run.lbn;
            if skip < run.extent.len && !run.unwritten {
                return Ok(run.extent.start + skip);
            }
        }
        // The blocks of one logical cluster lie in one cluster, each at its place.
        let ratio = u64::from(self.volume.sb.cluster_ratio).max(1);
        let within = |at: u64| at % ratio;
        let first = lbn.get() - within(lbn.get());
        let neighbour = runs
            .iter()
            .find(|run| run.lbn.get() < first + ratio && (run.lbn + run.extent.len).get() > first);
        let cluster = match neighbour {
            Some(run) => {
                let known = run.lbn.get().max(first);
                let block = run.extent.start + (known - run.lbn.get());
                let cluster = block.get().checked_sub(within(known));
                BlockNo::new(cluster.ok_or_else(|| invalid("ee_start", block.get(), place()))?)
            }
            None => self.ledger.allocate(&self.reserved)?,
        };
        let start = cluster + within(lbn.get());
        let run = Mapping { lbn, extent: Extent::new(start, 1), unwritten: false };
        // A hostile neighbour lies at another place of its cluster than in the file.
        self.volume.check_extent(run.extent, place())?;
        maps::put(runs, run, &mut Vec::new());
        Ok(start)
    }

    fn dir_format(&self, node: &ReplayedInode) -> Result<DirFormat, FsError> {
        let sb = &self.volume.sb;
        if !sb.has_incompat(incompat::FILETYPE) {
            let what = "fast commits in the journal of a volume without the filetype feature";
            return Err(FsError::Unsupported(what.into()));
        }
        // Encrypted names hash by another rule; such a directory becomes a plain list, which every
        // reader supports.
        let plain = !node.has_flag(flags::ENCRYPT);
        let version = sb.default_hash_version();
        Ok(DirFormat {
            block_size: self.volume.block_len(),
            indexed: plain && version.is_some() && sb.has_compat(compat::DIR_INDEX),
            checksums: sb.has_metadata_csum(),
            large: sb.has_incompat(incompat::LARGEDIR),
            typed: true,
            folds: node.has_flag(flags::CASEFOLD) && sb.has_incompat(incompat::CASEFOLD),
            hash_version: version.unwrap_or_default(),
            hash_seed: sb.hash_seed(),
        })
    }

    /// Writes an inode's extent tree.
    fn map(&mut self, ino: Ino, node: &mut ReplayedInode) -> Result<(), FsError> {
        let runs = maps::join(node.runs.take().unwrap_or_default());
        for block in node.index.drain(..) {
            self.ledger.mark(Extent::new(block, 1), false)?;
        }
        let piece = |run: &Mapping| Piece {
            placed: Placed { lbn: run.lbn, extent: run.extent },
            unwritten: run.unwritten,
        };
        let pieces: Vec<Piece> = runs.iter().map(piece).collect();
        let extents = pieces
            .iter()
            .map(|piece| mapping::extents_of(piece.placed.extent.len, piece.unwritten))
            .sum();
        let needed = mapping::extent_tree_blocks(extents, self.volume.sb.block_size);
        let blocks: Vec<BlockNo> =
            (0..needed).map(|_| self.ledger.allocate(&self.reserved)).collect::<Result<_, _>>()?;
        let seed = self.volume.sb.has_metadata_csum().then(|| self.seed(ino, node));
        let mut given = blocks.into_iter();
        let map = mapping::extent_tree(&pieces, self.volume.sb.block_size, seed, &mut given)?;
        debug_assert!(given.next().is_none(), "the tree takes the blocks that were counted");
        for (at, bytes) in &map.blocks {
            self.put(*at, bytes)?;
        }
        node.core.i_block = map.i_block;
        self.set_sectors(node, &runs, needed);
        Ok(())
    }

    /// `i_blocks`: clusters of data and map, and the attribute block.
    fn set_sectors(&self, node: &mut ReplayedInode, runs: &[Mapping], index_blocks: u64) {
        let sb = &self.volume.sb;
        let ratio = u64::from(sb.cluster_ratio).max(1);
        let (mut clusters, mut last) = (0u64, None);
        for run in runs {
            let first = run.lbn.get() / ratio;
            let end = (run.lbn + run.extent.len).get().div_ceil(ratio);
            let again = u64::from(last == Some(first));
            debug_assert!(end > first, "a run has blocks");
            clusters += end - first - again;
            last = end.checked_sub(1);
        }
        let acl = node.core.i_file_acl_lo.get() != 0 || node.core.i_file_acl_high.get() != 0;
        let clusters = clusters + index_blocks + u64::from(acl);
        let blocks = clusters * ratio;
        let huge = node.has_flag(flags::HUGE_FILE);
        let unit = if huge { 1 } else { u64::from(sb.block_size >> 9) };
        let count = blocks * unit;
        node.core.i_blocks_lo = low32(count).into();
        if sb.has_ro_compat(ro_compat::HUGE_FILE) {
            node.core.i_blocks_high = low16(low32(count >> 32)).into();
        }
    }
}
