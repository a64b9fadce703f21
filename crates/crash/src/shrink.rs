//! Making a failure small: fewer operations, fewer writes that matter.

use crate::driver::{Run, RunError, RunOptions, prepare, record};
use crate::explore::{Extent, Failure, Search, Subject, epoch_states, explore_run, judge};
use crate::history::Deed;
use crate::oracle::{Promised, Promises, Violation};
use crate::script::Script;
use crate::states::{Choice, States};
use crate::target::Target;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, Overlay};
use seekless_units::Lba;
use std::sync::Arc;

/// Most scripts that are tried.
const TRIES: usize = 200;
/// Most states of an epoch that are looked at in a try.
const BOUND: u64 = 512;

/// A small script, a state of its log, and the violations in it.
#[derive(Clone, Debug)]
pub struct Reproducer {
    /// The script.
    pub script: Script,
    /// The operation that was under way, or the last one that was done.
    pub crashed_in: Option<String>,
    /// Steps of the log that are on the disk whole.
    pub before: usize,
    /// The writes since, each with the part of it that is on the disk.
    pub writes: Vec<String>,
    /// The violations.
    pub violations: Vec<Violation>,
    /// The device in that state, before anything was repaired.
    pub image: Vec<u8>,
}

/// A run and its failure.
struct Failing {
    script: Script,
    run: Run,
    failure: Failure,
}

struct Shrinker<'a> {
    target: &'a dyn Target,
    promises: Promises,
    how: &'a RunOptions,
    search: Search,
    tries: usize,
}

/// The smallest script and state with the first failure of a script; `None` when
/// it has none.
///
/// # Errors
/// [`RunError`] when the script cannot be done.
pub fn shrink(
    target: &dyn Target,
    promises: Promises,
    script: &Script,
    how: &RunOptions,
    search: &Search,
) -> Result<Option<Reproducer>, RunError> {
    let mut shrinker = Shrinker { target, promises, how, search: *search, tries: 0 };
    shrinker.search.extent = Extent::Exhaustive;
    shrinker.search.shard = (1, 1);
    let Some(first) = shrinker.fails(script, None)? else { return Ok(None) };
    shrinker.search.bound = search.bound.min(BOUND);
    let small = shrinker.fewer_lines(first);
    Ok(Some(shrinker.finish(small)))
}

impl Shrinker<'_> {
    /// The first failure of a script; with a code, one that has it.
    fn fails(&self, script: &Script, code: Option<&str>) -> Result<Option<Failing>, RunError> {
        let base = prepare(self.target, &script.name, &script.setup)?;
        let run = record(self.target, &base, script, self.how)?;
        let found = explore_run(self.target, self.promises, &run, &self.search, &|_| {})
            .map_err(seekless_fs::FsError::from)?;
        let fits = |failure: &Failure| {
            code.is_none_or(|code| failure.violations.iter().any(|v| v.code == code))
        };
        let failure = found.first.filter(fits);
        Ok(failure.map(|failure| Failing { script: script.clone(), run, failure }))
    }

    /// Takes out lines as long as the failure stays, the last first; those of
    /// the setup as well.
    fn fewer_lines(&mut self, mut best: Failing) -> Failing {
        let code = best.failure.violations.first().map(|v| v.code.clone()).unwrap_or_default();
        loop {
            let mut smaller = None;
            let body = best.script.body.len();
            for at in (0..body + best.script.setup.len()).rev() {
                if self.tries >= TRIES {
                    break;
                }
                self.tries += 1;
                let mut script = best.script.clone();
                // The body's lines come first: the remaining ones decide which of the setup's are
                // needed.
                let at = body + best.script.setup.len() - 1 - at;
                if at < body {
                    script.body.remove(body - 1 - at);
                } else {
                    script.setup.remove(script.setup.len() - 1 - (at - body));
                }
                if let Ok(Some(found)) = self.fails(&script, Some(&code)) {
                    smaller = Some(found);
                    break;
                }
            }
            match smaller {
                Some(found) => best = found,
                None => return best,
            }
        }
    }

    /// Finds the smallest loss that fails, and describes it.
    fn finish(&self, found: Failing) -> Reproducer {
        let Failing { script, run, failure } = found;
        let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(run.base.to_vec()));
        let (mut choice, mut violations) = (failure.choice.clone(), failure.violations.clone());
        let (mut writes, mut image) = (Vec::new(), Vec::new());
        let mut position = failure.epoch.steps.start;
        if let Ok((states, layer)) = epoch_states(&run.log, &failure.epoch, &base) {
            let subject = Subject {
                target: self.target,
                promises: self.promises,
                log: &run.log,
                run: Some(&run),
            };
            let promised = Promised::at(&run.history, failure.epoch.steps.start);
            let judged = |choice: &Choice| {
                judge(&subject, &states, choice, Some(&promised), &layer).unwrap_or_default().wrong
            };
            let first = violations.first().map(|v| v.code.clone()).unwrap_or_default();
            for smaller in simpler(&states, &choice) {
                let mut tried = choice.clone();
                smaller.iter().for_each(|&(atom, there)| tried.set(atom, there));
                if states.splits(&run.log, &tried) {
                    continue;
                }
                let wrong = judged(&tried);
                if tried != choice && wrong.iter().any(|v| v.code == first) {
                    (choice, violations) = (tried, wrong);
                }
            }
            writes = states.describe(&run.log, &choice);
            position = states.position(&choice);
            image = image_of(&states, &run, &choice, &layer).unwrap_or_default();
        }
        let begun = |deed: &&Deed| deed.began < position;
        let last = run.history.deeds.iter().rev().find(begun);
        let crashed_in = last.map(|deed| {
            let state = if deed.ended < position { "after" } else { "in" };
            format!("{state} `{}`", deed.text)
        });
        let before = failure.epoch.steps.start;
        Reproducer { script, crashed_in, before, writes, violations, image }
    }
}

/// The bytes of a state.
fn image_of(
    states: &States,
    run: &Run,
    choice: &Choice,
    layer: &Arc<dyn BlockDevice>,
) -> Result<Vec<u8>, DeviceError> {
    let device = Overlay::new(Arc::clone(layer), 512);
    states.apply(&run.log, choice, &device)?;
    let mut bytes = vec![0; run.base.len()];
    device.read(Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// Changes that might make a state simpler, one after the other: each write
/// whole, or lost.
fn simpler(states: &States, choice: &Choice) -> Vec<Vec<(usize, bool)>> {
    let count = states.atoms.last().map_or(0, |atom| atom.write + 1);
    let mut tries = Vec::new();
    for write in 0..count {
        let atoms = || (0..states.atoms.len()).filter(move |&at| states.atoms[at].write == write);
        let there = atoms().filter(|&at| choice.has(at)).count();
        if there < atoms().count() {
            tries.push(atoms().map(|at| (at, true)).collect());
        }
        if there > 0 {
            tries.push(atoms().map(|at| (at, false)).collect());
        }
    }
    tries
}
