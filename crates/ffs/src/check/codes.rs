//! The codes of findings, and the phase of each.

/// Every code with its phase: 0 for the superblock, 1 for inodes and blocks, 2 for entries, 3 for
/// unconnected directories, 4 for link counts, 5 for bitmaps and counts.
pub const CODES: &[(&str, u8)] = &[
    ("superblock.unusable", 0),
    ("superblock.fixed", 0),
    ("superblock.derived", 0),
    ("superblock.tuning", 0),
    ("superblock.check-hash", 0),
    ("superblock.copy", 0),
    ("superblock.not-clean", 0),
    ("group.head", 1),
    ("group.initialised", 1),
    ("inode.unreadable", 1),
    ("inode.unknown-kind", 1),
    ("inode.partly-cleared", 1),
    ("inode.check-hash", 1),
    ("inode.snapshot", 1),
    ("inode.length", 1),
    ("inode.device", 1),
    ("inode.block-range", 1),
    ("inode.block-past-end", 1),
    ("inode.size-past-blocks", 1),
    ("inode.duplicate-blocks", 1),
    ("inode.block-count", 1),
    ("inode.attributes", 1),
    ("root.missing", 2),
    ("root.not-directory", 2),
    ("directory.hole", 2),
    ("directory.corrupt", 2),
    ("directory.dot", 2),
    ("directory.dot-dot", 2),
    ("directory.two-names", 2),
    ("entry.name", 2),
    ("entry.ending", 2),
    ("entry.unallocated", 2),
    ("entry.duplicate", 2),
    ("entry.kind", 2),
    ("directory.unconnected", 3),
    ("directory.loop", 3),
    ("inode.unreferenced", 4),
    ("inode.links-high", 4),
    ("inode.links-low", 4),
    ("group.check-hash", 5),
    ("group.summary", 5),
    ("group.counts", 5),
    ("group.clusters", 5),
    ("group.rotor", 5),
    ("group.fields", 5),
    ("group.padding", 5),
    ("bitmap.inodes-leaked", 5),
    ("bitmap.inodes-free", 5),
    ("bitmap.blocks-leaked", 5),
    ("bitmap.blocks-free", 5),
    ("summary-area", 5),
    ("superblock.totals", 5),
];

/// The phase in which a code is found; `None` for an unknown code.
#[must_use]
pub fn phase_of(code: &str) -> Option<u8> {
    CODES.iter().find(|(known, _)| *known == code).map(|(_, phase)| *phase)
}
