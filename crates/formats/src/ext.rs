//! ext2, ext3 and ext4.

use crate::experiment;
use crate::making::{CrashTraits, EmptyVolume, Maker, Planner, SmallVolume, Version};
use crate::mounting::{InUse, Mounting, Wall};
use crate::parameter::{Parameter, Value};
use crate::recovery::RECOVER;
use crate::table::{KnownFormat, PartitionType, QuotaOperations};
use seekless_device::{BlockDevice, Clock};
use seekless_ext::{BuildOptions, Builder, ExtImage, ExtLive, Features, LiveOptions};
use seekless_fs::plan::NewVolume;
use seekless_fs::source::EmptySource;
use seekless_fs::tree::NodeAttr;
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

/// The row of ext.
pub const EXT: KnownFormat = KnownFormat {
    reader: seekless_ext::FORMAT,
    called: "an ext image",
    family: "ext",
    unit: "blocks",
    versions: VERSIONS,
    maker,
    partition: PartitionType::LinuxRoot,
    make_parameters: MAKE,
    experiment: experiment::EXT,
    crash: CrashTraits {
        has_inodes: true,
        swaps_names: true,
        // Every recovery rebuilds the bitmaps.
        used_but_free: &[],
        // e2fsck asks which of two names of a directory is right, where `..` leads, and whether to
        // reconnect a directory that was replaced.
        asks_of_moves: &["directory.two-names", "directory.dot-dot", "directory.unconnected"],
    },
    default_discipline: ExtImage::discipline,
    mount_parameters: MOUNT,
    open_live,
    check: seekless_ext::check,
    repair_parameters: &[],
    preen: |device, _| seekless_ext::preen(device),
    repair: |device, _| seekless_ext::repair(device),
    corrections: Some(seekless_ext::corrections),
    snapshots: None,
    growth: None,
    quotas: Some(QuotaOperations {
        read: seekless_ext::quotas,
        compare: seekless_ext::compare_quotas,
        correct: |device, selection, _| seekless_ext::correct_quotas(device, selection),
        change: seekless_ext::change_quotas,
    }),
};

const VERSIONS: &[Version] = &[
    Version {
        name: "ext2",
        has_xattrs: true,
        has_journal: false,
        has_block_maps: true,
        small: SmallVolume {
            size: ByteLen::new(2 << 20),
            arguments: &[("block", "1024"), ("inode_size", "128"), ("inodes", "256")],
            whole: None,
        },
    },
    Version {
        name: "ext3",
        has_xattrs: true,
        has_journal: true,
        has_block_maps: true,
        small: SmallVolume {
            size: ByteLen::new(3 << 20),
            // The shortest journal of ext.
            arguments: &[
                ("block", "1024"),
                ("inode_size", "128"),
                ("inodes", "256"),
                ("journal", "1048576"),
            ],
            whole: None,
        },
    },
    Version {
        name: "ext4",
        has_xattrs: true,
        has_journal: true,
        has_block_maps: false,
        small: SmallVolume {
            size: ByteLen::new(3 << 20),
            // The inodes have room for times beyond 2038, and for attributes.
            arguments: &[
                ("block", "1024"),
                ("inode_size", "256"),
                ("inodes", "256"),
                ("journal", "1048576"),
            ],
            // The superblock has a checksum: if it is torn, neither e2fsck nor the kernel accepts
            // it.
            whole: Some((Lba::new(2), 2)),
        },
    },
];

const MAKE: &[Parameter] = &[
    Parameter::number("block", "BYTES", "size of a block"),
    Parameter::number("bytes_per_inode", "BYTES", "space for each inode"),
    Parameter::number("inode_size", "BYTES", "size of an inode"),
    Parameter::number("inodes", "N", "number of inodes"),
    Parameter::number("journal", "BYTES", "size of the journal, where the version has one"),
    Parameter {
        name: "features",
        value: Value::Text { name: "LIST" },
        help: "features added to those of the version, or left out",
    },
];

/// An empty volume of ext.
struct ExtMaker {
    options: BuildOptions,
    time: Timestamp,
}

impl ExtMaker {
    /// A root directory and nothing in it.
    fn source(&self) -> EmptySource {
        let (kind, times, mtime) = (FileKind::Directory, None, self.time);
        let (uid, gid, size, flags) = (0, 0, 0, 0);
        EmptySource::new(NodeAttr { kind, perm: 0o755, uid, gid, size, mtime, times, flags })
    }
}

impl Maker for ExtMaker {
    fn has_journal(&self) -> bool {
        self.options.features.has_journal()
    }

    fn inodes_per_group(&self) -> Option<u32> {
        Some(Builder::new(&self.source(), &self.options).ok()?.inodes_per_group())
    }

    fn make(&self, device: &dyn BlockDevice, planner: Planner<'_>) -> Result<(), FsError> {
        let source = self.source();
        let builder = Builder::new(&source, &self.options)?;
        let plan = planner(builder.demand(), &builder.space())?;
        builder.write(&plan, device, &|_| {})
    }
}

fn maker(version: &Version, volume: &EmptyVolume) -> Result<Box<dyn Maker>, FsError> {
    let has = |parameter: &&Parameter| version.has_journal || parameter.name != "journal";
    let parameters: Vec<Parameter> = MAKE.iter().filter(has).copied().collect();
    volume.check(&parameters, "this ext")?;
    let lacks = |owner: &str, what| FsError::Invalid(format!("{owner} needs {what}"));
    let inode_size = volume.small("inode_size")?.ok_or_else(|| lacks("ext", "inode_size"))?;
    let base = match version.name {
        "ext2" => Features::EXT2,
        "ext3" => Features::EXT3,
        _ => Features::EXT4,
    };
    let features = match volume.text("features") {
        Some(list) => base.apply(list)?,
        None => base,
    };
    let options = BuildOptions {
        size: Some(volume.size),
        block_size: volume.small("block")?.ok_or_else(|| lacks(version.name, "block"))?,
        inode_size,
        inodes: volume.small("inodes")?,
        inode_ratio: volume.small("bytes_per_inode")?,
        features,
        journal_size: volume.bytes("journal"),
        made: Some(volume.time),
        ..BuildOptions::default()
    };
    options.check()?;
    Ok(Box::new(ExtMaker { options, time: volume.time }))
}

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
    RECOVER,
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
        areas: mounting.areas.clone(),
        blocks: None,
        seed: mounting.seed,
        force: mounting.force,
        delays: None,
        moves_dirs: true,
        recover: false,
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
            "recover" => options.recover = true,
            "dirmove" => options.moves_dirs = value.as_deref() == Some("any"),
            other => unreachable!("{other} is a parameter, and has no meaning"),
        }
    }
    let config = mounting.config_of(&EXT, device.as_ref())?;
    let mut live = ExtLive::open(device, clock, config, options)?;
    live.discard_freed(mounting.discards);
    Ok(Box::new(live))
}
