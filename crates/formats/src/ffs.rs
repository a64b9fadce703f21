//! UFS1 and UFS2.

use crate::mounting::{InUse, Mounting, Wall};
use crate::table::KnownFormat;
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, Clock};
use seekless_ffs::{FfsLive, LiveOptions};
use seekless_fs::FsError;
use std::sync::Arc;

/// The row of UFS.
pub const FFS: KnownFormat = KnownFormat {
    reader: seekless_ffs::FORMAT,
    called: "a UFS image",
    unit: "fragments",
    default_discipline: |_| Ok(Discipline::SoftUpdates),
    open_live,
    check: seekless_ffs::check,
    preen: |device, _| seekless_ffs::preen(device),
    repair: |device, _| seekless_ffs::repair(device),
    phase_of: seekless_ffs::phase_of,
};

fn open_live(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    mounting: &Mounting,
    wall: Wall,
) -> Result<Box<dyn InUse>, FsError> {
    mounting.check_not_fat()?;
    let unsupported = |what: &str| Err(FsError::Unsupported(what.into()));
    if !mounting.moves_dirs {
        return unsupported("dirmove=exdev on UFS (all moves are ordered there)");
    }
    if mounting.delays == Some(true) {
        return unsupported("delalloc on UFS (only on ext images with extent)");
    }
    let options = LiveOptions {
        directories: mounting.directories.clone().unwrap_or_else(|| "orlov".into()),
        inodes: mounting.inodes.clone(),
        blocks: mounting.blocks.clone(),
        seed: mounting.seed,
        reallocblks: mounting.reallocblks,
        force: mounting.force,
        ignore_checksums: mounting.ignore_checksums,
        wall,
    };
    let config = mounting.config_of(&FFS, device.as_ref())?;
    Ok(Box::new(FfsLive::open(device, clock, config, options)?))
}
