//! `seekless mkfs`: an empty UFS image.

use crate::args::Global;
use crate::failure::Failure;
use crate::output::Output;
use crate::source::source_date_epoch;
use crate::uuid::random;
use crate::written::Written;
use clap::{ArgAction, Args, ValueEnum};
use seekless_device::FileDevice;
use seekless_ffs::{MakeOptions, Optimization, Version, make};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, parse_size};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Create an empty UFS image, with the options of newfs
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Short options are those of newfs: -h is the average number of files in a
directory, and only --help prints this text. The file system is clean and has an
empty root directory. Its creation time is the current time, or that of the
environment variable SOURCE_DATE_EPOCH (seconds since 1970): with it, the same
options give the same bytes.

Examples:
  seekless mkfs --format ufs2 --size 1G disk.img
  seekless mkfs --format ufs1 -s 40G -b 8192 -f 1024 -L ports disk.img
  seekless mkfs --format ufs2 -s 8G -U -o space -m 5 disk.img
  seekless mkfs --format ufs2 -s 1G --uuid random disk.img")]
pub(crate) struct MkfsArgs {
    /// The image to write
    image: PathBuf,
    /// Format of the file system
    #[arg(long, value_enum)]
    format: Format,
    /// Size of the image [default: size of the file replaced with --force]
    #[arg(long, short = 's', value_parser = parse_size)]
    size: Option<ByteLen>,
    /// Block size in bytes, from 4096 to 65536
    #[arg(long, short = 'b', value_parser = parse_size, default_value = "32768")]
    block_size: ByteLen,
    /// Fragment size in bytes: at least 512, and from one eighth of a block to a
    /// full block
    #[arg(long, short = 'f', value_parser = parse_size, default_value = "4096")]
    fragment_size: ByteLen,
    /// Percentage of space kept free; below 8 the allocator optimizes for space
    #[arg(long, short = 'm', value_name = "PERCENT", default_value = "8")]
    minfree: u32,
    /// What the allocator optimizes for
    #[arg(long, short = 'o', value_enum, default_value_t = Spare::Time)]
    optimize: Spare,
    /// Maximum number of blocks of a file in one cylinder group [default: one
    /// eighth of the block size in bytes]
    #[arg(long, short = 'e', value_name = "BLOCKS")]
    maxbpg: Option<u32>,
    /// Expected average file size, used to place directories
    #[arg(long, short = 'g', value_parser = parse_size, default_value = "16384")]
    avgfilesize: ByteLen,
    /// Expected average number of files per directory
    #[arg(long, short = 'h', value_name = "FILES", default_value = "64")]
    avgfpdir: u32,
    /// Bytes of space per inode [default: two fragments]
    #[arg(long, short = 'i', value_parser = parse_size)]
    bytes_per_inode: Option<ByteLen>,
    /// Maximum number of blocks in a cluster, up to 256 [default: 1 MiB worth of
    /// blocks]
    #[arg(long, short = 'a', value_name = "BLOCKS")]
    maxcontig: Option<u32>,
    /// Volume label (at most 31 bytes)
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// Identification of the volume: `random` replaces the second half of the 64
    /// bits that UFS has for it, as newfs does [default: derived from label and size]
    #[arg(long, value_enum)]
    uuid: Option<Identification>,
    /// Enable soft updates
    #[arg(long, short = 'U')]
    soft_updates: bool,
    /// Write a big-endian image, as used on SPARC and PowerPC
    #[arg(long)]
    big_endian: bool,
    /// Replace the image if it exists
    #[arg(long)]
    force: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Ufs1,
    Ufs2,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Identification {
    /// Random numbers of the operating system
    Random,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Spare {
    Time,
    Space,
}

pub(crate) fn run(args: &MkfsArgs, global: &Global) -> Result<ExitCode, Failure> {
    let output = Output::create(&args.image, args.force)?;
    let size = match args.size {
        Some(size) => size,
        None => length_of_old(args)?,
    };
    let options = options(args, size)?;
    let file = output.file()?;
    file.set_len(size.get()).map_err(|error| Failure::io(args.image.display(), &error))?;
    let io = |error| Failure::io(args.image.display(), &error);
    let device = FileDevice::from_file(file, true).map_err(io)?;
    make(&device, &options).map_err(|error| match error {
        FsError::Invalid(what) => Failure::usage(what),
        other => other.into(),
    })?;
    output.finish()?;
    if !global.quiet || global.json {
        // The root directory.
        let written = Written::image(&args.image, 1)?;
        if args.uuid.is_some() { written.with_uuid()? } else { written }.tell(global);
    }
    Ok(ExitCode::SUCCESS)
}

fn length_of_old(args: &MkfsArgs) -> Result<ByteLen, Failure> {
    match std::fs::metadata(&args.image) {
        Ok(meta) => Ok(ByteLen::new(meta.len())),
        Err(_) => Err(Failure::usage("the size of the image is not given (use --size)")),
    }
}

fn options(args: &MkfsArgs, size: ByteLen) -> Result<MakeOptions, Failure> {
    let small = |len: ByteLen| {
        u32::try_from(len.get()).map_err(|_| Failure::usage(format!("{len} is too large")))
    };
    let version = match args.format {
        Format::Ufs1 => Version::Ufs1,
        Format::Ufs2 => Version::Ufs2,
    };
    let time = match source_date_epoch()? {
        Some(secs) => Timestamp { secs, nanos: 0 },
        None => now(),
    };
    let label = args.label.as_bytes().to_vec();
    // The second word tells volumes made in the same second apart.
    let derived = label.iter().chain(&size.get().to_le_bytes()).fold(0u32, |mark, &byte| {
        mark.rotate_left(5).wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let mark = match args.uuid {
        Some(Identification::Random) => u32::from_ne_bytes(random()?),
        None => derived,
    };
    let id = [u32::try_from(time.secs & 0xFFFF_FFFF).unwrap_or(0), mark];
    Ok(MakeOptions {
        big_endian: args.big_endian,
        block_size: small(args.block_size)?,
        fragment_size: small(args.fragment_size)?,
        minfree: args.minfree,
        optimization: match args.optimize {
            Spare::Time => Optimization::Time,
            Spare::Space => Optimization::Space,
        },
        maxbpg: args.maxbpg,
        avgfilesize: small(args.avgfilesize)?,
        avgfpdir: args.avgfpdir,
        bytes_per_inode: args.bytes_per_inode.map(small).transpose()?,
        maxcontig: args.maxcontig,
        soft_updates: args.soft_updates,
        label,
        time,
        id,
        ..MakeOptions::new(version, size)
    })
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: i64::try_from(since.as_secs()).unwrap_or(0), nanos: since.subsec_nanos() }
}
