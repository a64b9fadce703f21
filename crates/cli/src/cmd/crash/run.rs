//! `seekless crash run`: runs a campaign.

use super::judge::{
    SearchArgs, coverage_json, print_coverage, print_reproducer, reproducer_json, write_new,
};
use super::policies::PolicyArgs;
use super::results::{print_results, sum, unit_json};
use super::{discipline, target};
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use clap::Args;
use seekless_cache::Discipline;
use seekless_crash::accepted::AcceptedState;
use seekless_crash::campaign::{CampaignError, Sequences, built_in};
use seekless_crash::resume::StateFile;
use seekless_crash::script::parse;
use seekless_crash::shrink::Reproducer;
use seekless_crash::{Campaign, Extent, Script, Settings, Target, UnitResult, dm_log_writes};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Default number of states examined of a pair or a random sequence.
const SAMPLE_OF_MANY: u64 = 200;
/// Maximum length of a script, in bytes.
const LARGEST_SCRIPT: u64 = 4 << 20;

/// Run a workload, and check every state in which a crash may leave the device
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless crash run --workload create --discipline softdep --format ufs2 --exhaustive
  seekless crash run --workload pairs --discipline sync --format ufs1 --sample 200
  seekless crash run --workload all --discipline softdep --format ufs2 --shard 1/4 -o states1
  seekless crash run --workload random:8 --sequences 1000 --discipline softdep --format ufs1
  seekless crash run --workload script.txt --discipline normal --format ufs2 --json
  seekless crash run --workload all --discipline softdep --format ext2 --blocks ext2-next=8

Each state is repaired as by `fsck -p`. It must then be consistent and match what
the workload did: everything that was made durable is present, with its names and
contents, and everything else on the file system is unchanged. Without --exhaustive
or --sample, all states of single operations and scripts are examined, and 200
states of each pair and random sequence.

Exit codes: 0 if all states pass, 1 if any state fails, 2 for wrong arguments or a
script that cannot be run, otherwise as for all commands.")]
pub(crate) struct CrashRunArgs {
    /// Workload: a name from `seekless crash list`, a pair of names, `singles`,
    /// `pairs`, `all`, `random:N` (random sequences of 3 to N operations, N up to 64),
    /// `moves:N` (the same, mostly of names that go and come back, and of directories),
    /// `random:N#K` (sequence K of these), or the path of a script
    #[arg(long, short, value_name = "W")]
    workload: String,
    /// Number of sequences for `random:N` and `moves:N`, generated from --seed
    #[arg(long, value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    sequences: u64,
    /// Update discipline: softdep, sync, normal, async; journal=ordered,
    /// journal=writeback, journal=data on ext3 and ext4
    #[arg(long, short, value_name = "D", value_parser = discipline)]
    discipline: Discipline,
    /// Format: ufs1, ufs2, ext2, ext3, ext4, fat12, fat16, fat32
    #[arg(long, short, value_name = "F")]
    format: String,
    #[command(flatten)]
    policies: PolicyArgs,
    #[command(flatten)]
    search: SearchArgs,
    /// Number of schedules for writing blocks: only on request, over time, then
    /// random ones
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    schedules: u32,
    /// Give the device a queue: writes complete after the call returns, in any order,
    /// and a flush covers completed writes only
    #[arg(long)]
    queue: bool,
    /// Save progress in this file, and resume from it after an interruption
    #[arg(long, short = 'o', value_name = "FILE")]
    state: Option<PathBuf>,
    /// Log the device's writes to this file in the format of dm-log-writes (one
    /// workload only)
    #[arg(long, value_name = "FILE")]
    log_out: Option<PathBuf>,
    /// Write the image of the failing state to this file
    #[arg(long, value_name = "FILE")]
    image_out: Option<PathBuf>,
    /// Write the images of N states that pass after a `check -p` to --keep-dir, as the crash
    /// left them and taken evenly from the search, for other programs to check. `states.txt`
    /// there lists them
    #[arg(long, value_name = "N", requires = "keep_dir", conflicts_with = "state",
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    keep_states: Option<u16>,
    /// Directory for --keep-states; it is created if it does not exist
    #[arg(long, value_name = "DIR", requires = "keep_states")]
    keep_dir: Option<PathBuf>,
}

/// Results of all workloads.
struct Outcome {
    results: Vec<UnitResult>,
    resumed: usize,
    small: Option<Reproducer>,
}

pub(crate) fn run(args: &CrashRunArgs, global: &Global) -> Result<ExitCode, Failure> {
    let target = target(&args.format, &args.policies)?;
    let sequences = Sequences { count: args.sequences, seed: args.search.seed() };
    let scripts = scripts(&args.workload, &target, sequences)?;
    let otherwise = if scripts.len() > 1 && scripts.iter().any(is_one_of_many) {
        Extent::Sample(SAMPLE_OF_MANY)
    } else {
        Extent::Exhaustive
    };
    let search = args.search.search(otherwise);
    let (discipline, schedules, queue) = (args.discipline, args.schedules, args.queue);
    let settings = Settings { discipline, search, schedules, queue };
    let mut campaign = Campaign::new(&target, settings);
    if let Some(path) = &args.log_out {
        log_out(args, &mut campaign, &scripts, path)?;
    }
    campaign.keep(args.keep_states.map_or(0, usize::from));
    let outcome = all(args, global, &mut campaign, &scripts, &settings)?;
    if let Some(dir) = &args.keep_dir {
        write_kept(args, &mut campaign, &scripts, dir)?;
    }
    if let (Some(path), Some(small)) = (&args.image_out, &outcome.small) {
        write_new(path, &args.workload, &small.image)?;
    }
    let holds = outcome.results.iter().all(|result| result.failing == 0);
    if global.json {
        print_json(args, &settings, &outcome, holds)
    } else {
        print(args, &settings, &outcome)
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn is_one_of_many(script: &Script) -> bool {
    script.name.contains([',', '#'])
}

/// The workloads of a name, or of a script file.
fn scripts(name: &str, target: &dyn Target, sequences: Sequences) -> Result<Vec<Script>, Failure> {
    let known = built_in(name, target.has(), sequences).map_err(CampaignError::from)?;
    if let Some(scripts) = known {
        return Ok(scripts);
    }
    let path = Path::new(name);
    let looks_like_one = name.contains(['/', '.']) || path.exists();
    if !looks_like_one {
        return Err(Failure::usage(format!(
            "{name}: no such workload on {} (see `seekless crash list`; a script is given by its path)",
            target.name()
        )));
    }
    let size = std::fs::metadata(path).map_err(|error| Failure::io(name, &error))?.len();
    if size > LARGEST_SCRIPT {
        return Err(Failure::usage(format!("{name}: a script of {size} bytes is too large")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(name, &error))?;
    Ok(vec![parse(name, &text).map_err(CampaignError::from)?])
}

fn log_out(
    args: &CrashRunArgs,
    campaign: &mut Campaign<'_>,
    scripts: &[Script],
    path: &Path,
) -> Result<(), Failure> {
    let [script] = scripts else {
        return Err(Failure::usage("--log-out takes only one workload"));
    };
    let log = campaign.log_of(script)?;
    let mut bytes = Vec::new();
    dm_log_writes::write(&log, &mut bytes).map_err(|error| Failure::io(path.display(), &error))?;
    write_new(path, &args.workload, &bytes)
}

/// Writes the images of the kept states, and a list of them.
fn write_kept(
    args: &CrashRunArgs,
    campaign: &mut Campaign<'_>,
    scripts: &[Script],
    dir: &Path,
) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::io(dir.display(), &error))?;
    let mut list = String::new();
    for (kept, number) in campaign.kept().into_iter().zip(1u32..) {
        let Some(script) = scripts.iter().find(|script| script.name == kept.workload) else {
            continue;
        };
        let image = campaign.image_of(script, &kept)?;
        let name = format!("state-{number:05}.img");
        write_new(&dir.join(&name), &args.workload, &image)?;
        let AcceptedState { workload, schedule, epoch, choice } = &kept;
        let (from, to, count) = (epoch.steps.start, epoch.steps.end, choice.count());
        let line = format!(
            "{name} {workload}: schedule {schedule}, steps {from} to {to} of the log, {count} parts of writes on the disk\n"
        );
        list.push_str(&line);
    }
    write_new(&dir.join("states.txt"), &args.workload, list.as_bytes())
}

fn all(
    args: &CrashRunArgs,
    global: &Global,
    campaign: &mut Campaign<'_>,
    scripts: &[Script],
    settings: &Settings,
) -> Result<Outcome, Failure> {
    let mut state = match &args.state {
        Some(path) => {
            let volume = format!("{}{}", args.format, args.policies);
            let name = format!("{} x{}", args.workload, args.sequences);
            let campaign = settings.head(&volume, &name, scripts.len());
            Some(StateFile::open(path, &campaign).map_err(CampaignError::from)?)
        }
        None => None,
    };
    let bar = progress::count(global, scripts.len() as u64);
    let mut outcome = Outcome { results: Vec::new(), resumed: 0, small: None };
    for script in scripts {
        let known = state.as_ref().and_then(|state| state.result(&script.name)).cloned();
        let result = match known {
            Some(result) => {
                outcome.resumed += 1;
                result
            }
            None => {
                let result = campaign.unit(script, &|_| bar.tick())?;
                if let Some(state) = &mut state {
                    state.note(&result).map_err(CampaignError::from)?;
                }
                result
            }
        };
        if let (Some(schedule), None) = (result.failed_schedule, &outcome.small) {
            outcome.small = campaign.reproduce(script, schedule)?;
        }
        outcome.results.push(result);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(outcome)
}

fn print(args: &CrashRunArgs, settings: &Settings, outcome: &Outcome) {
    print_results(&outcome.results);
    let (coverage, failing) = sum(&outcome.results);
    let workloads = outcome.results.len();
    let (discipline, format) = (settings.discipline, &args.format);
    if outcome.resumed > 0 {
        say!("{} workloads were completed in an earlier run", outcome.resumed);
    }
    let verdict = if failing == 0 { "all hold".into() } else { format!("{failing} do not hold") };
    say!(
        "{discipline} on {format}{}: {workloads} workloads, {} states, {verdict}",
        args.policies,
        coverage.states
    );
    print_coverage(&coverage, &settings.search);
    if let Some(small) = &outcome.small {
        print_reproducer(small, discipline.name(), format, &args.policies);
    }
}

fn print_json(args: &CrashRunArgs, settings: &Settings, outcome: &Outcome, holds: bool) {
    let search = &settings.search;
    let unit = |result: &UnitResult| unit_json(result, coverage_json(&result.coverage, search));
    let (coverage, failing) = sum(&outcome.results);
    let value = json!({
        "workload": args.workload,
        "discipline": settings.discipline.name(),
        "format": args.format,
        "dirs": args.policies.dirs,
        "inodes": args.policies.inodes,
        "blocks": args.policies.blocks,
        "clusters": args.policies.clusters,
        "discard": args.policies.discard,
        "seed": search.seed,
        "shard": format!("{}/{}", search.shard.0, search.shard.1),
        "mode": match search.extent {
            Extent::Exhaustive => "exhaustive",
            Extent::Sample(_) => "sample",
        },
        "schedules": settings.schedules,
        "holds": holds,
        "states": coverage.states,
        "failing": failing,
        "coverage": coverage_json(&coverage, search),
        "resumed": outcome.resumed,
        "workloads": outcome.results.iter().map(unit).collect::<Vec<_>>(),
        "reproducer": outcome.small.as_ref().map(reproducer_json),
    });
    say!("{value}");
}
