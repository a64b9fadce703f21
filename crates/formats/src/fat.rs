//! FAT12, FAT16 and FAT32.

use crate::mounting::{InUse, Mounting, Wall, refuse};
use crate::table::KnownFormat;
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, Clock};
use seekless_fat::{FatLive, LiveOptions};
use seekless_fs::FsError;
use std::sync::Arc;

/// The row of FAT.
pub const FAT: KnownFormat = KnownFormat {
    reader: seekless_fat::FORMAT,
    called: "a FAT image",
    unit: "sectors",
    default_discipline: |_| Ok(Discipline::SoftUpdates),
    open_live,
    check: seekless_fat::check,
    preen: seekless_fat::preen,
    repair: seekless_fat::repair,
    phase_of: seekless_fat::phase_of,
};

fn open_live(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    mounting: &Mounting,
    wall: Wall,
) -> Result<Box<dyn InUse>, FsError> {
    let given = [
        (mounting.directories.is_some(), "dirs="),
        (mounting.inodes.is_some(), "inodes="),
        (mounting.blocks.is_some(), "blocks="),
        (!mounting.moves_dirs, "dirmove=exdev"),
        (!mounting.reallocblks, "noreallocblks"),
        (mounting.delays == Some(true), "delalloc"),
    ];
    refuse(&given, "on FAT")?;
    let options = LiveOptions {
        clusters: mounting.clusters.clone(),
        seed: mounting.seed,
        zone: mounting.zone,
        force: mounting.force,
        wall,
    };
    let config = mounting.config_of(&FAT, device.as_ref())?;
    let mut live = FatLive::open(device, clock, config, options)?;
    if mounting.loads_fats {
        let (fat, core) = live.parts();
        fat.load_fats(core)?;
    }
    Ok(Box::new(live))
}
