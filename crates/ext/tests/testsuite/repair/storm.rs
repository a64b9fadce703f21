//! Damage anywhere: a repair ends, a second one finds nothing, and neither does
//! e2fsck; or it is told what was left, and why.

use crate::damage::images;
use crate::holes;
use crate::repair::judge::{Random, Scratch, bytes_of, e2fsck, findings, is_there};
use crate::slice::some_or_all;
use seekless_device::MemoryDevice;
use seekless_ext::{preen, repair};
use seekless_fs::FsError;
use seekless_fs::check::Outcome;
use std::fmt::Write;
use std::fs;
use std::sync::Arc;

/// An image with some bytes changed where there is something, and a few sectors put
/// in place of others.
fn damaged(base: &[u8], places: &[usize], random: &mut Random) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for _ in 0..=random.below(4) {
        let at = places[random.below(places.len())];
        match random.below(8) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] = 0xFF,
            2 => bytes[at] = 0,
            3 => {
                let sector = at / 512 * 512;
                bytes[sector..sector + 512].fill(0);
            }
            4 => {
                let from = places[random.below(places.len())] / 512 * 512;
                let to = at / 512 * 512;
                bytes.copy_within(from..from + 512, to);
            }
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
    bytes
}

/// What came of some cases.
#[derive(Default, Debug)]
struct Tally {
    repaired: u32,
    clean: u32,
    left: u32,
    refused: u32,
    /// `-p` and `e2fsck -p` did not agree on whether to stop.
    differs: u32,
}

/// Damages images and repairs them; what went wrong.
fn storm(name: &str, seed: u64, cases: usize, skip: usize) -> (Tally, String) {
    let base = images::named(name);
    // Boot block and superblock have tests of their own: another superblock is
    // another volume.
    let places: Vec<usize> = (skip..base.len()).filter(|&at| base[at] != 0).collect();
    let mut random = Random(seed);
    let (mut tally, mut wrong) = (Tally::default(), String::new());
    let judge = is_there().then(|| Scratch::new(name));
    for n in 0..cases {
        let bytes = damaged(&base, &places, &mut random);
        let what = format!("{name}, seed {seed}, case {n}");
        let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
        let repaired = match repair(device.clone()) {
            Ok(repaired) => repaired,
            Err(FsError::Unsupported(_) | FsError::Corrupt { .. }) => {
                tally.refused += 1;
                continue;
            }
            Err(error) => panic!("{what}: {error}"),
        };
        let found = repaired.report.findings.iter().map(|it| {
            format!(
                "  {} {:?} {} ({}) {}\n",
                it.code(),
                it.class,
                it.what,
                it.location,
                it.repaired
            )
        });
        let found: String = found.collect();
        if repaired.outcome == Outcome::Left {
            tally.left += 1;
            assert!(repaired.report.findings.iter().any(|it| !it.repaired), "{what}");
            if std::env::var_os("STORM_LEFT").is_some() {
                println!("{what}: left after {} rounds\n{found}", repaired.rounds);
            }
            continue;
        }
        let again = repair(device.clone()).expect(&what);
        if again.outcome != Outcome::Clean {
            let _ = writeln!(wrong, "{what}: not clean\n{found}then {:#?}", again.report.findings);
        }
        let (is_clean, image) = (repaired.outcome == Outcome::Clean, bytes_of(device.as_ref()));
        tally.clean += u32::from(is_clean);
        tally.repaired += u32::from(!is_clean);
        let Some(scratch) = &judge else { continue };
        holes::put(scratch.path(), &image);
        if let Some(said) = findings(scratch.path()) {
            let _ = writeln!(wrong, "{what}:\n{found}but e2fsck {said}");
        }
        holes::put(scratch.path(), &bytes);
        let (code, said) = e2fsck("-fp", scratch.path());
        let device = Arc::new(MemoryDevice::new(bytes));
        let preened = preen(device.clone()).expect(&what);
        if preened.outcome != Outcome::Left {
            fs::write(scratch.path(), bytes_of(device.as_ref())).expect("image");
            if let Some(said) = findings(scratch.path()) {
                let _ = writeln!(wrong, "{what}, preened: e2fsck {said}");
            }
        }
        if (code <= 1) != (preened.outcome != Outcome::Left) {
            tally.differs += 1;
            if std::env::var_os("STORM_CLASS").is_some() {
                println!("{what}: e2fsck -p {code}:\n{found}{said}");
            }
        }
    }
    (tally, wrong)
}

fn run(cases: usize, seed: u64) {
    for name in ["ext2", "ext4", "inline", "journal", "features", "bigalloc"] {
        let (tally, wrong) = storm(name, seed, cases, 2048);
        println!("{name}: {tally:?}");
        assert!(wrong.is_empty(), "{wrong}");
        assert!(tally.repaired as usize > cases / 3, "{name}: {tally:?}");
    }
}

#[test]
fn what_is_repaired_is_clean() {
    run(some_or_all(25, 60), 1);
}

/// `STORM_SEED` and `STORM_CASES` say which and how many.
#[test]
#[ignore = "minutes"]
fn storm_of_damage() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    run(number("STORM_CASES").unwrap_or(2000), number("STORM_SEED").unwrap_or(1) as u64);
}
