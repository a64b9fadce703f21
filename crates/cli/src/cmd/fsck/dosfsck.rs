//! The binary in place of fsck.fat.

use super::exit;
use super::refusal::{needs_answers, unsupported};
use crate::cmd::ls;
use crate::failure::Failure;
use crate::say::say;
use clap::{ArgAction, Parser};
use seekless_compose::check::{Mode, examine};
use seekless_formats::{Argument, FAT, to_check};
use seekless_images::Place;
use std::path::PathBuf;

/// Check a FAT volume, with the options of fsck.fat
#[derive(Parser, Debug)]
#[command(
    name = "fsck.fat",
    disable_version_flag = true,
    disable_help_flag = true,
    args_override_self = true,
    max_term_width = 100,
    after_help = "\
This is seekless in the place of fsck.fat.

Exit codes: 0 no errors, 1 errors were corrected, 4 errors were left, 8 not checked,
16 wrong arguments"
)]
pub(super) struct Dosfsck {
    /// Block device or image file
    device: PathBuf,
    /// Repair everything; -p and -y are the same
    #[arg(short = 'a', visible_short_aliases = ['p', 'y'])]
    auto: bool,
    /// Change nothing
    #[arg(short = 'n')]
    no: bool,
    /// Make files of clusters that no file has (the default, except after a crash of a mount by
    /// seekless)
    #[arg(short = 'f')]
    salvage: bool,
    /// List paths first
    #[arg(short = 'l')]
    list: bool,
    /// Print each finding's code
    #[arg(short = 'v')]
    verbose: bool,
    /// Without effect: a repair always ends with a check
    #[arg(short = 'V')]
    verify: bool,
    /// Without effect: changes are always written at once
    #[arg(short = 'w')]
    write: bool,
    /// Without effect: short names are not decoded
    #[arg(short = 'c', value_name = "CODEPAGE", hide = true)]
    codepage: Option<u32>,
    #[arg(short = 'r', hide = true)]
    ask: bool,
    #[arg(short = 'A', hide = true)]
    atari: bool,
    #[arg(short = 'b', hide = true)]
    boot_only: bool,
    #[arg(short = 'd', hide = true, value_name = "PATH")]
    drop: Vec<PathBuf>,
    #[arg(short = 'F', hide = true, value_name = "NUMBER")]
    fat: Option<u32>,
    #[arg(short = 'S', hide = true)]
    spaces: bool,
    #[arg(short = 't', hide = true)]
    bad_clusters: bool,
    #[arg(short = 'u', hide = true, value_name = "PATH")]
    undelete: Vec<PathBuf>,
    #[arg(short = 'U', hide = true)]
    upper: bool,
    #[arg(long, hide = true, value_name = "TYPE")]
    variant: Option<String>,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

/// Refuses options for work that is not supported.
fn refuse(args: &Dosfsck) -> Result<(), Failure> {
    let is_standard = |variant: &str| ["auto", "standard", "dos"].contains(&variant);
    let options = [
        (args.ask, "-r", "repairs that ask are not supported"),
        (args.atari, "-A", "the variant of Atari is not supported"),
        (args.boot_only, "-b", "a check of the boot sector alone is not supported"),
        (!args.drop.is_empty(), "-d", "dropping files is not supported"),
        (args.fat.is_some(), "-F", "the choice of a FAT is not supported"),
        (args.spaces, "-S", "spaces in short names are not judged"),
        (args.bad_clusters, "-t", "searching for bad clusters is not supported"),
        (!args.undelete.is_empty(), "-u", "undeleting files is not supported"),
        (args.upper, "-U", "labels in lower case are not judged"),
        (
            args.variant.as_deref().is_some_and(|variant| !is_standard(variant)),
            "--variant",
            "only the standard variant is supported",
        ),
    ];
    options
        .into_iter()
        .find(|(is_given, ..)| *is_given)
        .map_or(Ok(()), |(_, option, what)| Err(unsupported(option, what)))
}

pub(super) fn run(args: &Dosfsck) -> Result<u8, Failure> {
    refuse(args)?;
    let mode = match (args.auto, args.no) {
        (_, true) => Mode::Check,
        (true, _) => Mode::Repair,
        _ => return Err(needs_answers()),
    };
    let (device, place) = (&args.device, Place::default());
    let looked = seekless_images::device_in_use(device, &place)?;
    if !to_check(looked.as_ref()).is(&FAT) {
        return Err(unsupported(&device.display().to_string(), "no FAT file system was found"));
    }
    drop(looked);
    if args.list {
        // Damage ends the list, and is found by the check.
        if let Err(failure) = ls::list_all(device) {
            failure.report(false);
        }
    }
    let lost = args.salvage.then(|| Argument::new("lost", Some("keep")));
    let examined = examine(device, &place, mode, lost.as_slice(), None)?;
    for finding in &examined.report.findings {
        let code = if args.verbose { format!(" [{}]", finding.code()) } else { String::new() };
        let done = if finding.repaired { "  Repaired." } else { "" };
        say!("{}: {}.{done}{code}", finding.location, finding.what);
    }
    if examined.report.more > 0 {
        say!("... and {} more findings", examined.report.more);
    }
    let tally = &examined.report.tally;
    say!("{}: {} files, {} {}", device.display(), tally.inodes, tally.blocks, examined.format.unit);
    Ok(exit::code(examined.outcome))
}
