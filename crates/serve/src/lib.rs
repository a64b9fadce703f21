//! Sessions of FUSE: an image mounted to be read ([`ImageMount`]) or changed ([`LiveMount`]),
//! and a disk with the times of a modelled device ([`disk`]). The only user of `fuser`.
//!
//! - `session`: mounting, and serving until something unmounts ([`serve()`])
//! - `volume`: an image that is open for changes ([`Volume`])
//! - `options`: the options of a read-write mount, as `-o` takes them
//! - `image`, `live`: answers to the kernel's requests; `kernel`: forms that both share
//! - `recorder`: the trace of a mount
//!
//! Warnings are events of `tracing`.
//!
//! # Files
//!
//! `live/` answers FUSE from the engine; `listing.rs` there is a directory as it was when its
//! listing began.

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
