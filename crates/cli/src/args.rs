//! What the command line takes. Man pages and completions come from here too.

use crate::cmd;
use clap::{Args, Parser, Subcommand};

/// Keeps what is used together close together on disk.
#[derive(Parser, Debug)]
#[command(name = "seekless", version, propagate_version = true, max_term_width = 100)]
#[command(after_long_help = "\
Exit codes:
  0  done
  1  done, and the answer is no (two things compared differ)
  2  wrong arguments
  3  the image is corrupt
  4  the image or request needs something that is not supported
  5  no space: something does not fit
  6  the system refused (file missing, permission, I/O error)")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options every command takes.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// Print results (and errors) as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress bars
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// How to open an image.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct OpenArgs {
    /// Read on where a checksum does not match
    #[arg(long)]
    pub(crate) ignore_checksums: bool,
    /// Show the image as it is, without what its journal still holds
    #[arg(long)]
    pub(crate) skip_journal: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Build(cmd::build::BuildArgs),
    Disk(cmd::disk::DiskArgs),
    Info(cmd::info::InfoArgs),
    Check(cmd::check::CheckArgs),
    Manifest(cmd::manifest::ManifestArgs),
    Lab(cmd::lab::LabCommand),
    Ls(cmd::ls::LsArgs),
    Cat(cmd::cat::CatArgs),
    Cp(cmd::cp::CpArgs),
    Map(cmd::map::MapArgs),
    Mkfs(cmd::mkfs::MkfsArgs),
    Model(cmd::model::ModelCommand),
    Mount(cmd::mount::MountArgs),
    Record(cmd::record::RecordArgs),
    Score(cmd::score::ScoreArgs),
    Trace(cmd::trace::TraceArgs),
    Tune(cmd::tune::TuneArgs),
    Optimize(cmd::optimize::OptimizeArgs),
    Generate(cmd::generate::GenerateArgs),
}
