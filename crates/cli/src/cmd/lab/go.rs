//! `seekless lab run`.

use super::keep::Keeper;
use super::subject::{Subject, text_of};
use super::{boots, is_result, show};
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use clap::Args;
use indicatif::ProgressBar;
use seekless_lab::boots::BootExperiment;
use seekless_lab::plan::{Shard, Wanted, runs};
use seekless_lab::pool::perform_all;
use seekless_lab::run::{Run, RunId, perform};
use seekless_lab::store::missing;
use seekless_lab::{LabError, builtin};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct LabRunArgs {
    /// Built-in experiment, or path of a file
    pub(super) experiment: String,
    /// Run only these cells, selected by system, discipline, workload, phase or
    /// policy, or by several of them, as in first/normal or as shown in the
    /// tables
    #[arg(long, value_name = "CELL", num_args = 1..)]
    pub(super) only: Vec<String>,
    /// Number of seeds, starting with the first one of the experiment
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) seeds: Option<u64>,
    /// Number of repetitions of each seed, with different random numbers and
    /// start times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) repetitions: Option<u64>,
    /// Number of parallel runs [default: number of processors]
    #[arg(short, long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) jobs: Option<u16>,
    /// Run only one part of the experiment, such as 1/4
    #[arg(long, value_name = "I/N")]
    pub(super) shard: Option<Shard>,
    /// Save each completed run in DIR; runs already saved there are not repeated
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Log the requests of one cell to FILE, one per line: time and duration
    /// (ms), type, sector, sectors
    #[arg(long, value_name = "FILE", requires = "only")]
    pub(super) io_log: Option<PathBuf>,
}

pub(super) fn run(args: &LabRunArgs, global: &Global) -> Result<ExitCode, Failure> {
    let text = text_of(&args.experiment)?;
    if BootExperiment::is_one(&text) {
        return boots::run(&text, args, global);
    }
    let subject = Subject::new(text, &args.experiment)?;
    let wanted = Wanted {
        only: args.only.clone(),
        seeds: args.seeds,
        repetitions: args.repetitions,
        shard: args.shard,
    };
    let ids = runs(&subject.experiment, &wanted)?;
    let results = match (&args.io_log, &args.output) {
        (Some(path), None) => {
            check_log(path, args)?;
            logged(&subject, &ids, path)?
        }
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--io-log cannot be combined with -o"));
        }
        (None, output) => {
            let open = |dir| Keeper::open(dir, &subject, &wanted);
            let keeper = output.as_deref().map(open).transpose()?;
            let have = keeper.as_ref().map_or(&[][..], |keeper| keeper.have());
            let bar = progress::count(global, missing(&ids, have).len() as u64);
            let results = measure(args.jobs, &subject, &ids, keeper, &bar);
            bar.finish_and_clear();
            results?
        }
    };
    let (runs, failure) = results;
    // Completed runs are shown even if others failed.
    if failure.is_none() || !runs.is_empty() {
        show::results(&subject.experiment, &runs, global);
    }
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The completed runs, and the failure of the others or of saving them.
pub(super) type Results = (Vec<Run>, Option<Failure>);

/// Performs the runs that a directory of results does not have yet; the bar counts them.
pub(super) fn measure(
    jobs: Option<u16>,
    subject: &Subject,
    ids: &[RunId],
    mut keeper: Option<Keeper>,
    bar: &ProgressBar,
) -> Result<Results, Failure> {
    let mut runs = keeper.as_ref().map(|keeper| keeper.have().to_vec()).unwrap_or_default();
    let open = missing(ids, &runs);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = jobs.map_or(processors, usize::from);
    let done = perform_all(&subject.experiment, &subject.digest(), &open, jobs, |run| {
        if let Some(keeper) = &mut keeper {
            keeper.keep(&run);
        }
        runs.push(run);
        bar.inc(1);
    });
    let (mut runs, unkept) = match keeper {
        Some(keeper) => keeper.finish(subject, runs),
        None => (runs, None),
    };
    runs.sort_by_key(|run| run.id.to_string());
    let failure = match (done.err().map(Failure::from), unkept) {
        (Some(failure), Some(unkept)) => Some(failure.about(unkept)),
        (failure, unkept) => failure.or(unkept),
    };
    Ok((runs, failure))
}

/// Refuses a log that would replace the experiment's file or a file of results.
fn check_log(path: &Path, args: &LabRunArgs) -> Result<(), Failure> {
    let file = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let experiment = Path::new(&args.experiment);
    let itself = builtin::text(&args.experiment).is_none()
        && file(path).is_some_and(|log| file(experiment) == Some(log));
    if itself || is_result(path) {
        let what = if itself { "the experiment's own file" } else { "a file of results" };
        return Err(Failure::usage(format!("{}: is {what}", path.display())));
    }
    Ok(())
}

/// Performs runs one by one, and logs their requests.
fn logged(subject: &Subject, ids: &[RunId], path: &Path) -> Result<Results, Failure> {
    if let Some(other) = ids.iter().find(|id| {
        (&id.workload, &id.system, &id.discipline)
            != (&ids[0].workload, &ids[0].system, &ids[0].discipline)
    }) {
        return Err(Failure::usage(format!(
            "--io-log logs a single cell, not {} and {other} (select one with --only)",
            ids[0]
        )));
    }
    let mut runs = Vec::new();
    for id in ids {
        match logged_run(subject, id, path, runs.is_empty()) {
            Ok(run) => runs.push(run),
            Err(failure) => return Ok((runs, Some(failure))),
        }
    }
    Ok((runs, None))
}

/// Performs a run, and appends its requests to the log; the first run truncates it.
fn logged_run(subject: &Subject, id: &RunId, path: &Path, first: bool) -> Result<Run, Failure> {
    let io = |error: std::io::Error| Failure::io(path.display(), &error);
    let mut options = File::options();
    options.create(true).write(true).truncate(first).append(!first);
    let mut log = BufWriter::new(options.open(path).map_err(io)?);
    writeln!(log, "# {id}\n# at_ms\tms\top\tsector\tsectors\twaited").map_err(io)?;
    let done = perform(&subject.experiment, &subject.digest(), id, Some(Box::new(log)));
    done.map_err(|error| match error {
        LabError::Log(error) => io(error),
        error => error.into(),
    })
}
