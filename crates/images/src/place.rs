//! The part of an image that is meant.

use seekless_units::ByteLen;

/// Where in an image the file system is. By default it is the whole image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Partition: its number, name or UUID, the label of its file system, or `root`.
    pub partition: Option<String>,
    /// The byte that the file system begins with, a multiple of 512. It goes before
    /// `partition`.
    pub offset: Option<ByteLen>,
}

impl Place {
    /// Whether only a part of the image is meant.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.partition.is_some() || self.offset.is_some()
    }
}
