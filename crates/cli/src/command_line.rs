//! The command line. Man pages and completions are generated from it.

use crate::args::Global;
use crate::cmd;
use crate::failure::Failure;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use std::ffi::OsStr;
use std::process::ExitCode;

/// Keeps data that is used together close together on disk.
#[derive(Parser, Debug)]
#[command(name = "seekless", version, propagate_version = true, max_term_width = 100)]
#[command(after_long_help = "\
Exit codes:
  0  success
  1  completed; differences were found, or a check did not pass
  2  wrong arguments
  3  the image is corrupt
  4  the image or request needs something that is not supported
  5  no space: the contents do not fit
  6  system error (file not found, permission denied, I/O error)
`check` and `quota check` use the exit codes of fsck instead (see their help).

Examples:
  seekless build rootfs/ -o disk.img --trace boot.trace
  seekless score disk.img --trace boot.trace
  seekless check disk.img")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Prints an error in the arguments, or the requested help, and returns the exit code; `check` and
/// `quota check` have the codes of `fsck`.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.to_string();
        Failure::usage(text.trim_end().trim_start_matches("error: ")).report(true);
    } else {
        // A closed pipe is no error here.
        let _ = error.print();
    }
    let mut words = std::env::args_os().skip(1).filter(|arg| !is_option(arg));
    let first = words.next();
    let is_check = match first.as_deref().and_then(OsStr::to_str) {
        Some("quota") => words.next().is_some_and(|arg| arg == "check"),
        first => first == Some("check"),
    };
    match u8::try_from(error.exit_code()) {
        Ok(0) => ExitCode::SUCCESS,
        _ if is_check => ExitCode::from(cmd::fsck::exit::USAGE),
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Removes the suggestions of an error unless one is another spelling of the given word: clap's
/// measure finds `--owner` near `--chown`.
pub(crate) fn drop_far_suggestions(error: &mut clap::Error) {
    use ContextKind::{
        InvalidArg, InvalidSubcommand, InvalidValue, SuggestedArg, SuggestedSubcommand,
        SuggestedValue,
    };
    let texts = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    for (given, suggested) in [
        (InvalidArg, SuggestedArg),
        (InvalidSubcommand, SuggestedSubcommand),
        (InvalidValue, SuggestedValue),
    ] {
        let (given, tips) = (texts(error, given), texts(error, suggested));
        let is_near = |tip: &String| given.iter().any(|given| is_other_spelling(given, tip));
        if !tips.is_empty() && !tips.iter().any(is_near) {
            error.remove(suggested);
            // It is the usage of the suggested option.
            error.remove(ContextKind::Usage);
        }
    }
    // clap's tip to pass the option as a value after `--`.
    if error.kind() == ErrorKind::UnknownArgument
        && texts(error, InvalidArg).iter().any(|arg| arg.starts_with("--"))
    {
        error.remove(ContextKind::Suggested);
    }
}

/// Whether two words differ in less than a third of their letters, two at most, or one is the
/// beginning of the other. Two letters in the wrong order are one difference.
fn is_other_spelling(given: &str, known: &str) -> bool {
    let given = given.split('=').next().unwrap_or_default().trim_start_matches('-');
    let known = known.trim_start_matches('-');
    let distance = strsim::osa_distance(given, known);
    let is_start = given.len() > 2 && (known.starts_with(given) || given.starts_with(known));
    is_start || (distance <= 2 && distance * 3 < given.len())
}

fn is_option(arg: &OsStr) -> bool {
    arg.as_encoded_bytes().starts_with(b"-")
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Age(cmd::age::AgeArgs),
    Build(Box<cmd::compose::BuildArgs>),
    Disk(cmd::disk::DiskArgs),
    Growfs(cmd::growfs::GrowfsArgs),
    Info(cmd::info::InfoArgs),
    Check(cmd::check::CheckArgs),
    Manifest(Box<cmd::manifest::ManifestArgs>),
    Lab(cmd::lab::LabCommand),
    Layout(cmd::layout::LayoutArgs),
    Ls(cmd::ls::LsArgs),
    Cat(cmd::cat::CatArgs),
    Compare(cmd::compare::CompareArgs),
    Cp(cmd::cp::CpArgs),
    Crash(cmd::crash::CrashCommand),
    Map(cmd::map::MapArgs),
    Mkfs(cmd::mkfs::MkfsArgs),
    Model(cmd::model::ModelCommand),
    Mount(cmd::mount::MountArgs),
    Prefetch(cmd::prefetch::PrefetchArgs),
    Quota(cmd::quota::QuotaCommand),
    Record(cmd::record::RecordArgs),
    Relayout(cmd::relayout::RelayoutArgs),
    Score(cmd::score::ScoreArgs),
    Snapshot(cmd::snapshot::SnapshotCommand),
    Trace(cmd::trace::TraceArgs),
    Tune(cmd::tune::TuneArgs),
    Watch(cmd::watch::WatchCommand),
    Optimize(cmd::optimize::OptimizeArgs),
    Generate(cmd::generate::GenerateArgs),
}
