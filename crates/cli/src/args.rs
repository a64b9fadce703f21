//! Arguments that several commands take.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use seekless_compose::freed::Freed;
use seekless_fs::format::OpenOptions;
use seekless_images::{OutputFormat, Place, ReflinkMode};
use seekless_layout::planner::{Storage, StorageKind};
use seekless_units::{ByteLen, parse_size};
use std::str::FromStr;

/// A whole number in plain digits, without a sign: a plus would mean an addition, as in `--size`.
pub(crate) fn count<T: FromStr>(text: &str) -> Result<T, String> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain);
    number.ok_or_else(|| format!("'{text}' is not a whole number, or is out of range"))
}

/// A size that is more than 0, such as that of memory.
pub(crate) fn some_size(text: &str) -> Result<ByteLen, String> {
    let size = parse_size(text)?;
    if size == ByteLen::ZERO { Err("must be more than 0".into()) } else { Ok(size) }
}

/// Options every command takes.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Global {
    /// Print results as JSON on standard output, errors and warnings as JSON on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Do not show progress bars, nor the line that says what was written
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// How to open an image.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct OpenArgs {
    /// Continue reading when a checksum does not match
    #[arg(long)]
    pub(crate) ignore_checksums: bool,
    /// Do not replay the journal; show the image as it is
    #[arg(long)]
    pub(crate) skip_journal: bool,
}

/// The blocks of files that are gone from an image.
#[derive(ValueEnum, Clone, Copy, Debug)]
#[value(rename_all = "lower")]
pub(crate) enum FreedBlocks {
    /// Filled with zeros
    Zero,
    /// As they were
    Keep,
}

impl From<FreedBlocks> for Freed {
    fn from(blocks: FreedBlocks) -> Self {
        match blocks {
            FreedBlocks::Zero => Self::Zero,
            FreedBlocks::Keep => Self::Keep,
        }
    }
}

/// Where in an image the file system is.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct PlaceArgs {
    /// Partition of a disk image: its number, name or UUID, the label of its file
    /// system, or root
    #[arg(long, value_name = "N|LABEL|root")]
    pub(crate) partition: Option<String>,
    /// Byte of the image that the file system begins with
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "partition")]
    pub(crate) offset: Option<ByteLen>,
}

impl OpenArgs {
    /// The options as the formats take them.
    pub(crate) fn options(self) -> OpenOptions {
        OpenOptions { ignore_checksums: self.ignore_checksums, skip_journal: self.skip_journal }
    }
}

impl PlaceArgs {
    /// Whether only a part of the image is meant.
    pub(crate) fn is_part(&self) -> bool {
        self.place().is_part()
    }

    /// The place in the image.
    pub(crate) fn place(&self) -> Place {
        Place { partition: self.partition.clone(), offset: self.offset }
    }
}

/// The format of an image that is written.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum OutputFormatArg {
    /// The bytes of the image
    Raw,
    /// A qcow2 image, converted by qemu-img
    Qcow2,
    /// An Android sparse image, as fastboot takes it
    Simg,
    /// A fixed VHD image, as Azure and Hyper-V take it
    Vhd,
    /// A VHDX image, converted by qemu-img
    Vhdx,
    /// A VMDK image, converted by qemu-img
    Vmdk,
}

impl From<OutputFormatArg> for OutputFormat {
    fn from(arg: OutputFormatArg) -> Self {
        match arg {
            OutputFormatArg::Raw => Self::Raw,
            OutputFormatArg::Qcow2 => Self::Qcow2,
            OutputFormatArg::Simg => Self::Simg,
            OutputFormatArg::Vhd => Self::Vhd,
            OutputFormatArg::Vhdx => Self::Vhdx,
            OutputFormatArg::Vmdk => Self::Vmdk,
        }
    }
}

/// The storage that a layout is for.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StorageArg {
    /// A disk, which seeks: large files that traces read in small pieces stay whole
    #[default]
    Disk,
    /// A volume that is fetched chunk by chunk: all that traces read moves
    Lazy,
    /// A solid-state drive: as for a disk, but a piece costs less
    Ssd,
}

impl StorageArg {
    /// This storage, with chunks of some size.
    pub(crate) fn with(self, chunk: ByteLen) -> Storage {
        let kind = match self {
            Self::Disk => StorageKind::Disk,
            Self::Lazy => StorageKind::Lazy,
            Self::Ssd => StorageKind::Ssd,
        };
        Storage { kind, chunk }
    }
}

/// Whether contents are cloned instead of copied.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct ReflinkArgs {
    /// Clone contents, so that they take no more space and nearly no time, if the files they come
    /// from and the file written are on one file system that can (Btrfs, XFS)
    #[arg(long, value_enum, default_value_t = ReflinkArg::Auto, value_name = "WHEN")]
    reflink: ReflinkArg,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum ReflinkArg {
    /// Clone all that can be cloned, and copy the rest
    Auto,
    /// Fail if nothing can be cloned
    Always,
    /// Copy everything
    Never,
}

impl ReflinkArgs {
    /// Refuses the option where no file is written.
    pub(crate) fn refuse(self) -> Result<(), Failure> {
        if self.reflink == ReflinkArg::Auto {
            return Ok(());
        }
        Err(Failure::usage("--reflink is for an image that is written with -o"))
    }

    /// The mode of an output.
    pub(crate) fn mode(self) -> ReflinkMode {
        match self.reflink {
            ReflinkArg::Auto => ReflinkMode::Auto,
            ReflinkArg::Always => ReflinkMode::Always,
            ReflinkArg::Never => ReflinkMode::Never,
        }
    }
}
