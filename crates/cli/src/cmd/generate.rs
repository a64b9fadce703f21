//! `seekless generate`: generates man pages and shell completions from the definitions that parse
//! the command line.

mod man;

use crate::args::Global;
use crate::failure::Failure;
use crate::say::{self, say};
use crate::source::source_date_epoch;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Write man pages or shell completions
#[derive(Args, Debug)]
#[command(after_help = "\
Man pages have the date of the environment variable SOURCE_DATE_EPOCH (seconds since
1970), or today's.

Examples:
  seekless generate man /usr/local/share/man/man1
  seekless generate completions bash > /etc/bash_completion.d/seekless")]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: GenerateSubcommand,
}

#[derive(Subcommand, Debug)]
enum GenerateSubcommand {
    /// Write one man page per command, and seekless-formats(5), to a directory
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
            let pages = man::pages(&mut command, &date()?);
            for page in &pages {
                std::fs::write(dir.join(&page.name), &page.text).map_err(io)?;
            }
            let pages = pages.len();
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

/// The date of the pages: that of SOURCE_DATE_EPOCH, or today's.
fn date() -> Result<String, Failure> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds =
        source_date_epoch()?.map_or_else(now, |seconds| u64::try_from(seconds).unwrap_or(0));
    let (year, month, day) = civil(seconds / 86400);
    Ok(format!("{year:04}-{month:02}-{day:02}"))
}

/// The date of a day, counted from 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // The calendar repeats itself after 400 years.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (11_016, (2000, 2, 29)),
            (20_786, (2026, 11, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
            (364, (1970, 12, 31)),
            (146_097, (2370, 1, 1)),
        ] {
            assert_eq!(civil(days), date, "{days}");
        }
    }
}
