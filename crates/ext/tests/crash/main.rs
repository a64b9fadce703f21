//! Crash states of ext2 with e2fsck as what recovers them: under every discipline
//! that promises something, `e2fsck -p` goes through every state, what it leaves
//! holds what was durable, and our own check comes to the same verdict.

#![allow(missing_docs)]

mod target;

use seekless_cache::Discipline;
use seekless_crash::campaign::{Campaign, Sequences, Settings, built_in};
use seekless_crash::script::parse;
use seekless_crash::{Extent, Search};
use target::Ext2;

/// States judged, and those that do not hold.
fn judged(
    discipline: Discipline,
    workload: &str,
    sequences: u64,
    sample: u64,
) -> (u64, Vec<String>) {
    let search = Search { extent: Extent::Sample(sample), ..Search::exhaustive(11) };
    let target = Ext2::default();
    // Of random sequences the device has a queue, too: writes complete late.
    let queue = sequences > 0;
    let mut campaign = Campaign::new(&target, Settings { discipline, search, schedules: 2, queue });
    let scripts = built_in(workload, true, Sequences { count: sequences, seed: 11 }).unwrap();
    let (mut states, mut wrong) = (0, Vec::new());
    for script in scripts.unwrap() {
        let result = campaign.unit(&script, &|_| {}).unwrap();
        states += result.coverage.states;
        if result.failing > 0 {
            wrong.push(format!("{discipline}, {}: {:?}", result.workload, result.codes));
        }
    }
    (states, wrong)
}

const ORDERED: [Discipline; 3] = [Discipline::Sync, Discipline::Normal, Discipline::SoftUpdates];

#[test]
fn e2fsck_goes_through_what_crashes_leave() {
    for discipline in ORDERED {
        let (states, wrong) = judged(discipline, "singles", 0, 5);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > 100, "{states} states");
        let (states, wrong) = judged(discipline, "random:10", 12, 8);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > 60, "{states} states");
    }
}

/// What random sequences have found.
const FOUND: [&str; 4] = [
    // The last name goes while the disk has another, which is another file's.
    "mkdir A\nmkdir B\nopen A/foo\nopen B/bar\nbegin\nexchange A/foo B/bar\nunlink A/foo\n",
    // The same, and the file is closed later.
    "mkdir A\nmkdir B\nopen A/foo\nopen B/bar\nbegin\nopen A/foo\nexchange A/foo B/bar\n\
     unlink B/bar\nopen B/bar\n",
    // A new file that has moved, in a directory that is made durable.
    "mkdir A\nmkdir B\nmkdir A/sub\nopen A/foo\nbegin\nopen B/tmp\nopen B/sub\nexchange B/sub B/tmp\n\
     rename B/tmp A/tmp\nfsync A\n",
    // A name in a directory that nothing leads to yet.
    "begin\nmkdir full\nopen full/file\nwrite 0 2500\n",
];

#[test]
fn what_was_found_once_holds() {
    for text in FOUND {
        let script = parse("found", text).unwrap();
        for discipline in ORDERED {
            let search = Search { extent: Extent::Sample(25), ..Search::exhaustive(3) };
            let target = Ext2::default();
            let settings = Settings { discipline, search, schedules: 1, queue: false };
            let result = Campaign::new(&target, settings).unit(&script, &|_| {}).unwrap();
            assert_eq!(result.failing, 0, "{discipline}, {text}: {:?}", result.codes);
        }
    }
}

#[test]
fn without_order_it_does_not() {
    let (_, wrong) = judged(Discipline::Async, "singles", 0, 12);
    assert!(!wrong.is_empty(), "the judge has not seen what it should see");
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ext --test crash -- --ignored --nocapture"]
fn e2fsck_goes_through_very_many() {
    for discipline in ORDERED.into_iter().rev() {
        for (workload, sequences, sample) in
            [("singles", 0, 40), ("random:12", 100, 10), ("pairs", 0, 2)]
        {
            let (states, wrong) = judged(discipline, workload, sequences, sample);
            println!("{discipline}, {workload}: {states} states");
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
    }
}
