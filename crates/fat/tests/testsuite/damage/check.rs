//! What is found in damaged images, and what becomes of them, with fsck.fat as the judge.

use super::patient::Patient;
use super::recipes::{self, Recipe};
use super::{Random, images, skip};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_fat::{LostChains, PROBLEMS, check, preen, repair};
use seekless_fs::check::Outcome;
use seekless_fs::check::Report;
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Lba};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn device(patient: &Patient) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(patient.bytes.clone()))
}

pub(crate) fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).expect("read");
    bytes
}

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.code()).collect()
}

/// Whether fsck.fat -n has nothing to say, and what it says; `None` where it is not
/// installed. Some of what it tells it does not count as an error.
fn judge(bytes: &[u8]) -> Option<(bool, String)> {
    let mut file = tempfile::NamedTempFile::new().expect("file");
    file.write_all(bytes).expect("write");
    let Ok(output) = Command::new("fsck.fat").arg("-n").arg(file.path()).output() else {
        skip::skip("fsck.fat is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let is_usual = |line: &str| {
        line.starts_with("fsck.fat ")
            || line.ends_with(" clusters")
            || line.is_empty()
            || line.contains("FAT32 according to fat_length")
            || line.contains("less than the required minimum of 65525")
            || line.contains("lead to problems on some systems")
    };
    Some((output.status.success() && said.lines().all(is_usual), said))
}

/// The files that damage does not touch, with their contents.
fn untouched(patient: &Patient) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for path in ["/dir/SMALL.TXT", "/dir/snow ☃ Ünïcode.txt"] {
        if let Ok(contents) = patient.try_read(path) {
            found.push((path.to_string(), contents));
        }
    }
    found
}

fn each(mut test: impl FnMut(&Recipe, Patient, Patient)) {
    let recipes = recipes::all();
    assert!(recipes.len() >= 40, "only {} recipes", recipes.len());
    for recipe in &recipes {
        for whole in Patient::all().filter(|patient| recipe.bits.contains(&patient.bits)) {
            let mut damaged = whole.copy();
            (recipe.damage)(&mut damaged);
            assert!(damaged.bytes != whole.bytes, "{}: nothing was done", recipe.name);
            test(recipe, whole, damaged);
        }
    }
}

#[test]
fn sound_images_are_clean() {
    for patient in Patient::all() {
        let report = check(device(&patient)).expect("check");
        assert!(report.is_clean(), "{report:#?}");
        assert_eq!((report.tally.inodes, report.tally.directories), (51, 4));
        let repaired = repair(device(&patient), LostChains::Kept).expect("repair");
        assert_eq!((repaired.outcome, repaired.writes), (Outcome::Clean, 0));
    }
}

#[test]
fn damage_is_found_as_what_it_is_and_fsck_agrees() {
    let mut met = BTreeSet::new();
    let mut wrong = Vec::new();
    each(|recipe, _, damaged| {
        let what = format!("{}, FAT{}", recipe.name, damaged.bits);
        let report = check(device(&damaged)).expect(&what);
        // What changes the FAT of FAT32 makes its count wrong, too.
        let counted = recipe.codes.contains(&"fsinfo.count");
        let codes = codes(&report).into_iter().filter(|code| counted || *code != "fsinfo.count");
        let found = (codes.collect::<Vec<_>>(), report.unexpected == 0);
        if found != (recipe.codes.to_vec(), recipe.expected) {
            wrong.push(format!("{what}: {found:?}"));
        }
        met.extend(report.findings.iter().map(|finding| finding.code()));
        for finding in &report.findings {
            assert!(finding.location.block.is_some(), "{what}: {finding:?}");
        }
        if let Some((clean, said)) = judge(&damaged.bytes)
            && clean == recipe.judged
        {
            wrong.push(format!("{what}: {said}"));
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let known: BTreeSet<&str> = PROBLEMS.iter().map(|problem| problem.code).collect();
    let rest: Vec<_> = known.difference(&met).copied().collect();
    // The others have tests of their own.
    let own = ["directory.too-long", "entry.kind", "entry.label", "name.duplicate-long"];
    assert_eq!(rest, [&own[..], &["root.cluster", "root.full"]].concat());
}

#[test]
fn repaired_images_are_clean_to_fsck_and_keep_what_was_not_hit() {
    each(|recipe, _, damaged| {
        for lost in [LostChains::Kept, LostChains::Freed] {
            let what = format!("{}, FAT{}, {lost:?}", recipe.name, damaged.bits);
            let before = untouched(&damaged);
            let target = device(&damaged);
            let repaired = repair(target.clone(), lost).expect(&what);
            assert_eq!(repaired.outcome, Outcome::Corrected, "{what}: {:#?}", repaired.report);
            let after = Patient { bytes: bytes_of(target.as_ref()), ..damaged.copy() };
            let report = check(device(&after)).expect(&what);
            assert!(report.is_clean(), "{what}: {report:#?}");
            if let Some((clean, said)) = judge(&after.bytes) {
                assert!(clean, "{what}: {said}");
            }
            for (path, contents) in before {
                // A name twice, and a short name that was bad, have become others.
                if !recipe.codes.iter().any(|code| code.starts_with("name.")) {
                    assert_eq!(after.try_read(&path).expect(&what), contents, "{what}: {path}");
                }
            }
            let has_files =
                after.names("/").expect(&what).iter().any(|name| name.ends_with(".REC"));
            let renames = recipe.codes.iter().any(|code| ["name.short"].contains(code));
            let wanted = recipe.codes.contains(&"chain.lost") && lost == LostChains::Kept;
            if !renames {
                assert_eq!(has_files, wanted, "{what}");
            }
        }
    });
}

#[test]
fn a_preen_repairs_what_a_crash_may_leave_and_nothing_else() {
    each(|recipe, _, damaged| {
        let what = format!("{}, FAT{}", recipe.name, damaged.bits);
        let target = device(&damaged);
        let preened = preen(target.clone(), LostChains::Kept).expect(&what);
        if recipe.expected {
            assert_eq!(preened.outcome, Outcome::Corrected, "{what}: {:#?}", preened.report);
        } else {
            assert_eq!((preened.outcome, preened.writes), (Outcome::Left, 0), "{what}");
            assert!(bytes_of(target.as_ref()) == damaged.bytes, "{what}: something was written");
        }
    });
}

/// A device that fails after some writes.
struct Failing {
    inner: MemoryDevice,
    left: AtomicU64,
}

impl BlockDevice for Failing {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(DeviceError::ReadOnly);
        }
        self.left.store(left - 1, Ordering::Relaxed);
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn repairs_that_were_interrupted_are_completed() {
    each(|recipe, _, damaged| {
        let kept = untouched(&damaged);
        for limit in 0..40 {
            let what = format!("{}, FAT{}, {limit} writes", recipe.name, damaged.bits);
            let inner = MemoryDevice::new(damaged.bytes.clone());
            let failing = Arc::new(Failing { inner, left: AtomicU64::new(limit) });
            match repair(failing.clone(), LostChains::Kept) {
                Ok(_) => break,
                Err(error) => assert!(matches!(error, FsError::Device(_)), "{what}: {error}"),
            }
            failing.left.store(u64::MAX, Ordering::Relaxed);
            let repaired = repair(failing.clone(), LostChains::Kept).expect(&what);
            assert_ne!(repaired.outcome, Outcome::Left, "{what}: {:#?}", repaired.report);
            let after = Patient { bytes: bytes_of(failing.as_ref()), ..damaged.copy() };
            assert!(check(device(&after)).expect(&what).is_clean(), "{what}");
            for (path, contents) in &kept {
                if !recipe.codes.iter().any(|code| code.starts_with("name.")) {
                    assert_eq!(&after.try_read(path).expect(&what), contents, "{what}: {path}");
                }
            }
        }
    });
}

/// A file with a chain that is longer than its length. The entry of the surplus cluster lies in an
/// earlier sector of the FAT than the entry that links to it.
fn long_chain(mut patient: Patient) -> Patient {
    let (path, contents) = untouched(&patient)
        .into_iter()
        .find(|(_, bytes)| (1..=512).contains(&bytes.len()))
        .unwrap();
    let free = |patient: &Patient, cluster: usize| {
        let at = patient.entry(0, cluster);
        match patient.bits {
            12 => patient.le16(at) >> (cluster % 2 * 4) & 0xFFF == 0,
            16 => patient.le16(at) == 0,
            _ => patient.le32(at) == 0,
        }
    };
    let low = (2..).find(|&cluster| free(&patient, cluster)).unwrap();
    let high = (low + 350..).find(|&cluster| free(&patient, cluster)).unwrap();
    let old = patient.first(&path);
    let at = patient.cluster(high);
    patient.put(at, &contents).link(high, low as u32).link(low, 0x0FFF_FFFF).link(old, 0);
    patient.set_first(&path, high);
    patient
}

#[test]
fn a_preen_that_was_cut_off_is_completed_by_the_next() {
    let mut cases = 0;
    let mut cut_off = |what: &str, damaged: &Patient| {
        let kept = untouched(damaged);
        for limit in 0..40 {
            let what = format!("{what}, FAT{}, {limit} writes", damaged.bits);
            let inner = MemoryDevice::new(damaged.bytes.clone());
            let failing = Arc::new(Failing { inner, left: AtomicU64::new(limit) });
            if preen(failing.clone(), LostChains::Kept).is_ok() {
                assert!(limit > 0, "{what}: nothing was written");
                break;
            }
            failing.left.store(u64::MAX, Ordering::Relaxed);
            let preened = preen(failing.clone(), LostChains::Kept).expect(&what);
            assert_ne!(preened.outcome, Outcome::Left, "{what}: {:#?}", preened.report);
            let after = Patient { bytes: bytes_of(failing.as_ref()), ..damaged.copy() };
            for (path, contents) in &kept {
                assert_eq!(&after.try_read(path).expect(&what), contents, "{what}: {path}");
            }
            cases += 1;
        }
    };
    for patient in Patient::all() {
        cut_off("a chain behind a length", &long_chain(patient));
    }
    each(|recipe, _, damaged| {
        if recipe.expected && !recipe.codes.iter().any(|code| code.starts_with("name.")) {
            cut_off(recipe.name, &damaged);
        }
    });
    assert!(cases > 50, "{cases} cases");
}

/// A file that was made longer, and lost the link to its new cluster: where it ended in its
/// last cluster is not known, and what is behind that is somebody else's.
#[test]
fn a_length_past_the_chain_shows_no_old_bytes() {
    for mut patient in Patient::all() {
        let at = patient.cluster(*patient.chain("/STAYS").last().expect("cluster"));
        patient.put(at + 100, b"somebody else's");
        patient.set_size("/STAYS", 3000);
        for lost in [LostChains::Kept, LostChains::Freed] {
            let target = device(&patient);
            repair(target.clone(), lost).expect("repair");
            let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
            assert_eq!(after.try_read("/STAYS").expect("read"), b"");
            let rest = after.try_read("/FSCK0000.REC");
            match lost {
                LostChains::Kept => assert_eq!(&rest.expect("read")[..5], b"small"),
                LostChains::Freed | LostChains::ByMark => assert!(rest.is_err()),
            }
        }
    }
}

#[test]
fn chains_without_a_name_are_files_in_the_root() {
    for mut patient in Patient::all() {
        let end = if patient.bits == 12 { 0xFFF } else { 0x0FFF_FFFF };
        // Forty of them: more than the free slots of FAT32's root directory.
        for n in 0..40 {
            patient.link(200 + 2 * n, 201 + 2 * n as u32).link(201 + 2 * n, end);
            let at = patient.cluster(200 + 2 * n);
            patient.put(at, format!("chain {n:02}").as_bytes());
        }
        let target = device(&patient);
        let repaired = preen(target.clone(), LostChains::Kept).expect("repair");
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report);
        let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
        for n in 0..40 {
            let contents = after.try_read(&format!("/FSCK{n:04}.REC")).expect("read");
            assert_eq!(contents.len(), 1024);
            assert_eq!(contents[..8], *format!("chain {n:02}").as_bytes());
        }
        if let Some((clean, said)) = judge(&after.bytes) {
            assert!(clean, "{said}");
        }
        let image = after.opened();
        let free = patient.opened().geometry().free_blocks;
        let more = if patient.bits == 32 { 2..=3 } else { 0..=0 };
        assert!(more.contains(&(free - image.geometry().free_blocks)), "clusters of the root");
    }
}

/// Fills a fixed root directory with empty files, but for some slots.
fn fill_root(patient: &mut Patient, left: usize) {
    let root = patient.cluster(2) - 512 * 32;
    let free = |at: &usize| matches!(patient.bytes[*at], 0 | 0xE5);
    let slots: Vec<usize> = (0..512).map(|n| root + 32 * n).filter(free).collect();
    for (n, at) in slots.iter().enumerate().take(slots.len() - left) {
        let mut entry = [0; 32];
        entry[..11].copy_from_slice(format!("FILL{n:04}   ").as_bytes());
        patient.put(*at, &entry);
    }
}

/// What fsck.fat gives up at: no room in the root directory for chains without a name.
#[test]
fn chains_without_a_name_come_into_a_directory_or_are_freed_where_the_root_is_full() {
    for bits in ["fat12", "fat16"] {
        for left in [0, 1, 2, 39] {
            let what = format!("{bits}, {left} slots");
            let mut patient = Patient::new(bits);
            let end = if patient.bits == 12 { 0xFFF } else { 0xFFFF };
            for n in 0..40usize {
                patient.link(200 + n, end);
                let at = patient.cluster(200 + n);
                patient.put(at, format!("chain {n:02}").as_bytes());
            }
            fill_root(&mut patient, left);
            // Something else to repair.
            patient.put(patient.cluster(patient.first("/dir")), &[0xE5]);
            let target = device(&patient);
            let repaired = repair(target.clone(), LostChains::Kept).expect("repair");
            assert_eq!(repaired.outcome, Outcome::Corrected, "{what}: {:#?}", repaired.report);
            let codes = codes(&repaired.report);
            assert!(codes.contains(&"root.full") && codes.contains(&"directory.dot"), "{codes:?}");
            let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
            if let Some((clean, said)) = judge(&after.bytes) {
                assert!(clean, "{what}: {said}");
            }
            assert_eq!(after.try_read("/dir/SMALL.TXT").expect("read"), b"small");
            if left == 0 {
                let free = |patient: &Patient| patient.opened().geometry().free_blocks;
                assert_eq!(free(&after), free(&patient) + 40, "{what}");
                continue;
            }
            for n in 0..40 {
                let name = format!("/FSCK0000.DIR/FSCK{n:04}.REC");
                let contents = after.try_read(&name).expect(&what);
                assert_eq!(contents[..8], *format!("chain {n:02}").as_bytes(), "{what}");
            }
        }
    }
}

/// A directory that is marked as a file keeps what is in it, and a file that is marked as a
/// directory keeps its length.
#[test]
fn files_and_directories_that_are_marked_as_the_other_are_kept() {
    for whole in Patient::all() {
        for (path, attr) in [("/dir", 0x20), ("/dir/below", 0), ("/pieces", 0x30), ("/many", 1)] {
            let mut patient = whole.copy();
            let at = patient.short(path);
            patient.put(at + 11, &[attr]);
            let report = check(device(&patient)).expect("check");
            assert_eq!(codes(&report), ["entry.kind"], "{path}: {report:#?}");
            let target = device(&patient);
            let preened = preen(target.clone(), LostChains::Kept).expect("preen");
            assert_eq!((preened.outcome, preened.writes), (Outcome::Left, 0), "{path}");
            repair(target.clone(), LostChains::Kept).expect("repair");
            let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
            for path in ["/dir/below/a text with a long name.text", "/pieces", "/dir/SMALL.TXT"] {
                assert_eq!(after.read(path).expect(path), whole.read(path).expect(path));
            }
            assert_eq!(after.names("/many").expect("names").len(), 41);
            if let Some((clean, said)) = judge(&after.bytes) {
                assert!(clean, "{path}: {said}");
            }
        }
    }
}

/// An empty file that leads to another's clusters does not free them.
#[test]
fn what_lies_behind_a_length_may_be_another_file() {
    for whole in Patient::all() {
        for other in ["/many", "/pieces", "/dir/below"] {
            let mut patient = whole.copy();
            let first = patient.first(other);
            patient.set_first("/dir/empty", first);
            let target = device(&patient);
            preen(target.clone(), LostChains::Kept).expect("preen");
            repair(target.clone(), LostChains::Kept).expect("repair");
            let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
            assert_eq!(after.names("/many").expect(other).len(), 41, "{other}");
            for path in ["/pieces", "/dir/below/a text with a long name.text"] {
                assert_eq!(after.read(path).expect(other), whole.read(path).expect(other));
            }
            assert_eq!(after.read("/dir/empty").expect(other), b"");
            if let Some((clean, said)) = judge(&after.bytes) {
                assert!(clean, "{other}: {said}");
            }
        }
    }
}

/// One byte of `.` or `..` is damaged: the directory stays, with all that is in it.
#[test]
fn damaged_entries_for_itself_and_the_one_above_are_written_again() {
    for whole in Patient::all() {
        let dots = whole.cluster(whole.first("/dir/below"));
        for (at, value) in
            [(0, b' '), (0, 0), (0, 0xE5), (1, b'x'), (32, b'A'), (33, b' '), (43, 0)]
        {
            let mut patient = whole.copy();
            patient.put(dots + at, &[value]);
            let target = device(&patient);
            let repaired = repair(target.clone(), LostChains::Kept).expect("repair");
            assert_eq!(codes(&repaired.report), ["directory.dot"], "{at} {value}");
            let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
            assert_eq!(after.bytes[dots..dots + 12], *b".          \x10");
            assert_eq!(after.bytes[dots + 32..dots + 44], *b"..         \x10");
            let path = "/dir/below/a text with a long name.text";
            assert_eq!(after.read(path).expect("read"), whole.read(path).expect("read"));
            if let Some((clean, said)) = judge(&after.bytes) {
                assert!(clean, "{said}");
            }
        }
        // Another file's entry stands there: it is moved.
        let mut patient = whole.copy();
        let entry = patient.bytes[whole.short("/STAYS")..][..32].to_vec();
        patient.put(dots, &entry).put(whole.short("/STAYS"), &[0xE5]);
        let target = device(&patient);
        repair(target.clone(), LostChains::Kept).expect("repair");
        let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
        assert_eq!(after.read("/dir/below/STAYS").expect("read"), b"small");
        assert_eq!(after.names("/dir/below").expect("names").len(), 2);
        if let Some((clean, said)) = judge(&after.bytes) {
            assert!(clean, "{said}");
        }
    }
}

#[test]
fn a_directory_of_more_entries_than_there_may_be_is_cut_off() {
    // 4,096 clusters of 512 bytes are 65,536 entries.
    let mut patient = Patient::new("fat16");
    let (many, end) = (patient.chain("/many"), 0xFFFF);
    let mut last = *many.last().expect("cluster");
    for cluster in 200..4330 {
        patient.link(last, cluster as u32);
        last = cluster;
    }
    patient.link(last, end);
    let report = check(device(&patient)).expect("check");
    assert_eq!(codes(&report), ["directory.too-long", "chain.lost"], "{report:#?}");
    let target = device(&patient);
    let repaired = repair(target.clone(), LostChains::Freed).expect("repair");
    assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report);
    let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
    assert_eq!(after.names("/many").expect("names").len(), 41);
    assert_eq!(after.chain("/many").len(), 4096);
    if let Some((clean, said)) = judge(&after.bytes) {
        assert!(clean, "{said}");
    }
}

#[test]
fn a_file_that_is_marked_as_a_label_is_a_file_again() {
    for mut patient in Patient::all() {
        let at = patient.short("/dir/SMALL.TXT");
        patient.put(at + 11, &[8]);
        let report = check(device(&patient)).expect("check");
        assert_eq!(codes(&report)[0], "entry.label", "{report:#?}");
        let target = device(&patient);
        let repaired = repair(target.clone(), LostChains::Kept).expect("repair");
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report);
        let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
        if let Some((clean, said)) = judge(&after.bytes) {
            assert!(clean, "{said}");
        }
        assert_eq!(after.read("/dir/SMALL.TXT").expect("read"), b"small");
    }
}

/// An entry that leads to the start or into the middle of another file, and is met before that.
#[test]
fn an_entry_that_leads_into_another_chain_takes_nothing_from_it() {
    for (mut patient, nth) in Patient::all().flat_map(|it| [(it.copy(), 0), (it, 1)]) {
        let path = "/dir/below/a text with a long name.text";
        let (contents, chain) = (patient.try_read(path).expect("read"), patient.chain(path));
        patient.set_first("/STAYS", chain[nth]);
        if let Some((clean, said)) = judge(&patient.bytes) {
            assert!(!clean, "{said}");
        }
        let target = device(&patient);
        repair(target.clone(), LostChains::Kept).expect("repair");
        let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
        assert!(after.try_read(path).expect("read") == contents, "cluster {nth}");
        assert_eq!(&after.try_read("/FSCK0000.REC").expect("read")[..5], b"small");
        if let Some((clean, said)) = judge(&after.bytes) {
            assert!(clean, "{said}");
        }
    }
}

#[test]
fn a_root_directory_whose_cluster_is_free_is_taken_again() {
    let mut patient = Patient::new("fat32");
    let root = patient.le32(44);
    patient.link(root, 0);
    let report = check(device(&patient)).expect("check");
    assert_eq!(codes(&report)[0], "root.cluster", "{report:#?}");
    let target = device(&patient);
    assert_eq!(
        repair(target.clone(), LostChains::Kept).expect("repair").outcome,
        Outcome::Corrected
    );
    let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
    assert!(check(device(&after)).expect("check").is_clean());
    assert_eq!(after.try_read("/dir/SMALL.TXT").expect("read"), b"small");
}

#[test]
fn a_long_name_that_is_there_twice_is_dropped() {
    for mut patient in Patient::all() {
        // "some-longer-name-101" becomes "...-100" in its pieces, which keep their sum.
        let at = patient.short("/many/some-longer-name-101");
        let piece = at - 64;
        assert_eq!(patient.bytes[piece], 0x42);
        let digit =
            (0..32).find(|n| patient.bytes[piece + n] == b'1' && patient.bytes[piece + n + 2] == 0);
        let units: Vec<usize> = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30].to_vec();
        let last = units.iter().rev().find(|&&n| patient.bytes[piece + n] == b'1').copied();
        let at = piece + last.or(digit).expect("digit");
        patient.put(at, b"0");
        let report = check(device(&patient)).expect("check");
        assert_eq!(codes(&report), ["name.duplicate-long"], "{report:#?}");
        let target = device(&patient);
        assert_eq!(
            repair(target.clone(), LostChains::Kept).expect("repair").outcome,
            Outcome::Corrected
        );
        let after = Patient { bytes: bytes_of(target.as_ref()), ..patient.copy() };
        assert_eq!(after.names("/many").expect("names").len(), 41);
        if let Some((clean, said)) = judge(&after.bytes) {
            assert!(clean, "{said}");
        }
    }
}

/// Damage by the seed: whatever is hit, a repair comes to an end, and the image is clean to
/// fsck.fat after it.
#[test]
fn storms_are_weathered() {
    let (clean, judged) = storm(11, 120);
    assert!(clean > 300, "only {clean} were repaired, {judged} judged");
}

/// The same with 9,000 images, from another seed each time that one is given.
#[test]
#[ignore = "takes minutes"]
fn great_storms_are_weathered() {
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (clean, judged) = storm(seed * 1000, 3000);
    assert!(clean > 7000, "only {clean} were repaired, {judged} judged");
}

/// Damages and repairs images; how many were repaired, and how many of them judged.
fn storm(seed: u64, rounds: usize) -> (u32, u32) {
    let (mut clean, mut judged) = (0, 0);
    for (seed, (name, packed)) in (seed..).zip(images::IMAGES) {
        let base = images::unpack(packed);
        let busy: Vec<usize> = (0..base.len()).filter(|&at| base[at] != 0 && at >= 90).collect();
        let mut random = Random(seed);
        for round in 0..rounds {
            let mut bytes = base.clone();
            for _ in 0..=random.below(6) {
                let at = busy[random.below(busy.len())];
                match random.below(4) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => {
                        let from = at & !31;
                        bytes[from..from + 32].fill(random.below(256) as u8);
                    }
                    2 => {
                        let (from, to) = (busy[random.below(busy.len())] & !511, at & !511);
                        if from > 512 && to > 512 {
                            bytes.copy_within(from..from + 512, to);
                        }
                    }
                    _ => bytes[at] ^= 1 << random.below(8),
                }
            }
            let target = Arc::new(MemoryDevice::new(bytes.clone()));
            let what = format!("{name}, round {round}");
            let is_silent = || check(target.clone()).is_ok_and(|report| report.is_clean());
            if round % 4 == 1
                && is_silent()
                && let Some((sound, said)) = judge(&bytes)
            {
                assert!(sound || said.contains("Volume label"), "{what}, not found: {said}");
            }
            let repaired = match repair(target.clone(), LostChains::Kept) {
                Ok(repaired) => repaired,
                Err(FsError::Corrupt { .. } | FsError::Unsupported(_)) => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            if repaired.outcome == Outcome::Left {
                continue;
            }
            clean += 1;
            let after = bytes_of(target.as_ref());
            let again = repair(target, LostChains::Kept).expect(&what);
            assert_eq!(again.outcome, Outcome::Clean, "{what}: {:#?}", again.report);
            if round % 4 == 0
                && let Some((sound, said)) = judge(&after)
            {
                // Whether it takes a label for one depends on the locale.
                let sound = sound || said.contains("Volume label");
                assert!(sound, "{what}: {said}\n{:#?}", repaired.report);
                judged += 1;
            }
        }
    }
    (clean, judged)
}
