//! All runs as one table, a row for each run and phase: as CSV, and by column
//! for [`crate::parquet`].

use crate::cells::quoted;
use crate::run::{Counts, Phase, Run};

/// Values of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Names.
    Text(Vec<String>),
    /// Whole numbers.
    Whole(Vec<u64>),
    /// Numbers with a fraction.
    Real(Vec<f64>),
}

/// A column and its name.
pub type Column = (&'static str, Values);

/// Runs as columns of equal length.
#[derive(Clone, PartialEq, Debug)]
pub struct RunTable {
    rows: usize,
    columns: Vec<Column>,
}

/// A count's name, and how to get it.
type Count = (&'static str, fn(&Counts) -> u64);

/// Every count there is of a phase.
const COUNTS: [Count; 12] = [
    ("reads", |c| c.disk.reads),
    ("read_bytes", |c| c.disk.read_bytes),
    ("sync_writes", |c| c.disk.sync_writes),
    ("async_writes", |c| c.disk.async_writes),
    ("written_bytes", |c| c.disk.written_bytes),
    ("seeks", |c| c.disk.seeks),
    ("seek_bytes", |c| c.disk.seek_bytes),
    ("busy_ns", |c| c.disk.busy_ns),
    ("cpu_ns", |c| c.cpu_ns),
    ("rolled_back_writes", |c| c.rolled_back_writes),
    ("max_limit_hit", |c| c.max_limit_hit),
    ("rush_requests", |c| c.rush_requests),
];

impl RunTable {
    /// The table of some runs, sorted by their identity; phases in their order.
    #[must_use]
    pub fn of(runs: &[Run]) -> Self {
        let mut sorted: Vec<&Run> = runs.iter().collect();
        sorted.sort_by_key(|run| &run.id);
        let rows: Vec<Row<'_>> = sorted
            .iter()
            .flat_map(|run| run.phases.iter().map(move |phase| (*run, phase)))
            .collect();
        let mut columns = names(&rows);
        columns.push(("seconds", Values::Real(rows.iter().map(|row| row.1.seconds).collect())));
        let count = |get: fn(&Counts) -> u64| rows.iter().map(|row| get(&row.1.counts)).collect();
        columns.extend(COUNTS.map(|(name, get)| (name, Values::Whole(count(get)))));
        Self { rows: rows.len(), columns }
    }

    /// The columns, each as long as there are rows.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// A line for each row, below one of names. Numbers are parsed back to the same values.
    #[must_use]
    pub fn csv(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let mut text = names.join(",") + "\n";
        for row in 0..self.rows {
            let cells: Vec<String> = self.columns.iter().map(|(_, all)| all.shown(row)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

impl Values {
    fn shown(&self, row: usize) -> String {
        match self {
            Self::Text(all) => all.get(row).map(|name| quoted(name)),
            Self::Whole(all) => all.get(row).map(ToString::to_string),
            Self::Real(all) => all.get(row).map(ToString::to_string),
        }
        .unwrap_or_default()
    }
}

type Row<'a> = (&'a Run, &'a Phase);

/// The columns that identify a row.
fn names(rows: &[Row<'_>]) -> Vec<Column> {
    let text = |get: fn(&Run) -> &str| {
        Values::Text(rows.iter().map(|(run, _)| get(run).to_string()).collect())
    };
    let whole =
        |get: fn(&Run) -> u64| Values::Whole(rows.iter().map(|(run, _)| get(run)).collect());
    vec![
        ("experiment", text(|run| &run.experiment)),
        ("version", text(|run| &run.version)),
        ("digest", text(|run| &run.digest)),
        ("workload", text(|run| &run.id.workload)),
        ("system", text(|run| &run.id.system)),
        ("discipline", text(|run| &run.id.discipline)),
        ("policy", text(|run| &run.id.policy)),
        ("seed", whole(|run| run.id.seed)),
        ("repetition", whole(|run| run.id.repetition)),
        ("phase", Values::Text(rows.iter().map(|row| row.1.phase.clone()).collect())),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::RunId;

    /// A run of two phases, one of which counted something.
    pub(crate) fn run(seed: u64, repetition: u64, system: &str) -> Run {
        let id = RunId {
            workload: "w".into(),
            system: system.into(),
            discipline: "sync".into(),
            policy: "orlov".into(),
            seed,
            repetition,
        };
        let mut counts = Counts::default();
        (counts.disk.reads, counts.cpu_ns) = (seed * 10, u64::MAX);
        let phase = |phase: &str, seconds| Phase {
            phase: phase.into(),
            seconds,
            counts,
            plot: crate::seekplot::SeekPlot::default(),
        };
        let phases = vec![phase("untar", 0.1 + 0.2), phase("rm", 1e9)];
        let [experiment, digest, version] = ["e", "d", "0.1.0"].map(String::from);
        Run { experiment, digest, version, id, phases }
    }

    #[test]
    fn a_row_for_each_run_and_phase() {
        let table = RunTable::of(&[run(10, 0, "s"), run(9, 1, "s"), run(9, 0, "a \"b\", c")]);
        let csv = table.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(
            lines[0],
            "experiment,version,digest,workload,system,discipline,policy,seed,repetition,phase,\
             seconds,reads,read_bytes,sync_writes,async_writes,written_bytes,seeks,seek_bytes,\
             busy_ns,cpu_ns,rolled_back_writes,max_limit_hit,rush_requests"
        );
        assert_eq!(
            lines[1],
            "e,0.1.0,d,w,\"a \"\"b\"\", c\",sync,orlov,9,0,untar,0.30000000000000004,90,0,0,0,0,0,\
             0,0,18446744073709551615,0,0,0"
        );
        assert!(lines[2].contains(",9,0,rm,1000000000,"), "{}", lines[2]);
        assert!(lines[3].contains(",s,sync,orlov,9,1,untar,") && lines[5].contains(",10,0,untar,"));
        assert_eq!(lines.len(), 7);
    }
}
