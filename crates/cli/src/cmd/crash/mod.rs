//! `seekless crash`: searches crash states, and checks them.

mod judge;
mod list;
mod merge;
mod mutate;
mod policies;
mod replay;
mod results;
mod run;
mod target;

use crate::args::Global;
use crate::failure::{Failure, Kind};
use clap::{Args, Subcommand};
use policies::PolicyArgs;
use seekless_cache::Discipline;
use seekless_crash::campaign::CampaignError;
use seekless_crash::driver::RunError;
use seekless_crash::resume::{MOST_PARTS, StateError};
use seekless_fs::FsError;
use std::process::ExitCode;
use target::FormatTarget;

/// Explore the states a crash can leave, and check that the file system recovers
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless crash list
  seekless crash run --workload create --discipline softdep --format ufs2 --sample 5")]
pub(crate) struct CrashCommand {
    #[command(subcommand)]
    command: CrashSubcommand,
}

#[derive(Subcommand, Debug)]
enum CrashSubcommand {
    Run(run::CrashRunArgs),
    Replay(replay::ReplayArgs),
    Merge(merge::MergeArgs),
    Mutate(mutate::MutateArgs),
    List(list::ListArgs),
}

pub(crate) fn run(args: &CrashCommand, global: &Global) -> Result<ExitCode, Failure> {
    match &args.command {
        CrashSubcommand::Run(args) => run::run(args, global),
        CrashSubcommand::Replay(args) => replay::run(args, global),
        CrashSubcommand::Merge(args) => merge::run(args, global),
        CrashSubcommand::Mutate(args) => mutate::run(args, global),
        CrashSubcommand::List(args) => list::run(args, global),
    }
}

/// The target of a format's name.
fn target(name: &str, policies: &PolicyArgs) -> Result<FormatTarget, Failure> {
    let Some((known, version)) = seekless_formats::version(name) else {
        let known = version_names().join(", ");
        return Err(Failure::usage(format!("{name}: unknown format ({known})")));
    };
    let target = FormatTarget::new(known, version, policies.arguments(known, name)?);
    Ok(if policies.discard { target.discarding() } else { target })
}

/// The versions of all formats, by their names.
fn version_names() -> Vec<&'static str> {
    seekless_formats::versions().map(|version| version.name).collect()
}

fn discipline(name: &str) -> Result<Discipline, String> {
    name.parse().map_err(|error: seekless_cache::UnknownDiscipline| error.to_string())
}

/// A part and the number of parts: `2/4`.
fn shard(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("'{text}' is not a valid shard (for example, 1/4 to 4/4)");
    let (part, parts) = text.split_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (part, parts) = (number(part)?, number(parts)?);
    let is_valid = (1..=parts).contains(&part) && parts <= MOST_PARTS;
    if is_valid { Ok((part, parts)) } else { Err(wrong()) }
}

impl From<CampaignError> for Failure {
    fn from(error: CampaignError) -> Self {
        match error {
            CampaignError::Run(RunError::Volume(error)) => error.into(),
            CampaignError::Run(error) => error.into(),
            CampaignError::Device(error) => FsError::from(error).into(),
            CampaignError::State(StateError::Io { path, source }) => {
                Self::io(path.display(), &source)
            }
            CampaignError::State(error) => Self::usage(error.to_string()),
            CampaignError::Script(error) => Self::usage(error.to_string()),
        }
    }
}

/// Most operations that fail are errors of the workload, and usage errors; errors of the device, of
/// the image and of space keep their kinds.
impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let what = error.to_string();
        let source = match error {
            RunError::Operation { source, .. } => source,
            RunError::Volume(error) => return error.into(),
        };
        match *source {
            FsError::Device(_) | FsError::Io { .. } => Self::new(Kind::System, what),
            FsError::Corrupt { .. } => Self::new(Kind::Corrupt, what),
            FsError::NoSpace(_) | FsError::OverQuota(_) => Self::new(Kind::NoSpace, what),
            _ => Self::usage(what),
        }
    }
}
