//! Extent trees.
//!
//! Every node's entries must rise and stay within the range of logical blocks that its parent gives
//! it. So no node with entries can be reached twice, and a walk ends after reading each of its
//! blocks once, on any image.

use crate::bmap::{MappedRuns, clip};
use crate::checksum::crc32c;
use crate::inode::Inode;
use crate::ondisk::{
    EXTENT_MAGIC, EXTENT_MAX_DEPTH, EXTENT_MAX_LEN, ExtentHeader, ExtentIndex, ExtentLeaf,
};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, le32, parse, range, slice, truncated};
use seekless_fs::read_cache::Block;
use seekless_fs::{Corruption, FsError, IndexBlock, Location, Mapping};
use seekless_units::{BlockNo, Extent, Ino, Lbn};
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of a header, and of an entry of either kind.
const ENTRY: usize = 12;
/// Logical blocks of a file: 32 bits, the last of which is never used.
pub(crate) const LOGICAL_BLOCKS: u64 = 1 << 32;

/// The limits that its parent sets a node.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The logical blocks that it may map.
    pub(crate) covers: Range<u64>,
    /// Levels below it.
    pub(crate) depth: u16,
    pub(crate) place: Location,
}

/// A child of an index node: the logical blocks below it and its block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChildNode {
    /// From the first logical block that it maps to that of the next one.
    pub(crate) covers: Range<u64>,
    pub(crate) block: BlockNo,
}

/// The entries of an extent tree's node, checked.
#[derive(Clone, Debug)]
pub(crate) enum NodeEntries {
    Leaf(SmallVec<[Mapping; 4]>),
    Index(SmallVec<[ChildNode; 4]>),
}

/// The limits of the root of a tree in an inode.
pub(crate) fn root_frame(root: &[u8], ino: Ino) -> Result<Frame, FsError> {
    Ok(read_root(root, ino)?.1)
}

/// The header of the root of a tree, and its limits.
fn read_root(root: &[u8], ino: Ino) -> Result<(ExtentHeader, Frame), FsError> {
    let place = Location::of("extent header").in_inode(ino);
    let header = header(root, root.len(), place)?;
    let depth = header.eh_depth.get();
    if depth > EXTENT_MAX_DEPTH {
        return Err(range("eh_depth", u64::from(depth), u64::from(EXTENT_MAX_DEPTH), place));
    }
    Ok((header, Frame { covers: 0..LOGICAL_BLOCKS, depth, place }))
}

/// Whether the root of a file's map is that of an extent tree.
pub(crate) fn is_root(root: &[u8]) -> bool {
    let header = header(root, root.len(), Location::of("extent header"));
    header.is_ok_and(|header| header.eh_depth.get() <= EXTENT_MAX_DEPTH)
}

/// Entries that fit into a node of `room` bytes.
fn entries_in(room: usize) -> usize {
    (room - ENTRY) / ENTRY
}

/// A node's header, its counts checked against the room, in bytes.
pub(crate) fn header(bytes: &[u8], room: usize, place: Location) -> Result<ExtentHeader, FsError> {
    let header: ExtentHeader = parse(bytes, 0).ok_or_else(|| truncated(place))?;
    let magic = header.eh_magic.get();
    if magic != EXTENT_MAGIC {
        return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
    }
    let most = entries_in(room);
    let (max, entries) = (header.eh_max.get(), header.eh_entries.get());
    if max == 0 || index(max) > most {
        return Err(range("eh_max", u64::from(max), seekless_fs::field::wide(most), place));
    }
    if entries > max {
        return Err(range("eh_entries", u64::from(entries), u64::from(max), place));
    }
    Ok(header)
}

/// The entries of a node with this header: they rise, within the limits set by its parent, and runs
/// lie in the volume.
pub(crate) fn entries(
    volume: &Volume,
    bytes: &[u8],
    header: &ExtentHeader,
    frame: &Frame,
) -> Result<NodeEntries, FsError> {
    let found_depth = header.eh_depth.get();
    if found_depth != frame.depth {
        return Err(invalid("eh_depth", u64::from(found_depth), frame.place));
    }
    let len = index(header.eh_entries.get()) * ENTRY;
    let entries = slice(bytes, ENTRY, len).ok_or_else(|| truncated(frame.place))?;
    if frame.depth == 0 {
        return leaf(volume, entries, frame).map(NodeEntries::Leaf);
    }
    children(entries, frame).map(NodeEntries::Index)
}

fn leaf(volume: &Volume, entries: &[u8], frame: &Frame) -> Result<SmallVec<[Mapping; 4]>, FsError> {
    let mut runs = SmallVec::new();
    let mut free = frame.covers.start;
    for entry in entries.chunks_exact(ENTRY) {
        let leaf: ExtentLeaf = parse(entry, 0).ok_or_else(|| truncated(frame.place))?;
        let run = extent(volume, &leaf, free..frame.covers.end, frame.place)?;
        free = run.lbn.get() + run.extent.len;
        runs.push(run);
    }
    Ok(runs)
}

/// An extent as a run, which must lie in `within` and in the volume.
fn extent(
    volume: &Volume,
    leaf: &ExtentLeaf,
    within: Range<u64>,
    place: Location,
) -> Result<Mapping, FsError> {
    let first = u64::from(leaf.ee_block.get());
    let raw = leaf.ee_len.get();
    let unwritten = raw > EXTENT_MAX_LEN;
    let len = u64::from(if unwritten { raw - EXTENT_MAX_LEN } else { raw });
    if len == 0 {
        return Err(invalid("ee_len", u64::from(raw), place));
    }
    if first < within.start || first + len > within.end {
        return Err(range("ee_block", first, within.end, place));
    }
    let start = (u64::from(leaf.ee_start_hi.get()) << 32) | u64::from(leaf.ee_start_lo.get());
    let extent = Extent::new(BlockNo::new(start), len);
    volume.check_extent(extent, place)?;
    Ok(Mapping { lbn: Lbn::new(first), extent, unwritten })
}

fn children(entries: &[u8], frame: &Frame) -> Result<SmallVec<[ChildNode; 4]>, FsError> {
    if entries.is_empty() {
        return Err(invalid("eh_entries", 0, frame.place));
    }
    let mut children = SmallVec::new();
    let mut raw = entries.chunks_exact(ENTRY).peekable();
    let mut least = frame.covers.start;
    while let Some(child) = raw.next() {
        let child: ExtentIndex = parse(child, 0).ok_or_else(|| truncated(frame.place))?;
        let first = u64::from(child.ei_block.get());
        if first < least || first >= frame.covers.end {
            return Err(range("ei_block", first, frame.covers.end, frame.place));
        }
        least = first + 1;
        let next = raw.peek().and_then(|next| le32(next, 0)).map(u64::from);
        let high = u64::from(child.ei_leaf_hi.get()) << 32;
        let block = BlockNo::new(high | u64::from(child.ei_leaf_lo.get()));
        children.push(ChildNode { covers: first..next.unwrap_or(frame.covers.end), block });
    }
    Ok(children)
}

/// Reads the blocks of a tree, by number and by place of the pointer; `None` for those that are to
/// be passed over, with all below.
pub(crate) type NodeReader<'a> =
    dyn FnMut(BlockNo, Location) -> Result<Option<Block>, FsError> + 'a;

/// One walk over a file's tree.
struct ExtentWalk<'a> {
    volume: &'a Volume,
    ino: Ino,
    /// The inode, where checksums of the tree's blocks are verified.
    verified: Option<&'a Inode>,
    wanted: &'a Range<u64>,
    found: &'a mut MappedRuns,
    blocks: &'a mut NodeReader<'a>,
}

/// Walks the tree of an inode over a range of logical blocks.
pub(crate) fn walk(
    volume: &Volume,
    inode: &Inode,
    wanted: &Range<u64>,
    found: &mut MappedRuns,
) -> Result<(), FsError> {
    let is_verified = volume.sb.has_metadata_csum() && !volume.ignore_checksums;
    let verified = is_verified.then_some(inode);
    let mut blocks = |number, place| volume.block(number, place).map(Some);
    let ino = inode.ino;
    ExtentWalk { volume, ino, verified, wanted, found, blocks: &mut blocks }
        .root(&inode.core.i_block.0)
}

/// As [`walk`], for a tree given by its root, over blocks from elsewhere, which were verified when
/// they were read.
pub(crate) fn walk_in(
    volume: &Volume,
    (ino, root): (Ino, &[u8]),
    wanted: &Range<u64>,
    found: &mut MappedRuns,
    blocks: &mut NodeReader<'_>,
) -> Result<(), FsError> {
    let mut blocks = |number, place| blocks(number, place);
    ExtentWalk { volume, ino, verified: None, wanted, found, blocks: &mut blocks }.root(root)
}

impl ExtentWalk<'_> {
    fn root(&mut self, root: &[u8]) -> Result<(), FsError> {
        let (header, frame) = read_root(root, self.ino)?;
        self.node(root, &header, &frame, 0)
    }

    fn node(
        &mut self,
        bytes: &[u8],
        header: &ExtentHeader,
        frame: &Frame,
        level: u8,
    ) -> Result<(), FsError> {
        match entries(self.volume, bytes, header, frame)? {
            NodeEntries::Leaf(runs) => {
                for run in runs {
                    if let Some(part) = clip(run, self.wanted) {
                        self.found.push(part, frame.place)?;
                    }
                }
            }
            NodeEntries::Index(children) => {
                for child in children {
                    let covers = &child.covers;
                    if covers.start < self.wanted.end && covers.end > self.wanted.start {
                        self.child(child, frame, level + 1)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn child(&mut self, child: ChildNode, parent: &Frame, level: u8) -> Result<(), FsError> {
        let ChildNode { covers, block: number } = child;
        debug_assert!(!covers.is_empty() && parent.depth > 0, "a child covers blocks");
        let place = Location::of("extent block").in_inode(self.ino).in_block(number);
        let Some(block) = (self.blocks)(number, parent.place)? else { return Ok(()) };
        let room = block.len() - tail_len(&self.volume.sb);
        let header = header(&block, room, place)?;
        self.verify(&block, &header, place)?;
        self.found.push_index(IndexBlock {
            block: number,
            len: 1,
            first: Lbn::new(covers.start),
            last: Lbn::new(covers.end - 1),
            depth: level,
        });
        let frame = Frame { covers, depth: parent.depth - 1, place };
        self.node(&block, &header, &frame, level)
    }

    /// The checksum stands behind the room for `eh_max` entries.
    fn verify(&self, block: &[u8], header: &ExtentHeader, place: Location) -> Result<(), FsError> {
        let Some(inode) = self.verified else { return Ok(()) };
        verify(self.volume, (block, header), self.volume.inodes().seed(inode), place)
    }
}

fn verify(
    volume: &Volume,
    (block, header): (&[u8], &ExtentHeader),
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    let at = (index(header.eh_max.get()) + 1) * ENTRY;
    let (Some(covered), Some(stored)) = (block.get(..at), le32(block, at)) else {
        return Err(truncated(place));
    };
    volume.verify(stored, crc32c(seed, covered), place)
}

/// Compares the checksum of a block of a tree; `seed` is its inode's.
///
/// # Errors
/// [`FsError::Corrupt`] at `place` for a header or a checksum that is wrong.
pub(crate) fn verify_block(
    volume: &Volume,
    block: &[u8],
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    let room = block.len() - tail_len(&volume.sb);
    verify(volume, (block, &header(block, room, place)?), seed, place)
}

/// Whether the nodes of a sound tree have the room that follows from their length, or two entries
/// less, and those below the root have entries, the first of which is where the index says
/// (libext2fs, `ext2fs_extent_header_verify` and `ext2fs_extent_get`; e2fsck, `scan_extent_node`).
///
/// # Errors
/// Errors of the device.
pub(crate) fn is_well_formed(
    volume: &Volume,
    inode: &Inode,
    nodes: &[IndexBlock],
) -> Result<bool, FsError> {
    let place = Location::of("extent header").in_inode(inode.ino);
    let root = &inode.core.i_block.0;
    let has_room = |header: &ExtentHeader, bytes: &[u8]| {
        index(header.eh_max.get()) >= entries_in(bytes.len()) - 2
    };
    if header(root, root.len(), place).is_ok_and(|header| !has_room(&header, root)) {
        return Ok(false);
    }
    for node in nodes {
        let block = volume.block(node.block, place)?;
        let Some(header) = parse::<ExtentHeader>(&block, 0) else { return Ok(false) };
        let first = le32(&block, ENTRY).map(u64::from);
        let is_there = header.eh_entries.get() > 0 && first == Some(node.first.get());
        if !has_room(&header, &block) || !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes reserved at the end of a block of the tree for its checksum.
pub(crate) fn tail_len(sb: &Super) -> usize {
    if sb.has_metadata_csum() { 4 } else { 0 }
}
