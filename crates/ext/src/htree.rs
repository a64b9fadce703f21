//! Hashed directories: an index of name hashes over blocks of entries.

use crate::casefold;
use crate::checksum::crc32c;
use crate::dir::{Directory, is_one_entry, record_len};
use crate::hash::name_hash;
use crate::ondisk::{
    DX_NODE_ENTRIES_OFFSET, DX_ROOT_INFO_OFFSET, DxCountLimit, DxEntry, DxRootInfo, DxTail,
    hash_version, incompat,
};
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, le32, parse, range, truncated, wide};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::Lbn;
use std::collections::HashSet;
use std::mem::offset_of;

/// Bytes of an entry of the index.
const ENTRY: usize = size_of::<DxEntry>();
/// `info_length`.
const INFO_LENGTH: usize = 8;
/// The offset of the root's entries.
pub(crate) const ROOT_ENTRIES_OFFSET: usize = DX_ROOT_INFO_OFFSET + INFO_LENGTH;
/// Block numbers of the index have 28 bits; the rest was meant for flags.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// A child of an index block: the least hash below it and its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DxChild {
    pub(crate) hash: u32,
    pub(crate) lbn: Lbn,
}

/// The header of an index block.
#[derive(Clone, Copy)]
pub(crate) struct Branch {
    /// Offset of its children.
    pub(crate) offset: usize,
    pub(crate) count: usize,
    /// The most children that fit.
    pub(crate) limit: usize,
}

impl Branch {
    /// An index block's counts, checked.
    pub(crate) fn of(
        volume: &Volume,
        block: &[u8],
        is_root: bool,
        place: Location,
    ) -> Result<Self, FsError> {
        if !is_root && !is_one_entry(block) {
            return Err(invalid("rec_len", u64::from(le32(block, 4).unwrap_or(0)), place));
        }
        let offset = if is_root { ROOT_ENTRIES_OFFSET } else { DX_NODE_ENTRIES_OFFSET };
        let head: DxCountLimit = parse(block, offset).ok_or_else(|| truncated(place))?;
        let tail = if volume.sb.has_metadata_csum() { size_of::<DxTail>() } else { 0 };
        let room = block.len() - offset - tail;
        let most = room / ENTRY;
        let (limit, count) = (head.limit.get(), head.count.get());
        if usize::from(limit) != most {
            return Err(range("limit", u64::from(limit), wide(most), place));
        }
        if count == 0 || count > limit {
            return Err(range("count", u64::from(count), u64::from(limit), place));
        }
        Ok(Self { offset, count: usize::from(count), limit: most })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    /// A child. The first one's hash gives its place to the counts, and is the least.
    pub(crate) fn child(&self, block: &[u8], n: usize) -> DxChild {
        debug_assert!(n < self.count);
        let at = self.offset + n * ENTRY;
        let entry = parse::<DxEntry>(block, at).unwrap_or_default();
        let hash = if n == 0 { 0 } else { entry.hash.get() };
        DxChild { hash, lbn: Lbn::new(u64::from(entry.block.get() & BLOCK_MASK)) }
    }

    /// The last child whose hash is not above `hash`.
    pub(crate) fn find(&self, block: &[u8], hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.child(block, middle).hash <= hash {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }
}

/// The hash version of names and the levels of nodes below a root. `None` where the kernel, too,
/// would read the directory as a plain list.
pub(crate) fn head(
    volume: &Volume,
    block: &[u8],
    place: Location,
) -> Result<Option<(u8, u8)>, FsError> {
    let info: DxRootInfo = parse(block, DX_ROOT_INFO_OFFSET).ok_or_else(|| truncated(place))?;
    let most = if volume.sb.has_incompat(incompat::LARGEDIR) { 3 } else { 2 };
    if info.hash_version > hash_version::TEA
        || info.unused_flags & 1 != 0
        || info.indirect_levels >= most
        || usize::from(info.info_length) != INFO_LENGTH
    {
        return Ok(None);
    }
    let version = info.hash_version + volume.sb.hash_unsigned_offset();
    Ok(Some((version, info.indirect_levels)))
}

/// A sound root.
struct Root {
    version: u8,
    levels: u8,
    children: Vec<DxChild>,
}

/// The index blocks that a lookup in an index reads, and the leaves they lead to: more than one
/// where names of equal hash go on in the next block.
pub(crate) struct DxLookup {
    pub(crate) index: Vec<Lbn>,
    pub(crate) leaves: Vec<Lbn>,
}

/// Whether a block of a hashed directory is part of the index.
pub(crate) fn is_index_block(block: &[u8], lbn: Lbn) -> bool {
    lbn == Lbn::ZERO || is_one_entry(block)
}

/// Whether a block of a directory is part of an index, by its entries alone: if blocks of names end
/// with a checksum, their entries do not reach the end.
pub(crate) fn is_index_by_entries(block: &[u8]) -> bool {
    let second = le32(block, 16).unwrap_or(0) & 0xFFFF;
    let second = record_len(u16::try_from(second).unwrap_or(0), block.len());
    let first = le32(block, 4).unwrap_or(0) & 0xFFFF;
    is_one_entry(block) || first == 12 && second + 12 == block.len()
}

/// The offset of the entries of an index block.
fn entries_offset(block: &[u8], place: Location) -> Result<usize, FsError> {
    if is_one_entry(block) {
        return Ok(DX_NODE_ENTRIES_OFFSET);
    }
    let info: DxRootInfo = parse(block, DX_ROOT_INFO_OFFSET).ok_or_else(|| truncated(place))?;
    let first = le32(block, 4).unwrap_or(0) & 0xFFFF;
    let second = le32(block, 16).unwrap_or(0) & 0xFFFF;
    let second = record_len(u16::try_from(second).unwrap_or(0), block.len());
    if first != 12
        || second + 12 != block.len()
        || info.reserved_zero.get() != 0
        || usize::from(info.info_length) != INFO_LENGTH
    {
        return Err(invalid("info_length", u64::from(info.info_length), place));
    }
    Ok(ROOT_ENTRIES_OFFSET)
}

/// Checks an index block's checksum, which stands behind the room for entries.
pub(crate) fn verify(
    volume: &Volume,
    block: &[u8],
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    let offset = entries_offset(block, place)?;
    let head: DxCountLimit = parse(block, offset).ok_or_else(|| truncated(place))?;
    let end = |entries: u16| offset + usize::from(entries) * ENTRY;
    let tail: DxTail = parse(block, end(head.limit.get())).ok_or_else(|| truncated(place))?;
    let covered = block.get(..end(head.count.get())).ok_or_else(|| truncated(place))?;
    let crc = crc32c(seed, covered);
    let crc = crc32c(crc32c(crc, &tail.dt_reserved.get().to_le_bytes()), &[0; 4]);
    volume.verify(tail.dt_checksum.get(), crc, place)
}

/// Sets an index block's checksum.
pub(crate) fn seal(block: &mut [u8], seed: u32, place: Location) -> Result<(), FsError> {
    let offset = entries_offset(block, place)?;
    let head: DxCountLimit = parse(block, offset).ok_or_else(|| truncated(place))?;
    let end = |entries: u16| offset + usize::from(entries) * ENTRY;
    let tail_at = end(head.limit.get());
    let tail: DxTail = parse(block, tail_at).ok_or_else(|| truncated(place))?;
    let covered = block.get(..end(head.count.get())).ok_or_else(|| truncated(place))?;
    let crc = crc32c(seed, covered);
    let crc = crc32c(crc32c(crc, &tail.dt_reserved.get().to_le_bytes()), &[0; 4]);
    let sum_at = tail_at + offset_of!(DxTail, dt_checksum);
    let sum = block.get_mut(sum_at..).and_then(<[u8]>::first_chunk_mut);
    *sum.ok_or_else(|| truncated(place))? = crc.to_le_bytes();
    Ok(())
}

/// The children of an index block.
fn children(
    volume: &Volume,
    block: &[u8],
    is_root: bool,
    place: Location,
) -> Result<Vec<DxChild>, FsError> {
    let branch = Branch::of(volume, block, is_root, place)?;
    Ok((0..branch.count).map(|n| branch.child(block, n)).collect())
}

/// Reads the root. `None` where the kernel, too, would read the directory as a plain list: no
/// index, or one of an unknown format.
fn root(dir: &Directory<'_>) -> Result<Option<Root>, FsError> {
    if !dir.volume.inodes().is_hashed(dir.inode) || dir.blocks() == 0 {
        return Ok(None);
    }
    let place = Location::of("htree root").in_inode(dir.inode.ino);
    let block = dir.block(Lbn::ZERO)?;
    let Some((version, levels)) = head(dir.volume, &block, place)? else { return Ok(None) };
    let children = children(dir.volume, &block, true, place)?;
    Ok(Some(Root { version, levels, children }))
}

/// The reserved field of an index's root, if it is not zero: e2fsck then takes the index for one of
/// an unknown kind.
pub(crate) fn reserved(dir: &Directory<'_>) -> Result<Option<u32>, FsError> {
    let place = Location::of("htree root").in_inode(dir.inode.ino);
    let block = dir.block(Lbn::ZERO)?;
    let info: DxRootInfo = parse(&block, DX_ROOT_INFO_OFFSET).ok_or_else(|| truncated(place))?;
    Ok(Some(info.reserved_zero.get()).filter(|&number| number != 0))
}

/// Reads an interior node.
fn node(dir: &Directory<'_>, lbn: Lbn) -> Result<Vec<DxChild>, FsError> {
    let place = Location::of("htree node").in_inode(dir.inode.ino);
    let block = dir.block(lbn)?;
    children(dir.volume, &block, false, place)
}

/// Walks the index for `name`. `None` for a directory that is a plain list.
pub(crate) fn probe(dir: &Directory<'_>, name: &[u8]) -> Result<Option<DxLookup>, FsError> {
    let Some(root) = root(dir)? else { return Ok(None) };
    if name == b"." || name == b".." {
        return Ok(Some(DxLookup { index: Vec::new(), leaves: vec![Lbn::ZERO] }));
    }
    let folded = if dir.folds_case() { casefold::fold(name) } else { None };
    let hashed = folded.as_deref().map_or(name, str::as_bytes);
    let Some(hash) = name_hash(root.version, dir.volume.sb.hash_seed(), hashed) else {
        return Ok(None);
    };
    let mut cursor = Cursor { dir, frames: Vec::new(), index: vec![Lbn::ZERO] };
    cursor.enter(root.children, hash.major);
    for _ in 0..root.levels {
        cursor.descend(hash.major)?;
    }
    let mut leaves = Vec::new();
    while let Some(leaf) = cursor.leaf() {
        leaves.push(leaf);
        if wide(leaves.len()) > dir.blocks() {
            return Err(cycle(dir));
        }
        if !cursor.next(hash.major)? {
            break;
        }
    }
    Ok(Some(DxLookup { index: cursor.index, leaves }))
}

fn cycle(dir: &Directory<'_>) -> FsError {
    FsError::corrupt(Corruption::Cycle, Location::of("htree").in_inode(dir.inode.ino))
}

/// A path from the root to a leaf.
struct Cursor<'a> {
    dir: &'a Directory<'a>,
    /// Children and the place among them, from the root down.
    frames: Vec<(Vec<DxChild>, usize)>,
    /// Index blocks read so far.
    index: Vec<Lbn>,
}

impl Cursor<'_> {
    /// Moves to the last child whose hash is not above `hash`.
    fn enter(&mut self, children: Vec<DxChild>, hash: u32) {
        let after = children.iter().skip(1).take_while(|child| child.hash <= hash).count();
        self.frames.push((children, after));
    }

    fn leaf(&self) -> Option<Lbn> {
        let (children, at) = self.frames.last()?;
        children.get(*at).map(|child| child.lbn)
    }

    fn descend(&mut self, hash: u32) -> Result<(), FsError> {
        let Some(lbn) = self.leaf() else { return Ok(()) };
        let children = self.read(lbn)?;
        self.enter(children, hash);
        Ok(())
    }

    fn read(&mut self, lbn: Lbn) -> Result<Vec<DxChild>, FsError> {
        if wide(self.index.len()) > self.dir.blocks() {
            return Err(cycle(self.dir));
        }
        if !self.index.contains(&lbn) {
            self.index.push(lbn);
        }
        node(self.dir, lbn)
    }

    /// Moves to the next leaf if it goes on with names of the same hash: its
    /// own least hash is then the same with the lowest bit set.
    fn next(&mut self, hash: u32) -> Result<bool, FsError> {
        let levels = self.frames.len();
        while let Some((children, at)) = self.frames.last_mut() {
            *at += 1;
            if let Some(child) = children.get(*at) {
                if child.hash & !1 != hash {
                    return Ok(false);
                }
                break;
            }
            self.frames.pop();
        }
        if self.frames.is_empty() {
            return Ok(false);
        }
        while self.frames.len() < levels {
            let Some(lbn) = self.leaf() else { return Ok(false) };
            let children = self.read(lbn)?;
            self.frames.push((children, 0));
        }
        Ok(true)
    }
}

/// All blocks in the order of the hashes, index blocks as they are met: the
/// order in which a listing reads them. `None` for a plain list.
pub(crate) fn in_hash_order(dir: &Directory<'_>) -> Result<Option<Vec<Lbn>>, FsError> {
    let Some(root) = root(dir)? else { return Ok(None) };
    let mut order = vec![Lbn::ZERO];
    let mut seen = HashSet::from([Lbn::ZERO]);
    // Children still to be visited with the levels of index below them.
    let mut stack: Vec<(Lbn, u8)> =
        root.children.iter().rev().map(|child| (child.lbn, root.levels)).collect();
    while let Some((lbn, levels)) = stack.pop() {
        if !seen.insert(lbn) {
            return Err(cycle(dir));
        }
        if lbn.get() >= dir.blocks() {
            return Err(range("block", lbn.get(), dir.blocks(), dir.place()));
        }
        order.push(lbn);
        if let Some(below) = levels.checked_sub(1) {
            stack.extend(node(dir, lbn)?.iter().rev().map(|child| (child.lbn, below)));
        }
        if order.len() > index(dir.blocks()) {
            return Err(cycle(dir));
        }
    }
    Ok(Some(order))
}

/// A leaf, and the hashes of the names that belong there.
pub(crate) struct Leaf {
    pub(crate) lbn: Lbn,
    /// The least hash; with the lowest bit set if the preceding leaf has names of the same hash.
    low: u32,
    /// The least hash of the next leaf, likewise; `None` for the last.
    next: Option<u32>,
}

impl Leaf {
    /// Whether its hashes are below those of the next leaf.
    pub(crate) fn is_in_order(&self) -> bool {
        self.next.is_none_or(|next| self.low <= next)
    }

    /// Whether a name of this hash (its lowest bit is clear) may be here.
    pub(crate) fn holds(&self, hash: u32) -> bool {
        let below =
            self.next.is_none_or(|next| hash < next & !1 || hash == next & !1 && next & 1 == 1);
        hash >= self.low & !1 && below
    }
}

/// All of an index.
pub(crate) struct Leaves {
    /// How names are hashed.
    pub(crate) version: u8,
    pub(crate) index: Vec<Lbn>,
    pub(crate) leaves: Vec<Leaf>,
}

/// The leaves of an index in order. `None` for a plain list, or an index of an unknown kind.
pub(crate) fn leaves(dir: &Directory<'_>) -> Result<Option<Leaves>, FsError> {
    let Some(root) = root(dir)? else { return Ok(None) };
    let mut found = Leaves { version: root.version, index: vec![Lbn::ZERO], leaves: Vec::new() };
    let mut level = bounded(&root.children, 0, None);
    for _ in 0..root.levels {
        let mut below = Vec::new();
        for leaf in level {
            if wide(found.index.len() + below.len()) > dir.blocks() {
                return Err(cycle(dir));
            }
            found.index.push(leaf.lbn);
            below.extend(bounded(&node(dir, leaf.lbn)?, leaf.low, leaf.next));
        }
        level = below;
    }
    if wide(level.len()) > dir.blocks() {
        return Err(cycle(dir));
    }
    found.leaves = level;
    Ok(Some(found))
}

/// Children with their ranges of hashes.
fn bounded(children: &[DxChild], low: u32, next: Option<u32>) -> Vec<Leaf> {
    let lows = std::iter::once(low).chain(children.iter().skip(1).map(|child| child.hash));
    let nexts = children.iter().skip(1).map(|child| Some(child.hash)).chain([next]);
    let bounds = lows.zip(nexts);
    children
        .iter()
        .zip(bounds)
        .map(|(child, (low, next))| Leaf { lbn: child.lbn, low, next })
        .collect()
}
