//! `seekless build --like`: an image on the base of older ones.

use super::BuildArgs;
use crate::failure::Failure;
use crate::written::Written;
use clap::Args;
use seekless_compose::base::{ExtBases, Taken};
use seekless_images::Place;
use std::path::PathBuf;

/// Older images, and how strictly the new one is like them.
#[derive(Args, Debug)]
pub(super) struct LikeArgs {
    /// Keep what this older image has where it lies there: inode numbers and blocks of files with
    /// the same path, or the same contents. Size, features, UUID and label are those of the older
    /// image too, and it grows if need be. Of several, the first that has a file counts
    /// (repeatable; ext)
    #[arg(long, value_name = "IMG")]
    like: Vec<PathBuf>,
    /// With --like: partition of the older images: its number, name or UUID, the label of its
    /// file system, or root
    #[arg(long, requires = "like", value_name = "N|LABEL|root")]
    like_partition: Option<String>,
    /// With --like: fail where groups and inode tables cannot be those of the older image
    #[arg(long, requires = "like")]
    like_strict: bool,
}

impl LikeArgs {
    /// The older images, open; `None` without any.
    pub(super) fn open(&self, args: &BuildArgs) -> Result<Option<ExtBases>, Failure> {
        if self.like.is_empty() {
            return Ok(None);
        }
        if args.fat_width().is_some() || args.ufs_version().is_some() {
            return Err(Failure::usage("--like is for ext images"));
        }
        let place = Place { partition: self.like_partition.clone(), offset: None };
        Ok(ExtBases::open(&self.like, &place, args.open.options())?)
    }

    /// The older images.
    pub(super) fn images(&self) -> &[PathBuf] {
        &self.like
    }

    /// Whether a volume of another shape is refused.
    pub(super) fn is_strict(&self) -> bool {
        self.like_strict
    }
}

/// Adds how many files have kept their places.
pub(super) fn tell(written: Written, taken: Taken) -> Written {
    written.with_number("like_same_path", "as before", taken.same_path).with_number(
        "like_same_contents",
        "moved in the tree",
        taken.same_contents,
    )
}
