//! Damage made by recipe, repaired.

use super::check::{checked, patients};
use super::golden::Case;
use super::images;
use super::patient::{Field, Patient};
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ffs::{FfsImage, Outcome, check, preen, repair};
use seekless_fs::format::OpenOptions;
use seekless_fs::{FileKind, Inspect};
use seekless_units::{ByteLen, Ino, Lba};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).expect("memory");
    bytes
}

/// Every path of an image, with the kind and the contents of what it leads to.
fn tree(bytes: Vec<u8>) -> BTreeMap<String, (FileKind, Vec<u8>)> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let image = FfsImage::open(device, OpenOptions::default()).expect("sound");
    let mut found = BTreeMap::new();
    walk(&image, image.root(), "", &mut found);
    found
}

fn walk(image: &FfsImage, dir: Ino, path: &str, found: &mut BTreeMap<String, (FileKind, Vec<u8>)>) {
    let mut names = Vec::new();
    image
        .read_dir(dir, 0, &mut |entry| {
            names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
            ControlFlow::Continue(())
        })
        .expect(path);
    for (name, ino) in names.into_iter().filter(|(name, _)| name != "." && name != "..") {
        let path = format!("{path}/{name}");
        let attr = image.attr(ino).expect(&path);
        let mut contents = Vec::new();
        match attr.kind {
            FileKind::Regular => {
                contents = vec![0; attr.size as usize];
                image.read(ino, ByteLen::ZERO, &mut contents).expect(&path);
            }
            FileKind::Symlink => contents = image.read_link(ino).expect(&path),
            FileKind::Directory => walk(image, ino, &path, found),
            _ => {}
        }
        found.insert(path, (attr.kind, contents));
    }
}

/// What a case left of the files, against what there was.
fn check_files(what: &str, case: &Case, image: &str, bytes: Vec<u8>) {
    let (_, compressed) = images::IMAGES.iter().find(|(name, _)| *name == image).expect("an image");
    let now = tree(bytes);
    let lost: Vec<&(FileKind, Vec<u8>)> = now
        .iter()
        .filter(|(path, _)| path.starts_with("/lost+found/"))
        .map(|(_, file)| file)
        .collect();
    for (path, file) in tree(images::unpack(compressed)) {
        if now.get(&path) == Some(&file) || case.gone.contains(&path.as_str()) {
            continue;
        }
        let is_moved = case.moved.iter().any(|start| path.starts_with(start));
        assert!(is_moved, "{what}: {path} is {:?}", now.get(&path));
        assert!(lost.contains(&&file), "{what}: {path} is not in lost+found");
    }
}

#[test]
fn a_preen_repairs_what_a_crash_may_leave_and_nothing_else() {
    for (what, case, patient) in patients() {
        let device = Arc::new(MemoryDevice::new(patient.bytes.clone()));
        let repaired = preen(device.clone()).expect(&what);
        if case.after_a_crash {
            assert_eq!(repaired.outcome, Outcome::Corrected, "{what}: {repaired:#?}");
            assert!(repaired.report.findings.iter().all(|finding| finding.repaired), "{what}");
            assert!(check(device).expect(&what).is_clean(), "{what}");
        } else {
            assert_eq!(repaired.outcome, Outcome::Left, "{what}: {repaired:#?}");
            assert!(repaired.report.findings.iter().all(|finding| !finding.repaired), "{what}");
            assert!(bytes_of(&device) == patient.bytes, "{what}: something was written");
        }
    }
}

#[test]
fn every_recipe_is_repaired_and_the_files_have_their_bytes() {
    let mut failures = Vec::new();
    for (what, case, patient) in patients() {
        let image = what.split(':').next().expect("an image").to_string();
        let device = Arc::new(MemoryDevice::new(patient.bytes));
        let repaired = repair(device.clone()).expect(&what);
        let left = checked(bytes_of(&device));
        if repaired.outcome != Outcome::Corrected || !left.is_clean() {
            failures.push(format!("{what}: {repaired:#?}\nleft: {left:#?}"));
            continue;
        }
        assert!(repaired.report.findings.iter().all(|finding| finding.repaired), "{what}");
        check_files(&what, case, &image, bytes_of(&device));
        let again = repair(device).expect(&what);
        assert_eq!(again.outcome, Outcome::Clean, "{what}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn nothing_is_written_to_a_sound_image() {
    for (name, compressed) in images::IMAGES {
        let sound = images::unpack(compressed);
        for run in [preen, repair] {
            let device = Arc::new(MemoryDevice::new(sound.clone()));
            assert_eq!(run(device.clone()).expect(name).outcome, Outcome::Clean, "{name}");
            assert!(bytes_of(&device) == sound, "{name}: something was written");
        }
    }
}

/// Where `lost+found` cannot grow, what has no name stays as it is, and all else
/// is repaired.
#[test]
fn a_full_volume_is_repaired_as_far_as_there_is_room() {
    for (name, _) in images::IMAGES {
        let mut patient = Patient::new(name);
        // A file takes every free block.
        let free = patient.free_blocks();
        let (frags, block) = (free.len() as u64 * 8, 4096);
        patient.set("/dir/small", Field::Size, (12 + free.len() as u64 - 1) * block);
        patient.set("/dir/small", Field::Direct(0), 0);
        patient.set("/dir/small", Field::Indirect(0), free[0]);
        patient.put_pointers(free[0], &free[1..]);
        // 61 files lose their names.
        let at = patient.data("/many");
        patient.bytes[at..at + 2048].fill(0xEE);
        assert!(frags > 100, "{name}");
        let device = Arc::new(MemoryDevice::new(patient.bytes));
        let repaired = repair(device.clone()).expect(name);
        assert_eq!(repaired.outcome, Outcome::Left, "{name}: {repaired:#?}");
        let left = checked(bytes_of(&device));
        let codes: BTreeSet<&str> = left.findings.iter().map(|finding| finding.code()).collect();
        let wanted = BTreeSet::from(["inode.unreferenced", "superblock.not-clean"]);
        assert_eq!(codes, wanted, "{name}: {left:#?}");
        assert!(left.findings.len() < 61, "{name}: some have room");
    }
}
