//! Sums of summaries: the same bytes whatever the order and the grouping, in memory and as streams.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use seekless_layout::trace::{Event, Events, Op};
use seekless_summary::{Form, MergeLimits, Summary, SummaryError, UNIT, merge};
use seekless_units::{ByteLen, Nanos};
use std::fs;
use std::path::{Path, PathBuf};

const OPS: [Op; 6] = [Op::Read, Op::Fault, Op::Open, Op::Stat, Op::Exec, Op::Readdir];

fn event() -> impl Strategy<Value = Event> {
    let range = (0u64..40_000, prop::option::of(prop_oneof![Just(0), 0u64..20_000]));
    let who = (1u32..5, prop::option::of("[ab]"), 0u64..9);
    (who, 0..OPS.len(), 0u8..4, range, any::<bool>()).prop_map(
        |((pid, comm, pause), op, file, (offset, length), fetched)| Event {
            pid,
            comm,
            offset,
            length,
            fetched,
            ..Event::new(Nanos::new(pause), OPS[op].clone(), format!("/f{file}").into())
        },
    )
}

fn trace() -> impl Strategy<Value = Events> {
    prop::collection::vec(event(), 0..60).prop_map(|mut events| {
        let mut time = Nanos::ZERO;
        for event in &mut events {
            time = Nanos::new(time.get() + event.time.get());
            event.time = time;
        }
        events.into_iter().collect()
    })
}

fn bytes(summary: &Summary, dir: &Path) -> Vec<u8> {
    let path = dir.join("written");
    summary.write(fs::File::create(&path).unwrap()).unwrap();
    let again = Summary::read(fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(&again, summary, "it is read as it was written");
    fs::read(path).unwrap()
}

/// Adds two of the summaries up, again and again, as `picks` chooses.
fn in_some_tree(mut all: Vec<Summary>, picks: &[(usize, usize)]) -> Summary {
    let mut picks = picks.iter().cycle();
    while all.len() > 1 {
        let &(one, two) = picks.next().unwrap();
        let one = all.swap_remove(one % all.len());
        let two = all.swap_remove(two % all.len());
        all.push(one.plus(two).unwrap());
    }
    all.pop().unwrap()
}

fn streamed(all: &[Summary], min_machines: u64, memory: u64, dir: &Path) -> Vec<u8> {
    let paths: Vec<PathBuf> = (0..all.len()).map(|at| dir.join(at.to_string())).collect();
    for (summary, path) in all.iter().zip(&paths) {
        summary.write(fs::File::create(path).unwrap()).unwrap();
    }
    let limits = MergeLimits { memory: ByteLen::new(memory), temp_dir: dir };
    let out = dir.join("sum");
    merge(&paths, min_machines, limits, fs::File::create(&out).unwrap()).unwrap();
    fs::read(out).unwrap()
}

fn run<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, random);
    let result = runner.run(strategy, |value| {
        test(value);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn any_tree_of_merges_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let traces = prop::collection::vec((trace(), 1..3 * UNIT), 2..9);
    let picks = prop::collection::vec((0usize..9, 0usize..9), 9);
    run(64, &(traces, picks), |(traces, picks)| {
        let all: Vec<Summary> =
            traces.iter().map(|(events, weight)| Summary::of(events, *weight)).collect();
        let in_turn = in_some_tree(all.clone(), &[(0, 0)]);
        let sum = bytes(&in_turn, dir.path());
        assert!(bytes(&in_some_tree(all.clone(), &picks), dir.path()) == sum, "another tree");
        assert!(streamed(&all, 0, 1 << 30, dir.path()) == sum, "all at once");
        // Two at a time, with temporary files.
        assert!(streamed(&all, 0, 1, dir.path()) == sum, "two at a time");
        let backwards: Vec<Summary> = all.into_iter().rev().collect();
        assert!(streamed(&backwards, 0, 1, dir.path()) == sum, "from the end");
    });
}

#[test]
fn one_summary_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    run(32, &trace(), |events| {
        let summary = Summary::of(&events, UNIT);
        assert_eq!(summary.header().form, Form::Exact);
        let same = bytes(&summary, dir.path());
        assert!(streamed(&[summary], 0, 1, dir.path()) == same);
    });
}

#[test]
fn the_floor_leaves_out_ranges_of_few_machines() {
    let dir = tempfile::tempdir().unwrap();
    let read = |path: &str, len| {
        let event = Event::new(Nanos::ZERO, Op::Read, path.into()).on(0, len);
        Event { comm: Some("own".into()), ..event }
    };
    let of = |events: Vec<Event>| Summary::of(&events.into_iter().collect(), UNIT);
    // One machine with two traces is one machine.
    let twice = of(vec![read("/own", 10), read("/all", 9000)]);
    let twice = twice.clone().plus(twice).unwrap().of_one_machine();
    let other = of(vec![read("/all", 5000)]);
    streamed(&[twice, other], 2, 1 << 30, dir.path());
    let sum = Summary::read(fs::File::open(dir.path().join("sum")).unwrap()).unwrap();
    let found = sum.touched();
    let shown: Vec<_> =
        found.iter().map(|row| (row.path, row.length, row.traces, row.machines)).collect();
    assert!(found.iter().all(|row| row.process.is_empty()), "no name of a process");
    // The third page is only the first machine's.
    assert_eq!(shown, [(&b"/all"[..], Some(8192), 3, 2)]);
    assert_eq!((sum.header().machines, sum.header().min_machines), (2, 2));
    // A sum has the floor that all of its parts have.
    let own = of(vec![read("/own", 10)]);
    for (sum, other) in [(sum.clone(), own.clone()), (own, sum.clone())] {
        let more = sum.plus(other).unwrap();
        assert!(more.touched().iter().any(|row| row.machines == 1));
        assert_eq!(more.header().min_machines, 0);
    }
    assert_eq!(sum.clone().plus(sum).unwrap().header().min_machines, 2);
}

#[test]
fn files_of_more_weight_come_first_and_then_those_that_are_read_earlier() {
    let read = |time, pid: u32, path: &str| {
        let event = Event::new(Nanos::new(time), Op::Read, path.into()).by(pid);
        Event { comm: Some(pid.to_string()), ..event }
    };
    // Two processes take turns, and either begins. /late is read by all,
    // at the end.
    let of = |own: &str, first: u64| -> Events {
        let mut all = vec![read(first, 2, "/a1"), read(first + 2, 2, "/a2")];
        all.extend([read(1, 1, "/b1"), read(3, 1, "/b2")]);
        all.extend([read(90, 3, own), read(99, 4, "/late")]);
        all.sort_by_key(|event| event.time);
        all.into_iter().collect()
    };
    let one = Summary::of(&of("/one", 0), UNIT);
    let two = Summary::of(&of("/two", 2), UNIT);
    let three = Summary::of(&[read(0, 1, "/three")].into_iter().collect(), 3 * UNIT);
    let sum = one.plus(two).unwrap().plus(three).unwrap();
    let paths: Vec<String> = sum
        .to_events()
        .iter()
        .map(|event| String::from_utf8_lossy(event.path).into_owned())
        .collect();
    let wanted = ["/three", "/b1", "/a1", "/b2", "/a2", "/late", "/one", "/two"];
    assert_eq!(paths, wanted);
}

#[test]
fn damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let read = |n: u32| Event::new(Nanos::ZERO, Op::Read, format!("/{n}").into());
    let summary = Summary::of(&(0..100).map(read).collect(), UNIT);
    let whole = bytes(&summary, dir.path());
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Summary::read(fs::File::open(&path).unwrap()).err()
    };
    for end in (0..whole.len()).step_by(97) {
        assert!(refused(&whole[..end]).is_some(), "cut at {end}");
    }
    assert!(matches!(refused(b"PAR2"), Some(SummaryError::NoSummary)));
    let at = whole.windows(16).position(|text| text == b"seekless_summary").unwrap();
    let version = at + whole[at..].iter().position(|&byte| byte == b'1').unwrap();
    let mut later = whole.clone();
    later[version] = b'7';
    let error = refused(&later).unwrap();
    assert!(matches!(&error, SummaryError::Version(version) if version == "7"), "{error}");
    // Bytes that are turned over never panic, and what is read keeps its invariants.
    for at in (0..whole.len()).step_by(7) {
        let mut broken = whole.clone();
        broken[at] ^= 0xff;
        fs::write(&path, &broken).unwrap();
        if let Ok(read) = Summary::read(fs::File::open(&path).unwrap()) {
            drop(read.to_events());
        }
    }
}

#[test]
fn a_file_of_which_no_byte_is_read_remains_in_sums() {
    let read = |path: &str, len| Event::new(Nanos::ZERO, Op::Read, path.into()).on(5000, len);
    let of = |events: Vec<Event>| Summary::of(&events.into_iter().collect(), UNIT);
    let empty = of(vec![read("/empty", 0), read("/empty", 0), read("/full", 0), read("/full", 9)]);
    let full = of(vec![read("/empty", 9), read("/full", 9)]);
    let ranges = |sum: &Summary| {
        let rows = sum.touched();
        let rows = rows.iter().map(|row| (row.path.to_vec(), row.offset, row.length, row.traces));
        rows.collect::<std::collections::BTreeSet<_>>()
    };
    let row = |path: &[u8], offset, len, traces| (path.to_vec(), offset, Some(len), traces);
    let twice = empty.clone().plus(empty.clone()).unwrap();
    assert_eq!(ranges(&twice), [row(b"/empty", 0, 0, 2), row(b"/full", 4096, 4096, 2)].into());
    let rows =
        [row(b"/empty", 0, 0, 1), row(b"/empty", 4096, 4096, 1), row(b"/full", 4096, 4096, 2)];
    assert_eq!(ranges(&empty.clone().plus(full.clone()).unwrap()), rows.clone().into());
    assert_eq!(ranges(&full.plus(empty).unwrap()), rows.into());
}

/// A file whose checksum is that of its data, which are changed.
fn crafted(whole: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let name = |text: &[u8]| whole.windows(text.len()).position(|part| part == text).unwrap();
    // Each value follows its name: a byte of the type, one of the length, the digits.
    let value = |text: &[u8]| {
        let at = name(text) + text.len() + 2;
        let len = usize::from(whole[at - 1]);
        (at, std::str::from_utf8(&whole[at..at + len]).unwrap().parse::<usize>().unwrap())
    };
    let (bytes, (at, old)) = (value(b"data_bytes").1, value(b"data_crc32c"));
    assert_eq!(usize::try_from(crc32c::crc32c(&whole[..bytes])).unwrap(), old);
    let mut made = whole.to_vec();
    change(&mut made[..bytes]);
    let digits = crc32c::crc32c(&made[..bytes]).to_string();
    let (len, was) = (digits.len(), usize::from(whole[at - 1]));
    made[at - 1] = u8::try_from(len).unwrap();
    made.splice(at..at + was, digits.bytes());
    let end = made.len() - 8;
    let footer = u32::from_le_bytes(made[end..end + 4].try_into().unwrap());
    let footer = usize::try_from(footer).unwrap() + len - was;
    made[end..end + 4].copy_from_slice(&u32::try_from(footer).unwrap().to_le_bytes());
    made
}

#[test]
fn files_with_the_right_checksum_are_refused_without_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let read = |n: u32| Event::new(Nanos::ZERO, Op::Read, format!("/{n}").into()).by(n % 3);
    let whole = bytes(&Summary::of(&(0..40).map(read).collect(), UNIT), dir.path());
    assert_eq!(crafted(&whole, |_| ()), whole);
    let data = whole.len() - 8;
    let mut cannot = 0;
    for at in (4..data).step_by(3) {
        for turned in [0x01, 0x7f, 0x80, 0xff] {
            let mut is_data = true;
            let made = crafted(&whole, |data| match data.get_mut(at) {
                Some(byte) => *byte ^= turned,
                None => is_data = false,
            });
            if !is_data {
                break;
            }
            fs::write(&path, &made).unwrap();
            match Summary::read(fs::File::open(&path).unwrap()) {
                Ok(read) => drop(read.to_events()),
                Err(SummaryError::Corrupt("its data cannot be decoded")) => {
                    // For the tests of the program, when the format changes.
                    let to = std::env::var_os("SEEKLESS_UNDECODABLE").filter(|_| cannot == 0);
                    to.into_iter().for_each(|to| fs::write(to, &made).unwrap());
                    cannot += 1;
                }
                Err(_) => {}
            }
        }
    }
    assert!(cannot > 0, "the decoders panic on none of these files any more");
}
