//! The storage that a volume is laid out for.

use seekless_units::ByteLen;

/// Kinds of storage, by the price of reading somewhere else than where the last read ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StorageKind {
    /// A disk, which seeks.
    #[default]
    Disk,
    /// A volume whose chunks are fetched when they are first read.
    Lazy,
    /// A solid-state drive.
    Ssd,
}

impl StorageKind {
    /// Bytes that are read from one place in the time of one more seek; zero where seeks have no
    /// price of their own. Disk: 6 ms (a short seek and half a rotation at 7,200 rpm) at 250 MB/s,
    /// as in the model `sata-7200`. SSD: 0.1 ms at 500 MB/s.
    #[must_use]
    pub const fn bytes_per_seek(self) -> u64 {
        match self {
            Self::Disk => 1_500_000,
            Self::Lazy => 0,
            Self::Ssd => 50_000,
        }
    }
}

/// The storage that a volume is laid out for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storage {
    /// Its kind.
    pub kind: StorageKind,
    /// The unit in which a lazily loaded volume is fetched, in bytes: blocks that are read begin at
    /// a multiple of it.
    pub chunk: ByteLen,
}

impl Storage {
    /// Blocks of `block_size` bytes in a chunk, at least one.
    #[must_use]
    pub fn align(&self, block_size: u64) -> u64 {
        (self.chunk.get() / block_size).max(1)
    }
}
