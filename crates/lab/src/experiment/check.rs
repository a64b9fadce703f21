//! Errors of a file that no single value shows.

mod claims;
mod format;
mod snapshots;

use super::place::Fault;
use super::{Cpu, Experiment, Postmark, Published, Ranking, Sweep, System, Workload, WorkloadKind};
use crate::machine;
use crate::plan;
use crate::quantity::{DisciplineName, NAME_MOST, Size};
use crate::tree::TreeSpec;
use seekless_units::{ByteLen, SECTOR};
use std::collections::HashSet;
use std::hash::Hash;

/// Most repetitions of a seed.
const MOST_REPETITIONS: u64 = 1000;
/// Most systems, those of sweeps counted each.
const MOST_SYSTEMS: usize = 10_000;
/// The longest volume, also on drives that have no end: its groups are held in
/// memory while it is made.
const MOST_BYTES: u64 = 64 << 40;
/// No workload has use for more.
const MOST_VOLUMES: u64 = 2;
/// Most processes that copy at the same time.
const MOST_WRITERS: u64 = 64;
/// Longest write in one call.
const MOST_RECORD: u64 = 1 << 20;
/// Most files of a pool, and most directories.
const MOST_POOL: u64 = 10_000_000;
/// The maker's counts are 32-bit numbers with a sign.
const MOST_COUNT: u64 = i32::MAX as u64;

/// A value from 1 to a limit.
fn counted(key: &'static str, value: u64, most: u64) -> Option<Fault> {
    let sound = (1..=most).contains(&value);
    (!sound).then(|| Fault::of(key, format!("{value} is not in the range 1 to {most}")))
}

fn some(key: &'static str, size: Size) -> Option<Fault> {
    (size.0 == ByteLen::ZERO).then(|| Fault::of(key, "must not be zero"))
}

fn power(key: &'static str, size: Size) -> Option<Fault> {
    let sound = size.0.get().is_power_of_two();
    (!sound).then(|| Fault::of(key, format!("{} is not a power of two", size.0)))
}

fn sectors(key: &'static str, size: Size) -> Option<Fault> {
    let sound = size.0.get().is_multiple_of(SECTOR);
    let message = || format!("{} is not a number of whole sectors of {SECTOR} bytes", size.0);
    (!sound).then(|| Fault::of(key, message()))
}

/// A list that is empty, or has something twice.
fn distinct<T: Eq + Hash>(
    key: &'static str,
    list: &[T],
    name: impl Fn(&T) -> String,
) -> Option<Fault> {
    if list.is_empty() {
        return Some(Fault::of(key, "at least one is required"));
    }
    let mut known = HashSet::new();
    let at = list.iter().position(|one| !known.insert(one))?;
    Some(Fault::at(key, at, format!("'{}' is given twice", name(&list[at]))))
}

fn disciplines(list: &[DisciplineName]) -> Option<Fault> {
    let names: Vec<&str> = list.iter().map(|one| one.0.name()).collect();
    distinct("disciplines", &names, ToString::to_string)
}

/// The first fault of a list's tables.
fn each<'a, T>(
    key: &'static str,
    list: &'a [T],
    mut fault: impl FnMut(&'a T) -> Option<Fault>,
) -> Option<Fault> {
    list.iter().enumerate().find_map(|(at, one)| Some(fault(one)?.within_one(key, at)))
}

/// A table whose name another in front of it has.
fn named_twice<'a>(key: &'static str, names: impl Iterator<Item = &'a str>) -> Option<Fault> {
    let mut known = HashSet::new();
    let (at, name) = names.enumerate().find(|(_, name)| !known.insert(*name))?;
    Some(Fault::of("name", format!("'{name}' is given twice")).within_one(key, at))
}

impl Experiment {
    /// The error of a file as it was read, its sweeps not expanded.
    pub(super) fn fault(&self) -> Option<Fault> {
        let policies: Vec<&str> = self.policies.iter().map(|policy| &*policy.0).collect();
        distinct("policies", &policies, ToString::to_string)
            .or_else(|| disciplines(&self.disciplines))
            .or_else(|| distinct("seeds", &self.seeds, u64::to_string))
            .or_else(|| counted("repetitions", self.repetitions, MOST_REPETITIONS))
            .or_else(|| {
                self.systems.is_empty().then(|| Fault::of("system", "at least one is required"))
            })
            .or_else(|| {
                self.workloads.is_empty().then(|| Fault::of("workload", "at least one is required"))
            })
            .or_else(|| named_twice("system", self.systems.iter().map(|system| &*system.name)))
            .or_else(|| named_twice("workload", self.workloads.iter().map(|w| &*w.name)))
            .or_else(|| each("system", &self.systems, System::fault))
            .or_else(|| each("workload", &self.workloads, Workload::fault))
            .or_else(|| self.too_many_systems())
    }

    fn too_many_systems(&self) -> Option<Fault> {
        let mut all = 0usize;
        each("system", &self.systems, |system| {
            let count = system.sweep.as_ref().map_or(1, Sweep::combinations);
            all += count;
            let message = || format!("more than {MOST_SYSTEMS} systems");
            (all > MOST_SYSTEMS).then(|| Fault::of("sweep", message()))
        })
    }

    /// Its error when sweeps are expanded: `swept` are the systems of each table.
    pub(super) fn fault_of_swept(&self, swept: &[Vec<System>]) -> Option<Fault> {
        let mut known = HashSet::new();
        each("system", swept, |systems| {
            systems.iter().find_map(|system| {
                let wrong = match &*system.name {
                    name if name.len() > NAME_MOST => "is too long",
                    name if !known.insert(name) => "is given twice",
                    _ => return system.fault_of_volume(),
                };
                Some(Fault::of("sweep", format!("'{}' {wrong}", system.name)))
            })
        })
    }

    /// The error of the whole, its sweeps expanded.
    pub(super) fn fault_of_whole(&self) -> Option<Fault> {
        let runs = plan::count(self);
        let many = || Fault::of("seeds", format!("{runs} runs, more than {}", plan::MOST_RUNS));
        if runs > plan::MOST_RUNS {
            return Some(many());
        }
        if let Some(fault) = self.fault_of_pairs() {
            return Some(fault);
        }
        let systems: HashSet<&str> = self.systems.iter().map(|system| &*system.name).collect();
        let mut known = HashSet::new();
        each("published", &self.published, |published| {
            let Published { system, workload, phase, .. } = published;
            if !systems.contains(&**system) {
                return Some(Fault::of("system", format!("unknown system '{system}'")));
            }
            let cell = (system, workload, published.discipline.0.name(), phase);
            let again = || Fault::of("phase", "this cell is given twice");
            let figures = || published.fault();
            self.stray(published).or_else(figures).or_else(|| (!known.insert(cell)).then(again))
        })
        .or_else(|| self.fault_of_claims())
    }

    /// Combinations of systems, workloads and policies that are not allowed.
    fn fault_of_pairs(&self) -> Option<Fault> {
        let lists = || each("workload", &self.workloads, |workload| self.fault_of_lists(workload));
        let volumes = || {
            each("workload", &self.workloads, |workload| {
                let two = workload.kind == WorkloadKind::CopyInOrder;
                let wanted = if two { MOST_VOLUMES } else { 1 };
                let mut systems = workload.systems_of(self);
                let system = systems.find(|system| u64::from(system.volumes) < wanted)?;
                let message =
                    format!("needs {wanted} volumes, {} has {}", system.name, system.volumes);
                Some(Fault::of("kind", message))
            })
        };
        let policies = || {
            self.workloads.iter().find_map(|workload| {
                let policies = workload.policies_of(self).iter();
                let pairs = policies.flat_map(|p| workload.systems_of(self).map(move |s| (p, s)));
                let mut misfits = pairs.filter_map(|(policy, system)| {
                    let why = system.format.fault_of_policy(&policy.0)?;
                    let at = self.policies.iter().position(|one| one == policy)?;
                    Some(Fault::at("policies", at, format!("{}: {why}", system.name)))
                });
                misfits.next()
            })
        };
        let ranking = || Some(self.fault_of_ranking()?.within("ranking"));
        let formats = || self.fault_of_formats();
        lists().or_else(policies).or_else(volumes).or_else(formats).or_else(ranking)
    }

    fn fault_of_ranking(&self) -> Option<Fault> {
        let Ranking { apart, except } = self.ranking.as_ref()?;
        if !apart.is_finite() || *apart < 0.0 {
            return Some(Fault::of("apart", "must be a number of at least 0"));
        }
        let known = |name: &String| {
            let is = |p: &Published| format!("{}/{}", p.system, p.discipline.0.name()) == *name;
            self.published.iter().any(is)
        };
        let at = except.iter().position(|name| !known(name))?;
        Some(Fault::at("except", at, format!("nothing is published of '{}'", except[at])))
    }

    /// A workload that needs a feature that the format of one of its systems lacks.
    fn fault_of_formats(&self) -> Option<Fault> {
        each("workload", &self.workloads, |workload| {
            workload.systems_of(self).find_map(|system| {
                let kind = system.format.kind;
                let lacks = || format!("{} is {}", system.name, kind.name());
                if workload.kind == WorkloadKind::MakeNodes && !kind.known().experiment.has_devices
                {
                    let message = format!(
                        "needs device nodes, which {} lacks: {}",
                        kind.known().family,
                        lacks()
                    );
                    return Some(Fault::of("kind", message));
                }
                if let Some(fault) = workload.fault_of_snapshots_on(system, self) {
                    return Some(fault);
                }
                // The maker's own errors are reported elsewhere.
                let has_journal = machine::maker(&system.format).ok()?.has_journal();
                let mut disciplines = workload.disciplines_of(self).iter().map(|one| one.0);
                let misfit = disciplines.find(|d| d.journal_mode().is_some() != has_journal)?;
                let message = if has_journal {
                    format!("'{}' is for volumes without a journal: {}", misfit.name(), lacks())
                } else if kind.known().versions.iter().any(|version| version.has_journal) {
                    let name = &system.name;
                    format!("'{}' needs a journal: {name} has none", misfit.name())
                } else {
                    format!("'{}' needs a journal: {}", misfit.name(), lacks())
                };
                Some(Fault::of("disciplines", message))
            })
        })
    }

    /// Systems and policies of a workload's lists that do not exist.
    fn fault_of_lists(&self, workload: &Workload) -> Option<Fault> {
        let twice = |key, list: Option<Vec<&str>>| distinct(key, &list?, ToString::to_string);
        let names = workload.systems.as_ref().map(|list| list.iter().map(|s| &**s).collect());
        let policies = workload.policies.as_ref().map(|l| l.iter().map(|p| &*p.0).collect());
        if let Some(fault) = twice("systems", names).or_else(|| twice("policies", policies)) {
            return Some(fault);
        }
        let known = |name: &String| self.systems.iter().any(|system| system.name == *name);
        let systems = workload.systems.iter().find_map(|list| {
            let at = list.iter().position(|name| !known(name))?;
            Some(Fault::at("systems", at, format!("unknown system '{}'", list[at])))
        });
        let policies = || {
            workload.policies.iter().find_map(|list| {
                let at = list.iter().position(|policy| !self.policies.contains(policy))?;
                let message = format!("'{}' is not one of the policies", list[at].0);
                Some(Fault::at("policies", at, message))
            })
        };
        systems.or_else(policies)
    }

    /// A published figure of something that is not measured.
    fn stray(&self, published: &Published) -> Option<Fault> {
        let Published { workload: name, discipline, phase, .. } = published;
        let Some(workload) = self.workloads.iter().find(|w| w.name == *name) else {
            return Some(Fault::of("workload", format!("unknown workload '{name}'")));
        };
        let of = workload.disciplines_of(self);
        let phases = workload.phases();
        if !of.contains(discipline) {
            let name = discipline.0.name();
            return Some(Fault::of(
                "discipline",
                format!("'{name}' is not one of the disciplines run"),
            ));
        }
        let known = || format!("unknown phase '{phase}' (available: {})", phases.join(", "));
        (!phases.contains(&&**phase)).then(|| Fault::of("phase", known()))
    }
}

impl Published {
    fn fault(&self) -> Option<Fault> {
        let figures = [("old_s", self.old_s), ("new_s", self.new_s), ("speedup", self.speedup)];
        let wrong = |figure: f64| !figure.is_finite() || figure < 0.0;
        let (key, _) = figures.into_iter().find(|(_, figure)| figure.is_some_and(wrong))?;
        Some(Fault::of(key, "must be a number of at least 0"))
    }
}

impl Workload {
    fn fault(&self) -> Option<Fault> {
        let torture = self.kind == WorkloadKind::Torture;
        let stray = |key| Some(Fault::of(key, "is allowed only for 'torture', which requires it"));
        let of_files = self.kind == WorkloadKind::TreeThenFiles;
        for (key, given) in [("shuffled", self.shuffled), ("in_turn", self.in_turn)] {
            if given && !of_files {
                return Some(Fault::of(key, "is allowed only for 'tree-then-files'"));
            }
        }
        for (key, given) in [("linked_areas", self.linked_areas), ("check", self.check)] {
            if given && !of_files {
                return Some(Fault::of(key, "is allowed only for 'tree-then-files'"));
            }
        }
        if self.by_phase && self.kind != WorkloadKind::Postmark {
            return Some(Fault::of("by_phase", "is allowed only for 'postmark'"));
        }
        let walk = self.kind == WorkloadKind::Walk;
        if self.part.is_some() != walk {
            return Some(Fault::of("part", "is allowed only for 'walk', which requires it"));
        }
        if let Some(fault) = self.part.and_then(|part| counted("part", part.into(), MOST_POOL)) {
            return Some(fault);
        }
        let whole = [WorkloadKind::Andrew, WorkloadKind::Torture, WorkloadKind::Snapshots];
        for (key, given) in [("sync", self.sync), ("cold", self.cold)] {
            if given && whole.contains(&self.kind) {
                let message = "is not allowed for 'andrew', 'torture' and 'snapshots'";
                return Some(Fault::of(key, message));
            }
        }
        if let Some(rounds) = self.remount_after {
            if !self.in_turn {
                return Some(Fault::of("remount_after", "is allowed only with 'in_turn'"));
            }
            if let Some(fault) = counted("remount_after", rounds.into(), MOST_POOL) {
                return Some(fault);
            }
        }
        if self.shuffled && self.in_turn {
            return Some(Fault::of("in_turn", "cannot be combined with 'shuffled'"));
        }
        if self.atime && self.kind != WorkloadKind::CopyInOrder {
            return Some(Fault::of("atime", "is allowed only for 'copy-in-order'"));
        }
        let archive = [("record", self.record.is_some()), ("aged", self.aged.is_some())];
        let archive = archive.into_iter().find(|(_, given)| *given);
        if let Some((key, _)) = archive.filter(|_| self.kind != WorkloadKind::Archive) {
            return Some(Fault::of(key, "is allowed only for 'archive'"));
        }
        let several = [WorkloadKind::Archive, WorkloadKind::Postmark].contains(&self.kind);
        if self.writers.is_some() && !several {
            return Some(Fault::of("writers", "is allowed only for 'archive' and 'postmark'"));
        }
        let postmark = self.kind == WorkloadKind::Postmark;
        if self.pool.is_some() != postmark {
            return Some(Fault::of("pool", "is allowed only for 'postmark', which requires it"));
        }
        if (self.tree == TreeSpec::none()) != postmark {
            return Some(Fault::of("tree", "is required, but by 'postmark', which has none"));
        }
        if self.rounds.is_some() != torture {
            return stray("rounds");
        }
        if self.copied.is_some() != torture {
            return stray("copied");
        }
        let rounds = self.rounds.and_then(|rounds| counted("rounds", rounds.into(), 10_000));
        rounds
            .or_else(|| self.fault_of_snapshots())
            .or_else(|| self.fault_of_limits())
            .or_else(|| self.fault_of_archive())
            .or_else(|| self.fault_of_trees())
    }

    fn fault_of_archive(&self) -> Option<Fault> {
        let writers = || counted("writers", self.writers?.into(), MOST_WRITERS);
        let long = || counted("record", self.record?.0.get(), MOST_RECORD);
        let record = || long().or_else(|| sectors("record", self.record?));
        let aged = || Some(self.aged?.fault()?.within("aged"));
        let pool = || Some(self.pool?.fault()?.within("pool"));
        let parts = || {
            let archive = self.kind == WorkloadKind::Archive;
            let writers = self.writers.filter(|&writers| archive && writers > 1)?;
            let part = self.tree.part(0, writers);
            let message = "is allowed only for 'sources' with a directory for each writer";
            part.is_none().then(|| Fault::of("writers", message))
        };
        writers().or_else(record).or_else(aged).or_else(pool).or_else(parts)
    }

    fn fault_of_limits(&self) -> Option<Fault> {
        let tick = || counted("tickdelay", self.tickdelay?.into(), MOST_COUNT);
        let graph = || counted("max_softdeps", self.max_softdeps? as u64, MOST_COUNT);
        self.disciplines.as_deref().and_then(disciplines).or_else(tick).or_else(graph)
    }

    fn fault_of_trees(&self) -> Option<Fault> {
        if self.kind == WorkloadKind::Postmark {
            return None;
        }
        let of = |(key, message): (_, String)| Fault::of(key, message);
        let copied = || Some(of(self.copied.as_ref()?.fault()?).within("copied"));
        self.tree.fault().map(|fault| of(fault).within("tree")).or_else(copied)
    }
}

impl Postmark {
    fn fault(&self) -> Option<Fault> {
        counted("files", self.files.into(), MOST_POOL)
            .or_else(|| counted("directories", self.directories.into(), MOST_POOL))
            .or_else(|| counted("transactions", self.transactions.into(), MOST_COUNT))
    }
}

impl System {
    fn fault(&self) -> Option<Fault> {
        let sweep = || Some(self.sweep.as_ref()?.fault()?.within("sweep"));
        counted("queue", self.queue.into(), MOST_COUNT)
            .or_else(|| counted("volumes", self.volumes.into(), MOST_VOLUMES))
            .or_else(|| sectors("offset", self.offset?))
            .or_else(|| Some(self.cpu.fault()?.within("cpu")))
            .or_else(|| Some(self.format.fault()?.within("format")))
            .or_else(|| Some(self.cache.fault(&self.format)?.within("cache")))
            .or_else(sweep)
    }

    /// Errors of the maker of file systems and of the drive.
    fn fault_of_volume(&self) -> Option<Fault> {
        let swept = self.swept.iter().any(|(key, _)| key == "size");
        let size = |message| match swept {
            true => Fault::of("size", message).within("sweep"),
            false => Fault::of("size", message).within("format"),
        };
        let drive = || Some(size(machine::drive(self).err()?.to_string()));
        let maker = || Some(Fault::of("format", machine::maker(&self.format).err()?.to_string()));
        drive().or_else(maker)
    }
}

impl Cpu {
    fn fault(&self) -> Option<Fault> {
        some("copy", self.copy)
            .or_else(|| some("unpack", self.unpack))
            .or_else(|| some("compile", self.compile?))
    }
}

impl Sweep {
    /// How many systems it makes of one.
    fn combinations(&self) -> usize {
        let lens = [self.size.len(), self.avgfilesize.len(), self.avgfpdir.len()];
        lens.into_iter().fold(1, |all, len| all * len.max(1))
    }

    fn fault(&self) -> Option<Fault> {
        let list = |key, values: &[u64], most| {
            let wrong = values.iter().position(|value| !(1..=most).contains(value))?;
            let message = format!("{} is not in the range 1 to {most}", values[wrong]);
            Some(Fault::at(key, wrong, message))
        };
        let bytes = |sizes: &[Size]| -> Vec<u64> { sizes.iter().map(|s| s.0.get()).collect() };
        let counts: Vec<u64> = self.avgfpdir.iter().copied().map(u64::from).collect();
        list("size", &bytes(&self.size), MOST_BYTES)
            .or_else(|| list("avgfilesize", &bytes(&self.avgfilesize), MOST_COUNT))
            .or_else(|| list("avgfpdir", &counts, MOST_COUNT))
    }
}
