//! The selected part of an image.

use seekless_units::ByteLen;

/// The location of the file system in an image. By default it is the whole image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Partition: its number, name or UUID, the label of its file system, or `root`.
    pub partition: Option<String>,
    /// The first byte of the file system, a multiple of 512. It takes precedence over `partition`.
    pub offset: Option<ByteLen>,
}

impl Place {
    /// Whether only a part of the image is selected.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.partition.is_some() || self.offset.is_some()
    }
}
