//! Layout by recorded access, for any format.
//!
//! - [`trace`]: what was touched, in order
//! - [`replay`]: a trace on an image: the requests that reach the disk
//! - [`score`]: what such requests cost
//! - [`planner`]: inode numbers and extents for a whole image at once

pub mod planner;
pub mod replay;
pub mod score;
pub mod trace;
