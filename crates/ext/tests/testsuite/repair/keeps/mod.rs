//! A repair keeps at least the names and contents that `e2fsck -fy` keeps after the same
//! damage. The damage is enumerated, structure by structure, not chosen by hand.

mod appended;
mod damage;
mod extents;
mod features;
mod fields;
mod named;
mod tree;
mod unreadable;

use crate::holes;
use crate::repair::judge::{Scratch, bytes_of, e2fsck, findings, is_there, put};
use crate::slice::some_or_all;
use damage::{Damage, Target};
use seekless_device::MemoryDevice;
use seekless_ext::repair;
use seekless_fs::FsError;
use seekless_fs::check::Outcome;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tree::Tree;

/// Options of mke2fs for each volume, and its size.
const VOLUMES: [(&str, &[&str], &str); 6] = [
    ("plain", &["-t", "ext4", "-O", "^metadata_csum,^64bit"], "9M"),
    (
        "ext4",
        &["-t", "ext4", "-O", "metadata_csum,64bit,inline_data,orphan_file", "-I", "256"],
        "9M",
    ),
    ("ext3", &["-t", "ext3"], "9M"),
    ("ext2", &["-t", "ext2", "-O", "^resize_inode"], "9M"),
    ("single", &["-t", "ext4", "-O", "metadata_csum,64bit,orphan_file"], "7M"),
    ("groups", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^resize_inode", "-g", "1024"], "5M"),
];

/// A volume before any damage.
struct Sound {
    bytes: Vec<u8>,
    tree: Tree,
}

/// Makes a volume with the files of `tree::populate`.
fn sound(name: &str) -> Sound {
    let (_, options, size) = VOLUMES.iter().find(|(known, ..)| *known == name).expect("volume");
    let source = Scratch::new("keeps-source");
    tree::populate(source.path());
    let sound = make(options, source.path(), size).expect("mke2fs");
    assert!(sound.tree.len() > 50, "{name}: {} names", sound.tree.len());
    sound
}

/// Makes a volume of a tree with mke2fs; `None` if that refuses.
fn make(options: &[&str], source: &Path, size: &str) -> Option<Sound> {
    let bytes = bytes_made(options, source, size)?;
    let image = Scratch::new("keeps-made");
    put(image.path(), &bytes);
    assert_eq!(findings(image.path()), None, "{options:?}");
    let tree = Tree::read(&bytes).expect("a sound volume");
    Some(Sound { bytes, tree })
}

/// A volume of a tree as mke2fs makes it; `None` if that refuses.
fn bytes_made(options: &[&str], source: &Path, size: &str) -> Option<Vec<u8>> {
    let image = Scratch::new("keeps-image");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-b", "1024", "-U", "6d9b3cbc-94f3-4b4e-8a4f-3d0b9a7a9f10"])
        .args(["-E", "hash_seed=0f6f8b9a-54c6-4b5b-8f0a-1c1f2f3f4f5f"])
        .args(options)
        .arg("-d")
        .arg(source)
        .arg(image.path())
        .arg(size)
        .env("MKE2FS_DETERMINISTIC", "1")
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .expect("mke2fs");
    if !made.status.success() {
        return None;
    }
    Some(holes::take(image.path()))
}

/// An image as e2fsck repairs it; `None` where it gives up.
fn reference(path: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
    put(path, bytes);
    for _ in 0..3 {
        match e2fsck("-fy", path).0 {
            0 => return Some(fs::read(path).expect("image")),
            1..=7 => {}
            _ => return None,
        }
    }
    None
}

/// What is wrong with our repair of an image, if anything.
fn judge(sound: &Sound, bytes: &[u8], scratch: &Path) -> Option<String> {
    let theirs = Tree::read(&reference(scratch, bytes)?)?;
    let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
    let repaired = match repair(device.clone()) {
        Ok(repaired) => repaired,
        // A feature that is not written is refused, and nothing is lost.
        Err(FsError::Unsupported(_)) if bytes_of(device.as_ref()) == bytes => return None,
        Err(error) => return Some(format!("refused: {error}")),
    };
    let mut found = String::new();
    for it in &repaired.report.findings {
        let _ = writeln!(found, "  {} {} ({}) {}", it.code(), it.what, it.location, it.repaired);
    }
    let ours = bytes_of(device.as_ref());
    put(scratch, &ours);
    // A time in the future is a finding for who has a clock.
    let said = findings(scratch).map(|said| said.replace("is in the future.\nFix? no", ""));
    // What the documentation says is left is told as left.
    let is_told = repaired.outcome == Outcome::Left;
    if let Some(said) = said.filter(|said| said.contains("? no") && !is_told) {
        return Some(format!("e2fsck still finds\n{said}{found}"));
    }
    let Some(ours) = Tree::read(&ours) else {
        let is_worse = !is_told || theirs.has_any_of(&sound.tree);
        return is_worse.then(|| format!("unreadable\n{found}"));
    };
    let lost = ours.lost(&sound.tree, &theirs);
    (!lost.is_empty()).then(|| format!("lost: {}\n{found}", lost.join(", ")))
}

/// What is wrong with our repair of an image that was sound before, if anything.
pub(crate) fn judge_image(sound: &[u8], damaged: &[u8]) -> Option<String> {
    let tree = Tree::read(sound).expect("a sound volume");
    let sound = Sound { bytes: Vec::new(), tree };
    judge(&sound, damaged, Scratch::new("keeps-judged").path())
}

/// Damages a volume in each of these ways; what went wrong, a paragraph each.
fn sweep(name: &str, damage: impl Iterator<Item = Damage>) -> (usize, Vec<String>) {
    let sound = sound(name);
    let scratch = Scratch::new(name);
    let (mut cases, mut wrong) = (0, Vec::new());
    for damage in damage {
        let Some(bytes) = damage.apply(&sound.bytes) else { continue };
        cases += 1;
        if let Some(what) = judge(&sound, &bytes, scratch.path()) {
            wrong.push(format!("{name}, {damage:?}: {what}"));
        }
    }
    (cases, wrong)
}

/// One way in `step`, beginning at `from`.
fn slice(name: &str, step: usize, from: usize) -> Vec<String> {
    let target = Target::of(&sound(name).bytes);
    let all = target.damage();
    // Those that an earlier run named, if they are given.
    let named = std::env::var("KEEPS_AGAIN").ok();
    let named = named.map(|path| fs::read_to_string(path).expect("the output of a run"));
    let is_named = |damage: &Damage| {
        named.as_ref().is_none_or(|text| text.contains(&format!("{name}, {damage:?}: ")))
    };
    let chosen = all.into_iter().skip(from).step_by(step).filter(is_named);
    let (cases, wrong) = sweep(name, chosen);
    println!("{name}: {cases} cases, {} wrong", wrong.len());
    assert!(cases > 10 || named.is_some(), "{name}: {cases} cases");
    wrong
}

/// The 96 bits of features, the other way round, with the superblock's checksum as it should be:
/// every third one on a volume, and others on the next.
#[test]
fn a_feature_that_copies_and_inodes_contradict() {
    if !is_there() {
        return;
    }
    let mut wrong = Vec::new();
    for (n, (name, ..)) in VOLUMES.into_iter().enumerate() {
        let (cases, found) = sweep(name, damage::features().skip(n % 3).step_by(3));
        assert!(cases > 30, "{name}: {cases} cases");
        wrong.extend(found);
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Features with which e2fsck refuses a volume are found. A repair clears those that have a name and
/// that a copy of the superblock lacks, and refuses others: they may be of a newer kernel, which
/// does not set them in copies.
#[test]
fn features_that_are_not_supported() {
    if !is_there() {
        return;
    }
    let compat = (6..9).chain(13..32).map(|bit| (92, bit));
    let ro_compat = [2, 7, 11].into_iter().chain(17..32).map(|bit| (100, bit));
    let bits: Vec<(usize, u32)> = compat.chain(ro_compat).chain([(96, 17)]).collect();
    for (name, has_copy) in [("groups", true), ("plain", true), ("single", false)] {
        let sound = sound(name);
        let mut named = 0;
        for &(at, bit) in &bits {
            let at = 1024 + at + bit as usize / 8;
            let mut bytes = sound.bytes.clone();
            bytes[at] ^= 1 << (bit % 8);
            let sum = !crc32c::crc32c(&bytes[1024..2044]);
            if !has_copy {
                bytes[2044..2048].copy_from_slice(&sum.to_le_bytes());
            }
            let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
            let report = seekless_ext::check(device.clone()).expect("check");
            let mut findings_of = report.findings.iter();
            let found = findings_of.find(|it| it.code() == "superblock.unsupported");
            let found =
                found.unwrap_or_else(|| panic!("{name}, byte {at}, bit {bit}: {report:#?}"));
            let has_name = !found.what.contains("FEATURE_");
            named += usize::from(has_name);
            let repaired = repair(device.clone());
            if !has_copy || !has_name {
                let why = repaired.expect_err("a feature").to_string();
                assert!(why.contains("feature"), "{name}, byte {at}, bit {bit}: {why}");
                assert!(bytes_of(device.as_ref()) == bytes, "{name}: something was written");
                continue;
            }
            assert_eq!(
                repaired.expect("repair").outcome,
                Outcome::Corrected,
                "{name}, {at}, {bit}"
            );
            let ours = bytes_of(device.as_ref());
            assert_eq!(ours[1024 + 92..1024 + 104], sound.bytes[1024 + 92..1024 + 104], "{name}");
            if bit % 4 == 3 {
                let image = Scratch::new("keeps-unsupported");
                holes::put(image.path(), &ours);
                assert_eq!(findings(image.path()), None, "{name}, byte {at}, bit {bit}");
            }
        }
        assert!((4..bits.len() - 20).contains(&named), "{name}: {named} have names");
    }
}

/// An encoding that is unknown may be that of a newer kernel: the volume is refused as by e2fsck.
#[test]
fn casefold_with_an_encoding_that_is_not_known() {
    if !is_there() {
        return;
    }
    let image = Scratch::new("keeps-encoding");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-O", "casefold"]).arg(image.path()).arg("4M");
    assert!(mke2fs.output().expect("mke2fs").status.success());
    let sound = holes::take(image.path());
    for encoding in [0u8, 2, 131] {
        let mut bytes = sound.clone();
        bytes[1024 + 636] = encoding;
        let sum = !crc32c::crc32c(&bytes[1024..2044]);
        bytes[2044..2048].copy_from_slice(&sum.to_le_bytes());
        put(image.path(), &bytes);
        assert_eq!(e2fsck("-fy", image.path()).0 & 8, 8, "{encoding}");
        let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
        let report = seekless_ext::check(device.clone()).expect("check");
        assert!(
            report.findings.iter().any(|it| it.code() == "superblock.unsupported"),
            "{encoding}"
        );
        let why = repair(device.clone()).expect_err("an encoding").to_string();
        assert!(why.contains("casefold"), "{encoding}: {why}");
        assert!(bytes_of(device.as_ref()) == bytes, "{encoding}: something was written");
    }
}

#[test]
fn a_slice_of_all_damage() {
    if !is_there() {
        return;
    }
    let volumes = VOLUMES.into_iter().enumerate();
    let wrong: Vec<String> =
        volumes.flat_map(|(n, (name, ..))| slice(name, 1201, n * 29)).collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Places of which the whole found that a repair lost names or left findings: attributes of a
/// long symlink, extents of a directory, the length of a file in its inode, numbers of files of
/// quotas, room for extra fields, the first inode, errors in a journal, flags and lengths of the
/// journal and of the orphan file, extent blocks without entries, and the table of the only group.
#[test]
fn places_that_were_wrong_once() {
    if !is_there() {
        return;
    }
    let mut wrong = Vec::new();
    for (n, (name, ..)) in VOLUMES.into_iter().enumerate() {
        let sound = sound(name);
        let of = |path: &str| Tree::ino(&sound.bytes, path);
        // Of the journal, the orphan file and reserved inodes, by their numbers.
        let own = |ino: u32, bytes: &[usize]| -> Vec<String> {
            bytes.iter().map(|at| format!("inode {ino} +{at:#x}")).collect()
        };
        let inode = |path: &str, bytes: &[usize]| own(of(path), bytes);
        let superblock = (0x240..0x248).chain(0x15C..0x160).chain(0x54..0x58).chain(0x174..0x176);
        let places: Vec<String> = superblock
            .map(|at| format!("superblock +{at:#x}"))
            .chain((0x20..0x24).map(|at| format!("journal of inode 8 +{at:#x}")))
            .chain(inode("/slow", &[0x68, 0x69, 0x6A, 0x6B, 0x76, 0x77]))
            .chain(inode("/many", &[0x34, 0x36, 0x37, 0x38]))
            .chain(inode("/deep", &[0x38]))
            .chain(inode("/deep/er", &[0x38]))
            .chain(inode("/deep/empty", &[0x01, 0x2C, 0x6C, 0x6D, 0x6E, 0x6F]))
            .chain(inode("/many/a-name-of-some-length-00", &[0x01]))
            .chain(inode("/fast", &[0x22]))
            .chain(["descriptor 0 +0x8".to_string()])
            .chain(own(3, &[0x20, 0x23]))
            .chain(own(4, &[0x20, 0x23]))
            .chain(own(5, &[0x00, 0x01]))
            .chain(own(8, &[0x04, 0x05, 0x21]))
            .chain(own(12, &[0x04, 0x05, 0x21, 0x38, 0x3C]))
            .collect();
        let is_extent_block = |place: &str| {
            place.starts_with("extent block")
                && [" +0x2", " +0x4"].iter().any(|at| place.ends_with(at))
        };
        let all = Target::of(&sound.bytes).damage().into_iter();
        let chosen = all.filter(|damage| {
            places.iter().any(|place| place == damage.place()) || is_extent_block(damage.place())
        });
        // Every fifth one on a volume, and others on the next.
        let (cases, found) = sweep(name, chosen.skip(n % 5).step_by(some_or_all(10, 5)));
        assert!(cases > some_or_all(5, 12), "{name}: {cases} cases");
        wrong.extend(found);
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// All of it: `KEEPS_VOLUME`, `KEEPS_STEP` and `KEEPS_FROM` choose a part, `KEEPS_AGAIN` those
/// that the output of an earlier run in a file names.
#[test]
#[ignore = "hours"]
fn all_damage() {
    let text = |name: &str| std::env::var(name).ok();
    let number = |name: &str| text(name).and_then(|text| text.parse().ok());
    let only = text("KEEPS_VOLUME");
    let mut wrong = Vec::new();
    for (name, ..) in VOLUMES {
        if only.as_ref().is_none_or(|only| only == name) {
            let (step, from) = (number("KEEPS_STEP").unwrap_or(1), number("KEEPS_FROM"));
            wrong.extend(slice(name, step, from.unwrap_or(0)));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
