//! The rows, and the selection of an image's row.

use crate::experiment::ExperimentTraits;
use crate::making::{CrashTraits, EmptyVolume, Maker, Version};
use crate::mounting::{InUse, Mounting, Wall};
use crate::parameter::{Argument, Parameter};
use crate::{EXT, FAT, FFS};
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::check::{Repaired, Report};
use seekless_fs::corrections::Corrections;
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::growth::Growth;
use seekless_fs::quota::{OwnerKind, QuotaBook, QuotaChange, QuotaComparison, QuotaSelection};
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

/// Every format, in probing order.
pub const FORMATS: [&KnownFormat; 3] = [&EXT, &FFS, &FAT];

/// The readers of [`FORMATS`].
pub const READERS: &[Format] = &[EXT.reader, FFS.reader, FAT.reader];

/// Opens an image for changes.
type OpenLive =
    fn(Arc<dyn BlockDevice>, Arc<dyn Clock>, &Mounting, Wall) -> Result<Box<dyn InUse>, FsError>;

/// Repairs an image, as its arguments say.
type Repair = fn(Arc<dyn BlockDevice>, &[Argument]) -> Result<Repaired, FsError>;

/// Removes the snapshots of a volume.
type RemoveSnapshots =
    fn(Arc<dyn BlockDevice>, Option<&[Vec<u8>]>, Timestamp) -> Result<u64, FsError>;

/// Makes all snapshots of a volume ordinary files.
type ReleaseSnapshots = fn(Arc<dyn BlockDevice>) -> Result<u64, FsError>;

/// Takes a snapshot of a volume.
type TakeSnapshot = fn(Arc<dyn BlockDevice>, &[u8], Timestamp) -> Result<Ino, FsError>;

/// Lists the snapshots of a volume.
type ListSnapshots = fn(Arc<dyn BlockDevice>, OpenOptions) -> Result<Vec<SnapshotFile>, FsError>;

/// Opens the volume as the snapshot of a name has kept it.
type OpenSnapshot =
    fn(Arc<dyn BlockDevice>, &[u8], OpenOptions) -> Result<Arc<dyn BlockDevice>, FsError>;

/// Plans the growth of a volume to a size, and writes nothing.
type PlanGrowth = fn(Arc<dyn BlockDevice>, ByteLen) -> Result<Growth, FsError>;

/// Makes a volume larger.
type Grow = fn(Arc<dyn BlockDevice>, ByteLen, Timestamp) -> Result<Growth, FsError>;

/// Reads the quota files of a volume.
type ReadQuotas =
    fn(Arc<dyn BlockDevice>, &QuotaSelection, OpenOptions) -> Result<Vec<QuotaBook>, FsError>;

/// Compares the quota files of a volume with the usage of all files.
type CompareQuotas = fn(Arc<dyn BlockDevice>, &QuotaSelection) -> Result<QuotaComparison, FsError>;

/// Brings the quota files of a volume up to date.
type CorrectQuotas = fn(Arc<dyn BlockDevice>, &QuotaSelection, Timestamp) -> Result<(), FsError>;

/// Changes limits of an owner of a kind, or the grace periods of all of them.
type ChangeQuotas = fn(
    Arc<dyn BlockDevice>,
    &QuotaSelection,
    OwnerKind,
    &QuotaChange,
    Timestamp,
) -> Result<(), FsError>;

/// Finds the corrections of a volume in use from a snapshot of it.
pub(crate) type FindCorrections = fn(Arc<dyn BlockDevice>) -> Result<Corrections, FsError>;

/// The maker of an empty volume.
type MakerOf = fn(&Version, &EmptyVolume) -> Result<Box<dyn Maker>, FsError>;

/// The type of a partition, in a GUID partition table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionType {
    /// That of a root of Linux, which depends on the processor (Discoverable Partitions
    /// Specification).
    LinuxRoot,
    /// A type by its name, as in `sfdisk -T`.
    Named(&'static str),
}

/// A row of the table: a known format.
pub struct KnownFormat {
    /// Its recognition and reading.
    pub reader: Format,
    /// The name of the family for people, with its article.
    pub called: &'static str,
    /// The name of the family.
    pub family: &'static str,
    /// The unit of its block numbers.
    pub unit: &'static str,
    /// Its versions.
    pub versions: &'static [Version],
    /// The maker of an empty volume. Arguments for parameters of other formats, and options that do
    /// not go together, are refused ([`FsError::Invalid`]).
    pub maker: MakerOf,
    /// The type of a partition with a volume of the format.
    pub partition: PartitionType,
    /// The options of its empty volumes.
    pub make_parameters: &'static [Parameter],
    /// Its units and policies in experiments.
    pub experiment: ExperimentTraits,
    /// Its behaviour in a crash.
    pub crash: CrashTraits,
    /// The default discipline for changes of an image.
    pub default_discipline: fn(&dyn BlockDevice) -> Result<Discipline, FsError>,
    /// The options that only this format has for mounts.
    pub mount_parameters: &'static [Parameter],
    /// Opens an image for changes. Arguments for parameters of other formats, and unsupported
    /// images, are refused by name ([`FsError::Unsupported`]).
    pub open_live: OpenLive,
    /// Checks for inconsistencies.
    pub check: fn(Arc<dyn BlockDevice>) -> Result<Report, FsError>,
    /// The options that only this format has for repairs.
    pub repair_parameters: &'static [Parameter],
    /// Repairs the effects of a crash. Arguments are for [`KnownFormat::repair_parameters`], and
    /// valid.
    pub preen: Repair,
    /// Repairs everything; arguments as above.
    pub repair: Repair,
    /// Finds the corrections of a volume in use from a snapshot of its state after a crash, if the
    /// format can be recovered while it is in use.
    pub corrections: Option<FindCorrections>,
    /// The earlier states that volumes of the format keep of themselves, if they do.
    pub snapshots: Option<SnapshotOperations>,
    /// The growth of volumes that are not in use, if the format has it.
    pub growth: Option<GrowthOperations>,
    /// The quotas of volumes that are not in use, if the format has them.
    pub quotas: Option<QuotaOperations>,
}

/// The operations on the quotas of a volume that is not in use.
#[derive(Clone, Copy, Debug)]
pub struct QuotaOperations {
    /// Reads the quota files.
    pub read: ReadQuotas,
    /// Compares the quota files with the usage of all files.
    pub compare: CompareQuotas,
    /// Updates the usage in the quota files. The time becomes their time of modification.
    pub correct: CorrectQuotas,
    /// Changes limits or grace periods.
    pub change: ChangeQuotas,
}

/// The growth of a volume that is not in use.
#[derive(Clone, Copy, Debug)]
pub struct GrowthOperations {
    /// Plans the growth to a size that the device has, or will have, and writes nothing.
    pub plan: PlanGrowth,
    /// Makes the volume larger: a size that the device has. Changed structures get the time.
    pub grow: Grow,
}

/// The operations on the snapshots of a volume.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOperations {
    /// Lists them, oldest first.
    pub list: ListSnapshots,
    /// Opens the volume as the snapshot of a name has kept it, for reading.
    pub open: OpenSnapshot,
    /// Takes one of a volume that is not in use, and returns its inode. The file gets the time.
    pub take: TakeSnapshot,
    /// Removes all of them, of these names if there are any, and returns their number. Directories
    /// get the time.
    pub remove: RemoveSnapshots,
    /// Makes all of them ordinary files, also where the volume is damaged, and returns their number.
    pub release: ReleaseSnapshots,
}

impl KnownFormat {
    /// Whether two rows are the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.reader.name == other.reader.name
    }

    /// The parameter of its mounts that has a name.
    #[must_use]
    pub fn mount_parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.mount_parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The parameter of its repairs that has a name.
    #[must_use]
    pub fn repair_parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.repair_parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The version that has a name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&'static Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    fn probe(&self, device: &dyn BlockDevice) -> Probe {
        (self.reader.probe)(device)
    }
}

/// The versions of all formats.
pub fn versions() -> impl Iterator<Item = &'static Version> {
    FORMATS.into_iter().flat_map(|known| known.versions)
}

/// The version of a name, and the row of its format.
#[must_use]
pub fn version(name: &str) -> Option<(&'static KnownFormat, &'static Version)> {
    FORMATS.into_iter().find_map(|known| Some((known, known.version(name)?)))
}

/// Whether a mount of at least one format accepts an argument.
///
/// # Errors
/// [`None`] if no format has the parameter; otherwise the reason for which its value is invalid.
pub fn check_mount(argument: &Argument) -> Result<(), Option<String>> {
    let mut last = None;
    for known in FORMATS {
        if let Some(parameter) = known.mount_parameter(argument.name()) {
            match parameter.check(argument) {
                Ok(()) => return Ok(()),
                Err(why) => last = Some(why),
            }
        }
    }
    Err(last)
}

/// The formats that have a parameter for their mounts, by their names.
#[must_use]
pub fn formats_with(name: &str) -> Vec<&'static str> {
    let has = |known: &&&KnownFormat| known.mount_parameter(name).is_some();
    FORMATS.iter().filter(has).map(|known| known.family).collect()
}

/// The only one of [`FORMATS`] that claims a device.
///
/// # Errors
/// As [`seekless_fs::format::claim`].
pub fn claim(device: &dyn BlockDevice) -> Result<&'static KnownFormat, FsError> {
    claim_among(&FORMATS, device)
}

/// The only one of some formats that claims a device.
///
/// # Errors
/// As [`seekless_fs::format::claim`].
pub fn claim_among<'a>(
    formats: &[&'a KnownFormat],
    device: &dyn BlockDevice,
) -> Result<&'a KnownFormat, FsError> {
    let readers: Vec<Format> = formats.iter().map(|known| known.reader).collect();
    let name = seekless_fs::format::claim(&readers, device)?.name;
    let found = formats.iter().find(|known| known.reader.name == name);
    found.copied().ok_or_else(|| FsError::Unsupported(format!("{name} images")))
}

/// The format with which a device is checked, even if no format claims it: UFS searches for copies
/// of its superblock.
#[must_use]
pub fn to_check(device: &dyn BlockDevice) -> &'static KnownFormat {
    let is_not = |known: &KnownFormat| known.probe(device) == Probe::No;
    match EXT.probe(device) {
        Probe::Yes => &EXT,
        // A volume that was ext once may still have copies of its superblock.
        Probe::Damaged(_) if is_not(&FFS) => &EXT,
        Probe::No if is_not(&FFS) && !is_not(&FAT) => &FAT,
        Probe::Damaged(_) | Probe::No => &FFS,
    }
}
