//! ext2, ext3 and ext4.

use crate::mounting::{InUse, Mounting, Wall};
use crate::parameter::{Parameter, Value};
use crate::table::KnownFormat;
use seekless_device::{BlockDevice, Clock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::FsError;
use std::sync::Arc;

/// The row of ext.
pub const EXT: KnownFormat = KnownFormat {
    reader: seekless_ext::FORMAT,
    called: "an ext image",
    family: "ext",
    unit: "blocks",
    default_discipline: ExtImage::discipline,
    mount_parameters: MOUNT,
    open_live,
    check: seekless_ext::check,
    repair_parameters: &[],
    preen: |device, _| seekless_ext::preen(device),
    repair: |device, _| seekless_ext::repair(device),
};

const MOUNT: &[Parameter] = &[
    Parameter {
        name: "dirs",
        value: Value::Text { name: "POLICY" },
        help: "placement of new directories: ext2-orlov (default), find-group-dir, linear, \
               linux-orlov (ext4's), ffs-orlov, old-dirpref; policy=POLICY is the same",
    },
    Parameter {
        name: "inodes",
        value: Value::Text { name: "POLICY" },
        help: "placement of the inodes of other files: find-group-other (default), parent \
               (ext4's; default with linux-orlov), old-find-group-other, dir-reserve[=N] (N \
               inodes, 16 by default, are kept for each directory and its files), \
               dir-reserve-hashed[=N] (the same, in the order of the hashes of their names)",
    },
    Parameter {
        name: "blocks",
        value: Value::Text { name: "POLICY" },
        help: "placement of file blocks: ext2-next[=N] (default; takes N blocks at once, 1 by \
               default), ext4-goal[=P] (ext4's, on P processors), next-free, random-start, \
               near-start",
    },
    Parameter {
        name: "delalloc",
        value: Value::Flag,
        help: "images with extents: take blocks when contents are written back (default with \
               blocks=ext4-goal where possible)",
    },
    Parameter {
        name: "nodelalloc",
        value: Value::Flag,
        help: "take blocks with each write (default elsewhere)",
    },
    Parameter {
        name: "dirmove",
        value: Value::OneOf(&["any", "exdev"]),
        help: "exdev: without a journal, refuse to give directories other names (EXDEV; mv then \
               copies them) where a crash could leave both or none (default: any)",
    },
];

fn open_live(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    mounting: &Mounting,
    wall: Wall,
) -> Result<Box<dyn InUse>, FsError> {
    let mut options = LiveOptions {
        directories: "ext2-orlov".into(),
        inodes: None,
        blocks: None,
        seed: mounting.seed,
        force: mounting.force,
        delays: None,
        moves_dirs: true,
        wall,
    };
    for argument in mounting.arguments_of(&EXT)? {
        let value = argument.value().map(String::from);
        match argument.name() {
            "dirs" => options.directories = value.expect("a parameter with a value"),
            "inodes" => options.inodes = value,
            "blocks" => options.blocks = value,
            "delalloc" => options.delays = Some(true),
            "nodelalloc" => options.delays = Some(false),
            "dirmove" => options.moves_dirs = value.as_deref() == Some("any"),
            other => unreachable!("{other} is a parameter, and has no meaning"),
        }
    }
    let config = mounting.config_of(&EXT, device.as_ref())?;
    Ok(Box::new(ExtLive::open(device, clock, config, options)?))
}
