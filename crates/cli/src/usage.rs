//! The use of blocks, in the classes of maps.

use seekless_fs::{FsError, Inspect};
use seekless_layout::usage::{self, Use};
use seekless_report::disk::{Class, Usage};

/// The use of every block of an image.
pub(crate) fn classify(image: &dyn Inspect) -> Result<Usage, FsError> {
    let runs = usage::classify(image)?.into_iter().map(|(run, use_)| (run, class(use_)));
    Ok(Usage::new(usage::whole(image), runs.collect()))
}

fn class(use_: Use) -> Class {
    match use_ {
        Use::Directory => Class::Directory,
        Use::Contents => Class::Data,
        Use::Internal | Use::Outside => Class::Internal,
        Use::Free => Class::Free,
        Use::Superblock
        | Use::Bitmap
        | Use::Inodes
        | Use::AllocationTable
        | Use::Map
        | Use::Attributes => Class::Metadata,
    }
}
