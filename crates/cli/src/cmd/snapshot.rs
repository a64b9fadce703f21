//! `seekless snapshot`: the snapshots that a UFS volume has.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use crate::show;
use crate::written::Written;
use clap::{Args, Subcommand};
use seekless_fs::Timestamp;
use seekless_fs::snapshot::SnapshotFile;
use seekless_images::snapshot;
use seekless_units::format_size;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Take, list or remove snapshots of a UFS image
#[derive(Args, Debug)]
#[command(after_help = "\
A snapshot is a file in which a volume keeps its own state of an earlier moment, as mksnap_ffs of
FreeBSD makes it. Commands that read images take IMG@SNAPSHOT for that state, where SNAPSHOT is
the path of the file in the volume, or its name in the directory /.snap.

Examples:
  seekless snapshot take disk.ufs daily
  seekless snapshot list disk.ufs
  seekless snapshot list --json disk.ufs
  seekless ls -l disk.ufs@daily /etc
  seekless cp -r disk.ufs@/var/.snap/weekly /etc saved-etc
  seekless check disk.ufs@daily
  seekless mount disk.ufs@daily mnt
  seekless snapshot rm disk.ufs daily
  seekless snapshot rm disk.ufs --all")]
pub(crate) struct SnapshotCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    Take(TakeSnapshotArgs),
    List(ListSnapshotsArgs),
    Rm(RemoveSnapshotsArgs),
}

/// Take a snapshot of an image, or of a mounted one
#[derive(Args, Debug)]
#[command(after_help = "\
An image must not be in use, and must be in order. Of a volume that seekless has mounted, give the
directory of the mount; programs may go on writing. The snapshot takes the blocks of its map and
copies of the heads of all cylinder groups; from then on, a mount with rw (soft updates only)
copies each block into it before the block is overwritten for the first time. A volume has twenty
snapshots at most.

Examples:
  seekless snapshot take disk.ufs daily
  seekless snapshot take disk.ufs /var/.snap/weekly
  seekless snapshot take mnt daily")]
struct TakeSnapshotArgs {
    /// Image file (raw), block device, or directory of a mounted volume
    image: PathBuf,
    /// Path of the snapshot in the volume, or its name in /.snap, which is made if missing
    #[arg(value_name = "SNAPSHOT")]
    name: OsString,
    #[command(flatten)]
    place: PlaceArgs,
}

/// List the snapshots of an image, or of a mounted one, oldest first
#[derive(Args, Debug)]
#[command(after_help = "\
For each snapshot: when it was made (UTC), the bytes that only it takes, its inode and its path.
A snapshot that no directory has any more has no path. Of a volume that seekless has mounted with
rw, give the directory of the mount; a path in a directory that the caller may not read is left
out.

Examples:
  seekless snapshot list disk.ufs
  seekless snapshot list --json disk.ufs | jq -r .path
  seekless snapshot list mnt")]
struct ListSnapshotsArgs {
    /// Image file (raw or qcow2), block device, or directory of a mounted volume
    image: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

/// Remove snapshots of an image, or of a mounted one
#[derive(Args, Debug)]
#[command(after_help = "\
The other snapshots of the volume stay as they are, and take over the blocks that they need. An
image must not be in use, and must be in order. Of a volume that seekless has mounted with rw,
give the directory of the mount: programs go on writing, and a snapshot that is open is not
removed. If the removal is interrupted, it can be started again; a file that is no longer listed
is an ordinary one, of a mounted volume an empty one.

With --keep-files the snapshots become ordinary files with holes, also where the volume is not in
order: a repair may then change everything.

Examples:
  seekless snapshot rm disk.ufs daily
  seekless snapshot rm disk.ufs daily /var/.snap/weekly
  seekless snapshot rm disk.ufs --all
  seekless snapshot rm mnt daily
  seekless snapshot rm disk.ufs --all --keep-files")]
struct RemoveSnapshotsArgs {
    /// Image file (raw), block device, or directory of a mounted volume
    image: PathBuf,
    /// Path of a snapshot in the volume, or its name in /.snap
    #[arg(value_name = "SNAPSHOT", required_unless_present = "all")]
    names: Vec<OsString>,
    /// Remove all snapshots
    #[arg(long, conflicts_with = "names", group = "every")]
    all: bool,
    /// Make them ordinary files; the volume may be damaged
    #[arg(long, requires = "every")]
    keep_files: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(command: &SnapshotCommand, global: &Global) -> Result<ExitCode, Failure> {
    match &command.action {
        Action::Take(args) => take(args, global),
        Action::List(args) => list(args, global),
        Action::Rm(args) => remove(args, global),
    }
}

fn take(args: &TakeSnapshotArgs, global: &Global) -> Result<ExitCode, Failure> {
    let (place, name) = (args.place.place(), args.name.as_bytes());
    let ino = match args.image.is_dir() {
        true => snapshot::take_mounted(&args.image, name)?,
        false => snapshot::take(&args.image, &place, name, seekless_serve::now())?,
    };
    if !global.quiet || global.json {
        Written::file(&args.image).with("inode", u64::from(ino.get())).tell(global);
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(args: &RemoveSnapshotsArgs, global: &Global) -> Result<ExitCode, Failure> {
    let place = args.place.place();
    let names: Vec<_> = args.names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let names = (!args.all).then_some(&names[..]);
    let removed = match args.keep_files {
        true => snapshot::release(&args.image, &place)?,
        false if args.image.is_dir() => snapshot::remove_mounted(&args.image, names)?,
        false => snapshot::remove(&args.image, &place, names, seekless_serve::now())?,
    };
    if !global.quiet || global.json {
        Written::file(&args.image).with("removed", removed).tell(global);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListSnapshotsArgs, global: &Global) -> Result<ExitCode, Failure> {
    let listed = match args.image.is_dir() {
        true => snapshot::list_mounted(&args.image)?,
        false => snapshot::list(&args.image, &args.place.place(), args.open.options())?,
    };
    for found in listed {
        if global.json {
            say!("{}", in_json(&found));
        } else {
            say!("{}", line(&found));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn in_json(found: &SnapshotFile) -> serde_json::Value {
    let path = found.path.as_ref().map(|path| String::from_utf8_lossy(path));
    json!({
        "path": path,
        "inode": found.ino.get(),
        "made": found.made,
        "held_bytes": found.held.get(),
    })
}

fn line(found: &SnapshotFile) -> String {
    let made = show::time(Timestamp { secs: found.made, nanos: 0 });
    let path = found.path.as_ref().map_or_else(|| "-".into(), |path| show::name(path));
    let held = format_size(found.held);
    format!("{made}  {held:>8}  {:>8}  {path}", found.ino)
}
