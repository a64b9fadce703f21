//! Placement policies: summaries of groups in, a goal out.
//!
//! A policy determines the start of the search for a free inode or block; the format searches its
//! own bitmaps from there. Policies access no bytes and no device: they decide by [`Groups`], and
//! answer with a group or a block. Random choices use a given seed, so equal calls give equal
//! answers.
//!
//! - [`inode`]: locations of new inodes, and the order in which groups are tried;
//! - [`directory`]: groups of new directories in FFS's policies;
//! - [`block`]: location of a file's next block;
//! - [`cluster`]: start of the search for clusters of a FAT volume;
//! - [`first_with`]: tries groups in an order, such as [`hashalloc`](hashalloc());
//! - [`realloccg`]: whether a growing tail requests its size or a block;
//! - [`reallocblks`]: whether written blocks are gathered into a cluster.
//!
//! The rules are those of FFS: McKusick, Joy, Leffler and Fabry, *A Fast File
//! System for UNIX* (1984), and its descendants up to today's FreeBSD
//! (`sys/ufs/ffs/ffs_alloc.c`).
//!
//! # Example
//!
//! ```
//! use seekless_placement::hashalloc;
//! use seekless_units::GroupNo;
//!
//! // The groups that FFS tries from the fifth of eight on.
//! let tried: Vec<u32> = hashalloc(8, GroupNo::new(4)).map(GroupNo::get).collect();
//! assert_eq!(tried[..3], [4, 5, 7]);
//! ```
//!
//! # Files
//!
//! `groups.rs` has the parameters of every format with groups: their number and size (`Shape`), the
//! start of each group's data and its free space (`Groups`). An engine owns one `Groups` and
//! updates it with every change; the totals follow. `inode/` has `InodePlacement`: given the parent
//! directory, the name and whether a directory is made, a policy returns a goal (group and slot)
//! and the order of the groups; the format reports the result of each search and freed inodes.
//! `inode/beside_parent.rs` is the rule of FFS: a file goes beside its parent, a directory into the
//! group that a policy of `directory/` prefers, and groups are tried in the order of
//! `hashalloc.rs`. `inode/by_kind.rs` is ext's: a policy of `directory/` for directories, a rule of
//! `inode/others.rs` for all other files, and optionally `inode/windows.rs`, which reserves inodes
//! for the children of directories and so selects the slot in a group. `directory/linux_orlov.rs`
//! uses a hash of the name and the group of the last goal in the parent; `flexible.rs` has its
//! units. `block/` has `BlockPlacement<H>`: its `Request` contains the parameters of every policy
//! (the inode's group, the logical block, the nearest preceding block), and hints `H` which only
//! the policies of one format read; `block/ext.rs` has those of ext and its names,
//! `block/chunks.rs` ext4's preallocation of blocks in memory; `block/ffs.rs` has those of FFS with
//! its zones and names. `cluster.rs` determines the start of the search for clusters of a FAT
//! volume. `search.rs` tries groups in an order; the format searches the bitmaps. Policies get the
//! tuning of a volume when they are created, not with each request, so that the traits name no
//! format.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions
    )
)]

pub mod block;
mod chance;
pub mod cluster;
pub mod directory;
mod flexible;
mod groups;
mod hashalloc;
pub mod inode;
mod names;
mod policy;
pub mod reallocblks;
pub mod realloccg;
mod search;

pub use groups::{GroupSummary, Groups, Shape, Totals};
pub use hashalloc::hashalloc;
pub use names::PolicyError;
pub use search::first_with;
