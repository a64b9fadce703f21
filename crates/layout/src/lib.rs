//! What is read from an image, and where that should lie.
//!
//! - [`trace`]: what was touched, in order

pub mod trace;
