//! `seekless check`: checks an image, and repairs it.

use crate::args::{Global, PlaceArgs};
use crate::cmd::fsck::exit::{OPERATIONAL, USAGE, code};
use crate::cmd::fsck::ext_args::E2fsckArgs;
use crate::failure::Failure;
use crate::progress;
use crate::say::{self, say};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use seekless_compose::check::{Examined, Mode, examine, examine_mounted, preen_mounted};
use seekless_compose::fsck::fsck;
use seekless_ext::VolumeState;
use seekless_formats::{Argument, EXT};
use seekless_fs::check::{Class, Finding, Outcome};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Check an image for consistency, and repair it
#[derive(Args, Debug)]
#[command(after_help = "\
Without options nothing is changed, as with -n.

Examples:
  seekless check disk.img
  seekless check -p disk.img
  seekless check -y disk.img
  seekless check --json disk.img | jq '.findings[].code'
  seekless check -y --lost free esp.img
  seekless check --background mnt
  seekless check --background -p mnt

Checks all inodes, names, bitmaps and counts of a UFS1, UFS2 or ext2/3/4 image,
in the five phases of fsck. Each finding has a code that is stable between
versions, and a class: `expected` if a crash may leave it (on ext, if e2fsck -p
repairs it), `unexpected` if only damage can explain it. Ext images are checked
as if their journal had been replayed.

-p repairs expected findings; if any finding is unexpected it stops and changes
nothing. -y also repairs damage: files without a name are reconnected in
/lost+found. If two files claim the same block, on UFS the second is cleared,
on ext each gets a copy. The journal of ext is replayed. The next run completes
a repair that was interrupted. An image that is mounted or being changed is not
repaired.

With --background a UFS volume is checked while seekless has it mounted with rw, as it is
at this moment: a snapshot, .snap/fsck_snapshot, is taken, checked and removed. Programs
go on writing. The directory .snap is made if there is none, and stays. With -p, what is
lost is released then: files without a name, links, inodes and blocks that nothing uses.
If anything else is wrong, nothing is changed, and the volume is marked for a check.

FAT images are checked in five phases of their own. In them, clusters that no file
has become files FSCKnnnn.REC in the root directory, or are freed with --lost free.
After a crash of a seekless mount with `softdep` or `sync` they are parts of files
that were being made or removed, and are freed unless --lost keep is given. If two
files claim the same cluster, the second is cut off there.

Called as fsck.ext4, e2fsck or fsck.fat (links to it), seekless takes the options of these
programs, and skips ext volumes that are marked clean.

Exit codes (those of fsck, for this command only):
  0   no errors
  1   errors were found and corrected
  4   errors were found and left uncorrected
  8   the image could not be checked or repaired
  16  wrong arguments")]
pub(crate) struct CheckArgs {
    /// Image file (raw or qcow2) or block device; with --background a directory
    image: PathBuf,
    /// Change nothing (the default)
    #[arg(short = 'n', long, conflicts_with_all = ["preen", "yes"])]
    no: bool,
    /// Repair only what a crash may leave; stop at anything else
    #[arg(short = 'p', visible_short_alias = 'a', long, conflicts_with = "yes")]
    preen: bool,
    /// Repair everything
    #[arg(short = 'y', long)]
    yes: bool,
    /// FAT: what a repair does with clusters that no file has
    /// [default: free after a crash of a mount with softdep or sync, else keep]
    #[arg(long, value_enum)]
    lost: Option<Lost>,
    /// Check the UFS volume that is mounted on the directory IMAGE, through a snapshot
    #[arg(long, conflicts_with_all = ["yes", "lost", "partition", "offset"])]
    background: bool,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    ext: E2fsckArgs,
}

/// What becomes of clusters without a name.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    /// Make files of them in the root directory
    Keep,
    /// Free them
    Free,
}

impl Lost {
    fn argument(self) -> Argument {
        Argument::new("lost", self.to_possible_value().as_ref().map(PossibleValue::get_name))
    }
}

fn mode_of(args: &CheckArgs) -> Mode {
    match (args.preen, args.yes) {
        (true, _) => Mode::Preen,
        (_, true) => Mode::Repair,
        _ => Mode::Check,
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Check => "check",
        Mode::Preen => "preen",
        Mode::Repair => "repair",
    }
}

/// Checks the image, and prints the result; the exit code.
fn checked(args: &CheckArgs, global: &Global) -> Result<u8, Failure> {
    let (image, place, mode) = (&args.image, args.place.place(), mode_of(args));
    let examined = if args.background {
        match mode {
            Mode::Check => examine_mounted(image)?,
            _ => preened_mounted(image, global)?,
        }
    } else if args.ext.is_empty() {
        let arguments: Vec<Argument> = args.lost.map(Lost::argument).into_iter().collect();
        examine(image, &place, mode, &arguments, None)?
    } else {
        let request = args.ext.request(image, &place, mode, None)?;
        let fscked = fsck(image, &place, &request, &|_| {})?;
        match fscked.examined {
            Some(examined) => examined,
            None => return Ok(print_journal(args, global, fscked.state.as_ref())),
        }
    };
    if global.json {
        print_json(args, &examined);
    } else {
        print(args, &examined);
    }
    Ok(code(examined.outcome))
}

/// Checks a mounted volume, and corrects it.
fn preened_mounted(mount: &Path, global: &Global) -> Result<Examined, Failure> {
    let bar = OnceCell::new();
    let examined = preen_mounted(mount, &|made, all| {
        bar.get_or_init(|| progress::count(global, all)).set_position(made);
    });
    if let Some(bar) = bar.get() {
        bar.finish_and_clear();
    }
    Ok(examined?)
}

/// Prints whether the journal has to be replayed, where nothing else was looked at.
fn print_journal(args: &CheckArgs, global: &Global, state: Option<&VolumeState>) -> u8 {
    let is_pending = state.is_some_and(|state| state.is_pending);
    if global.json {
        let image = args.image.to_string_lossy();
        let mode = mode_name(mode_of(args));
        say!("{}", json!({ "image": image, "mode": mode, "journal_pending": is_pending }));
    } else {
        let is = if is_pending { "has to be replayed" } else { "is empty" };
        say!("{}: the journal {is}", args.image.display());
    }
    0
}

pub(crate) fn run(args: &CheckArgs, global: &Global) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    say::go_on();
    Ok(match checked(args, global) {
        Ok(code) => {
            if args.ext.timed > 0 && !global.json {
                say!("time: {:.2}", began.elapsed().as_secs_f64());
            }
            ExitCode::from(code)
        }
        Err(failure) => {
            failure.report(global.json);
            ExitCode::from(if failure.is_usage() { USAGE } else { OPERATIONAL })
        }
    })
}

fn class(finding: &Finding) -> &'static str {
    match finding.class {
        Class::Expected => "expected",
        Class::Unexpected => "unexpected",
    }
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Clean => "clean",
        Outcome::Corrected => "corrected",
        Outcome::Left => "left",
    }
}

fn print_json(args: &CheckArgs, examined: &Examined) {
    let Examined { report, outcome, .. } = examined;
    let finding = |(number, finding): (usize, &Finding)| -> Value {
        json!({
            "number": number + 1,
            "phase": finding.problem.phase,
            "code": finding.code(),
            "class": class(finding),
            "repaired": finding.repaired,
            "what": finding.what,
            "values": finding.values.map(|values| json!({ "old": values.old, "new": values.new })),
            "location": {
                "structure": finding.location.structure,
                "group": finding.location.group.map(|group| group.get()),
                "inode": finding.location.ino.map(|ino| ino.get()),
                "block": finding.location.block.map(|block| block.get()),
                "offset": finding.location.offset,
            },
        })
    };
    let value = json!({
        "image": args.image.to_string_lossy(),
        "mode": mode_name(mode_of(args)),
        "outcome": outcome_name(*outcome),
        "clean": *outcome != Outcome::Left,
        "findings": report.findings.iter().enumerate().map(finding).collect::<Vec<_>>(),
        "findings_left_out": report.more,
        "unexpected": report.unexpected,
        "inodes": report.tally.inodes,
        "directories": report.tally.directories,
        "blocks": report.tally.blocks,
        "stale_quotas": examined.has_stale_quotas,
    });
    say!("{value}");
}

fn unexpected(count: u64) -> String {
    format!("{count} unexpected {}", if count == 1 { "finding" } else { "findings" })
}

fn print(args: &CheckArgs, examined: &Examined) {
    let Examined { format, report, outcome, writes, has_stale_quotas } = examined;
    for (number, finding) in (1..).zip(&report.findings) {
        let (class, code) = (class(finding), finding.code());
        let done = if finding.repaired { ": repaired" } else { "" };
        say!("{number}. {code} ({class}): {} ({}){done}", finding.what, finding.location);
    }
    if report.more > 0 {
        say!("... and {} more findings", report.more);
    }
    let tally = &report.tally;
    let verdict = match (outcome, mode_of(args), report.unexpected) {
        (Outcome::Clean, ..) => "in order".to_string(),
        (Outcome::Corrected, ..) => "repaired; in order now".to_string(),
        (Outcome::Left, Mode::Check, _) if args.background => {
            "not in order: unmount it, and check its image".to_string()
        }
        (Outcome::Left, ..) if args.background => {
            "not in order; nothing was corrected, and it is marked for a check: unmount it, and \
             check its image"
                .to_string()
        }
        (Outcome::Left, Mode::Preen, 1..) => {
            let done =
                if *writes == 0 { "nothing was repaired" } else { "not everything was repaired" };
            format!("unexpected inconsistency; {done} (repair with -y)")
        }
        (Outcome::Left, Mode::Check, 0) => {
            "consistent with an unclean shutdown (repair with -p)".to_string()
        }
        (Outcome::Left, Mode::Check, n) => {
            format!("damaged: {} (repair with -y)", unexpected(n))
        }
        (Outcome::Left, ..) => "not everything could be repaired".to_string(),
    };
    say!(
        "{}: {verdict}; {} inodes, {} of them directories, {} {} in files",
        args.image.display(),
        tally.inodes,
        tally.directories,
        tally.blocks,
        format.unit
    );
    if *has_stale_quotas {
        say!("usage in quota files is not that of the files (see seekless quota check)");
    }
    if args.ext.verbose && format.is(&EXT) {
        say!("{} inodes have blocks that do not follow each other", tally.fragmented);
    }
}
