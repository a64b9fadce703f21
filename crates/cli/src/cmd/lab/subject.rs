//! Experiments as their texts, and their directories of results.

use crate::failure::Failure;
use seekless_lab::boots::BootExperiment;
use seekless_lab::experiment::Experiment;
use seekless_lab::parquet::parquet;
use seekless_lab::run::{Run, digest};
use seekless_lab::store::{Locked, check_alike};
use seekless_lab::table::RunTable;
use seekless_lab::{LabError, builtin, cells};
use std::path::Path;

/// An experiment and its text.
pub(super) struct Subject {
    pub(super) text: String,
    pub(super) experiment: Experiment,
}

/// The text of a built-in experiment, or of a file.
pub(super) fn text_of(name: &str) -> Result<String, Failure> {
    if let Some(text) = builtin::text(name) {
        return Ok(text.into());
    }
    let path = Path::new(name);
    if !path.exists() && !name.contains(['/', '.']) {
        return Err(builtin::unknown(name).into());
    }
    std::fs::read_to_string(path).map_err(|error| Failure::io(path.display(), &error))
}

impl Subject {
    /// An experiment in virtual time; `name` is its name in errors.
    pub(super) fn new(text: String, name: &str) -> Result<Self, Failure> {
        let experiment = Experiment::parse(&text, name).map_err(LabError::from)?;
        Ok(Self { text, experiment })
    }

    /// The experiment of a directory of results.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = text_of(&name)?;
        if BootExperiment::is_one(&text) {
            let why = "results of boots are shown by the run that made them (lab run -o)";
            return Err(Failure::usage(format!("{name}: {why}")));
        }
        Self::new(text, &name)
    }

    pub(super) fn digest(&self) -> String {
        digest(&self.text, &self.experiment)
    }
}

/// Refuses runs of another experiment, version, or text of the experiment.
pub(super) fn check_of(subject: &Subject, runs: &[Run]) -> Result<(), Failure> {
    check_alike(runs)?;
    let Some(first) = runs.first() else { return Ok(()) };
    let now = [&*subject.experiment.name, seekless_lab::run::VERSION, &*subject.digest()];
    let then = [&*first.experiment, &*first.version, &*first.digest];
    if now == then {
        return Ok(());
    }
    let why = "these results belong to another experiment or version";
    Err(LabError::Mismatch(format!(
        "{why}: {} and {} (use another directory, or remove them)",
        then.join(" "),
        now.join(" ")
    ))
    .into())
}

/// Writes the runs as CSV and Parquet, and their cells as CSV and JSON.
pub(super) fn keep_tables(
    store: &Locked<'_>,
    subject: &Subject,
    runs: &[Run],
) -> Result<(), LabError> {
    let table = RunTable::of(runs);
    store.put("runs.csv", table.csv().as_bytes())?;
    store.put("runs.parquet", &parquet(&table)?)?;
    let cells = cells::cells(&subject.experiment, runs);
    store.put("cells.csv", cells::csv(&cells).as_bytes())?;
    let json = format!("{:#}\n", cells::json(&subject.experiment, &cells));
    store.put("cells.json", json.as_bytes())
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        seekless_boots::error_of(error).into()
    }
}
