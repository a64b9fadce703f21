//! Sessions of FUSE: an image mounted for reading ([`ImageMount`]) or for changes ([`LiveMount`]),
//! and a disk with the times of a modelled device ([`disk`]), with a file system of the kernel on
//! it ([`testbed`]). The only user of `fuser`.
//!
//! - `session`: mounting, and serving until the unmount ([`serve()`])
//! - `volume`: an image open for changes ([`Volume`])
//! - `options`: the options of a read-write mount, as `-o` takes them; `settings`: those that can
//!   change while it lasts
//! - `image`, `live`: answers to the kernel's requests; `kernel`: common conversions
//! - `recorder`: the trace of a mount
//!
//! Warnings are events of `tracing`.
//!
//! # Example
//!
//! ```
//! use seekless_serve::LiveMountOptions;
//!
//! let options = LiveMountOptions::parse(&["rw,softdep".into(), "cache=128M".into()])?;
//! assert!(options.writable);
//! let wrong = LiveMountOptions::parse(&["softdep".into()]).unwrap_err();
//! assert!(wrong.to_string().contains("needs -o rw"));
//! # Ok::<(), seekless_images::Error>(())
//! ```
//!
//! # Files
//!
//! `live/` answers FUSE from the engine; `listing.rs` there contains a directory's state at the
//! start of its listing, `trim.rs` serves `fstrim`. `volume.rs` is the image in use, which also makes
//! the corrections of checks; what these change, the kernel forgets (`session.rs`). `testbed/` puts a file system of the kernel on a modelled disk:
//! `disk_server.rs` is the process that serves the disk, `mkfs.rs` makes the file system,
//! `process.rs` runs programs that end with this process, `scratch_dir.rs` has the mount points.

mod caller;
pub mod disk;
mod image;
mod kernel;
mod live;
mod options;
mod recorder;
mod session;
mod settings;
pub mod testbed;
mod volume;

pub use fuser::Filesystem;
pub use image::{Faults, ImageMount};
pub use kernel::now;
pub use live::{LiveMount, Statistics};
pub use options::LiveMountOptions;
pub use recorder::Recorder;
pub use session::{KernelCache, MountOptions, serve};
pub use settings::Setting;
pub use volume::{Locked, RecoveryEnd, Volume, VolumeRecovery};
