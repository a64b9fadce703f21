//! Images by path. An image is a file, the disk in a qcow2 image or a block device, or one of
//! several partitions there; it is refused if the kernel has it mounted. New images are written to
//! files, qcow2 images, block devices or standard output, and appear complete or not at all.
//!
//! - `open`: images that are read or changed, and [`Place`], the selected part
//! - [`in_use`]: images that are mounted while they are read
//! - [`growth`]: volumes that become larger
//! - [`check_mounted`], [`tune_mounted`]: corrections, settings and counters of mounted volumes
//! - [`partition`]: the part of a disk
//! - [`quota`]: usage and limits of users, groups and projects
//! - [`snapshot`]: an earlier state that a volume keeps, named `IMAGE@SNAPSHOT`
//! - [`targets`]: destinations of an image; [`output`]: files
//! - [`Stop`]: work that is stopped before it is complete
//! - [`Error`]: errors of opening and writing images, with hints
//!
//! Warnings are events of `tracing`. Nothing is printed, and the environment is not read.
//!
//! ```
//! use seekless_images::{ErrorKind, Place};
//! use seekless_fs::format::OpenOptions;
//! use std::path::Path;
//!
//! let error = seekless_images::open(Path::new("/"), &Place::default(), OpenOptions::default());
//! let error = error.err().expect("a directory is no image");
//! assert_eq!(error.kind(), ErrorKind::Usage);
//! assert_eq!(error.to_string(), "/: is a directory");
//! ```

pub mod check_mounted;
mod error;
pub mod grow_mounted;
pub mod growth;
pub mod in_use;
mod open;
pub mod output;
pub mod partition;
mod place;
mod progress;
mod qcow2;
pub mod quota;
mod simg;
pub mod snapshot;
mod snapshot_mounted;
mod snapshot_path;
mod stop;
pub mod targets;
pub mod tune_mounted;
mod vhd;

pub use error::{Error, ErrorKind, refuse_directory};
pub use open::{
    device, device_in_use, device_locked, locked, open, open_in_use, part_of, partitions_of,
    read_only_root, refuse_others,
};
pub use output::Output;
pub use partition::part;
pub use place::Place;
pub use progress::{Progress, Unwatched};
pub use qcow2::refuse_converted;
pub use seekless_formats::READERS as FORMATS;
pub use stop::Stop;
pub use targets::{OutputFormat, ReflinkMode, Target};
