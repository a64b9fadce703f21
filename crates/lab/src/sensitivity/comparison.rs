//! Claims, each as a comparison of two cells.

use crate::cells::Cell;
use crate::experiment::{ClaimFigure, Experiment, Published, Workload};
use crate::run::RunId;

/// A phase of a cell under one policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ComparedPhase {
    workload: String,
    system: String,
    discipline: &'static str,
    phase: String,
    policy: String,
}

impl ComparedPhase {
    /// Parses `workload/system/discipline/phase`, with a policy behind it or not; `Err` says why it
    /// is none of an experiment's.
    pub(crate) fn parse(experiment: &Experiment, name: &str) -> Result<Self, String> {
        let mut parts = name.splitn(5, '/');
        let mut next = |what| parts.next().ok_or_else(|| format!("'{name}' has no {what}"));
        let names = [next("workload")?, next("system")?, next("discipline")?, next("phase")?];
        let [workload, system, discipline, phase] = names;
        let unknown = |what, part| format!("'{name}': unknown {what} '{part}'");
        let of = experiment.workloads.iter().find(|one| one.name == workload);
        let of = of.ok_or_else(|| unknown("workload", workload))?;
        let systems = of.systems_of(experiment).any(|one| one.name == system);
        let mut disciplines = of.disciplines_of(experiment).iter().map(|one| one.0.name());
        let discipline = disciplines.find(|one| *one == discipline);
        let phases = of.phases().contains(&phase);
        let policies = of.policies_of(experiment);
        let policy = match parts.next() {
            Some(policy) => policies.iter().find(|one| one.0 == policy),
            None => policies.last(),
        };
        match (systems, discipline, phases, policy) {
            (false, ..) => Err(unknown("system", system)),
            (_, None, ..) => Err(unknown("discipline", names[2])),
            (_, _, false, _) => Err(unknown("phase", phase)),
            (.., None) => Err(format!("'{name}': unknown policy")),
            (true, Some(discipline), true, Some(policy)) => {
                Ok(Self::of(of, system, discipline, phase, &policy.0))
            }
        }
    }

    fn of(
        workload: &Workload,
        system: &str,
        discipline: &'static str,
        phase: &str,
        policy: &str,
    ) -> Self {
        Self {
            workload: workload.name.clone(),
            system: system.into(),
            discipline,
            phase: phase.into(),
            policy: policy.into(),
        }
    }

    /// Whether it is a phase of a run.
    pub(super) fn is_of(&self, id: &RunId) -> bool {
        (&self.workload, &self.system, self.discipline, &self.policy)
            == (&id.workload, &id.system, &*id.discipline, &id.policy)
    }

    /// Whether a cell's name in the tables is its own, or begins it.
    fn answers(&self, only: &str) -> bool {
        let Self { workload, system, discipline, phase, policy } = self;
        let parts: [&str; 5] = [workload, system, discipline, phase, policy];
        only.split('/').all(|wanted| parts.contains(&wanted))
    }

    fn figure(&self, cells: &[Cell], figure: ClaimFigure) -> f64 {
        let is = |cell: &&Cell| {
            (&cell.workload, &cell.system, &*cell.discipline, &cell.phase)
                == (&self.workload, &self.system, self.discipline, &self.phase)
        };
        let cell = cells.iter().find(is).expect("the runs of all claims");
        let side = cell.sides.iter().find(|side| side.policy == self.policy);
        let side = side.expect("the runs of all claims");
        let (disk, counts) = (&side.counts.disk, &side.counts);
        let writes = disk.sync_writes + disk.async_writes;
        match figure {
            ClaimFigure::Seconds => side.seconds,
            ClaimFigure::Requests => (disk.reads + writes) as f64,
            ClaimFigure::Writes => writes as f64,
            ClaimFigure::MaxLimitHit => counts.max_limit_hit as f64,
            ClaimFigure::RushRequests => counts.rush_requests as f64,
        }
    }
}

/// A claim: that a figure of one cell is less than that of another.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The sentence.
    pub says: String,
    /// The quotient as published.
    pub published: Option<f64>,
    pub(super) less: ComparedPhase,
    pub(super) more: ComparedPhase,
    figure: ClaimFigure,
    range: Option<[f64; 2]>,
}

impl Comparison {
    /// Whether one of its cells is one that `--only` names.
    #[must_use]
    pub fn answers(&self, only: &str) -> bool {
        self.less.answers(only) || self.more.answers(only)
    }

    /// The figure of the cell with more over that of the one with less.
    pub(super) fn ratio(&self, cells: &[Cell]) -> f64 {
        self.more.figure(cells, self.figure) / self.less.figure(cells, self.figure)
    }

    /// Whether the sentence is true of a quotient.
    pub(super) fn holds(&self, ratio: f64) -> bool {
        match self.range {
            Some([least, most]) => least <= ratio && ratio <= most,
            None => ratio > 1.0,
        }
    }

    fn seconds(says: String, less: ComparedPhase, more: ComparedPhase, published: f64) -> Self {
        let figure = ClaimFigure::Seconds;
        Self { says, published: Some(published), less, more, figure, range: None }
    }
}

/// The claims of an experiment: of published speed-ups, of the ranking, and of the file.
///
/// # Panics
/// When a cell of a claim does not exist, which [`Experiment::parse`] has looked at.
#[must_use]
pub fn comparisons(experiment: &Experiment) -> Vec<Comparison> {
    let mut all: Vec<Comparison> =
        experiment.published.iter().filter_map(|one| speedup(experiment, one)).collect();
    all.extend(ranked(experiment));
    all.extend(experiment.claims.iter().map(|claim| {
        let place =
            |name| ComparedPhase::parse(experiment, name).expect("a cell of the experiment");
        Comparison {
            says: claim.says.clone(),
            published: claim.published,
            less: place(&claim.less),
            more: place(&claim.more),
            figure: claim.figure,
            range: claim.ratio,
        }
    }));
    all
}

/// A published cell, under the first or the last of its policies.
fn place(experiment: &Experiment, published: &Published, first: bool) -> ComparedPhase {
    let Published { workload, system, discipline, phase, .. } = published;
    let name = format!("{workload}/{system}/{}/{phase}", discipline.0.name());
    let workload = experiment.workloads.iter().find(|one| one.name == *workload);
    let policies = workload.expect("a workload of the experiment").policies_of(experiment);
    let policy = if first { policies.first() } else { policies.last() };
    let policy = policy.expect("a policy at least");
    ComparedPhase::parse(experiment, &format!("{name}/{}", policy.0))
        .expect("a cell of the experiment")
}

/// That the last policy is faster than the first one, or slower where it is published so.
fn speedup(experiment: &Experiment, published: &Published) -> Option<Comparison> {
    let quotient = || Some(published.old_s? / published.new_s?);
    let ratio = published.speedup.or_else(quotient)?;
    let [old, new] = [true, false].map(|first| place(experiment, published, first));
    if old == new || ratio == 1.0 {
        return None;
    }
    let Published { workload, system, discipline, phase, .. } = published;
    let cell = format!("{workload}/{system}/{}/{phase}", discipline.0.name());
    let (less, more) = if ratio > 1.0 { (new, old) } else { (old, new) };
    let says = format!("{cell}: {} faster than {}", less.policy, more.policy);
    Some(Comparison::seconds(says, less, more, if ratio > 1.0 { ratio } else { 1.0 / ratio }))
}

/// The pairs of [`crate::ranking`].
fn ranked(experiment: &Experiment) -> Vec<Comparison> {
    let Some(ranking) = &experiment.ranking else { return Vec::new() };
    let name = |one: &Published| format!("{}/{}", one.system, one.discipline.0.name());
    let published = experiment.published.iter().filter(|one| !ranking.except.contains(&name(one)));
    let all: Vec<&Published> = published.collect();
    let two = |one: &Published| place(experiment, one, true) != place(experiment, one, false);
    let first: &[bool] = if all.iter().any(|one| two(one)) { &[true, false] } else { &[false] };
    let mut pairs = Vec::new();
    for &first in first {
        let time = |one: &Published| if first && two(one) { one.old_s } else { one.new_s };
        for (at, one) in all.iter().enumerate() {
            for other in all[at + 1..].iter().filter(|other| other.phase == one.phase) {
                let (Some(a), Some(b)) = (time(one), time(other)) else { continue };
                let (fast, slow) = if a <= b { (one, other) } else { (other, one) };
                let (least, most) = (a.min(b), a.max(b));
                if most < least * (1.0 + ranking.apart) {
                    continue;
                }
                let policy = if first { ", first policies" } else { "" };
                let says = format!("{}: {} before {}{policy}", one.phase, name(fast), name(slow));
                let [less, more] = [fast, slow].map(|one| place(experiment, one, first));
                // Neither has a first policy other than its last.
                if first && !two(one) && !two(other) {
                    continue;
                }
                pairs.push(Comparison::seconds(says, less, more, most / least));
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::cells::cells;
    use crate::plan::{Wanted, runs};
    use crate::run::perform;

    #[test]
    fn cells_are_named_in_full() {
        let dirpref = builtin::experiment("dirpref").unwrap();
        let place = |name: &str| ComparedPhase::parse(&dirpref, name);
        assert_eq!(place("ports/first/normal/rm").unwrap().policy, "orlov");
        assert_eq!(place("ports/first/normal/rm/old-dirpref").unwrap().policy, "old-dirpref");
        for (name, why) in [
            ("ports/first/normal", "has no phase"),
            ("port/first/normal/rm", "unknown workload 'port'"),
            ("ports/third/normal/rm", "unknown system 'third'"),
            ("ports/first/never/rm", "unknown discipline 'never'"),
            ("ports/first/normal/mkdir", "unknown phase 'mkdir'"),
            ("ports/first/normal/rm/random", "unknown policy"),
        ] {
            assert!(place(name).unwrap_err().contains(why), "{name}");
        }
    }

    #[test]
    fn a_claim_holds_within_its_range_or_above_one() {
        let dirpref = builtin::experiment("dirpref").unwrap();
        let mut claim = comparisons(&dirpref).remove(0);
        assert_eq!(claim.says, "ports/first/normal/untar: orlov faster than old-dirpref");
        assert_eq!(claim.published, Some(1.41));
        assert!(claim.holds(1.01) && !claim.holds(1.0) && !claim.holds(f64::NAN));
        claim.range = Some([1.05, 1.12]);
        assert!(claim.holds(1.05) && claim.holds(1.12) && !claim.holds(1.13));
    }

    /// As many pairs as the ranking has.
    #[test]
    fn the_pairs_are_those_of_the_ranking() {
        let tarcp = builtin::experiment("tarcp").unwrap();
        let of = |phase: &str, first: bool| {
            let all = ranked(&tarcp);
            let is = |claim: &&Comparison| {
                claim.says.starts_with(&format!("{phase}: "))
                    && claim.says.ends_with(", first policies") == first
            };
            all.iter().filter(is).count()
        };
        assert_eq!((of("tarcp", false), of("tar", false)), (39, 31));
        // FFS and FAT have one policy: the others' pairs with them count.
        assert!(of("tarcp", true) <= 39 && of("tar", true) <= 31 && of("tar", true) > 0);
    }

    #[test]
    fn runs_bear_the_sentences_of_a_small_experiment() {
        let text = builtin::text("dirpref").unwrap();
        let text = text.replace("directories = 6596", "directories = 660");
        let text = text.replace("files = 13868", "files = 1387");
        let experiment = Experiment::parse(&text, "small").unwrap();
        let claims = comparisons(&experiment);
        let wanted = Wanted { only: vec!["first/async".into()], ..Wanted::default() };
        let ids = runs(&experiment, &wanted).unwrap();
        let runs: Vec<_> =
            ids.iter().map(|id| perform(&experiment, "", id, None).unwrap()).collect();
        let cells = cells(&experiment, &runs);
        let of: Vec<&Comparison> = claims.iter().filter(|one| one.answers("first/async")).collect();
        assert_eq!(of.len(), 2);
        for claim in of {
            let cell = cells.iter().find(|cell| claim.says.starts_with(&cell.name())).unwrap();
            assert_eq!(Some(claim.ratio(&cells)), cell.speedup());
        }
    }
}
