//! Whether the search would notice: one order between changes is forgotten, and
//! some crash state must show it.
//!
//! A mutant is a workload with one order not kept ([`Config::drop_order`](seekless_cache::Config)).
//! Some orders are implied by others, or are between changes that are written together anyway:
//! without them the disk can show nothing new, and such mutants are counted apart (they are
//! *equivalent*, in the language of mutation testing). The others must be caught.

use crate::campaign::CampaignError;
use crate::driver::{Base, RunError, RunOptions, prepare, record};
use crate::explore::{Extent, Search, explore_run};
use crate::oracle::Promises;
use crate::script::Script;
use crate::target::Target;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Discipline, Dropped};

/// In how many ways blocks are written once an order was forgotten.
const VARIANTS: u64 = 12;
/// Most states of an epoch that are looked at.
const BOUND: u64 = 192;

/// The fate of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// A state did not hold: the first violation's code.
    Caught(String),
    /// The file system itself failed.
    Failed(String),
    /// The disk can show nothing that it could not show before.
    Equivalent,
    /// The disk did show a state that the order forbids, and all states hold: nothing depends on
    /// it.
    Harmless,
    /// No state showed it.
    Missed,
}

/// A workload without one order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// The workload.
    pub workload: String,
    /// The number of the order.
    pub order: u64,
    /// The dropped order.
    pub dropped: Option<Dropped>,
    /// Its fate.
    pub fate: Fate,
    /// States that were looked at.
    pub states: u64,
}

/// Makes mutants and looks for them.
pub struct Mutation<'a> {
    target: &'a dyn Target,
    scripts: Vec<Script>,
    base: Base,
    rng: Pcg64Mcg,
}

impl<'a> Mutation<'a> {
    /// Of workloads that all begin with the same image.
    ///
    /// # Errors
    /// [`RunError`] when that cannot be made.
    pub fn new(target: &'a dyn Target, scripts: Vec<Script>, seed: u64) -> Result<Self, RunError> {
        let setup = scripts.first().map(|script| script.setup.as_slice()).unwrap_or_default();
        let base = prepare(target, "setup", setup)?;
        Ok(Self { target, scripts, base, rng: Pcg64Mcg::seed_from_u64(seed) })
    }

    /// The next mutant, drawn from all orders of a workload drawn from all;
    /// `None` when there are no orders.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn draw(&mut self) -> Result<Option<Mutant>, CampaignError> {
        let how = RunOptions::new(Discipline::SoftUpdates);
        for _ in 0..1000 {
            let count = self.scripts.len().max(1) as u64;
            let at = (self.rng.next_u64() % count) as usize;
            let Some(script) = self.scripts.get(at) else { return Ok(None) };
            let orders = record(self.target, &self.base, script, &how)?.counters.orders;
            if orders > 0 {
                let (order, seed) = (self.rng.next_u64() % orders, self.rng.next_u64());
                return self.judge(script, order, seed).map(Some);
            }
        }
        Ok(None)
    }

    fn judge(&self, script: &Script, order: u64, seed: u64) -> Result<Mutant, CampaignError> {
        let mut mutant = Mutant {
            workload: script.name.clone(),
            order,
            dropped: None,
            fate: Fate::Missed,
            states: 0,
        };
        for variant in 0..VARIANTS {
            let mut how = RunOptions::new(Discipline::SoftUpdates);
            how.config.drop_order = Some(order);
            how.after_drop = Some(variant);
            let run = match record(self.target, &self.base, script, &how) {
                Ok(run) => run,
                Err(error) => {
                    mutant.fate = Fate::Failed(error.to_string());
                    return Ok(mutant);
                }
            };
            let now = run.counters.dropped;
            // The outcome depends on the order of writes.
            let (misled, shown) =
                mutant.dropped.map_or((false, false), |dropped| (dropped.misled, dropped.shown));
            mutant.dropped = now.map(|dropped| Dropped {
                misled: dropped.misled | misled,
                shown: dropped.shown | shown,
                ..dropped
            });
            if now.is_none_or(|dropped| dropped.implied || dropped.inseparable) {
                break;
            }
            let search = Search {
                extent: Extent::Exhaustive,
                bound: BOUND,
                from: run.dropped_at.unwrap_or(0),
                first_only: true,
                ..Search::exhaustive(seed)
            };
            let promises = Promises::of(Discipline::SoftUpdates);
            let found = explore_run(self.target, promises, &run, &search, &|_| {})?;
            mutant.states += found.coverage.states;
            if let Some(violation) =
                found.first.and_then(|first| first.violations.into_iter().next())
            {
                mutant.fate = Fate::Caught(violation.code);
                return Ok(mutant);
            }
        }
        if mutant.dropped.is_none_or(|dropped| !dropped.matters()) {
            mutant.fate = Fate::Equivalent;
        } else if mutant.dropped.is_some_and(|dropped| dropped.shown) {
            mutant.fate = Fate::Harmless;
        }
        Ok(mutant)
    }
}
