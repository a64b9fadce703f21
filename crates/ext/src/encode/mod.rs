//! On-disk structures as bytes: the common part of building, laying out again, replaying a journal
//! and repairing.
//!
//! - [`device`]: numbers of devices
//! - [`dirblocks`]: directories as blocks, hashed or linear
//! - [`mapping`]: extent trees and indirect blocks
//! - [`places`]: directories whose names lie where an older one has them
//! - [`rewrite`]: numbers and checksums inside blocks and inodes replaced
//! - [`sums`]: checksums of superblocks and bitmaps

pub(crate) mod device;
pub(crate) mod dirblocks;
pub(crate) mod mapping;
pub(crate) mod places;
pub(crate) mod resize;
pub(crate) mod rewrite;
pub(crate) mod sums;
