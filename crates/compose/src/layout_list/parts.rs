//! The parts of a list.

use seekless_units::ByteLen;

/// The parts of a list, unpacked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListParts {
    /// The name of the volume's format.
    pub format: String,
    /// The length of the volume.
    pub volume_len: ByteLen,
    /// Bytes of contents that each digest of a block covers.
    pub unit: u32,
    /// The ranges of the volume that are known.
    pub runs: Vec<u8>,
    /// The bytes of those that are not zeros, in order.
    pub metadata: Vec<u8>,
    /// The digests of the contents of files.
    pub digests: Vec<u8>,
}
