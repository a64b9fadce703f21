//! The experiments that come with seekless.

use crate::LabError;
use crate::boots::BootExperiment;
use crate::experiment::Experiment;

/// Names and files, by name.
const EXPERIMENTS: &[(&str, &str)] = &[
    ("boots", include_str!("../experiments/boots.toml")),
    ("dirpref", include_str!("../experiments/dirpref.toml")),
    ("dirpref-claims", include_str!("../experiments/dirpref-claims.toml")),
    ("maxcontigdirs", include_str!("../experiments/maxcontigdirs.toml")),
    ("reservation", include_str!("../experiments/reservation.toml")),
    ("reservation-faults", include_str!("../experiments/reservation-faults.toml")),
    ("scale", include_str!("../experiments/scale.toml")),
    ("snapshots", include_str!("../experiments/snapshots.toml")),
    ("softdep", include_str!("../experiments/softdep.toml")),
    ("tarcp", include_str!("../experiments/tarcp.toml")),
    ("web-cache", include_str!("../experiments/web-cache.toml")),
];

/// Inputs of experiments with boots: the name, the packages of the system, and the reads of its
/// boot, both compressed (zstd).
const SYSTEMS: &[(&str, &[u8], &[u8])] = &[(
    "debian-12",
    include_bytes!("../experiments/boots/system.zst"),
    include_bytes!("../experiments/boots/boot.trace.zst"),
)];

/// The packages of a built-in system, compressed (zstd).
#[must_use]
pub fn system(name: &str) -> Option<&'static [u8]> {
    SYSTEMS.iter().find(|(known, ..)| *known == name).map(|(_, system, _)| *system)
}

/// The reads of a boot of a built-in system, compressed (zstd).
#[must_use]
pub fn boot_trace(name: &str) -> Option<&'static [u8]> {
    SYSTEMS.iter().find(|(known, ..)| *known == name).map(|(.., trace)| *trace)
}

/// All of them, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|(name, _)| *name)
}

/// The file of a built-in experiment.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    EXPERIMENTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Fields that all experiments have.
#[derive(Clone, PartialEq, Debug)]
pub struct Heading {
    /// Its name.
    pub name: String,
    /// Its purpose, in a line.
    pub summary: String,
    /// Where its figures come from.
    pub sources: Vec<String>,
}

/// The headings of all, in order.
///
/// # Errors
/// [`LabError::Spec`] when a file is invalid.
pub fn headings() -> Result<Vec<Heading>, LabError> {
    let heading = |&(name, text): &(&str, &str)| {
        let file = format!("{name}.toml");
        if BootExperiment::is_one(text) {
            let BootExperiment { name, summary, sources, .. } = BootExperiment::parse(text, &file)?;
            return Ok(Heading { name, summary, sources });
        }
        let Experiment { name, summary, sources, .. } = Experiment::parse(text, &file)?;
        Ok(Heading { name, summary, sources })
    };
    EXPERIMENTS.iter().map(heading).collect()
}

/// That there is none of that name.
#[must_use]
pub fn unknown(name: &str) -> LabError {
    let known = names().collect::<Vec<_>>().join(", ");
    LabError::Unknown(format!("unknown experiment '{name}' (available: {known})"))
}

/// A built-in experiment in virtual time.
///
/// # Errors
/// [`LabError::Unknown`] when there is none of that name.
pub fn experiment(name: &str) -> Result<Experiment, LabError> {
    let text = text(name).ok_or_else(|| unknown(name))?;
    Ok(Experiment::parse(text, &format!("{name}.toml"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_have_both_parts() {
        assert!(system("debian-12").is_some() && boot_trace("debian-12").is_some());
        assert!(system("debian").is_none() && boot_trace("debian").is_none());
    }

    #[test]
    fn all_say_what_they_must() {
        for (name, heading) in names().zip(headings().unwrap()) {
            assert_eq!(heading.name, name);
            assert!(!heading.sources.is_empty());
        }
        assert!(experiment("dirperf").unwrap_err().to_string().contains("dirpref"));
    }
}
