//! The live engine against a plain model of a file system in memory, for every
//! discipline and both formats; after unmounting, the image is read anew and
//! everything that is counted in it is counted again.

#![allow(missing_docs)]

mod clusters;
mod crash;
pub(crate) mod failing;
mod fsync;
mod held;
mod memory;
mod quota;
pub(crate) mod recount;
mod recover;
mod refusals;
mod requests;
mod reserve;
pub(crate) mod shapes;

use crate::many;
use crate::property::for_all;
use crate::replay;
use crate::rules::freebsd;
use crate::slice::some_or_all;
use crash::{Fragile, Verdict};
use proptest::prelude::{Just, any};
use recount::recount;
use replay::op::{Name, New, Op};
use replay::ops;
use seekless_cache::{Config, Discipline};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_ffs::{FfsLive, Version};
use seekless_fs::operate::Operate;
use shapes::{Shape, image, options, replay, through};
use std::cell::Cell;
use std::sync::Arc;

const SHAPES: [Shape; 4] = [
    Shape { version: Version::Ufs1, block: 4096, fragment: 512, mebibytes: 24, big_endian: false },
    Shape { version: Version::Ufs2, block: 4096, fragment: 1024, mebibytes: 24, big_endian: false },
    Shape { version: Version::Ufs2, block: 16384, fragment: 2048, mebibytes: 32, big_endian: true },
    Shape { version: Version::Ufs1, block: 8192, fragment: 8192, mebibytes: 24, big_endian: true },
];

/// Does so many operations on a new volume of that kind, and judges it. Returns how often it was
/// full.
fn replayed(
    kind: usize,
    (shape, discipline): (&Shape, Discipline),
    count: usize,
    judge: impl Fn(Arc<MemoryDevice>),
) -> u32 {
    let full = Cell::new(0);
    let input = (Just((shape, discipline)), ops(count, false));
    for_all((1, kind), input, |((shape, discipline), ops)| {
        let mut replay = replay(shape, discipline);
        replay.run(&ops);
        full.update(|full| full.max(replay.full));
        judge(replay.finish());
    });
    full.get()
}

/// Check hashes and fields that we keep nothing in are as FreeBSD's.
fn as_freebsd_has_it(device: &MemoryDevice) {
    let verdict = freebsd::judge(device, false);
    assert!(verdict.wrong.is_empty(), "{:#?}", verdict.wrong);
}

#[test]
fn random_operations_do_what_the_model_does() {
    for discipline in Discipline::ALL {
        for (n, shape) in SHAPES.iter().enumerate() {
            replayed(n, (shape, discipline), 3000, |device| {
                recount(&device);
                as_freebsd_has_it(&device);
                let report = seekless_ffs::check(device).unwrap();
                assert!(report.is_clean(), "{:#?}", report.findings);
            });
        }
    }
}

/// A directory that the disk has nothing of goes while the old name of a file that was moved through
/// it waits for the name there: its block may not be another's until that name is written.
#[test]
fn the_block_of_a_removed_directory_waits_for_its_names() {
    let make = |dir, name, new| Op::Make { dir, name, new };
    let there = |file| Name::There(file, 0);
    let ops = [
        make(0, 0, New::Directory),
        make(4766, 1, New::Directory),
        make(0, 2, New::Directory),
        Op::Link { file: 0, dir: 0, name: 0 },
        make(19337, 26, New::Directory),
        make(23586, 10, New::Directory),
        make(36017, 3, New::Regular),
        Op::Rename { from: 11555, name: there(0), to: 10919, new: Name::New(0), exchange: false },
        Op::Unlink { dir: 3095, name: there(0), held: false },
        make(28370, 0, New::Directory),
        Op::Rmdir { dir: 21953, name: there(16218) },
        make(34918, 0, New::Directory),
    ];
    for shape in &SHAPES {
        let mut replay = replay(shape, Discipline::SoftUpdates);
        replay.run(&ops);
        recount(&replay.finish());
    }
}

/// A superblock's room is 8192 bytes, also where a fragment is larger.
#[test]
fn volumes_of_large_fragments_can_be_changed() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let sizes = [(65536, 65536), (65536, 16384), (32768, 16384), (16384, 16384)];
        for (n, (block, fragment)) in sizes.into_iter().enumerate() {
            let shape = Shape { version, block, fragment, mebibytes: 64, big_endian: false };
            let judge = |device: Arc<MemoryDevice>| as_freebsd_has_it(&device);
            replayed(n, (&shape, Discipline::SoftUpdates), 300, judge);
        }
    }
}

#[test]
fn a_full_volume_stays_whole() {
    for discipline in [Discipline::Async, Discipline::SoftUpdates] {
        for version in [Version::Ufs1, Version::Ufs2] {
            let shape =
                Shape { version, block: 4096, fragment: 512, mebibytes: 2, big_endian: false };
            let full = replayed(7, (&shape, discipline), 4000, |device| recount(&device));
            assert!(full > 20, "the volume was never full");
        }
    }
}

#[test]
fn the_last_of_many_names_waits_for_no_more_than_the_first() {
    for shape in &SHAPES[1..3] {
        let device = image(shape);
        let config = Config::new(Discipline::SoftUpdates);
        let clock = Arc::new(VirtualClock::new());
        let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
        many::names_wait_for_no_more(&mut live, |live| live.counters().orders);
        live.unmount().unwrap();
        recount(&device);
    }
}

/// Checks the states that crashes leave under a discipline: of each shape, `cases` lists of `count`
/// operations. Returns the number of states.
fn crashes(
    discipline: Discipline,
    (cases, count): (u32, usize),
    every: u32,
    judge: impl Fn(&Verdict),
) -> u32 {
    let states = Cell::new(0);
    for (n, shape) in SHAPES.iter().enumerate() {
        let input = (Just((discipline, shape)), any::<u64>(), ops(count, false));
        for_all((cases, 100 + n), input, |((discipline, shape), seed, ops)| {
            let device = image(shape);
            let fragile = Arc::new(Fragile::new(device.clone(), seed, every));
            through(device, fragile.clone(), shape, discipline).run(&ops);
            let verdict = fragile.verdict();
            println!("{discipline}: {} states, {:?}", verdict.states, verdict.found);
            states.update(|states| states + verdict.states);
            judge(&verdict);
        });
    }
    states.get()
}

fn nothing_unexpected(Verdict { unexpected, .. }: &Verdict) {
    assert!(unexpected.is_empty(), "{}", unexpected[..unexpected.len().min(20)].join("\n"));
}

#[test]
fn soft_updates_survive_every_crash() {
    let states =
        crashes(Discipline::SoftUpdates, (1, some_or_all(1500, 3000)), 3, nothing_unexpected);
    assert!(states > some_or_all(140, 300), "{states} states were looked at");
}

#[test]
fn without_order_some_crashes_do_damage() {
    let unexpected = Cell::new(0);
    crashes(Discipline::Async, (1, 1500), 4, |verdict| {
        unexpected.update(|all| all + verdict.unexpected.len());
    });
    assert!(unexpected.get() > 0, "the check has not seen what it should see");
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ffs live -- --ignored"]
fn soft_updates_survive_very_many_crashes() {
    let states = crashes(Discipline::SoftUpdates, (50, 4000), 1, nothing_unexpected);
    println!("{states} states");
}

#[test]
fn a_tree_removed_from_below_leaves_nothing() {
    for discipline in Discipline::ALL {
        for shape in &SHAPES {
            for seconds in [0, 2, 40] {
                let mut replay = replay(shape, discipline);
                replay.nest_and_remove(12, seconds);
                recount(&replay.finish());
            }
        }
    }
}
