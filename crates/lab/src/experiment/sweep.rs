//! Systems that differ in a few values, written once.

use super::System;
use crate::quantity::Size;
use seekless_units::format_size;
use serde::Deserialize;

/// Values that a system takes in turn, every combination of them. Each is
/// called as the system and the values, as `disk-16K-64`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Lengths of the volume.
    #[serde(default)]
    pub size: Vec<Size>,
    /// Expected lengths of files.
    #[serde(default)]
    pub avgfilesize: Vec<Size>,
    /// How many files are expected in a directory.
    #[serde(default)]
    pub avgfpdir: Vec<u32>,
}

/// The systems of a sweep; the system itself where it has none.
pub(super) fn expand(system: &System) -> Vec<System> {
    let Some(sweep) = &system.sweep else { return vec![system.clone()] };
    let mut all = vec![System { sweep: None, ..system.clone() }];
    let lens = |values: &[Size]| values.iter().map(|size| (format_size(size.0), *size)).collect();
    vary(&mut all, "size", lens(&sweep.size), |system, size| system.format.size = size);
    vary(&mut all, "avgfilesize", lens(&sweep.avgfilesize), |system, size| {
        system.format.avgfilesize = Some(size);
    });
    let counts = sweep.avgfpdir.iter().map(|count| (count.to_string(), *count)).collect();
    vary(&mut all, "avgfpdir", counts, |system, count| system.format.avgfpdir = Some(count));
    all
}

/// Puts for each system one with each value in its place; none where there are
/// no values.
fn vary<T: Copy>(
    systems: &mut Vec<System>,
    key: &str,
    values: Vec<(String, T)>,
    set: impl Fn(&mut System, T),
) {
    if values.is_empty() {
        return;
    }
    let with = |system: &System, (text, value): &(String, T)| {
        let mut system = system.clone();
        system.name = format!("{}-{text}", system.name);
        system.swept.push((key.to_string(), text.clone()));
        set(&mut system, *value);
        system
    };
    *systems =
        systems.iter().flat_map(|system| values.iter().map(move |v| with(system, v))).collect();
}
