//! Assumptions of an experiment, and the sentences that it is to bear out.

use serde::{Deserialize, Serialize};

/// Values that no source states; [`crate::sensitivity`] varies them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// Its name.
    pub name: String,
    /// Keys of systems and workloads that change together, as `system.cpu.look`.
    pub keys: Vec<String>,
    /// Only in the systems and workloads of these names; in all that have the keys when not given.
    #[serde(default)]
    pub of: Option<Vec<String>>,
    /// The values that they change to, one variation for each value. Numbers, sizes and times are halved and
    /// doubled when it is not given.
    #[serde(default)]
    pub values: Vec<toml::Value>,
    /// One more variation, without the keys.
    #[serde(default)]
    pub absent: bool,
}

/// A sentence: that a figure of one cell is less than that of another.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The sentence.
    pub says: String,
    /// The cell with less, as `workload/system/discipline/phase`; of its policies the last one, or
    /// the one behind a further `/`.
    pub less: String,
    /// The cell with more, likewise.
    pub more: String,
    /// The figure that is compared.
    #[serde(default)]
    pub figure: ClaimFigure,
    /// The least and the greatest quotient of the two with which the sentence holds; any above 1
    /// when not given.
    #[serde(default)]
    pub ratio: Option<[f64; 2]>,
    /// The quotient as published.
    #[serde(default)]
    pub published: Option<f64>,
}

/// A figure of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimFigure {
    /// Virtual seconds.
    #[default]
    Seconds,
    /// Reads and writes.
    Requests,
    /// Writes, waited for or not.
    Writes,
    /// Times that a caller slept for a full graph.
    MaxLimitHit,
    /// Requests to the syncer to hurry.
    RushRequests,
}
