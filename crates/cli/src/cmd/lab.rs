//! `seekless lab`: repeats published experiments, and compares the results with the publications.

mod boots;
mod go;
mod keep;
mod merge;
mod page;
mod sensitivity;
mod show;
mod subject;
mod summary;

use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use crate::written::Written;
use clap::{Args, Subcommand};
use go::LabRunArgs;
use seekless_images::output::{NO_INPUTS, Output, directory_of};
use seekless_lab::boots::BootExperiment;
use seekless_lab::builtin;
use seekless_lab::builtin::Heading;
use seekless_lab::store::EXPERIMENT;
use sensitivity::SensitivityArgs;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use subject::{Subject, text_of};

/// Reproduce published experiments on modelled disks in virtual time
#[derive(Args, Debug)]
#[command(after_help = "\
An experiment is built in or a TOML file; docs/experiments.md describes the file
format and the results of the built-in experiments. Experiments of the kind
'boots' use the kernel's file systems and need root.

Examples:
  seekless lab list
  seekless lab show dirpref > mine.toml
  seekless lab run dirpref -o results
  seekless lab run boots --only raptor-74/fresh
  seekless lab run dirpref --only second/softdep --io-log requests.tsv
  seekless lab run dirpref --repetitions 5 --json | jq '.cells[].new.range_s'
  seekless lab sensitivity dirpref --vary cache
  seekless lab run ./mine.toml --seeds 5 --shard 1/4 -o part1
  seekless lab merge part1 part2 part3 part4 -o all
  seekless lab report all")]
pub(crate) struct LabCommand {
    #[command(subcommand)]
    what: LabSubcommand,
}

#[derive(Subcommand, Debug)]
enum LabSubcommand {
    /// List the built-in experiments
    #[command(after_help = "Examples:\n  seekless lab list")]
    List,
    /// Print the file of an experiment
    #[command(after_help = "Examples:\n  seekless lab show softdep")]
    Show {
        /// Built-in experiment, or path of a file
        experiment: String,
    },
    /// Run an experiment, or resume one
    #[command(after_help = "\
Examples:
  seekless lab run dirpref -o results
  seekless lab run dirpref --only second/softdep
  seekless lab run ./mine.toml --seeds 5 --shard 1/4 -o part1")]
    Run(LabRunArgs),
    /// Vary the assumptions of an experiment, and show which claims still hold
    #[command(after_help = "\
Each [[assumption]] of the file is changed in turn: halved and doubled, or set to the
values that the file lists. Claims are the published speed-ups, the pairs of the
[ranking], and the [[claim]]s of the file. docs/experiments.md has the results of the
built-in experiments.

Examples:
  seekless lab sensitivity dirpref
  seekless lab sensitivity dirpref --only second/softdep --vary cache calls
  seekless lab sensitivity tarcp -o results --json")]
    Sensitivity(SensitivityArgs),
    /// Merge the results of several directories
    #[command(after_help = "\
Each directory records which runs were requested. Missing and incomplete parts, parts
that are there twice and files that are not results are listed; then nothing is merged
without --partial, and the exit code is 1.

Examples:
  seekless lab merge part1 part2 part3 part4 -o four
  seekless lab merge --partial part1 part2 -o two")]
    Merge {
        /// Merge the results that are there, even if some are missing
        #[arg(long)]
        partial: bool,
        /// Directories written by `run -o`
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// Directory for the merged results
        #[arg(short, long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Write the results as an HTML page
    #[command(after_help = "Examples:\n  seekless lab report merged -o page.html")]
    Report {
        /// Directory written by `run -o` or `merge -o`
        dir: PathBuf,
        /// Output file [default: report.html in DIR]; for a name ending in .svg,
        /// only the maps of a sweep are drawn
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &LabCommand, global: &Global) -> Result<ExitCode, Failure> {
    match &args.what {
        LabSubcommand::List => list(global)?,
        LabSubcommand::Show { experiment } => {
            let text = text_of(experiment)?;
            // Checked first: the text of an invalid file is not printed.
            if !BootExperiment::is_one(&text) {
                Subject::new(text.clone(), experiment)?;
            }
            if global.json {
                say!("{}", crate::show::json_of_toml(&text, experiment)?);
            } else {
                say!("{}", text.trim_end());
            }
        }
        LabSubcommand::Run(args) => return go::run(args, global),
        LabSubcommand::Sensitivity(args) => return sensitivity::run(args, global),
        LabSubcommand::Merge { partial, dirs, output } => {
            return merge::run(dirs, output.as_deref(), *partial, global);
        }
        LabSubcommand::Report { dir, output } => report(dir, output.as_deref(), global)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a path is a file of a directory of results: the experiment's file, a run, a selection, or
/// a table of runs or cells.
fn is_result(path: &Path) -> bool {
    // A symlink counts as its target.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept = name == EXPERIMENT
        || ["run-", "runs.", "cells.", "selection-"].iter().any(|p| name.starts_with(p));
    kept && directory_of(&path).join(EXPERIMENT).exists()
}

/// Refuses an output that could replace a file of a directory of results: only .html and .svg files
/// may be written there.
fn check_drawing(path: &Path) -> Result<(), Failure> {
    let drawn = path.extension().is_some_and(|extension| extension == "html" || extension == "svg");
    if drawn || !directory_of(path).join(EXPERIMENT).exists() {
        return Ok(());
    }
    let why = "in a directory of results, only .html and .svg files may be written";
    Err(Failure::usage(format!("{}: {why}", path.display())))
}

/// Writes the results in a directory as a page or a drawing.
fn report(dir: &Path, output: Option<&Path>, global: &Global) -> Result<(), Failure> {
    let (Subject { experiment, .. }, runs) = merge::all_of(dir)?;
    let path = output.map_or_else(|| dir.join("report.html"), PathBuf::from);
    check_drawing(&path)?;
    let page = if path.extension().is_some_and(|extension| extension == "svg") {
        show::drawing(&experiment, &runs).ok_or_else(|| {
            Failure::usage(format!("{} has no sweep over two keys", experiment.name))
        })?
    } else {
        page::page(&experiment, &runs)
    };
    let output = Output::create(&path, true, NO_INPUTS)?;
    let written = output.file()?.write_all(page.as_bytes());
    written.map_err(|error| Failure::io(path.display(), &error))?;
    output.finish()?;
    if global.json {
        say!("{}", json!({ "report": path, "path": path, "bytes": page.len() }));
    } else {
        Written::file(&path).tell(global);
    }
    Ok(())
}

fn list(global: &Global) -> Result<(), Failure> {
    let all: Vec<Heading> = builtin::headings()?;
    if global.json {
        let list: Vec<_> = all
            .iter()
            .map(|e| json!({"name": e.name, "summary": e.summary, "sources": e.sources}))
            .collect();
        say!("{}", json!(list));
    } else {
        let width = all.iter().map(|e| e.name.len()).max().unwrap_or_default();
        all.iter().for_each(|e| say!("{:<width$} {}", e.name, e.summary));
    }
    Ok(())
}
