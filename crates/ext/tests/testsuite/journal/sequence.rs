//! Random sequences of transactions, around the ring several times, each judged by
//! debugfs, e2fsck and our own recovery.

use super::volume::{SHAPES, Shape, Volume, dump, make, read_file, run};
use crate::damage::images;
use crate::holes;
use crate::list::list;
use crate::property::for_all;
use crate::repair::judge::{Random, Scratch, bytes_of, findings, is_there};
use proptest::collection::vec;
use proptest::prelude::{Just, any};
use seekless_cache::{Log, LogCopy, LogTransaction};
use seekless_device::MemoryDevice;
use seekless_ext::{LogWriter, preen};
use seekless_fs::Timestamp;
use seekless_fs::check::Outcome;
use seekless_units::BlockNo;
use std::cell::Cell;
use std::fs;
use std::process::Command;
use std::sync::Arc;

/// What a recovery may write into the superblock that follows from the time.
const TOLD: [std::ops::Range<usize>; 5] =
    [0x2C..0x34, 0x40..0x44, 0x178..0x180, 0x274..0x27C, 0x3FC..0x400];

/// The blocks of 1,024 bytes in which two volumes differ, but for what is [`TOLD`].
fn differences(ours: &[u8], theirs: &[u8]) -> Vec<usize> {
    let pairs = ours.chunks(1024).zip(theirs.chunks(1024)).enumerate();
    pairs
        .filter(|&(number, (one, two))| {
            let told = |at: usize| number == 1 && TOLD.iter().any(|range| range.contains(&at));
            // Nearly all are equal, which the C library sees fast.
            one != two && one.iter().zip(two).enumerate().any(|(at, (a, b))| a != b && !told(at))
        })
        .map(|(number, _)| number)
        .collect()
}

/// What all judges make of a volume that was cut off.
fn judge(volume: &Volume, place: &str) {
    let scratch = Scratch::new(&format!("sequence-{}", volume.shape.name));
    let (bytes, expected) = (volume.bytes(), volume.file());
    assert!(read_file(bytes.clone()) == expected, "{place}: our own reader");
    holes::put(scratch.path(), &bytes);
    let path = scratch.path().to_str().expect("path");
    let dumped = run("debugfs", &["-R", "logdump -a", path]);
    let commits = dumped.lines().filter(|line| line.contains("commit block")).count();
    assert_eq!(commits, volume.waiting.len(), "{place}: {dumped}");
    let next = format!("sequence {}", volume.log.next_tid().wrapping_sub(1));
    assert!(commits == 0 || dumped.contains(&next), "{place}: {next}: {dumped}");
    let said = Command::new("e2fsck").args(["-E", "journal_only", "-y", path]).output();
    let said = said.expect("e2fsck");
    assert!(said.status.code().is_some_and(|code| code <= 1), "{place}: {said:?}");
    assert!(dump(scratch.path()) == expected, "{place}: e2fsck");
    let theirs = holes::take(scratch.path());
    let device = Arc::new(MemoryDevice::new(bytes));
    let repaired = preen(device.clone()).expect(place);
    assert_eq!(repaired.outcome, Outcome::Corrected, "{place}: {repaired:#?}");
    let ours = bytes_of(device.as_ref());
    assert_eq!(differences(&ours, &theirs), [0usize; 0], "{place}: of 1,024 bytes each");
    assert_eq!(findings(scratch.path()), None, "{place}");
}

/// Transactions, each by a seed. Then the volume is judged.
type Round = Vec<u64>;

/// Runs `cases` lists of `rounds` rounds.
fn sequences(kind: usize, cases: u32, rounds: usize) {
    let shape = &SHAPES[kind];
    let new = make(shape);
    // Blocks that were logged, of each block of the ring.
    let around = Cell::new(u64::MAX);
    let input = (Just(shape.name), list(vec(any::<u64>(), 4..=12), rounds..=rounds), any::<u64>());
    for_all((cases, kind), input, |(_, rounds, last)| {
        let (logged, ring) = sequence(shape, &new, &rounds, last);
        around.update(|least| least.min(logged / ring));
    });
    assert!(around.get() >= 2, "{}: {around:?} times around", shape.name);
}

/// Returns how many blocks were logged, and how many the log has.
fn sequence(
    shape: &'static Shape,
    (bytes, homes): &(Vec<u8>, Vec<BlockNo>),
    rounds: &[Round],
    last: u64,
) -> (u64, u64) {
    let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
    let mut volume = Volume::open(shape, device.clone(), homes.clone(), last);
    for (n, round) in rounds.iter().enumerate() {
        for &seed in round {
            volume.random = Random(seed);
            volume.commit([3, 20, 200][n % 3]);
        }
        judge(&volume, &format!("{} round {n}", shape.name));
    }
    let counts = (volume.logged, volume.log.capacity());
    // Closed, looked at, and opened again: numbers go on.
    let next = volume.log.next_tid();
    volume.close();
    judge_closed(&volume);
    let committed = volume.committed;
    let mut again = Volume::open(shape, device, homes.clone(), last);
    again.committed = committed;
    assert_eq!(again.log.next_tid(), next);
    again.commit(20);
    judge(&again, &format!("{} again", shape.name));
    counts
}

fn judge_closed(volume: &Volume) {
    let shape = volume.shape;
    let scratch = Scratch::new(&format!("closed-{}", shape.name));
    fs::write(scratch.path(), volume.bytes()).expect("image");
    assert_eq!(findings(scratch.path()), None, "{} closed", shape.name);
    assert!(dump(scratch.path()) == volume.file(), "{} closed", shape.name);
    let path = scratch.path().to_str().expect("path");
    let shown = run("dumpe2fs", &["-h", path]);
    assert!(!shown.contains("needs_recovery"), "{shown}");
    let features = shown.lines().find(|line| line.starts_with("Journal features"));
    let features = features.map(|line| line["Journal features:".len()..].trim());
    assert_eq!(features, Some(shape.shown), "{}", shape.name);
}

#[test]
fn what_is_committed_is_recovered_by_all() {
    if is_there() {
        (0..SHAPES.len()).for_each(|kind| sequences(kind, 1, 12));
    }
}

/// Fast commits of the kernel, recovered here: their area is no part of the ring.
#[test]
fn the_area_of_fast_commits_is_left_alone() {
    if !is_there() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(images::named("fastcommit")));
    let wall = || Box::new(|| Timestamp { secs: 1_000_000_000, nanos: 0 });
    assert!(LogWriter::open(device.clone(), wall()).is_err(), "to be recovered first");
    assert_eq!(preen(device.clone()).expect("preen").outcome, Outcome::Corrected);
    let bytes = bytes_of(device.as_ref());
    let header = [0xC03B_3998u32.to_be_bytes(), 4u32.to_be_bytes()].concat();
    let journal = bytes.chunks(1024).position(|block| block.starts_with(&header)).expect("one");
    let word = |at: usize| {
        let bytes = &bytes[journal * 1024 + at..][..4];
        u32::from_be_bytes(bytes.try_into().expect("word")) as usize
    };
    let (block, len, kept) = (word(12), word(16), word(84));
    assert_eq!(word(40) & 0x20, 0x20, "fast commits");
    let mut log = LogWriter::open(device.clone(), wall()).expect("log");
    assert_eq!(log.capacity() as usize, len - kept - 1);
    // Where the journal of this image ends.
    let end = 2158;
    let area = |bytes: &[u8]| bytes[(end - kept) * block..end * block].to_vec();
    let perform = |stages: Vec<seekless_cache::Stage>| {
        for stage in stages {
            stage.perform(device.as_ref(), true).expect("memory");
        }
    };
    perform(log.start().expect("start"));
    // Blocks as they are.
    let copies: Vec<LogCopy<'_>> = (2200..2400)
        .map(|n| LogCopy { home: BlockNo::new(n as u64), bytes: &bytes[n * block..][..block] })
        .collect();
    let transaction = LogTransaction { revokes: &[], copies: &copies };
    let mut written = 0;
    while written < 2 * log.capacity() {
        let cost = log.cost(copies.len() as u64, 0);
        if log.free() < cost {
            perform(log.retire(1));
        }
        perform(log.encode(&transaction).expect("transaction"));
        written += cost;
    }
    let after = bytes_of(device.as_ref());
    assert!(area(&after) == area(&bytes), "written to");
    let scratch = Scratch::new("sequence-fast");
    holes::put(scratch.path(), &after);
    let said =
        Command::new("e2fsck").args(["-E", "journal_only", "-y"]).arg(scratch.path()).output();
    let said = said.expect("e2fsck");
    assert!(said.status.code().is_some_and(|code| code <= 1), "{said:?}");
    assert_eq!(findings(scratch.path()), None);
}

/// Numbers of transactions are counted in 32 bits, and go on at zero.
#[test]
fn numbers_of_transactions_wrap() {
    if !is_there() {
        return;
    }
    let shape = &SHAPES[0];
    let (mut bytes, homes) = make(shape);
    let header = [0xC03B_3998u32.to_be_bytes(), 4u32.to_be_bytes()].concat();
    let journal = bytes.chunks(1024).position(|block| block.starts_with(&header)).expect("one");
    bytes[journal * 1024 + 24..][..4].copy_from_slice(&(u32::MAX - 9).to_be_bytes());
    let mut volume = Volume::open(shape, Arc::new(MemoryDevice::new(bytes)), homes, 3);
    for round in 0..10 {
        volume.commit(8);
        volume.commit(8);
        judge(&volume, &format!("round {round}"));
    }
    assert!(volume.log.next_tid() < 20, "{}", volume.log.next_tid());
}

/// As above, of many more sequences.
#[test]
#[ignore = "takes minutes"]
fn what_is_committed_is_recovered_by_all_for_long() {
    if is_there() {
        (0..SHAPES.len()).for_each(|kind| sequences(kind, 20, 30));
    }
}
