//! `seekless crash replay`: searches the crash states of a log of dm-log-writes.

use super::judge::{SearchArgs, coverage_json, print_coverage};
use super::target::FormatTarget;
use crate::args::{Global, some_size};
use crate::failure::{Failure, Kind};
use crate::progress;
use crate::say::say;
use clap::Args;
use seekless_crash::campaign::lines;
use seekless_crash::dm_log_writes::{self, LogError};
use seekless_crash::explore::Exploration;
use seekless_crash::oracle::Promises;
use seekless_crash::replay::{BASE_MARK, replay};
use seekless_crash::{Extent, Log, Search, Step, Target};
use seekless_device::{BlockDevice, DeviceError, FileDevice, Overlay};
use seekless_formats::claim;
use seekless_fs::FsError;
use seekless_fs::format::OpenOptions;
use seekless_images::Place;
use seekless_units::{ByteLen, Lba};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Recover and check every crash state of a log that dm-log-writes wrote
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless crash replay log.img --exhaustive
  seekless crash replay log.img --image before.img --start-mark mounted --sample 1000 --json

LOG was written by the kernel's log-writes target or by `crash run --log-out`. It
is replayed on the given image, or on a device of zeros. States are examined from
the start mark on (default: the mark `base`, if present). Anything that no crash
may leave, or that a preen does not repair, is a finding. What the workload was
promised (by fsync, for example) is not known here. The format is that of the
image at the end of the log.

Exit codes: 0 if all states pass, 1 if any state fails, otherwise as for all
commands.")]
pub(crate) struct ReplayArgs {
    /// The log: a file or a device
    log: PathBuf,
    /// Contents of the device before the log
    #[arg(long, value_name = "IMG")]
    image: Option<PathBuf>,
    /// Examine states from this mark on
    #[arg(long, value_name = "MARK")]
    start_mark: Option<String>,
    /// Examine states up to this mark
    #[arg(long, value_name = "MARK")]
    end_mark: Option<String>,
    /// Accept bitmaps that mark used blocks or inodes as free; recovery rebuilds
    /// them
    #[arg(long)]
    loose_bitmaps: bool,
    /// Maximum size of the writes kept in memory
    #[arg(long, value_name = "SIZE", value_parser = some_size, default_value = "1G")]
    memory: ByteLen,
    #[command(flatten)]
    search: SearchArgs,
}

pub(crate) fn run(args: &ReplayArgs, global: &Global) -> Result<ExitCode, Failure> {
    let mut log = read(args)?;
    let from = marks(args, &mut log)?;
    let base = base(args, &log)?;
    let search = Search { from, ..args.search.search(Extent::Exhaustive) };
    let target = target_of(&log, &base)?;
    log.whole = target.whole();
    let bar = progress::count(global, 0);
    let promises = Promises { order: !args.loose_bitmaps, contents: true, one_name: false };
    let found = replay(&target, promises, &log, &base, &search, &|_| bar.tick())
        .map_err(|error| Failure::from(FsError::from(error)).about(args.log.display()))?;
    bar.finish_and_clear();
    if global.json {
        print_json(args, &log, &search, &found);
    } else {
        print(&search, &found);
    }
    Ok(if found.failing == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn read(args: &ReplayArgs) -> Result<Log, Failure> {
    seekless_images::refuse_directory(&args.log)?;
    let path = args.log.display();
    let device = FileDevice::open(&args.log).map_err(|error| Failure::io(path, &error))?;
    dm_log_writes::read(&device, args.memory).map_err(|error| {
        let failure = match error {
            LogError::Device(error) => Failure::from(FsError::from(error)),
            LogError::Magic | LogError::Version(_) => {
                Failure::new(Kind::Unsupported, error.to_string())
            }
            LogError::Memory { .. } => {
                Failure::new(Kind::NoSpace, format!("{error} (increase --memory)"))
            }
            _ => Failure::new(Kind::Corrupt, error.to_string()),
        };
        failure.about(args.log.display())
    })
}

/// Truncates the log at the end mark, and returns the position of the start mark.
fn marks(args: &ReplayArgs, log: &mut Log) -> Result<usize, Failure> {
    let missing =
        |mark: &str| Failure::usage(format!("no mark `{mark}`")).about(args.log.display());
    if let Some(mark) = &args.end_mark {
        let end = log.behind_mark(mark).ok_or_else(|| missing(mark))?;
        log.steps.truncate(end);
    }
    match &args.start_mark {
        Some(mark) => log.behind_mark(mark).ok_or_else(|| missing(mark)),
        None => Ok(log.behind_mark(BASE_MARK).unwrap_or(0)),
    }
}

/// Contents of the device before the log: an image, or zeros.
fn base(args: &ReplayArgs, log: &Log) -> Result<Arc<dyn BlockDevice>, Failure> {
    if let Some(path) = &args.image {
        return Ok(seekless_images::device(path, &Place::default())?);
    }
    Ok(Arc::new(Zeros(ByteLen::new(log.reach().get().next_multiple_of(65536)))))
}

/// A device of zeros, without memory for them.
struct Zeros(ByteLen);

impl BlockDevice for Zeros {
    fn len(&self) -> ByteLen {
        self.0
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let end = at.to_bytes().get() + buf.len() as u64;
        if end > self.0.get() {
            let len = buf.len() as u64;
            return Err(DeviceError::OutOfRange { at, len, device_len: self.0 });
        }
        buf.fill(0);
        Ok(())
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The version of a format that the image at the end of the log is.
fn target_of(log: &Log, base: &Arc<dyn BlockDevice>) -> Result<FormatTarget, Failure> {
    let end = Arc::new(Overlay::new(Arc::clone(base), 4096));
    for step in &log.steps {
        if let Step::Write { at, bytes, .. } = step {
            end.write(*at, bytes).map_err(|error| Failure::from(FsError::from(error)))?;
        }
    }
    let known = claim(end.as_ref())?;
    let image = (known.reader.open)(end, OpenOptions::default())?;
    let name = image.geometry().format.to_lowercase();
    let version = known.version(&name).ok_or_else(|| {
        Failure::new(Kind::Unsupported, format!("the log ends with an image of {name}"))
    })?;
    Ok(FormatTarget::new(known, version, Vec::new()))
}

fn print(search: &Search, found: &Exploration) {
    let verdict = match found.failing {
        0 => "all hold".to_string(),
        failing => {
            let codes: Vec<String> =
                found.codes.iter().map(|(code, count)| format!("{code} {count}")).collect();
            format!("{failing} do not hold: {}", codes.join(", "))
        }
    };
    say!("{} states; {verdict}", found.coverage.states);
    print_coverage(&found.coverage, search);
    if let Some(first) = &found.first {
        let steps = &first.epoch.steps;
        say!(
            "The first such state is within the writes of steps {} to {} of the log:",
            steps.start,
            steps.end
        );
        for line in lines(&first.violations) {
            say!("    {line}");
        }
    }
}

fn print_json(args: &ReplayArgs, log: &Log, search: &Search, found: &Exploration) {
    let first = found.first.as_ref().map(|first| {
        let violations: Vec<_> = first
            .violations
            .iter()
            .map(|violation| json!({ "code": violation.code, "what": violation.what }))
            .collect();
        let steps = &first.epoch.steps;
        json!({ "first_step": steps.start, "end_step": steps.end, "violations": violations })
    });
    let value = json!({
        "log": args.log.to_string_lossy(),
        "steps": log.steps.len(),
        "writes": log.writes(0),
        "from_step": search.from,
        "holds": found.failing == 0,
        "states": found.coverage.states,
        "failing": found.failing,
        "violations": found.codes,
        "coverage": coverage_json(&found.coverage, search),
        "first": first,
    });
    say!("{value}");
}
