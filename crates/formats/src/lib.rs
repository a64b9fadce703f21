//! The table of formats: operations on an image independent of its format, looked up in one place.
//! Mounts, experiments, ageing, crash searches and checks find a format here; features of a single
//! format are in its crate.
//!
//! - `table`: the rows, and the selection of an image's row
//! - `parameter`: the options that a format has for its mounts and repairs
//! - `making`: versions of a format, and their empty volumes
//! - `experiment`: units and policies, for experiments
//! - `mounting`: opening of images for changes, and file systems in use
//! - `recovery`: images checked and corrected while they are in use
//! - `ext`, `ffs`, `fat`: the operations of each row

mod experiment;
mod ext;
mod fat;
mod ffs;
mod making;
mod mounting;
mod parameter;
mod recovery;
mod table;

pub use experiment::{ExperimentTraits, PolicyVolume, both_policies};
pub use ext::EXT;
pub use fat::FAT;
pub use ffs::FFS;
pub use making::{CrashTraits, EmptyVolume, Maker, Planner, SmallVolume, Version};
pub use mounting::{InUse, Mounting, Wall, sort_as_listed};
pub use parameter::{Argument, Parameter, Value};
pub use recovery::{BackgroundCheck, Step, recover, release};
pub use table::{
    FORMATS, GrowthOperations, KnownFormat, PartitionType, QuotaOperations, READERS,
    SnapshotOperations, check_mount, claim, claim_among, formats_with, to_check, version, versions,
};
