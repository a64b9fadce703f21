//! Where the blocks of a file are.

use seekless_live::indirect::Trees;

/// The map of a file.
#[derive(Clone, Debug, Default)]
pub struct Map {
    pub(super) trees: Trees,
    /// UFS2: bytes of extended attributes, and their blocks.
    pub(super) ext_size: u32,
    pub(super) ext: [u64; 2],
}

/// The data that the code of the format works on.
pub(super) type Core = seekless_live::Core<Map>;

/// A file in memory.
pub(super) type Node = seekless_live::Node<Map>;
