//! The command line: the only part of seekless that prints, exits or reads the
//! environment.
//!
//! # Files
//!
//! `verify/` has the arguments of `score --verify-kernel` and `--verify-program`, and prints their
//! results. `cmd/compose/` has a file for each format, and `disk.rs`, `verity.rs` and `room.rs` for
//! partitions, hash trees and free space. `cmd/fsck/` has the programs as which the binary can be
//! called, and the options of e2fsck that `check` has too. `modelled_disk.rs` has the command that serves the disk
//! of `disk run` and `lab run boots`. `dispatch.rs` runs the command of a command line. `written.rs`
//! prints the result of a command that writes. `background.rs` starts the process that serves a
//! mount.

#![deny(clippy::print_stdout, reason = "`say!` copes with a reader that has gone")]
#![deny(clippy::print_stderr, reason = "`warning!` does too, and has a form for --json")]

mod args;
mod background;
mod cmd;
mod command_line;
mod detached;
mod device;
mod dispatch;
mod extract;
mod failure;
mod fat_args;
mod format_args;
mod gaps;
mod interrupt;
mod modelled_disk;
mod progress;
mod registry;
mod say;
mod scoring;
mod show;
mod source;
mod statistics;
mod ufs_args;
mod usage;
mod uuid;
mod verify;
mod written;

use clap::Parser;
use cmd::fsck::Program;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(program) = Program::called(std::env::args_os().next().as_deref()) {
        return program.run(std::env::args_os());
    }
    let cli = match command_line::Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            command_line::drop_far_suggestions(&mut error);
            return command_line::refuse(&error);
        }
    };
    say::begin(&cli.global);
    match dispatch::run(&cli) {
        Ok(code) => code,
        Err(failure) => failure.report(cli.global.json),
    }
}
