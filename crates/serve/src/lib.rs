//! Sessions of FUSE: an image mounted for reading ([`ImageMount`]) or for changes ([`LiveMount`]),
//! and a disk with the times of a modelled device ([`disk`]). The only user of `fuser`.
//!
//! - `session`: mounting, and serving until the unmount ([`serve()`])
//! - `volume`: an image open for changes ([`Volume`])
//! - `options`: the options of a read-write mount, as `-o` takes them
//! - `image`, `live`: answers to the kernel's requests; `kernel`: common conversions
//! - `recorder`: the trace of a mount
//!
//! Warnings are events of `tracing`.
//!
//! # Files
//!
//! `live/` answers FUSE from the engine; `listing.rs` there contains a directory's state at the
//! start of its listing.

pub mod disk;
mod image;
mod kernel;
mod live;
mod options;
mod recorder;
mod session;
mod volume;

pub use fuser::Filesystem;
pub use image::{Faults, ImageMount};
pub use kernel::now;
pub use live::LiveMount;
pub use options::LiveMountOptions;
pub use recorder::Recorder;
pub use session::{MountOptions, serve};
pub use volume::{Locked, Volume};
