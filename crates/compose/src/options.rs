//! Options of volumes that are built, whatever their format.

use crate::older::OlderVolume;
use seekless_fs::FsError;
use seekless_fs::source::Source;
use seekless_layout::planner::Touch;

/// The touches of the traces, in order, in blocks of so many bytes.
pub type TouchesIn<'a> = &'a dyn Fn(u32) -> Vec<Touch>;

/// A new volume that options of type `O` describe.
pub type NewVolumeOf<'a, O> = <<O as VolumeOptions>::Older as OlderVolume>::Builder<'a>;

/// Options of a volume of one format.
pub trait VolumeOptions: Clone {
    /// Volumes on the base of which it can be built.
    type Older: OlderVolume<Options = Self>;

    /// Whether names that differ in case only are one name.
    const FOLDS_CASE: bool = false;

    /// Refuses options that contradict each other.
    ///
    /// # Errors
    /// [`FsError::Invalid`], [`FsError::Unsupported`].
    fn check(&self) -> Result<(), FsError>;

    /// Bytes of the smallest unit that is written; blocks of the device may not be larger.
    fn unit(&self) -> u32;

    /// The flags of files ([`seekless_fs::inode_flag`]) that the volume stores.
    fn kept_flags(&self) -> u32;

    /// A volume with the files of a source.
    ///
    /// # Errors
    /// As [`VolumeOptions::check`], [`FsError::NoSpace`], and errors of the source.
    fn volume<'a>(
        &self,
        source: &'a dyn Source,
        touches: TouchesIn<'_>,
    ) -> Result<NewVolumeOf<'a, Self>, FsError>;

    /// Warns of the parts of the source that the volume does not store. By default it stores all.
    fn warn_of_lost(_volume: &NewVolumeOf<'_, Self>) {}
}
