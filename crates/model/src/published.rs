//! Comparison of a model with published results of fio.
//!
//! A table of results is TOML. Each `[[run]]` has the device (a preset or parameter file), the host
//! on which it was measured, where that was published, and the results, one for each number of
//! requests in flight:
//!
//! ```
//! let text = r#"
//!     [[run]]
//!     device = "gp3"
//!     host = "m5.large"
//!     source = "owner/repository, file"
//!     thinktime_us = 3.0
//!     results = [
//!         { rw = "randread", iodepth = 1, iops = 1500, lat_us = 660, parameter = true },
//!         { rw = "randread", iodepth = 32, iops = 3000 },
//!     ]"#;
//! let runs = seekless_model::published::parse(text, "results.toml")?;
//! let spec = seekless_model::preset::spec(&runs[0].device)?;
//! let compared = runs[0].compare(&spec, 1).collect::<Result<Vec<_>, _>>()?;
//! assert!((compared[1].iops_ratio() - 1.0).abs() < 0.01);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::closed_loop::{DEEPEST, Job, JobError, LARGEST, Outcome, Pattern, is_length};
use crate::preset::SpecError;
use crate::spec::Spec;
use seekless_units::Nanos;
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

/// Number of requests for a result, for each in flight. A result has at least [`FEWEST`].
const TURNS: u64 = 100;
const FEWEST: u64 = 50_000;
/// Maximum number of results in a table: each takes up to some seconds to compute.
const MOST: usize = 10_000;

/// A device, measured on a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Preset, or path of a parameter file.
    pub device: String,
    /// Host, adapter, file system.
    pub host: String,
    /// Place of publication.
    pub source: String,
    /// Time of the host's thread for a request, in microseconds: [`Job::thinktime`].
    pub thinktime_us: f64,
    /// Bytes in a request.
    #[serde(default = "page")]
    pub bs: u32,
    /// Bytes over which the job ran; absent for the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The results.
    pub results: Vec<Measured>,
}

const fn page() -> u32 {
    4096
}

/// A result: means over the duration of the job.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Addresses and operation.
    pub rw: Pattern,
    /// Requests in flight.
    pub iodepth: u32,
    /// Requests per second.
    pub iops: f64,
    /// Mean latency in microseconds, if it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lat_us: Option<f64>,
    /// 99th percentile of the latency in microseconds, if it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// A parameter of the model was derived from the rate or the mean latency, so that these do not
    /// judge it.
    #[serde(default)]
    pub parameter: bool,
}

/// A result, and what the model gives for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// The published result.
    pub measured: Measured,
    /// The model's.
    pub modelled: Outcome,
}

impl Compared {
    /// Requests per second, of the model to the measured.
    #[must_use]
    pub fn iops_ratio(&self) -> f64 {
        self.modelled.iops() / self.measured.iops
    }

    /// Mean latency, of the model to the measured.
    #[must_use]
    pub fn lat_ratio(&self) -> Option<f64> {
        self.measured.lat_us.map(|us| self.modelled.mean_us() / us)
    }

    /// 99th percentile of the latency, of the model to the measured.
    #[must_use]
    pub fn p99_ratio(&self) -> Option<f64> {
        self.measured.p99_us.map(|us| self.modelled.quantile_us(0.99) / us)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    run: Vec<Published>,
}

/// Parses a table of results; `file` is its name for errors.
///
/// # Errors
/// [`SpecError::Invalid`].
pub fn parse(text: &str, file: &str) -> Result<Vec<Published>, SpecError> {
    let table: Table =
        toml::from_str(text).map_err(|error| SpecError::syntax(&error, text, file))?;
    let count: usize = table.run.iter().map(|run| run.results.len()).sum();
    if count > MOST {
        let why = format!("more than {MOST} results");
        return Err(SpecError::of_key("results", why, text, file));
    }
    let fault = |(at, run): (usize, &Published)| run.fault().map(|fault| (at, fault));
    match table.run.iter().enumerate().find_map(fault) {
        None => Ok(table.run),
        Some((run, fault)) => {
            let line = fault.line(text, run);
            let (file, key) = (file.into(), fault.key.into());
            Err(SpecError::Invalid { file, line, key, message: fault.why })
        }
    }
}

/// A value that is out of range.
struct TableFault {
    /// The index of its result; `None` for a value of the run itself.
    result: Option<usize>,
    key: &'static str,
    why: String,
}

impl TableFault {
    /// The line of the value, from 1, in the run of this index.
    fn line(&self, text: &str, run: usize) -> usize {
        let byte = || {
            let table = DeTable::parse(text).ok()?;
            let run = table.get_ref().get("run")?.get_ref().get(run)?.get_ref();
            let owner = match self.result {
                None => run,
                Some(result) => run.get("results")?.get_ref().get(result)?.get_ref(),
            };
            Some(owner.get(self.key)?.span().start)
        };
        let before = byte().and_then(|byte| text.get(..byte)).unwrap_or_default();
        before.matches('\n').count() + 1
    }
}

impl Published {
    /// The first fault in the figures.
    fn fault(&self) -> Option<TableFault> {
        let of_run = |key, why| Some(TableFault { result: None, key, why });
        if !(0.0..=1e6).contains(&self.thinktime_us) {
            let why = format!("{} us is not in the range 0 to 1e6", self.thinktime_us);
            return of_run("thinktime_us", why);
        }
        if !is_length(self.bs) {
            let why = format!("{} is not a multiple of 512 from 512 to {LARGEST}", self.bs);
            return of_run("bs", why);
        }
        if let Some(size) = self.size.filter(|size| *size < u64::from(self.bs)) {
            return of_run("size", format!("{size} bytes are less than a request of {}", self.bs));
        }
        self.results.iter().enumerate().find_map(|(at, result)| {
            let (key, why) = result.fault()?;
            Some(TableFault { result: Some(at), key, why })
        })
    }

    /// Runs a job for each result, on a device at rest, when the iterator arrives at it. `randseed`
    /// seeds the random addresses.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn compare<'a>(
        &'a self,
        spec: &'a Spec,
        randseed: u64,
    ) -> impl Iterator<Item = Result<Compared, JobError>> + 'a {
        self.results.iter().map(move |&measured| {
            let job = Job {
                rw: measured.rw,
                bs: self.bs,
                iodepth: measured.iodepth,
                thinktime: Nanos::new((self.thinktime_us * 1000.0).round() as u64),
                size: self.size,
                number_ios: FEWEST.max(u64::from(measured.iodepth) * TURNS),
                randseed,
            };
            Ok(Compared { measured, modelled: job.run(spec.build().as_mut())? })
        })
    }
}

impl Measured {
    /// The first fault in the figures: key and reason.
    fn fault(&self) -> Option<(&'static str, String)> {
        if !(1..=DEEPEST).contains(&self.iodepth) {
            let why = format!("{} is not in the range 1 to {DEEPEST}", self.iodepth);
            return Some(("iodepth", why));
        }
        let figures = [("iops", Some(self.iops)), ("lat_us", self.lat_us), ("p99_us", self.p99_us)];
        figures.into_iter().find_map(|(key, value)| {
            let value = value.filter(|value| !(value.is_finite() && *value > 0.0))?;
            Some((key, format!("{value} is not a positive number")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "[[run]]\ndevice = 'null'\nhost = 'h'\nsource = 's'\nthinktime_us = 10.0\n";

    #[test]
    fn a_table_is_compared_with_the_model() {
        let results = "results = [{ rw = 'write', iodepth = 1, iops = 50000, lat_us = 5.0 }]";
        let runs = parse(&format!("{RUN}{results}"), "t").unwrap();
        let spec = crate::preset::spec("null").unwrap();
        let compared: Vec<_> = runs[0].compare(&spec, 1).map(Result::unwrap).collect();
        assert!((compared[0].iops_ratio() - 2.0).abs() < 1e-3, "{}", compared[0].iops_ratio());
        assert_eq!(compared[0].lat_ratio(), Some(0.0));
        assert_eq!(compared[0].p99_ratio(), None);
    }

    #[test]
    fn faults_have_a_line_and_a_key() {
        let good = format!("{RUN}results = [{{ rw = 'read', iodepth = 1, iops = 1 }}]\n");
        // The second run of the table, whose results are on two lines.
        let second = |text: &str| format!("{good}{text}");
        let rows = "results = [\n    { rw = 'read', iodepth = 1, iops = 1 },\n    ROW,\n]";
        let row = |text: &str| second(&format!("{RUN}{}", rows.replace("ROW", text)));
        for (text, said) in [
            (
                good.replace("iodepth = 1", "iodepth = 0"),
                "t:6: iodepth: 0 is not in the range 1 to",
            ),
            (row("{ rw = 'read', iodepth = 0, iops = 1 }"), "t:14: iodepth: 0 is not in the range"),
            (row("{ rw = 'read', iodepth = 2, iops = -1 }"), "t:14: iops: -1 is not a positive"),
            (row("{ rw = 'read', iodepth = 2, iops = inf }"), "t:14: iops: inf is not a positive"),
            (row("{ rw = 'read', iodepth = 2, iops = 1, p99_us = 0 }"), "t:14: p99_us: 0 is not"),
            (row("{ rw = 'read', iodepth = 2, iops = 1, p98_us = 0 }"), "t:14: p98_us: unknown"),
            (row("{ rw = 'read', iodepth = -2, iops = 1 }"), "t:14: iodepth: "),
            (row("{ rw = 'trim', iodepth = 2, iops = 1 }"), "t:14: rw: unknown variant"),
            (row("{ rw = 'read', iodepth = 1, iops = 1 ] "), "t:14: "),
            (second(&good.replace("10.0", "-1.0")), "t:11: thinktime_us: -1 us"),
            (second(&format!("{good}bs = 1000\n")), "t:13: bs: 1000 is not a multiple of 512"),
            (second(&format!("{good}size = 4095\n")), "t:13: size: 4095 bytes are less"),
            (RUN.replace("host", "hoste") + "results = []", "t:3: hoste: unknown field"),
        ] {
            let error = parse(&text, "t").unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}: expected {said}");
        }
    }
}
