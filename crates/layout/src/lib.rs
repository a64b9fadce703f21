//! Layout by recorded access, for any format.
//!
//! - [`trace`]: touched files and ranges, in order
//! - [`replay`]: a trace on an image: the requests that reach the disk
//! - [`score`]: the cost of such requests
//! - [`timing`]: how long they take on a device
//! - [`by_path`]: touches of a trace on a tree that is not an image yet
//! - [`recording`]: a trace made of the touches observed in a kernel
//! - [`warm`]: the reads of a trace, as byte ranges to read ahead of it
//! - [`habits`]: files opened together again and again, and when it pays to move them
//! - [`planner`]: inode numbers and extents for a whole image at once

pub mod by_path;
pub mod habits;
mod pages;
pub mod planner;
pub mod recording;
pub mod replay;
pub mod score;
pub mod timing;
pub mod trace;
pub mod warm;
