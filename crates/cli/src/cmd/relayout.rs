//! `seekless relayout`: moves files of a mounted file system by traces.

mod report;
mod xfs;

use crate::args::{Global, StorageArg};
use crate::cmd::optimize::warn_of_others;
use crate::failure::{Failure, Kind};
use crate::interrupt::uninterrupted;
use crate::progress;
use clap::Args;
use seekless_compose::traces;
use seekless_host::mounts;
use seekless_images::Progress;
use seekless_layout::score::parse_chunk;
use seekless_online::relayout::{Broken, Costs, Job, Target};
use seekless_units::{ByteLen, parse_size};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes that may be moved for each seek saved: about as many as a disk transfers during a seek.
const SEEK_BYTES: u64 = 1 << 20;

/// Move files of a mounted ext4 or XFS so that data used together is stored together
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless record --mount / -o job.trace -- /srv/bin/job
  seekless relayout / --trace job.trace --dry-run
  seekless relayout / --trace job.trace
  seekless relayout /srv --trace day.trace --trace night.trace --budget 2G

The kernel moves the blocks while files are in use (ext4: EXT4_IOC_MOVE_EXT, XFS:
XFS_IOC_COMMIT_RANGE): ranges of files that the traces access are brought together in one
region, in the order of first access; on ext4, what lies there makes way. Files are whole
at any moment, also if the command is killed or the machine stops. Contents, inode numbers
and times do not change.

XFS must have the feature exchange (mkfs.xfs -i exchange=1), and Linux be 6.12 or later.
Where free blocks are taken its allocator decides.

Directories, inodes, and programs that are running stay where they are; what they cost is
printed. On an unmounted volume, `seekless optimize --in-place` moves directories too, and
`seekless optimize -o` inodes.

While it runs, free blocks are held by a file without a name; a sixteenth of the
available space is left to others, and at least 64M, or an eighth where that is less.
Needs root.

docs/relayout.md describes what is moved, and how.")]
pub(crate) struct RelayoutArgs {
    /// Mount point of an ext4 or XFS, or any path on it
    #[arg(value_name = "MOUNTPOINT")]
    mount: PathBuf,
    /// Trace to optimize the layout for (repeatable)
    #[arg(long, required = true, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Only print what would be moved and gained
    #[arg(long)]
    dry_run: bool,
    /// Move at most so many bytes, those accessed first before all others
    /// [default: three times the bytes that the traces access; on XFS, all of these]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    budget: Option<ByteLen>,
    /// Align the start of the region to a multiple of this size: the unit in which a
    /// lazily loaded volume is fetched
    #[arg(long, value_parser = parse_chunk, default_value = "512K", value_name = "SIZE")]
    chunk: ByteLen,
    /// The storage that the volume lies on
    #[arg(long = "for", value_enum, value_name = "STORAGE", default_value_t)]
    storage: StorageArg,
}

/// Whether a plan saves at least one seek for each [`SEEK_BYTES`] moved. Other files among the free
/// blocks leave gaps in the new layout; with as many gaps as the old one it gains nothing.
fn is_worth_it(moved: u64, before: &Costs, after: &Costs) -> bool {
    let saved = before.seeks().saturating_sub(after.seeks());
    saved > 0 && saved >= moved / SEEK_BYTES
}

/// The failure of an interrupted relayout, with the bytes moved so far.
fn broken(broken: Broken) -> Failure {
    let moved = ByteLen::new(broken.moved);
    broken.failure.hint(format!("{moved} bytes were moved; all files are whole")).into()
}

pub(crate) fn run(args: &RelayoutArgs, global: &Global) -> Result<ExitCode, Failure> {
    // Before anything is set up: a signal during setup must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let mount = mounts::holding(&args.mount)?;
    match mount.fs_type.as_str() {
        "xfs" => return xfs::run(args, mount, &mut signals, global),
        "ext4" | "ext3" => {}
        kind => {
            let what = format!("is on {kind}; only files of a mounted ext4 or XFS can be moved");
            return Err(Failure::new(Kind::Unsupported, what).about(args.mount.display()));
        }
    }
    let target = Target::new(&args.mount)?;
    let traces = traces::load_all(&args.trace)?;
    let job = Job {
        lay: &traces,
        judge: &traces,
        storage: args.storage.with(args.chunk),
        budget: args.budget,
        kept: BTreeMap::new(),
        is_worth_it: &is_worth_it,
    };
    let seen = job.look(&target)?;
    warn_of_others(&args.mount, &args.trace, &traces, &seen.replays);
    let outcome = if args.dry_run {
        job.foresee(&target, &seen)?
    } else {
        let bar = progress::shown(global);
        let done = job.carry_out(&target, seen, &mut || uninterrupted(&mut signals), &bar);
        bar.end();
        done.map_err(broken)?
    };
    report::print(args, &outcome, global);
    Ok(ExitCode::SUCCESS)
}
