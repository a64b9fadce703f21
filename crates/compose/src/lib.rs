//! Builds and rearranges images: opens sources and traces by path, plans the layout by the traces,
//! and writes an image of any format.
//!
//! - [`sources`]: directories, archives, container images and images, one over another
//! - [`registries`]: container images of registries, as sources
//! - [`amendments`]: changes to a whole tree, by the files that describe them
//! - [`traces`]: traces by path
//! - [`build`]: an image in each of the formats; [`mod@write`]: where it is written;
//!   [`definitions`]: a disk of several; [`per_layer`]: an image for each layer of a container image
//! - [`formats`]: the rows of the formats, each with [`options`] of its new volumes, with volumes
//!   that are [`older`], and with images that can be rearranged
//! - [`base`]: older images, in whose places files stay; [`freed`]: the blocks of those that are
//!   gone; [`layout_list`]: the list that can take the place of an image
//! - [`rearrange`]: an image in another layout; [`held_out`]: the cost of that layout for a run that
//!   was not recorded
//! - [`check`]: whether an image is in order; [`fsck`]: of ext, only if it is not marked clean
//!
//! Warnings are events of `tracing`. Nothing is printed, and the environment is not read.
//!
//! ```
//! use seekless_compose::sources::{self, Purpose, SourceOptions};
//! use std::path::Path;
//!
//! let purpose = Purpose::Build { latest: None };
//! let error = sources::open(Path::new("/nowhere"), &SourceOptions::default(), purpose);
//! assert!(error.is_err());
//! ```

pub mod amendments;
pub mod base;
pub mod build;
pub mod check;
pub mod definitions;
mod flags;
pub mod formats;
pub mod freed;
pub mod fsck;
pub mod held_out;
mod journal_device;
mod kept;
mod layers;
pub mod layout_list;
mod names;
pub mod older;
mod opened;
pub mod options;
pub mod per_layer;
#[cfg(test)]
#[path = "../../fs/tests/shared/property.rs"]
mod property;
pub mod rearrange;
pub mod registries;
pub mod sharing;
pub mod sources;
mod touched;
pub mod traces;
pub mod write;

use seekless_fs::FsError;
use seekless_images::Error;

/// The error of options that contradict each other or that a source cannot have.
#[must_use]
pub fn wrong(error: FsError) -> Error {
    match error {
        FsError::Invalid(why) => Error::usage(why),
        other => Error::from(other),
    }
}
