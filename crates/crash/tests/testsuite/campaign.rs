//! What the update disciplines promise, tried on UFS; that the search sees what
//! there is to see; and what it does on a device that fails.

use crate::slice::some_or_all;
use crate::ufs::Ufs;
use seekless_cache::Discipline;
use seekless_crash::campaign::{CampaignError, Sequences, built_in, lines};
use seekless_crash::driver::{RunOptions, prepare, record};
use seekless_crash::explore::{Subject, explore, explore_run};
use seekless_crash::log::Step;
use seekless_crash::mutation::{Fate, Mutation};
use seekless_crash::oracle::Promises;
use seekless_crash::parts::{Gap, merge};
use seekless_crash::recorder::Completion;
use seekless_crash::resume::{StateFile, StatePart};
use seekless_crash::script::parse;
use seekless_crash::workload::scheduled;
use seekless_crash::{Campaign, Extent, Script, Search, Settings, Target};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_ffs::Version;
use seekless_units::{ByteLen, Lba};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const FORMATS: [Ufs; 2] = [Ufs::of(Version::Ufs1), Ufs::of(Version::Ufs2)];

const SEQUENCES: Sequences = Sequences { count: 100, seed: 1 };

fn settings(discipline: Discipline, extent: Extent, schedules: u32) -> Settings {
    let search = Search { extent, ..Search::exhaustive(1) };
    Settings { discipline, search, schedules, queue: false }
}

fn workloads(target: &Ufs, name: &str) -> Vec<Script> {
    built_in(name, target.has_xattrs(), SEQUENCES).unwrap().expect("known")
}

/// Looks at workloads; the first failure, for people, and the states of each.
pub(crate) fn look(
    target: &dyn Target,
    settings: Settings,
    scripts: &[Script],
) -> (Option<String>, Vec<u64>) {
    let mut campaign = Campaign::new(target, settings);
    let mut states = Vec::new();
    for script in scripts {
        let result = campaign.unit(script, &|_| {}).unwrap();
        states.push(result.coverage.states);
        let Some(schedule) = result.failed_schedule else { continue };
        let small = campaign.reproduce(script, schedule).unwrap().expect("it failed");
        let what = format!(
            "{} on {} with {}: {} of {} states, {:?}\n\n{}\n{}\n{}",
            script.name,
            target.name(),
            settings.discipline,
            result.failing,
            result.coverage.states,
            result.codes,
            small.script,
            small.writes.join("\n"),
            lines(&small.violations).join("\n")
        );
        return (Some(what), states);
    }
    (None, states)
}

#[test]
fn single_operations_survive_every_crash_under_soft_updates() {
    // UFS1 has the same orders; `seekless crash run` looks at all of its states.
    for (target, extent) in FORMATS.iter().zip([Extent::Sample(40), Extent::Exhaustive]) {
        let settings = settings(Discipline::SoftUpdates, extent, 2);
        let (wrong, states) = look(target, settings, &workloads(target, "singles"));
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        assert!(states.iter().all(|&count| count >= 20), "{states:?}");
    }
}

#[test]
fn single_operations_survive_crashes_when_written_at_once() {
    for discipline in [Discipline::Sync, Discipline::Normal] {
        for target in &FORMATS {
            let settings = settings(discipline, Extent::Sample(some_or_all(12, 30)), 2);
            let (wrong, _) = look(target, settings, &workloads(target, "singles"));
            assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        }
    }
}

/// Writes complete late and in any order, and a flush says nothing of those under
/// way.
#[test]
fn crashes_are_survived_on_a_device_with_a_queue() {
    for target in &FORMATS {
        let mut settings =
            settings(Discipline::SoftUpdates, Extent::Sample(some_or_all(25, 60)), 3);
        settings.queue = true;
        let mut scripts = workloads(target, "singles");
        scripts.extend(workloads(target, "random:8").into_iter().take(4));
        let (wrong, states) = look(target, settings, &scripts);
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        assert!(states.iter().all(|&count| count >= 20), "{states:?}");
    }
}

/// Who takes a write for completed when it was submitted is found out; the same
/// search finds nothing where completion is waited for.
#[test]
fn commits_at_submission_are_found() {
    let promises = Promises::of(Discipline::SoftUpdates);
    let mut found = 0;
    let target = &FORMATS[1];
    let scripts: Vec<Script> = workloads(target, "random:8").into_iter().take(6).collect();
    for (script, seed) in scripts.iter().zip(1..) {
        // The syncer has its turn after each operation.
        let script = scheduled(script, 1, seed);
        let base = prepare(target, &script.name, &script.setup).unwrap();
        for (completion, may_fail) in
            [(Completion::Late(seed), false), (Completion::LateUntold(seed), true)]
        {
            let how = RunOptions { completion, ..RunOptions::new(Discipline::SoftUpdates) };
            let run = record(target, &base, &script, &how).unwrap();
            let late = run.log.steps.iter().any(|step| matches!(step, Step::Complete { .. }));
            assert!(late, "{}: nothing completed late", script.name);
            let search = Search { extent: Extent::Sample(400), ..Search::exhaustive(seed) };
            let failing = explore_run(target, promises, &run, &search, &|_| {}).unwrap().failing;
            assert!(may_fail || failing == 0, "{}: {failing} states fail", script.name);
            found += u32::from(failing > 0);
        }
    }
    assert!(found >= 4, "found in {found} of {} sequences", scripts.len());
}

#[test]
fn some_pairs_survive_two_hundred_states_each() {
    for (discipline, skip) in
        [(Discipline::SoftUpdates, 3), (Discipline::Sync, 11), (Discipline::Normal, 29)]
    {
        for target in &FORMATS {
            let all = workloads(target, "pairs");
            let some: Vec<Script> =
                all.into_iter().skip(skip).step_by(some_or_all(3104, 1552)).collect();
            let settings = settings(discipline, Extent::Sample(200), 3);
            let (wrong, states) = look(target, settings, &some);
            assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            assert!(states.iter().all(|&count| count >= 200), "{states:?}");
        }
    }
}

#[test]
fn without_order_a_crash_does_damage_and_the_reproducer_shows_it() {
    let target = &FORMATS[1];
    let script = workloads(target, "create");
    let extent = some_or_all(Extent::Sample(300), Extent::Exhaustive);
    let mut campaign = Campaign::new(target, settings(Discipline::Async, extent, 1));
    let result = campaign.unit(&script[0], &|_| {}).unwrap();
    assert!(result.failing > 0);
    let small = campaign.reproduce(&script[0], 0).unwrap().expect("it failed");
    assert!(small.script.body.len() + small.script.setup.len() <= 5, "{}", small.script);
    // What is printed can be read, and fails in the same way.
    let again = parse("again", &small.script.to_string()).unwrap();
    let result = campaign.unit(&again, &|_| {}).unwrap();
    assert!(result.codes.contains_key(&small.violations[0].code), "{:?}", result.codes);
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(small.image));
    assert!(seekless_ffs::check(device).unwrap().unexpected > 0);
}

/// A part of the campaign in docs/crash.md. A test for each discipline, since they
/// run at the same time.
fn random_sequences_survive_thirty_states_each(discipline: Discipline) {
    let count = some_or_all(40, 100);
    for target in &FORMATS {
        let settings = settings(discipline, Extent::Sample(30), 3);
        let (wrong, states) = look(target, settings, &workloads(target, "random:8")[..count]);
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        assert_eq!(states.len(), count);
        assert!(states.iter().sum::<u64>() >= 27 * count as u64, "{states:?}");
    }
}

#[test]
fn random_sequences_survive_under_soft_updates() {
    random_sequences_survive_thirty_states_each(Discipline::SoftUpdates);
}

#[test]
fn random_sequences_survive_with_synchronous_writes() {
    random_sequences_survive_thirty_states_each(Discipline::Sync);
}

#[test]
fn random_sequences_survive_with_names_written_at_once() {
    random_sequences_survive_thirty_states_each(Discipline::Normal);
}

#[test]
fn what_was_found_stays_mended() {
    stays_mended(Extent::Sample(some_or_all(20, 60)));
}

/// A minute and a half.
#[test]
#[ignore = "a campaign"]
fn what_was_found_stays_mended_in_every_state() {
    stays_mended(Extent::Exhaustive);
}

/// Each of these was a fault of the file system.
fn stays_mended(under_soft_updates: Extent) {
    for (name, text) in [
        // Only the latest of a file's names was made durable with it.
        (
            "links",
            "mkdir A\nmkdir B\nopen A/foo\nbegin\nlink A/foo B/x\nlink A/foo A/x\nfsync A/x\n",
        ),
        // A cut let the inode go before the numbers past its end, and growing let
        // them come before it.
        (
            "cut",
            "open f\nwrite 0 120000\nclose\nbegin\ntruncate f 60000\nappend f 3000\ntruncate f 50000\n",
        ),
        (
            "grow",
            "open f\nwrite 0 45000\nclose\nbegin\nappend f 3000\nappend f 6000\nappend f 6000\n",
        ),
        // A cut into a hole did not wait for the block that was made there.
        (
            "cut-into-hole",
            "open f\nwrite 0 100\nwrite f 4300000 100\nclose\nbegin\ntruncate f 2150050\n",
        ),
        // Fragments by which a tail had grown were not in the bitmap after a cut.
        (
            "tail-cut",
            "open f\nwrite 0 1500\nclose\nbegin\nappend f 4096\ntruncate f 2798\nfsync f\n",
        ),
        // A directory moved below what was still below itself.
        (
            "loop",
            "mkdir a\nmkdir b\nmkdir x\nrename b a/b\nbegin\nrename a/b x/b\nrename a x/b/a\n",
        ),
        // A name was made again before the older one was gone.
        (
            "log",
            "open tmp\nopen log\nwrite log 0 3000\nclose\nunlink tmp\nbegin\nrename log log.1\nopen log\nwrite log 0 1500\nfsync log\n",
        ),
        // Of a renamed directory the older name was left, and a check kept that.
        ("dir-fsync", "mkdir A\nbegin\nrename A B\nfsync B\n"),
        ("dir-into", "mkdir A\nmkdir B\nbegin\nrename B A/log\nfsync A\n"),
        ("dir-over", "mkdir A\nmkdir B\nopen A/f\nwrite 0 1000\nclose\nbegin\nrename A B\n"),
        ("dir-over-before", "mkdir B\nmkdir A\nopen A/f\nclose\nbegin\nrename A B\n"),
        // With a name in either parent, and `..` not turned yet, a directory took
        // the name of another, which then went with it.
        (
            "moved-over",
            "mkdir A\nmkdir B\nmkdir A/sub\nbegin\nrename B A/bar\nrename A/bar A/sub\n",
        ),
        // A new directory that was renamed at once did not wait for its parent's
        // link any more.
        ("dir-at-once", "mkdir A\nbegin\nmkdir log\nrename log tmp\nopen tmp/f\nfsync tmp/f\n"),
        // An fsync below a renamed directory did not know of it.
        (
            "below",
            "mkdir A\nmkdir X\nopen A/f\nwrite 0 1000\nclose\nbegin\nrename A X/A\nfsync X/A/f\n",
        ),
        // A name is of no use when its directory has none yet.
        (
            "new-dir",
            "open f\nwrite 0 700\nclose\nbegin\nmkdir D\nrename f D/f\nwriteback 3\nwriteback 8\nfsync D/f\n",
        ),
        // Two directories change places.
        ("exchange-dirs", "mkdir a\nmkdir b\nopen a/f\nwrite 0 900\nclose\nbegin\nexchange a b\n"),
        ("exchange-new", "mkdir a\nbegin\nmkdir b\nexchange a b\nopen b/f\nfsync b/f\n"),
        ("exchange-kinds", "mkdir a\nopen b\nwrite 0 900\nclose\nbegin\nexchange a b\nfsync b\n"),
        // A tail that moves takes what was durable with it.
        (
            "tail",
            "open f\nwrite 0 700\nopen g\nwrite 0 700\nclose\nbegin\nappend f 2000\nfsync g\nwriteback 1\n",
        ),
    ] {
        for discipline in [Discipline::SoftUpdates, Discipline::Sync, Discipline::Normal] {
            for target in &FORMATS {
                let script = parse(name, text).unwrap();
                // Most were faults of soft updates.
                let extent = match discipline {
                    Discipline::SoftUpdates => under_soft_updates,
                    _ => Extent::Sample(20),
                };
                let (wrong, _) = look(target, settings(discipline, extent, 2), &[script]);
                assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            }
        }
    }
}

/// A name in a new directory goes, and is given to a durable file from elsewhere.
#[test]
fn a_file_takes_a_name_that_went_before_in_a_new_directory() {
    let empty = "mkdir p\nbegin\nmkdir p/d\nopen p/d/b\nclose\nunlink p/d/b\nopen p/a\n\
                 fsync p/a\nclose\nrename p/a p/d/b\nfsync p/d\n";
    // The inode may be the same, and the name: then only what it holds tells two files apart.
    let told_apart = empty.replace("open p/a\n", "open p/a\nwrite 0 900\n");
    let schedules = some_or_all(5, 16);
    for text in [empty, &told_apart] {
        for discipline in [Discipline::SoftUpdates, Discipline::Sync, Discipline::Normal] {
            for target in &FORMATS {
                let script = parse("gone-before", text).unwrap();
                let settings = settings(discipline, Extent::Exhaustive, schedules);
                let (wrong, states) = look(target, settings, &[script]);
                assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
                assert!(states[0] > 5 * u64::from(schedules), "{states:?}");
            }
        }
    }
}

/// Directories whose names lie in two sectors cannot change places: they keep their names.
#[test]
fn directories_far_from_each_other_do_not_change_places() {
    let fill: String = (0..24).map(|n| format!("open {}{n:02}\n", "x".repeat(40))).collect();
    let far = format!("mkdir a\n{fill}mkdir b\nopen b/f\nclose\nbegin\nexchange a b\nfsync b\n");
    let across = "mkdir a\nmkdir c\nmkdir c/b\nbegin\nexchange a c/b\nfsync a\n".to_string();
    let kinds = "mkdir a\nmkdir c\nopen c/b\nclose\nbegin\nexchange a c/b\nfsync a\n".to_string();
    for text in [far, across, kinds] {
        for discipline in [Discipline::SoftUpdates, Discipline::Sync, Discipline::Normal] {
            for target in &FORMATS {
                let script = parse("far", &text).unwrap();
                let settings = settings(discipline, Extent::Exhaustive, 3);
                let (wrong, _) = look(target, settings, &[script]);
                assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            }
        }
    }
}

/// A directory takes the name of an empty one that lies in a later sector of
/// their parent, so that one write cannot change both.
#[test]
fn a_directory_takes_a_name_that_lies_far_behind_its_own() {
    let fill: String = (0..24).map(|n| format!("open {}{n:02}\n", "x".repeat(40))).collect();
    for (order, first, last) in [("behind", "A", "B"), ("in front", "B", "A")] {
        let text =
            format!("mkdir {first}\nopen A/f\n{fill}mkdir {last}\nclose\nbegin\nrename A B\n");
        let text = text.replace("mkdir B\nopen A/f\n", "mkdir B\n");
        for discipline in [Discipline::SoftUpdates, Discipline::Sync, Discipline::Normal] {
            for target in &FORMATS {
                let script = parse(order, &text).unwrap();
                let settings = settings(discipline, Extent::Exhaustive, 6);
                let (wrong, _) = look(target, settings, &[script]);
                assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            }
        }
    }
}

/// Names that go and come back in new directories, directories that move and change places.
#[test]
fn moves_are_survived() {
    let count = some_or_all(6, 15);
    for discipline in [Discipline::SoftUpdates, Discipline::Sync, Discipline::Normal] {
        for target in &FORMATS {
            let sequences = Sequences { count, seed: 5 };
            let scripts = built_in("moves:10", target.has_xattrs(), sequences).unwrap().unwrap();
            let settings = settings(discipline, Extent::Sample(30), 3);
            let (wrong, states) = look(target, settings, &scripts);
            assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            assert!(states.iter().sum::<u64>() >= 25 * count, "{states:?}");
        }
    }
}

#[test]
fn orders_that_are_forgotten_are_missed() {
    for target in &FORMATS {
        let mut mutation = Mutation::new(target, workloads(target, "all"), 2).unwrap();
        let (mut caught, mut missed) = (0, Vec::new());
        while caught + missed.len() < some_or_all(4, 8) {
            let mutant = mutation.draw().unwrap().expect("there are orders");
            match mutant.fate {
                Fate::Caught(_) | Fate::Failed(_) => caught += 1,
                Fate::Missed => missed.push(mutant),
                Fate::Equivalent | Fate::Harmless => {}
            }
        }
        // The share is measured over many more: docs/crash.md.
        assert!(missed.len() <= some_or_all(1, 2), "{missed:#?}");
    }
}

#[test]
fn shards_are_all_states_and_none_twice() {
    let target = &FORMATS[0];
    let script = workloads(target, "rename-across").remove(0);
    let count = |shard| {
        let mut settings = settings(Discipline::SoftUpdates, Extent::Exhaustive, 1);
        settings.search.shard = shard;
        Campaign::new(target, settings).unit(&script, &|_| {}).unwrap().coverage.states
    };
    let whole = count((1, 1));
    let parts: Vec<u64> = (1..=3).map(|part| count((part, 3))).collect();
    assert_eq!(parts.iter().sum::<u64>(), whole);
    assert!(parts.iter().all(|&part| part >= whole / 3), "{parts:?}");
}

/// Parts that were divided, merged in any order, are the campaign that was not.
#[test]
fn merged_parts_are_the_whole() {
    let target = &FORMATS[0];
    let scripts = workloads(target, "rename-across");
    for extent in [Extent::Exhaustive, Extent::Sample(70)] {
        let dir = tempfile::tempdir().unwrap();
        let (mut paths, mut whole) = (Vec::new(), None);
        for (part, of) in [(1, 1), (3, 3), (1, 3), (2, 3)] {
            let mut settings = settings(Discipline::Async, extent, 2);
            settings.search.shard = (part, of);
            let result = Campaign::new(target, settings).unit(&scripts[0], &|_| {}).unwrap();
            if of == 1 {
                whole = Some(result);
                continue;
            }
            let path = dir.path().join(format!("part{part}"));
            let head = settings.head("ufs1", "rename-across x1", 1);
            StateFile::open(&path, &head).unwrap().note(&result).unwrap();
            paths.push(path);
        }
        let read = || paths.iter().map(|path| StatePart::read(path).unwrap());
        let merged = merge(read().collect()).unwrap();
        assert_eq!(merged.gaps, []);
        assert_eq!(merged.results, [whole.unwrap()], "{extent:?}");
        assert!(merged.results[0].failing > 0, "a discipline that promises nothing");
        let gaps = merge(read().skip(1).collect()).unwrap().gaps;
        assert_eq!(gaps, [Gap::Missing(3, 3)]);
        let gaps = merge(read().chain(read().take(1)).collect()).unwrap().gaps;
        assert_eq!(gaps, [Gap::Twice(paths[0].clone(), paths[0].clone())]);
        // The last line was being written.
        let text = fs::read(&paths[1]).unwrap();
        fs::write(&paths[1], &text[..text.len() - 2]).unwrap();
        let gaps = merge(read().collect()).unwrap().gaps;
        assert_eq!(gaps, [Gap::CutShort { path: paths[1].clone(), workloads: (0, 1) }]);
        let mut other = settings(Discipline::Async, extent, 2);
        (other.search.shard, other.search.seed) = ((1, 3), 99);
        let path = dir.path().join("other");
        StateFile::open(&path, &other.head("ufs1", "rename-across x1", 1)).unwrap();
        let error = merge(read().chain([StatePart::read(&path).unwrap()]).collect()).unwrap_err();
        assert!(error.to_string().contains("seed 99"), "{error}");
    }
}

#[test]
fn the_same_seed_gives_the_same() {
    let target = &FORMATS[1];
    let scripts = workloads(target, "create,sync,rename-over");
    let once = |seed| {
        let mut settings = settings(Discipline::Async, Extent::Sample(90), 3);
        settings.search.seed = seed;
        Campaign::new(target, settings).unit(&scripts[0], &|_| {}).unwrap()
    };
    assert_eq!(once(5), once(5));
    assert_ne!(once(5).codes, once(6).codes);
}

/// A device whose reads fail after so many.
struct Failing {
    device: MemoryDevice,
    left: AtomicI64,
}

impl BlockDevice for Failing {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(DeviceError::Io { at, source: std::io::Error::other("worn out") });
        }
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn a_device_that_fails_ends_the_search_with_its_error() {
    let target = &FORMATS[1];
    let script = workloads(target, "mkdir").remove(0);
    let base = prepare(target, "mkdir", &script.setup).unwrap();
    let run = record(target, &base, &script, &RunOptions::new(Discipline::SoftUpdates)).unwrap();
    let promises = Promises::of(Discipline::SoftUpdates);
    let subject = Subject { target, promises, log: &run.log, run: Some(&run) };
    for reads in [0, 1, 10, 100, 1000] {
        let device = MemoryDevice::new(base.image.to_vec());
        let base: Arc<dyn BlockDevice> = Arc::new(Failing { device, left: AtomicI64::new(reads) });
        let found = explore(&subject, &base, &Search::exhaustive(1), &|_| {});
        assert!(matches!(found, Err(DeviceError::Io { .. })), "after {reads} reads: {found:?}");
    }
}

#[test]
fn a_workload_that_cannot_be_done_names_its_line() {
    let script = parse("w.txt", "mkdir A\n\nunlink A/nothing\n").unwrap();
    let settings = settings(Discipline::SoftUpdates, Extent::Exhaustive, 1);
    let error = Campaign::new(&FORMATS[0], settings).unit(&script, &|_| {}).unwrap_err();
    assert!(matches!(error, CampaignError::Run(_)));
    let text = error.to_string();
    assert!(text.contains("w.txt") && text.contains("line 3") && text.contains("unlink"), "{text}");
}

#[test]
#[ignore = "half an hour: cargo test --release -p seekless-crash -- --ignored"]
fn all_pairs_survive_two_hundred_states_each() {
    for discipline in [Discipline::SoftUpdates, Discipline::Sync, Discipline::Normal] {
        for target in &FORMATS {
            let settings = settings(discipline, Extent::Sample(200), 3);
            let (wrong, states) = look(target, settings, &workloads(target, "all"));
            assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            println!("{discipline} on {}: {} states", target.name(), states.iter().sum::<u64>());
        }
    }
}
