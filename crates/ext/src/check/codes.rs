//! The codes of findings, and the pass in which each is found.

/// Every code with its pass, as e2fsck counts them: 0 for superblock, journal and
/// descriptors, 1 for inodes and blocks, 2 for names, 3 for what the root does
/// not lead to, 4 for numbers of links, 5 for bitmaps and counts.
pub const CODES: &[(&str, u8)] = &[
    ("superblock.corrupt", 0),
    ("superblock.checksum", 0),
    ("superblock.errors", 0),
    ("superblock.not-clean", 0),
    ("superblock.mmp", 0),
    ("superblock.reserved", 0),
    ("superblock.fields", 0),
    ("journal.pending", 0),
    ("journal.corrupt", 0),
    ("group.head", 0),
    ("group.checksum", 0),
    ("orphan.list", 0),
    ("orphan.file", 0),
    ("inode.orphan", 0),
    ("inode.unreadable", 1),
    ("inode.unknown-kind", 1),
    ("inode.reserved", 1),
    ("inode.partly-cleared", 1),
    ("inode.deletion-time", 1),
    ("inode.checksum", 1),
    ("inode.length", 1),
    ("inode.block-map", 1),
    ("inode.map-checksum", 1),
    ("inode.block-range", 1),
    ("inode.duplicate-blocks", 1),
    ("inode.block-count", 1),
    ("inode.attributes", 1),
    ("inode.attributes-checksum", 1),
    ("root.missing", 2),
    ("root.not-directory", 2),
    ("directory.hole", 2),
    ("directory.corrupt", 2),
    ("directory.checksum", 2),
    ("directory.index", 2),
    ("directory.dot", 2),
    ("directory.two-names", 2),
    ("entry.name", 2),
    ("entry.duplicate", 2),
    ("entry.unallocated", 2),
    ("entry.kind", 2),
    ("directory.dot-dot", 3),
    ("directory.unconnected", 3),
    ("directory.loop", 3),
    ("inode.unreferenced", 4),
    ("inode.links-high", 4),
    ("inode.links-low", 4),
    ("attributes.count", 4),
    ("bitmap.unreadable", 5),
    ("bitmap.checksum", 5),
    ("bitmap.padding", 5),
    ("bitmap.blocks-leaked", 5),
    ("bitmap.blocks-free", 5),
    ("bitmap.inodes-leaked", 5),
    ("bitmap.inodes-free", 5),
    ("group.counts", 5),
    ("superblock.totals", 5),
];

/// The pass in which a code is found; `None` for what is no code of ours.
#[must_use]
pub fn phase_of(code: &str) -> Option<u8> {
    CODES.iter().find(|(known, _)| *known == code).map(|(_, phase)| *phase)
}
