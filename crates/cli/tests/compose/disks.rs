//! Whole disks: the partition table judged by sfdisk and sgdisk, each partition by the judges of
//! its format, the disk by the kernel and GRUB.

use crate::judges::{Scratch, can_mount, manifest, ready, run, same, seekless, text, unmount};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;

/// Trees of a root file system and of an EFI system partition.
struct Trees {
    scratch: Scratch,
    root: String,
    esp: String,
}

fn trees(name: &str) -> Trees {
    let scratch = Scratch::new(name);
    let (root, esp) = (scratch.join("root"), scratch.join("esp"));
    fs::create_dir_all(format!("{root}/etc")).expect("mkdir");
    fs::create_dir_all(format!("{esp}/EFI/BOOT")).expect("mkdir");
    fs::write(format!("{root}/etc/fstab"), "/dev/vda2 / ext4 defaults 0 1\n").expect("write");
    for n in 0..300 {
        fs::write(format!("{root}/file-{n}"), vec![n as u8; n * 97]).expect("write");
    }
    fs::write(format!("{esp}/EFI/BOOT/BOOTX64.EFI"), vec![7; 300_000]).expect("write");
    fs::write(format!("{esp}/a long name.conf"), "timeout 3\n").expect("write");
    Trees { scratch, root, esp }
}

/// The partitions as sfdisk prints them.
fn partitions(disk: &str) -> Vec<Value> {
    let table: Value = serde_json::from_str(&run("sfdisk", &["-J", disk])).expect("JSON");
    assert_eq!(table["partitiontable"]["label"], "gpt");
    table["partitiontable"]["partitions"].as_array().expect("partitions").clone()
}

/// Copies a partition to a file.
fn part(scratch: &Scratch, disk: &str, partition: &Value) -> String {
    let number = |key: &str| partition[key].as_u64().expect("sectors") as usize * 512;
    let bytes = fs::read(disk).expect("disk");
    let path = scratch.join(partition["name"].as_str().expect("name"));
    let path = format!("{path}.img");
    fs::write(&path, &bytes[number("start")..number("start") + number("size")]).expect("write");
    path
}

#[test]
fn a_disk_has_both_file_systems_under_a_table_that_others_read() {
    if !(ready("sfdisk") && ready("e2fsck")) {
        return;
    }
    let Trees { scratch, root, esp } = trees("disk-ext4");
    let disk = scratch.join("disk.img");
    let args = ["build", &root, "-o", &disk, "--disk", "--esp", &esp, "--size", "+8M"];
    let told = text(&seekless(&args));
    assert!(told.contains("% used"), "{told}");
    assert!(run("sfdisk", &["--verify", &disk]).contains("No errors detected"));
    let found = partitions(&disk);
    let of = |key: &str| -> Vec<Value> { found.iter().map(|part| part[key].clone()).collect() };
    assert_eq!(of("name"), ["esp", "root"]);
    assert_eq!(of("start"), [2048, 2048 + 64 * 2048]);
    assert_eq!(
        of("type"),
        ["C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"]
    );
    assert_eq!(fs::metadata(&disk).expect("disk").len() % MIB, 0);
    if ready("sgdisk") {
        let verdict = run("sgdisk", &["-v", &disk]);
        assert!(verdict.contains("No problems found"), "{verdict}");
    }
    let (boot, system) = (part(&scratch, &disk, &found[0]), part(&scratch, &disk, &found[1]));
    if ready("fsck.fat") {
        run("fsck.fat", &["-n", &boot]);
    }
    let listed = text(&seekless(&["ls", "-R", &boot]));
    for name in ["BOOTX64.EFI", "a long name.conf"] {
        assert!(listed.contains(name), "{listed}");
    }
    run("e2fsck", &["-fn", &system]);
    same("the root", &manifest(&root, &[]), &manifest(&system, &[]));
    // Through the partition table: our own reader, the kernel, GRUB.
    let through = text(&seekless(&["cat", &disk, "/etc/fstab", "--partition", "root"]));
    assert!(through.starts_with("/dev/vda2"));
    if ready("grub-fstest") {
        let seen = run("grub-fstest", &["-r", "loop0,gpt2", &disk, "cat", "/etc/fstab"]);
        assert_eq!(seen, through);
        let seen = run("grub-fstest", &["-r", "loop0,gpt1", &disk, "cat", "/a long name.conf"]);
        assert_eq!(seen, "timeout 3\n");
    }
    if can_mount() {
        let at = scratch.join("mnt");
        fs::create_dir(&at).expect("mkdir");
        let bytes = |key: &str| found[1][key].as_u64().expect("sectors") * 512;
        let (start, size) = (bytes("start"), bytes("size"));
        let options = format!("loop,ro,offset={start},sizelimit={size}");
        run("mount", &["-t", "ext4", "-o", &options, &disk, &at]);
        let seen = fs::read_to_string(format!("{at}/etc/fstab"));
        unmount(&at).expect("umount");
        assert_eq!(seen.expect("read"), through);
    }
}

#[test]
fn the_same_sources_give_the_same_disk() {
    let Trees { scratch, root, esp } = trees("disk-same");
    let disk = |name: &str, more: &[&str]| {
        let disk = scratch.join(name);
        let args = ["build", &root, "-o", &disk, "--disk", "--esp", &esp];
        text(&seekless(&[&args[..], more].concat()));
        fs::read(disk).expect("disk")
    };
    let one = disk("one", &[]);
    assert!(one == disk("two", &[]), "two disks of one source differ");
    assert!(one != disk("three", &["--uuid", "random"]));
    assert!(one != disk("four", &["--arch", "arm64"]));
}

#[test]
fn options_of_the_root_leave_the_system_partition_alone() {
    if !ready("sfdisk") {
        return;
    }
    let Trees { scratch, root, esp } = trees("disk-options");
    let ids = |name: &str, more: &[&str]| -> Vec<Value> {
        let disk = scratch.join(name);
        let args = ["build", &root, "-o", &disk, "--disk", "--esp", &esp];
        text(&seekless(&[&args[..], more].concat()));
        partitions(&disk).iter().map(|part| part["uuid"].clone()).collect()
    };
    let plain = ids("plain", &[]);
    let without = ids("without", &["--exclude", "*.conf", "--exclude", "fstab"]);
    assert!(plain[0] == without[0] && plain[1] != without[1], "{plain:?} {without:?}");
    let listed = ["ls", "-R", &scratch.join("without"), "--partition", "esp"];
    assert!(text(&seekless(&listed)).contains("a long name.conf"));
    fs::write(format!("{esp}/more"), "more").expect("write");
    let more = ids("more", &[]);
    assert!(plain[0] != more[0] && plain[1] == more[1], "{plain:?} {more:?}");
}

#[test]
fn a_root_may_be_of_any_format_and_the_system_partition_empty() {
    let Trees { scratch, root, .. } = trees("disk-formats");
    for (format, kind) in [
        ("ext2", "Linux root (x86-64)"),
        ("ufs2", "FreeBSD UFS"),
        ("fat32", "Microsoft basic data"),
    ] {
        let disk = scratch.join(format);
        let args = ["build", &root, "-o", &disk, "--disk", "--format", format, "--esp-size", "16M"];
        let drop = ["--drop", "owners,modes"];
        let drop = if format == "fat32" { &drop[..] } else { &[] };
        text(&seekless(&[&args[..], drop].concat()));
        let table = text(&seekless(&["info", &disk]));
        assert!(table.contains(kind) && table.contains("EFI System"), "{table}");
        let listed = text(&seekless(&["ls", &disk, "--partition", "2"]));
        assert!(listed.contains("file-299"), "{listed}");
        assert!(!text(&seekless(&["ls", &disk, "--partition", "1"])).contains("file"));
    }
}

#[test]
fn what_a_disk_cannot_hold_is_refused() {
    let Trees { scratch, root, esp } = trees("disk-refused");
    let disk = scratch.join("disk.img");
    let args = ["build", &root, "-o", &disk];
    for (more, code, says) in [
        (&["--esp", &esp][..], 2, "--disk"),
        (&["--disk", "--verity"], 2, "--verity"),
        (&["--disk", "--esp-size", "1500K"], 2, "multiple of 1M"),
        (&["--disk", "--esp", &root, "--esp-size", "1M"], 5, "--esp-size"),
    ] {
        let output = seekless(&[&args[..], more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(says), "{more:?}: {said}");
        assert_eq!(output.status.code(), Some(code), "{more:?}: {said}");
        assert!(!fs::exists(&disk).expect("exists"), "{more:?}");
    }
    // The source would contain the previous version of the output.
    let within = format!("{esp}/disk.img");
    let output = seekless(&["build", &root, "-o", &within, "--disk", "--esp", &esp]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("inside its source"), "{said}");
}
