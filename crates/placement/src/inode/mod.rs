//! Where new inodes go.
//!
//! A policy names a goal and the order in which groups are tried; the format
//! searches its own bitmaps or tables, the goal's group first, and tells the
//! policy what became of it.

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

/// A place for an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InodePlace {
    /// Its group.
    pub group: GroupNo,
    /// Its place in the group, below the number of inodes in a group.
    pub slot: u32,
}

/// The directory in which a name is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// Where its inode is.
    pub at: InodePlace,
    /// Whether it is the root of the volume.
    pub is_root: bool,
    /// How far it lies below the root; 0 for the root, and for any other where
    /// the format does not say (`di_dirdepth` of FFS).
    pub depth: u32,
    /// The directories in it, a new one not counted.
    pub subdirectories: u32,
    /// The goal's group of the last inode that was wanted for a name in it, as far as
    /// the format remembers (`i_last_alloc_group` of ext4, in memory only).
    pub last: Option<GroupNo>,
}

/// An inode that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    /// The directory in which it gets its first name.
    pub parent: Parent,
    /// That name.
    pub name: &'a [u8],
    /// A hash of the name, where the format has one for placement: half-MD4 with the
    /// seed of the volume, on ext, for those for which [`InodePlacement::hashes`].
    pub hash: Option<u32>,
    /// Whether it is for a directory.
    pub is_directory: bool,
}

/// A policy for inodes.
pub trait InodePlacement: Send {
    /// Where to look first. Asked once for each new inode.
    fn goal(&mut self, groups: &Groups, new: &NewInode<'_>) -> InodePlace;

    /// The groups in which to look, one after the other: the goal's, where the
    /// slot is heeded, and then others, where it is not. In front of them may be one
    /// in which only a [window](Windows) is looked at. To be asked after the goal.
    fn order(&self, groups: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>>;

    /// To be told after each search how it ended: which place was taken, or
    /// `None` when none was, be it that all are in use or that the search failed.
    fn taken(&mut self, new: &NewInode<'_>, goal: InodePlace, at: Option<InodePlace>);

    /// To be told of each inode that is given back. By default, it is not heeded.
    fn given_back(&mut self, _at: InodePlace, _is_directory: bool) {}

    /// To be told of blocks that are given back at once, or, below zero, taken. By
    /// default, it is not heeded.
    fn blocks_changed(&mut self, _by: i64) {}

    /// Whether it goes by the hash of the name, for directories or for all else. By
    /// default, for directories.
    fn hashes(&self, is_directory: bool) -> bool {
        is_directory
    }

    /// What says which slot of a group is taken; by default nothing does, and it is the
    /// first free one. The first group of the order is asked as the first try.
    fn windows(&mut self) -> Option<&mut Windows> {
        None
    }
}

/// A policy as it is asked for: a name, and perhaps `=` and a number behind it.
fn split(asked: &str) -> (&str, Option<&str>) {
    asked.split_once('=').map_or((asked, None), |(name, size)| (name, Some(size)))
}

/// The names of FFS's policies for inodes that are no directories.
pub const NAMES: [&str; 1] = [Others::PARENT];

/// FFS's placement with a policy for directories, and one for all else, of which there is
/// but its own ([`BesideParent`]).
///
/// # Errors
/// When there is none of that name.
pub fn by_name(
    directories: Box<dyn directory::DirectoryPlacement>,
    others: Option<&str>,
) -> Result<Box<dyn InodePlacement>, PolicyError> {
    match others {
        None | Some(Others::PARENT) => Ok(Box::new(BesideParent::new(directories))),
        Some(other) => Err(PolicyError::unknown(split(other).0, &NAMES, (EXT, &EXT_NAMES))),
    }
}

/// The names of ext's policies for inodes that are no directories.
pub const EXT_NAMES: [&str; 5] = [
    Others::PARENT,
    Others::FIND_GROUP,
    Others::OLD_FIND_GROUP,
    Windows::NAME,
    Windows::HASHED_NAME,
];

/// What policies must know of an ext volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtVolume {
    /// Groups.
    pub groups: u32,
    /// Groups in a flexible group, 1 without.
    pub groups_per_flex: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
}

/// ext's placement with a policy for directories ([`directory::ext_by_name`]), and one for all
/// else, by name; by default the one that goes with that for directories: `parent`
/// with ext4's, `find-group-other` with all others, which `dir-reserve` adds to. It
/// draws from `seed` what it leaves to chance.
///
/// # Errors
/// When there is none of a name, and for a number of reserved inodes that is not from 2 to
/// those of a group.
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
