//! The readable part of a damaged map: pieces that lie in the volume, in rising order. Only those
//! are left out that contradict this, as `e2fsck` clears single numbers and extents (its pass 1).
//! The blocks of a directory with extents are taken to follow each other, as there
//! (`PR_1_COLLAPSE_DBLOCK`).

use crate::dir::entry_at;
use crate::encode::mapping::Piece;
use crate::inode::Inode;
use crate::ondisk::{
    EXTENT_MAGIC, EXTENT_MAX_DEPTH, EXTENT_MAX_LEN, ExtentHeader, ExtentIndex, ExtentLeaf, flags,
};
use crate::volume::Volume;
use seekless_fs::field::{le32, parse, slice, wide};
use seekless_fs::plan::Placed;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, Lbn};
use std::collections::HashSet;

/// Bytes of an extent tree's header, and of an entry of either kind.
const ENTRY: usize = 12;
/// Bytes of a block number in a block map, and such numbers before the indirect
/// ones.
const POINTER: usize = 4;
const DIRECT: usize = 12;

/// A map as far as it can be read.
#[derive(Default)]
pub(super) struct Salvaged {
    /// Runs of the file, rising and disjoint.
    pub(super) pieces: Vec<Piece>,
    /// Blocks of the map itself.
    pub(super) index: Vec<BlockNo>,
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
    met: HashSet<BlockNo>,
}

/// Reads the sound pieces of an inode's map.
///
/// # Errors
/// Errors of the device.
pub(super) fn salvage(volume: &Volume, inode: &Inode) -> Result<Salvaged, FsError> {
    let room = volume.sb.blocks;
    let out = Salvaged::default();
    let mut walk = SalvageWalk { volume, inode, out, next: 0, room, met: HashSet::new() };
    let root = inode.core.i_block.0;
    if inode.has_flag(flags::EXTENTS) {
        let header: Option<ExtentHeader> = parse(&root, 0);
        let depth = header.map_or(0, |header| header.eh_depth.get());
        if depth <= EXTENT_MAX_DEPTH {
            walk.extents(&root, root.len(), depth)?;
        }
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
    /// A block of the map, met for the first time.
    fn block(&mut self, number: u64) -> Result<Option<seekless_fs::read_cache::Block>, FsError> {
        let number = BlockNo::new(number);
        let place = Location::of("block map").in_inode(self.inode.ino);
        if self.volume.check_block(number, place).is_err() || !self.met.insert(number) {
            return Ok(None);
        }
        self.volume.block(number, place).map(Some)
    }

    fn extents(&mut self, bytes: &[u8], room: usize, depth: u16) -> Result<(), FsError> {
        let Some(header) = parse::<ExtentHeader>(bytes, 0) else { return Ok(()) };
        if header.eh_magic.get() != EXTENT_MAGIC {
            return Ok(());
        }
        let most = (room - ENTRY) / ENTRY;
        let count = usize::from(header.eh_entries.get()).min(most);
        let entries = slice(bytes, ENTRY, count * ENTRY).unwrap_or_default();
        // libext2fs goes by a node's place in the tree. A leaf whose depth is wrong is one if all
        // of its entries are extents: the depth of the root may be wrong instead.
        let is_leaf = || depth == 0 && entries.chunks_exact(ENTRY).all(|it| self.is_extent(it));
        if header.eh_depth.get() != depth && !is_leaf() {
            return Ok(());
        }
        let mut entries = entries.chunks_exact(ENTRY).peekable();
        while let Some(entry) = entries.next() {
            if depth == 0 {
                let following = entries.peek().and_then(|entry| parse(entry, 0));
                if let Some(leaf) = parse::<ExtentLeaf>(entry, 0) {
                    self.extent(&leaf, following.as_ref());
                }
                continue;
            }
            let Some(child) = parse::<ExtentIndex>(entry, 0) else { continue };
            let high = u64::from(child.ei_leaf_hi.get()) << 32;
            let number = high | u64::from(child.ei_leaf_lo.get());
            if let Some(block) = self.block(number)? {
                self.out.index.push(BlockNo::new(number));
                self.extents(&block, block.len(), depth - 1)?;
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

    fn extent(&mut self, leaf: &ExtentLeaf, following: Option<&ExtentLeaf>) {
        let raw = leaf.ee_len.get();
        let unwritten = raw > EXTENT_MAX_LEN;
        let mut len = u64::from(if unwritten { raw - EXTENT_MAX_LEN } else { raw });
        let start = (u64::from(leaf.ee_start_hi.get()) << 32) | u64::from(leaf.ee_start_lo.get());
        let mut lbn = u64::from(leaf.ee_block.get());
        if self.inode.kind() == Some(FileKind::Directory) {
            // An extent that overlaps the next one is too long.
            let next = following.map(|leaf| u64::from(leaf.ee_block.get()));
            let room = next.and_then(|next| next.checked_sub(lbn)).filter(|room| *room > 0);
            len = len.min(room.unwrap_or(len));
            lbn = self.next;
        }
        self.piece(lbn, Extent::new(BlockNo::new(start), len), unwritten);
    }

    /// Adds a piece, unless it lies out of the volume or before the last one.
    fn piece(&mut self, lbn: u64, extent: Extent, unwritten: bool) {
        let place = Location::of("block map").in_inode(self.inode.ino);
        let end = lbn + extent.len;
        let fits = extent.len > 0
            && lbn >= self.next
            && end <= 1 << 32
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
            if let Some(block) = self.block(number)? {
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

    /// Whether a block belongs to the file or to its map.
    pub(super) fn has(&self, block: BlockNo) -> bool {
        let contains = |piece: &Piece| {
            let run = piece.placed.extent;
            run.start <= block && block < run.end()
        };
        self.index.contains(&block) || self.pieces.iter().any(contains)
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
