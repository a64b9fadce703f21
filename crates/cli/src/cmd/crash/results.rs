//! Results of the workloads of a campaign, as text and JSON.

use crate::say::say;
use seekless_crash::UnitResult;
use seekless_crash::explore::{Coverage, levels};
use serde_json::{Value, json};

/// Prints the result of each workload.
pub(super) fn print_results(results: &[UnitResult]) {
    for result in results {
        let verdict = match result.failing {
            0 => "all hold".to_string(),
            failing => {
                let codes: Vec<String> =
                    result.codes.iter().map(|(code, count)| format!("{code} {count}")).collect();
                format!("{failing} do not hold: {}", codes.join(", "))
            }
        };
        say!(
            "{}: {} states of {} writes (epochs: {}); {verdict}",
            result.workload,
            result.coverage.states,
            result.writes,
            levels(&result.coverage)
        );
    }
}

/// The counts of all workloads, and the states that do not hold.
pub(super) fn sum(results: &[UnitResult]) -> (Coverage, u64) {
    let mut coverage = Coverage::default();
    results.iter().for_each(|result| coverage.add(&result.coverage));
    (coverage, results.iter().map(|result| result.failing).sum())
}

/// The result of a workload.
pub(super) fn unit_json(result: &UnitResult, coverage: Value) -> Value {
    json!({
        "workload": result.workload,
        "writes": result.writes,
        "states": result.coverage.states,
        "failing": result.failing,
        "violations": result.codes,
        "coverage": coverage,
    })
}
