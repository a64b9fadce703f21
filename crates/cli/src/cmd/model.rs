//! `seekless model`: models of devices on which requests are timed.

mod bench;
mod fio;
mod plot;
mod validate;

use crate::args::Global;
use crate::device;
use crate::failure::{Failure, Kind};
use crate::say::say;
use crate::written::Written;
use bench::BenchArgs;
use clap::{Args, Subcommand};
use seekless_images::output::Output;
use seekless_model::preset::{self, Spec};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use validate::ValidateArgs;

/// List, show, import, run and validate models of storage devices
#[derive(Args, Debug)]
#[command(after_help = "\
A device is a preset or a TOML file; docs/models.md describes the file format.

Examples:
  seekless model list
  seekless model show gp3 > mine.toml
  seekless model import cheetah9LP.parv -o cheetah9LP.toml
  seekless score disk.img --trace boot.trace --device gp3 --device ./mine.toml
  seekless model bench samsung-pm883-480 --rw randread --iodepth 1,8,32
  seekless model validate --traces traces --specs specs --plot fit.svg")]
pub(crate) struct ModelCommand {
    #[command(subcommand)]
    what: ModelSubcommand,
}

#[derive(Subcommand, Debug)]
enum ModelSubcommand {
    /// List the built-in devices
    #[command(after_help = "Examples:\n  seekless model list")]
    List,
    /// Print the parameter file of a device, with the sources of its figures
    #[command(
        after_help = "Examples:\n  seekless model show sata-7200\n  seekless model show gp3 > mine.toml"
    )]
    Show {
        /// Preset, or path of a parameter file
        #[arg(value_name = "DEVICE")]
        device: String,
    },
    /// Create a parameter file from the DiskSim files of a drive
    ///
    /// FILE is a .parv file, which names the other files and the bus, or a
    /// .diskspecs or .model file. Files that it names are searched for in the
    /// same directory.
    #[command(after_help = "Examples:\n  seekless model import cheetah9LP.parv -o cheetah9LP.toml")]
    Import {
        /// The DiskSim file
        file: PathBuf,
        /// Output file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace the output if it exists
        #[arg(long, requires = "output")]
        force: bool,
    },
    /// Measure requests per second and latency with a number of requests in flight
    Bench(BenchArgs),
    /// Compare models with measured traces, or with published results of fio
    Validate(ValidateArgs),
}

pub(crate) fn run(args: &ModelCommand, global: &Global) -> Result<ExitCode, Failure> {
    match &args.what {
        ModelSubcommand::List => list(global)?,
        ModelSubcommand::Show { device } => show(device, global)?,
        ModelSubcommand::Import { file, output, force } => {
            let spec = device::import(file)?;
            match output {
                Some(path) => {
                    let output = Output::create(path, *force, [file])?;
                    let io = |error| Failure::io(path.display(), &error);
                    output.file()?.write_all(text(&spec)?.as_bytes()).map_err(io)?;
                    output.finish()?;
                    Written::file(path).tell(global);
                }
                None if global.json => say!("{}", json!(spec)),
                None => say!("{}", text(&spec)?.trim_end()),
            }
        }
        ModelSubcommand::Bench(args) => bench::run(args, global)?,
        ModelSubcommand::Validate(args) => validate::run(args, global)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(spec: &Spec) -> Result<String, Failure> {
    spec.to_toml().map_err(|error| Failure::new(Kind::System, error.to_string()))
}

fn list(global: &Global) -> Result<(), Failure> {
    let specs: Vec<Spec> = preset::names().map(preset::spec).collect::<Result<_, _>>()?;
    if global.json {
        let row = |spec: &Spec| {
            let (name, kind) = (&spec.name, spec.kind());
            json!({ "name": name, "kind": kind, "summary": spec.summary })
        };
        let rows: Vec<Value> = specs.iter().map(row).collect();
        say!("{}", json!({ "presets": rows }));
        return Ok(());
    }
    let width = specs.iter().map(|spec| spec.name.len()).max().unwrap_or(0);
    for spec in &specs {
        say!("{:<width$}  {:<6}  {}", spec.name, spec.kind(), spec.summary);
    }
    Ok(())
}

fn show(name: &str, global: &Global) -> Result<(), Failure> {
    if global.json {
        say!("{}", json!(device::spec(name)?));
        return Ok(());
    }
    // The text of a preset has comments, which the parsed file has not.
    match preset::text(name) {
        Ok(text) => say!("{}", text.trim_end()),
        Err(_) => say!("{}", text(&device::spec(name)?)?.trim_end()),
    }
    Ok(())
}
