//! `seekless mkfs`: creates an empty UFS or FAT image.

use crate::args::{Global, OutputFormatArg, count};
use crate::failure::Failure;
use crate::fat_args::FatMakeArgs;
use crate::format_args::{FAT_IMAGES, FormatArgs, UFS_IMAGES};
use crate::progress;
use crate::source::source_date_epoch;
use crate::ufs_args::Hashes;
use crate::uuid::random;
use crate::written::Written;
use clap::{Args, ValueEnum};
use seekless_compose::formats::warn_of_width;
use seekless_device::BlockDevice;
use seekless_fat::FatWidth;
use seekless_ffs::{MakeOptions, Optimization, Version, make};
use seekless_fs::{FsError, Timestamp};
use seekless_images::Place;
use seekless_images::output::NO_INPUTS;
use seekless_images::targets::Target;
use seekless_units::{ByteLen, parse_size};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Create an empty UFS or FAT image, with the options of newfs or mkfs.fat
#[derive(Args, Debug)]
#[command(after_help = "\
Short options are those of newfs for UFS and of mkfs.fat for FAT; -s, -f and -i mean
something else in each of them. The average number of files in a directory, -h of newfs,
has no short option here: -h prints help. The file system is clean and has an empty root
directory. Its creation time is the current time, or that of the environment variable
SOURCE_DATE_EPOCH (seconds since 1970): with it, the same options give the same bytes.

FAT volumes have the layout of mkfs.fat: the same options give the same image, except
for the name of the program and the boot program, which hands over to the next device.

Examples:
  seekless mkfs --format ufs2 --size 1G disk.img
  seekless mkfs --format ufs1 -s 40G -b 8192 -f 1024 -L ports disk.img
  seekless mkfs --format ufs2 -s 8G -U -o space -m 5 disk.img
  seekless mkfs --format ufs2 -s 1G --uuid random disk.img
  seekless mkfs --format fat32 --size 512M -n EFI esp.img
  seekless mkfs --format fat32 -n EFI /dev/vdb1
  seekless mkfs --format fat16 --size 100M -s 4 -f 1 -i 2e24ec82 disk.img")]
pub(crate) struct MkfsArgs {
    /// The image to write: a file, or a block device
    image: PathBuf,
    /// Format of the file [default: by the end of its name, such as .qcow2; else raw]
    #[arg(long, value_enum, value_name = "FORMAT")]
    output_format: Option<OutputFormatArg>,
    /// Format of the file system; `fat` has the width that mkfs.fat chooses for the size
    #[arg(long, value_enum)]
    format: Format,
    /// Size of the image (UFS: also -s) [default: that of the block device, or
    /// of the file replaced with --force]
    #[arg(long, value_parser = parse_size)]
    size: Option<ByteLen>,
    /// UFS: size of the image; FAT: sectors per cluster
    #[arg(short = 's', value_name = "SIZE|COUNT", conflicts_with = "sectors_per_cluster")]
    short_s: Option<String>,
    /// UFS: fragment size; FAT: number of FATs
    #[arg(short = 'f', value_name = "SIZE|COUNT")]
    #[arg(conflicts_with_all = ["fragment_size", "fats"])]
    short_f: Option<String>,
    /// UFS: bytes of space per inode; FAT: volume ID, 8 hexadecimal digits
    #[arg(short = 'i', value_name = "SIZE|ID")]
    #[arg(conflicts_with_all = ["bytes_per_inode", "volume_id"])]
    short_i: Option<String>,
    /// Volume label (UFS: at most 31 bytes; FAT: at most 11 characters, also -n)
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// Identification of the volume: `random` replaces the second half of the 64
    /// bits that UFS has for it, as newfs does, and the 32 bits that FAT has
    /// [default: derived from label and size]
    #[arg(long, value_enum)]
    uuid: Option<Identification>,
    /// Replace the image if it exists, or overwrite the contents of the block device
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    ufs: FormatArgs<UfsMakeArgs>,
    #[command(flatten)]
    fat: FormatArgs<FatMakeArgs>,
}

/// What is said of an empty UFS image.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options for UFS images (as in newfs)")]
struct UfsMakeArgs {
    /// Block size in bytes, from 4096 to 65536 [default: 32768]
    #[arg(long, short = 'b', value_parser = parse_size)]
    block_size: Option<ByteLen>,
    /// Fragment size in bytes (-f): at least 512, and from one eighth of a block to a
    /// full block [default: 4096]
    #[arg(long, value_parser = parse_size)]
    fragment_size: Option<ByteLen>,
    /// Percentage of space kept free; below 8 the allocator optimizes for space
    /// [default: 8]
    #[arg(long, short = 'm', value_name = "PERCENT", value_parser = count::<u32>)]
    minfree: Option<u32>,
    /// What the allocator optimizes for [default: time]
    #[arg(long, short = 'o', value_enum)]
    optimize: Option<OptimizedFor>,
    /// Maximum number of blocks of a file in one cylinder group [default: one
    /// eighth of the block size in bytes]
    #[arg(long, short = 'e', value_name = "BLOCKS", value_parser = count::<u32>)]
    maxbpg: Option<u32>,
    /// Expected average file size, used to place directories [default: 16384]
    #[arg(long, short = 'g', value_parser = parse_size)]
    avgfilesize: Option<ByteLen>,
    /// Expected average number of files per directory [default: 64]
    #[arg(long, value_name = "FILES", value_parser = count::<u32>)]
    avgfpdir: Option<u32>,
    /// Bytes of space per inode (-i) [default: two fragments]
    #[arg(long, value_parser = parse_size)]
    bytes_per_inode: Option<ByteLen>,
    /// Maximum number of blocks in a cluster, up to 256 [default: 1M worth of
    /// blocks]
    #[arg(long, short = 'a', value_name = "BLOCKS", value_parser = count::<u32>)]
    maxcontig: Option<u32>,
    /// Enable soft updates
    #[arg(long, short = 'U')]
    soft_updates: bool,
    /// Which structures of UFS2 have check hashes: tools from before FreeBSD 13 change
    /// superblocks and inodes without renewing theirs
    #[arg(long, value_enum, value_name = "WHICH")]
    check_hashes: Option<Hashes>,
    /// Write a big-endian image, as used on SPARC and PowerPC
    #[arg(long)]
    big_endian: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Ufs1,
    Ufs2,
    Fat,
    Fat12,
    Fat16,
    Fat32,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Identification {
    /// Random numbers of the operating system
    Random,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum OptimizedFor {
    Time,
    Space,
}

pub(crate) fn run(args: &MkfsArgs, global: &Global) -> Result<ExitCode, Failure> {
    let format = args.output_format.map(Into::into);
    let target = Target::create(&args.image, args.force, format, NO_INPUTS)?;
    let size = size(args, &target)?;
    let make = Make::of(args, size)?;
    match &make {
        Make::Ufs(options) => target.refuse_blocks(options.fragment_size, "see --fragment-size")?,
        Make::Fat(options) => target.refuse_blocks(options.sector_size, "see --sector-size")?,
    }
    let device = target.device(size, &progress::shown(global))?;
    make.run(device.as_ref()).map_err(|error| match error {
        FsError::Invalid(what) => Failure::usage(what),
        other => Failure::from(other).about(args.image.display()),
    })?;
    target.finish()?;
    if !global.quiet || global.json {
        // The root directory.
        let written = Written::image(&args.image, 1)?;
        if args.uuid.is_some() { written.with_uuid(&Place::default())? } else { written }
            .tell(global);
    }
    Ok(ExitCode::SUCCESS)
}

/// Options of the volume.
enum Make {
    Ufs(MakeOptions),
    Fat(seekless_fat::MakeOptions),
}

impl Make {
    fn of(args: &MkfsArgs, size: ByteLen) -> Result<Self, Failure> {
        let time = match source_date_epoch()? {
            Some(secs) => Timestamp { secs, nanos: 0 },
            None => now(),
        };
        let Some(width) = args.format.fat() else {
            args.fat.refuse(FAT_IMAGES)?;
            return options(args, size, time).map(Self::Ufs);
        };
        args.ufs.refuse(UFS_IMAGES)?;
        let shorts = [&args.short_s, &args.short_f, &args.short_i];
        let label = args.label.as_bytes();
        let mut options = args.fat.options(width, size, label, shorts)?;
        options.time = time;
        options.id = match (args.uuid, args.fat.id(args.short_i.as_deref())?) {
            (Some(_), Some(_)) => {
                return Err(Failure::usage("--uuid and --volume-id do not go together"));
            }
            (_, Some(id)) => id,
            (Some(Identification::Random), None) => u32::from_ne_bytes(random()?),
            // Differs by time, as with mkfs.fat, and by label and size for volumes made in the same
            // second.
            (None, None) => {
                derived(label, size) ^ u32::try_from(time.secs & 0xFFFF_FFFF).unwrap_or(0)
            }
        };
        Ok(Self::Fat(options))
    }

    fn run(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        match self {
            Self::Ufs(options) => make(device, options).map(drop),
            Self::Fat(options) => {
                let made = seekless_fat::make(device, options)?;
                if made.is_ambiguous() {
                    warn_of_width(made.clusters);
                }
                Ok(())
            }
        }
    }
}

/// The size of the image: the one given, or that of the device or of the file to be replaced.
fn size(args: &MkfsArgs, target: &Target) -> Result<ByteLen, Failure> {
    let short = args.short_s.as_ref().filter(|_| args.format.fat().is_none());
    if let (Some(_), Some(_)) = (short, args.size) {
        return Err(Failure::usage("-s and --size are the same option for UFS images"));
    }
    if let Some(text) = short {
        return parse_size(text).map_err(Failure::usage);
    }
    if let Some(size) = args.size {
        return Ok(size);
    }
    if let Some(capacity) = target.capacity() {
        return Ok(capacity);
    }
    match seekless_images::device(&args.image, &Place::default()) {
        Ok(replaced) => Ok(replaced.len()),
        Err(_) => Err(Failure::usage("the size of the image is not given (use --size)")),
    }
}

/// A hash of label and size.
fn derived(label: &[u8], size: ByteLen) -> u32 {
    label.iter().chain(&size.get().to_le_bytes()).fold(0u32, |mark, &byte| {
        mark.rotate_left(5).wrapping_mul(31).wrapping_add(u32::from(byte))
    })
}

impl Format {
    /// The FAT width, `Some(None)` if mkfs.fat's rule chooses it; `None` for other formats.
    fn fat(self) -> Option<Option<FatWidth>> {
        match self {
            Self::Ufs1 | Self::Ufs2 => None,
            Self::Fat => Some(None),
            Self::Fat12 => Some(Some(FatWidth::Fat12)),
            Self::Fat16 => Some(Some(FatWidth::Fat16)),
            Self::Fat32 => Some(Some(FatWidth::Fat32)),
        }
    }
}

fn options(args: &MkfsArgs, size: ByteLen, time: Timestamp) -> Result<MakeOptions, Failure> {
    let ufs = &args.ufs;
    let small = |len: ByteLen| {
        u32::try_from(len.get()).map_err(|_| Failure::usage(format!("{len} is too large")))
    };
    let short = |text: &Option<String>, long: Option<ByteLen>| match text {
        Some(text) => parse_size(text).map(Some).map_err(Failure::usage),
        None => Ok(long),
    };
    let version = if args.format == Format::Ufs1 { Version::Ufs1 } else { Version::Ufs2 };
    let label = args.label.as_bytes().to_vec();
    // The second word distinguishes volumes made in the same second.
    let mark = match args.uuid {
        Some(Identification::Random) => u32::from_ne_bytes(random()?),
        None => derived(&label, size),
    };
    let id = [u32::try_from(time.secs & 0xFFFF_FFFF).unwrap_or(0), mark];
    let fragment_size = short(&args.short_f, ufs.fragment_size)?;
    let bytes_per_inode = short(&args.short_i, ufs.bytes_per_inode)?;
    let mut options = MakeOptions {
        big_endian: ufs.big_endian,
        block_size: small(ufs.block_size.unwrap_or(ByteLen::new(32_768)))?,
        fragment_size: small(fragment_size.unwrap_or(ByteLen::new(4096)))?,
        minfree: ufs.minfree.unwrap_or(8),
        optimization: match ufs.optimize {
            Some(OptimizedFor::Space) => Optimization::Space,
            Some(OptimizedFor::Time) | None => Optimization::Time,
        },
        maxbpg: ufs.maxbpg,
        avgfilesize: small(ufs.avgfilesize.unwrap_or(ByteLen::new(16_384)))?,
        avgfpdir: ufs.avgfpdir.unwrap_or(64),
        bytes_per_inode: bytes_per_inode.map(small).transpose()?,
        maxcontig: ufs.maxcontig,
        soft_updates: ufs.soft_updates,
        label,
        time,
        id,
        ..MakeOptions::new(version, size)
    };
    Hashes::apply(ufs.check_hashes, &mut options)?;
    Ok(options)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: i64::try_from(since.as_secs()).unwrap_or(0), nanos: since.subsec_nanos() }
}
