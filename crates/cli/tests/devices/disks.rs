//! Whole disks with partitions, written to devices.

use crate::judges::{command, failure, manifest, ready, run, same, seekless, skip, text};
use crate::{Device, MIB, Mount, scene};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_disk_fills_its_device() {
    let Some((scratch, tree)) = scene("device-disk") else { return };
    if !ready("sgdisk") {
        return;
    }
    let device = Device::new(&scratch, "device", 96 * MIB);
    let file = scratch.join("file");
    let build = |to: &[&str]| {
        let args = ["build", &tree, "--force", "--disk", "--esp-size", "8M", "-o"];
        text(&seekless(&[&args[..], to].concat()))
    };
    build(&[device.path()]);
    let said = run("sgdisk", &["-v", device.path()]);
    assert!(said.contains("No problems found"), "{said}");
    // The copy of the table is at the end of the device, so the root has all space in between.
    let root = (96 - 1 - 8 - 1) * MIB;
    build(&[&file, "--size", &root.to_string()]);
    assert!(device.bytes() == fs::read(&file).expect("file"));
    let tags = device.blkid();
    assert!(tags.contains("PTTYPE=\"gpt\""), "{tags}");
    // With a size the rest is free, and signatures of the previous contents are gone.
    let device = Device::new(&scratch, "larger", 96 * MIB);
    run("mke2fs", &["-q", "-F", "-t", "ext4", device.path()]);
    build(&[device.path(), "--size", "32M"]);
    let said = run("sgdisk", &["-v", device.path()]);
    assert!(said.contains("No problems found"), "{said}");
    let mut kinds = device.signatures();
    kinds.retain(|kind| kind != "gpt" && kind != "PMBR");
    assert!(kinds.is_empty(), "{kinds:?}");
    let listed = run("sfdisk", &["--dump", device.path()]);
    assert!(listed.contains("size=       65536"), "{listed}");

    // A disk optimized onto a larger one: a warning names the step that remains to be done.
    let trace = scratch.join("trace");
    fs::write(&trace, "{\"seekless_trace\":1}\n{\"time\":1,\"op\":\"open\",\"path\":\"/\"}\n")
        .expect("trace");
    build(&[&file, "--size", "48M"]);
    let optimize = ["optimize", &file, "--trace", &trace, "--partition", "root", "--force", "-o"];
    let output = seekless(&[&optimize[..], &[device.path()]].concat());
    text(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("sgdisk -e"), "{said}");
    assert!(!run("sgdisk", &["-v", device.path()]).contains("No problems found"));
    run("sgdisk", &["-e", device.path()]);
    assert!(run("sgdisk", &["-v", device.path()]).contains("No problems found"));
    let other = Device::new(&scratch, "as-large", fs::metadata(&file).expect("file").len());
    let output = seekless(&[&optimize[..], &[other.path()]].concat());
    text(&output);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("sgdisk"));
}

/// The copy of a partition table at the end would make an incomplete image look like a disk.
#[test]
fn one_that_is_not_complete_shows_no_partitions() {
    let Some((scratch, tree)) = scene("device-disk-killed") else { return };
    let file = scratch.join("file");
    let build = ["build", &tree, "--disk", "--esp-size", "8M", "--size", "64M", "-o", &file];
    text(&seekless(&build));
    let len = fs::metadata(&file).expect("file").len();
    let device = Device::new(&scratch, "device", len);
    let args = ["age", &file, "--partition", "root", "--into", "aged", "--ops", "100000000"];
    let args = [&args[..], &["--force", "-o", device.path()]].concat();
    let mut child =
        command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("age");
    // All contents have been copied long before.
    let start = Instant::now();
    while child.try_wait().expect("child").is_none() && start.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(100));
    }
    run("kill", &["-TERM", &child.id().to_string()]);
    assert!(!child.wait().expect("child").success());
    assert!(device.blkid().is_empty(), "{}", device.blkid());
    let (code, message) = failure(&seekless(&["info", device.path()]));
    assert!(code == 4 && message.contains("no known file system"), "{code}: {message}");
}

#[test]
fn partitions_appear_and_keep_their_disk() {
    let Some((scratch, tree)) = scene("device-partitions") else { return };
    let backing = scratch.path().join("device");
    fs::File::create(&backing).unwrap().set_len(96 * MIB).unwrap();
    let device = Device::on(backing, &["--partscan"]);
    let build = ["build", &tree, "--disk", "--esp-size", "8M", "-o", device.path()];
    text(&seekless(&build));
    let root = format!("{}p2", device.path());
    // Without support for partition tables, the kernel has to be informed of the partitions.
    if !Path::new(&root).exists() {
        run("partx", &["--add", device.path()]);
    }
    if !Path::new(&root).exists() {
        skip(&format!("{root} does not appear: nobody makes nodes of partitions here"));
        return;
    }
    run("e2fsck", &["-fn", &root]);
    let listed = manifest(&root, &[]);
    text(&seekless(&["build", &tree, "--force", "-o", &root]));
    run("e2fsck", &["-fn", &root]);
    let mounted = Mount::new(&scratch, &root, "rw");
    same("the kernel's listing", &manifest(&mounted.0, &[]), &listed);
    // The disk is in use while its partition is mounted.
    let (code, message) = failure(&seekless(&[&build[..], &["--force"]].concat()));
    assert!(code == 6 && message.contains(&format!("is mounted on {}", mounted.0)), "{message}");
    let read = seekless(&["ls", "--partition", "root", device.path(), "/"]);
    let warning = String::from_utf8_lossy(&read.stderr).into_owned();
    assert!(warning.contains("is mounted read-write"), "{warning}");
    drop(mounted);
    // The other partition does not matter.
    let esp = format!("{}p1", device.path());
    run("mke2fs", &["-q", "-F", &esp]);
    let _mounted = Mount::new(&scratch, &esp, "rw");
    text(&seekless(&["build", &tree, "--force", "-o", &root]));
}
