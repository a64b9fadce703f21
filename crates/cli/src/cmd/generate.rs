//! `seekless generate`: generates man pages and shell completions from the definitions that parse
//! the command line.

use crate::args::Global;
use crate::failure::Failure;
use crate::say::{self, say};
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write man pages or shell completions
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless generate man /usr/local/share/man/man1
  seekless generate completions bash > /etc/bash_completion.d/seekless")]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: GenerateSubcommand,
}

#[derive(Subcommand, Debug)]
enum GenerateSubcommand {
    /// Write one man page per command to a directory
    #[command(after_help = "Examples:\n  seekless generate man man1")]
    Man {
        /// Output directory; created if it does not exist
        dir: PathBuf,
    },
    /// Write a completion script to standard output
    #[command(after_help = "Examples:\n  seekless generate completions zsh > _seekless")]
    Completions {
        /// Shell to generate completions for
        shell: Shell,
    },
}

/// Number of man pages of a command and its subcommands.
fn pages(command: &Command) -> usize {
    1 + command.get_subcommands().filter(|below| !below.is_hide_set()).map(pages).sum::<usize>()
}

/// `command` is the definition of the command line.
pub(crate) fn run(
    args: &GenerateArgs,
    global: &Global,
    mut command: Command,
) -> Result<ExitCode, Failure> {
    match &args.what {
        GenerateSubcommand::Man { dir } => {
            let io = |error: std::io::Error| Failure::io(dir.display(), &error);
            std::fs::create_dir_all(dir).map_err(io)?;
            let pages = pages(&command);
            clap_mangen::generate_to(command, dir).map_err(io)?;
            if global.json {
                say!("{}", json!({ "path": dir.to_string_lossy(), "pages": pages }));
            } else if !global.quiet {
                say!("{}: {pages} pages", dir.display());
            }
        }
        GenerateSubcommand::Completions { shell } => {
            // Generated in memory: the generator panics if a write fails.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "seekless", &mut script);
            if global.json {
                let script = String::from_utf8_lossy(&script);
                say!("{}", json!({ "shell": shell.to_string(), "script": script }));
            } else {
                say::bytes(&script);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
