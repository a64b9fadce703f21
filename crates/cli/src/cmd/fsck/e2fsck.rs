//! The binary in place of e2fsck.

use super::ext_args::E2fsckArgs;
use super::refusal::{needs_answers, unsupported};
use super::{exit, show};
use crate::failure::Failure;
use crate::say::say;
use crate::source::source_date_epoch;
use clap::Parser;
use seekless_compose::check::Mode;
use seekless_compose::fsck::{Notice, fsck, name};
use seekless_fs::Timestamp;
use seekless_images::{Place, in_use};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Check an ext2, ext3 or ext4 volume, with the options of e2fsck
#[derive(Parser, Debug)]
#[command(
    name = "e2fsck",
    disable_version_flag = true,
    disable_help_flag = true,
    args_override_self = true,
    max_term_width = 100,
    after_help = "\
This is seekless in the place of e2fsck. A volume that is marked clean is not checked
without -f, unless a check is due.

Exit codes: 0 no errors, 1 errors were corrected, 4 errors were left, 8 not checked,
16 wrong arguments"
)]
pub(super) struct E2fsck {
    /// Block device or image file
    #[arg(required_unless_present = "version")]
    device: Option<PathBuf>,
    /// Repair errors that need no decision; stop at others
    #[arg(short = 'p', visible_short_alias = 'a')]
    preen: bool,
    /// Change nothing
    #[arg(short = 'n')]
    no: bool,
    /// Repair everything
    #[arg(short = 'y')]
    yes: bool,
    /// Print the version
    #[arg(short = 'V')]
    version: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    ext: E2fsckArgs,
}

fn mode_of(args: &E2fsck) -> Result<Mode, Failure> {
    match (args.preen, args.no, args.yes) {
        (true, false, false) => Ok(Mode::Preen),
        (false, true, false) => Ok(Mode::Check),
        (false, false, true) => Ok(Mode::Repair),
        (false, false, false) => Err(needs_answers()),
        _ => Err(unsupported("-p/-a, -n and -y", "only one of them may be given")),
    }
}

/// The present time, or that of SOURCE_DATE_EPOCH.
fn now() -> Result<Timestamp, Failure> {
    let clock = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    };
    let secs = source_date_epoch()?.unwrap_or_else(clock);
    Ok(Timestamp { secs, nanos: 0 })
}

/// Warns of a mounted volume that is only looked at, and refuses to repair one.
fn refuse_mounted(device: &Path, mode: Mode) -> Result<(), Failure> {
    if in_use::mounted_on(device).is_none() {
        return Ok(());
    }
    let shown = device.display();
    if mode == Mode::Check {
        say!("Warning!  {shown} is mounted.");
        return Ok(());
    }
    Err(unsupported(&shown.to_string(), "is mounted; it is not checked"))
}

pub(super) fn run(args: &E2fsck) -> Result<u8, Failure> {
    if args.version {
        say!("seekless {} in place of e2fsck", env!("CARGO_PKG_VERSION"));
        return Ok(0);
    }
    let Some(device) = &args.device else { return Err(Failure::usage("no device")) };
    let (mode, place) = (mode_of(args)?, Place::default());
    let mut request = args.ext.request(device, &place, mode, Some(now()?))?;
    request.is_root = in_use::is_read_only_root(device);
    if !request.is_root {
        refuse_mounted(device, mode)?;
    }
    let began = Instant::now();
    let name = name(device, &place);
    let notice = |notice: Notice| match notice {
        Notice::Recovering => say!("{name}: recovering journal"),
        Notice::JournalLeft => {
            say!("Warning: skipping journal recovery because doing a read-only filesystem check.")
        }
        Notice::Forced(due) => say!("{name} {due}, check forced."),
    };
    let fscked = fsck(device, &place, &request, &notice)?;
    let mut code = show::print(&name, mode, &fscked, args.ext.verbose);
    let is_changed = fscked.examined.as_ref().is_some_and(|examined| examined.writes > 0);
    if request.is_root && is_changed {
        say!("{name}: ***** REBOOT SYSTEM *****");
        code |= exit::REBOOT;
    }
    if args.ext.timed > 0 {
        say!("time: {:.2}", began.elapsed().as_secs_f64());
    }
    Ok(code)
}
