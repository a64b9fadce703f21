//! Encodes the blocks of an index.

use crate::htree::{Branch, DxChild, ROOT_ENTRIES_OFFSET};
use crate::ondisk::{
    DX_NODE_ENTRIES_OFFSET, DX_ROOT_INFO_OFFSET, DxCountLimit, DxEntry, DxRootInfo,
};
use seekless_fs::field::{low16, low32, wide};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Bytes of an entry of the index.
const ENTRY: usize = size_of::<DxEntry>();

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    let to = block.get_mut(at..at + bytes.len());
    debug_assert!(to.is_some(), "it lies in the block");
    if let Some(to) = to {
        to.copy_from_slice(bytes);
    }
}

fn put_counts(block: &mut [u8], branch: &Branch) {
    debug_assert!(
        branch.count > 0 && branch.count <= branch.limit,
        "{} children in a block for {}",
        branch.count,
        branch.limit
    );
    let count = low16(low32(wide(branch.count)));
    let limit = low16(low32(wide(branch.limit)));
    let counts = DxCountLimit { limit: limit.into(), count: count.into() };
    put(block, branch.offset, counts.as_bytes());
}

/// Writes all children of a block and their number. The first one's hash gives its
/// place to the counts.
pub(super) fn put_children(block: &mut [u8], branch: Branch, children: &[DxChild]) -> Branch {
    debug_assert!(!children.is_empty() && children.len() <= branch.limit);
    let branch = Branch { count: children.len(), ..branch };
    for (n, child) in children.iter().enumerate() {
        let at = branch.offset + n * ENTRY;
        let entry = DxEntry { hash: child.hash.into(), block: low32(child.lbn.get()).into() };
        put(block, at, entry.as_bytes());
    }
    put_counts(block, &branch);
    branch
}

/// Puts a child behind the one at `chosen`.
pub(super) fn insert_child(block: &mut [u8], branch: Branch, chosen: usize, child: DxChild) {
    debug_assert!(chosen < branch.count && !branch.is_full());
    let at = branch.offset + (chosen + 1) * ENTRY;
    let end = branch.offset + branch.count * ENTRY;
    debug_assert!(at <= end && end + ENTRY <= block.len(), "there is room for one more child");
    if let Some(behind) = block.get_mut(at..end + ENTRY) {
        behind.rotate_right(ENTRY.min(behind.len()));
    }
    let entry = DxEntry { hash: child.hash.into(), block: low32(child.lbn.get()).into() };
    put(block, at, entry.as_bytes());
    put_counts(block, &Branch { count: branch.count + 1, ..branch });
}

/// A node below the root, without children yet.
pub(super) fn blank_node(len: usize, tail: usize) -> (Vec<u8>, Branch) {
    let offset = DX_NODE_ENTRIES_OFFSET;
    let room = len - offset - tail;
    (vec![0; len], Branch { offset, count: 0, limit: room / ENTRY })
}

/// Writes the part of a root behind its two entries, without children yet.
pub(super) fn put_root(block: &mut [u8], version: u8, tail: usize) -> Branch {
    let offset = ROOT_ENTRIES_OFFSET;
    let room = block.len() - offset - tail;
    if let Some(rest) = block.get_mut(DX_ROOT_INFO_OFFSET..) {
        rest.fill(0);
    }
    let info = DxRootInfo { hash_version: version, info_length: 8, ..DxRootInfo::default() };
    put(block, DX_ROOT_INFO_OFFSET, info.as_bytes());
    Branch { offset, count: 0, limit: room / ENTRY }
}

/// Sets how many levels of nodes are below a root.
pub(super) fn put_levels(block: &mut [u8], levels: u8) {
    debug_assert!(levels > 0 && levels < 3, "an index has at most three levels");
    let at = DX_ROOT_INFO_OFFSET + offset_of!(DxRootInfo, indirect_levels);
    put(block, at, &[levels]);
}
