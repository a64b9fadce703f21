//! Where new inodes go.
//!
//! A policy names a goal and the order in which groups are tried; the format
//! searches its own bitmaps or tables, the goal's group first, and tells the
//! policy what became of it.

mod beside_parent;
mod find_group;

pub use beside_parent::BesideParent;
pub use find_group::FindGroup;

use crate::Groups;
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
}

/// An inode that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    /// The directory in which it gets its first name.
    pub parent: Parent,
    /// That name.
    pub name: &'a [u8],
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
