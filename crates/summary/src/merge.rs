//! Summaries added up: for each file and page the touches of all of them. The sum is the same in
//! whatever order and grouping they are added.

use crate::file::{Reader, Writer};
use crate::row::{Group, Key, Stream};
use crate::{Form, Header, Summary, SummaryError, pages};
use seekless_layout::trace::Steps;
use seekless_units::ByteLen;
use std::cmp::Ordering;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bytes of memory for each summary that is read: its rows that are in memory, by columns.
const PER_INPUT: u64 = 8 << 20;

/// The most summaries that are read at the same time.
const MOST_INPUTS: u64 = 256;

/// The limits of a merge.
#[derive(Clone, Copy, Debug)]
pub struct MergeLimits<'a> {
    /// Bytes of memory for rows.
    pub memory: ByteLen,
    /// The directory of temporary files.
    pub temp_dir: &'a Path,
}

impl Header {
    /// The header of the sum.
    fn plus(&self, other: &Self) -> Result<Self, SummaryError> {
        let sum = |one: u64, two: u64| one.checked_add(two).ok_or(SummaryError::TooMany);
        Ok(Self {
            traces: sum(self.traces, other.traces)?,
            machines: sum(self.machines, other.machines)?,
            form: Form::Pages,
            // The sum has all rows of both.
            min_machines: self.min_machines.min(other.min_machines),
        })
    }
}

impl Group {
    /// The group on the grid of pages.
    fn on_grid(self, form: Form) -> Self {
        match form {
            Form::Exact => Self { runs: pages::on_grid(self.runs), ..self },
            Form::Pages => self,
        }
    }

    fn plus(self, other: Self) -> Result<Self, SummaryError> {
        assert!(self.key == other.key, "groups of one key are added");
        Ok(Self { key: self.key, runs: pages::sum(self.runs, other.runs)? })
    }

    /// Without runs that fewer machines touched, and without names of processes, of which each may be
    /// that of one machine.
    fn of_at_least(mut self, machines: u64) -> Self {
        if machines == 0 {
            return self;
        }
        let mut runs = Vec::with_capacity(self.runs.len());
        for mut run in self.runs.drain(..).filter(|run| run.touches.machines >= machines) {
            run.touches.stream = Stream { number: 0, name: "".into() };
            pages::push(&mut runs, run);
        }
        Self { runs, ..self }
    }
}

impl Summary {
    /// The sum of both, in memory.
    ///
    /// # Errors
    /// [`SummaryError::TooMany`].
    pub fn plus(self, other: Self) -> Result<Self, SummaryError> {
        let header = self.header.plus(&other.header)?;
        let (one, two) = (self.header.form, other.header.form);
        let mut groups = Vec::with_capacity(self.groups.len().max(other.groups.len()));
        let mut left = self.groups.into_iter().map(|group| group.on_grid(one)).peekable();
        let mut right = other.groups.into_iter().map(|group| group.on_grid(two)).peekable();
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(two)) => one.key.cmp(&two.key),
            };
            let (one, two) = match order {
                Ordering::Less => (left.next(), None),
                Ordering::Greater => (None, right.next()),
                Ordering::Equal => (left.next(), right.next()),
            };
            groups.extend(match (one, two) {
                (Some(one), Some(two)) => Some(one.plus(two)?),
                (one, two) => one.or(two),
            });
        }
        groups.retain(|group| !group.runs.is_empty());
        Ok(Self { header, groups })
    }

    /// The summary as of one machine, of which all its traces are.
    #[must_use]
    pub fn of_one_machine(mut self) -> Self {
        self.header.machines = 1;
        for group in &mut self.groups {
            let mut runs = Vec::with_capacity(group.runs.len());
            for mut run in group.runs.drain(..) {
                run.touches.machines = 1;
                match self.header.form {
                    Form::Exact => runs.push(run),
                    Form::Pages => pages::push(&mut runs, run),
                }
            }
            group.runs = runs;
        }
        self
    }
}

/// A summary to be added.
enum Input<'a> {
    /// One that was given, with its number.
    Given(usize, &'a Path),
    /// The sum of some.
    Spilled(File),
}

/// Adds up summaries and writes the sum to `out`, without ranges that fewer than `min_machines`
/// machines touched. Each summary is named by its number in errors. One summary alone keeps its form.
///
/// # Errors
/// The number of the summary, if it is one's, and the error.
pub fn merge(
    summaries: &[PathBuf],
    min_machines: u64,
    limits: MergeLimits<'_>,
    out: File,
) -> Result<Header, (Option<usize>, SummaryError)> {
    let most = (limits.memory.get() / PER_INPUT).clamp(2, MOST_INPUTS);
    let most = usize::try_from(most).expect("at most MOST_INPUTS");
    let spilled = |inputs| {
        let spill = tempfile::tempfile_in(limits.temp_dir);
        let spill = spill.map_err(|error| (None, error.into()))?;
        let copy = spill.try_clone().map_err(|error| (None, error.into()))?;
        add_up(inputs, 0, copy).map(|_| Input::Spilled(spill))
    };
    let mut steps = Steps::of(most);
    for (at, path) in summaries.iter().enumerate() {
        steps.add(Input::Given(at, path), spilled)?;
    }
    add_up(steps.finish(spilled)?, min_machines, out)
}

fn add_up(
    inputs: Vec<Input<'_>>,
    min_machines: u64,
    out: File,
) -> Result<Header, (Option<usize>, SummaryError)> {
    let mut readers = Vec::new();
    for input in inputs {
        let (at, file) = match input {
            Input::Given(at, path) => (Some(at), File::open(path)),
            Input::Spilled(file) => (None, Ok(file)),
        };
        let reader = file.map_err(SummaryError::Io).and_then(Reader::new);
        readers.push((at, reader.map_err(|error| (at, error))?));
    }
    let mut headers = readers.iter().map(|(_, reader)| reader.header().clone());
    let first = headers.next().ok_or((None, SummaryError::NoSummary))?;
    let mut header =
        headers.try_fold(first, |sum, next| sum.plus(&next)).map_err(|error| (None, error))?;
    header.min_machines = header.min_machines.max(min_machines);
    let mut writer = Writer::new(out, &header).map_err(|error| (None, error))?;
    let sums_up = header.form == Form::Pages;
    while let Some(key) = readers.iter().filter_map(|(_, reader)| reader.key()).min().cloned() {
        let group = next_group(&mut readers, &key, sums_up)?;
        let write = || writer.write(&group.of_at_least(min_machines));
        write().map_err(|error| (None, error))?;
    }
    writer.finish().map_err(|error| (None, error))?;
    Ok(header)
}

/// The sum of the groups with a key, of which there is one at least.
fn next_group(
    readers: &mut [(Option<usize>, Reader)],
    key: &Key,
    sums_up: bool,
) -> Result<Group, (Option<usize>, SummaryError)> {
    let mut sum: Option<Group> = None;
    for (at, reader) in readers.iter_mut().filter(|(_, reader)| reader.key() == Some(key)) {
        let about = |error| (*at, error);
        let form = reader.header().form;
        let Some(group) = reader.group().map_err(about)? else { continue };
        let group = if sums_up { group.on_grid(form) } else { group };
        sum = Some(match sum {
            None => group,
            Some(sum) => sum.plus(group).map_err(about)?,
        });
    }
    Ok(sum.expect("a reader has the key"))
}
