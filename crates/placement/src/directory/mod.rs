//! Where new directories go.
//!
//! A new directory decides where its files will lie, since their inodes follow
//! their directory's and their blocks follow their inodes. Spread far apart,
//! directories leave room for files to grow; kept together, a walk of the tree
//! need not travel.

mod contiguous;
mod depth;
mod ext2;
mod linux_orlov;
mod old_dirpref;
mod orlov;

pub use depth::Depth;
pub use ext2::{Ext2Orlov, FindGroupDir, Linear};
pub use linux_orlov::LinuxOrlov;
pub use old_dirpref::OldDirpref;
pub use orlov::Orlov;

use crate::inode::NewInode;
use crate::names::{EXT, UFS};
use crate::{Groups, PolicyError};
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

    /// To be told of what is free before each inode is placed, of whatever kind. By
    /// default, it is not heeded.
    fn begin(&mut self, _groups: &Groups) {}

    /// The group in which to look first for the inode of a new directory. `new` may be
    /// of another kind where all else shall go where a directory would.
    fn prefer(&mut self, groups: &Groups, new: &NewInode<'_>) -> GroupNo;

    /// Whether groups are tried in the order of [`hashalloc`](crate::hashalloc()) when
    /// the preferred one has nothing, on formats that have no order of their own; by
    /// default, one after the other.
    fn hashes_groups(&self) -> bool {
        false
    }

    /// To be told of each new inode that was looked for, with the group that was
    /// preferred for it, whichever it ended up in. By default, it is not heeded.
    fn allocated(&mut self, _preferred: GroupNo, _is_directory: bool) {}

    /// To be told of each new inode that was found, with the group it is in. By
    /// default, it is not heeded.
    fn taken(&mut self, _at: GroupNo, _is_directory: bool) {}

    /// To be told of each inode that is given back. By default, it is not heeded.
    fn given_back(&mut self, _is_directory: bool) {}

    /// To be told of blocks that are given back at once, or, below zero, taken. By
    /// default, it is not heeded.
    fn blocks_changed(&mut self, _by: i64) {}
}

/// What [`Orlov`] is called beside ext's policies.
const FFS_ORLOV: &str = "ffs-orlov";

/// The names of FFS's policies, its own first, and of them the oldest first.
pub const NAMES: [&str; 6] =
    [OldDirpref::NAME, Orlov::NAME, Depth::NAME, Ext2Orlov::NAME, FindGroupDir::NAME, Linear::NAME];

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
) -> Result<Box<dyn DirectoryPlacement>, PolicyError> {
    match name {
        OldDirpref::NAME => Ok(Box::new(OldDirpref)),
        Orlov::NAME | FFS_ORLOV => Ok(Box::new(Orlov::new(ncg, expected, seed))),
        Depth::NAME => Ok(Box::new(Depth::new(ncg, expected))),
        Ext2Orlov::NAME => Ok(Box::new(Ext2Orlov::new(ncg, seed))),
        FindGroupDir::NAME => Ok(Box::new(FindGroupDir)),
        Linear::NAME => Ok(Box::new(Linear)),
        _ => Err(PolicyError::unknown(name, &NAMES, (EXT, &EXT_NAMES))),
    }
}

/// The names of ext's policies, its own first.
pub const EXT_NAMES: [&str; 6] = [
    Ext2Orlov::NAME,
    FindGroupDir::NAME,
    Linear::NAME,
    LinuxOrlov::NAME,
    FFS_ORLOV,
    OldDirpref::NAME,
];

/// What FreeBSD's ext2fs expects (`AVFILESIZ`, `AFPDIR` of its `fs.h`): ext has no such
/// fields.
const EXPECTED_ON_EXT: Expected = Expected { avgfilesize: 16_384, avgfpdir: 64 };

/// The policy of a name for an ext volume of so many groups, `groups_per_flex` of them in
/// a flexible group (1 without); it draws from `seed` what it leaves to chance.
///
/// # Errors
/// When there is none of that name.
pub fn ext_by_name(
    name: &str,
    groups: u32,
    groups_per_flex: u32,
    seed: u64,
) -> Result<Box<dyn DirectoryPlacement>, PolicyError> {
    match name {
        Ext2Orlov::NAME => Ok(Box::new(Ext2Orlov::new(groups, seed))),
        FindGroupDir::NAME => Ok(Box::new(FindGroupDir)),
        Linear::NAME => Ok(Box::new(Linear)),
        LinuxOrlov::NAME => Ok(Box::new(LinuxOrlov::new(groups_per_flex, seed))),
        FFS_ORLOV => Ok(Box::new(Orlov::new(groups, EXPECTED_ON_EXT, seed))),
        OldDirpref::NAME => Ok(Box::new(OldDirpref)),
        _ => Err(PolicyError::unknown(name, &EXT_NAMES, (UFS, &NAMES))),
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
        for name in EXT_NAMES {
            let own = if name == FFS_ORLOV { Orlov::NAME } else { name };
            assert_eq!(ext_by_name(name, 4, 1, 1).unwrap().name(), own);
        }
        let said = |name| by_name(name, 4, Expected::default(), 1).err().unwrap().to_string();
        let known = "old-dirpref, orlov, depth, ext2-orlov, find-group-dir, linear";
        assert_eq!(said("newest"), format!("unknown policy 'newest' (available: {known})"));
        let here = "policy 'linux-orlov' is for ext2, ext3 and ext4 only (available: ";
        assert_eq!(said("linux-orlov"), format!("{here}{known})"));
        let said = ext_by_name("depth", 4, 1, 1).err().unwrap().to_string();
        assert!(
            said.starts_with("policy 'depth' is for UFS only (available: ext2-orlov"),
            "{said}"
        );
    }
}
