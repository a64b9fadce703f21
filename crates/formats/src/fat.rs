//! FAT12, FAT16 and FAT32.

use crate::experiment;
use crate::making::{CrashTraits, EmptyVolume, Maker, Planner, SmallVolume, Version};
use crate::mounting::{InUse, Mounting, Wall};
use crate::parameter::{Argument, Parameter, Value};
use crate::table::{KnownFormat, PartitionType};
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, Clock};
use seekless_fat::{FatLive, FatWidth, LiveOptions, LostChains, MakeOptions};
use seekless_fs::FsError;
use seekless_units::ByteLen;
use std::sync::Arc;

/// The row of FAT.
pub const FAT: KnownFormat = KnownFormat {
    reader: seekless_fat::FORMAT,
    called: "a FAT image",
    family: "FAT",
    unit: "sectors",
    versions: VERSIONS,
    maker,
    partition: PartitionType::Named("Microsoft basic data"),
    make_parameters: MAKE,
    experiment: experiment::FAT,
    crash: CrashTraits {
        has_inodes: false,
        swaps_names: false,
        // A chain that leads to a free cluster ends there: used clusters marked as free are no
        // finding.
        used_but_free: &[],
        // Of two names of one chain the later is emptied, and one of two names of a directory is
        // removed: `fsck.fat -a` does so without asking, `check -p` asks.
        asks_of_moves: &["chain.shared", "directory.dot-dot", "directory.dot"],
    },
    default_discipline: |_| Ok(Discipline::SoftUpdates),
    mount_parameters: MOUNT,
    open_live,
    check: seekless_fat::check,
    repair_parameters: REPAIR,
    preen: |device, arguments| seekless_fat::preen(device, lost_chains(arguments)),
    repair: |device, arguments| seekless_fat::repair(device, lost_chains(arguments)),
    corrections: None,
    snapshots: None,
    growth: None,
    quotas: None,
};

const VERSIONS: &[Version] = &[
    Version {
        name: "fat12",
        has_xattrs: false,
        has_journal: false,
        has_block_maps: false,
        small: SMALL,
    },
    Version {
        name: "fat16",
        has_xattrs: false,
        has_journal: false,
        has_block_maps: false,
        // Large enough for FAT16 with clusters of one sector.
        small: SmallVolume { size: ByteLen::new(4 << 20), ..SMALL },
    },
    Version {
        name: "fat32",
        has_xattrs: false,
        has_journal: false,
        has_block_maps: false,
        small: SMALL,
    },
];

const SMALL: SmallVolume =
    SmallVolume { size: ByteLen::new(2 << 20), arguments: &[("cluster", "512")], whole: None };

const MAKE: &[Parameter] = &[
    Parameter::number("cluster", "BYTES", "size of a cluster"),
    Parameter::number("fats", "N", "number of FATs"),
    Parameter::number("sector", "BYTES", "size of a sector"),
];

/// An empty volume of FAT.
struct FatMaker(MakeOptions);

impl Maker for FatMaker {
    fn make(&self, device: &dyn BlockDevice, _: Planner<'_>) -> Result<(), FsError> {
        seekless_fat::make(device, &self.0).map(drop)
    }
}

fn maker(version: &Version, volume: &EmptyVolume) -> Result<Box<dyn Maker>, FsError> {
    volume.check(MAKE, "FAT")?;
    let width = match version.name {
        "fat12" => FatWidth::Fat12,
        "fat16" => FatWidth::Fat16,
        _ => FatWidth::Fat32,
    };
    let lacks = || FsError::Invalid("FAT needs cluster".into());
    let cluster = volume.small("cluster")?.ok_or_else(lacks)?;
    let mut options = MakeOptions::new(Some(width), volume.size);
    options.sector_size = volume.small("sector")?.unwrap_or(options.sector_size);
    options.cluster = Some(cluster / options.sector_size.max(1));
    options.fats = volume.small("fats")?.unwrap_or(options.fats);
    options.time = volume.time;
    options.validate()?;
    Ok(Box::new(FatMaker(options)))
}

/// Maximum offset of a local time from UTC, in minutes: as `time_offset` of Linux's vfat.
const MOST_MINUTES: i64 = 24 * 60;

const MOUNT: &[Parameter] = &[
    Parameter {
        name: "clusters",
        value: Value::Text { name: "POLICY" },
        help: "where free clusters are looked for: first-fit, next-fit (default), random-near, \
               random-next, random, next-near, or their numbers 0 to 5",
    },
    Parameter {
        name: "tz",
        value: Value::Number { name: "MINUTES", least: -MOST_MINUTES, most: MOST_MINUTES },
        help: "minutes by which the local time in entries is ahead of UTC (default: 0)",
    },
    Parameter {
        name: "loadfats",
        value: Value::Flag,
        help: "read all FATs into the cache when the image is mounted",
    },
];

const REPAIR: &[Parameter] = &[Parameter {
    name: "lost",
    value: Value::OneOf(&["keep", "free"]),
    help: "clusters that no file has become files in the root directory, or are freed (default: \
           free after a crash of a mount with softdep or sync, else keep)",
}];

fn lost_chains(arguments: &[Argument]) -> LostChains {
    match arguments.iter().rfind(|argument| argument.name() == "lost").and_then(Argument::value) {
        Some("keep") => LostChains::Kept,
        Some("free") => LostChains::Freed,
        _ => LostChains::ByMark,
    }
}

fn open_live(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    mounting: &Mounting,
    wall: Wall,
) -> Result<Box<dyn InUse>, FsError> {
    let (seed, force) = (mounting.seed, mounting.force);
    let mut options = LiveOptions { clusters: None, seed, zone: 0, force, wall };
    let mut loads_fats = false;
    for argument in mounting.arguments_of(&FAT)? {
        match argument.name() {
            "clusters" => options.clusters = argument.value().map(Into::into),
            "tz" => {
                let zone = argument.number().and_then(|minutes| i32::try_from(minutes).ok());
                options.zone = zone.expect("a number in the parameter's range");
            }
            "loadfats" => loads_fats = true,
            other => unreachable!("{other} is a parameter, and has no meaning"),
        }
    }
    let config = mounting.config_of(&FAT, device.as_ref())?;
    let mut live = FatLive::open(device, clock, config, options)?;
    live.discard_freed(mounting.discards);
    if loads_fats {
        let (fat, core) = live.parts();
        fat.load_fats(core)?;
    }
    Ok(Box::new(live))
}
