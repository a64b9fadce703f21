//! Layout by recorded access, for any format.
//!
//! - [`trace`]: what was touched, in order
//! - [`replay`]: a trace on an image: the requests that reach the disk
//! - [`score`]: what such requests cost
//! - [`timing`]: how long they take on a device
//! - [`by_path`]: what a trace touches of a tree that is not an image yet
//! - [`recording`]: a trace made of what a kernel was seen to touch
//! - [`warm`]: what a trace reads, as byte ranges to read ahead of it
//! - [`habits`]: what is opened together again and again, and when it pays to move it
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
