//! Comparison of a model with a measured drive: a trace is replayed and the two distributions of
//! response times are compared.

use crate::device::{DeviceModel, Refused};
use crate::request::{Op, Request};
use seekless_units::{Lba, Nanos};

/// A measured request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Traced {
    /// The request.
    pub request: Request,
    /// Measured response time of the drive.
    pub response: Nanos,
    /// From its completion to the start of the next one.
    pub think: Nanos,
}

/// The reason why a trace cannot be read or replayed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// An invalid line.
    #[error("{file}:{line}: {message}")]
    Line {
        /// The trace, as the caller names it.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The fault.
        message: String,
    },
    /// A trace without requests.
    #[error("{file}: no requests")]
    Empty {
        /// The trace.
        file: String,
    },
    /// A request past the end of the drive.
    #[error("request {number}: {refused}")]
    Refused {
        /// Number of the request, from 1.
        number: usize,
        /// The model's reason.
        refused: Refused,
    },
}

/// Parses a trace in DiskSim's `validate` format, one request per line: `R` or `W`, the tracer's
/// classification, first block, count, response time and time to the next request in microseconds.
///
/// # Errors
/// [`TraceError::Line`] and [`TraceError::Empty`].
pub fn parse(text: &str, file: &str) -> Result<Vec<Traced>, TraceError> {
    let mut trace = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        trace.push(traced(line).map_err(|message| TraceError::Line {
            file: file.into(),
            line: at + 1,
            message,
        })?);
    }
    if trace.is_empty() { Err(TraceError::Empty { file: file.into() }) } else { Ok(trace) }
}

fn traced(line: &str) -> Result<Traced, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[op, _, at, sectors, response, think] = fields.as_slice() else {
        return Err(format!("{} fields, not 6", fields.len()));
    };
    let op = match op {
        "R" => Op::Read,
        "W" => Op::Write,
        other => return Err(format!("'{other}' is neither R nor W")),
    };
    let at = at.parse().map_err(|_| format!("'{at}' is not a valid block number"))?;
    let sectors = sectors.parse().map_err(|_| format!("'{sectors}' is not a valid count"))?;
    let request = Request { op, at: Lba::new(at), sectors, durable: false };
    Ok(Traced { request, response: microseconds(response)?, think: microseconds(think)? })
}

fn microseconds(text: &str) -> Result<Nanos, String> {
    const LONGEST: f64 = 1e12;
    let us: f64 = text.parse().map_err(|_| format!("'{text}' is not a valid time"))?;
    if (0.0..=LONGEST).contains(&us) {
        Ok(Nanos::new((us * 1000.0).round() as u64))
    } else {
        Err(format!("{us} microseconds is out of range"))
    }
}

/// Replays a trace, one request at a time: the next one starts at the completion of the previous
/// one plus its think time. Returns the response times.
///
/// # Errors
/// [`TraceError::Refused`].
pub fn replay(model: &mut dyn DeviceModel, trace: &[Traced]) -> Result<Vec<Nanos>, TraceError> {
    let mut now = Nanos::ZERO;
    let mut responses = Vec::with_capacity(trace.len());
    for (at, traced) in trace.iter().enumerate() {
        let done = model
            .serve(now, traced.request)
            .map_err(|refused| TraceError::Refused { number: at + 1, refused })?;
        responses.push(Nanos::new(done - now));
        now = done + traced.think.get();
    }
    Ok(responses)
}

/// The distance between two distributions of response times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demerit {
    /// Mean of the modelled times, in ms.
    pub mean_ms: f64,
    /// Mean of the measured times, in ms.
    pub measured_mean_ms: f64,
    /// The demerit figure, in ms.
    pub demerit_ms: f64,
    /// The same as a fraction of the measured mean, in percent.
    pub demerit_percent: f64,
}

/// The demerit figure of Ruemmler and Wilkes (IEEE Computer, March 1994): the root mean square of
/// the horizontal distance between the two distributions. Both lists are of the same requests; the
/// excess of a longer list is ignored.
#[must_use]
pub fn demerit(measured: &[Nanos], modelled: &[Nanos]) -> Demerit {
    let sorted = |times: &[Nanos]| {
        let mut times: Vec<f64> = times.iter().map(|time| time.get() as f64 / 1e6).collect();
        times.sort_unstable_by(f64::total_cmp);
        times
    };
    let (a, b) = (sorted(measured), sorted(modelled));
    let count = a.len().min(b.len()).max(1) as f64;
    let squares: f64 = a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum();
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
    let demerit_ms = (squares / count).sqrt();
    Demerit {
        mean_ms: mean(&b),
        measured_mean_ms: mean(&a),
        demerit_ms,
        demerit_percent: 100.0 * demerit_ms / mean(&a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    #[test]
    fn a_trace_is_read_line_by_line() {
        let trace = parse("R Hit 16 4 1500.5 20\n\nW Miss 8 1 250 0\n", "t").unwrap();
        assert_eq!(trace[0].request, Request::read(Lba::new(16), 4));
        assert_eq!((trace[0].response.get(), trace[0].think.get()), (1_500_500, 20_000));
        assert_eq!(trace[1].request.op, Op::Write);
        for (text, line) in [
            ("R Hit 16 4 1 1\nX Hit 1 1 1 1", "t:2: 'X'"),
            ("R Hit 16 4 1", "t:1: 5 fields"),
            ("R Hit -1 4 1 1", "t:1: '-1'"),
            ("R Hit 1 4 nan 1", "t:1: NaN"),
            ("R Hit 1 4 1 1e99", "t:1: 1"),
            ("", "t: no requests"),
        ] {
            let error = parse(text, "t").unwrap_err().to_string();
            assert!(error.starts_with(line), "{error} / {line}");
        }
    }

    #[test]
    fn a_replay_is_a_closed_loop() {
        let trace = parse("R H 0 8 1 1000\nR H 8 8 1 1000\n", "t").unwrap();
        let mut null = preset("null").unwrap();
        assert_eq!(replay(null.as_mut(), &trace).unwrap(), [Nanos::ZERO; 2]);
    }

    #[test]
    fn the_demerit_is_the_distance_of_the_distributions() {
        let ms =
            |list: &[u64]| list.iter().map(|ms| Nanos::new(ms * 1_000_000)).collect::<Vec<_>>();
        // Order does not matter: only the distributions are compared.
        let same = demerit(&ms(&[1, 2, 3]), &ms(&[3, 1, 2]));
        assert_eq!((same.demerit_ms, same.mean_ms), (0.0, 2.0));
        let apart = demerit(&ms(&[10, 20]), &ms(&[13, 24]));
        assert!((apart.demerit_ms - 12.5f64.sqrt()).abs() < 1e-12);
        assert!((apart.demerit_percent - 100.0 * 12.5f64.sqrt() / 15.0).abs() < 1e-12);
    }
}
