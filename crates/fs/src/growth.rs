//! Growth of volumes.

use seekless_units::ByteLen;

/// The growth of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Bytes of the volume before.
    pub before: ByteLen,
    /// Bytes of the volume afterwards.
    pub after: ByteLen,
    /// Groups before.
    pub groups_before: u32,
    /// Groups afterwards.
    pub groups_after: u32,
    /// Whether the summary of the groups moves, since it needs more space than it has.
    pub moves_summary: bool,
    /// Bytes of the requested size that stay unused: less than a unit, or too few for a further
    /// group.
    pub unused: ByteLen,
}
