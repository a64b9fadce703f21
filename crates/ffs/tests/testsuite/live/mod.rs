//! The live engine against a plain model of a file system in memory, for every
//! discipline and both formats; after unmounting, the image is read anew and
//! everything that is counted in it is counted again.

#![allow(missing_docs)]

mod clusters;
mod crash;
mod failing;
mod fsync;
mod held;
mod memory;
mod recount;
mod recover;
mod refusals;
mod requests;
mod reserve;
pub(crate) mod shapes;

use crate::many;
use crate::replay;
use crate::rules::freebsd;
use crash::Fragile;
use recount::recount;
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ffs::{FfsLive, Version};
use seekless_fs::operate::Operate;
use shapes::{Shape, image, options, replay, through};
use std::sync::Arc;

const SHAPES: [Shape; 4] = [
    Shape { version: Version::Ufs1, block: 4096, fragment: 512, mebibytes: 24, big_endian: false },
    Shape { version: Version::Ufs2, block: 4096, fragment: 1024, mebibytes: 24, big_endian: false },
    Shape { version: Version::Ufs2, block: 16384, fragment: 2048, mebibytes: 32, big_endian: true },
    Shape { version: Version::Ufs1, block: 8192, fragment: 8192, mebibytes: 24, big_endian: true },
];

#[test]
fn random_operations_do_what_the_model_does() {
    for discipline in Discipline::ALL {
        for (n, shape) in SHAPES.iter().enumerate() {
            let seed = n as u64 + 1;
            let mut replay = replay(shape, discipline, seed);
            replay.run(3000);
            let device = replay.finish();
            recount(&device);
            // Check hashes and fields that we keep nothing in are as FreeBSD's.
            let verdict = freebsd::judge(device.as_ref(), false);
            assert!(verdict.wrong.is_empty(), "{discipline} {shape:?}: {:#?}", verdict.wrong);
            let report = seekless_ffs::check(device).unwrap();
            assert!(report.is_clean(), "{:#?}", report.findings);
        }
    }
}

/// A superblock's room is 8192 bytes, also where a fragment is larger.
#[test]
fn volumes_of_large_fragments_can_be_changed() {
    for version in [Version::Ufs1, Version::Ufs2] {
        for (block, fragment) in [(65536, 65536), (65536, 16384), (32768, 16384), (16384, 16384)] {
            let shape = Shape { version, block, fragment, mebibytes: 64, big_endian: false };
            let mut replay = replay(&shape, Discipline::SoftUpdates, 5);
            replay.run(300);
            let device = replay.finish();
            let verdict = freebsd::judge(device.as_ref(), false);
            assert!(verdict.wrong.is_empty(), "{shape:?}: {:#?}", verdict.wrong);
        }
    }
}

#[test]
fn a_full_volume_stays_whole() {
    for discipline in [Discipline::Async, Discipline::SoftUpdates] {
        for version in [Version::Ufs1, Version::Ufs2] {
            let shape =
                Shape { version, block: 4096, fragment: 512, mebibytes: 2, big_endian: false };
            let mut replay = replay(&shape, discipline, 7);
            replay.run(4000);
            assert!(replay.full > 20, "the volume was never full");
            recount(&replay.finish());
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

/// What crashes leave under a discipline, over all shapes.
fn crashes(discipline: Discipline, seed: u64, steps: u32, every: u32) -> (u32, Vec<String>) {
    let (mut states, mut unexpected) = (0, Vec::new());
    for (n, shape) in SHAPES.iter().enumerate() {
        let seed = seed + n as u64;
        let device = image(shape);
        let fragile = Arc::new(Fragile::new(device.clone(), seed, every));
        let mut replay = through(device, fragile.clone(), shape, discipline, seed);
        replay.run(steps);
        drop(replay);
        let verdict = fragile.verdict();
        println!("{discipline}: {} states, {:?}", verdict.states, verdict.found);
        states += verdict.states;
        unexpected.extend(verdict.unexpected);
    }
    (states, unexpected)
}

#[test]
fn soft_updates_survive_every_crash() {
    let (states, unexpected) = crashes(Discipline::SoftUpdates, 100, 3000, 3);
    assert!(states > 300, "{states} states were looked at");
    assert!(unexpected.is_empty(), "{}", unexpected[..unexpected.len().min(20)].join("\n"));
}

#[test]
fn without_order_some_crashes_do_damage() {
    let (_, unexpected) = crashes(Discipline::Async, 100, 1500, 4);
    assert!(!unexpected.is_empty(), "the check has not seen what it should see");
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ffs live -- --ignored"]
fn soft_updates_survive_very_many_crashes() {
    let mut states = 0;
    for seed in 0..50 {
        let (seen, unexpected) = crashes(Discipline::SoftUpdates, 1000 + 10 * seed, 4000, 1);
        states += seen;
        assert!(
            unexpected.is_empty(),
            "seed {seed}: {}",
            unexpected[..unexpected.len().min(20)].join("\n")
        );
    }
    println!("{states} states");
}

#[test]
fn a_tree_removed_from_below_leaves_nothing() {
    for discipline in Discipline::ALL {
        for shape in &SHAPES {
            for seconds in [0, 2, 40] {
                let mut replay = replay(shape, discipline, 3);
                replay.nest_and_remove(12, seconds);
                recount(&replay.finish());
            }
        }
    }
}
