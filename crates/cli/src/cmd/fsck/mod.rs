//! The programs in whose place the binary checks volumes if it is called by their names: e2fsck and
//! fsck.fat.

mod dosfsck;
mod e2fsck;
pub(crate) mod exit;
pub(crate) mod ext_args;
mod extended;
mod progress;
mod refusal;
mod show;

use crate::args::Global;
use crate::failure::Failure;
use crate::say;
use clap::Parser;
use exit::{OPERATIONAL, USAGE};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// A program in whose place the binary can be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    E2fsck,
    Dosfsck,
}

impl Program {
    /// The program by the name with which the binary was called.
    pub(crate) fn called(name: Option<&OsStr>) -> Option<Self> {
        match Path::new(name?).file_name()?.to_str()? {
            "e2fsck" | "fsck.ext2" | "fsck.ext3" | "fsck.ext4" => Some(Self::E2fsck),
            "fsck.fat" | "fsck.vfat" | "fsck.msdos" | "dosfsck" => Some(Self::Dosfsck),
            _ => None,
        }
    }

    /// Checks a volume as the arguments say; the first is the name of the program.
    pub(crate) fn run(self, arguments: impl Iterator<Item = OsString>) -> ExitCode {
        say::begin(&Global { json: false, quiet: false });
        say::go_on();
        match self {
            Self::E2fsck => parsed(arguments, e2fsck::run),
            Self::Dosfsck => parsed(arguments, dosfsck::run),
        }
    }
}

/// Parses the arguments of a program, and runs it.
fn parsed<P: Parser>(
    arguments: impl Iterator<Item = OsString>,
    run: fn(&P) -> Result<u8, Failure>,
) -> ExitCode {
    match P::try_parse_from(arguments) {
        Ok(args) => match run(&args) {
            Ok(code) => ExitCode::from(code),
            Err(failure) => refused(&failure),
        },
        Err(error) => {
            // A closed pipe is no error here.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
        }
    }
}

/// Prints a failure; the exit code is that of fsck for it.
fn refused(failure: &Failure) -> ExitCode {
    failure.report(false);
    ExitCode::from(if failure.is_usage() { USAGE } else { OPERATIONAL })
}
