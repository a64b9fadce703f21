//! A list as a build reads it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

use super::digests::{ContentDigests, ListedFile};
use super::error::ListError;
use super::ondisk::MAGIC;
use super::parts::ListParts;
use super::runs;
use seekless_device::PartialDevice;
use std::sync::Arc;

/// A layout list: the metadata of a volume, and digests of the contents of its files.
pub struct LayoutList {
    format: String,
    unit: u32,
    device: Arc<PartialDevice>,
    digests: Arc<[u8]>,
}

impl LayoutList {
    /// Whether a file that begins with these bytes is a list.
    #[must_use]
    pub fn is_list(first: &[u8]) -> bool {
        first.starts_with(&MAGIC)
    }

    /// Reads a list.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn parse(list: &[u8]) -> Result<Self, ListError> {
        let ListParts { format, volume_len, unit, runs, metadata, digests } =
            ListParts::decode(list)?;
        let runs = runs::parse(&runs, volume_len, &metadata)?;
        let device = PartialDevice::new("layout list", volume_len, runs, metadata);
        Ok(Self { format, unit, device: Arc::new(device), digests: digests.into() })
    }

    /// The name of the volume's format.
    #[must_use]
    pub fn format(&self) -> &str {
        &self.format
    }

    /// The volume's metadata, as a device on which other ranges are an error.
    #[must_use]
    pub fn device(&self) -> &Arc<PartialDevice> {
        &self.device
    }

    /// The digests of these files, which are all regular files with contents, sorted.
    pub(crate) fn digests(&self, files: &[ListedFile]) -> Result<ContentDigests, ListError> {
        ContentDigests::parse(self.digests.clone(), self.unit, files)
    }
}
