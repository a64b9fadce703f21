//! `seekless age`: simulates the long use of a file system.

mod image;
mod mounted;
mod show;

use crate::args::{Global, PlaceArgs, ReflinkArgs, count};
use crate::failure::{Failure, Kind};
use crate::progress;
use crate::say::say;
use clap::Args;
use seekless_fs::FsError;
use seekless_lab::LabError;
use seekless_lab::age::subject::Subject;
use seekless_lab::age::{AgeError, Aged, End, Profile, Settings, age, profile};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Age a file system: create, grow and delete files as a profile describes
#[derive(Args, Debug)]
#[command(after_help = "\
An image (UFS, ext or FAT) is aged by seekless's own file system engine in
virtual time. With --mounted, any file system mounted by the kernel is aged instead, with
real data in a new directory on it. The same seed gives the same operations and,
on an image, the same bytes. Until the requested fullness is reached, files are
only added; after that, the files due to be deleted next are deleted early to
make room. docs/ageing.md describes profiles and the layout score.

Profiles: packages, mail, build, git, server, or a file (a name with a dot or a
slash). Hard links of a profile are left out, and counted, on FAT.

Examples:
  seekless age disk.img --profile mail --ops 100000 --fullness 0.8 --seed 1
  seekless age disk.img -o aged.img --profile git --ops 50000 --plot age.html
  seekless age disk.img --ops 20000 --mount-options policy=depth,blocks=next-free
  seekless age card.img --profile server --ops 20000 --mount-options clusters=random
  seekless age cloud.img --partition root --into old -o aged.qcow2 --ops 20000
  seekless age --mounted /mnt --profile build --ops 100000 --json
  seekless age --show-profile mail > mine.toml

Ctrl-C ends a run after the current operation and leaves a consistent, clean
image. If a run was killed, repair its image with `seekless check -p`.")]
pub(crate) struct AgeArgs {
    /// Image to age: a file (raw; qcow2 with -o), or a block device; in place unless -o is
    /// given
    #[arg(required_unless_present_any = ["mounted", "show_profile"])]
    image: Option<PathBuf>,
    /// Age the file system mounted on DIR, in a new directory `aged` on it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "output", "mount_options",
          "partition", "offset"], group = "in_directory")]
    mounted: Option<PathBuf>,
    /// Allow --mounted to name any directory; the file system that contains it is
    /// filled, even the root file system
    #[arg(long, requires = "in_directory")]
    any_directory: bool,
    /// Write an aged copy and leave the image unchanged: a file (qcow2 if its name ends in
    /// .qcow2), or a block device
    #[arg(short, long, value_name = "NEW", group = "copied")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists, or overwrite the contents of the block device
    #[arg(long, requires = "copied")]
    force: bool,
    #[command(flatten)]
    reflink: ReflinkArgs,
    /// Workload profile: packages, mail, build, git, server, or a file
    #[arg(long, value_name = "PROFILE", default_value = "packages")]
    profile: String,
    /// Number of operations to perform (files created, appended to, truncated, linked,
    /// renamed and removed; directories created and removed)
    #[arg(long, value_name = "N", required_unless_present = "show_profile", value_parser = count::<u64>)]
    ops: Option<u64>,
    /// Target fullness, as a share of the space available to users (as df shows
    /// it)
    #[arg(long, value_name = "SHARE", default_value = "0.8", value_parser = parse_share)]
    fullness: f64,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of samples to take during the run
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: u32,
    /// Directory to work in; it must be empty or not exist yet [default: the root
    /// of an image, or `aged` on a mounted file system]
    #[arg(long, value_name = "NAME")]
    into: Option<String>,
    /// Policies, update discipline and cache of the engine, as for `mount -o rw`
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Vec<String>,
    /// Write a plot of the run to FILE (.svg or .html)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print a built-in profile
    #[arg(long, value_name = "NAME", conflicts_with_all = ["image", "mounted", "any_directory",
          "output", "force", "profile", "ops", "fullness", "seed", "samples", "into",
          "mount_options", "plot", "partition", "offset"])]
    show_profile: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    let share = share.map_err(|_| format!("'{text}' is not a valid share (try 0.8 or 80%)"))?;
    if (0.02..=0.99).contains(&share) { Ok(share) } else { Err("must be from 0.02 to 0.99".into()) }
}

impl From<AgeError> for Failure {
    fn from(error: AgeError) -> Self {
        match error {
            AgeError::FileSystem(error) => error.into(),
            AgeError::TooFull { .. } => Self::new(Kind::NoSpace, error.to_string()),
        }
    }
}

/// A finished run, with the figures of the command itself.
struct Outcome {
    aged: Aged,
    /// Free extents before and after; `None` for a mounted file system.
    free: Option<[show::FreeExtents; 2]>,
    took: Duration,
}

pub(crate) fn run(args: &AgeArgs, global: &Global) -> Result<ExitCode, Failure> {
    if let Some(name) = &args.show_profile {
        let text = profile::text(name)?;
        if global.json {
            say!("{}", crate::show::json_of_toml(text, name)?);
        } else {
            say!("{}", text.trim_end());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let profile = Some(Path::new(&args.profile)).filter(|_| is_file(&args.profile));
    let images = [&args.image, &args.output].into_iter().flatten().map(|path| &**path);
    let others: Vec<&Path> = images.chain(profile).collect();
    // Opened before the run, which may take hours: a bad path fails at once.
    let plot = args.plot.as_deref().map(|path| show::Plot::new(path, &others)).transpose()?;
    let profile = load(&args.profile)?;
    if let Some(into) = &args.into
        && (into.is_empty() || into.contains('/') || into == "." || into == "..")
    {
        return Err(Failure::usage(format!("--into {into}: invalid file name")));
    }
    // Before anything is written: a signal during the run must find its handler.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::io("signals", &error))?;
    }
    let run = Run { args, global, profile: &profile, stop: &stop };
    let (subject, outcome) = match (&args.mounted, &args.image) {
        (Some(dir), _) => (dir, mounted::run(&run, dir)?),
        (None, Some(image)) => (image, image::run(&run, image)?),
        (None, None) => return Err(Failure::usage("an image or --mounted DIR is required")),
    };
    // Each output survives a failure of the other: the report is printed even if the plot fails,
    // and the plot is complete even if standard output is closed.
    let drawn = plot.map_or(Ok(()), |plot| plot.write(&run, subject, &outcome));
    show::report(&run, subject, &outcome)?;
    drawn?;
    finish(&outcome.aged, args.output.as_deref())
}

/// The exit code, or the error, for the way in which a run ended. The figures are printed before.
fn finish(aged: &Aged, output: Option<&Path>) -> Result<ExitCode, Failure> {
    match aged.end {
        End::Done => Ok(ExitCode::SUCCESS),
        End::Interrupted => {
            let unwritten = |new: &Path| format!("interrupted; {} is not written", new.display());
            Err(Failure::new(Kind::System, output.map_or("interrupted".into(), unwritten)))
        }
        End::NoRoom => {
            let what = "no space left for the next operation, and nothing left to remove";
            Err(Failure::new(Kind::NoSpace, what))
        }
    }
}

/// Adds a hint about `--into` if the directory exists already or is not empty.
fn occupied(error: FsError) -> Failure {
    let taken = matches!(error, FsError::Exists(_) | FsError::NotEmpty(_));
    let failure = Failure::from(error);
    if taken { failure.hint("use --into NAME to work in another directory") } else { failure }
}

/// Loads a built-in profile, or one from a file.
/// Whether a profile of this name is a file.
fn is_file(name: &str) -> bool {
    name.contains(['/', '.'])
}

fn load(name: &str) -> Result<Profile, Failure> {
    let path = Path::new(name);
    if !is_file(name) {
        return profile::named(name).map_err(Failure::from);
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(name, &error))?;
    Profile::parse(&text, name).map_err(|error| Failure::from(LabError::from(error)))
}

/// Arguments of a run.
struct Run<'a> {
    args: &'a AgeArgs,
    global: &'a Global,
    profile: &'a Profile,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    fn settings(&self) -> Settings {
        Settings {
            ops: self.args.ops.unwrap_or(0),
            fullness: self.args.fullness,
            seed: self.args.seed,
            samples: self.args.samples,
        }
    }

    /// Ages the subject, with a progress bar, until a signal arrives.
    fn age(&self, subject: &mut dyn Subject) -> Result<(Aged, Duration), AgeError> {
        let bar = progress::count(self.global, self.settings().ops);
        let mut watch = |done| {
            bar.set_position(done);
            match self.stop.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let began = Instant::now();
        let aged = age(self.profile, subject, self.settings(), &mut watch);
        bar.finish_and_clear();
        Ok((aged?, began.elapsed()))
    }
}
