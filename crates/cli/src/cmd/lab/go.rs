//! `seekless lab run`.

use super::keep::Keeper;
use super::{Subject, show};
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use clap::Args;
use seekless_lab::plan::{Shard, Wanted, runs};
use seekless_lab::pool::perform_all;
use seekless_lab::run::{Run, RunId, perform};
use seekless_lab::store::missing;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Built-in experiment, or path of a file
    experiment: String,
    /// Only these cells: system, discipline or workload, or several as first/normal
    #[arg(long, value_name = "CELL", num_args = 1..)]
    only: Vec<String>,
    /// So many seeds, from the experiment's first on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Run each seed so many times, with other chance and begun at another moment
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repetitions: Option<u64>,
    /// Runs at once; as many as there are processors by default
    #[arg(short, long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Only one of several parts: 1/4
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Keep each run here when it is over; runs that are there are not run again
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// A line for each request of one cell: when, for how long (ms), what, sector, sectors
    #[arg(long, value_name = "FILE", requires = "only")]
    io_log: Option<PathBuf>,
}

pub(super) fn run(args: &RunArgs, global: &Global) -> Result<ExitCode, Failure> {
    let subject = Subject::named(&args.experiment)?;
    let wanted = Wanted {
        only: args.only.clone(),
        seeds: args.seeds,
        repetitions: args.repetitions,
        shard: args.shard,
    };
    let ids = runs(&subject.experiment, &wanted)?;
    let results = match (&args.io_log, &args.output) {
        (Some(path), None) => logged(&subject, &ids, path)?,
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--io-log is of a run that is not kept: leave out -o"));
        }
        (None, output) => {
            let keeper = output.as_deref().map(|dir| Keeper::open(dir, &subject)).transpose()?;
            measure(args, global, &subject, &ids, keeper)?
        }
    };
    let (runs, failure) = results;
    show::results(&subject.experiment, &runs, global);
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// What was measured, and what went wrong with keeping it.
type Results = (Vec<Run>, Option<Failure>);

fn measure(
    args: &RunArgs,
    global: &Global,
    subject: &Subject,
    ids: &[RunId],
    mut keeper: Option<Keeper>,
) -> Result<Results, Failure> {
    let mut runs = keeper.as_ref().map(|keeper| keeper.have().to_vec()).unwrap_or_default();
    let open = missing(ids, &runs);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(processors, usize::from);
    let bar = progress::count(global, open.len() as u64);
    let done = perform_all(&subject.experiment, &subject.digest(), &open, jobs, |run| {
        if let Some(keeper) = &mut keeper {
            keeper.keep(&run);
        }
        runs.push(run);
        bar.inc(1);
    });
    bar.finish_and_clear();
    let (mut runs, unkept) = match keeper {
        Some(keeper) => keeper.finish(subject, runs),
        None => (runs, None),
    };
    if let Err(error) = done {
        let failure = Failure::from(error);
        return Err(match unkept {
            Some(unkept) => failure.about(unkept),
            None => failure,
        });
    }
    runs.sort_by_key(|run| run.id.to_string());
    Ok((runs, unkept))
}

/// One run after the other, each with its requests written down.
fn logged(subject: &Subject, ids: &[RunId], path: &Path) -> Result<Results, Failure> {
    if let Some(other) = ids.iter().find(|id| {
        (&id.workload, &id.system, &id.discipline)
            != (&ids[0].workload, &ids[0].system, &ids[0].discipline)
    }) {
        return Err(Failure::usage(format!(
            "--io-log is of one cell, not of {} and {other} (name it with --only)",
            ids[0]
        )));
    }
    let io = |error: std::io::Error| Failure::io(path.display(), &error);
    let mut file = File::create(path).map_err(io)?;
    let mut runs = Vec::new();
    for id in ids {
        writeln!(file, "# {id}\n# at_ms\tms\top\tsector\tsectors\twaited").map_err(io)?;
        let log = BufWriter::new(file.try_clone().map_err(io)?);
        runs.push(perform(&subject.experiment, &subject.digest(), id, Some(Box::new(log)))?);
    }
    Ok((runs, None))
}
