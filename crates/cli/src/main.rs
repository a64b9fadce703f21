//! The command line: the only part of seekless that prints, exits or reads the
//! environment.

#![deny(clippy::print_stdout, reason = "`say!` copes with a reader that has gone")]
#![deny(clippy::print_stderr, reason = "`warning!` does too, and has a form for --json")]

mod args;
mod background;
mod cmd;
mod command_line;
mod detached;
mod device;
mod extract;
mod failure;
mod fat_args;
mod interrupt;
mod progress;
mod say;
mod scoring;
mod show;
mod source;
mod statistics;
mod ufs_args;
mod usage;
mod uuid;
mod verify;
mod workbench;
mod written;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match command_line::Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            command_line::drop_far_suggestions(&mut error);
            return command_line::refuse(&error);
        }
    };
    say::begin(&cli.global);
    match cmd::run(&cli) {
        Ok(code) => code,
        Err(failure) => failure.report(cli.global.json),
    }
}
