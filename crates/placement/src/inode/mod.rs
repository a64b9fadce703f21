//! Where new inodes go.
//!
//! A policy names a goal and the order in which groups are tried; the format
//! searches its own bitmaps or tables, the goal's group first, and tells the
//! policy what became of it.

mod beside_parent;
mod find_group;
mod linux_orlov;

pub use beside_parent::BesideParent;
pub use find_group::FindGroup;
pub use linux_orlov::LinuxOrlov;

use crate::directory::{Ext2Orlov, FindGroupDir, Linear, ext2_by_name};
use crate::{Groups, UnknownPolicy};
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
    /// seed of the volume, for directories of ext.
    pub hash: Option<u32>,
    /// Whether it is for a directory.
    pub is_directory: bool,
}

/// A policy for inodes.
pub trait InodePlacement: Send {
    /// Where to look first. Asked once for each new inode.
    fn goal(&mut self, groups: &Groups, new: &NewInode<'_>) -> InodePlace;

    /// The groups in which to look, one after the other: the goal's, where the
    /// slot is heeded, and then others, where it is not.
    fn order(&self, groups: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>>;

    /// To be told after each search how it ended: which place was taken, or
    /// `None` when none was, be it that all are in use or that the search failed.
    fn taken(&mut self, new: &NewInode<'_>, goal: InodePlace, at: Option<InodePlace>);

    /// To be told of each inode that is given back. By default, it is not heeded.
    fn given_back(&mut self, _at: InodePlace, _is_directory: bool) {}
}

/// The names of ext's policies, ext2's own first.
pub const EXT_NAMES: [&str; 4] =
    [Ext2Orlov::NAME, FindGroupDir::NAME, Linear::NAME, LinuxOrlov::NAME];

/// The policy of a name for an ext volume of so many groups, `groups_per_flex` of them in a
/// flexible group (1 without); it draws from `seed` what it leaves to chance. All
/// but ext4's own are policies for directories, with [`FindGroup`] for all else.
///
/// # Errors
/// When there is none of that name.
pub fn ext_by_name(
    name: &str,
    groups: u32,
    groups_per_flex: u32,
    seed: u64,
) -> Result<Box<dyn InodePlacement>, UnknownPolicy> {
    if name == LinuxOrlov::NAME {
        return Ok(Box::new(LinuxOrlov::new(groups_per_flex, seed)));
    }
    let directories = ext2_by_name(name, groups, seed);
    let directories = directories.map_err(|_| UnknownPolicy::new(name, &EXT_NAMES))?;
    Ok(Box::new(FindGroup::new(directories)))
}
