//! The locations of new inodes.
//!
//! A policy returns a goal and the order in which groups are tried; the format searches its own
//! bitmaps or tables, the goal's group first, and reports the result to the policy.

mod beside_parent;
mod by_kind;
mod others;
mod windows;

pub use beside_parent::BesideParent;
pub use windows::{Slots, Windows};

use crate::directory::{self, LinuxOrlov};
use crate::flexible::Units;
use crate::names::{EXT, UFS};
use crate::{Groups, PolicyError};
use by_kind::ByKind;
use others::Others;
use seekless_units::GroupNo;

/// The location of an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InodePlace {
    /// Its group.
    pub group: GroupNo,
    /// Its index in the group, below the number of inodes in a group.
    pub slot: u32,
}

/// The directory of a new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// Location of its inode.
    pub at: InodePlace,
    /// Whether it is the root of the volume.
    pub is_root: bool,
    /// Its depth below the root; 0 for the root, and for all directories if the format does not
    /// record it (`di_dirdepth` of FFS).
    pub depth: u32,
    /// Number of directories in it, without the new one.
    pub subdirectories: u32,
    /// The goal's group of the last inode placed for a name in it, as far as the format remembers
    /// it (`i_last_alloc_group` of ext4, in memory only).
    pub last: Option<GroupNo>,
}

/// A request for an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    /// The directory of its first name.
    pub parent: Parent,
    /// That name.
    pub name: &'a [u8],
    /// A hash of the name, if the format has one for placement: on ext, half-MD4 with the seed of
    /// the volume, if [`InodePlacement::hashes`] is true.
    pub hash: Option<u32>,
    /// Whether it is for a directory.
    pub is_directory: bool,
}

/// A policy for inodes.
pub trait InodePlacement: Send {
    /// Start of the search. Called once per new inode.
    fn goal(&mut self, groups: &Groups, new: &NewInode<'_>) -> InodePlace;

    /// The groups to search, in order: the goal's, where the slot is respected, and then others,
    /// where it is not. A group of which only a [window](Windows) is searched may precede them. To
    /// be called after `goal`.
    fn order(&self, groups: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>>;

    /// Called after each search with its result: the inode taken, or `None` if all are in use or
    /// the search failed.
    fn taken(&mut self, new: &NewInode<'_>, goal: InodePlace, at: Option<InodePlace>);

    /// Called when an inode is freed. No-op by default.
    fn given_back(&mut self, _at: InodePlace, _is_directory: bool) {}

    /// Called when blocks are freed at once (negative: allocated). No-op by default.
    fn blocks_changed(&mut self, _by: i64) {}

    /// Whether the policy uses the hash of the name, for directories or for all other files. By
    /// default, for directories.
    fn hashes(&self, is_directory: bool) -> bool {
        is_directory
    }

    /// The selection of slots in a group, if the policy has one; by default the first free one is
    /// taken. The first group of the order is the first try.
    fn windows(&mut self) -> Option<&mut Windows> {
        None
    }
}

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
