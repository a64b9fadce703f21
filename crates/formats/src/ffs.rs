//! UFS1 and UFS2.

use crate::mounting::{InUse, Mounting, Wall};
use crate::parameter::{Parameter, Value};
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
    family: "UFS",
    unit: "fragments",
    default_discipline: |_| Ok(Discipline::SoftUpdates),
    mount_parameters: MOUNT,
    open_live,
    check: seekless_ffs::check,
    repair_parameters: &[],
    preen: |device, _| seekless_ffs::preen(device),
    repair: |device, _| seekless_ffs::repair(device),
};

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
        ignore_checksums: mounting.ignore_checksums,
        wall,
    };
    for argument in mounting.arguments_of(&FFS)? {
        let value = argument.value().map(String::from);
        match argument.name() {
            "dirs" => options.directories = value.expect("a parameter with a value"),
            "inodes" => options.inodes = value,
            "blocks" => options.blocks = value,
            "reallocblks" => options.reallocblks = true,
            "noreallocblks" => options.reallocblks = false,
            other => unreachable!("{other} is a parameter, and has no meaning"),
        }
    }
    let config = mounting.config_of(&FFS, device.as_ref())?;
    Ok(Box::new(FfsLive::open(device, clock, config, options)?))
}
