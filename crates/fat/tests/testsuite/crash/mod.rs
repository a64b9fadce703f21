//! Crash states of FAT with fsck.fat as what recovers them: under `sync` and soft updates
//! `fsck.fat -a` loses nothing that was durable and shows nobody else's bytes, and what
//! it leaves our own check finds sound.

#![allow(missing_docs)]

mod kill;
mod target;

use crate::skip;
use crate::slice::some_or_all;
use seekless_cache::Discipline;
use seekless_crash::campaign::{Campaign, Sequences, Settings, built_in, lines};
use seekless_crash::script::parse;
use seekless_crash::{Extent, Search, Target};
use seekless_fat::FatWidth;
use target::{Fat, Own};

const WIDTHS: [FatWidth; 3] = [FatWidth::Fat12, FatWidth::Fat16, FatWidth::Fat32];
const ORDERED: [Discipline; 2] = [Discipline::Sync, Discipline::SoftUpdates];

/// States judged, and what of them does not hold, by workload.
fn judged(
    width: FatWidth,
    discipline: Discipline,
    workload: (&str, u64, u64),
) -> (u64, Vec<String>) {
    judged_by(&Fat(width), discipline, workload)
}

fn judged_by(
    target: &dyn Target,
    discipline: Discipline,
    (workload, sequences, sample): (&str, u64, u64),
) -> (u64, Vec<String>) {
    let search = Search { extent: Extent::Sample(sample), ..Search::exhaustive(11) };
    // Of random sequences the device has a queue, too: writes complete late.
    let queue = sequences > 0;
    let mut campaign = Campaign::new(target, Settings { discipline, search, schedules: 2, queue });
    let scripts = built_in(workload, target.has(), Sequences { count: sequences, seed: 11 });
    let (mut states, mut wrong) = (0, Vec::new());
    for script in scripts.unwrap().unwrap() {
        let result = campaign.unit(&script, &|_| {}).unwrap();
        states += result.coverage.states;
        if result.failing > 0 {
            let what = format!("{discipline} on {}: {}", target.name(), result.workload);
            wrong.push(format!("{what}: {:?}", result.codes));
        }
    }
    (states, wrong)
}

fn is_ready() -> bool {
    if !target::has_judge() {
        skip::skip("fsck.fat: not found");
    }
    target::has_judge()
}

#[test]
fn fsck_goes_through_what_crashes_leave() {
    if !is_ready() {
        return;
    }
    for width in WIDTHS {
        for discipline in ORDERED {
            let (states, wrong) = judged(width, discipline, ("singles", 0, 1));
            assert!(wrong.is_empty(), "{wrong:#?}");
            assert!(states > 20, "{states} states");
            let (states, wrong) = judged(width, discipline, ("random:10", some_or_all(2, 4), 3));
            assert!(wrong.is_empty(), "{wrong:#?}");
            assert!(states > some_or_all(4, 8), "{states} states");
        }
    }
}

/// The same with our own check, as `check -p` and `check -y` recover.
#[test]
fn our_check_goes_through_what_crashes_leave() {
    for width in WIDTHS {
        for discipline in ORDERED {
            for (workload, sequences, sample) in [
                ("singles", 0, some_or_all(4, 10)),
                ("random:10", some_or_all(4, 10), 10),
                ("moves:10", some_or_all(8, 20), 10),
            ] {
                let target = Own(Fat(width));
                let (states, wrong) = judged_by(&target, discipline, (workload, sequences, sample));
                assert!(wrong.is_empty(), "{wrong:#?}");
                assert!(
                    states >= sample * sequences.max(some_or_all(4, 10)),
                    "{workload}: {states} states"
                );
            }
        }
    }
}

/// Sequences with which a durable file once had none of its names, recovered as the program
/// does it.
#[test]
fn durable_files_keep_a_name() {
    let start = "mkdir p\nbegin\nmkdir p/d\nopen p/d/b\nclose\nunlink p/d/b\n";
    let empty = format!("{start}open p/a\nfsync p/a\nclose\nrename p/a p/d/b\nfsync p/d\n");
    // What two empty files are taken for nobody can tell.
    let told_apart = empty.replace("open p/a\n", "open p/a\nwrite 0 900\n");
    for (name, text) in [("gone-before", &empty), ("gone-before-full", &told_apart)] {
        for width in WIDTHS {
            holds_in_all_states(&Own(Fat(width)), name, text, some_or_all(3, 8));
        }
    }
}

/// A directory that took the place of an empty one had no name for a while, and was freed with
/// all that was below it.
#[test]
fn directories_keep_a_name() {
    let over = "mkdir A\nmkdir A/sub\nmkdir d\nopen d/f\nwrite 0 5000\nclose\nbegin\n\
                rename d A/sub\n";
    let into = "mkdir A\nmkdir B\nmkdir A/sub\nopen B/bar\nwrite 0 700\nclose\nbegin\nmkdir bar\n\
                rename B/bar bar/foo\nrename bar A/sub\n";
    for width in WIDTHS {
        holds_in_all_states(&Own(Fat(width)), "over", over, 3);
        holds_in_all_states(&Own(Fat(width)), "into", into, 3);
        if is_ready() {
            holds_in_all_states(&Fat(width), "over", over, 3);
        }
    }
}

/// All states that a crash can leave are recovered to one that the operations allow.
fn holds_in_all_states(target: &dyn Target, name: &str, text: &str, schedules: u32) {
    for discipline in ORDERED {
        let settings =
            Settings { discipline, search: Search::exhaustive(1), schedules, queue: false };
        let mut campaign = Campaign::new(target, settings);
        let script = parse(name, text).unwrap();
        let result = campaign.unit(&script, &|_| {}).unwrap();
        let small = result.failed_schedule.map(|schedule| {
            let small = campaign.reproduce(&script, schedule).unwrap().unwrap();
            let (writes, wrong) = (small.writes.join("\n"), lines(&small.violations));
            format!("{}\n{writes}\n{}", small.script, wrong.join("\n"))
        });
        let (failing, states) = (result.failing, result.coverage.states);
        let what = format!("{name}, {discipline} on {}: {failing} of {states}", target.name());
        assert_eq!(failing, 0, "{what}\n{}", small.unwrap_or_default());
        assert!(states > 25, "{what} states");
    }
}

/// Where no order is kept, or the FATs are written late, fsck.fat sees it.
#[test]
fn fsck_notices_what_is_not_kept_in_order() {
    if !is_ready() {
        return;
    }
    for width in WIDTHS {
        let (_, wrong) = judged(width, Discipline::Async, ("create", 0, some_or_all(20, 40)));
        assert!(wrong.iter().any(|what| what.contains("stale-data")), "{wrong:#?}");
        // A name is there at once, and where it leads is not in the FATs yet.
        let (_, wrong) = judged(width, Discipline::Normal, ("fill", 0, some_or_all(20, 40)));
        assert!(!wrong.is_empty(), "normal loses nothing");
    }
}

/// Some ten thousand states.
#[test]
#[ignore = "takes minutes"]
fn fsck_goes_through_many_states() {
    for width in WIDTHS {
        for discipline in ORDERED {
            let (states, wrong) = judged(width, discipline, ("singles", 0, 60));
            assert!(wrong.is_empty(), "{wrong:#?}");
            let (more, wrong) = judged(width, discipline, ("random:12", 60, 20));
            assert!(wrong.is_empty(), "{wrong:#?}");
            println!("{discipline} {width:?}: {} states", states + more);
        }
    }
}
