//! The readable part of a damaged map: pieces that lie in the volume, in rising order. Only those
//! are left out that contradict this, as `e2fsck` clears single numbers and extents (its pass 1);
//! which of the extents of a file do, [`sequence`](super::sequence) decides.
//! The blocks of a directory with extents are taken to follow each other, as there
//! (`PR_1_COLLAPSE_DBLOCK`).

use super::sequence::{Candidate, Sequence, USABLE_BLOCKS};
use crate::dir::entry_at;
use crate::encode::mapping::Piece;
use crate::inode::Inode;
use crate::ondisk::{EXTENT_MAGIC, EXTENT_MAX_LEN, ExtentHeader, ExtentIndex, ExtentLeaf, flags};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_fs::field::{le32, parse, slice, wide};
use seekless_fs::plan::Placed;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Lbn};
use std::collections::HashMap;
use std::ops::Range;

/// Bytes of an extent tree's header, and of an entry of either kind.
const ENTRY: usize = 12;
/// Bytes of a block number in a block map, and such numbers before the indirect
/// ones.
const POINTER: usize = 4;
const DIRECT: usize = 12;
/// The deepest extent tree that is followed. A kernel follows fewer levels, but libext2fs reads a
/// sound tree of any depth.
const DEEPEST: u16 = 16;
/// Wrong numbers at which e2fsck gives a file up.
const MOST_WRONG: usize = 12;

/// A map as far as it can be read.
#[derive(Default)]
pub(super) struct Salvaged {
    /// Runs of the file, rising and disjoint.
    pub(super) pieces: Vec<Piece>,
    /// Blocks of the map itself.
    pub(super) index: Vec<BlockNo>,
    /// An extent of the file was dropped, moved or made shorter.
    pub(super) is_changed: bool,
}

/// One walk over a damaged map.
struct SalvageWalk<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    out: Salvaged,
    /// The first logical block behind the last piece.
    next: u64,
    /// Blocks still allowed: no file has more than its volume.
    room: u64,
    /// How often each block of the map was read.
    met: HashMap<BlockNo, u32>,
    /// The extents of a file.
    sequence: Sequence,
}

/// Reads the sound pieces of an inode's map.
///
/// # Errors
/// Errors of the device.
pub(super) fn salvage(volume: &Volume, inode: &Inode) -> Result<Salvaged, FsError> {
    let mut walk = SalvageWalk {
        volume,
        inode,
        out: Salvaged::default(),
        next: 0,
        room: volume.sb.blocks,
        met: HashMap::new(),
        sequence: Sequence::default(),
    };
    let root = inode.core.i_block.0;
    if inode.has_flag(flags::EXTENTS) {
        let depth = walk.depth(&root)?;
        if depth <= DEEPEST {
            walk.extents(&root, root.len(), depth, &(0..USABLE_BLOCKS))?;
        }
        walk.order();
        let mut out = walk.out;
        if let Some(end) = out.foreign_from(volume, inode)? {
            out.cut(end);
        }
        return Ok(out);
    }
    let (direct, rest) = root.split_at(DIRECT * POINTER);
    walk.numbers(direct, 0, 0)?;
    let mut first = seekless_fs::field::wide(DIRECT);
    for (levels, pointer) in (1u8..).zip(rest.chunks_exact(POINTER)) {
        walk.numbers(pointer, levels, first)?;
        first += walk.span(levels);
    }
    Ok(walk.out)
}

impl SalvageWalk<'_> {
    /// A block of the map, if it was not read `most` times yet.
    fn block(
        &mut self,
        number: u64,
        most: u32,
    ) -> Result<Option<seekless_fs::read_cache::Block>, FsError> {
        let number = BlockNo::new(number);
        let place = Location::of("block map").in_inode(self.inode.ino);
        if self.volume.check_block(number, place).is_err() {
            return Ok(None);
        }
        let met = self.met.entry(number).or_default();
        if *met == most {
            return Ok(None);
        }
        *met += 1;
        self.volume.block(number, place).map(Some)
    }

    /// The entries of a node.
    fn entries(bytes: &[u8], room: usize) -> Option<(ExtentHeader, &[u8])> {
        let header: ExtentHeader = parse(bytes, 0)?;
        let most = (room - ENTRY) / ENTRY;
        let count = usize::from(header.eh_entries.get()).min(most);
        (header.eh_magic.get() == EXTENT_MAGIC)
            .then(|| (header, slice(bytes, ENTRY, count * ENTRY).unwrap_or_default()))
    }

    /// The depth of the tree: where the root's differs from that of each of its children, theirs.
    fn depth(&self, root: &[u8]) -> Result<u16, FsError> {
        let Some((header, entries)) = Self::entries(root, root.len()) else { return Ok(0) };
        let depth = header.eh_depth.get();
        if entries.chunks_exact(ENTRY).all(|entry| self.is_extent(entry)) {
            return Ok(if entries.is_empty() { depth } else { 0 });
        }
        let place = Location::of("block map").in_inode(self.inode.ino);
        let mut found = None;
        for child in entries.chunks_exact(ENTRY).filter_map(Self::child) {
            if self.volume.check_block(child, place).is_err() {
                continue;
            }
            let block = self.volume.block(child, place)?;
            let Some((header, entries)) = Self::entries(&block, block.len()) else { continue };
            let is_leaf = entries.chunks_exact(ENTRY).all(|entry| self.is_extent(entry));
            let above = if is_leaf { 1 } else { header.eh_depth.get().saturating_add(1) };
            if above == depth {
                return Ok(depth);
            }
            found = found.or(Some(above));
        }
        Ok(found.filter(|above| *above <= DEEPEST).unwrap_or(depth))
    }

    /// The block that an entry of an index leads to.
    fn child(entry: &[u8]) -> Option<BlockNo> {
        let child = parse::<ExtentIndex>(entry, 0)?;
        let high = u64::from(child.ei_leaf_hi.get()) << 32;
        Some(BlockNo::new(high | u64::from(child.ei_leaf_lo.get())))
    }

    /// Collects the extents below a node with these logical blocks.
    fn extents(
        &mut self,
        bytes: &[u8],
        room: usize,
        depth: u16,
        covers: &Range<u64>,
    ) -> Result<(), FsError> {
        let Some((header, entries)) = Self::entries(bytes, room) else { return Ok(()) };
        // libext2fs goes by a node's place in the tree. A node whose depth is wrong is a leaf if
        // all of its entries are extents, and none if not: the depth of the root may be wrong
        // instead.
        let is_leaf = entries.chunks_exact(ENTRY).all(|it| self.is_extent(it));
        if header.eh_depth.get() != depth && is_leaf != (depth == 0) {
            return Ok(());
        }
        let mut entries = entries.chunks_exact(ENTRY).peekable();
        let mut is_first = room != self.inode.core.i_block.0.len();
        while let Some(entry) = entries.next() {
            let following = entries.peek().and_then(|entry| le32(entry, 0)).map(u64::from);
            if depth == 0 {
                if let Some(leaf) = parse::<ExtentLeaf>(entry, 0) {
                    self.extent(&leaf, following, covers, is_first);
                }
                is_first = false;
                continue;
            }
            let Some(child) = Self::child(entry) else { continue };
            let start = le32(entry, 0).map_or(covers.start, u64::from);
            let covers = start..following.unwrap_or(covers.end);
            if let Some(block) = self.block(child.get(), 1)? {
                self.out.index.push(child);
                self.extents(&block, block.len(), depth - 1, &covers)?;
            }
        }
        Ok(())
    }

    /// Whether an entry is an extent of this volume.
    fn is_extent(&self, entry: &[u8]) -> bool {
        let Some(leaf) = parse::<ExtentLeaf>(entry, 0) else { return false };
        let raw = leaf.ee_len.get();
        let len = if raw > EXTENT_MAX_LEN { raw - EXTENT_MAX_LEN } else { raw };
        let start = (u64::from(leaf.ee_start_hi.get()) << 32) | u64::from(leaf.ee_start_lo.get());
        let run = Extent::new(BlockNo::new(start), u64::from(len));
        let place = Location::of("block map").in_inode(self.inode.ino);
        len > 0 && start > 0 && self.volume.check_extent(run, place).is_ok()
    }

    fn extent(
        &mut self,
        leaf: &ExtentLeaf,
        following: Option<u64>,
        covers: &Range<u64>,
        opens_leaf: bool,
    ) {
        let raw = leaf.ee_len.get();
        let unwritten = raw > EXTENT_MAX_LEN;
        let mut len = u64::from(if unwritten { raw - EXTENT_MAX_LEN } else { raw });
        let start = (u64::from(leaf.ee_start_hi.get()) << 32) | u64::from(leaf.ee_start_lo.get());
        let start = BlockNo::new(start);
        let lbn = u64::from(leaf.ee_block.get());
        if self.inode.kind() == Some(FileKind::Directory) {
            // An extent that overlaps the next one is too long.
            let room = following.and_then(|next| next.checked_sub(lbn)).filter(|room| *room > 0);
            len = len.min(room.unwrap_or(len));
            self.piece(self.next, Extent::new(start, len), unwritten);
            return;
        }
        let placed = Placed { lbn: Lbn::new(lbn), extent: Extent::new(start, len) };
        self.sequence.candidates.push(Candidate {
            piece: Piece { placed, unwritten },
            is_sound: false,
            leaf: covers.clone(),
            opens_leaf,
        });
    }

    /// The length in blocks of a file whose written blocks it bounds.
    fn len(&self) -> Option<u64> {
        let is_bounded =
            self.inode.kind() == Some(FileKind::Regular) && !self.inode.has_flag(flags::VERITY);
        is_bounded.then(|| self.inode.len.div_ceil(u64::from(self.volume.sb.block_size)))
    }

    /// The blocks of contents that an inode with `index` blocks of map counts.
    fn counted(&self, index: usize) -> u64 {
        let inodes = self.volume.inodes();
        let attributes = u64::from(inodes.xattr_block_of(self.inode).is_some());
        let sectors = inodes.allocated_sectors(self.inode);
        let blocks = sectors / u64::from(self.volume.sb.block_size >> 9);
        blocks.saturating_sub(wide(index) + attributes)
    }

    /// Whether a block may contain block numbers: not if many of them lead out of the volume.
    fn is_indirect(&self, bytes: &[u8]) -> bool {
        let place = Location::of("block map").in_inode(self.inode.ino);
        let numbers = bytes.chunks_exact(POINTER).filter_map(|number| le32(number, 0));
        let numbers: Vec<u32> = numbers.filter(|number| *number != 0).collect();
        let leads_out = |number: &&u32| {
            self.volume.check_block(BlockNo::new(u64::from(**number)), place).is_err()
        };
        let wrong = numbers.iter().filter(leads_out).count();
        wrong < MOST_WRONG || wrong * 4 < numbers.len()
    }

    /// Puts the extents of a file in order.
    fn order(&mut self) {
        let (volume, inode) = (self.volume, self.inode);
        self.sequence.len = self.len();
        let runs = self.sequence.candidates.iter().map(|it| it.piece.placed.extent);
        let blocks: u64 = runs.map(|run| run.len).sum();
        // Clusters are counted whole.
        if volume.sb.cluster_ratio == 1 {
            let counted = self.counted(self.out.index.len());
            self.sequence.surplus = blocks - counted.min(blocks);
        }
        let place = Location::of("block map").in_inode(inode.ino);
        let is_loose = self.sequence.surplus > 0;
        for candidate in &mut self.sequence.candidates {
            let run = candidate.piece.placed.extent;
            // The end of one that is too long is not known yet.
            let least = if is_loose { run.len.min(1) } else { run.len };
            let is_inside = volume.check_extent(Extent::new(run.start, least), place).is_ok();
            candidate.is_sound = run.len > 0 && run.start > BlockNo::ZERO && is_inside;
        }
        let (pieces, is_whole) = std::mem::take(&mut self.sequence).in_order();
        self.out.is_changed = !is_whole;
        for piece in pieces {
            let Placed { lbn, extent } = piece.placed;
            self.piece(lbn.get(), extent, piece.unwritten);
        }
    }

    /// Adds a piece, unless it lies out of the volume or before the last one.
    fn piece(&mut self, lbn: u64, extent: Extent, unwritten: bool) {
        let place = Location::of("block map").in_inode(self.inode.ino);
        let end = lbn + extent.len;
        let fits = extent.len > 0
            && lbn >= self.next
            && end <= USABLE_BLOCKS
            && extent.len <= self.room
            && self.volume.check_extent(extent, place).is_ok();
        if !fits {
            return;
        }
        debug_assert!(
            self.out
                .pieces
                .last()
                .is_none_or(|last| { last.placed.lbn.get() + last.placed.extent.len <= self.next }),
            "pieces rise and do not overlap"
        );
        self.next = end;
        self.room -= extent.len;
        if let Some(last) = self.out.pieces.last_mut() {
            let run = &mut last.placed;
            if run.lbn.get() + run.extent.len == lbn
                && run.extent.end() == extent.start
                && last.unwritten == unwritten
            {
                run.extent.len += extent.len;
                return;
            }
        }
        let placed = Placed { lbn: Lbn::new(lbn), extent };
        self.out.pieces.push(Piece { placed, unwritten });
    }

    /// Logical blocks below one number with `levels` blocks of map under it.
    fn span(&self, levels: u8) -> u64 {
        u64::from(self.volume.sb.block_size >> 2).pow(u32::from(levels))
    }

    fn numbers(&mut self, bytes: &[u8], levels: u8, first: u64) -> Result<(), FsError> {
        let span = self.span(levels);
        for (n, pointer) in bytes.chunks_exact(POINTER).enumerate() {
            let number = u64::from(le32(pointer, 0).unwrap_or(0));
            let lbn = first + seekless_fs::field::wide(n) * span;
            let Some(below) = levels.checked_sub(1) else {
                if number != 0 {
                    self.piece(lbn, Extent::new(BlockNo::new(number), 1), false);
                }
                continue;
            };
            if number == 0 {
                continue;
            }
            // Of two numbers that lead to a block of the map nothing tells the right one.
            if let Some(block) = self.block(number, 2)?
                && self.is_indirect(&block)
            {
                self.out.index.push(BlockNo::new(number));
                self.numbers(&block, below, lbn)?;
            }
        }
        Ok(())
    }
}

impl Salvaged {
    /// The length of a directory in blocks, if its extents go on behind it with a block of
    /// something else: one without entries, or the first block of another directory. The extent
    /// is too long then; with a block of entries the length is too small.
    fn foreign_from(&self, volume: &Volume, inode: &Inode) -> Result<Option<u64>, FsError> {
        let bsize = wide(volume.block_len());
        let is_whole = inode.len > 0 && inode.len.is_multiple_of(bsize);
        if inode.kind() != Some(FileKind::Directory) || !is_whole {
            return Ok(None);
        }
        let end = inode.len / bsize;
        let Some(behind) = self.block_of(Lbn::new(end)) else { return Ok(None) };
        let place = Location::of("directory").in_inode(inode.ino);
        let block = volume.block(behind, place)?;
        let entry = entry_at(&block, 0, volume.sb.raw.s_inodes_count.get(), place);
        let goes_on = entry.is_ok_and(|entry| entry.name != b".");
        Ok((!goes_on).then_some(end))
    }

    /// Cuts off the pieces from a logical block on; returns their blocks.
    pub(super) fn cut(&mut self, end: u64) -> Vec<Extent> {
        let mut gone = Vec::new();
        self.pieces.retain_mut(|piece| {
            let run = &mut piece.placed;
            let keep = end.saturating_sub(run.lbn.get()).min(run.extent.len);
            if keep < run.extent.len {
                let rest = run.extent.len - keep;
                gone.push(Extent::new(run.extent.start + keep, rest));
                run.extent.len = keep;
            }
            keep > 0
        });
        gone
    }

    /// Whether the cluster of a block belongs to the file or to its map.
    pub(super) fn has_part_of(&self, sb: &Super, block: BlockNo) -> bool {
        let cluster = block.get() / u64::from(sb.cluster_ratio);
        let contains = |run: Extent| sb.clusters_of(run).contains(&cluster);
        let index = self.index.iter().map(|&block| Extent::new(block, 1));
        index.chain(self.pieces.iter().map(|piece| piece.placed.extent)).any(contains)
    }

    /// The last block of contents, if there is one at this logical block.
    pub(super) fn block_of(&self, lbn: Lbn) -> Option<BlockNo> {
        let behind = self.pieces.partition_point(|piece| piece.placed.lbn <= lbn);
        let piece = self.pieces.get(behind.checked_sub(1)?)?;
        let skip = lbn - piece.placed.lbn;
        let is_there = skip < piece.placed.extent.len && !piece.unwritten;
        is_there.then(|| piece.placed.extent.start + skip)
    }
}
