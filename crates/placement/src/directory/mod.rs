//! Where new directories go.
//!
//! A new directory decides where its files will lie, since their inodes follow
//! their directory's and their blocks follow their inodes. Spread far apart,
//! directories leave room for files to grow; kept together, a walk of the tree
//! need not travel.

mod contiguous;
mod depth;
mod old_dirpref;
mod orlov;

pub use depth::Depth;
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

    /// To be told of every new inode that was looked for, with the group that was
    /// preferred for it, whichever it ended up in.
    fn allocated(&mut self, preferred: GroupNo, is_directory: bool);
}

/// The names of all policies, the oldest first.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_name() {
        for name in NAMES {
            assert_eq!(by_name(name, 4, Expected::default(), 1).unwrap().name(), name);
        }
        let unknown = by_name("newest", 4, Expected::default(), 1).err().unwrap().to_string();
        assert_eq!(unknown, "unknown policy 'newest' (available: old-dirpref, orlov, depth)");
    }
}
