//! The interfaces of policies for directories and for inodes, and their requests.

use crate::Groups;
use crate::inode::Windows;
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

/// The expected contents of a directory, under the names of `struct fs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expected {
    /// Average length of files, in bytes.
    pub avgfilesize: u32,
    /// Average number of files in a directory.
    pub avgfpdir: u32,
}

/// A policy for directories.
pub trait DirectoryPlacement: Send {
    /// Name of the policy.
    fn name(&self) -> &'static str;

    /// Called before every inode allocation with the current group summaries. No-op by default.
    fn begin(&mut self, _groups: &Groups) {}

    /// The group in which to search first for the inode of a new directory. `new` may be of another
    /// kind if the rule for other files follows that for directories.
    fn prefer(&mut self, groups: &Groups, new: &NewInode<'_>) -> GroupNo;

    /// Whether groups are tried in the order of [`hashalloc`](crate::hashalloc()) if the preferred
    /// one is full, on formats without an order of their own; by default, one after the other.
    fn hashes_groups(&self) -> bool {
        false
    }

    /// Called after each search for an inode with the preferred group, whichever group it was found
    /// in. No-op by default.
    fn allocated(&mut self, _preferred: GroupNo, _is_directory: bool) {}

    /// Called with the group of each new inode. No-op by default.
    fn taken(&mut self, _at: GroupNo, _is_directory: bool) {}

    /// Called when an inode is freed. No-op by default.
    fn given_back(&mut self, _is_directory: bool) {}

    /// Called when blocks are freed at once (negative: allocated). No-op by default.
    fn blocks_changed(&mut self, _by: i64) {}
}
