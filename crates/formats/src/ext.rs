//! ext2, ext3 and ext4.

use crate::mounting::{InUse, Mounting, Wall};
use crate::table::KnownFormat;
use seekless_device::{BlockDevice, Clock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::FsError;
use std::sync::Arc;

/// The row of ext.
pub const EXT: KnownFormat = KnownFormat {
    reader: seekless_ext::FORMAT,
    called: "an ext image",
    unit: "blocks",
    default_discipline: ExtImage::discipline,
    open_live,
    check: seekless_ext::check,
    preen: |device, _| seekless_ext::preen(device),
    repair: |device, _| seekless_ext::repair(device),
    phase_of: seekless_ext::phase_of,
};

fn open_live(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    mounting: &Mounting,
    wall: Wall,
) -> Result<Box<dyn InUse>, FsError> {
    mounting.check_not_fat()?;
    let options = LiveOptions {
        directories: mounting.directories.clone().unwrap_or_else(|| "ext2-orlov".into()),
        inodes: mounting.inodes.clone(),
        blocks: mounting.blocks.clone(),
        seed: mounting.seed,
        force: mounting.force,
        delays: mounting.delays,
        moves_dirs: mounting.moves_dirs,
        wall,
    };
    let config = mounting.config_of(&EXT, device.as_ref())?;
    Ok(Box::new(ExtLive::open(device, clock, config, options)?))
}
