//! Many workloads, one after the other: their states, and the results.

use crate::accepted::{AcceptedState, AcceptedStates};
use crate::driver::{Base, RunError, RunOptions, prepare, record};
use crate::explore::{self, Coverage, Exploration, Extent, Search, explore_run_observed};
use crate::log::Epoch;
use crate::oracle::{Promises, Violation};
use crate::recorder::Completion;
use crate::resume::{CampaignHead, PartOf};
use crate::script::{Script, ScriptError};
use crate::shrink::{self, Reproducer};
use crate::states::Choice;
use crate::target::Target;
use crate::workload::{self, Drawn, Features, scheduled};
use seekless_cache::Discipline;
use seekless_device::DeviceError;
use seekless_fs::FsError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a campaign ended early.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// A script cannot be read.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A workload cannot be done.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The images in memory cannot be read.
    #[error("an image in memory: {0}")]
    Device(#[from] DeviceError),
    /// The file with the results so far.
    #[error(transparent)]
    State(#[from] crate::resume::StateError),
}

/// Parameters of a campaign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The update discipline.
    pub discipline: Discipline,
    /// How much of each workload is looked at.
    pub search: Search,
    /// In how many ways each workload's blocks are written
    /// ([`workload::scheduled`]).
    pub schedules: u32,
    /// The device has a queue: asynchronous writes complete late ([`Completion::Late`]).
    pub queue: bool,
}

impl Settings {
    /// The parameters that decide the results, as a line: a campaign goes on only with the same.
    #[must_use]
    pub fn fingerprint(&self, format: &str, workload: &str) -> String {
        let Search { extent, bound, shard, seed, .. } = self.search;
        let extent = match extent {
            Extent::Exhaustive => "exhaustive".to_string(),
            Extent::Sample(count) => format!("sample {count}"),
        };
        let (part, parts) = shard;
        let (discipline, schedules) = (self.discipline, self.schedules);
        let queue = if self.queue { "; queue" } else { "" };
        format!(
            "{workload}; {format}; {discipline}; {extent}; bound {bound}; shard {part}/{parts}; \
             seed {seed}; schedules {schedules}{queue}"
        )
    }
}

impl Settings {
    /// The head of the state file of a campaign with this number of workloads.
    #[must_use]
    pub fn head(&self, format: &str, workload: &str, workloads: usize) -> CampaignHead {
        let mut all = *self;
        all.search.shard = (1, 1);
        CampaignHead {
            campaign: self.fingerprint(format, workload),
            part: Some(PartOf {
                campaign: all.fingerprint(format, workload),
                shard: self.search.shard,
                workloads,
                version: env!("CARGO_PKG_VERSION").into(),
            }),
        }
    }
}

/// Most ways in which a workload's blocks are written, to get as many states as
/// are wanted.
const MOST_SCHEDULES: u32 = 40;

/// The result of one workload, in all its schedules.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnitResult {
    /// The workload's name.
    pub workload: String,
    /// Writes in its logs.
    pub writes: u64,
    /// The states explored.
    pub coverage: Coverage,
    /// States that do not hold.
    pub failing: u64,
    /// How many states had a violation, by code.
    pub codes: BTreeMap<String, u64>,
    /// The first schedule with a state that does not hold.
    pub failed_schedule: Option<u32>,
}

/// A campaign of one format.
pub struct Campaign<'a> {
    target: &'a dyn Target,
    settings: Settings,
    /// The image that built-in workloads begin with, once it was made.
    bases: Vec<(String, Base)>,
    /// Takes some of the states that hold.
    keeper: AcceptedStates,
}

impl<'a> Campaign<'a> {
    /// Nothing done so far.
    #[must_use]
    pub fn new(target: &'a dyn Target, settings: Settings) -> Self {
        Self { target, settings, bases: Vec::new(), keeper: AcceptedStates::new(0) }
    }

    /// From here on, keeps this many of the states that hold, evenly ([`Campaign::kept`]).
    pub fn keep(&mut self, wanted: usize) {
        self.keeper = AcceptedStates::new(wanted);
    }

    /// Those that were taken, in the order of the search.
    #[must_use]
    pub fn kept(&self) -> Vec<AcceptedState> {
        self.keeper.chosen().into_iter().cloned().collect()
    }

    /// The device in one of those states, before anything is recovered.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn image_of(
        &mut self,
        script: &Script,
        kept: &AcceptedState,
    ) -> Result<Vec<u8>, CampaignError> {
        let base = self.base(script)?;
        let seed = self.seed_of(&script.name, kept.schedule);
        let script = scheduled(script, kept.schedule, seed);
        let run = record(self.target, &base, &script, &self.how(seed))?;
        Ok(explore::image_of(&run, &kept.epoch, &kept.choice)?)
    }

    /// The image that a script begins with. Most begin with the same.
    fn base(&mut self, script: &Script) -> Result<Base, RunError> {
        let text: String = script.setup.iter().map(|line| format!("{}\n", line.op)).collect();
        if let Some((_, base)) = self.bases.iter().find(|(known, _)| *known == text) {
            return Ok(base.clone());
        }
        let base = prepare(self.target, &script.name, &script.setup)?;
        self.bases.truncate(3);
        self.bases.push((text, base.clone()));
        Ok(base)
    }

    fn promises(&self) -> Promises {
        Promises::of(self.settings.discipline)
    }

    /// A device's queue draws from a schedule's number.
    fn how(&self, seed: u64) -> RunOptions {
        let late = self.settings.queue.then_some(Completion::Late(seed));
        let completion = late.unwrap_or(Completion::AtOnce);
        RunOptions { completion, ..RunOptions::new(self.settings.discipline) }
    }

    /// Explores a workload's states. `progress` is called with the number of judged ones.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn unit(
        &mut self,
        script: &Script,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<UnitResult, CampaignError> {
        let base = self.base(script)?;
        let mut result = UnitResult { workload: script.name.clone(), ..UnitResult::default() };
        let schedules = self.settings.schedules.max(1);
        let mut drawn = 0;
        for schedule in 0..schedules.max(MOST_SCHEDULES) {
            let Some(extent) = self.extent_of(schedule, drawn) else { break };
            let seed = self.seed_of(&script.name, schedule);
            let script = scheduled(script, schedule, seed);
            let run = record(self.target, &base, &script, &self.how(seed))?;
            let search = Search { seed, extent, ..self.settings.search };
            let keeper = &mut self.keeper;
            let mut holds = |epoch: &Epoch, choice: &Choice| {
                keeper.see(|| AcceptedState {
                    workload: script.name.clone(),
                    schedule,
                    epoch: epoch.clone(),
                    choice: choice.clone(),
                });
            };
            let judge = (self.target, Promises::of(self.settings.discipline));
            let found = explore_run_observed(judge, &run, &search, progress, &mut holds)?;
            result.writes += run.log.writes(0) as u64;
            drawn += found.drawn;
            result.take(&found, schedule);
        }
        Ok(result)
    }

    /// How much of a schedule is explored, when `drawn` states were drawn of those before: a
    /// sample is shared among all schedules, and more follow until it is full; `None` when it is.
    fn extent_of(&self, schedule: u32, drawn: u64) -> Option<Extent> {
        let schedules = self.settings.schedules.max(1);
        let left = schedules.saturating_sub(schedule);
        match self.settings.search.extent {
            Extent::Exhaustive => (left > 0).then_some(Extent::Exhaustive),
            Extent::Sample(count) => {
                let wanted = count.saturating_sub(drawn);
                (wanted > 0).then(|| Extent::Sample(wanted.div_ceil(u64::from(left.max(1)))))
            }
        }
    }

    /// The seed of a workload: from its name and the campaign's seed.
    fn seed_of(&self, name: &str, schedule: u32) -> u64 {
        let start = self.settings.search.seed ^ 0xCBF2_9CE4_8422_2325;
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        let hash = name.bytes().fold(start, mix);
        mix(hash, schedule.to_le_bytes()[0]).rotate_left(31)
    }

    /// The smallest script and state with the failure that a workload had.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn reproduce(
        &mut self,
        script: &Script,
        schedule: u32,
    ) -> Result<Option<Reproducer>, CampaignError> {
        let seed = self.seed_of(&script.name, schedule);
        let script = scheduled(script, schedule, seed);
        let search = Search { seed, first_only: true, ..self.settings.search };
        Ok(shrink::shrink(self.target, self.promises(), &script, &self.how(seed), &search)?)
    }

    /// The log of a workload's device, from the making of its image on: a mark `base` stands where
    /// recording began.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn log_of(&mut self, script: &Script) -> Result<crate::log::Log, CampaignError> {
        let base = self.base(script)?;
        let seed = self.seed_of(&script.name, 0);
        let script = scheduled(script, 0, seed);
        let run = record(self.target, &base, &script, &self.how(seed))?;
        Ok(crate::replay::with_base(&run))
    }
}

impl UnitResult {
    fn take(&mut self, found: &Exploration, schedule: u32) {
        self.coverage.add(&found.coverage);
        self.failing += found.failing;
        for (code, count) in &found.codes {
            *self.codes.entry(code.clone()).or_default() += count;
        }
        if found.first.is_some() {
            self.failed_schedule.get_or_insert(schedule);
        }
    }
}

/// Sequences that `random:N` stands for, and their seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequences {
    /// How many.
    pub count: u64,
    /// The seed they are drawn from.
    pub seed: u64,
}

/// Allowed lengths of the longest random sequences: at least as many operations as the shortest
/// have.
const OPERATIONS: std::ops::RangeInclusive<u32> = 3..=64;

/// The built-in workloads of a name: `all`, `singles`, `pairs`, the name of one; `random:N` or
/// `moves:N`, or `random:N#K` for one of those. `None` for anything else.
///
/// # Errors
/// None: built-in scripts are valid.
pub fn built_in(
    name: &str,
    has: impl Into<Features>,
    sequences: Sequences,
) -> Result<Option<Vec<Script>>, ScriptError> {
    let has = has.into();
    let singles = || workload::singles(has);
    let pairs = || workload::pairs(has);
    let split = |drawn: Drawn| Some((drawn, name.strip_prefix(drawn.name())?.strip_prefix(':')?));
    if let Some((drawn, rest)) = Drawn::ALL.into_iter().find_map(split) {
        let (most, number) = match rest.split_once('#') {
            Some((most, number)) => (most, number.parse::<u64>().ok()),
            None => (rest, None),
        };
        let most = most.parse().ok().filter(|most| OPERATIONS.contains(most));
        let Some(most) = most.filter(|_| number.is_some() == rest.contains('#')) else {
            return Ok(None);
        };
        let Sequences { count, seed } = sequences;
        return Ok(Some(match number {
            Some(number) => vec![workload::random_one(drawn, most, number, seed, has)?],
            None => workload::random(drawn, most, count, seed, has)?,
        }));
    }
    Ok(Some(match name {
        "all" => singles()?.into_iter().chain(pairs()?).collect(),
        "singles" => singles()?,
        "pairs" => pairs()?,
        _ => {
            let all = if name.contains(',') { pairs()? } else { singles()? };
            match all.into_iter().find(|script| script.name == name) {
                Some(script) => vec![script],
                None => return Ok(None),
            }
        }
    }))
}

/// The error of a campaign whose device fails.
impl From<FsError> for CampaignError {
    fn from(error: FsError) -> Self {
        Self::Run(RunError::Volume(error))
    }
}

/// Violations as lines.
#[must_use]
pub fn lines(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(|violation| format!("{}: {}", violation.code, violation.what)).collect()
}
