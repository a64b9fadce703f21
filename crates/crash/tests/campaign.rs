//! What the update disciplines promise, tried on UFS.

#[path = "../../cli/src/cmd/crash/ufs.rs"]
mod ufs;

use seekless_cache::Discipline;
use seekless_crash::campaign::{built_in, lines};
use seekless_crash::{Campaign, Extent, Search, Settings, Target};
use seekless_ffs::Version;
use ufs::Ufs;

const FORMATS: [Ufs; 2] = [Ufs(Version::Ufs1), Ufs(Version::Ufs2)];

/// Looks at workloads; what does not hold, for people, and how many states.
fn look(target: &Ufs, settings: Settings, workload: &str, every: usize) -> (Vec<String>, u64) {
    let scripts = built_in(workload, target.has_xattrs()).unwrap().expect("known");
    let mut campaign = Campaign::new(target, settings);
    let (mut wrong, mut states) = (Vec::new(), 0);
    for script in scripts.iter().step_by(every) {
        let result = campaign.unit(script, &|_| {}).unwrap();
        states += result.coverage.states;
        if let Some(schedule) = result.failed_schedule {
            let name = format!(
                "{} on {} with {}: {} of {} states, {:?}",
                script.name,
                target.name(),
                settings.discipline,
                result.failing,
                result.coverage.states,
                result.codes,
            );
            if wrong.is_empty() {
                let small = campaign.reproduce(script, schedule).unwrap().expect("it failed");
                wrong.push(format!(
                    "{}\ncrashed {}\n{}\n{}",
                    small.script,
                    small.crashed_in.unwrap_or_default(),
                    small.writes.join("\n"),
                    lines(&small.violations).join("\n")
                ));
            }
            wrong.push(name);
        }
    }
    (wrong, states)
}

fn settings(discipline: Discipline, extent: Extent, schedules: u32) -> Settings {
    Settings { discipline, search: Search { extent, ..Search::exhaustive(1) }, schedules }
}

#[test]
fn single_operations_survive_every_crash() {
    let only = std::env::var("D").ok();
    for discipline in [Discipline::SoftUpdates, Discipline::Sync, Discipline::Normal] {
        if only.as_deref().is_some_and(|only| only != discipline.name()) {
            continue;
        }
        for target in &FORMATS {
            let settings = settings(discipline, Extent::Exhaustive, 3);
            let (wrong, states) = look(target, settings, "singles", 1);
            println!("{} {discipline}: {states}", target.name());
            println!("{}", wrong.join("\n"));
        }
    }
}

#[test]
fn dbg_pairs() {
    let only = std::env::var("D").unwrap_or_default();
    let every: usize = std::env::var("EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    for discipline in Discipline::ALL.into_iter().filter(|d| d.name() == only) {
        for target in &FORMATS {
            let settings = settings(discipline, Extent::Sample(200), 3);
            let (wrong, states) = look(target, settings, "pairs", every);
            println!("{} {discipline}: {states}", target.name());
            println!("{}", wrong.join("\n"));
        }
    }
}

#[test]
fn dbg_mutants() {
    use seekless_crash::mutation::*;
    let Ok(count) = std::env::var("MUTANTS") else { return };
    for target in &FORMATS {
        let scripts = built_in("all", target.has_xattrs()).unwrap().unwrap();
        let mut mutation = Mutation::new(target, scripts, 1).unwrap();
        let mut n = 0;
        let mut fates = std::collections::BTreeMap::<String, u32>::new();
        while n < count.parse::<u32>().unwrap() {
            let mutant = mutation.next().unwrap().unwrap();
            if mutant.fate != Fate::Equivalent {
                n += 1;
            }
            if mutant.fate == Fate::Missed {
                println!("missed {mutant:?}");
            }
            let key = match &mutant.fate { Fate::Caught(code) => code.clone(), other => format!("{other:?}") };
            *fates.entry(key).or_default() += 1;
        }
        println!("{} {fates:?}", target.name());
    }
}
