//! Report of predicted and counted figures.

use super::parting::{self, Parting};
use super::program::{Program, Run};
use super::spread::{self, Spread};
use super::stand::{Requests, Subject};
use super::{Compared, compare, log, replay};
use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use crate::scoring::{self, DeviceArgs, ModelArgs, Scored};
use crate::usage;
use clap::Args;
use seekless_images::output::Output;
use seekless_lab::age::distribution::parse_span;
use seekless_layout::replay::{Purpose, Request};
use seekless_layout::score::{self, Figures};
use seekless_layout::trace::Event;
use seekless_report::disk::Class;
use seekless_report::table::{Figure, Table};
use seekless_units::{Extent, Nanos};
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

/// Maximum number of processes named in a warning.
const NAMES_SHOWN: usize = 5;

/// What the prediction is held against.
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
    #[arg(long, group = "verified", requires = "command")]
    verify_program: bool,
    /// Maximum error of the prediction, in percent, that is accepted; otherwise the
    /// exit code is 1
    #[arg(long, value_name = "PERCENT", default_value = "10", requires = "verified",
          value_parser = parse_tolerance)]
    tolerance: f64,
    /// Number of cold runs of COMMAND; the figures are medians. A run in which blocks
    /// are read twice, because their pages were reclaimed, is repeated up to twice
    #[arg(long, value_name = "N", default_value = "5", requires = "verify_program",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Maximum duration of a run, after which COMMAND is killed
    #[arg(long, value_name = "TIME", default_value = "10min", requires = "verify_program",
          value_parser = parse_span)]
    timeout: Nanos,
    /// Run COMMAND with the mount as its root directory: the program itself and its
    /// libraries are read from the image. /proc and /dev are those of the host where
    /// the image has such directories. `{}` is not replaced
    #[arg(long, requires = "verify_program")]
    chroot: bool,
    /// Run COMMAND on the read-only mount itself, without an overlay; writes fail. An
    /// overlay adds reads if files have large extended attributes, or the root of the
    /// image is listed
    #[arg(long, requires = "verify_program")]
    read_only: bool,
    /// Command to run, with its arguments. Its standard output is discarded, and its
    /// standard error after the first run
    #[arg(last = true, requires = "verify_program")]
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
}

/// An image's prediction, and the measurements of a kernel.
pub(super) struct Verified<'a> {
    pub(super) scored: &'a Scored,
    predicted: Figures,
    /// In order; one run for a trace, several for a program.
    pub(super) runs: Vec<(Figures, Requests)>,
    spread: Vec<Spread>,
    rows: Vec<Compared>,
    parting: Option<Parting>,
    pub(super) told: Told,
}

/// Results of the runs other than their figures.
pub(super) enum Told {
    /// Number of events of the trace that failed.
    Replay { failed: u64 },
    /// Status of each run, and the names of the processes that it left behind.
    Program(Vec<(ExitStatus, Vec<String>)>),
}

/// Compares the predictions with a kernel, and prints the result.
pub(crate) fn verify(
    args: &VerifyArgs,
    wanted: &Wanted<'_>,
    global: &Global,
    images: &[(Subject<'_>, &Scored)],
    events: &[Event],
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
        drop(Output::create(path, true)?);
    }
    let mut verified = Vec::new();
    for &(subject, scored) in images {
        let (requests, told) = match &program {
            Some(program) => {
                let runs = program.measure(subject, machine, &mut signals)?;
                let told = runs.iter().map(|Run { status, left, .. }| (*status, left.clone()));
                let told = Told::Program(told.collect());
                (runs.into_iter().map(|run| run.requests).collect(), told)
            }
            None => {
                let seen = replay::observe(subject, events, machine, &mut signals)?;
                (vec![seen.requests], Told::Replay { failed: seen.failed })
            }
        };
        verified.push(Verified::new(scored, requests, told, wanted)?);
    }
    if let Some(path) = wanted.io_log {
        log::write(&verified, path)?;
    }
    let within = verified.iter().flat_map(|one| &one.rows);
    let within = within.clone().all(|row| row.percent().abs() <= args.tolerance);
    if global.json {
        let one = |one: &Verified<'_>| one.as_json(args, wanted);
        match verified.as_slice() {
            [a, b] => say!("{}", json!({ "a": one(a), "b": one(b), "change": change_json(a, b) })),
            all => all.iter().for_each(|verified| say!("{}", one(verified))),
        }
    } else {
        verified.iter().for_each(|one| one.show(args, wanted, images.len() > 1));
        if let [a, b] = verified.as_slice() {
            show_change(a, b);
        }
    }
    verified.iter().for_each(Verified::warn);
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl<'a> Verified<'a> {
    fn new(
        scored: &'a Scored,
        requests: Vec<Requests>,
        told: Told,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
        let image = scored.image.as_ref();
        let block_size = u64::from(image.geometry().block_size);
        let chunks = &wanted.model.chunk;
        let replayed = scored.replayed.requests.iter();
        let usage = usage::classify(image)?;
        // A read of the device has the class of its blocks, as the kernel's requests do.
        let counts_as_metadata = |request: &Request| match request.purpose {
            Purpose::Device => usage.most_of(request.extent) != Class::Data,
            purpose => purpose.is_metadata(),
        };
        let predicted = score::figures(
            replayed.clone().map(|request| (request.extent, counts_as_metadata(request))),
            block_size,
            chunks,
        );
        let figures = |requests: &Requests| {
            let counted = requests.iter().map(|(extent, class)| (*extent, *class != Class::Data));
            score::figures(counted, block_size, chunks)
        };
        let runs: Vec<(Figures, Requests)> =
            requests.into_iter().map(|requests| (figures(&requests), requests)).collect();
        let all: Vec<Figures> = runs.iter().map(|(figures, _)| figures.clone()).collect();
        let extents: Vec<Extent> = replayed.clone().map(|request| request.extent).collect();
        let times = |requests: &[Extent]| scoring::in_order(scored, requests, wanted.devices);
        let runs_times = runs.iter().map(|(_, requests)| {
            times(&requests.iter().map(|(extent, _)| *extent).collect::<Vec<_>>())
        });
        let mut spread = spread::spread(&all);
        let mut rows = compare(&predicted, spread.iter().map(|figure| figure.median));
        let more = spread::spread_of(&runs_times.collect::<Result<Vec<_>, _>>()?);
        let both = times(&extents)?.into_iter().zip(&more);
        rows.extend(both.map(|((name, predicted), figure)| Compared {
            name,
            predicted,
            counted: figure.median,
        }));
        spread.extend(more);
        let parting = if wanted.explain {
            let owners = usage::owners(image)?;
            let mine: Vec<(Extent, Class)> =
                extents.iter().map(|&extent| (extent, usage.most_of(extent))).collect();
            let theirs = runs.get(spread::typical(&all)).map_or(&[][..], |(_, requests)| requests);
            Some(parting::part(&mine, theirs, &owners, block_size))
        } else {
            None
        };
        Ok(Self { scored, predicted, runs, spread, rows, parting, told })
    }

    /// Name of the counted side.
    fn counted(&self) -> &'static str {
        match self.told {
            Told::Replay { .. } => "kernel",
            Told::Program(_) => "program",
        }
    }

    fn show(&self, args: &VerifyArgs, wanted: &Wanted<'_>, named: bool) {
        if named {
            say!("{}:", self.scored.name);
        }
        let several = self.runs.len() > 1;
        let mut columns = vec!["predicted", self.counted()];
        columns.extend(several.then_some(["min", "max"]).into_iter().flatten());
        columns.push("off by");
        let mut table = Table::new(columns.into_iter().map(String::from).collect(), false);
        for (row, spread) in self.rows.iter().zip(&self.spread) {
            let figure = |value| figure(&row.name, value);
            let mut figures = vec![figure(row.predicted), figure(row.counted)];
            if several {
                figures.extend([figure(spread.min), figure(spread.max)]);
            }
            let percent = row.percent();
            let is_finite = percent.is_finite();
            figures.push(if is_finite { Figure::Percent(percent) } else { Figure::Missing });
            table.push(row.name.as_str(), figures);
        }
        let release = seekless_host::kernel_release();
        say!("{}\nLinux {release}", table.text().trim_end());
        if let Told::Program(_) = self.told {
            let runs = match self.runs.len() {
                1 => "one cold run".into(),
                runs => format!("medians of {runs} cold runs"),
            };
            let machine = wanted.model.machine();
            let writes = if args.read_only { "refused" } else { "discarded" };
            say!(
                "{runs}, read_ahead_kb {}, max_sectors_kb {}, writes {writes}",
                machine.read_ahead.get() >> 10,
                machine.max_request.get() >> 10,
            );
        }
        scoring::show_missing(self.scored);
        if let Some(parting) = &self.parting {
            say!("\n{}", parting.text(self.counted()).trim_end());
        }
        if named {
            say!("");
        }
    }

    /// Warns of failed events, failed commands and processes left behind.
    fn warn(&self) {
        match &self.told {
            Told::Replay { failed: 0 } => {}
            Told::Replay { failed } => {
                crate::say::warning!("{failed} events could not be replayed on the mount");
            }
            Told::Program(ends) => {
                let name = &self.scored.name;
                let mut failed: BTreeMap<String, u64> = BTreeMap::new();
                for (status, _) in ends.iter().filter(|(status, _)| !status.success()) {
                    *failed.entry(status.to_string()).or_default() += 1;
                }
                for (status, count) in failed {
                    crate::say::warning!(
                        "{name}: the command ended with {status} in {count} of {} runs; \
                         these are counted all the same",
                        ends.len()
                    );
                }
                let left = ends.iter().enumerate().filter(|(_, (_, left))| !left.is_empty());
                for (run, (_, left)) in left {
                    let shown = &left[..left.len().min(NAMES_SHOWN)];
                    let more = if left.len() > shown.len() { ", ..." } else { "" };
                    let names = shown.join(", ") + more;
                    let (run, count) = (run + 1, left.len());
                    crate::say::warning!(
                        "{name}: run {run} left processes running ({count}: {names}); \
                         they were killed, and their requests after its end are not counted"
                    );
                }
            }
        }
    }

    fn as_json(&self, args: &VerifyArgs, wanted: &Wanted<'_>) -> Value {
        let differences: Map<String, Value> =
            self.rows.iter().map(|row| (row.name.clone(), json!(row.percent()))).collect();
        let mut value = json!({
            "image": self.scored.name,
            "predicted": self.predicted,
            "difference_percent": differences,
            "tolerance_percent": args.tolerance,
            "within": self.rows.iter().all(|row| row.percent().abs() <= args.tolerance),
            "kernel_release": seekless_host::kernel_release(),
            "missing": self.scored.score.missing,
        });
        for row in self.rows.iter().filter(|row| row.name.starts_with(scoring::TIME_ON)) {
            value["predicted"][&row.name] = json!(row.predicted);
        }
        match &self.told {
            Told::Replay { failed } => {
                value["failed"] = json!(failed);
                value["kernel"] = json!(self.runs.first().map(|(figures, _)| figures));
            }
            Told::Program(ends) => {
                let run = |((figures, _), (status, left)): (&(Figures, _), &(ExitStatus, _))| {
                    let mut run = json!(figures);
                    run["exit_code"] = json!(status.code());
                    run["signal"] = json!(status.signal());
                    run["left_running"] = json!(left);
                    run
                };
                let machine = wanted.model.machine();
                value["program"] = spread::as_json(&self.spread);
                value["runs"] = self.runs.iter().zip(ends).map(run).collect();
                value["read_ahead_kb"] = json!(machine.read_ahead.get() >> 10);
                value["max_sectors_kb"] = json!(machine.max_request.get() >> 10);
                value["writes"] = json!(if args.read_only { "refused" } else { "discarded" });
                value["chroot"] = json!(args.chroot);
            }
        }
        if let Some(parting) = &self.parting {
            value["parting"] = json!(parting);
        }
        value
    }
}

fn figure(name: &str, value: f64) -> Figure {
    match name {
        "metadata_share" => Figure::Share(value),
        _ => Figure::Count(value.round() as u64),
    }
}

/// The figures of both images in pairs, in the same order.
fn changes<'a>(
    a: &'a Verified<'_>,
    b: &'a Verified<'_>,
) -> impl Iterator<Item = (&'a Compared, &'a Compared)> {
    a.rows.iter().zip(&b.rows)
}

fn ratio(before: f64, after: f64) -> f64 {
    if before == after { 1.0 } else { after / before }
}

fn change_json(a: &Verified<'_>, b: &Verified<'_>) -> Value {
    let one = |(a, b): (&Compared, &Compared)| {
        let predicted = ratio(a.predicted, b.predicted);
        let program = ratio(a.counted, b.counted);
        (a.name.clone(), json!({ "predicted": predicted, "program": program }))
    };
    changes(a, b).map(one).collect::<Map<_, _>>().into()
}

fn show_change(a: &Verified<'_>, b: &Verified<'_>) {
    let names = [&a.scored.name, &b.scored.name].map(|name| format!("program, {name}"));
    let [first, second] = names;
    let columns = vec![first, second, "ratio".into(), "predicted".into()];
    let mut table = Table::new(columns, false);
    for (a, b) in changes(a, b) {
        let share = |before, after| match ratio(before, after) {
            ratio if ratio.is_finite() => Figure::Share(ratio),
            _ => Figure::Missing,
        };
        let figures = vec![
            figure(&a.name, a.counted),
            figure(&b.name, b.counted),
            share(a.counted, b.counted),
            share(a.predicted, b.predicted),
        ];
        table.push(a.name.as_str(), figures);
    }
    say!("{}", table.text().trim_end());
}
