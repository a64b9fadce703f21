//! The experiments that come with seekless.

use crate::LabError;
use crate::experiment::Experiment;

/// Names and files, by name.
const EXPERIMENTS: &[(&str, &str)] = &[
    ("dirpref", include_str!("../experiments/dirpref.toml")),
    ("maxcontigdirs", include_str!("../experiments/maxcontigdirs.toml")),
    ("scale", include_str!("../experiments/scale.toml")),
    ("softdep", include_str!("../experiments/softdep.toml")),
];

/// All of them, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|(name, _)| *name)
}

/// The file of a built-in experiment.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    EXPERIMENTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// A built-in experiment.
///
/// # Errors
/// [`LabError::Unknown`] when there is none of that name.
pub fn experiment(name: &str) -> Result<Experiment, LabError> {
    let known = || names().collect::<Vec<_>>().join(", ");
    let text = text(name).ok_or_else(|| {
        LabError::Unknown(format!("unknown experiment '{name}' (available: {})", known()))
    })?;
    Ok(Experiment::parse(text, &format!("{name}.toml"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_say_what_they_must() {
        for name in names() {
            let experiment = experiment(name).unwrap();
            assert_eq!(experiment.name, name);
            assert!(!experiment.sources.is_empty());
        }
        assert!(experiment("dirperf").unwrap_err().to_string().contains("dirpref"));
    }
}
