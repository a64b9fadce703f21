//! One wrong byte outside of files: `seekless check -y` keeps every file, and fsck.fat finds nothing
//! after it.

use crate::judges::{Scratch, ready, run, seekless};
use crate::mtools;
use std::fs;
use std::path::Path;
use std::process::Command;

/// An image by mkfs.fat with files in its root, and one in each of two directories if it is to have
/// some.
fn made(scratch: &Scratch, options: &[&str], kib: u64, with_directories: bool) -> String {
    let image = scratch.join("image");
    let _ = fs::remove_file(&image);
    run("mkfs.fat", &[options, &["-C", &image, &kib.to_string()]].concat());
    let mut names: Vec<String> = (0..6).map(|n| format!("::FILE{n}")).collect();
    if with_directories {
        mtools("mmd", &image, &["::ONE", "::TWO"]);
        names.extend(["::ONE/FILE6".into(), "::TWO/FILE7".into()]);
    }
    for (n, name) in names.iter().enumerate() {
        let file = scratch.join(&format!("file{n}"));
        fs::write(&file, contents(n)).expect("write");
        mtools("mcopy", &image, &[&file, name]);
    }
    image
}

fn contents(n: usize) -> Vec<u8> {
    (0..1500 + n * 100).map(|at| (at * 7 + at / 251 + n * 31) as u8 | 1).collect()
}

fn number(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) | usize::from(bytes[at + 1]) << 8
}

/// The first byte of a FAT.
fn fat_at(bytes: &[u8], number_of_fat: usize) -> usize {
    (number(bytes, 14) + number_of_fat * number(bytes, 22)) * 512
}

/// Repairs the image; every file is where it was.
fn repaired(scratch: &Scratch, what: &str, with_directories: bool, options: &[&str]) {
    let image = scratch.join("image");
    let args = [&["check", "-y"], options, &[image.as_str()]].concat();
    let output = seekless(&args);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{what}: {said}");
    assert_eq!(seekless(&["check", &image]).status.code(), Some(0), "{what}");
    let mut names: Vec<String> = (0..6).map(|n| format!("::FILE{n}")).collect();
    if with_directories {
        names.extend(["::ONE/FILE6".into(), "::TWO/FILE7".into()]);
    }
    for (n, name) in names.iter().enumerate() {
        let to = scratch.join("read");
        let _ = fs::remove_file(&to);
        mtools("mcopy", &image, &[name, &to]);
        assert!(fs::read(&to).expect("read") == contents(n), "{what}: {name}: {said}");
    }
}

fn can_run() -> bool {
    ["mkfs.fat", "mcopy", "mmd", "fsck.fat"].into_iter().all(ready)
}

#[test]
fn the_last_entry_of_a_fat_that_is_full_of_entries() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("fat-last-entry");
    for (fats, reserved) in [("1", "1"), ("2", "2")] {
        // 341 entries of 12 bits are 511.5 bytes: the root or another FAT follows the last one.
        let image = (160..260)
            .find_map(|kib| {
                let options =
                    ["-a", "-F", "12", "-s", "1", "-f", fats, "-R", reserved, "-r", "112"];
                let image = made(&scratch, &options, kib, false);
                let report = run("fsck.fat", &["-nv", &image]);
                report.contains("/339 clusters").then_some(image)
            })
            .expect("a volume of 339 clusters");
        let sound = fs::read(&image).expect("read");
        for lost in ["keep", "free"] {
            let mut bytes = sound.clone();
            for fat in 0..usize::from(bytes[16]) {
                let at = fat_at(&bytes, fat) + 340 * 3 / 2;
                bytes[at] = 0xF0;
                bytes[at + 1] = bytes[at + 1] & 0xF0 | 0x0E;
            }
            fs::write(&image, &bytes).expect("write");
            repaired(&scratch, &format!("{fats} FATs, {lost}"), false, &["--lost", lost]);
            run("fsck.fat", &["-n", &image]);
        }
    }
}

#[test]
fn the_first_byte_of_the_second_of_three_fats() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("fat-three");
    for fats in ["3", "4"] {
        let image = made(&scratch, &["-F", "12", "-s", "4", "-f", fats], 600, false);
        let mut bytes = fs::read(&image).expect("read");
        let at = fat_at(&bytes, 1);
        bytes[at] ^= 1;
        fs::write(&image, &bytes).expect("write");
        repaired(&scratch, &format!("{fats} FATs"), false, &[]);
        assert_eq!(fs::read(&image).expect("read")[16].to_string(), fats);
    }
}

#[test]
fn a_number_of_the_boot_sector_for_the_place_of_the_root() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("fat-root-place");
    // Bytes of the root's cluster and of the sectors of a FAT, on FAT32 with a sound copy; then of
    // the reserved sectors and the sectors of a FAT on FAT16.
    let wide: &[(usize, u8)] = &[(44, 0x82), (45, 1), (36, 16), (36, 0x82), (37, 3)];
    let narrow: &[(usize, u8)] = &[(14, 4), (14, 6), (22, 1)];
    for (options, kib, changes) in [
        (&["-a", "-F", "32", "-s", "1"][..], 34_000, wide),
        (&["-a", "-F", "16", "-s", "1", "-R", "5"], 8_000, narrow),
    ] {
        for with_directories in [true, false] {
            for &(at, change) in changes {
                let image = made(&scratch, options, kib, with_directories);
                let mut bytes = fs::read(&image).expect("read");
                bytes[at] = if at == 22 { bytes[at] + change } else { change };
                fs::write(&image, &bytes).expect("write");
                let what = format!("byte {at} becomes {:#x} in {options:?}", bytes[at]);
                repaired(&scratch, &what, with_directories, &[]);
                run("fsck.fat", &["-n", &image]);
            }
        }
    }
}

#[test]
fn a_byte_of_an_entry_for_itself_moves_no_clusters() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("fat-own-entry");
    // An older file system had a longer root directory. By its layout the directory of that time
    // is still where its name leads.
    let image = made(&scratch, &["-a", "-F", "16", "-s", "1", "-r", "512"], 8_000, true);
    let old = fs::read(&image).expect("read");
    let status = Command::new("mkfs.fat")
        .args(["-a", "-F", "16", "-s", "1", "-r", "224", "-I", &image])
        .output()
        .expect("mkfs.fat");
    assert!(status.status.success());
    mtools("mmd", &image, &["::ONE"]);
    let bytes = fs::read(&image).expect("read");
    assert!(bytes.len() == old.len() && Path::new(&image).exists());
    let own = bytes.windows(11).position(|name| name == b".          ").expect("an own entry");
    let mut wrong = bytes;
    wrong[own] = b'X';
    fs::write(&image, &wrong).expect("write");
    let output = seekless(&["check", "-y", &image]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains("boot.layout"), "{said}");
    let listed = String::from_utf8_lossy(&seekless(&["ls", &image]).stdout).into_owned();
    assert!(listed.contains("ONE") || listed.contains("one"), "{listed}");
    run("fsck.fat", &["-n", &image]);
}

/// Every other size of clusters by which the volume can be read, with a directory in the first
/// cluster, which is there by all of them, and without directories, where lengths of files tell.
#[test]
fn the_number_of_sectors_in_a_cluster() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("fat-cluster-size");
    let mut tried = 0;
    for (options, kib) in [
        (&["-a", "-F", "12", "-s", "2"][..], 2_000),
        (&["-a", "-F", "16", "-s", "2"], 16_000),
        (&["-a", "-F", "32", "-s", "1"], 36_000),
    ] {
        for with_directories in [true, false] {
            for shift in 0..8 {
                let image = made(&scratch, options, kib, with_directories);
                let mut bytes = fs::read(&image).expect("read");
                let right = bytes[13];
                bytes[13] = 1 << shift;
                if options.contains(&"32") {
                    // Its copy, which tells otherwise.
                    bytes[6 * 512 + 13] = bytes[13];
                }
                fs::write(&image, &bytes).expect("write");
                let code = seekless(&["check", &image]).status.code();
                // As it was, or with too many clusters for the FAT: refused, and nothing is lost.
                if bytes[13] == right || code == Some(8) {
                    continue;
                }
                let what = format!("{} sectors in a cluster in {options:?}", bytes[13]);
                repaired(&scratch, &what, with_directories, &[]);
                assert_eq!(fs::read(&image).expect("read")[13], right, "{what}");
                run("fsck.fat", &["-n", &image]);
                tried += 1;
            }
        }
    }
    assert!(tried >= 24, "{tried}");
}

/// The first two entries of an empty directory, and of one with a file, become garbage.
#[test]
fn the_first_entries_of_a_directory() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("fat-first-entries");
    for fill in [0x01_u8, 0xAA, 0xE5, 0xFF] {
        for len in [32, 64] {
            let image = made(&scratch, &["-a", "-F", "16", "-s", "2"], 16_000, true);
            mtools("mmd", &image, &["::EMPTY"]);
            let mut bytes = fs::read(&image).expect("read");
            let own: Vec<usize> = (0..bytes.len() - 11)
                .step_by(512)
                .filter(|&at| bytes[at..].starts_with(b".          "))
                .collect();
            assert_eq!(own.len(), 3);
            for at in own {
                bytes[at..at + len].fill(fill);
            }
            fs::write(&image, &bytes).expect("write");
            repaired(&scratch, &format!("{len} bytes of {fill:#x}"), true, &[]);
            let listed = run("mdir", &["-i", &image, "-b", "::EMPTY"]);
            assert_eq!(listed.trim(), "", "{fill:#x}");
            run("fsck.fat", &["-n", &image]);
        }
    }
}
