//! `seekless snapshot`: the snapshots that a UFS volume has.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use crate::show;
use clap::{Args, Subcommand};
use seekless_fs::Timestamp;
use seekless_fs::snapshot::SnapshotFile;
use seekless_images::snapshot;
use seekless_units::format_size;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the snapshots of a UFS image
#[derive(Args, Debug)]
#[command(after_help = "\
A snapshot is a file in which a volume keeps its own state of an earlier moment; mksnap_ffs of
FreeBSD makes them. Commands that read images take IMG@SNAPSHOT for that state, where SNAPSHOT
is the path of the file in the volume, or its name in the directory /.snap.

Examples:
  seekless snapshot list disk.ufs
  seekless snapshot list --json disk.ufs
  seekless ls -l disk.ufs@daily /etc
  seekless cp -r disk.ufs@/var/.snap/weekly /etc saved-etc
  seekless check disk.ufs@daily
  seekless mount disk.ufs@daily mnt")]
pub(crate) struct SnapshotCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    List(ListArgs),
}

/// List the snapshots of an image, oldest first
#[derive(Args, Debug)]
#[command(after_help = "\
For each snapshot: when it was made (UTC), the bytes that only it takes, its inode and its path.
A snapshot that no directory has any more has no path.

Examples:
  seekless snapshot list disk.ufs
  seekless snapshot list --json disk.ufs | jq -r .path")]
struct ListArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(command: &SnapshotCommand, global: &Global) -> Result<ExitCode, Failure> {
    let Action::List(args) = &command.action;
    for found in snapshot::list(&args.image, &args.place.place(), args.open.options())? {
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
