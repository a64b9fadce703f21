//! qcow2 and VHD images: read by every command as the raw image is, and changed by no command; qcow2,
//! VHDX and VMDK images are written by `qemu-img`. Needs qemu-img (qemu-utils); reports and passes without it.

#[path = "../judges/mod.rs"]
mod judges;

use judges::{Scratch, check, command, failure, manifest, ready, run, same, seekless, text};
use std::fs;
use std::path::Path;

/// A small tree, its image, and the same image as qcow2.
struct Scene {
    scratch: Scratch,
    tree: String,
    raw: String,
    qcow2: String,
    trace: String,
}

fn scene(name: &str) -> Option<Scene> {
    if !ready("qemu-img") {
        return None;
    }
    let scratch = Scratch::new(name);
    let tree = scratch.join("tree");
    for n in 0..60u32 {
        let dir = format!("{tree}/d{}", n % 7);
        fs::create_dir_all(&dir).expect("mkdir");
        let bytes: Vec<u8> = (0..n * 300).flat_map(u32::to_le_bytes).collect();
        fs::write(format!("{dir}/f{n}"), bytes).expect("write");
    }
    fs::create_dir(scratch.path().join("plain")).expect("mkdir");
    fs::create_dir(scratch.path().join("qcow2")).expect("mkdir");
    let (raw, qcow2) = (scratch.join("plain/image"), scratch.join("qcow2/image"));
    text(&seekless(&["build", &tree, "-o", &raw, "--size", "40M"]));
    run("qemu-img", &["convert", "-c", "-f", "raw", "-O", "qcow2", &raw, &qcow2]);
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    fs::write(&paths, "/d1/f8\n/d5/f5\n").expect("paths");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    Some(Scene { scratch, tree, raw, qcow2, trace })
}

#[test]
fn everything_that_reads_an_image_reads_it() {
    let Some(Scene { scratch, raw, qcow2, trace, .. }) = scene("qcow2-read") else { return };
    // Their paths have the same length, since columns are as wide as names.
    let of = |what: &[&str], image: &str| {
        let args: Vec<&str> =
            what.iter().map(|&arg| if arg == "IMG" { image } else { arg }).collect();
        text(&seekless(&args)).replace(image, "IMG")
    };
    for what in [
        &["info", "IMG"][..],
        &["info", "--json", "IMG"],
        &["ls", "-lR", "IMG", "/"],
        &["cat", "IMG", "/d3/f59"],
        &["manifest", "IMG"],
        &["map", "IMG"],
        &["check", "IMG"],
        &["score", "IMG", "--trace", &trace],
    ] {
        assert_eq!(of(what, &raw), of(what, &qcow2), "{what:?}");
    }
    let (out, copy) = (scratch.join("out"), scratch.join("copy"));
    text(&seekless(&["cp", "-r", &qcow2, "/d1", &out]));
    assert!(fs::read_dir(&out).expect("copied").count() > 0);
    text(&seekless(&["build", &qcow2, "-o", &copy]));
    check(&copy);
    same("built from it", &manifest(&raw, &[]), &manifest(&copy, &[]));
    let (one, other) = (scratch.join("one"), scratch.join("other"));
    text(&seekless(&["optimize", &raw, "--trace", &trace, "-o", &one]));
    text(&seekless(&["optimize", &qcow2, "--trace", &trace, "-o", &other]));
    run("cmp", &[&one, &other]);
    let compared = seekless(&["manifest", "--compare", &raw, &qcow2]);
    assert!(text(&compared).is_empty());
}

#[test]
fn a_disk_with_partitions_in_it() {
    let Some(Scene { scratch, tree, trace, .. }) = scene("qcow2-disk") else { return };
    let (raw, qcow2) = (scratch.join("plain/disk.qcow2"), scratch.join("qcow2/disk.qcow2"));
    let build = ["build", &tree, "--disk", "--esp-size", "8M", "--size", "32M", "-o"];
    text(&seekless(&[&build[..], &[&raw, "--output-format", "raw"]].concat()));
    text(&seekless(&[&build[..], &[&qcow2]].concat()));
    for what in [
        &["info"][..],
        &["info", "--json"],
        &["info", "--partition", "root"],
        &["ls", "-lR", "--partition", "2"],
        &["check", "--partition", "root"],
    ] {
        let of = |image: &str| {
            let args: Vec<&str> = what.iter().copied().chain([image]).collect();
            text(&seekless(&args)).replace(image, "IMG")
        };
        assert_eq!(of(&raw), of(&qcow2), "{what:?}");
    }
    let (_, message) = failure(&seekless(&["ls", &qcow2]));
    assert!(message.contains("choose one with --partition"), "{message}");
    let (code, message) = failure(&seekless(&["build", &qcow2, "-o", &scratch.join("no")]));
    assert!(code == 4 && message.contains("choose one with --partition"), "{message}");
    for (from, to) in [(&raw, "from-raw"), (&qcow2, "from-qcow2")] {
        text(&seekless(&["build", from, "--partition", "root", "-o", &scratch.join(to)]));
    }
    run("cmp", &[&scratch.join("from-raw"), &scratch.join("from-qcow2")]);
    let (one, other) = (scratch.join("one"), scratch.join("other.qcow2"));
    for (from, to) in [(&raw, &one), (&qcow2, &other)] {
        text(&seekless(&["optimize", from, "--partition", "root", "--trace", &trace, "-o", to]));
    }
    run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &one, &other]);
}

#[test]
fn images_are_written_as_qcow2() {
    let Some(Scene { scratch, tree, .. }) = scene("qcow2-write") else { return };
    let raw = scratch.join("made");
    for options in [&[][..], &["--size", "2G"], &["--format", "ufs2"], &["--verity"]] {
        let build = |to: &[&str]| {
            text(&seekless(&[&["build", &tree, "--force", "-o"], to, options].concat()))
        };
        let (one, two) = (scratch.join("one.qcow2"), scratch.join("two"));
        build(&[&raw]);
        build(&[&one]);
        build(&[&two, "--output-format", "qcow2"]);
        run("qemu-img", &["check", "-q", "-f", "qcow2", &one]);
        run("qemu-img", &["compare", "-q", "-f", "raw", "-F", "qcow2", &raw, &one]);
        // The same source gives the same bytes.
        run("cmp", &[&one, &two]);
        let len = fs::metadata(&one).expect("made").len();
        assert!(len < 40 << 20, "{options:?}: {len} bytes");
    }
    // The name decides on the format, unless an option does.
    let named = scratch.join("named.qcow2");
    text(&seekless(&["build", &tree, "-o", &named, "--output-format", "raw"]));
    check(&named);
    let (code, message) = failure(&seekless(&["build", &tree, "-o", &named]));
    assert!(code == 6 && message.contains("--force"), "{message}");
    let made = scratch.join("empty.qcow2");
    text(&seekless(&["mkfs", "--format", "fat32", "--size", "64M", &made]));
    text(&seekless(&["check", &made]));
    run("qemu-img", &["check", "-q", "-f", "qcow2", &made]);
    // A replaced image keeps the size of its disk.
    text(&seekless(&["mkfs", "--format", "ufs2", "--force", &made]));
    let told = text(&seekless(&["info", "--json", &made]));
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["blocks"].as_u64().unwrap() * told["block_size"].as_u64().unwrap(), 64 << 20);
    let left: Vec<_> = fs::read_dir(scratch.path())
        .expect("list")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn images_are_written_as_vhd_vhdx_and_vmdk() {
    let Some(Scene { scratch, tree, trace, .. }) = scene("vhd-write") else { return };
    let raw = scratch.join("made");
    for options in [&[][..], &["--size", "300M"], &["--format", "ufs2"], &["--disk"]] {
        let build = |to: &str| {
            let options = [&["build", &tree, "--force", "-o", to], options].concat();
            text(&seekless(&options))
        };
        build(&raw);
        for (end, format) in [("vhd", "vpc"), ("vhdx", "vhdx"), ("vmdk", "vmdk")] {
            let made = scratch.join(&format!("one.{end}"));
            build(&made);
            // In virtual machines, images of these formats have whole sectors only.
            run("qemu-img", &["compare", "-q", "-f", "raw", "-F", format, &raw, &made]);
        }
        // The same bytes again, and those of the raw image before the footer.
        let (one, two) = (scratch.join("one.vhd"), scratch.join("two.vhd"));
        build(&two);
        run("cmp", &[&one, &two]);
        let len = fs::metadata(&raw).expect("made").len();
        assert_eq!(fs::metadata(&one).expect("made").len(), len + 512);
        run("cmp", &["--bytes", &len.to_string(), &one, &raw]);
    }
    // Read as the raw image is, with the last partition's table behind it.
    let disk = scratch.join("one.vhd");
    for what in [
        &["info"][..],
        &["info", "--json", "--partition", "root"],
        &["ls", "-lR", "--partition", "2"],
        &["check", "--partition", "root"],
    ] {
        let of = |image: &str| {
            let args: Vec<&str> = what.iter().copied().chain([image]).collect();
            text(&seekless(&args)).replace(image, "IMG")
        };
        assert_eq!(of(&raw), of(&disk), "{what:?}");
    }
    let (one, other) = (scratch.join("laid-out"), scratch.join("other.vhd"));
    for (from, to) in [(&raw, &one), (&disk, &other)] {
        text(&seekless(&["optimize", from, "--partition", "root", "--trace", &trace, "-o", to]));
    }
    run("qemu-img", &["compare", "-q", "-f", "raw", "-F", "vpc", &one, &other]);
    // An empty one, which keeps its size when it is replaced.
    let empty = scratch.join("empty.vhd");
    text(&seekless(&["mkfs", "--format", "fat32", "--size", "64M", &empty]));
    text(&seekless(&["check", &empty]));
    text(&seekless(&["mkfs", "--format", "ufs2", "--force", &empty]));
    assert_eq!(fs::metadata(&empty).expect("made").len(), (64 << 20) + 512);
    let before = fs::read(&empty).expect("image");
    for args in [
        &["check", "-y", &empty][..],
        &["growfs", &empty, "-s", "80M"],
        &["tune", &empty, "-m", "5"],
        &["mount", &empty, &scratch.join("plain"), "-o", "rw"],
    ] {
        let (status, message) = failure(&seekless(args));
        assert!([4, 8].contains(&status), "{args:?}: {message}");
        assert!(message.contains("is a VHD image") && message.contains("truncate"), "{message}");
    }
    assert!(fs::read(&empty).expect("image") == before);
}

#[test]
fn without_qemu_img_its_package_is_named() {
    let scratch = Scratch::new("qcow2-without");
    let (tree, to) = (scratch.join("tree"), scratch.join("to"));
    fs::create_dir(&tree).expect("mkdir");
    fs::create_dir(&to).expect("mkdir");
    let image = format!("{to}/image.qcow2");
    let build = command(&["build", &tree, "-o", &image]).env("PATH", &tree).output();
    let (code, message) = failure(&build.expect("seekless"));
    assert!(code == 4 && message.contains("qemu-utils"), "{message}");
    assert_eq!(fs::read_dir(&to).expect("list").count(), 0);
}

/// A program in place of qemu-img, which fails or is killed: the old file stays, and no other is
/// left.
#[test]
fn a_conversion_that_fails_leaves_the_old_file() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("qcow2-fails");
    let (tree, to, bin) = (scratch.join("tree"), scratch.join("to"), scratch.join("bin"));
    for dir in [&tree, &to, &bin] {
        fs::create_dir(dir).expect("mkdir");
    }
    let image = format!("{to}/image.qcow2");
    let program = Path::new(&bin).join("qemu-img");
    for (does, code, word) in [
        ("echo 'qemu-img: No space left on device' >&2; exit 1", 5, "No space left"),
        ("echo 'first line' >&2; echo second >&2; exit 1", 6, "first line; second"),
    ] {
        fs::write(&program, format!("#!/bin/sh\n[ $1 = --version ] && exit 0\n{does}\n"))
            .expect("program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
        fs::write(&image, b"old").expect("write");
        let build = ["build", &tree, "--force", "-o", &image];
        let path = format!("{bin}:/usr/bin:/bin");
        let output = command(&build).env("PATH", path).output().expect("seekless");
        let (status, message) = failure(&output);
        assert!(status == code && message.contains(word), "{message}");
        assert_eq!(fs::read(&image).expect("read"), b"old");
        assert_eq!(fs::read_dir(&to).expect("list").count(), 1);
    }
}

/// The message names the damaged source, not the output.
#[test]
fn damage_has_the_name_of_its_image() {
    let Some(Scene { scratch, qcow2, .. }) = scene("qcow2-cut") else { return };
    let bytes = fs::read(&qcow2).expect("image");
    let (cut, to) = (scratch.join("cut.qcow2"), scratch.join("to.img"));
    let mut named = 0;
    for part in 4..8 {
        fs::write(&cut, &bytes[..bytes.len() * part / 8]).expect("write");
        let (_, message) = failure(&seekless(&["build", &cut, "-o", &to]));
        assert!(message.contains(&cut) && !message.contains(&to), "{message}");
        named += u32::from(message.contains("qcow2 image, byte"));
    }
    assert!(named > 0, "the end of the image was never missed");
}

#[test]
fn what_changes_an_image_refuses_it() {
    let Some(Scene { scratch, qcow2, trace, .. }) = scene("qcow2-refused") else { return };
    let before = fs::read(&qcow2).expect("image");
    let at = scratch.join("at");
    fs::create_dir(&at).expect("mkdir");
    let runs: [(&[&str], i32); 7] = [
        (&["mount", &qcow2, &at, "-o", "rw"], 4),
        (&["check", "-p", &qcow2], 8),
        (&["check", "-y", &qcow2], 8),
        (&["optimize", &qcow2, "--trace", &trace, "--in-place"], 4),
        (&["tune", &qcow2, "-m", "5"], 4),
        (&["age", &qcow2, "--ops", "10"], 4),
        (&["score", &qcow2, "--trace", &trace, "--verify-kernel"], 4),
    ];
    for (args, code) in runs {
        let (status, message) = failure(&seekless(args));
        assert!(status == code && message.contains("is a qcow2 image"), "{args:?}: {message}");
        assert!(message.contains("qemu-img convert") && message.contains("qemu-nbd"), "{message}");
    }
    assert!(fs::read(&qcow2).expect("image") == before);
    text(&seekless(&["optimize", &qcow2, "--trace", &trace, "--in-place", "--dry-run"]));
}

#[test]
fn damage_is_reported_with_its_place() {
    let Some(Scene { scratch, qcow2, raw, .. }) = scene("qcow2-damaged") else { return };
    let broken = scratch.join("broken");
    let mut bytes = fs::read(&qcow2).expect("image");
    // The L1 table is at a wrong offset.
    bytes[40..48].copy_from_slice(&(1u64 << 50).to_be_bytes());
    fs::write(&broken, &bytes).expect("write");
    for args in [["info", &broken], ["manifest", &broken]] {
        let (code, message) = failure(&seekless(&args));
        assert!(code == 3 && message.contains("qcow2 image, byte 40"), "{message}");
    }
    // A backing file in another directory.
    let overlay = scratch.join("overlay");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &raw, &overlay]);
    let (code, message) = failure(&seekless(&["info", &overlay]));
    assert!(code == 4 && message.contains("only files beside the image"), "{message}");
    run("qemu-img", &["rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", "plain/image", &overlay]);
    assert_eq!(manifest(&overlay, &[]), manifest(&raw, &[]));
}
