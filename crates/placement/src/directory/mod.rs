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

use crate::{UnknownPolicy, View};
use seekless_units::GroupNo;

/// The directory in which a new one is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The group of its inode.
    pub group: GroupNo,
    /// Whether it is the root of the volume.
    pub is_root: bool,
    /// How far it lies below the root; 0 for the root, and for any other where
    /// the format does not say (`di_dirdepth`).
    pub depth: u32,
    /// The directories in it, the new one not counted.
    pub subdirectories: u32,
}

/// A policy for directories.
pub trait DirectoryPlacement: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// The group in which to look first for the inode of a new directory.
    fn prefer(&mut self, view: &View<'_>, parent: &Parent) -> GroupNo;

    /// To be told of every new inode, before it is looked for, with the group
    /// that is preferred for it, whichever it then ends up in.
    fn allocating(&mut self, preferred: GroupNo, is_directory: bool);
}

/// The names of all policies, the oldest first.
pub const NAMES: [&str; 3] = [OldDirpref::NAME, Orlov::NAME, Depth::NAME];

/// The policy of a name for a volume of so many groups, which draws from `seed`
/// what it leaves to chance.
///
/// # Errors
/// When there is none of that name.
pub fn by_name(
    name: &str,
    ncg: u32,
    seed: u64,
) -> Result<Box<dyn DirectoryPlacement>, UnknownPolicy> {
    match name {
        OldDirpref::NAME => Ok(Box::new(OldDirpref)),
        Orlov::NAME => Ok(Box::new(Orlov::new(ncg, seed))),
        Depth::NAME => Ok(Box::new(Depth::new(ncg))),
        _ => Err(UnknownPolicy::new(name, &NAMES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_name() {
        for name in NAMES {
            assert_eq!(by_name(name, 4, 1).unwrap().name(), name);
        }
        let unknown = by_name("newest", 4, 1).err().unwrap().to_string();
        assert_eq!(unknown, "unknown policy 'newest' (available: old-dirpref, orlov, depth)");
    }
}
