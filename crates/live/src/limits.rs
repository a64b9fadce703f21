//! Limits of a volume.

use seekless_units::Ino;

/// Constant properties of an open volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The root directory.
    pub root: Ino,
    /// Inode numbers are below this.
    pub inodes: u32,
    /// Bytes in a block of a file.
    pub block: u32,
    /// Bytes in the unit of block numbers; divides `block`.
    pub unit: u32,
    /// Longest name, in bytes.
    pub name_max: usize,
    /// Most names of a file.
    pub link_max: u16,
    /// Longest target of a symlink, in bytes.
    pub target_max: usize,
    /// Most bytes of a directory.
    pub dir_max: u64,
    /// Bytes that no directory entry crosses a multiple of, and that a directory's
    /// length is a multiple of.
    pub dir_unit: usize,
    /// Directories are given other names even where a check could not follow by
    /// itself, had a crash come in between.
    pub moves_dirs: bool,
}

impl Limits {
    /// Units of block numbers that bytes take.
    #[must_use]
    pub fn units(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(self.unit).max(1))).unwrap_or(u32::MAX)
    }
}
