//! `seekless growfs`: makes a UFS image larger, or a mounted UFS volume.

use crate::args::{Global, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use clap::Args;
use seekless_fs::growth::Growth;
use seekless_images::growth;
use seekless_units::{ByteLen, format_size, parse_size};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a UFS image or a mounted UFS volume larger, as growfs does
#[derive(Args, Debug)]
#[command(after_help = "\
The file system grows to the size of its file, device or partition, or to that of --size. A
regular file that is shorter is extended by a hole. growfs of FreeBSD counts sectors of 512
bytes in -s; here a number without a unit counts bytes.

With --offset, --size says where it ends. On a disk with a partition table --partition selects
it; a BSD label in front of it is obeyed.

An image must not be in use: for one that `seekless mount -o rw` has mounted, give the
directory of the mount, and files stay open while it grows; -N writes its pending changes. A
volume that was not cleanly unmounted, or has snapshots, a journal, or damage to the parts that
would change, is left as it is. A last cylinder group without room for data is left out, as by
growfs. If the command is interrupted, `seekless check -y` completes the growth, or takes it
back; no file is lost.

Examples:
  seekless growfs ufs.img --size 64M
  seekless growfs ufs.img -s 2G -N
  seekless growfs ufs.img -s 96M --json
  seekless growfs /dev/vdb1
  seekless growfs /mnt -s 4G
  seekless growfs bsd.img --partition 1")]
pub(crate) struct GrowfsArgs {
    /// Image file (raw), block device, or the directory of a mount
    image: PathBuf,
    /// Size of the file system, such as 2G [default: that of its file, device or partition]
    #[arg(short = 's', long, value_parser = parse_size)]
    size: Option<ByteLen>,
    /// Print the growth, and write nothing
    #[arg(short = 'N', long)]
    dry_run: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &GrowfsArgs, global: &Global) -> Result<ExitCode, Failure> {
    let place = args.place.place();
    let growth = if args.dry_run {
        growth::plan(&args.image, &place, args.size)?
    } else {
        growth::grow(&args.image, &place, args.size, seekless_serve::now())?
    };
    if global.json {
        say!("{}", in_json(args, &growth));
    } else if args.dry_run || !global.quiet {
        lines(args, &growth).iter().for_each(|line| say!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(args: &GrowfsArgs, growth: &Growth) -> Vec<String> {
    let image = args.image.display();
    let grows = if args.dry_run { "would grow" } else { "has grown" };
    let (before, after) = (format_size(growth.before), format_size(growth.after));
    let (old, new) = (growth.groups_before, growth.groups_after);
    let mut lines = vec![format!("{image}: {grows} from {before} to {after}")];
    lines.push(match new - old {
        0 => format!("  the last of {old} cylinder groups becomes larger"),
        more => format!("  {new} cylinder groups, {more} of them new"),
    });
    if growth.moves_summary {
        lines.push("  the summary of cylinder groups moves into new space".into());
    }
    if growth.unused > ByteLen::ZERO {
        let unused = growth.unused;
        let why = "too few for a fragment, or for a further cylinder group";
        lines.push(format!("  {unused} bytes at the end stay unused: {why}"));
    }
    lines
}

fn in_json(args: &GrowfsArgs, growth: &Growth) -> serde_json::Value {
    json!({
        "path": args.image.to_string_lossy(),
        "written": !args.dry_run,
        "bytes_before": growth.before.get(),
        "bytes": growth.after.get(),
        "groups_before": growth.groups_before,
        "groups": growth.groups_after,
        "summary_moves": growth.moves_summary,
        "unused_bytes": growth.unused.get(),
    })
}
