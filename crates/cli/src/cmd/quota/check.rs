//! `seekless quota check`: usage in quota files against the usage of all files.

use super::{FileArgs, KindArgs};
use crate::args::{Global, PlaceArgs};
use crate::cmd::fsck::exit::{OPERATIONAL, USAGE, code};
use crate::failure::Failure;
use crate::say::{self, say};
use clap::Args;
use seekless_fs::check::Outcome;
use seekless_fs::quota::{OwnerUsage, QuotaComparison, QuotaDifference};
use seekless_images::quota::{compare, correct};
use seekless_report::table::counted;
use seekless_units::{ByteLen, format_size};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare quota files with the usage of all files, as quotacheck does, and correct them
#[derive(Args, Debug)]
#[command(after_help = "\
Without -y nothing is changed. With -y the image must not be in use; limits stay. On ext all of the
volume is checked, and -y is refused if it has other errors (`seekless check -p` corrects quota
files, too). On UFS with -y, quota files of the kinds that are given with -u and -g, and those that
are given by path, are made if they are missing.

Examples:
  seekless quota check disk.ufs
  seekless quota check -y disk.ufs
  seekless quota check -y -u -g disk.ufs
  seekless quota check --json disk.ufs | jq '.differences[].id'

Exit codes (those of fsck, as of `seekless check`):
  0   no differences
  1   differences were found and corrected
  4   differences were found and left uncorrected
  8   the image could not be checked or corrected
  16  wrong arguments")]
pub(super) struct QuotaCheckArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    /// Write the counted usage to the quota files
    #[arg(short = 'y', visible_short_alias = 'p', long)]
    yes: bool,
    #[command(flatten)]
    kinds: KindArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) fn run(args: &QuotaCheckArgs, global: &Global) -> ExitCode {
    say::go_on();
    match compared(args) {
        Ok(comparison) => {
            let outcome = match (comparison.is_clean(), args.yes) {
                (true, _) => Outcome::Clean,
                (false, true) => Outcome::Corrected,
                (false, false) => Outcome::Left,
            };
            if global.json {
                print_json(args, &comparison, outcome);
            } else {
                print(args, &comparison, outcome);
            }
            ExitCode::from(code(outcome))
        }
        Err(failure) => {
            failure.report(global.json);
            ExitCode::from(if failure.is_usage() { USAGE } else { OPERATIONAL })
        }
    }
}

fn compared(args: &QuotaCheckArgs) -> Result<QuotaComparison, Failure> {
    let (place, selection) = (args.place.place(), args.files.selection(args.kinds.kinds()));
    Ok(match args.yes {
        true => correct(&args.image, &place, &selection, seekless_serve::now())?,
        false => compare(&args.image, &place, &selection)?,
    })
}

fn print(args: &QuotaCheckArgs, comparison: &QuotaComparison, outcome: Outcome) {
    let done = if outcome == Outcome::Corrected { ": corrected" } else { "" };
    for (kind, why) in &comparison.unusable {
        let done = if done.is_empty() { "" } else { ": written" };
        say!("quotas of {}s: {why}{done}", kind.name());
    }
    let shown = |usage: OwnerUsage| {
        let size = format_size(ByteLen::new(usage.space));
        format!("{size} and {}", counted(usage.inodes, "inode"))
    };
    for QuotaDifference { kind, id, recorded, counted } in &comparison.differences {
        let (recorded, counted) = (shown(*recorded), shown(*counted));
        say!("{} {id}: has {recorded}, should be {counted}{done}", kind.name());
    }
    let verdict = match outcome {
        Outcome::Clean => "in order",
        Outcome::Corrected => "corrected; in order now",
        Outcome::Left => "not in order (correct with -y)",
    };
    let caveat = comparison.caveat.as_ref();
    let caveat =
        caveat.map_or(String::new(), |why| format!("; the volume should be checked first: {why}"));
    say!("{}: quotas {verdict}{caveat}", args.image.display());
}

fn print_json(args: &QuotaCheckArgs, comparison: &QuotaComparison, outcome: Outcome) {
    let usage = |usage: OwnerUsage| json!({ "space": usage.space, "inodes": usage.inodes });
    let difference = |it: &QuotaDifference| {
        json!({
            "kind": it.kind.name(),
            "id": it.id,
            "recorded": usage(it.recorded),
            "counted": usage(it.counted),
        })
    };
    let unusable = comparison.unusable.iter();
    let unusable = unusable.map(|(kind, why)| json!({ "kind": kind.name(), "why": why }));
    let value = json!({
        "image": args.image.to_string_lossy(),
        "outcome": match outcome {
            Outcome::Clean => "clean",
            Outcome::Corrected => "corrected",
            Outcome::Left => "left",
        },
        "compared": comparison.compared.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "unusable": unusable.collect::<Vec<_>>(),
        "differences": comparison.differences.iter().map(difference).collect::<Vec<_>>(),
        "caveat": comparison.caveat,
    });
    say!("{value}");
}
