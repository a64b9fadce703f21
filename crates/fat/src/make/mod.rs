//! New file systems.
//!
//! Everything here computes with our own choices, never with bytes of an image; the
//! bounds are ours, so plain arithmetic is allowed.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values are of our own making, not an image's"
)]

pub(crate) mod encode;
pub(crate) mod geometry;
pub(crate) mod label;
pub(crate) mod options;

pub use options::{FatWidth, MakeOptions};

use crate::boot::Width;
use crate::ondisk::LEAST_FAT32;
use geometry::Geometry;
use seekless_device::BlockDevice;
use seekless_fs::FsError;

/// Makes an empty file system on a device that reads as zeros.
///
/// # Errors
/// [`FsError::Invalid`] for options out of range or that exclude each other; [`FsError::NoSpace`]
/// when the size does not suit them; [`FsError::Device`].
pub fn make(device: &dyn BlockDevice, options: &MakeOptions) -> Result<MadeVolume, FsError> {
    let geometry = Geometry::new(options)?;
    let label = label::encode(&options.label)?;
    encode::Encoder { geometry: &geometry, options, label, device }.empty()?;
    Ok(MadeVolume { clusters: geometry.clusters, format: geometry.width.name() })
}

/// The new volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadeVolume {
    /// Clusters of the volume.
    pub clusters: u32,
    /// `fat12`, `fat16` or `fat32`.
    pub format: &'static str,
}

impl MadeVolume {
    /// Whether systems that go by the number of clusters alone take the volume for one of
    /// FAT12 or FAT16: a FAT32 volume with fewer than 65,525 clusters.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.format == Width::Fat32.name() && self.clusters < LEAST_FAT32
    }
}
