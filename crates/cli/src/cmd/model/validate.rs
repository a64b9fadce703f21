//! `seekless model validate`: compares models with measured drives.

use super::{fio, plot};
use crate::args::Global;
use crate::device;
use crate::failure::{Failure, Kind};
use crate::say::say;
use clap::Args;
use lzma_rust2::XzReader;
use seekless_images::output::Output;
use seekless_model::validate::{self, Demerit, TraceError, Traced};
use seekless_units::Nanos;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum length of a trace, decompressed, in bytes.
const LARGEST: u64 = 1 << 30;

/// Suffixes of a drive's parameter file, after the drive's name. The first file found is used,
/// those with most information first.
const SPECS: &[&str] =
    &[".toml", ".parv", "_validate.diskspecs", ".diskspecs", "_validate.model", ".model"];

#[derive(Args, Debug)]
#[command(after_help = "\
Traces are DRIVE.trace or DRIVE.trace.xz in DiskSim's `validate` format: R or
W, hit or miss, block, count, response time and time to the next request in
microseconds, a request a line. DRIVE.toml, DRIVE.parv, DRIVE.diskspecs or
DRIVE.model has the drive's figures. Each request starts when the one before is
done and the trace's time between them has passed.

The demerit figure (Ruemmler and Wilkes) is the root mean square of the
horizontal distance between the measured and the modelled distribution of
response times; percent are of the measured mean.

With --fio, jobs run on the models, and their figures are printed beside the
published ones. `parameter` marks results from which a parameter of the model was
derived, so that they do not judge it.

Examples:
  seekless model validate --traces traces --specs specs
  seekless model validate --traces traces --specs specs --plot fit.svg --json
  seekless model validate --fio results.toml")]
pub(super) struct ValidateArgs {
    /// Directory of the measured traces
    #[arg(long, value_name = "DIR", requires = "specs", required_unless_present = "fio")]
    traces: Option<PathBuf>,
    /// Directory of the drives' parameter files
    #[arg(long, value_name = "DIR", requires = "traces")]
    specs: Option<PathBuf>,
    /// Draw both distributions of every drive (SVG)
    #[arg(long, value_name = "FILE", requires = "traces")]
    plot: Option<PathBuf>,
    /// Compare with a table of published results of fio (TOML, see docs/models.md)
    #[arg(long, value_name = "FILE", conflicts_with = "traces")]
    fio: Option<PathBuf>,
}

/// A drive's measured response times, and those of the model.
pub(super) struct Validated {
    pub(super) drive: String,
    pub(super) measured: Vec<Nanos>,
    pub(super) modelled: Vec<Nanos>,
    pub(super) demerit: Demerit,
}

pub(super) fn run(args: &ValidateArgs, global: &Global) -> Result<(), Failure> {
    if let Some(path) = &args.fio {
        return fio::run(path, global);
    }
    let (Some(traces), Some(specs)) = (&args.traces, &args.specs) else {
        return Err(Failure::usage("--traces and --specs, or --fio, are required"));
    };
    let traces = find_traces(traces)?;
    let drives: Vec<Validated> = traces
        .iter()
        .map(|(drive, path)| validate_one(drive, path, specs))
        .collect::<Result<_, _>>()?;
    if let Some(path) = &args.plot {
        let output = Output::create(path, true, inputs(&traces, specs))?;
        let io = |error| Failure::io(path.display(), &error);
        output.file()?.write_all(plot::svg(&drives).as_bytes()).map_err(io)?;
        output.finish()?;
    }
    if global.json {
        let rows: Vec<Value> = drives.iter().map(as_json).collect();
        say!("{}", json!({ "drives": rows }));
        return Ok(());
    }
    say!("{:<16} {:>10} {:>10} {:>10} {:>8}", "drive", "measured", "model", "demerit", "percent");
    for one in &drives {
        let Demerit { mean_ms, measured_mean_ms, demerit_ms, demerit_percent } = one.demerit;
        say!(
            "{:<16} {measured_mean_ms:>7.3} ms {mean_ms:>7.3} ms {demerit_ms:>7.3} ms {demerit_percent:>7.2}%",
            one.drive,
        );
    }
    Ok(())
}

fn as_json(one: &Validated) -> Value {
    json!({
        "drive": one.drive,
        "mean_ms": one.demerit.mean_ms,
        "demerit_ms": one.demerit.demerit_ms,
        "demerit_percent": one.demerit.demerit_percent,
    })
}

/// All files that are read, or might be.
fn inputs(traces: &[(String, PathBuf)], specs: &Path) -> Vec<PathBuf> {
    let of_drive = |(drive, path): &(String, PathBuf)| {
        let specs = SPECS.iter().map(|ending| specs.join(format!("{drive}{ending}")));
        specs.chain([path.clone()]).collect::<Vec<_>>()
    };
    traces.iter().flat_map(of_drive).collect()
}

fn validate_one(drive: &str, path: &Path, specs: &Path) -> Result<Validated, Failure> {
    let spec = SPECS
        .iter()
        .map(|ending| specs.join(format!("{drive}{ending}")))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            let names: Vec<String> = SPECS.iter().map(|end| format!("{drive}{end}")).collect();
            Failure::usage(format!("{}: {} not found", specs.display(), names.join(", ")))
        })?;
    let spec = device::spec(&spec.to_string_lossy())?;
    let trace = load(path)?;
    let failed =
        |error: TraceError| Failure::new(Kind::Corrupt, error.to_string()).about(path.display());
    let modelled = validate::replay(spec.build().as_mut(), &trace).map_err(failed)?;
    let measured: Vec<Nanos> = trace.iter().map(|traced| traced.response).collect();
    let demerit = validate::demerit(&measured, &modelled);
    Ok(Validated { drive: drive.into(), measured, modelled, demerit })
}

/// The traces in a directory, with the names of their drives, sorted.
fn find_traces(dir: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let io = |error: io::Error| Failure::io(dir.display(), &error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let plain = name.strip_suffix(".xz").unwrap_or(&name);
        if let Some(drive) = plain.strip_suffix(".trace") {
            found.push((drive.to_string(), path));
        }
    }
    found.sort();
    if found.is_empty() {
        let why = format!("{}: no *.trace or *.trace.xz", dir.display());
        return Err(Failure::usage(why));
    }
    Ok(found)
}

fn load(path: &Path) -> Result<Vec<Traced>, Failure> {
    let io = |error: io::Error| Failure::io(path.display(), &error);
    let file = File::open(path).map_err(io)?;
    let mut text = String::new();
    let packed = path.extension().is_some_and(|extension| extension == "xz");
    if packed {
        let corrupt =
            |error: io::Error| Failure::new(Kind::Corrupt, format!("{}: {error}", path.display()));
        let reader = XzReader::new(io::BufReader::new(file), true);
        reader.take(LARGEST + 1).read_to_string(&mut text).map_err(corrupt)?;
    } else {
        file.take(LARGEST + 1).read_to_string(&mut text).map_err(io)?;
    }
    if text.len() as u64 > LARGEST {
        return Err(Failure::new(Kind::Corrupt, format!("{}: too large", path.display())));
    }
    let name = path.display().to_string();
    validate::parse(&text, &name).map_err(|error| Failure::new(Kind::Corrupt, error.to_string()))
}
