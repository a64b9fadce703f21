//! `seekless lab merge`.

use super::show;
use super::subject::{Subject, check_of, keep_tables};
use crate::args::Global;
use crate::failure::Failure;
use crate::gaps::refuse;
use crate::say::warning;
use seekless_lab::LabError;
use seekless_lab::parts::{Gap, Part, gaps};
use seekless_lab::plan::Wanted;
use seekless_lab::run::Run;
use seekless_lab::store::{EXPERIMENT, Store, merge};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The results of several directories.
struct Together {
    subject: Subject,
    runs: Vec<Run>,
    selections: Vec<Wanted>,
    gaps: Vec<Gap>,
}

pub(super) fn run(
    dirs: &[PathBuf],
    output: Option<&Path>,
    partial: bool,
    global: &Global,
) -> Result<ExitCode, Failure> {
    let found = together(dirs)?;
    if !partial && !found.gaps.is_empty() {
        let gaps: Vec<String> = found.gaps.iter().map(ToString::to_string).collect();
        return Ok(refuse(&gaps, global));
    }
    for gap in &found.gaps {
        warning!("{gap}");
    }
    let runs = match output {
        Some(dir) => keep(&found, dir)?,
        None => found.runs,
    };
    show::results(&found.subject.experiment, &runs, global);
    Ok(ExitCode::SUCCESS)
}

/// The runs in a directory of results.
pub(super) fn all_of(dir: &Path) -> Result<(Subject, Vec<Run>), Failure> {
    let Together { subject, runs, gaps, .. } = together(&[dir.to_path_buf()])?;
    for gap in gaps {
        if let Gap::Damaged(error) = gap {
            return Err(error.into());
        }
    }
    Ok((subject, runs))
}

/// The runs in several directories, all of one experiment. Some directories may be empty.
fn together(dirs: &[PathBuf]) -> Result<Together, Failure> {
    let (mut sets, mut empty, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for dir in dirs {
        std::fs::metadata(dir).map_err(|error| Failure::io(dir.display(), &error))?;
        let store = Store::create(dir)?;
        let (runs, damaged) = store.readable_runs()?;
        if runs.is_empty() {
            empty.push(dir);
        }
        sets.push(runs);
        let place = dir.display().to_string();
        parts.push(Part { place, selections: store.selections()?, damaged });
    }
    if let Some(dir) =
        empty.iter().find(|dir| empty.len() == dirs.len() || !dir.join(EXPERIMENT).exists())
    {
        return Err(Failure::usage(format!("{}: no results found", dir.display())));
    }
    let runs = merge(sets)?;
    let subject = Subject::read(&dirs[0].join(EXPERIMENT))?;
    check_of(&subject, &runs)?;
    empty.iter().try_for_each(|dir| check_part(&subject, dir))?;
    let selections = parts.iter().flat_map(|part| part.selections.iter().cloned()).collect();
    let gaps = gaps(&subject.experiment, parts, &runs)?;
    Ok(Together { subject, runs, selections, gaps })
}

/// Refuses an empty directory of another experiment.
fn check_part(subject: &Subject, dir: &Path) -> Result<(), Failure> {
    if Subject::read(&dir.join(EXPERIMENT))?.digest() == subject.digest() {
        return Ok(());
    }
    let (dir, name) = (dir.display(), &subject.experiment.name);
    Err(LabError::Mismatch(format!("{dir}: its results are not part of this {name} experiment"))
        .into())
}

/// Writes the runs into a directory, with the runs that it contains. Returns all of them.
fn keep(found: &Together, output: &Path) -> Result<Vec<Run>, Failure> {
    let there = if output.exists() { Store::create(output)?.runs()? } else { Vec::new() };
    let runs = merge(vec![found.runs.clone(), there])?;
    let store = Store::create(output)?;
    let locked = store.lock()?;
    locked.put(EXPERIMENT, found.subject.text.as_bytes())?;
    found.selections.iter().try_for_each(|wanted| locked.note(wanted))?;
    runs.iter().try_for_each(|run| locked.keep(run))?;
    keep_tables(&locked, &found.subject, &runs)?;
    Ok(runs)
}
