//! Options of a build.

use crate::make::{MakeOptions, Version};
use seekless_fs::plan::Spare;
use seekless_fs::{FsError, Timestamp};
use seekless_units::ByteLen;

/// How an image is to be made from a tree.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The volume, as for an empty one. Its size is used only when `is_fitted` is not set, its time
    /// and id are not used.
    pub make: MakeOptions,
    /// The smallest volume that holds the contents and its reserve.
    pub is_fitted: bool,
    /// Free space of a fitted volume, besides its reserve.
    pub spare: Spare,
    /// When the file system was made; the newest time in the tree when `None`.
    pub made: Option<Timestamp>,
    /// Leave out extended attributes that the format cannot store, instead of failing.
    pub drop_xattrs: bool,
}

impl BuildOptions {
    /// The defaults of `newfs`, fitted to the contents.
    #[must_use]
    pub fn new(version: Version) -> Self {
        let make = MakeOptions::new(version, ByteLen::ZERO);
        Self { make, is_fitted: true, spare: Spare::default(), made: None, drop_xattrs: false }
    }

    /// Checks the options as far as possible without the tree.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for values out of range.
    pub fn check(&self) -> Result<(), FsError> {
        self.make.check()
    }
}
