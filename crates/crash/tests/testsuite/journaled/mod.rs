//! The journal of soft updates: volumes of crash states of the engine's soft updates, with journals
//! that have the records which FreeBSD writes before each change. A recovery by the journal makes
//! the same volume as a check of the whole.

mod forged;
mod hostile;
mod rules;
mod unusable;
mod volume;
mod writer;

use crate::slice::some_or_all;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::Discipline;
use seekless_crash::campaign::{Sequences, built_in};
use seekless_crash::driver::{Base, Run, RunOptions, prepare, record};
use seekless_crash::history::Scope;
use seekless_crash::log::{Log, Step};
use seekless_crash::recorder::{Completion, Recorder};
use seekless_crash::script::{Op, parse};
use seekless_crash::states::states;
use seekless_crash::workload::scheduled;
use seekless_crash::{Script, Target};
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ffs::Version;
use seekless_fs::check::{Outcome, Repaired};
use seekless_units::Lba;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use volume::{Fields, JOURNAL, Journaled, manifest};
use writer::{Record, Style, cut_of, put_journal, records, reference, synced};

/// Times that a run is stopped, for its records.
struct Recorded {
    run: Run,
    /// The records of each operation.
    records: Vec<Vec<Record>>,
}

fn apply(log: &Log, steps: impl Iterator<Item = usize>, bytes: &mut [u8]) {
    for step in steps {
        if let Step::Write { at, bytes: written, .. } = &log.steps[step] {
            let at = at.to_bytes().get() as usize;
            bytes[at..at + written.len()].copy_from_slice(written);
        }
    }
}

fn end_of(run: &Run) -> Vec<u8> {
    let mut bytes = run.base.to_vec();
    apply(&run.log, 0..run.log.steps.len(), &mut bytes);
    bytes
}

/// Runs a script, and finds the records of each operation: those that tell the volume before it from
/// the one behind it.
fn recorded(target: &Journaled, base: &Base, script: &Script) -> Recorded {
    let how = RunOptions::new(Discipline::SoftUpdates);
    let run = record(target, base, script, &how).unwrap();
    let fields = Fields::of(&base.image);
    let mut before = fields.parse(&base.image);
    let mut all = Vec::new();
    let mut cut = BTreeSet::new();
    for (n, line) in script.body.iter().enumerate() {
        let begun = Script { body: script.body[..=n].to_vec(), ..script.clone() };
        let part = record(target, base, &begun, &how).unwrap();
        let after = fields.parse(&end_of(&part));
        let mut found = records(&before, &after);
        cut.extend(found.iter().filter_map(cut_of).map(|(ino, _)| ino));
        if let Op::Fsync(_) = line.op {
            let promises = run.history.promises.iter().filter(|promise| promise.moment == n + 1);
            for promise in promises {
                let Scope::File(file) = promise.scope else { continue };
                let ino = run.history.files[file].ino.get();
                found.extend(cut.remove(&ino).then(|| synced(ino)));
            }
        }
        all.push(found);
        before = after;
    }
    Recorded { run, records: all }
}

fn preened(bytes: Vec<u8>) -> (Repaired, Vec<u8>) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let repaired = seekless_ffs::preen(device.clone()).unwrap();
    (repaired, contents(device.as_ref()))
}

fn contents(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    bytes
}

fn findings(bytes: &[u8]) -> Vec<String> {
    findings_of(Arc::new(MemoryDevice::new(bytes.to_vec())))
}

fn findings_of(device: Arc<dyn BlockDevice>) -> Vec<String> {
    let report = seekless_ffs::check(device).unwrap();
    report
        .findings
        .iter()
        .map(|finding| format!("{} {}: {}", finding.code(), finding.location, finding.what))
        .collect()
}

/// Counts of a search.
#[derive(Default, Debug)]
struct Seen {
    states: u64,
    /// Recoveries that were cut off.
    cuts: u64,
    /// States with files that were cut and not durable, of which the journal may take more.
    shortened: u64,
    /// States in which a full check connects directories that never had a name.
    homeless: u64,
    /// States in which a directory had two names.
    renamed: u64,
    /// States of which a full check asks.
    asked: u64,
}

/// A state with a journal, recovered.
fn look_at(
    bytes: &[u8],
    all: &[Record],
    random: &mut Pcg64Mcg,
    seen: &mut Seen,
) -> Result<(), String> {
    let fields = Fields::of(bytes);
    let mut plain = bytes.to_vec();
    fields.set_journaled(&mut plain, false);
    let (whole, plain) = preened(plain);
    if whole.outcome == Outcome::Left {
        // A directory with two names.
        seen.asked += 1;
    }
    let mut state = bytes.to_vec();
    // The root's first name: it would be lost.
    let poison = [reference(writer::REMOVE, 2, (2, 0), 1, 0o40_755); 3];
    let sectors = JOURNAL / 4096 * 8;
    let start = match random.next_u64() % 3 {
        0 => 0,
        1 => sectors - 1 - random.next_u64() as usize % 20,
        _ => random.next_u64() as usize % sectors,
    };
    let first = 2 + random.next_u64() % 1000;
    put_journal(&mut state, all, Style { sector: 512, first, start, random, poison: &poison });
    let before = findings(&state);
    if !before.iter().any(|finding| finding.starts_with("journal.pending")) || before.len() > 2 {
        return Err(format!("as checked: {before:?}"));
    }
    let (repaired, recovered) = preened(state.clone());
    let codes: Vec<_> = repaired.report.findings.iter().map(|finding| finding.code()).collect();
    if repaired.outcome != Outcome::Corrected
        || codes != ["journal.pending", "superblock.not-clean"]
    {
        return Err(format!("recovered: {:?} {:?}", repaired.outcome, repaired.report.findings));
    }
    let after = findings(&recovered);
    if !after.is_empty() {
        return Err(format!("after: {after:?}"));
    }
    let mut open: BTreeSet<u32> = BTreeSet::new();
    for (ino, cuts) in all.iter().filter_map(cut_of) {
        if cuts {
            open.insert(ino);
        } else {
            open.remove(&ino);
        }
    }
    if whole.outcome != Outcome::Left {
        compare(&plain, &recovered, &open, seen)?;
    }
    seen.states += 1;
    if seen.states.is_multiple_of(16) {
        cut_off(&state, &recovered, seen)?;
    }
    Ok(())
}

/// Compares the volume that a full check makes with that of the journal.
fn compare(
    plain: &[u8],
    recovered: &[u8],
    open: &BTreeSet<u32>,
    seen: &mut Seen,
) -> Result<(), String> {
    let fields = Fields::of(plain);
    let (wanted, found) = (manifest(plain), manifest(recovered));
    let directories = |all: &BTreeMap<String, (String, Vec<u8>)>| -> BTreeMap<String, String> {
        let is_directory = |text: &str| text.contains(" Directory ");
        let all = all.iter().filter(|(_, (text, _))| is_directory(text));
        all.map(|(path, (text, _))| (text.split(' ').next().unwrap().into(), path.clone()))
            .collect()
    };
    let (theirs, ours) = (directories(&wanted), directories(&found));
    if theirs.iter().any(|(ino, path)| ours.get(ino).is_some_and(|ours| ours != path)) {
        // A directory had two names: the journal says which one is new, and it stays.
        seen.renamed += 1;
        return found.iter().try_for_each(|(path, (text, contents))| {
            let ino = |text: &str| text.split(' ').next().unwrap().to_string();
            let same = wanted
                .values()
                .any(|(other, others)| ino(other) == ino(text) && others.starts_with(contents));
            if same { Ok(()) } else { Err(format!("{path}: only by the journal")) }
        });
    }
    let mut is_shorter = false;
    // The full check connects files in `lost+found` that never had a name on the disk.
    let has_home = wanted.contains_key("/lost+found") && !found.contains_key("/lost+found");
    seen.homeless += u64::from(has_home);
    let is_there = |path: &str| !has_home || !path.starts_with("/lost+found");
    let shown = |text: &str| match text.split(' ').collect::<Vec<_>>()[..] {
        [ino, kind, _, size, ..] if has_home => format!("{ino} {kind} {size}"),
        _ => text.to_string(),
    };
    for (path, (text, contents)) in wanted.iter().filter(|(path, _)| is_there(path)) {
        let Some((other, others)) = found.get(path) else {
            return Err(format!("{path} is lost: {text}"));
        };
        let ino = text.split(' ').next().unwrap().parse().unwrap();
        let is_cut =
            open.contains(&ino) && contents.starts_with(others) && others.len() < contents.len();
        is_shorter |= is_cut;
        if !is_cut && (shown(text) != shown(other) || contents != others) {
            return Err(format!("{path}: {text}, by the journal {other}"));
        }
    }
    if let Some(path) = found.keys().find(|path| !wanted.contains_key(*path)) {
        return Err(format!("{path}: only by the journal"));
    }
    seen.shortened += u64::from(is_shorter);
    let totals = (fields.totals(plain), fields.totals(recovered));
    if totals.0 != totals.1 && !is_shorter && !has_home {
        return Err(format!("totals {totals:?}"));
    }
    Ok(())
}

/// Recovers a state from which a recovery was cut off, at each of its writes.
fn cut_off(state: &[u8], recovered: &[u8], seen: &mut Seen) -> Result<(), String> {
    let recorder =
        Arc::new(Recorder::new(Arc::new(MemoryDevice::new(state.to_vec())), Completion::AtOnce));
    seekless_ffs::preen(recorder.clone()).unwrap();
    let log = recorder.take();
    let wanted = manifest(recovered);
    for end in 1..log.steps.len() {
        let mut bytes = state.to_vec();
        apply(&log, 0..end, &mut bytes);
        let (repaired, again) = preened(bytes);
        seen.cuts += 1;
        if repaired.outcome == Outcome::Left || !findings(&again).is_empty() {
            return Err(format!("cut off at {end}: {:?}", repaired.report.findings));
        }
        if manifest(&again) != wanted {
            return Err(format!("cut off at {end}: other files"));
        }
    }
    Ok(())
}

/// Looks at states of a script.
fn look(
    target: &Journaled,
    script: &Script,
    (bound, one_in): (u64, u64),
    seed: u64,
    seen: &mut Seen,
) -> Result<(), String> {
    let base = prepare(target, &script.name, &script.setup).unwrap();
    let Recorded { run, records } = recorded(target, &base, script);
    let mut bytes = run.base.to_vec();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for epoch in run.log.epochs(0) {
        let before = MemoryDevice::new(bytes.clone());
        let found = states(&run.log, &epoch, &before, bound, seed).unwrap();
        for choice in &found.choices {
            if !random.next_u64().is_multiple_of(one_in) {
                continue;
            }
            let state = MemoryDevice::new(bytes.clone());
            found.apply(&run.log, choice, &state).unwrap();
            let state = contents(&state);
            if Fields::of(&state).is_clean(&state) {
                continue;
            }
            let position = match random.next_u64() % 2 {
                0 => found.position(choice),
                _ => epoch.steps.end,
            };
            let deeds = run.history.deeds.iter().zip(&records);
            let begun = deeds.take_while(|(deed, _)| deed.began <= position);
            let all: Vec<Record> = begun.flat_map(|(_, records)| records).copied().collect();
            look_at(&state, &all, &mut random, seen).map_err(|what| {
                let writes = found.describe(&run.log, choice).join("\n");
                let records: Vec<String> = all.iter().map(show).collect();
                let records = records.join("\n");
                format!("{script}\n{what}\n{writes}\n{records}\n{} {}", script.name, target.name())
            })?;
        }
        apply(&run.log, epoch.steps.clone(), &mut bytes);
    }
    Ok(())
}

fn show(record: &Record) -> String {
    let word = |at: usize, len: usize| volume::get(record, at, len);
    match record[0] {
        1 | 2 => format!(
            "{} ino {} dir {} at {} links {} mode {:o}",
            if record[0] == 1 { "add" } else { "remove" },
            word(4, 4),
            word(8, 4),
            word(16, 8),
            word(12, 2),
            word(14, 2)
        ),
        3 | 4 => format!(
            "{} ino {} block {} part {} frags {}",
            if record[0] == 3 { "new" } else { "free" },
            word(4, 4),
            word(8, 8),
            word(16, 8).cast_signed(),
            word(24, 2)
        ),
        op => format!("{op} ino {} {} {} {}", word(4, 4), word(8, 8), word(16, 8), word(24, 8)),
    }
}

fn scripts(target: &Journaled, name: &str, count: u64, seed: u64) -> Vec<Script> {
    let all = built_in(name, target.has_xattrs(), Sequences { count, seed }).unwrap();
    // FreeBSD does not exchange names.
    let exchanges =
        |script: &Script| script.body.iter().any(|line| matches!(line.op, Op::Exchange(..)));
    let all = all.expect("known").into_iter().filter(|script| !exchanges(script));
    all.map(|script| Script { body: with_names(&script), ..script }).collect()
}

/// The operations of a script, but for those on an open file without a name: no image shows its
/// blocks.
fn with_names(script: &Script) -> Vec<seekless_crash::script::Line> {
    let (mut open, mut is_nameless) = (None, false);
    let mut body = script.body.clone();
    body.retain(|line| {
        match &line.op {
            Op::Open(path) => (open, is_nameless) = (Some(path.clone()), false),
            Op::Close => (open, is_nameless) = (None, false),
            Op::Unlink(path) => is_nameless |= open.as_ref() == Some(path),
            Op::Rename(from, to) if open.as_ref() == Some(from) => open = Some(to.clone()),
            Op::Rename(_, to) => is_nameless |= open.as_ref() == Some(to),
            Op::Write(None, ..)
            | Op::Append(None, _)
            | Op::Truncate(None, _)
            | Op::Fallocate(None, ..)
            | Op::SetXattr(None, ..)
            | Op::RemoveXattr(None, _)
            | Op::Fsync(None) => return !is_nameless,
            _ => {}
        }
        true
    });
    body
}

fn search(name: &str, count: u64, seed: u64, bound: (u64, u64)) -> Seen {
    let mut seen = Seen::default();
    for version in [Version::Ufs2, Version::Ufs1] {
        let target = Journaled::of(version);
        for (n, script) in scripts(&target, name, count, seed).iter().enumerate() {
            let script = scheduled(script, n as u32 % 4, seed);
            if let Err(what) = look(&target, &script, bound, seed + n as u64, &mut seen) {
                panic!("{what}");
            }
        }
    }
    println!("{name}: {seen:?}");
    seen
}

#[test]
fn a_recovery_by_the_journal_makes_what_a_full_check_makes() {
    let seen = search("random:8", 2, 1, (some_or_all(3, 6), some_or_all(6, 4)));
    assert!(seen.states > some_or_all(12, 60), "{seen:?}");
}

#[test]
fn files_with_holes_lose_their_index_blocks() {
    let text = "open file\nwrite 0 4096\nwrite 116000 4000\nclose\nbegin\ntruncate file 60000\n\
                fsync file\nwrite file 59000 30000\ntruncate file 4000\nfsync file\nunlink file\nsync";
    let script = parse("holes", text).unwrap();
    let mut seen = Seen::default();
    for version in [Version::Ufs2, Version::Ufs1] {
        for schedule in 0..2 {
            let script = scheduled(&script, schedule, 5);
            look(&Journaled::of(version), &script, (some_or_all(8, 16), 3), 3, &mut seen).unwrap();
        }
    }
    assert!(seen.states > some_or_all(5, 10), "{seen:?}");
}

/// A volume with files that was not unmounted, and has a journal without records.
fn with_files(version: Version) -> Vec<u8> {
    with_files_of(&Journaled::of(version))
}

fn with_files_of(target: &Journaled) -> Vec<u8> {
    let script = scripts(target, "singles", 1, 1).swap_remove(0);
    let base = prepare(target, "files", &script.setup).unwrap();
    let mut bytes = base.image.to_vec();
    let fields = Fields::of(&bytes);
    bytes[fields.at + 209] = 0;
    journal(&mut bytes, &[]);
    bytes
}

fn journal(bytes: &mut [u8], records: &[Record]) {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let style = Style { sector: 512, first: 9, start: 100, random: &mut random, poison: &[] };
    put_journal(bytes, records, style);
}

#[test]
fn files_that_were_in_use_without_a_name_are_released() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let mut bytes = with_files(version);
        let fields = Fields::of(&bytes);
        let before = fields.parse(&bytes);
        let is_file = |ino: &u32| before.nodes[ino].mode >> 12 == 8 && before.nodes[ino].links == 1;
        let named = |name: &[u8]| {
            let found = before.names.iter().find(|(_, (ino, _, is))| is == name && is_file(ino));
            let (slot, (ino, ..)) = found.expect("a file of the setup");
            (*slot, *ino)
        };
        let files = [named(b"bar"), named(b"large"), named(b"foo")];
        let mut next = 0;
        for ((dir, at), ino) in files {
            let (start, _) = before.nodes[&dir].blocks[&0];
            let entry = start as usize * fields.fsize + at as usize;
            volume::put(&mut bytes, entry, 4, 0);
            let links = fields.inode_at(ino) + 2;
            volume::put(&mut bytes, links, 2, 0);
            fields.put_next(&mut bytes, ino, next);
            next = ino;
        }
        volume::put(&mut bytes, fields.at + 1216, 4, u64::from(next));
        let free = fields.totals(&bytes);
        let (repaired, recovered) = preened(bytes.clone());
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
        assert_eq!(findings(&recovered), Vec::<String>::new());
        let after = fields.parse(&recovered);
        assert!(files.iter().all(|(_, ino)| !after.nodes.contains_key(ino)));
        assert_eq!(fields.totals(&recovered)[2], free[2] + 3, "three inodes");
        assert_eq!(volume::get(&recovered, fields.at + 1216, 4), 0);
        cut_off(&bytes, &recovered, &mut Seen::default()).unwrap();
        // A list that leads to itself.
        fields.put_next(&mut bytes, files[0].1, next);
        assert_eq!(preened(bytes.clone()).0.outcome, Outcome::Left);
        assert!(findings(&bytes)[0].starts_with("journal.damaged"), "{:?}", findings(&bytes));
    }
}

/// Writes the volumes of `crates/ffs/tests/images/suj-*` to the directory `IMAGES`.
#[test]
#[ignore = "images of other tests: IMAGES=DIR"]
fn images() {
    let dir = std::path::PathBuf::from(std::env::var_os("IMAGES").expect("a directory"));
    let text = "mkdir kept\ncreate kept/whole\nwrite kept/whole 0 70000\nmkdir old\n\
                create old/file\nwrite old/file 0 30000\ncreate name\nwrite name 0 9000\n\
                begin\nunlink old/file\nrmdir old\nmkdir new\ncreate new/file\n\
                write new/file 0 20000\nrename name kept/name\nlink kept/whole kept/link\n\
                truncate kept/whole 5000\nsync";
    let script = parse("image", text).unwrap();
    for (version, name) in [(Version::Ufs1, "suj-ufs1"), (Version::Ufs2, "suj-ufs2")] {
        let target = Journaled::of(version);
        let base = prepare(&target, name, &script.setup).unwrap();
        let Recorded { run, records } = recorded(&target, &base, &script);
        let all: Vec<Record> = records.concat();
        let mut best: Option<(usize, Vec<u8>)> = None;
        let mut bytes = run.base.to_vec();
        for step in 0..run.log.steps.len() {
            apply(&run.log, step..step + 1, &mut bytes);
            let fields = Fields::of(&bytes);
            let mut plain = bytes.clone();
            fields.set_journaled(&mut plain, false);
            let most = best.as_ref().map_or(0, |(found, _)| *found);
            if !fields.is_clean(&bytes) && findings(&plain).len() > most {
                best = Some((findings(&plain).len(), bytes.clone()));
            }
        }
        let (_, mut state) = best.expect("a state that is not clean");
        journal(&mut state, &all);
        std::fs::write(dir.join(name), state).unwrap();
    }
}

#[test]
#[ignore = "minutes"]
fn long_search() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().expect("a number"));
    for (name, count) in [("singles", 1), ("random:20", 20), ("moves:20", 20)] {
        search(name, count, seed, (16, 3));
    }
}
