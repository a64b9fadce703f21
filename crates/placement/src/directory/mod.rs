//! Where new directories go.
//!
//! A new directory decides where its files will lie, since their inodes follow
//! their directory's and their blocks follow their inodes. Spread far apart,
//! directories leave room for files to grow; kept together, a walk of the tree
//! need not travel.

mod contiguous;
mod depth;
mod ext2;
mod old_dirpref;
mod orlov;

pub use depth::Depth;
pub use ext2::{Ext2Orlov, FindGroupDir, Linear};
pub use old_dirpref::OldDirpref;
pub use orlov::Orlov;

use crate::inode::Parent;
use crate::{Groups, UnknownPolicy};
use seekless_units::GroupNo;

/// What a directory is expected to hold, under the names of `struct fs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expected {
    /// Average length of files, in bytes.
    pub avgfilesize: u32,
    /// Average number of files in a directory.
    pub avgfpdir: u32,
}

/// A policy for directories.
pub trait DirectoryPlacement: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// The group in which to look first for the inode of a new directory.
    fn prefer(&mut self, groups: &Groups, parent: &Parent) -> GroupNo;

    /// To be told of new inodes: by FFS of every one that was looked for, with the
    /// group that was preferred for it, whichever it ended up in; by ext2 of every
    /// one that was found, with the group it is in.
    fn allocated(&mut self, preferred: GroupNo, is_directory: bool);
}

/// The names of FFS's policies, the oldest first.
pub const NAMES: [&str; 3] = [OldDirpref::NAME, Orlov::NAME, Depth::NAME];

/// The policy of a name for a volume of so many groups with such files, which draws from `seed`
/// what it leaves to chance.
///
/// # Errors
/// When there is none of that name.
pub fn by_name(
    name: &str,
    ncg: u32,
    expected: Expected,
    seed: u64,
) -> Result<Box<dyn DirectoryPlacement>, UnknownPolicy> {
    match name {
        OldDirpref::NAME => Ok(Box::new(OldDirpref)),
        Orlov::NAME => Ok(Box::new(Orlov::new(ncg, expected, seed))),
        Depth::NAME => Ok(Box::new(Depth::new(ncg, expected))),
        _ => Err(UnknownPolicy::new(name, &NAMES)),
    }
}

/// The names of ext2's policies, its own first.
pub const EXT2_NAMES: [&str; 3] = [Ext2Orlov::NAME, FindGroupDir::NAME, Linear::NAME];

/// The policy of a name for an ext2 volume of so many groups, which draws from `seed` what it
/// leaves to chance.
///
/// # Errors
/// When there is none of that name.
pub fn ext2_by_name(
    name: &str,
    groups: u32,
    seed: u64,
) -> Result<Box<dyn DirectoryPlacement>, UnknownPolicy> {
    match name {
        Ext2Orlov::NAME => Ok(Box::new(Ext2Orlov::new(groups, seed))),
        FindGroupDir::NAME => Ok(Box::new(FindGroupDir)),
        Linear::NAME => Ok(Box::new(Linear)),
        _ => Err(UnknownPolicy::new(name, &EXT2_NAMES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_name() {
        for name in NAMES {
            assert_eq!(by_name(name, 4, Expected::default(), 1).unwrap().name(), name);
        }
        for name in EXT2_NAMES {
            assert_eq!(ext2_by_name(name, 4, 1).unwrap().name(), name);
        }
        let unknown = by_name("newest", 4, Expected::default(), 1).err().unwrap().to_string();
        assert_eq!(unknown, "unknown policy 'newest' (available: old-dirpref, orlov, depth)");
    }
}
