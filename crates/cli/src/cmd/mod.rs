//! A file a command.

pub(crate) mod cat;
pub(crate) mod cp;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod ls;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use std::process::ExitCode;

/// Runs what the command line says.
pub(crate) fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Info(args) => info::run(args, &cli.global),
        Command::Ls(args) => ls::run(args, &cli.global),
        Command::Cat(args) => cat::run(args),
        Command::Cp(args) => cp::run(args, &cli.global),
        Command::Generate(args) => generate::run(args),
    }
}
