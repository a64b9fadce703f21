//! The codes of findings, and the phase of each.

/// Every code with its phase: 0 for the boot sector and the FATs, 1 for directories and
/// names, 2 for chains and lengths, 3 for chains without a name, 4 for counts.
pub const CODES: &[(&str, u8)] = &[
    ("boot.unusable", 0),
    ("boot.copy", 0),
    ("boot.dirty", 0),
    ("fat.first-entry", 0),
    ("fat.not-clean", 0),
    ("fat.copies-differ", 0),
    ("fat.range", 0),
    ("root.cluster", 0),
    ("label.differs", 0),
    ("directory.dot", 1),
    ("directory.dot-dot", 1),
    ("directory.garbage", 1),
    ("directory.hidden", 1),
    ("directory.length", 1),
    ("directory.too-long", 1),
    ("entry.dots", 1),
    ("entry.label", 1),
    ("entry.kind", 1),
    ("name.pieces", 1),
    ("name.short", 1),
    ("name.duplicate", 1),
    ("name.duplicate-long", 1),
    ("chain.start", 2),
    ("chain.free", 2),
    ("chain.bad", 2),
    ("chain.cycle", 2),
    ("chain.shared", 2),
    ("chain.past-size", 2),
    ("file.size-past-chain", 2),
    ("file.no-chain", 2),
    ("chain.lost", 3),
    ("root.full", 3),
    ("fsinfo.signature", 4),
    ("fsinfo.count", 4),
];

/// The phase in which a code is found; `None` for an unknown code.
#[must_use]
pub fn phase_of(code: &str) -> Option<u8> {
    CODES.iter().find(|(known, _)| *known == code).map(|(_, phase)| *phase)
}
