//! Rows of a summary.

use std::sync::Arc;

/// Parts of the order of a trace in which touches are counted.
pub(crate) const PARTS: usize = 16;

/// The weight of a trace by default. Smaller ones are fractions of it.
pub const UNIT: u64 = 1 << 20;

/// The highest weight of a trace, where 1 is the default.
const HIGHEST_WEIGHT: f64 = 1e6;

/// A weight in parts of [`UNIT`]; `None` unless it is between 0 and 1,000,000.
#[must_use]
pub fn weight_of(number: f64) -> Option<u64> {
    (0.0..=HIGHEST_WEIGHT).contains(&number).then(|| (number * UNIT as f64).round() as u64)
}

/// The end of a range that reaches to the end of a file.
pub(crate) const TO_THE_END: u64 = u64::MAX;

/// A file and an operation. Reads that are `fetched` have another effect on a layout than others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) path: Vec<u8>,
    pub(crate) op: Arc<str>,
    pub(crate) missing: bool,
    pub(crate) fetched: bool,
}

/// A process stream: the name of the process, and its number among those of its name in the trace,
/// from 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Stream {
    pub(crate) number: u64,
    pub(crate) name: Arc<str>,
}

/// The touches of a range by traces. All of it adds up, whatever the order, but the stream: the
/// least one is kept.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Touches {
    /// Traces that touched it.
    pub(crate) traces: u64,
    /// Machines that these are of.
    pub(crate) machines: u64,
    /// The sum of their weights.
    pub(crate) weight: u64,
    /// The sum of the places in the traces at which it was touched first, each in parts of 2^32.
    pub(crate) rank: u64,
    pub(crate) stream: Stream,
    /// How many of the places lie in which sixteenth.
    pub(crate) parts: [u64; PARTS],
}

/// A range of bytes with its touches.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    pub(crate) from: u64,
    /// The byte behind it, or [`TO_THE_END`].
    pub(crate) to: u64,
    pub(crate) touches: Touches,
}

impl Run {
    pub(crate) const fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

/// The ranges with one key, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) key: Key,
    pub(crate) runs: Vec<Run>,
}

impl Touches {
    /// Touches of one trace.
    pub(crate) fn once(weight: u64, rank: u64, stream: Stream) -> Self {
        let mut parts = [0; PARTS];
        let part = usize::try_from(rank >> 28).expect("a part");
        parts[part] = 1;
        Self { traces: 1, machines: 1, weight, rank, stream, parts }
    }

    /// The touches of both; `None` if there are more than can be counted.
    pub(crate) fn plus(&self, other: &Self) -> Option<Self> {
        let mut parts = self.parts;
        for (part, more) in parts.iter_mut().zip(other.parts) {
            *part = part.checked_add(more)?;
        }
        Some(Self {
            traces: self.traces.checked_add(other.traces)?,
            machines: self.machines.checked_add(other.machines)?,
            weight: self.weight.checked_add(other.weight)?,
            rank: self.rank.checked_add(other.rank)?,
            stream: self.stream.clone().min(other.stream.clone()),
            parts,
        })
    }

    /// Whether the counts agree with each other, as they do in each summary that is written here.
    pub(crate) fn is_sound(&self) -> bool {
        let sum = self.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part));
        let most = self.traces.checked_mul(1 << 32);
        self.traces > 0
            && (1..=self.traces).contains(&self.machines)
            && sum == Some(self.traces)
            && most.is_none_or(|most| self.rank < most)
    }

    /// The part that the place lies in at which `percent` of the traces have touched it.
    pub(crate) fn quantile(&self, percent: u64) -> usize {
        let wanted = u128::from(self.traces) * u128::from(percent);
        let mut sum = 0;
        let reached = self.parts.iter().position(|&part| {
            sum += u128::from(part) * 100;
            sum >= wanted.max(1)
        });
        reached.expect("the parts add up to the traces")
    }
}
