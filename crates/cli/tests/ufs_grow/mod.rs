//! `seekless growfs` on images of makefs, of `seekless build` and of `seekless mkfs`, read afterwards
//! by The Sleuth Kit and dissect.ffs.

mod cut;

use super::judges::{Scratch, dissect, failure, manifest, ready, run, same, seekless, text};
use super::{SHAPES, in_seconds, populate};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(&seekless(&[args, &["--json"]].concat()))).expect("JSON")
}

/// Fails unless an image has the files of a listing, by our reader, fls and icat, and dissect.ffs,
/// as far as these read such images.
fn is_read_by_all(what: &str, wanted: &str, image: &str, (tsk, little): (bool, bool)) {
    text(&seekless(&["check", image]));
    same(what, wanted, &in_seconds(&manifest(image, &[])));
    if tsk && ready("fls") && ready("icat") {
        let names = run("fls", &["-r", "-p", "-F", image]);
        let files = wanted.lines().filter(|line| line.contains("type=file"));
        let listed: Vec<&str> = names.lines().filter(|line| line.contains("r/r")).collect();
        assert!(listed.len() >= files.count(), "{what}: {} files", listed.len());
        for path in ["single", "double", "dir/7", "many/a name of some length 1499"] {
            let line = listed.iter().find(|line| line.ends_with(&format!("\t{path}")));
            let line = line.unwrap_or_else(|| panic!("{what}: no {path}"));
            let ino = line.split_whitespace().nth(1).expect("inode").trim_end_matches(':');
            let output = std::process::Command::new("icat").args([image, ino]).output();
            let own = seekless(&["cat", image, &format!("/{path}")]).stdout;
            assert!(output.expect("icat").stdout == own && !own.is_empty(), "{what}: {path}");
        }
    }
    if little && dissect::ready() {
        dissect::agrees(what, &dissect::of_manifest(&manifest(image, &[])), image);
    }
}

#[test]
fn grown_images_of_makefs_are_read_by_others() {
    if !ready("makefs") {
        return;
    }
    let scratch = Scratch::new("grow-makefs");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    for version in ["1", "2"] {
        for order in ["le", "be"] {
            for (block, fragment) in SHAPES {
                let options = format!("version={version},bsize={block},fsize={fragment}");
                let what = format!("{order} {options}");
                let make = ["-t", "ffs", "-B", order, "-s", "64m", "-f", "100", "-o", &options];
                run("makefs", &[&make[..], &[&image, &tree]].concat());
                let wanted = in_seconds(&manifest(&image, &[]));
                for size in ["70000K", "333M"] {
                    let told = json(&["growfs", &image, "-s", size]);
                    assert!(told["bytes"].as_u64() > told["bytes_before"].as_u64(), "{told}");
                }
                // makefs has the superblock of UFS2 where The Sleuth Kit does not look.
                let tsk = version == "1";
                is_read_by_all(&what, &wanted, &image, (tsk, order == "le"));
            }
        }
    }
}

#[test]
fn grown_images_of_ours_are_read_by_others() {
    let scratch = Scratch::new("grow-built");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    for format in ["ufs1", "ufs2"] {
        for (block, fragment) in SHAPES {
            let what = format!("{format} {block}/{fragment}");
            let make = ["build", &tree, "-o", &image, "--force", "--format", format];
            text(&seekless(&[&make[..], &["-b", block, "-f", fragment]].concat()));
            let wanted = in_seconds(&manifest(&image, &[]));
            let told = json(&["growfs", &image, "-s", "1G"]);
            assert!(told["groups"].as_u64() >= told["groups_before"].as_u64(), "{told}");
            is_read_by_all(&what, &wanted, &image, (true, true));
        }
    }
}

#[test]
fn a_file_grows_by_a_hole_and_a_plan_writes_nothing() {
    let scratch = Scratch::on_disk("grow-file");
    let image = scratch.join("image");
    for format in ["ufs1", "ufs2"] {
        text(&seekless(&["mkfs", "--format", format, "-s", "40M", "--force", &image]));
        let before = fs::read(&image).expect("image");
        let plan = json(&["growfs", &image, "-s", "3G", "-N"]);
        assert_eq!((&plan["written"], &plan["bytes"]), (&false.into(), &(3u64 << 30).into()));
        let said = text(&seekless(&["growfs", &image, "-s", "3G", "-N"]));
        assert!(said.contains("would grow from 40M to 3G"), "{said}");
        assert!(fs::read(&image).expect("image") == before, "{format}: written");
        let told = json(&["growfs", &image, "-s", "3G"]);
        assert_eq!(told["written"], true);
        for field in ["bytes", "bytes_before", "groups", "groups_before", "summary_moves"] {
            assert_eq!(told[field], plan[field], "{field}");
        }
        let stat = fs::metadata(&image).expect("stat");
        assert_eq!(stat.len(), 3 << 30);
        assert!(stat.blocks() * 512 < 60 << 20, "{format}: {} blocks", stat.blocks());
        text(&seekless(&["check", &image]));
        let info = json(&["info", &image]);
        assert_eq!(info["groups"], told["groups"], "{info}");
        // Without a size the file's own, which the volume has already.
        let (code, message) = failure(&seekless(&["growfs", &image]));
        assert!(code == 5 && message.contains("a further fragment"), "{code} {message}");
        run("truncate", &["-s", "3500M", &image]);
        let said = text(&seekless(&["growfs", &image]));
        assert!(said.contains("has grown from 3G to 3.4G"), "{said}");
        assert_eq!(text(&seekless(&["growfs", &image, "-s", "3600M", "-q"])), "");
        text(&seekless(&["check", &image]));
    }
}

#[test]
fn what_cannot_grow_is_left_alone() {
    let scratch = Scratch::new("grow-refusals");
    let image = scratch.join("image");
    text(&seekless(&["mkfs", "--format", "ufs1", "-s", "16M", &image]));
    let sound = fs::read(&image).expect("image");
    let refused = |bytes: &[u8], args: &[&str], code: i32, says: &str| {
        fs::write(&image, bytes).expect("image");
        for more in [&[][..], &["-N"]] {
            let (is, message) = failure(&seekless(&[&["growfs", &image], args, more].concat()));
            assert!(is == code && message.contains(says), "{args:?}: {is} {message}");
            assert!(fs::read(&image).expect("image") == bytes, "{args:?}: changed");
        }
    };
    refused(&sound, &["-s", "8M"], 2, "cannot become smaller");
    refused(&sound, &["-s", "16M"], 5, "a further fragment");
    refused(&sound, &["-s", "9T"], 2, "too large for UFS1");
    refused(&sound, &["-s", "64M", "--partition", "1"], 4, "no partition table");
    let with = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        bytes
    };
    refused(&with(8192 + 209, 0), &["-s", "64M"], 4, "seekless check -p");
    refused(&with(8192 + 1116, 5), &["-s", "64M"], 4, "snapshots");
    // The magic number of the last group.
    let last = sound.windows(4).rposition(|word| word == [0x55, 2, 9, 0]).expect("a group");
    refused(&with(last, 0), &["-s", "64M"], 3, "corrupt image");
    let other = scratch.join("esp");
    text(&seekless(&["mkfs", "--format", "fat16", "--size", "16M", &other]));
    let (code, message) = failure(&seekless(&["growfs", &other, "-s", "64M"]));
    assert!(code == 4 && message.contains("UFS1 and UFS2"), "{code} {message}");
}

#[test]
fn a_volume_in_a_partition_grows_within_it() {
    let scratch = Scratch::new("grow-partition");
    let (image, disk) = (scratch.join("image"), scratch.join("disk"));
    text(&seekless(&["mkfs", "--format", "ufs2", "-s", "24M", &image]));
    // A partition of 48M from the first megabyte on, of an MBR.
    let mut bytes = vec![0; 64 << 20];
    let entry = [0, 0, 0, 0, 0xA5, 0, 0, 0, 0, 8, 0, 0, 0, 0x80, 1, 0];
    bytes[446..462].copy_from_slice(&entry);
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    let volume = fs::read(&image).expect("image");
    bytes[1 << 20..25 << 20].copy_from_slice(&volume);
    fs::write(&disk, &bytes).expect("disk");
    let (code, message) = failure(&seekless(&["growfs", &disk, "--partition", "1", "-s", "49M"]));
    assert!(code == 5 && message.contains("the partition has 48M, not 49M"), "{code} {message}");
    assert!(fs::read(&disk).expect("disk") == bytes);
    let told = json(&["growfs", &disk, "--partition", "1"]);
    assert_eq!(told["bytes"], 48 << 20);
    text(&seekless(&["check", &disk, "--partition", "1"]));
    let now = fs::read(&disk).expect("disk");
    assert!(now[..1 << 20] == bytes[..1 << 20] && now[49 << 20..] == bytes[49 << 20..]);
    // An offset does not say where the partition ends.
    let (code, message) = failure(&seekless(&["growfs", &disk, "--offset", "1M", "-s", "60M"]));
    assert!(code == 2 && message.contains("partition table"), "{code} {message}");
    assert!(fs::read(&disk).expect("disk") == now);
    // Without a table, the file becomes longer.
    let mut plain = bytes.clone();
    plain[446..512].fill(0);
    fs::write(&disk, &plain).expect("disk");
    let (code, message) = failure(&seekless(&["growfs", &disk, "--offset", "1M"]));
    assert!(code == 2 && message.contains("-s"), "{code} {message}");
    let told = json(&["growfs", &disk, "--offset", "1M", "-s", "100M"]);
    assert_eq!(told["bytes"], 100 << 20);
    assert_eq!(fs::metadata(&disk).expect("stat").len(), 101 << 20);
    text(&seekless(&["check", &disk, "--offset", "1M"]));
}

/// A slice with a label: the volume is partition `a`, and `b` lies behind it.
#[test]
fn a_volume_in_a_bsd_label_grows_within_its_partition() {
    let scratch = Scratch::new("grow-label");
    let image = scratch.join("image");
    text(&seekless(&["mkfs", "--format", "ufs2", "-s", "16M", &image]));
    for big_endian in [false, true] {
        let word = |value: u32| match big_endian {
            true => value.to_be_bytes(),
            false => value.to_le_bytes(),
        };
        let mut bytes = fs::read(&image).expect("image");
        bytes.truncate(16 << 20);
        bytes.resize(64 << 20, 0xB5);
        let label = &mut bytes[512..];
        label[..4].copy_from_slice(&word(0x8256_4557));
        label[132..136].copy_from_slice(&word(0x8256_4557));
        label[138..140].copy_from_slice(&word(if big_endian { 3 << 16 } else { 3 })[..2]);
        let (a, b, all) = ((24 << 20) / 512, (40 << 20) / 512, (64 << 20) / 512);
        for (number, (sectors, start)) in [(a, 0), (b, a), (all, 0)].into_iter().enumerate() {
            label[148 + number * 16..][..4].copy_from_slice(&word(sectors));
            label[152 + number * 16..][..4].copy_from_slice(&word(start));
        }
        let disk = scratch.join("disk");
        fs::write(&disk, &bytes).expect("disk");
        for args in [&[][..], &["-s", "25M"]] {
            let refused = failure(&seekless(&[&["growfs", &disk], args].concat()));
            assert!(refused.0 == 5 && refused.1.contains("BSD label"), "{refused:?}");
            assert!(fs::read(&disk).expect("disk") == bytes);
        }
        text(&seekless(&["growfs", &disk, "-s", "24M"]));
        let now = fs::read(&disk).expect("disk");
        assert!(now[24 << 20..] == bytes[24 << 20..], "the next partition was changed");
        text(&seekless(&["check", &disk]));
    }
}
