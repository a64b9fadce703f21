//! Crash states of ext2, ext3 and ext4 with e2fsck as what recovers them: under every
//! discipline that promises something, `e2fsck -p` goes through every state, what it
//! leaves holds what was durable, and our own check comes to the same verdict.

#![allow(missing_docs)]

mod target;

use crate::slice::some_or_all;
use seekless_cache::{Discipline, JournalMode};
use seekless_crash::campaign::{Campaign, Sequences, Settings, built_in};
use seekless_crash::script::parse;
use seekless_crash::{Extent, Search, Target};
use target::Ext;

/// States judged, and those that do not hold.
fn judged(
    discipline: Discipline,
    workload: &str,
    sequences: u64,
    sample: u64,
) -> (u64, Vec<String>) {
    judged_on(&volume(discipline), discipline, (workload, sequences, sample))
}

fn judged_on(
    target: &Ext,
    discipline: Discipline,
    (workload, sequences, sample): (&str, u64, u64),
) -> (u64, Vec<String>) {
    let search = Search { extent: Extent::Sample(sample), ..Search::exhaustive(11) };
    // Of random sequences the device has a queue, too: writes complete late.
    let queue = sequences > 0;
    let mut campaign = Campaign::new(target, Settings { discipline, search, schedules: 2, queue });
    let scripts = built_in(workload, true, Sequences { count: sequences, seed: 11 }).unwrap();
    let (mut states, mut wrong) = (0, Vec::new());
    // Pairs are very many.
    let every = if workload == "pairs" { 7 } else { 1 };
    for script in scripts.unwrap().into_iter().step_by(every) {
        let result = campaign.unit(&script, &|_| {}).unwrap();
        states += result.coverage.states;
        if result.failing > 0 {
            wrong.push(format!("{discipline}, {}: {:?}", result.workload, result.codes));
        }
    }
    (states, wrong)
}

/// What a discipline is for.
fn volume(discipline: Discipline) -> Ext {
    match discipline {
        Discipline::Journal(_) => Ext::ext3(),
        _ => Ext::ext2(),
    }
}

const ORDERED: [Discipline; 3] = [Discipline::Sync, Discipline::Normal, Discipline::SoftUpdates];

#[test]
fn e2fsck_goes_through_what_crashes_leave() {
    for discipline in ORDERED {
        let (states, wrong) = judged(discipline, "singles", 0, some_or_all(1, 2));
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > some_or_all(20, 40), "{states} states");
        let (states, wrong) = judged(discipline, "random:10", 4, 6);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > 15, "{states} states");
    }
}

/// What a crash leaves in each of `volumes` is whole once its journal has been replayed.
fn what_a_journal_leaves_needs_no_check(volumes: &[(Ext, JournalMode)]) {
    for (target, mode) in volumes.iter().step_by(some_or_all(2, 1)) {
        let discipline = Discipline::Journal(*mode);
        let (states, wrong) = judged_on(target, discipline, ("singles", 0, 1));
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > 20, "{states} states");
        let (states, wrong) = judged_on(target, discipline, ("random:10", 2, 4));
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > 6, "{states} states");
    }
}

#[test]
fn what_a_journal_leaves_where_blocks_are_taken_at_once_needs_no_check() {
    what_a_journal_leaves_needs_no_check(&[
        (Ext::ext3(), JournalMode::Writeback),
        (Ext::ext3(), JournalMode::Data),
        (Ext::ext4(), JournalMode::Ordered),
        (Ext::inline(), JournalMode::Ordered),
        (Ext::inline(), JournalMode::Writeback),
        (Ext::orphan_file(), JournalMode::Ordered),
    ]);
}

#[test]
fn what_a_journal_leaves_where_blocks_are_taken_late_needs_no_check() {
    what_a_journal_leaves_needs_no_check(&[
        (Ext::ext4().delayed(), JournalMode::Ordered),
        (Ext::ext4().delayed(), JournalMode::Writeback),
        (Ext::inline().delayed(), JournalMode::Ordered),
    ]);
}

/// Files that go while somebody has them open, on every volume and under each of its
/// disciplines: on the list of orphans, in their file, or nowhere.
#[test]
fn files_that_are_open_go_with_the_crash() {
    let journals = JournalMode::ALL.map(Discipline::Journal);
    let of = |target: fn() -> Ext, all: &[Discipline]| -> Vec<(Ext, Discipline)> {
        all.iter().map(|&discipline| (target(), discipline)).collect()
    };
    let all = [
        of(Ext::ext2, &ORDERED),
        of(Ext::extents, &WITHOUT_GRAPH),
        of(Ext::ext3, &journals),
        of(Ext::ext4, &journals),
        of(Ext::inline, &journals[1..2]),
        of(Ext::orphan_file, &journals),
    ];
    for (target, discipline) in all.into_iter().flatten().step_by(some_or_all(3, 1)) {
        for workload in ["unlink-open", "rename-over-open"] {
            let (states, wrong) = judged_on(&target, discipline, (workload, 0, 3));
            assert!(wrong.is_empty(), "{}: {wrong:#?}", target.name());
            assert!(states > 2, "{states} states");
        }
    }
}

/// Disciplines that keep trees of extents in order.
const WITHOUT_GRAPH: [Discipline; 2] = [Discipline::Sync, Discipline::Normal];

#[test]
fn e2fsck_goes_through_what_crashes_leave_of_extents() {
    for discipline in WITHOUT_GRAPH {
        let (states, wrong) = judged_on(&Ext::extents(), discipline, ("singles", 0, 2));
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > 40, "{states} states");
        let (states, wrong) = judged_on(&Ext::extents(), discipline, ("random:10", 4, 6));
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(states > 15, "{states} states");
    }
}

/// Pieces of a file, each with an extent of its own, and then changes between, behind
/// and of them: blocks of the tree are made, split, cut and given back.
fn scattered(pieces: u32, body: &str) -> String {
    let mut text = String::from("open A\n");
    for n in 0..pieces {
        text += &format!("write {} 1024\n", n * 4096);
    }
    format!("{text}sync\nbegin\nopen A\n{body}")
}

/// Changes of such a file.
const CHANGES: [&str; 6] = [
    // What is joined again.
    "write 1024 3072\nwrite 5120 3072\nfsync A\nwrite 9216 3072\nfsync A\n",
    // Between others, in front of all others, and behind.
    "write 6144 1024\nwrite 10240 2048\nfsync A\nwrite 800768 1024\nwrite 2048 100\nfsync A\n",
    // Never written, written in the middle, and at both ends.
    "fallocate 409600 20480\nwrite 415744 1024\nfsync A\nwrite 409600 100\nwrite 429056 1024\n\
     fsync A\nsync\n",
    // Shorter, within an extent and at the end of a leaf, and longer again.
    "truncate 204900\nfsync A\nwrite 300000 3000\ntruncate 16384\nfsync A\ntruncate 0\nsync\n",
    // Far behind, and the end between.
    "write 0 1024\nfsync A\nwrite 2000000 1\nwrite 3000000 1\ntruncate 2500000\n\
     write 2500000 9\nsync\n",
    // All gone, and the space used by another.
    "unlink A\nopen B\nwrite 0 40000\nfsync B\n",
];

fn trees(pieces: &[u32], changes: &[&str], sample: u64, schedules: u32) {
    let target = Ext::extents();
    for &pieces in pieces {
        for change in changes {
            let script = parse("scattered", &scattered(pieces, change)).unwrap();
            for discipline in WITHOUT_GRAPH {
                let search = Search { extent: Extent::Sample(sample), ..Search::exhaustive(3) };
                let settings = Settings { discipline, search, schedules, queue: false };
                let result = Campaign::new(&target, settings).unit(&script, &|_| {}).unwrap();
                let codes = &result.codes;
                assert_eq!(result.failing, 0, "{discipline}, {pieces}: {change}{codes:?}");
            }
        }
    }
}

#[test]
fn trees_are_never_torn() {
    trees(some_or_all(&[3, 84], &[3, 50, 84, 400]), &CHANGES, 3, 1);
    // All in one sector.
    trees(&[5], &CHANGES[..1], 40, 4);
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ext crash -- --ignored"]
fn trees_of_all_kinds_are_never_torn() {
    trees(&[1, 3, 4, 5, 30, 41, 50, 83, 84, 85, 100, 200, 400], &CHANGES, 40, 4);
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
            let search = Search { extent: Extent::Sample(12), ..Search::exhaustive(3) };
            let target = volume(discipline);
            let settings = Settings { discipline, search, schedules: 1, queue: false };
            let result = Campaign::new(&target, settings).unit(&script, &|_| {}).unwrap();
            assert_eq!(result.failing, 0, "{discipline}, {text}: {:?}", result.codes);
        }
    }
}

/// What was durable is not lost to what the disk held before in blocks that a file comes
/// to have there: of which a write takes only a part, behind a `fallocate` or in a hole.
#[test]
fn what_was_durable_stays_where_blocks_are_new() {
    for (text, target) in [
        ("open A\nbegin\nfallocate A 60000 700\nsync\nappend A 6000\npass 7\n", Ext::ext4()),
        ("open A\ntruncate 9000\nbegin\nwrite A 3000 10\npass 7\n", Ext::ext4()),
        ("open A\ntruncate 90000\nbegin\nwrite A 3000 10\nwrite A 83000 10\npass 7\n", Ext::ext3()),
    ] {
        let script = parse("zeros", text).unwrap();
        for mode in JournalMode::ALL {
            let discipline = Discipline::Journal(mode);
            let search = Search { extent: Extent::Sample(10), ..Search::exhaustive(3) };
            let settings = Settings { discipline, search, schedules: 2, queue: true };
            let result = Campaign::new(&target, settings).unit(&script, &|_| {}).unwrap();
            assert_eq!(result.failing, 0, "{discipline}, {text}: {:?}", result.codes);
        }
    }
}

/// A sequence in which contents move out of an inode.
#[test]
fn what_moves_out_of_an_inode_stays() {
    let discipline = Discipline::Journal(JournalMode::Writeback);
    let (states, wrong) = judged_on(&Ext::inline(), discipline, ("random:12#60", 100, 10));
    assert_eq!((states, wrong), (10, Vec::<String>::new()));
}

#[test]
fn without_order_it_does_not() {
    let (_, wrong) = judged(Discipline::Async, "singles", 0, some_or_all(2, 6));
    assert!(!wrong.is_empty(), "the judge has not seen what it should see");
}

/// Of each volume under each discipline 2,000 states and more, over all workloads: single
/// operations, random sequences on a device with a queue, and pairs.
mod many {
    use super::*;

    const ALL: [(&str, u64, u64); 3] = [("singles", 0, 25), ("random:12", 100, 9), ("pairs", 0, 1)];

    fn judge(target: &Ext, discipline: Discipline) {
        let (mut all, mut found) = (0, Vec::new());
        for of in ALL {
            let (states, wrong) = judged_on(target, discipline, of);
            all += states;
            found.extend(wrong);
        }
        println!("{}, {discipline}: {all} states", target.name());
        assert!(found.is_empty(), "{found:#?}");
        assert!(all >= 2000, "{}, {discipline}: {all} states", target.name());
    }

    macro_rules! many {
        ($($name:ident: $target:expr, $discipline:expr;)*) => { $(
            #[test]
            #[ignore = "minutes: TMPDIR=/dev/shm cargo test -p seekless-ext crash::many -- --ignored --nocapture"]
            fn $name() {
                judge(&$target, $discipline);
            }
        )* };
    }

    const WRITEBACK: Discipline = Discipline::Journal(JournalMode::Writeback);
    const IN_ORDER: Discipline = Discipline::Journal(JournalMode::Ordered);
    const DATA: Discipline = Discipline::Journal(JournalMode::Data);

    many! {
        ext2_softdep: Ext::ext2(), Discipline::SoftUpdates;
        ext2_sync: Ext::ext2(), Discipline::Sync;
        ext2_normal: Ext::ext2(), Discipline::Normal;
        ext3_writeback: Ext::ext3(), WRITEBACK;
        ext3_ordered: Ext::ext3(), IN_ORDER;
        ext3_data: Ext::ext3(), DATA;
        ext4_writeback: Ext::ext4(), WRITEBACK;
        ext4_ordered: Ext::ext4(), IN_ORDER;
        ext4_data: Ext::ext4(), DATA;
        ext4_delalloc_writeback: Ext::ext4().delayed(), WRITEBACK;
        ext4_delalloc_ordered: Ext::ext4().delayed(), IN_ORDER;
        orphan_file_writeback: Ext::orphan_file(), WRITEBACK;
        orphan_file_ordered: Ext::orphan_file(), IN_ORDER;
        orphan_file_data: Ext::orphan_file(), DATA;
        inline_writeback: Ext::inline(), WRITEBACK;
        inline_ordered: Ext::inline(), IN_ORDER;
        inline_data: Ext::inline(), DATA;
    }
}
