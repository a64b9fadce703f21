//! The rows, and which of them an image belongs to.

use crate::mounting::{InUse, Mounting, Wall};
use crate::{EXT, FAT, FFS};
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, Clock};
use seekless_fat::LostChains;
use seekless_fs::FsError;
use seekless_fs::check::{Repaired, Report};
use seekless_fs::format::{Format, Probe};
use std::sync::Arc;

/// Every format, in probing order.
pub const FORMATS: [&Known; 3] = [&EXT, &FFS, &FAT];

/// How each of [`FORMATS`] is recognized and read.
pub const READERS: &[Format] = &[EXT.reader, FFS.reader, FAT.reader];

/// Opens an image for changes.
type OpenLive =
    fn(Arc<dyn BlockDevice>, Arc<dyn Clock>, &Mounting, Wall) -> Result<Box<dyn InUse>, FsError>;

/// A row of the table.
pub struct Known {
    /// How it is recognized and read.
    pub reader: Format,
    /// The family, as people call it, with its article.
    pub called: &'static str,
    /// What its block numbers count.
    pub unit: &'static str,
    /// The discipline that an image is changed under where no other is asked for.
    pub default_discipline: fn(&dyn BlockDevice) -> Result<Discipline, FsError>,
    /// Opens an image for changes. Options that say nothing in this format, and images
    /// that it cannot change, are refused by name ([`FsError::Unsupported`]).
    pub open_live: OpenLive,
    /// Looks for what is wrong.
    pub check: fn(Arc<dyn BlockDevice>) -> Result<Report, FsError>,
    /// Repairs what a crash may leave; of FAT, chains of clusters that no file has as is said.
    pub preen: fn(Arc<dyn BlockDevice>, LostChains) -> Result<Repaired, FsError>,
    /// Repairs everything; chains as above.
    pub repair: fn(Arc<dyn BlockDevice>, LostChains) -> Result<Repaired, FsError>,
    /// The phase in which a code is found.
    pub phase_of: fn(&str) -> Option<u8>,
}

impl Known {
    /// Whether two rows are the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.reader.name == other.reader.name
    }

    fn probe(&self, device: &dyn BlockDevice) -> Probe {
        (self.reader.probe)(device)
    }
}

/// The one format that claims a device.
///
/// # Errors
/// As [`seekless_fs::format::claim`].
pub fn claim(device: &dyn BlockDevice) -> Result<&'static Known, FsError> {
    let name = seekless_fs::format::claim(READERS, device)?.name;
    let found = FORMATS.into_iter().find(|known| known.reader.name == name);
    found.ok_or_else(|| FsError::Unsupported(format!("{name} images")))
}

/// The format as which a device is checked, also where no format claims it any more: UFS
/// looks for copies of its superblock.
#[must_use]
pub fn to_check(device: &dyn BlockDevice) -> &'static Known {
    let is_not = |known: &Known| known.probe(device) == Probe::No;
    match EXT.probe(device) {
        Probe::Yes => &EXT,
        // A volume that was ext once may still have copies of its superblock.
        Probe::Damaged(_) if is_not(&FFS) => &EXT,
        Probe::No if is_not(&FFS) && !is_not(&FAT) => &FAT,
        Probe::Damaged(_) | Probe::No => &FFS,
    }
}
