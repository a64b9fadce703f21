//! `seekless build`: an ext image from a tree.

use crate::args::{Global, OpenArgs};
use crate::cmd::trace;
use crate::failure::Failure;
use crate::output::{Output, directory_of};
use crate::progress;
use crate::say::say;
use crate::source::{self, Purpose, SourceArgs, source_date_epoch};
use clap::{Args, ValueEnum};
use seekless_device::FileDevice;
use seekless_ext::{BuildOptions, Builder, Features};
use seekless_fs::plan::Plan;
use seekless_fs::source::Source;
use seekless_fs::{FsError, Timestamp};
use seekless_layout::{by_path, planner};
use seekless_units::{ByteLen, parse_size};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Build an ext4 image from a directory, a tar, an OCI layout or another image
#[derive(Args, Debug)]
#[command(after_help = "\
The image has the features that mke2fs gives an ext4 file system today and is
as small as its contents allow, unless --size says otherwise. The same source
gives the same bytes. The output file appears when it is complete; it is never
seen half written.

Examples:
  seekless build rootfs/ -o disk.img
  seekless build rootfs.tar.zst -o disk.img --size 2G --label root
  zcat layer.tar.gz | seekless build - -o disk.img
  seekless build rootfs/ -o disk.img --trace boot.trace
  seekless build oci-layout/ -o disk.img --exclude 'usr/share/doc/*'
  seekless build old.img -o new.img --features ^has_journal --inode-size 512")]
pub(crate) struct BuildArgs {
    /// Directory, tar archive (plain, gzip, zstd), OCI image layout, image, or
    /// - for a tar on standard input
    source: PathBuf,
    /// The image to write
    #[arg(short, long, value_name = "IMG")]
    output: PathBuf,
    /// Lay what these traces touch first, in the order of first touch
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// With --trace: the hot part begins on a multiple of this
    #[arg(long, value_parser = parse_size, default_value = "512K", requires = "trace")]
    chunk: ByteLen,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
    /// Size of the volume [default: fitted to the contents]
    #[arg(long, value_parser = parse_size)]
    size: Option<ByteLen>,
    /// Which features to start from
    #[arg(long, value_enum, default_value_t = Family::Ext4)]
    format: Family,
    /// Bytes in a block: 1024 to 65536
    #[arg(long, short = 'b', value_parser = parse_size, default_value = "4096")]
    block_size: ByteLen,
    /// Bytes in an inode: 128 to the block size [default: 256]
    #[arg(long, short = 'I', value_parser = parse_size)]
    inode_size: Option<ByteLen>,
    /// How many inodes [default: by size and contents]
    #[arg(long, short = 'N')]
    inodes: Option<u32>,
    /// Features to add, or with ^ to leave out, as mke2fs -O takes them
    #[arg(long, short = 'O', value_name = "LIST", default_value = "")]
    features: String,
    /// Volume label, at most 16 bytes
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// Volume UUID [default: derived from the contents]
    #[arg(long, short = 'U', value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Size of the journal [default: by the volume's size]
    #[arg(long, value_parser = parse_size)]
    journal_size: Option<ByteLen>,
    /// Percent of the blocks that only root may use
    #[arg(long, short = 'm', value_parser = parse_percent, default_value = "5")]
    reserved: u32,
    #[command(flatten)]
    tree: SourceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Ext2,
    Ext3,
    Ext4,
}

impl BuildArgs {
    fn options(&self) -> Result<BuildOptions, Failure> {
        let (base, inode_size) = match self.format {
            Family::Ext2 => (Features::EXT2, 256),
            Family::Ext3 => (Features::EXT3, 256),
            Family::Ext4 => (Features::EXT4, 256),
        };
        let small = |len: ByteLen| {
            u32::try_from(len.get()).map_err(|_| Failure::usage(format!("{len} is too large")))
        };
        Ok(BuildOptions {
            size: self.size,
            block_size: small(self.block_size)?,
            inode_size: self.inode_size.map_or(Ok(inode_size), small)?,
            inodes: self.inodes,
            features: base.apply(&self.features).map_err(wrong)?,
            label: self.label.clone().into_bytes(),
            uuid: self.uuid,
            journal_size: self.journal_size,
            reserved: self.reserved,
            made: source_date_epoch()?.map(|secs| Timestamp { secs, nanos: 0 }),
            ..BuildOptions::default()
        })
    }
}

pub(crate) fn run(args: &BuildArgs, global: &Global) -> Result<ExitCode, Failure> {
    let options = args.options()?;
    options.check().map_err(wrong)?;
    refuse_output_in_source(args)?;
    let output = Output::create(&args.output, args.force)?;
    let purpose = Purpose::Build { latest: source_date_epoch()? };
    let source = source::open(&args.source, &args.tree, args.open, purpose)?;
    let size = write_image(args, source.as_ref(), &options, &output, global)?;
    output.finish()?;
    if global.json {
        let nodes = source.tree().nodes().len();
        say!("{}", serde_json::json!({ "bytes": size.get(), "files": nodes }));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_image(
    args: &BuildArgs,
    source: &dyn Source,
    options: &BuildOptions,
    output: &Output,
    global: &Global,
) -> Result<ByteLen, Failure> {
    let about = |error: FsError| wrong(error).about(args.source.display());
    let builder = Builder::new(source, options).map_err(about)?;
    let mut touches = Vec::new();
    for path in &args.trace {
        let events = trace::load(path)?;
        touches.extend(by_path::touches(&events, source.tree(), options.block_size));
    }
    let align = (args.chunk.get() / u64::from(options.block_size)).max(1);
    let plan = planner::plan(builder.demand(), &builder.space(), &touches, align).map_err(about)?;
    write_built(&builder, &plan, &args.source, output, &args.output, global)?;
    Ok(builder.size())
}

/// Writes a planned image to an output file.
pub(crate) fn write_built(
    builder: &Builder<'_>,
    plan: &Plan,
    source: &Path,
    output: &Output,
    path: &Path,
    global: &Global,
) -> Result<(), Failure> {
    let clamped = builder.clamped_times();
    if clamped > 0 {
        eprintln!(
            "seekless: {clamped} files have times that their inodes cannot hold; they get the nearest"
        );
    }
    let file = output.file()?;
    let io = |error: std::io::Error| Failure::io(path.display(), &error);
    file.set_len(builder.size().get()).map_err(io)?;
    let device = FileDevice::from_file(file, true).map_err(io)?;
    let bar = progress::bytes(global, builder.size());
    builder.write(plan, &device, &|bytes| bar.inc(bytes)).map_err(|error: FsError| {
        let whose = if matches!(error, FsError::Device(_)) { path } else { source };
        Failure::from(error).about(whose.display())
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// An image within its own source would find its predecessor there, and grow
/// with every build.
fn refuse_output_in_source(args: &BuildArgs) -> Result<(), Failure> {
    let source = args.source.canonicalize();
    let output = directory_of(&args.output).canonicalize();
    match (source, output) {
        (Ok(source), Ok(output)) if source.is_dir() && output.starts_with(&source) => {
            let (output, source) = (args.output.display(), args.source.display());
            Err(Failure::usage(format!(
                "{output}: the image would lie inside its source, {source}"
            )))
        }
        _ => Ok(()),
    }
}

/// What cannot be had is a wrong argument, unless it is known by name.
fn wrong(error: FsError) -> Failure {
    match error {
        FsError::Invalid(why) => Failure::usage(why),
        other => Failure::from(other),
    }
}

fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let bad = || format!("'{text}' is not a UUID");
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let value = u128::from_str_radix(&digits, 16).map_err(|_| bad())?;
    if digits.len() == 32 { Ok(value.to_be_bytes()) } else { Err(bad()) }
}

/// Percent with up to two decimals, in hundredths.
fn parse_percent(text: &str) -> Result<u32, String> {
    let bad = || format!("'{text}' is not a percentage from 0 to 50");
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| bad())?;
    if (0.0..=50.0).contains(&value) { Ok((value * 100.0).round() as u32) } else { Err(bad()) }
}
