//! `seekless cp`: copies files out of an image.

use crate::args::{Global, OpenArgs, PlaceArgs, ReflinkArgs};
use crate::extract::{Extraction, Summary};
use crate::failure::{Failure, Kind};
use crate::say::say;
use clap::Args;
use seekless_fs::FileKind;
use seekless_fs::inspect::resolve;
use seekless_images::output::input_file;
use seekless_report::table::grouped;
use seekless_units::{ByteLen, format_size};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy files out of an image
///
/// Preserves modes, times, symlinks, hard links, holes and extended attributes
/// and, when run as root, owners and device nodes. Never writes outside DEST,
/// even if the image contains malicious names or symlinks.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless cp disk.img /etc/hostname .
  seekless cp -r disk.img /etc saved-etc
  seekless cp -r disk.img / rootfs")]
pub(crate) struct CpArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    /// File or directory to copy
    path: OsString,
    /// Destination: a new name, or an existing directory to copy into
    dest: PathBuf,
    /// Copy directories recursively
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    reflink: ReflinkArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &CpArgs, global: &Global) -> Result<ExitCode, Failure> {
    let image = seekless_images::open(&args.image, &args.place.place(), args.open.options())?;
    let path = args.path.as_bytes();
    let ino = resolve(image.as_ref(), path).map_err(Failure::from)?;
    let attr = image.attr(ino)?;
    if attr.kind == FileKind::Directory && !args.recursive {
        return Err(Failure::usage(format!("{} is a directory (use -r)", args.path.display())));
    }
    let (parent, name) = target(&args.dest, path)?;
    if let Some(name) = &name {
        refuse_to_replace(&parent.join(OsStr::from_bytes(name)), &args.image)?;
    }
    let mut extraction =
        Extraction::new((image.as_ref(), &args.image), &parent, args.reflink.mode())?;
    match name {
        Some(name) => extraction.copy(ino, &name)?,
        None => extraction.copy_contents(ino)?,
    }
    finish(&args.dest, &extraction.finish(&args.dest)?, global)
}

/// Refuses to remove the image itself, or a device, to make a file in its place.
fn refuse_to_replace(to: &Path, image: &Path) -> Result<(), Failure> {
    let Ok(there) = fs::symlink_metadata(to) else { return Ok(()) };
    let kind = there.file_type();
    if kind.is_block_device() || kind.is_char_device() {
        return Err(Failure::usage(format!("{} is a device", to.display())));
    }
    let is_image = input_file(image)
        .metadata()
        .is_ok_and(|image| (image.dev(), image.ino()) == (there.dev(), there.ino()));
    if is_image {
        return Err(Failure::usage(format!("{} is the image itself", to.display())));
    }
    Ok(())
}

/// The directory to copy into, and the name in it; no name for the contents of the image's root.
fn target(dest: &Path, path: &[u8]) -> Result<(PathBuf, Option<Vec<u8>>), Failure> {
    let last = path.split(|&byte| byte == b'/').rfind(|part| !part.is_empty() && *part != b".");
    if dest.is_dir() {
        return match last {
            Some(b"..") => Err(Failure::usage("a path must not end in '..'")),
            last => Ok((dest.to_path_buf(), last.map(<[u8]>::to_vec))),
        };
    }
    let name = dest.file_name().map(OsStr::as_bytes).map(<[u8]>::to_vec);
    let parent = dest.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    Ok((parent.to_path_buf(), name))
}

fn finish(dest: &Path, summary: &Summary, global: &Global) -> Result<ExitCode, Failure> {
    if global.json {
        let value = serde_json::json!({
            "path": dest.to_string_lossy(),
            "files": summary.files,
            "directories": summary.directories,
            "bytes": summary.bytes,
            "warnings": summary.warnings,
        });
        say!("{value}");
    } else {
        for warning in &summary.warnings {
            crate::say::warning!("{warning}");
        }
        if !global.quiet {
            let count = |count: u64, one: &str, many: &str| {
                format!("{} {}", grouped(count), if count == 1 { one } else { many })
            };
            say!(
                "{}: {}, {}, {}",
                dest.display(),
                format_size(ByteLen::new(summary.bytes)),
                count(summary.files, "file", "files"),
                count(summary.directories, "directory", "directories"),
            );
        }
    }
    match summary.skipped {
        0 => Ok(ExitCode::SUCCESS),
        count => Err(Failure::new(Kind::System, format!("{count} files were not copied"))),
    }
}
