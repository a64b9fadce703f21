//! Extent trees.
//!
//! Every node's entries must rise and stay within the range of logical blocks
//! that its parent gives it. So no node with entries can be reached twice, and
//! a walk ends after reading each of its blocks once, whatever the image says.

use crate::bmap::{Found, clip};
use crate::checksum::crc32c;
use crate::field::{index, invalid, le32, parse, range, slice, truncated};
use crate::inode::Inode;
use crate::ondisk::{
    EXTENT_MAGIC, EXTENT_MAX_DEPTH, EXTENT_MAX_LEN, ExtentHeader, ExtentIndex, ExtentLeaf,
};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_fs::{Corruption, FsError, IndexBlock, Location, Mapping};
use seekless_units::{BlockNo, Extent, Lbn};
use std::ops::Range;

/// Bytes of a header, and of an entry of either kind.
const ENTRY: usize = 12;
/// Logical blocks of a file: 32 bits, the last of which is never used.
const LOGICAL_BLOCKS: u64 = 1 << 32;

/// One walk over a file's tree.
struct Walk<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    wanted: &'a Range<u64>,
    found: &'a mut Found,
}

/// A node still to be read: what its parent says of it.
struct Node {
    covers: Range<u64>,
    depth: u16,
    level: u8,
    place: Location,
}

/// Walks the tree of an inode over a range of logical blocks.
pub(crate) fn walk(
    volume: &Volume,
    inode: &Inode,
    wanted: &Range<u64>,
    found: &mut Found,
) -> Result<(), FsError> {
    let place = Location::of("extent header").in_inode(inode.ino);
    let root = &inode.core.i_block.0;
    let header = header(root, root.len(), place)?;
    let depth = header.eh_depth.get();
    if depth > EXTENT_MAX_DEPTH {
        return Err(range("eh_depth", u64::from(depth), u64::from(EXTENT_MAX_DEPTH), place));
    }
    let node = Node { covers: 0..LOGICAL_BLOCKS, depth, level: 0, place };
    Walk { volume, inode, wanted, found }.node(root, &header, &node)
}

/// Whether the root of a file's map is that of an extent tree.
pub(crate) fn is_root(root: &[u8]) -> bool {
    let header = header(root, root.len(), Location::of("extent header"));
    header.is_ok_and(|header| header.eh_depth.get() <= EXTENT_MAX_DEPTH && header.eh_max.get() > 0)
}

/// A node's header, its counts checked against the room there is.
fn header(bytes: &[u8], room: usize, place: Location) -> Result<ExtentHeader, FsError> {
    let header: ExtentHeader = parse(bytes, 0).ok_or_else(|| truncated(place))?;
    let magic = header.eh_magic.get();
    if magic != EXTENT_MAGIC {
        return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
    }
    let most = room.saturating_sub(ENTRY).checked_div(ENTRY).unwrap_or(0);
    let (max, entries) = (header.eh_max.get(), header.eh_entries.get());
    if index(max) > most {
        return Err(range("eh_max", u64::from(max), crate::field::wide(most), place));
    }
    if entries > max {
        return Err(range("eh_entries", u64::from(entries), u64::from(max), place));
    }
    Ok(header)
}

impl Walk<'_> {
    fn node(&mut self, bytes: &[u8], header: &ExtentHeader, node: &Node) -> Result<(), FsError> {
        let found_depth = header.eh_depth.get();
        if found_depth != node.depth {
            return Err(invalid("eh_depth", u64::from(found_depth), node.place));
        }
        let len = index(header.eh_entries.get()).saturating_mul(ENTRY);
        let entries = slice(bytes, ENTRY, len).ok_or_else(|| truncated(node.place))?;
        if node.depth == 0 { self.leaf(entries, node) } else { self.interior(entries, node) }
    }

    fn leaf(&mut self, entries: &[u8], node: &Node) -> Result<(), FsError> {
        let mut free = node.covers.start;
        for entry in entries.chunks_exact(ENTRY) {
            let leaf: ExtentLeaf = parse(entry, 0).ok_or_else(|| truncated(node.place))?;
            let run = self.extent(&leaf, free..node.covers.end, node.place)?;
            free = run.lbn.get().saturating_add(run.extent.len);
            if let Some(part) = clip(run, self.wanted) {
                self.found.push(part, node.place)?;
            }
        }
        Ok(())
    }

    /// An extent as a run, which must lie in `within` and in the volume.
    fn extent(
        &self,
        leaf: &ExtentLeaf,
        within: Range<u64>,
        place: Location,
    ) -> Result<Mapping, FsError> {
        let first = u64::from(leaf.ee_block.get());
        let raw = leaf.ee_len.get();
        let unwritten = raw > EXTENT_MAX_LEN;
        let len = u64::from(if unwritten { raw.saturating_sub(EXTENT_MAX_LEN) } else { raw });
        if len == 0 {
            return Err(invalid("ee_len", u64::from(raw), place));
        }
        if first < within.start || first.saturating_add(len) > within.end {
            return Err(range("ee_block", first, within.end, place));
        }
        let start = (u64::from(leaf.ee_start_hi.get()) << 32) | u64::from(leaf.ee_start_lo.get());
        let extent = Extent::new(BlockNo::new(start), len);
        self.volume.check_extent(extent, place)?;
        Ok(Mapping { lbn: Lbn::new(first), extent, unwritten })
    }

    fn interior(&mut self, entries: &[u8], node: &Node) -> Result<(), FsError> {
        if entries.is_empty() {
            return Err(invalid("eh_entries", 0, node.place));
        }
        let mut children = entries.chunks_exact(ENTRY).peekable();
        let mut least = node.covers.start;
        while let Some(child) = children.next() {
            let child: ExtentIndex = parse(child, 0).ok_or_else(|| truncated(node.place))?;
            let first = u64::from(child.ei_block.get());
            if first < least || first >= node.covers.end {
                return Err(range("ei_block", first, node.covers.end, node.place));
            }
            least = first.saturating_add(1);
            let next = children.peek().and_then(|next| le32(next, 0)).map(u64::from);
            let covers = first..next.unwrap_or(node.covers.end);
            if covers.start < self.wanted.end && covers.end > self.wanted.start {
                self.child(&child, covers, node)?;
            }
        }
        Ok(())
    }

    fn child(
        &mut self,
        child: &ExtentIndex,
        covers: Range<u64>,
        parent: &Node,
    ) -> Result<(), FsError> {
        let high = u64::from(child.ei_leaf_hi.get()) << 32;
        let number = BlockNo::new(high | u64::from(child.ei_leaf_lo.get()));
        let place = Location::of("extent block").in_inode(self.inode.ino).in_block(number);
        let block = self.volume.block(number, parent.place)?;
        let room = block.len().saturating_sub(tail_len(&self.volume.sb));
        let header = header(&block, room, place)?;
        self.verify(&block, &header, place)?;
        let level = parent.level.saturating_add(1);
        self.found.push_index(IndexBlock {
            block: number,
            first: Lbn::new(covers.start),
            last: Lbn::new(covers.end.saturating_sub(1)),
            depth: level,
        });
        let node = Node { covers, depth: parent.depth.saturating_sub(1), level, place };
        self.node(&block, &header, &node)
    }

    /// The checksum stands behind the room for `eh_max` entries.
    fn verify(&self, block: &[u8], header: &ExtentHeader, place: Location) -> Result<(), FsError> {
        if !self.volume.sb.has_metadata_csum() {
            return Ok(());
        }
        let at = index(header.eh_max.get()).saturating_add(1).saturating_mul(ENTRY);
        let (Some(covered), Some(stored)) = (block.get(..at), le32(block, at)) else {
            return Err(truncated(place));
        };
        let computed = crc32c(self.volume.inode_seed(self.inode), covered);
        self.volume.verify(stored, computed, place)
    }
}

/// Bytes kept at the end of a block of the tree for its checksum.
fn tail_len(sb: &Super) -> usize {
    if sb.has_metadata_csum() { 4 } else { 0 }
}
