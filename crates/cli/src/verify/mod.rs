//! `score --verify-kernel` and `--verify-program`: arguments, and the results as text and JSON.

mod json;
mod log;
mod text;

use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use crate::scoring::{self, DeviceArgs, ModelArgs, Scored};
use crate::source::temp_dir;
use crate::{show, usage};
use clap::Args;
use seekless_capture::verify::{
    AttachedImage, Comparison, Difference, ImageFile, Measured, Prediction, Program, replay_trace,
};
use seekless_images::output::Output;
use seekless_lab::age::distribution::parse_span;
use seekless_layout::trace::Events;
use seekless_layout::usage::Owners;
use seekless_report::disk::Usage;
use seekless_units::{BlockNo, Extent, Nanos};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measurements that the prediction is compared with.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Mount the image, replay the trace with real system calls, and compare the
    /// kernel's requests with the prediction (needs root)
    #[arg(long, group = "verified", conflicts_with = "other")]
    verify_kernel: bool,
    /// Mount the image, run COMMAND on it with cold caches, and compare the kernel's
    /// requests with the prediction (needs root). Every `{}` in COMMAND is replaced by
    /// the mount point; put a command that has a `{}` of its own, as `find -exec`, into a
    /// script. Writes go to an overlay that is discarded
    #[arg(long, groups = ["verified", "measured"], requires = "command")]
    verify_program: bool,
    /// Maximum error of the prediction, in percent, that is accepted; otherwise the
    /// exit code is 1
    #[arg(long, value_name = "PERCENT", default_value = "10", requires = "verified",
          value_parser = parse_tolerance)]
    tolerance: f64,
    /// Number of cold runs of COMMAND; the figures are medians. A run in which blocks
    /// are read twice, because their pages were reclaimed, is repeated up to twice
    #[arg(long, value_name = "N", default_value = "5", requires = "measured",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Maximum duration of a run, after which COMMAND is killed
    #[arg(long, value_name = "TIME", default_value = "10min", requires = "measured",
          value_parser = parse_span)]
    timeout: Nanos,
    /// Run COMMAND with the mount as its root directory: the program itself and its
    /// libraries are read from the image. /proc and /dev are those of the host where
    /// the image has such directories. `{}` is not replaced
    #[arg(long, requires = "measured")]
    chroot: bool,
    /// Run COMMAND on the read-only mount itself, without an overlay; writes fail. An
    /// overlay adds reads if files have large extended attributes, or the root of the
    /// image is listed
    #[arg(long, requires = "measured")]
    read_only: bool,
    /// Command to run, with its arguments. Its standard output is discarded, and its
    /// standard error after the first run
    #[arg(last = true, requires = "measured")]
    command: Vec<OsString>,
}

fn parse_tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent),
        Ok(_) => Err("must be 0 or more".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl VerifyArgs {
    /// Whether a prediction is compared with a kernel.
    pub(crate) fn wanted(&self) -> bool {
        self.verify_kernel || self.verify_program
    }

    /// Whether the trace is replayed in the recorded order.
    pub(crate) fn in_recorded_order(&self) -> bool {
        self.verify_kernel
    }

    /// Treatment of a program's writes.
    fn writes(&self) -> &'static str {
        if self.read_only { "refused" } else { "discarded" }
    }

    fn program(&self) -> Option<Program<'_>> {
        self.verify_program.then(|| Program {
            command: &self.command,
            chroot: self.chroot,
            read_only: self.read_only,
            runs: self.runs,
            timeout: Duration::from_nanos(self.timeout.get()),
        })
    }
}

/// Other options that affect the comparison.
pub(crate) struct Wanted<'a> {
    pub(crate) model: &'a ModelArgs,
    pub(crate) devices: &'a DeviceArgs,
    pub(crate) explain: bool,
    pub(crate) io_log: Option<&'a Path>,
    /// The files that are read.
    pub(crate) inputs: Vec<&'a PathBuf>,
}

/// An image, with the comparison of its prediction.
struct Verified<'a> {
    scored: &'a Scored,
    comparison: Comparison,
    /// Only with `--explain`.
    difference: Option<Difference>,
}

/// Compares the predictions with a kernel, and prints the result.
pub(crate) fn verify(
    args: &VerifyArgs,
    wanted: &Wanted<'_>,
    global: &Global,
    images: &[(ImageFile<'_>, &Scored)],
    events: &Events,
) -> Result<ExitCode, Failure> {
    let program = args.program();
    if let Some(program) = &program {
        program.check()?;
    }
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::io("signals", &error))?;
    let machine = wanted.model.machine();
    if let Some(path) = wanted.io_log {
        // Fails early if the log cannot be written. It is created again later: the mounts differ
        // then.
        drop(Output::create(path, true, &wanted.inputs)?);
    }
    let mut verified = Vec::new();
    for &(file, scored) in images {
        let attached = AttachedImage::new(file, machine, &temp_dir())?;
        let usage = usage::classify(file.image)?;
        let measured: Measured = match &program {
            Some(program) => program.measure(&attached, &usage, &mut signals)?.into(),
            None => replay_trace(&attached, &usage, events, &mut signals)?.into(),
        };
        drop(attached);
        verified.push(Verified::new(scored, &usage, measured, wanted)?);
    }
    if let Some(path) = wanted.io_log {
        log::write(&verified, wanted, path)?;
    }
    let within = verified.iter().all(|one| one.comparison.is_within(args.tolerance));
    if global.json {
        let one = |one: &Verified<'_>| json::of(one, args, wanted);
        match verified.as_slice() {
            [a, b] => {
                let change = json::change(&a.comparison, &b.comparison);
                say!("{}", json!({ "a": one(a), "b": one(b), "change": change }));
            }
            all => all.iter().for_each(|verified| say!("{}", one(verified))),
        }
    } else {
        verified.iter().for_each(|one| text::show(one, args, wanted, images.len() > 1));
        if let [a, b] = verified.as_slice() {
            text::show_change(a, b);
        }
    }
    verified.iter().for_each(|one| one.comparison.warn(&one.scored.name));
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl<'a> Verified<'a> {
    fn new(
        scored: &'a Scored,
        usage: &Usage,
        measured: Measured,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
        let image = scored.image.as_ref();
        let prediction = Prediction {
            requests: &scored.replayed.requests,
            usage,
            block_size: u64::from(image.geometry().block_size),
            chunks: &wanted.model.chunk,
        };
        let mut comparison = Comparison::new(&prediction, measured);
        let times = |extents: &[Extent]| scoring::in_order(scored, extents, wanted.devices);
        let of_runs = comparison
            .runs
            .iter()
            .map(|run| times(&run.requests.iter().map(|(extent, _)| *extent).collect::<Vec<_>>()));
        let of_runs = of_runs.collect::<Result<Vec<_>, _>>()?;
        let predicted = times(&comparison.extents)?;
        comparison.add(predicted, &of_runs);
        let difference = if wanted.explain {
            let owners = Owners::of_image(image)?;
            let name = |block: BlockNo| owners.of(block).map(show::name);
            Some(comparison.difference(usage, &name))
        } else {
            None
        };
        Ok(Self { scored, comparison, difference })
    }
}

/// Ratio of two figures; infinite if only the first is 0.
fn ratio(before: f64, after: f64) -> f64 {
    if before == after { 1.0 } else { after / before }
}
