//! Disks of several partitions, as the files of repart.d(5) define them.
//!
//! - [`Definition`]: one partition; `parse` reads its file
//! - `arrange`: how much of the disk each gets
//! - [`DiskBuild`]: the file systems, hash trees and the table are written
//!
//! The subset of the settings is that of `docs/definitions.md`; all others are refused by name.

mod arrange;
mod parse;
mod swap;
mod write;

pub use parse::{Contents, Definition, FileSystem, Sizes, VerityRole};
pub use seekless_partition::Architecture;
pub use write::{DiskBuild, OptionsOf, PartitionWritten};

use crate::amendments::list_error;
use seekless_fat::{BuildOptions, Losses, MakeOptions};
use seekless_fs::Timestamp;
use seekless_fs::source::Source;
use seekless_images::Error;
use seekless_source::LayeredSource;
use seekless_units::ByteLen;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sizes and places of partitions are multiples of this many bytes, as systemd-repart has them.
const GRAIN: u64 = 4096;

/// The first partition begins here, in bytes; without a size, the disk has as much behind the last.
const FIRST: u64 = 1 << 20;

/// Bytes at the end of a disk for the copy of the table: 32 sectors of entries and its header.
const TAIL: u64 = 33 * 512;

/// Reads the files of a directory whose names end in `.conf`, in the order of their names.
///
/// # Errors
/// [`ErrorKind::Corrupt`](seekless_images::ErrorKind) for a malformed line, with its number;
/// [`ErrorKind::Unsupported`](seekless_images::ErrorKind) for a setting that is not supported, and
/// for directories of drop-ins; [`ErrorKind::Usage`](seekless_images::ErrorKind) for a directory
/// without definitions; [`ErrorKind::System`](seekless_images::ErrorKind) for one that cannot be
/// read.
pub fn read(dir: &Path, architecture: Architecture) -> Result<Vec<Definition>, Error> {
    let mut paths = entries(dir)?;
    if let Some(dropins) = paths.iter().find(|path| ends_in(path, "d") && path.is_dir()) {
        let what = format!("{}: directories of drop-ins are not read", dropins.display());
        return Err(Error::new(seekless_images::ErrorKind::Unsupported, what));
    }
    paths.retain(|path| is_definition(path));
    if paths.is_empty() {
        return Err(Error::usage(format!("{}: no file ends in .conf", dir.display())));
    }
    let definitions = paths.iter().map(|path| parse::read(path, architecture));
    let mut definitions: Vec<Definition> =
        definitions.collect::<Result<_, _>>().map_err(list_error)?;
    parse::pair(&definitions).map_err(list_error)?;
    parse::name(&mut definitions);
    Ok(definitions)
}

/// A source without files, for definitions that copy none.
///
/// # Errors
/// None: those of sources laid over one another.
pub fn no_source() -> Result<Arc<dyn Source + Send>, Error> {
    Ok(Arc::new(LayeredSource::new(Vec::new())?))
}

/// The options of FAT for a partition from which a machine boots, with the width that mkfs.fat
/// chooses for the size. Firmware ignores owners and modes. `made` is the time of creation; without
/// one it is the latest time of the files.
#[must_use]
pub fn boot_volume(made: Option<Timestamp>) -> BuildOptions {
    let options = BuildOptions::new(MakeOptions::new(None, ByteLen::ZERO));
    let losses = Losses { owners: true, modes: true, ..Losses::default() };
    BuildOptions { losses, made, ..options }
}

/// The files of definitions in a directory.
///
/// # Errors
/// [`ErrorKind::System`](seekless_images::ErrorKind) if the directory cannot be read.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = entries(dir)?;
    paths.retain(|path| is_definition(path));
    Ok(paths)
}

/// The paths in a directory, sorted.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let io = |error| Error::io(dir.display(), &error);
    let entries = std::fs::read_dir(dir).map_err(io)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(io)?;
    paths.sort_unstable();
    Ok(paths)
}

fn is_definition(path: &Path) -> bool {
    ends_in(path, "conf")
}

fn ends_in(path: &Path, end: &str) -> bool {
    path.extension() == Some(OsStr::new(end))
}
