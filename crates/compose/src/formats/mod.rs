//! The formats in which images are built and rearranged: each is a file, and a row here.

mod ext;
mod fat;
mod ffs;

pub use ext::E2FSCK;
pub use fat::warn_of_width;

use crate::base::Bases;
use crate::opened::RearrangedFormat;
use crate::options::VolumeOptions;
use seekless_formats::{EXT, FAT, FFS, KnownFormat};
use seekless_fs::FsError;
use seekless_fs::format::OpenOptions;
use seekless_fs::plan::NewVolume;
use seekless_fs::source::Source;
use seekless_images::{Error, ErrorKind, Place};
use seekless_units::ByteLen;
use std::path::PathBuf;

/// Older ext images.
pub type ExtBases = Bases<seekless_ext::BaseVolume>;

/// Older FAT images.
pub type FatBases = Bases<seekless_fat::BaseVolume>;

/// Older UFS images.
pub type UfsBases = Bases<seekless_ffs::BaseVolume>;

/// The formats that can be rearranged, in probing order.
pub(crate) const REARRANGED: &[RearrangedFormat] = &[
    RearrangedFormat { format: seekless_ext::FORMAT, open: ext::open },
    RearrangedFormat { format: seekless_fat::FORMAT, open: fat::open },
];

/// The options of a volume of any format.
#[derive(Clone, Debug)]
pub enum Options {
    /// ext2, ext3 or ext4.
    Ext(seekless_ext::BuildOptions),
    /// UFS1 or UFS2.
    Ufs(seekless_ffs::BuildOptions),
    /// FAT.
    Fat(seekless_fat::BuildOptions),
}

impl Options {
    /// As [`VolumeOptions::check`].
    ///
    /// # Errors
    /// Those of the format.
    pub fn check(&self) -> Result<(), FsError> {
        match self {
            Self::Ext(options) => VolumeOptions::check(options),
            Self::Ufs(options) => VolumeOptions::check(options),
            Self::Fat(options) => VolumeOptions::check(options),
        }
    }

    /// The length of a volume with the files of a source.
    ///
    /// # Errors
    /// As [`VolumeOptions::volume`].
    pub fn len(&self, source: &dyn Source) -> Result<ByteLen, FsError> {
        let none = |_| Vec::new();
        Ok(match self {
            Self::Ext(options) => options.volume(source, &none)?.size(),
            Self::Ufs(options) => options.volume(source, &none)?.size(),
            Self::Fat(options) => options.volume(source, &none)?.size(),
        })
    }

    /// As [`VolumeOptions::unit`], in bytes.
    #[must_use]
    pub fn unit(&self) -> u32 {
        match self {
            Self::Ext(options) => options.unit(),
            Self::Ufs(options) => options.unit(),
            Self::Fat(options) => options.unit(),
        }
    }
}

/// Older images of one format.
pub enum OlderImages {
    /// ext2, ext3 or ext4.
    Ext(ExtBases),
    /// UFS1 or UFS2.
    Ufs(UfsBases),
    /// FAT.
    Fat(FatBases),
}

impl OlderImages {
    /// Opens images of a format; `None` without any.
    ///
    /// # Errors
    /// As [`Bases::open`]; [`ErrorKind::Unsupported`] for a format that is not built.
    pub fn open(
        format: &KnownFormat,
        paths: &[PathBuf],
        place: &Place,
        options: OpenOptions,
    ) -> Result<Option<Self>, Error> {
        if format.is(&EXT) {
            Ok(Bases::open(paths, place, options)?.map(Self::Ext))
        } else if format.is(&FFS) {
            Ok(Bases::open(paths, place, options)?.map(Self::Ufs))
        } else if format.is(&FAT) {
            Ok(Bases::open(paths, place, options)?.map(Self::Fat))
        } else {
            let why = format!("{} images are not built", format.family);
            Err(Error::new(ErrorKind::Unsupported, why))
        }
    }

    /// ext images.
    #[must_use]
    pub fn ext(&self) -> Option<&ExtBases> {
        match self {
            Self::Ext(bases) => Some(bases),
            Self::Ufs(_) | Self::Fat(_) => None,
        }
    }

    /// UFS images.
    #[must_use]
    pub fn ufs(&self) -> Option<&UfsBases> {
        match self {
            Self::Ufs(bases) => Some(bases),
            Self::Ext(_) | Self::Fat(_) => None,
        }
    }

    /// FAT images.
    #[must_use]
    pub fn fat(&self) -> Option<&FatBases> {
        match self {
            Self::Fat(bases) => Some(bases),
            Self::Ext(_) | Self::Ufs(_) => None,
        }
    }
}
