//! A file a command.

pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod cp;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod ls;
pub(crate) mod manifest;
pub(crate) mod mount;
pub(crate) mod trace;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use std::process::ExitCode;

/// Runs what the command line says.
pub(crate) fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Build(args) => build::run(args, &cli.global),
        Command::Info(args) => info::run(args, &cli.global),
        Command::Manifest(args) => manifest::run(args, &cli.global),
        Command::Mount(args) => mount::run(args),
        Command::Trace(args) => trace::run(args, &cli.global),
        Command::Ls(args) => ls::run(args, &cli.global),
        Command::Cat(args) => cat::run(args),
        Command::Cp(args) => cp::run(args, &cli.global),
        Command::Generate(args) => generate::run(args),
    }
}
