//! Options of a build.

use crate::make::MakeOptions;
use seekless_fs::plan::Spare;
use seekless_fs::{FsError, Timestamp};

/// Attributes of a tree that may be lost where FAT cannot store them. Without permission, a build
/// fails and names the first file concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Owners and groups other than 0.
    pub owners: bool,
    /// Modes other than 0644 and 0444, of directories 0755 and 0555.
    pub modes: bool,
    /// Further names of a file: each becomes a file with the same contents.
    pub links: bool,
    /// Symlinks, which are left out.
    pub symlinks: bool,
    /// Device nodes, FIFOs and sockets, which are left out.
    pub devices: bool,
    /// Extended attributes and access control lists.
    pub xattrs: bool,
    /// Files and directories with invalid names for FAT, which are left out.
    pub names: bool,
}

/// The number of losses of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LossCounts {
    /// Files that had another owner or group.
    pub owners: u64,
    /// Files that had another mode.
    pub modes: u64,
    /// Names that became files of their own.
    pub links: u64,
    /// Symlinks left out.
    pub symlinks: u64,
    /// Device nodes, FIFOs and sockets left out.
    pub devices: u64,
    /// Files that had extended attributes.
    pub xattrs: u64,
    /// Files and directories left out for their names, including those in such directories.
    pub names: u64,
}

/// How an image is to be made from a tree.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The volume, as for an empty one. Its size is used only when `is_fitted` is not set, its time
    /// is not used.
    pub make: MakeOptions,
    /// Whether `make.id` is the volume's number; else it is derived from the tree.
    pub has_id: bool,
    /// Whether the label of `make` replaces that of an older volume even if it is empty.
    pub has_label: bool,
    /// The smallest volume that holds the contents.
    pub is_fitted: bool,
    /// Free space of a fitted volume.
    pub spare: Spare,
    /// When the file system was made; the newest time in the tree when `None`.
    pub made: Option<Timestamp>,
    /// Permitted losses.
    pub losses: Losses,
}

impl BuildOptions {
    /// Fits the volume to the contents; no losses are permitted.
    #[must_use]
    pub fn new(make: MakeOptions) -> Self {
        Self {
            make,
            has_id: false,
            has_label: false,
            is_fitted: true,
            spare: Spare::default(),
            made: None,
            losses: Losses::default(),
        }
    }

    /// Checks the options as far as possible without the tree.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for values out of range.
    pub fn check(&self) -> Result<(), FsError> {
        self.make.check()
    }
}
