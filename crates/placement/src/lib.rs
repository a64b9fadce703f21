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
