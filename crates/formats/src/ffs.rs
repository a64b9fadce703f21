//! UFS1 and UFS2.

use crate::experiment;
use crate::making::{CrashTraits, EmptyVolume, Maker, Planner, SmallVolume, Version};
use crate::mounting::{InUse, Mounting, Wall};
use crate::parameter::{Parameter, Value};
use crate::recovery::RECOVER;
use crate::table::{
    GrowthOperations, KnownFormat, PartitionType, QuotaOperations, SnapshotOperations,
};
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, Clock};
use seekless_ffs::{FfsLive, LiveOptions, MakeOptions, QuotaFiles, keep_quotas};
use seekless_fs::FsError;
use seekless_fs::operate::Operate;
use seekless_live::QuotaKind;
use seekless_units::ByteLen;
use std::sync::Arc;

/// The row of UFS.
pub const FFS: KnownFormat = KnownFormat {
    reader: seekless_ffs::FORMAT,
    called: "a UFS image",
    family: "UFS",
    unit: "fragments",
    versions: VERSIONS,
    maker,
    partition: PartitionType::Named("FreeBSD UFS"),
    make_parameters: MAKE,
    experiment: experiment::FFS,
    crash: CrashTraits {
        has_inodes: true,
        swaps_names: false,
        used_but_free: &["bitmap.inodes-free", "bitmap.blocks-free"],
        asks_of_moves: &[],
    },
    default_discipline: |_| Ok(Discipline::SoftUpdates),
    mount_parameters: MOUNT,
    open_live,
    check: seekless_ffs::check,
    repair_parameters: &[],
    preen: |device, _| seekless_ffs::preen(device),
    repair: |device, _| seekless_ffs::repair(device),
    corrections: Some(seekless_ffs::corrections),
    snapshots: Some(SnapshotOperations {
        list: seekless_ffs::snapshots,
        open: seekless_ffs::open_snapshot,
        take: seekless_ffs::take_snapshot,
        remove: seekless_ffs::remove_snapshots,
        release: seekless_ffs::release_snapshots,
    }),
    growth: Some(GrowthOperations { plan: seekless_ffs::plan_growth, grow: seekless_ffs::grow }),
    quotas: Some(QuotaOperations {
        read: seekless_ffs::quotas,
        compare: seekless_ffs::compare_quotas,
        correct: seekless_ffs::correct_quotas,
        change: seekless_ffs::change_quotas,
    }),
};

const VERSIONS: &[Version] = &[
    Version {
        name: "ufs1",
        has_xattrs: false,
        has_journal: false,
        has_block_maps: true,
        small: SMALL,
    },
    Version {
        name: "ufs2",
        has_xattrs: true,
        has_journal: false,
        has_block_maps: true,
        small: SMALL,
    },
];

/// Of several cylinder groups. A fragment is a sector, so that a torn write never splits one.
const SMALL: SmallVolume = SmallVolume {
    size: ByteLen::new(2 << 20),
    arguments: &[("block", "4096"), ("fragment", "512"), ("bytes_per_inode", "8192")],
    whole: None,
};

const MAKE: &[Parameter] = &[
    Parameter::number("block", "BYTES", "size of a block"),
    Parameter::number("fragment", "BYTES", "size of a fragment"),
    Parameter::number("blocks_per_group", "N", "blocks in a cylinder group"),
    Parameter::number("bytes_per_inode", "BYTES", "space for each inode"),
    Parameter::number("avgfilesize", "BYTES", "expected average size of files"),
    Parameter::number("avgfpdir", "N", "expected average number of files in a directory"),
];

/// An empty volume of UFS.
struct FfsMaker(MakeOptions);

impl Maker for FfsMaker {
    fn make(&self, device: &dyn BlockDevice, _: Planner<'_>) -> Result<(), FsError> {
        seekless_ffs::make(device, &self.0).map(drop)
    }
}

fn maker(version: &Version, volume: &EmptyVolume) -> Result<Box<dyn Maker>, FsError> {
    volume.check(MAKE, "UFS")?;
    let lacks = |owner: &str, what| FsError::Invalid(format!("{owner} needs {what}"));
    let fragment = volume.small("fragment")?.ok_or_else(|| lacks("UFS", "fragment"))?;
    let kind = match version.name {
        "ufs1" => seekless_ffs::Version::Ufs1,
        _ => seekless_ffs::Version::Ufs2,
    };
    let mut options = MakeOptions::new(kind, volume.size);
    let block = volume.small("block")?;
    options.block_size = block.ok_or_else(|| lacks(version.name, "block"))?;
    options.fragment_size = fragment;
    options.blocks_per_group = volume.small("blocks_per_group")?;
    options.bytes_per_inode = volume.small("bytes_per_inode")?;
    options.avgfilesize = volume.small("avgfilesize")?.unwrap_or(options.avgfilesize);
    options.avgfpdir = volume.small("avgfpdir")?.unwrap_or(options.avgfpdir);
    options.time = volume.time;
    options.validate()?;
    Ok(Box::new(FfsMaker(options)))
}

const MOUNT: &[Parameter] = &[
    Parameter {
        name: "dirs",
        value: Value::Text { name: "POLICY" },
        help: "placement of new directories: orlov (default), old-dirpref, depth, ext2-orlov, \
               find-group-dir, linear; policy=POLICY is the same",
    },
    Parameter {
        name: "inodes",
        value: Value::Text { name: "POLICY" },
        help: "placement of the inodes of other files: parent",
    },
    Parameter {
        name: "blocks",
        value: Value::Text { name: "POLICY" },
        help: "placement of file blocks: blkpref (default), bsd-blkpref, old-blkpref, next-free, \
               random-start, near-start",
    },
    RECOVER,
    Parameter {
        name: "reallocblks",
        value: Value::Flag,
        help: "move new blocks that are not contiguous into a cluster (default)",
    },
    Parameter {
        name: "noreallocblks",
        value: Value::Flag,
        help: "do not gather new blocks into clusters",
    },
    Parameter {
        name: "userquota",
        value: Value::OptionalText { name: "FILE" },
        help: "keep quotas of users: usage, and the limits in FILE, a path in the volume \
               (quota.user); a missing file is made",
    },
    Parameter {
        name: "groupquota",
        value: Value::OptionalText { name: "FILE" },
        help: "keep quotas of groups (quota.group)",
    },
];

fn open_live(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    mounting: &Mounting,
    wall: Wall,
) -> Result<Box<dyn InUse>, FsError> {
    let mut options = LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: mounting.seed,
        reallocblks: true,
        force: mounting.force,
        recover: false,
        ignore_checksums: mounting.ignore_checksums,
        wall,
    };
    let mut quota_files = QuotaFiles::none();
    for argument in mounting.arguments_of(&FFS)? {
        let value = argument.value().map(String::from);
        match argument.name() {
            "dirs" => options.directories = value.expect("a parameter with a value"),
            "inodes" => options.inodes = value,
            "blocks" => options.blocks = value,
            "recover" => options.recover = true,
            "reallocblks" => options.reallocblks = true,
            "noreallocblks" => options.reallocblks = false,
            "userquota" => quota_files.keep(QuotaKind::User, argument.value()),
            "groupquota" => quota_files.keep(QuotaKind::Group, argument.value()),
            other => unreachable!("{other} is a parameter, and has no meaning"),
        }
    }
    let config = mounting.config_of(&FFS, device.as_ref())?;
    let mut live = FfsLive::open(device, clock, config, options)?;
    live.discard_freed(mounting.discards);
    if !quota_files.is_empty()
        && let Err(error) = keep_quotas(&mut live, &quota_files)
    {
        // It is as clean as it was.
        live.unmount()?;
        return Err(error);
    }
    Ok(Box::new(live))
}
