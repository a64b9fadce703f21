//! `seekless model validate --fio`: compares models with published results of fio.

use crate::args::Global;
use crate::device;
use crate::failure::Failure;
use crate::say::say;
use seekless_model::published::{self, Compared, Published};
use serde_json::{Value, json};
use std::path::Path;

/// Seed of the random addresses.
const SEED: u64 = 1;

pub(super) fn run(path: &Path, global: &Global) -> Result<(), Failure> {
    let text = device::read(path).map_err(|error| Failure::io(path.display(), &error))?;
    let runs = published::parse(&text, &path.display().to_string())?;
    let mut rows = Vec::new();
    for run in &runs {
        let about = |failure: Failure| failure.about(path.display());
        let spec = device::spec(&run.device).map_err(about)?;
        let compared = run.compare(&spec, SEED);
        // The device is shorter than a request.
        let compared =
            compared.map(|one| one.map_err(|error| about(Failure::usage(error.to_string()))));
        if global.json {
            rows.push(as_json(run, compared)?);
        } else {
            print(run, compared)?;
        }
    }
    if global.json {
        say!("{}", json!({ "runs": rows }));
    }
    Ok(())
}

fn print(
    run: &Published,
    compared: impl Iterator<Item = Result<Compared, Failure>>,
) -> Result<(), Failure> {
    say!("{} ({}; {} bytes)", run.device, run.host, run.bs);
    say!(
        "  {:<10} {:>7} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6}",
        "rw",
        "iodepth",
        "IOPS",
        "model",
        "ratio",
        "mean us",
        "model",
        "ratio",
        "p99 us",
        "model",
        "ratio"
    );
    for one in compared {
        let one = one?;
        let measured = one.measured;
        let latency = |us: Option<f64>, model: f64, ratio: Option<f64>| match (us, ratio) {
            (Some(us), Some(ratio)) => format!("{us:>9.0} {model:>9.0} {ratio:>6.2}"),
            _ => format!("{:>9} {model:>9.0} {:>6}", "-", "-"),
        };
        let mean = latency(measured.lat_us, one.modelled.mean_us(), one.lat_ratio());
        let p99 = latency(measured.p99_us, one.modelled.quantile_us(0.99), one.p99_ratio());
        say!(
            "  {:<10} {:>7} {:>9.0} {:>9.0} {:>6.2} {mean} {p99}{}",
            measured.rw,
            measured.iodepth,
            measured.iops,
            one.modelled.iops(),
            one.iops_ratio(),
            if measured.parameter { "  parameter" } else { "" },
        );
    }
    Ok(())
}

fn as_json(
    run: &Published,
    compared: impl Iterator<Item = Result<Compared, Failure>>,
) -> Result<Value, Failure> {
    let row = |one: Result<Compared, Failure>| {
        let one = one?;
        Ok(json!({
            "rw": one.measured.rw.name(),
            "iodepth": one.measured.iodepth,
            "parameter": one.measured.parameter,
            "iops": one.modelled.iops(),
            "measured_iops": one.measured.iops,
            "lat_us": one.modelled.mean_us(),
            "measured_lat_us": one.measured.lat_us,
            "p99_us": one.modelled.quantile_us(0.99),
            "measured_p99_us": one.measured.p99_us,
        }))
    };
    Ok(json!({
        "device": run.device,
        "host": run.host,
        "source": run.source,
        "bs": run.bs,
        "results": compared.map(row).collect::<Result<Vec<_>, Failure>>()?,
    }))
}
