//! Images that can be rearranged.

use crate::older::repair_first;
use seekless_device::BlockDevice;
use seekless_ext::ExtImage;
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::plan::Rearrange;
use seekless_fs::term::Text;
use seekless_fs::{FsError, Inspect};
use seekless_layout::replay::Replayed;
use std::sync::Arc;

/// An open image whose parts can be written in another order.
pub trait Rearrangeable {
    /// The file system in the image.
    fn inspect(&self) -> &dyn Inspect;

    /// Its parts, and their demands on places.
    ///
    /// # Errors
    /// [`FsError::Damaged`] for an image with errors, [`FsError::Unsupported`], and errors of
    /// reading it.
    fn relayout(&self) -> Result<Box<dyn Rearrange + '_>, FsError>;

    /// Adds parts to replays that are read with those which the traces name. By default there are
    /// none.
    ///
    /// # Errors
    /// Errors of reading the image.
    fn add_unread(&self, _replays: &mut [Replayed]) -> Result<(), FsError> {
        Ok(())
    }

    /// The way to repair an image that is damaged.
    fn repair(&self) -> Text {
        repair_first()
    }

    /// The image, if its format is ext, whose images can also be rebuilt in another shape.
    fn ext(&self) -> Option<&Arc<ExtImage>> {
        None
    }
}

/// Opens an image that can be rearranged.
type Open = fn(Arc<dyn BlockDevice>, OpenOptions) -> Result<Box<dyn Rearrangeable>, FsError>;

/// A format whose images can be rearranged.
pub(crate) struct RearrangedFormat {
    /// Its recognition.
    pub(crate) format: Format,
    /// Opens an image.
    pub(crate) open: Open,
}
