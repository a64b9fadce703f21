//! What experiments have to know of a format: its units, and which policies it has by which names.

use seekless_device::BlockDevice;
use seekless_ext::CheckOptions;
use seekless_fs::FsError;
use seekless_fs::check::Report;
use seekless_placement::block::{self, ExtBlocks, Zones};
use seekless_placement::cluster::ClusterPlacement;
use seekless_placement::directory::{self, Expected};
use seekless_placement::inode::{self, ExtVolume};
use std::sync::Arc;

/// The part of a volume that the names of policies are checked for.
#[derive(Clone, Copy, Debug)]
pub struct PolicyVolume {
    /// Inodes in each group.
    pub inodes_per_group: u32,
    /// Bytes in a block.
    pub block_size: u32,
}

/// Checks names of policies.
///
/// # Errors
/// The reason why the format has no such policy, as text.
type CheckPolicies = fn(&str, &PolicyVolume) -> Result<(), String>;

/// The traits of a format that an experiment depends on.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentTraits {
    /// The name of the unit in which contents are allocated, as makers of volumes have it.
    pub contents_unit: &'static str,
    /// Whether the cache holds such units; else it holds sectors.
    pub caches_units: bool,
    /// Whether there are device nodes.
    pub has_devices: bool,
    /// Checks the policy for directories and inodes, or for clusters: two names with a plus between
    /// them are those of directories and of all other inodes.
    pub check_policies: CheckPolicies,
    /// Checks the policy for blocks, if the format has policies of their own for these.
    pub check_blocks: Option<CheckPolicies>,
    /// Checks for inconsistencies, with reads in the same order each time: a modelled device takes
    /// the same time.
    pub check: fn(Arc<dyn BlockDevice>) -> Result<Report, FsError>,
}

/// Those of ext.
pub(crate) const EXT: ExperimentTraits = ExperimentTraits {
    contents_unit: "block",
    caches_units: true,
    has_devices: true,
    check_policies: |name, volume| {
        let (directories, others) = both_policies(name);
        let inodes_per_group = volume.inodes_per_group;
        let volume = ExtVolume { groups: 1, groups_per_flex: 1, inodes_per_group };
        reason(inode::ext_by_name(directories, others, &volume, 0))
    },
    check_blocks: Some(|name, volume| {
        let volume = ExtBlocks {
            groups: 1,
            groups_per_flex: 1,
            block_size: volume.block_size,
            blocks_per_group: u32::MAX,
        };
        reason(block::ext_by_name(name, &volume, 0))
    }),
    check: |device| {
        let options = CheckOptions { is_sequential: true, ..CheckOptions::default() };
        seekless_ext::check_with(device, &options)
    },
};

/// Those of UFS.
pub(crate) const FFS: ExperimentTraits = ExperimentTraits {
    contents_unit: "block",
    caches_units: true,
    has_devices: true,
    check_policies: |name, _| {
        let (directories, others) = both_policies(name);
        let directories = directory::by_name(directories, 1, Expected::default(), 0);
        reason(directories.and_then(|directories| inode::by_name(directories, others)))
    },
    check_blocks: Some(|name, _| reason(block::by_name(name, Zones::default(), 0))),
    check: seekless_ffs::check,
};

/// Those of FAT.
pub(crate) const FAT: ExperimentTraits = ExperimentTraits {
    contents_unit: "cluster",
    caches_units: false,
    has_devices: false,
    check_policies: |name, _| reason(ClusterPlacement::by_name(name, u32::MAX, None, 0)),
    check_blocks: None,
    check: seekless_fat::check,
};

/// The policies that a name stands for: for directories, and for all other inodes.
#[must_use]
pub fn both_policies(name: &str) -> (&str, Option<&str>) {
    name.split_once('+').map_or((name, None), |(directories, others)| (directories, Some(others)))
}

/// The reason of an error, as text.
fn reason<T, E: std::fmt::Display>(found: Result<T, E>) -> Result<(), String> {
    found.map(drop).map_err(|error| error.to_string())
}
