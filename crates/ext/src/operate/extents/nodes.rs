//! The bytes of nodes: entries put into them, and the part that a torn write shows.

use super::path::TreeNode;
use crate::encode::mapping::{IN_INODE, entry_bytes, index_entry, leaf_entry, put_node};
use crate::ondisk::{ExtentHeader, IBlock};
use seekless_fs::Mapping;
use seekless_fs::field::{index, low32, wide};
use seekless_units::{BlockNo, Extent, Lbn, SECTOR};
use std::ops::Range;

/// Bytes of a header, and of an entry of either kind.
pub(super) const ENTRY: usize = size_of::<ExtentHeader>();

/// An entry of an extent tree's node, of a leaf or of an index.
#[derive(Clone, Copy)]
pub(super) struct NodeEntry {
    /// The first block of the file that it maps.
    pub(super) key: u32,
    bytes: [u8; ENTRY],
}

impl NodeEntry {
    pub(super) fn run(run: &Mapping) -> Self {
        debug_assert!(u32::try_from(run.lbn.get()).is_ok(), "blocks of a file have 32 bits");
        let key = low32(run.lbn.get());
        Self { key, bytes: entry_bytes(&leaf_entry(key, run.extent, run.unwritten)) }
    }

    pub(super) fn node(key: u32, at: BlockNo) -> Self {
        Self { key, bytes: entry_bytes(&index_entry(key, at)) }
    }
}

/// Enters the first run of a file in its root, which is empty.
pub(super) fn put_first(root: &mut IBlock, run: Extent) {
    debug_assert_eq!(run.len, 1, "a new file has one block");
    let run = Mapping { lbn: Lbn::new(0), extent: run, unwritten: false };
    put_node(&mut root.0, &[NodeEntry::run(&run).bytes], index(IN_INODE), 0);
}

/// How many of some entries stay in a node: all that fit if more are appended behind them, else
/// half.
pub(super) fn split_at(len: usize, most: usize, at_end: bool) -> usize {
    debug_assert!(most > 0, "a node has room for an entry");
    if len <= most {
        len
    } else if at_end {
        most
    } else {
        len.div_ceil(2).min(most)
    }
}

/// A node with other entries. Bytes behind the room for `most` stay as they are: where blocks have
/// checksums, theirs, to be renewed when they are written (`ext4_extent_block_csum_set` of
/// `fs/ext4/extents.c`).
pub(super) fn node_bytes(
    mut bytes: Vec<u8>,
    entries: &[NodeEntry],
    most: usize,
    depth: u16,
) -> Vec<u8> {
    debug_assert!(entries.len() <= most, "{} entries in a node of {most}", entries.len());
    debug_assert!(
        entries.is_sorted_by(|one, next| one.key < next.key),
        "the entries of a node rise"
    );
    let entries: Vec<[u8; ENTRY]> = entries.iter().map(|entry| entry.bytes).collect();
    put_node(&mut bytes, &entries, most, depth);
    bytes
}

/// Bytes of a node that are within its header's count.
pub(super) fn shown(bytes: &[u8]) -> usize {
    let entries = seekless_fs::field::parse::<ExtentHeader>(bytes, 0);
    let entries = entries.map_or(0, |header| header.eh_entries.get());
    (index(entries) + 1) * ENTRY
}

/// The bytes of a part that differ, with those in between.
pub(super) fn changed(old: &[u8], new: &[u8], part: Range<usize>) -> Range<usize> {
    let differs = |at: &usize| old.get(*at) != new.get(*at);
    let first = part.clone().find(differs);
    let last = part.clone().rfind(differs);
    match (first, last) {
        (Some(first), Some(last)) => first..last + 1,
        _ => part.start..part.start,
    }
}

/// Whether a torn write shows a node as it was or as it is to be: the entries within both headers
/// differ in one sector, and those past the old header are written before.
pub(super) fn is_whole(node: &TreeNode, new: &[u8]) -> bool {
    let both = shown(&node.bytes).min(shown(new));
    let changed = changed(&node.bytes, new, 0..both);
    let sector = |at: usize| wide(at) / SECTOR;
    changed.is_empty() || sector(changed.start) == sector(changed.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(lens: &[u64]) -> Vec<u8> {
        let mut lbn = 0;
        let entry = |&len: &u64| {
            let run = Extent::new(BlockNo::new((7 << 32) + lbn), len);
            let entry =
                NodeEntry::run(&Mapping { lbn: Lbn::new(lbn), extent: run, unwritten: false });
            lbn += 100;
            entry
        };
        let entries: Vec<NodeEntry> = lens.iter().map(entry).collect();
        node_bytes(vec![0xEE; 1024], &entries, 84, 0)
    }

    #[test]
    fn only_what_is_seen_in_one_sector_may_be_torn() {
        let whole = |old: &[u64], new: &[u64]| {
            let old = TreeNode { at: None, most: 84, bytes: node(old) };
            is_whole(&old, &node(new))
        };
        let many: [u64; 60] = std::array::from_fn(|n| n as u64 + 1);
        assert!(whole(&many, &many));
        let mut other = many;
        other[50] = 9;
        assert!(whole(&many, &other), "one length");
        other[3] = 9;
        assert!(!whole(&many, &other), "two, in two sectors");
        assert!(whole(&many[..50], &many[..51]), "behind the others");
        assert!(whole(&many[..51], &many[..50]));
        let mut inserted = many.to_vec();
        inserted.insert(5, 9);
        assert!(!whole(&many, &inserted));
    }

    #[test]
    fn what_differs_is_found_within_a_part() {
        let (old, new) = ([0, 1, 2, 3, 4, 5], [0, 9, 2, 9, 4, 9]);
        assert_eq!(changed(&old, &new, 0..6), 1..6);
        assert_eq!(changed(&old, &new, 2..5), 3..4);
        assert!(changed(&old, &new, 4..5).is_empty());
    }

    #[test]
    fn numbers_of_48_bits() {
        let bytes = node(&[5]);
        assert_eq!(bytes[16..24], [5, 0, 7, 0, 0, 0, 0, 0]);
        assert_eq!(
            NodeEntry::node(3, BlockNo::new((9 << 32) + 1)).bytes[..10],
            [3, 0, 0, 0, 1, 0, 0, 0, 9, 0]
        );
    }

    #[test]
    fn nodes_that_are_appended_to_stay_full() {
        assert_eq!(split_at(85, 84, true), 84);
        assert_eq!(split_at(85, 84, false), 43);
        assert_eq!(split_at(84, 84, false), 84);
        assert_eq!(split_at(3, 1, false), 1);
    }
}
