//! The command that a command line names.

use crate::cmd::{
    age, cat, check, compare, compose, cp, crash, disk, generate, growfs, info, lab, layout, ls,
    manifest, map, mkfs, model, mount, optimize, prefetch, quota, record, relayout, score,
    snapshot, trace, tune, watch,
};
use crate::command_line::{Cli, Command};
use crate::failure::Failure;
use clap::CommandFactory;
use std::process::ExitCode;

/// Runs the command given on the command line.
pub(crate) fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Age(args) => age::run(args, &cli.global),
        Command::Build(args) => compose::run(args, &cli.global),
        Command::Crash(args) => crash::run(args, &cli.global),
        Command::Disk(args) => disk::run(args, &cli.global),
        Command::Growfs(args) => growfs::run(args, &cli.global),
        Command::Info(args) => info::run(args, &cli.global),
        Command::Manifest(args) => manifest::run(args, &cli.global),
        Command::Lab(args) => lab::run(args, &cli.global),
        Command::Layout(args) => layout::run(args, &cli.global),
        Command::Ls(args) => ls::run(args, &cli.global),
        Command::Cat(args) => cat::run(args, &cli.global),
        Command::Check(args) => check::run(args, &cli.global),
        Command::Compare(args) => compare::run(args, &cli.global),
        Command::Cp(args) => cp::run(args, &cli.global),
        Command::Map(args) => map::run(args, &cli.global),
        Command::Mkfs(args) => mkfs::run(args, &cli.global),
        Command::Model(args) => model::run(args, &cli.global),
        Command::Mount(args) => mount::run(args, &cli.global),
        Command::Optimize(args) => optimize::run(args, &cli.global),
        Command::Prefetch(args) => prefetch::run(args, &cli.global),
        Command::Quota(args) => quota::run(args, &cli.global),
        Command::Record(args) => record::run(args, &cli.global),
        Command::Relayout(args) => relayout::run(args, &cli.global),
        Command::Score(args) => score::run(args, &cli.global),
        Command::Snapshot(args) => snapshot::run(args, &cli.global),
        Command::Trace(args) => trace::run(args, &cli.global),
        Command::Tune(args) => tune::run(args, &cli.global),
        Command::Watch(args) => watch::run(args, &cli.global),
        Command::Generate(args) => generate::run(args, &cli.global, Cli::command()),
    }
}
