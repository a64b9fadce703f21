//! `seekless model bench`: jobs on a modelled device, as fio runs them.

use crate::args::Global;
use crate::device;
use crate::failure::{Failure, Kind};
use crate::say::say;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use seekless_model::closed_loop::{Job, JobError, Outcome, Pattern};
use seekless_units::{ByteLen, Nanos, parse_size, parse_span};
use serde_json::{Value, json};

#[derive(Args, Debug)]
#[command(after_help = "\
The options have the names and meanings of fio's. A job is one thread, which
keeps `--iodepth` requests in flight: it submits the next request when it has
taken in the completion of one. The device is at rest at the start of each job;
time is virtual.

Examples:
  seekless model bench samsung-pm883-480
  seekless model bench gp3 --rw randread --iodepth 1,64 --json
  seekless model bench intel-p3600-1600 --rw read,write --bs 64K --thinktime 4us")]
pub(super) struct BenchArgs {
    /// Preset, or path of a parameter file
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Addresses and operation
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = patterns(),
          default_value = "randread,randwrite")]
    rw: Vec<Pattern>,
    /// Bytes in a request
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    bs: ByteLen,
    /// Requests in flight
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,32")]
    iodepth: Vec<u32>,
    /// Use only this much of the device, from its beginning
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<ByteLen>,
    /// Number of requests of a job
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    number_ios: u64,
    /// Time of the job's thread for a request, before it is submitted
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "0us")]
    thinktime: Nanos,
    /// Seed of the random addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    randseed: u64,
}

fn patterns() -> impl TypedValueParser<Value = Pattern> {
    let names = PossibleValuesParser::new(Pattern::ALL.map(Pattern::name));
    names.map(|name| {
        let found = Pattern::ALL.into_iter().find(|pattern| pattern.name() == name);
        found.unwrap_or(Pattern::RandRead)
    })
}

impl BenchArgs {
    fn jobs(&self) -> Result<Vec<Job>, Failure> {
        let bs = u32::try_from(self.bs.get());
        let bs = bs.map_err(|_| Failure::usage(format!("--bs: {} is too large", self.bs)))?;
        let one = |rw: Pattern, iodepth: u32| Job {
            rw,
            bs,
            iodepth,
            thinktime: self.thinktime,
            size: self.size.map(ByteLen::get),
            number_ios: self.number_ios,
            randseed: self.randseed,
        };
        let of = |&rw: &Pattern| self.iodepth.iter().map(move |&iodepth| one(rw, iodepth));
        Ok(self.rw.iter().flat_map(of).collect())
    }
}

/// The exit code of a job that cannot run: its options are at fault.
fn refused(error: JobError) -> Failure {
    match error {
        JobError::Refused(_) => Failure::new(Kind::System, error.to_string()),
        _ => Failure::usage(format!("--{error}").replace('_', "-")),
    }
}

pub(super) fn run(args: &BenchArgs, global: &Global) -> Result<(), Failure> {
    let spec = device::spec(&args.device)?;
    let jobs = args.jobs()?;
    // One outcome at a time is in memory.
    let run = |job: &Job| job.run(spec.build().as_mut()).map_err(refused);
    if global.json {
        let row = |job: &Job| Ok(as_json(job, &run(job)?));
        let rows: Vec<Value> = jobs.iter().map(row).collect::<Result<_, Failure>>()?;
        say!("{}", json!({ "device": args.device, "jobs": rows }));
        return Ok(());
    }
    let rows = jobs.iter().map(|job| Ok(as_text(job, &run(job)?)));
    let rows: Vec<String> = rows.collect::<Result<_, Failure>>()?;
    say!(
        "{:<10} {:>7} {:>9} {:>9} {:>10} {:>10} {:>10}",
        "rw",
        "iodepth",
        "IOPS",
        "MiB/s",
        "mean us",
        "p50 us",
        "p99 us"
    );
    for row in rows {
        say!("{row}");
    }
    Ok(())
}

fn as_text(job: &Job, outcome: &Outcome) -> String {
    format!(
        "{:<10} {:>7} {:>9.0} {:>9.1} {:>10.1} {:>10.1} {:>10.1}",
        job.rw,
        job.iodepth,
        outcome.iops(),
        outcome.bandwidth() / 1_048_576.0,
        outcome.mean_us(),
        outcome.quantile_us(0.5),
        outcome.quantile_us(0.99),
    )
}

fn as_json(job: &Job, outcome: &Outcome) -> Value {
    json!({
        "rw": job.rw.name(),
        "bs": job.bs,
        "iodepth": job.iodepth,
        "requests": outcome.requests(),
        "elapsed_ns": outcome.elapsed().get(),
        "iops": outcome.iops(),
        "bytes_per_second": outcome.bandwidth(),
        "lat_us": {
            "mean": outcome.mean_us(),
            "p50": outcome.quantile_us(0.5),
            "p99": outcome.quantile_us(0.99),
            "max": outcome.quantile_us(1.0),
        },
    })
}
