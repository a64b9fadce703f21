//! The groups of new directories.
//!
//! A new directory determines the location of its files, since their inodes follow their
//! directory's and their blocks follow their inodes. Directories spread far apart leave room for
//! files to grow; directories kept together make walks of the tree short.

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

use crate::names::{EXT, UFS};
pub use crate::policy::{DirectoryPlacement, Expected};

use crate::PolicyError;

/// Name of [`Orlov`] beside ext's policies.
const FFS_ORLOV: &str = "ffs-orlov";

/// The names of FFS's policies, its own first, the oldest first.
pub const NAMES: [&str; 6] =
    [OldDirpref::NAME, Orlov::NAME, Depth::NAME, Ext2Orlov::NAME, FindGroupDir::NAME, Linear::NAME];

/// Creates a policy by name for a volume with `ncg` groups and the expected files; random choices
/// use `seed`.
///
/// # Errors
/// If no policy has that name.
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

/// The defaults of FreeBSD's ext2fs (`AVFILESIZ`, `AFPDIR` of its `fs.h`): ext has no such fields.
const EXPECTED_ON_EXT: Expected = Expected { avgfilesize: 16_384, avgfpdir: 64 };

/// Creates a policy by name for an ext volume with `groups` groups, `groups_per_flex` of them in a
/// flexible group (1 without); random choices use `seed`.
///
/// # Errors
/// If no policy has that name.
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
