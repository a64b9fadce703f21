//! Going through the crash states of a recorded workload.

use crate::driver::Run;
use crate::judge::{Judge, Verdict};
use crate::log::{Epoch, Log};
use crate::oracle::{Promised, Promises, Violation, Window};
use crate::states::{Level, States, states};
use crate::target::Target;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, Overlay};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many states of a workload are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All of each epoch, up to the bound.
    Exhaustive,
    /// This many in all, drawn from those.
    Sample(u64),
}

/// Which states are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// How many.
    pub extent: Extent,
    /// Most states of an epoch.
    pub bound: u64,
    /// The part explored, from 1, and the number of parts.
    pub shard: (u32, u32),
    /// The seed of all random draws.
    pub seed: u64,
    /// The first step of the log that is explored.
    pub from: usize,
    /// End once a state does not hold.
    pub first_only: bool,
}

impl Search {
    /// All states, up to 4,096 of each epoch.
    #[must_use]
    pub const fn exhaustive(seed: u64) -> Self {
        let extent = Extent::Exhaustive;
        Self { extent, bound: 4096, shard: (1, 1), seed, from: 0, first_only: false }
    }
}

/// The states explored, and those left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// States recovered and judged.
    pub states: u64,
    /// Of them, those with a directory between two names, which a check does not
    /// repair unasked: they were judged after a full repair.
    #[serde(default)]
    pub needs_y: u64,
    /// States that were found but are another shard's, or were not drawn.
    pub left_out: u64,
    /// Epochs in which something was written, by how much of them is covered: by
    /// [`Level::name`].
    pub epochs: BTreeMap<String, u64>,
}

impl Coverage {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        self.states += other.states;
        self.needs_y += other.needs_y;
        self.left_out += other.left_out;
        for (level, count) in &other.epochs {
            *self.epochs.entry(level.clone()).or_default() += count;
        }
    }
}

/// A state that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The epoch it is in.
    pub epoch: Epoch,
    /// Which of the epoch's atoms are there.
    pub choice: crate::states::Choice,
    /// The violations found in it.
    pub violations: Vec<Violation>,
}

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// The states explored.
    pub coverage: Coverage,
    /// States of all shards.
    pub drawn: u64,
    /// States that do not hold.
    pub failing: u64,
    /// How many states had a violation, by code.
    pub codes: BTreeMap<String, u64>,
    /// The first that does not hold.
    pub first: Option<Failure>,
}

/// The log to explore, and the means to judge its states.
pub struct Subject<'a> {
    /// The format.
    pub target: &'a dyn Target,
    /// The discipline's promises.
    pub promises: Promises,
    /// The log of the device.
    pub log: &'a Log,
    /// The workload's run; `None` when only the check can judge.
    pub run: Option<&'a Run>,
}

/// One in so many states has its recovery cut off as well.
const CUT_ONE_IN: u64 = 8;
/// States that are judged in one go.
const BATCH: usize = 256;

/// Goes through the crash states of a log over an image.
///
/// # Errors
/// [`DeviceError`] when the base cannot be read, or a log's write lies beyond it.
pub fn explore(
    subject: &Subject<'_>,
    base: &Arc<dyn BlockDevice>,
    search: &Search,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Exploration, DeviceError> {
    explore_observed(subject, base, search, progress, &mut |_, _| {})
}

/// Called for each state that holds after a recovery that asks nothing, in the order of the
/// search.
pub type Observer<'a> = &'a mut dyn FnMut(&Epoch, &crate::states::Choice);

/// As [`explore`], and calls `holds` for the states that hold.
///
/// # Errors
/// As [`explore`].
pub fn explore_observed(
    subject: &Subject<'_>,
    base: &Arc<dyn BlockDevice>,
    search: &Search,
    progress: &(dyn Fn(u64) + Sync),
    holds: Observer<'_>,
) -> Result<Exploration, DeviceError> {
    let epochs = subject.log.epochs(0);
    let (chosen, left_out, drawn) = choose(subject.log, &epochs, base, search)?;
    let layer: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(base), 4096));
    let mut result = Exploration { drawn, ..Exploration::default() };
    result.coverage.left_out = left_out;
    for (epoch, mut found) in epochs.iter().zip(chosen) {
        if let Some(states) = found.take() {
            let how = (search, progress);
            judge_epoch(subject, epoch, &states, &layer, how, holds, &mut result)?;
            if search.first_only && result.first.is_some() {
                return Ok(result);
            }
        }
        apply_epoch(subject.log, epoch, layer.as_ref())?;
    }
    Ok(result)
}

/// As [`explore`], of a workload's log.
///
/// # Errors
/// As [`explore`].
pub fn explore_run(
    target: &dyn Target,
    promises: Promises,
    run: &Run,
    search: &Search,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Exploration, DeviceError> {
    explore_run_observed((target, promises), run, search, progress, &mut |_, _| {})
}

/// As [`explore_run`], and calls `holds` for the states that hold.
///
/// # Errors
/// As [`explore`].
pub fn explore_run_observed(
    (target, promises): (&dyn Target, Promises),
    run: &Run,
    search: &Search,
    progress: &(dyn Fn(u64) + Sync),
    holds: Observer<'_>,
) -> Result<Exploration, DeviceError> {
    let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(run.base.to_vec()));
    let subject = Subject { target, promises, log: &run.log, run: Some(run) };
    explore_observed(&subject, &base, search, progress, holds)
}

/// The states to be looked at, for each epoch; how many are left out, and how
/// many are all shards'.
fn choose(
    log: &Log,
    epochs: &[Epoch],
    base: &Arc<dyn BlockDevice>,
    search: &Search,
) -> Result<(Vec<Option<States>>, u64, u64), DeviceError> {
    let layer = Overlay::new(Arc::clone(base), 4096);
    let bound = match search.extent {
        Extent::Exhaustive => search.bound,
        Extent::Sample(count) => search.bound.min(count.max(16)),
    };
    let mut all = Vec::new();
    for (epoch, n) in epochs.iter().zip(0u64..) {
        let looked_at = epoch.steps.end >= search.from;
        let seed = search.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(n);
        all.push(if looked_at { Some(states(log, epoch, &layer, bound, seed)?) } else { None });
        apply_epoch(log, epoch, &layer)?;
    }
    // Of an epoch's end the next one's beginning is the same image, promised more.
    let last = all.len().saturating_sub(1);
    for (n, states) in all.iter_mut().enumerate() {
        let Some(states) = states else { continue };
        let whole = states.atoms.len();
        let ends_in_flush = n < last;
        states.choices.retain(|choice| {
            !(ends_in_flush && whole > 0 && !choice.reversed && choice.count() as usize == whole)
        });
    }
    let (left_out, drawn) = keep_some(&mut all, search);
    Ok((all, left_out, drawn))
}

/// Draws as many as are wanted, and leaves to other shards their share. Returns how many that
/// leaves out, and how many are all shards'.
fn keep_some(all: &mut [Option<States>], search: &Search) -> (u64, u64) {
    let total: usize = all.iter().flatten().map(|states| states.choices.len()).sum();
    let mut kept = vec![true; total];
    if let Extent::Sample(count) = search.extent {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count < total {
            let mut order: Vec<usize> = (0..total).collect();
            let mut rng = Pcg64Mcg::seed_from_u64(search.seed);
            for at in (1..total).rev() {
                order.swap(at, rng.next_u64() as usize % (at + 1));
            }
            order.iter().skip(count).for_each(|&at| kept[at] = false);
        }
    }
    let (part, parts) = search.shard;
    let (mut at, mut mine) = (0, 0u32);
    for states in all.iter_mut().flatten() {
        states.choices.retain(|_| {
            let keep = kept[at];
            at += 1;
            mine = if keep { (mine + 1) % parts.max(1) } else { mine };
            keep && mine == part % parts.max(1)
        });
    }
    let left: usize = all.iter().flatten().map(|states| states.choices.len()).sum();
    let drawn = kept.iter().filter(|&&kept| kept).count();
    (total.saturating_sub(left) as u64, drawn as u64)
}

/// Puts the writes that the flush at the end of an epoch completes onto a device.
fn apply_epoch(log: &Log, epoch: &Epoch, layer: &dyn BlockDevice) -> Result<(), DeviceError> {
    for written in log.completed(epoch.steps.clone()) {
        layer.write(written.at, written.bytes)?;
    }
    Ok(())
}

fn judge_epoch(
    subject: &Subject<'_>,
    epoch: &Epoch,
    states: &States,
    layer: &Arc<dyn BlockDevice>,
    (search, progress): (&Search, &(dyn Fn(u64) + Sync)),
    holds: Observer<'_>,
    result: &mut Exploration,
) -> Result<(), DeviceError> {
    if !states.atoms.is_empty() {
        *result.coverage.epochs.entry(states.level.name().to_string()).or_default() += 1;
    }
    let promised = subject.run.map(|run| Promised::at(&run.history, epoch.steps.start));
    for batch in states.choices.chunks(BATCH) {
        let judged = batch
            .par_iter()
            .map(|choice| judge(subject, states, choice, promised.as_ref(), layer))
            .collect::<Result<Vec<Verdict>, DeviceError>>()?;
        progress(batch.len() as u64);
        result.coverage.states += batch.len() as u64;
        for (choice, verdict) in batch.iter().zip(judged) {
            result.coverage.needs_y += u64::from(verdict.needs_y);
            let violations = verdict.wrong;
            if violations.is_empty() {
                if !verdict.needs_y {
                    holds(epoch, choice);
                }
                continue;
            }
            result.failing += 1;
            let mut codes: Vec<&str> = violations.iter().map(|v| v.code.as_str()).collect();
            codes.sort_unstable();
            codes.dedup();
            for code in codes {
                *result.codes.entry(code.to_string()).or_default() += 1;
            }
            if result.first.is_none() {
                let (epoch, choice) = (epoch.clone(), choice.clone());
                result.first = Some(Failure { epoch, choice, violations });
            }
        }
        if search.first_only && result.first.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// Recovers one state and judges it.
pub(crate) fn judge(
    subject: &Subject<'_>,
    states: &States,
    choice: &crate::states::Choice,
    promised: Option<&Promised>,
    layer: &Arc<dyn BlockDevice>,
) -> Result<Verdict, DeviceError> {
    let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(layer), 512));
    states.apply(subject.log, choice, device.as_ref())?;
    let position = states.position(choice);
    let window = subject
        .run
        .zip(promised)
        .map(|(run, promised)| (&run.history, Window::new(&run.history, promised, position)));
    let workload = window.as_ref().map(|(history, window)| (*history, window));
    let Subject { target, promises, .. } = *subject;
    let draw = choice.draw(states.start_of());
    let cut = draw.is_multiple_of(CUT_ONE_IN).then_some(draw / CUT_ONE_IN);
    Judge { target, promises, workload }.state(&device, cut)
}

/// All states of one epoch of a log, and the device as it was before it.
pub(crate) fn epoch_states(
    log: &Log,
    epoch: &Epoch,
    base: &Arc<dyn BlockDevice>,
) -> Result<(States, Arc<dyn BlockDevice>), DeviceError> {
    let layer: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(base), 4096));
    for earlier in log.epochs(0).iter().take_while(|other| other.steps.start < epoch.steps.start) {
        apply_epoch(log, earlier, layer.as_ref())?;
    }
    Ok((states(log, epoch, layer.as_ref(), 1, 0)?, layer))
}

/// The device in a state of a run, before anything is recovered.
///
/// # Errors
/// As [`explore`].
pub fn image_of(
    run: &Run,
    epoch: &Epoch,
    choice: &crate::states::Choice,
) -> Result<Vec<u8>, DeviceError> {
    let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(run.base.to_vec()));
    let (states, layer) = epoch_states(&run.log, epoch, &base)?;
    states.apply(&run.log, choice, layer.as_ref())?;
    let mut bytes = vec![0; run.base.len()];
    layer.read(seekless_units::Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// The levels at which epochs were covered, for people.
#[must_use]
pub fn levels(coverage: &Coverage) -> String {
    let say = |level: Level| {
        coverage.epochs.get(level.name()).map(|count| format!("{count} {}", level.name()))
    };
    let parts: Vec<String> = Level::ALL.into_iter().filter_map(say).collect();
    if parts.is_empty() { "none".into() } else { parts.join(", ") }
}
