//! Placement policies: summaries of groups in, a goal out.
//!
//! A policy says where the search for a free inode or block shall begin; the
//! format searches its own bitmaps from there. Policies see no bytes and no
//! device: what they decide from are [`Groups`], what they answer is a group or
//! a block. Where one needs chance it draws from a seed that it was given, so
//! equal calls give equal answers.
//!
//! - [`inode`]: where new inodes go, and in which order groups are tried;
//! - [`directory`]: in which group FFS's policies put new directories;
//! - [`block`]: where a file's next block goes;
//! - [`cluster`]: where the search for clusters of a FAT volume begins;
//! - [`first_with`]: groups tried in an order, such as [`hashalloc`](hashalloc());
//! - [`realloccg`]: whether a growing tail asks for its size or for a block;
//! - [`reallocblks`]: whether written blocks are gathered into a cluster.
//!
//! The rules are those of FFS: McKusick, Joy, Leffler and Fabry, *A Fast File
//! System for UNIX* (1984), and its descendants up to today's FreeBSD
//! (`sys/ufs/ffs/ffs_alloc.c`).
//!
//! # Files
//!
//! `groups.rs` has what every format with groups tells: their number and size (`Shape`), where the
//! data of each begin and what each has free (`Groups`). An engine keeps one `Groups` and updates
//! it with every change; the totals follow. `inode/` has `InodePlacement`: given the parent
//! directory, the name and whether a directory is made, a policy returns a goal (group and slot)
//! and the order of the groups; it is told how each search ended and which inodes are given back.
//! `inode/beside_parent.rs` is the rule of FFS: a file goes beside its parent, a directory into
//! the group that a policy of `directory/` prefers, and groups are tried in the order of
//! `hashalloc.rs`. `inode/by_kind.rs` is ext's: a policy of `directory/` for directories, a rule
//! of `inode/others.rs` for all else, and perhaps `inode/windows.rs`, which reserves inodes for
//! the children of directories and so says which slot of a group is taken.
//! `directory/linux_orlov.rs` is told a hash of the name and the group of the last goal in the
//! parent; `flexible.rs` are the units it looks at. `block/` has `BlockPlacement<H>`: its
//! `Request` contains what every policy may ask (the inode's group, the logical block, the nearest
//! block in front of it), and hints `H` which only the policies of one format read; `block/ext.rs`
//! has those of ext and its names, `block/chunks.rs` the blocks that ext4 keeps in memory for
//! files; `block/ffs.rs` has those of FFS with its zones and names. `cluster.rs` says where the
//! search for clusters of a FAT volume begins. `search.rs` tries groups in an order; the bitmaps
//! are searched by the format. Policies get the tuning of a volume when they are created, not with
//! each request, so that the traits name no format.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions, clippy::arithmetic_side_effects)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
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
pub mod reallocblks;
pub mod realloccg;
mod search;

pub use groups::{GroupSummary, Groups, Shape, Totals};
pub use hashalloc::hashalloc;
pub use names::PolicyError;
pub use search::first_with;
