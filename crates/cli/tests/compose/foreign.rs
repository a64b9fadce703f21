//! Files of other formats are refused with the format's name, and nothing is built.

use crate::judges::{Scratch, command, failure, manifest, ready, run, seekless, text};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Builds from a source as a file and from standard input, and returns both messages.
fn refused(scratch: &Scratch, source: &str) -> [String; 2] {
    let image = scratch.join("none.img");
    let file = failure(&seekless(&["build", source, "-o", &image]));
    let mut piped = command(&["build", "-", "-o", &image]);
    let piped = failure(&piped.stdin(File::open(source).expect("open")).output().expect("run"));
    assert!(!Path::new(&image).exists(), "{source}: an image was built");
    for (code, message) in [&file, &piped] {
        assert!([3, 4].contains(code), "{code}: {message}");
    }
    [file.1, piped.1]
}

#[test]
fn other_file_systems_are_named() {
    let scratch = Scratch::new("foreign");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    let made: [(&str, &[&str], &str); 4] = [
        ("mkfs.btrfs", &["-q", "-f"], "btrfs"),
        ("mkfs.xfs", &["-q", "-f"], "XFS"),
        ("mkfs.erofs", &[], "EROFS"),
        ("mksquashfs", &[], "squashfs"),
    ];
    for (program, options, name) in made {
        if !ready(program) {
            continue;
        }
        let image = scratch.join(name);
        let file = File::create(&image).expect("create");
        let args = match program {
            "mkfs.erofs" => [options, &[&image, &tree]].concat(),
            "mksquashfs" => vec![&tree, &image, "-noappend", "-quiet"],
            _ => {
                file.set_len(320 << 20).expect("grow");
                [options, &[image.as_str()]].concat()
            }
        };
        run(program, &args);
        for message in refused(&scratch, &image) {
            assert!(message.contains(name), "{message}");
        }
    }
}

/// Formats recognised by their magic numbers, for which no program is needed.
#[test]
fn marks_are_enough_to_be_named() {
    let scratch = Scratch::new("marks");
    let path = scratch.join("file");
    for (at, mark, name) in [
        (1024, &b"\xE2\xE1\xF5\xE0"[..], "EROFS"),
        (512, b"EFI PART", "GPT"),
        (0x8001, b"CD001", "ISO 9660"),
        (0, b"QFI\xFB", "qcow2"),
        (0, b"PK\x03\x04", "zip"),
    ] {
        let file = File::create(&path).expect("create");
        file.set_len(1 << 20).expect("grow");
        file.write_all_at(mark, at).expect("write");
        for message in refused(&scratch, &path) {
            assert!(message.contains(name), "{message}");
        }
    }
}

#[test]
fn damaged_images_are_called_that() {
    let scratch = Scratch::new("superblock");
    let path = scratch.join("image");
    for options in [&["-b", "1024"][..], &["-b", "4096"]] {
        run("mke2fs", &[&["-q", "-F", "-t", "ext4"], options, &[&path, "24M"]].concat());
        let file = File::options().write(true).open(&path).expect("open");
        file.write_all_at(&[0, 0], 1080).expect("write");
        for message in refused(&scratch, &path) {
            assert!(message.contains("damaged image") && message.contains("ext"), "{message}");
        }
    }
}

#[test]
fn zeros_are_an_archive_only_where_it_is_an_empty_one() {
    let scratch = Scratch::new("zeros");
    let (path, image) = (scratch.join("zeros"), scratch.join("image"));
    let empty = scratch.join("empty.tar");
    run("tar", &["-cf", &empty, "-T", "/dev/null"]);
    let two = scratch.join("two");
    fs::write(&two, [0; 1024]).expect("write");
    for archive in [&empty, &two] {
        text(&seekless(&["build", archive, "-o", &image, "--force"]));
        assert_eq!(manifest(&image, &["lost+found"]).lines().count(), 2);
    }
    for len in [0, 1, 512, 1023, 10_752, 1 << 20] {
        fs::write(&path, vec![0; len]).expect("write");
        for message in refused(&scratch, &path) {
            assert!(message.contains("neither"), "{len}: {message}");
        }
    }
    // Zeros, followed by other bytes.
    let mut bytes = vec![0; 8192];
    bytes[5000] = 1;
    fs::write(&path, &bytes).expect("write");
    for message in refused(&scratch, &path) {
        assert!(message.contains("zeros"), "{message}");
    }
}

#[test]
fn broken_compression_is_called_that() {
    let scratch = Scratch::new("packed");
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).expect("mkdir");
    let noise: Vec<u8> =
        (0..60_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(tree.join("file"), noise).expect("write");
    let archive = scratch.join("whole.tar");
    run("tar", &["-C", tree.to_str().expect("path"), "-cf", &archive, "."]);
    for (packer, name) in [("gzip", "gzip"), ("zstd", "zstd")] {
        if !ready(packer) {
            continue;
        }
        let packed = scratch.join("packed");
        run("sh", &["-c", &format!("{packer} -c '{archive}' > '{packed}'")]);
        let whole = fs::read(&packed).expect("read");
        for at in [20, 2000, whole.len() / 2] {
            let broken = scratch.join("broken");
            fs::write(&broken, &whole[..at]).expect("write");
            for message in refused(&scratch, &broken) {
                assert!(message.contains(&format!("broken {name} data")), "{at}: {message}");
            }
        }
        let mut bytes = whole.clone();
        bytes[30..600].fill(0x55);
        fs::write(&packed, &bytes).expect("write");
        for message in refused(&scratch, &packed) {
            assert!(message.contains(&format!("broken {name} data")), "{message}");
        }
    }
}
