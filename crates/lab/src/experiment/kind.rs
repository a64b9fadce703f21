//! The formats that experiments know.

use serde::Deserialize;

/// A format that experiments know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FormatKind {
    /// FFS with 32-bit block numbers.
    Ufs1,
    /// FFS with 64-bit block numbers.
    Ufs2,
    /// ext with block maps and no journal.
    Ext2,
    /// The same with a journal.
    Ext3,
    /// ext with extents, checksums and flexible groups.
    Ext4,
    /// FAT with entries of 12 bits.
    Fat12,
    /// FAT with entries of 16 bits.
    Fat16,
    /// FAT with entries of 32 bits.
    Fat32,
}

impl FormatKind {
    /// Whether it is one of ext.
    #[must_use]
    pub const fn is_ext(self) -> bool {
        matches!(self, Self::Ext2 | Self::Ext3 | Self::Ext4)
    }

    /// Whether it is one of FAT.
    #[must_use]
    pub const fn is_fat(self) -> bool {
        matches!(self, Self::Fat12 | Self::Fat16 | Self::Fat32)
    }

    /// Its name in experiments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ufs1 => "ufs1",
            Self::Ufs2 => "ufs2",
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Fat12 => "fat12",
            Self::Fat16 => "fat16",
            Self::Fat32 => "fat32",
        }
    }

    /// Whether it has a journal, unless its features say otherwise.
    #[must_use]
    pub const fn has_journal(self) -> bool {
        matches!(self, Self::Ext3 | Self::Ext4)
    }
}
