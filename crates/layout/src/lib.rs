//! Layout by recorded access, for any format.
//!
//! - [`planner`]: inode numbers and extents for a whole image at once

pub mod planner;
