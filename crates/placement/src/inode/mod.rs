//! The locations of new inodes.
//!
//! A policy returns a goal and the order in which groups are tried; the format searches its own
//! bitmaps or tables, the goal's group first, and reports the result to the policy.

mod beside_parent;
mod by_kind;
mod others;
mod windows;

pub use crate::policy::{InodePlace, InodePlacement, NewInode, Parent};
pub use beside_parent::BesideParent;
pub use windows::{LinkedAreas, Slots, Windows};

use crate::PolicyError;
use crate::directory::{self, LinuxOrlov};
use crate::flexible::Units;
use crate::names::{EXT, UFS};
use by_kind::ByKind;
use others::Others;

/// Splits a policy's name from an optional `=` and number.
fn split(asked: &str) -> (&str, Option<&str>) {
    asked.split_once('=').map_or((asked, None), |(name, size)| (name, Some(size)))
}

/// The names of FFS's policies for inodes of other files than directories.
pub const NAMES: [&str; 1] = [Others::PARENT];

/// FFS's placement with a directory policy, and one for all other files, of which there is only
/// FFS's own ([`BesideParent`]).
///
/// # Errors
/// If no policy has that name.
pub fn by_name(
    directories: Box<dyn directory::DirectoryPlacement>,
    others: Option<&str>,
) -> Result<Box<dyn InodePlacement>, PolicyError> {
    match others {
        None | Some(Others::PARENT) => Ok(Box::new(BesideParent::new(directories))),
        Some(other) => Err(PolicyError::unknown(split(other).0, &NAMES, (EXT, &EXT_NAMES))),
    }
}

/// The names of ext's policies for inodes of other files than directories.
pub const EXT_NAMES: [&str; 5] = [
    Others::PARENT,
    Others::FIND_GROUP,
    Others::OLD_FIND_GROUP,
    Windows::NAME,
    Windows::HASHED_NAME,
];

/// The parameters of an ext volume for inode policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtVolume {
    /// Groups.
    pub groups: u32,
    /// Groups in a flexible group, 1 without.
    pub groups_per_flex: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
}

/// ext's placement by names, with a directory policy ([`directory::ext_by_name`]) and one for all
/// other files. The default of the latter depends on the former: `parent` with ext4's,
/// `find-group-other` with all others, to which `dir-reserve` adds. Random choices use `seed`.
///
/// # Errors
/// If no policy has a name, and for a number of reserved inodes outside of 2 to the inodes per
/// group.
pub fn ext_by_name(
    directories: &str,
    others: Option<&str>,
    volume: &ExtVolume,
    seed: u64,
) -> Result<Box<dyn InodePlacement>, PolicyError> {
    let ExtVolume { groups, groups_per_flex, inodes_per_group } = *volume;
    let parent = Others::Parent(Units::new(groups_per_flex));
    let usual = if directories == LinuxOrlov::NAME { parent } else { Others::FindGroup };
    let directories = directory::ext_by_name(directories, groups, groups_per_flex, seed)?;
    let (others, windows) = match others.map(split) {
        None => (usual, None),
        Some((Others::PARENT, None)) => (parent, None),
        Some((Others::FIND_GROUP, None)) => (Others::FindGroup, None),
        Some((Others::OLD_FIND_GROUP, None)) => (Others::OldFindGroup, None),
        Some((name @ (Windows::NAME | Windows::HASHED_NAME), size)) => {
            let least = Windows::DEFAULT.min(inodes_per_group);
            let wanted = size.map_or(Some(least), |size| size.parse().ok());
            let by_hash = name == Windows::HASHED_NAME;
            let windows = wanted.and_then(|wanted| Windows::new(wanted, inodes_per_group, by_hash));
            let windows = windows.ok_or_else(|| PolicyError::Size {
                name: size.map_or(name.into(), |size| format!("{name}={size}")),
                most: inodes_per_group,
            })?;
            (usual, Some(windows))
        }
        Some((name, None)) => {
            return Err(PolicyError::unknown(name, &EXT_NAMES, (UFS, &NAMES)));
        }
        Some((name, Some(size))) => {
            let name = format!("{name}={size}");
            return Err(PolicyError::unknown(&name, &EXT_NAMES, (UFS, &NAMES)));
        }
    };
    Ok(Box::new(ByKind::new(directories, others, windows)))
}
