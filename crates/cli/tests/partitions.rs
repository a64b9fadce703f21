//! Disk images with partitions: one is selected, and no byte outside it changes.

#[path = "judges/mod.rs"]
mod judges;

use judges::{Scratch, can_mount, command, failure, ready, run, skip, text};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MIB: usize = 1 << 20;

/// The partition tables of the disk: an EFI system partition and a root.
const TABLES: [&str; 2] = [
    "label: gpt\nstart=2048, size=16M, type=uefi, name=esp\nsize=48M, type=linux, name=system\n",
    "label: dos\nstart=2048, size=16M, type=ef\nsize=48M, type=83, bootable\n",
];

struct Disk {
    scratch: Scratch,
    disk: PathBuf,
    root: PathBuf,
}

/// Start of the root partition, in bytes.
const ROOT: usize = 17 * MIB;

fn prepare(name: &str, table: &str) -> Option<Disk> {
    let scratch = Scratch::new(name);
    let (tree, esp, root, disk) = (
        scratch.path().join("tree"),
        scratch.path().join("esp.img"),
        scratch.path().join("root.img"),
        scratch.path().join("disk.img"),
    );
    for at in 0..400usize {
        let dir = tree.join(format!("d{}", at % 9));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{at}")), vec![at as u8; at * 97 % 20_000]).unwrap();
    }
    fs::write(tree.join("boot.efi"), "loader").unwrap();
    let mkfs = ["mkfs", "--format", "fat16", "-n", "BOOT", "--size", "16M"];
    text(&command(&mkfs).arg(&esp).output().unwrap());
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-L", "the root", "-d"])
        .args([&tree, &root])
        .arg("47M")
        .status();
    if !made.is_ok_and(|status| status.success()) {
        skip("mke2fs is not installed");
        return None;
    }
    fs::File::create(&disk).unwrap().set_len(72 * MIB as u64).unwrap();
    let sfdisk = Command::new("sfdisk").arg("-q").arg(&disk).stdin(Stdio::piped()).spawn();
    let Ok(mut sfdisk) = sfdisk else {
        skip("sfdisk is not installed");
        return None;
    };
    sfdisk.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let mut bytes = fs::read(&disk).unwrap();
    for (at, image) in [(MIB, &esp), (ROOT, &root)] {
        let image = fs::read(image).unwrap();
        bytes[at..at + image.len()].copy_from_slice(&image);
    }
    // Data after the file system in its partition, and after all partitions.
    bytes[ROOT + 47 * MIB + 5] = 77;
    bytes[66 * MIB] = 78;
    fs::write(&disk, bytes).unwrap();
    Some(Disk { scratch, disk, root })
}

/// Runs a command on an image, with more arguments after it.
fn of(what: &str, image: &Path, more: &[&str]) -> String {
    text(&command(&[what]).arg(image).args(more).output().unwrap())
}

/// The file system in the root partition, which e2fsck must find sound.
fn root_of(disk: &Path, scratch: &Scratch) -> Vec<u8> {
    let bytes = fs::read(disk).unwrap()[ROOT..ROOT + 47 * MIB].to_vec();
    let part = scratch.path().join("part.img");
    fs::write(&part, &bytes).unwrap();
    let e2fsck = Command::new("e2fsck").arg("-fn").arg(&part).output().unwrap();
    assert!(e2fsck.status.success(), "{}", String::from_utf8_lossy(&e2fsck.stdout));
    bytes
}

/// All bytes of a disk outside the root's file system.
fn around(disk: &Path) -> Vec<u8> {
    let bytes = fs::read(disk).unwrap();
    [&bytes[..ROOT], &bytes[ROOT + 47 * MIB..]].concat()
}

#[test]
fn partitions_are_listed_and_chosen() {
    for (table, scheme) in TABLES.iter().zip(["gpt", "mbr"]) {
        let Some(Disk { scratch: _scratch, disk, root }) = prepare("partitions", table) else {
            return;
        };
        let listed: Value = serde_json::from_str(&of("info", &disk, &["--json"])).unwrap();
        assert_eq!(listed["scheme"], scheme);
        let partitions = listed["partitions"].as_array().unwrap();
        let said: Vec<_> = partitions
            .iter()
            .map(|one| {
                (one["start"].as_u64().unwrap(), one["format"].as_str(), one["label"].as_str())
            })
            .collect();
        let (esp, system) = (
            (MIB as u64, Some("fat16"), Some("BOOT")),
            (ROOT as u64, Some("ext4"), Some("the root")),
        );
        assert_eq!(said, [esp, system]);
        let shown = of("info", &disk, &[]);
        assert!(shown.contains(scheme) && shown.contains("ext4 \"the root\""), "{shown}");

        let wanted = of("ls", &root, &["-lR", "/"]);
        let offset = ROOT.to_string();
        let mut ways = vec![
            ["--partition", "2"],
            ["--partition", "root"],
            ["--partition", "the root"],
            ["--offset", &offset],
        ];
        if scheme == "gpt" {
            ways.push(["--partition", "system"]);
        }
        for way in ways {
            assert_eq!(of("ls", &disk, &["-lR", "/", way[0], way[1]]), wanted, "{way:?}");
        }
        assert!(of("info", &disk, &["--partition", "BOOT"]).contains("fat16"));
        let cat = of("cat", &disk, &["/boot.efi", "--partition", "2"]);
        assert_eq!(cat, "loader");
    }
}

#[test]
fn without_a_choice_or_with_a_wrong_one_it_is_said_what_there_is() {
    let Some(Disk { scratch: _scratch, disk, root }) = prepare("partitions-wrong", TABLES[0])
    else {
        return;
    };
    let fails = |image: &Path, more: &[&str]| {
        failure(&command(&["ls"]).arg(image).arg("/").args(more).output().unwrap())
    };
    let (code, said) = fails(&disk, &[]);
    assert!(
        code == 4 && said.contains("--partition") && said.contains("\"system\""),
        "{code}: {said}"
    );
    let (code, said) = fails(&disk, &["--partition", "home"]);
    assert!(
        code == 2 && said.contains("\"home\"") && said.contains("EFI System"),
        "{code}: {said}"
    );
    let (code, said) = fails(&root, &["--partition", "1"]);
    assert!(code == 4 && said.contains("no partition table"), "{code}: {said}");
    assert_eq!(fails(&disk, &["--offset", "1000"]).0, 2);
    assert_eq!(fails(&disk, &["--offset", "1T"]).0, 2);
    let both =
        command(&["ls"]).arg(&disk).args(["/", "--offset", "1M", "--partition", "1"]).output();
    assert_eq!(both.unwrap().status.code(), Some(2));
    // A disk cut off within its second partition.
    let mut bytes = fs::read(&disk).unwrap();
    bytes.truncate(40 * MIB);
    fs::write(&disk, bytes).unwrap();
    let (code, said) = fails(&disk, &["--partition", "2"]);
    assert!(code == 3 && said.contains("past the end of the disk"), "{code}: {said}");
}

fn trace_of(scratch: &Scratch) -> String {
    let mut lines = String::from("{\"seekless_trace\":1}\n");
    for at in (0..400).step_by(7) {
        let path = format!("/d{}/f{at}", at % 9);
        lines += &format!("{{\"time\":{at},\"op\":\"read\",\"path\":\"{path}\"}}\n");
    }
    let trace = scratch.path().join("job.trace");
    fs::write(&trace, lines).unwrap();
    trace.to_str().unwrap().into()
}

#[test]
fn what_is_written_to_a_partition_is_what_is_written_to_an_image_of_it() {
    for table in TABLES {
        let Some(Disk { scratch, disk, root }) = prepare("partitions-optimize", table) else {
            return;
        };
        let trace = trace_of(&scratch);
        let (alone, whole) = (scratch.join("alone.img"), scratch.path().join("whole.img"));
        of("optimize", &root, &["--trace", &trace, "-o", &alone]);
        let to = whole.to_str().unwrap();
        let before = fs::read(&disk).unwrap();
        let said =
            of("optimize", &disk, &["--trace", &trace, "--partition", "root", "-o", to, "--json"]);
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(
            said["traces"][0]["after"]["seeks"].as_u64()
                < said["traces"][0]["before"]["seeks"].as_u64()
        );
        assert_eq!(fs::read(&disk).unwrap(), before, "the old disk was changed");
        assert!(root_of(&whole, &scratch) == fs::read(&alone).unwrap(), "another file system");
        assert!(around(&whole) == around(&disk), "something else was changed");

        // In place.
        of("optimize", &root, &["--trace", &trace, "--in-place"]);
        of("optimize", &disk, &["--trace", &trace, "--in-place", "--partition", "2"]);
        let changed = root_of(&disk, &scratch);
        assert!(changed != before[ROOT..ROOT + 47 * MIB], "nothing was moved");
        assert!(around(&disk) == around(&whole), "something else was changed");
        let scored = |image: &Path, more: &[&str]| {
            let all = [&["--trace", &trace, "--json"], more].concat();
            let mut score: Value = serde_json::from_str(&of("score", image, &all)).unwrap();
            score["image"] = Value::Null;
            score
        };
        assert_eq!(scored(&disk, &["--partition", "root"]), scored(&root, &[]));
    }
}

#[test]
fn a_partition_is_checked_and_repaired_within_its_bounds() {
    let Some(Disk { scratch, disk, .. }) = prepare("partitions-check", TABLES[0]) else { return };
    of("check", &disk, &["--partition", "1"]);
    of("check", &disk, &["--partition", "2"]);
    // A count in the superblock that a crash may leave.
    let mut bytes = fs::read(&disk).unwrap();
    let outside = around(&disk);
    let shell = "set_super_value free_inodes_count 3\n";
    let part = scratch.path().join("part.img");
    fs::write(&part, &bytes[ROOT..ROOT + 47 * MIB]).unwrap();
    let mut debugfs = Command::new("debugfs")
        .args(["-w", "-f", "-"])
        .arg(&part)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    debugfs.stdin.take().unwrap().write_all(shell.as_bytes()).unwrap();
    assert!(debugfs.wait().unwrap().success());
    bytes[ROOT..ROOT + 47 * MIB].copy_from_slice(&fs::read(&part).unwrap());
    fs::write(&disk, bytes).unwrap();
    let code = |args: &[&str]| {
        command(&["check"])
            .arg(&disk)
            .args(args)
            .args(["--partition", "2"])
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!((code(&[]), code(&["-y"]), code(&[])), (Some(4), Some(1), Some(0)));
    root_of(&disk, &scratch);
    assert!(around(&disk) == outside, "something else was changed");
}

#[test]
fn a_log_of_a_disk_leads_to_the_files_of_its_partition() {
    let Some(Disk { scratch, disk, root }) = prepare("partitions-log", TABLES[0]) else { return };
    let trace = trace_of(&scratch);
    let log = scratch.join("log");
    of("score", &root, &["--trace", &trace, "--io-log", &log]);
    let ranges = |skip: usize| {
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let number = |key: &str| line[key].as_u64().unwrap();
            format!("{} {}\n", number("offset") + skip as u64, number("bytes"))
        };
        let lines: String = fs::read_to_string(&log).unwrap().lines().map(line).collect();
        let to = scratch.join("ranges");
        fs::write(&to, lines).unwrap();
        to
    };
    let import = |image: &Path, skip, more: &[&str]| {
        let mut import = command(&["trace", "import", "--blocks", &ranges(skip), "--image"]);
        let imported = text(&import.arg(image).args(more).output().unwrap());
        assert!(imported.lines().count() > 50);
        imported
    };
    assert_eq!(import(&disk, ROOT, &["--partition", "root"]), import(&root, 0, &[]));
}

#[test]
fn a_partition_is_a_source() {
    for (at, table) in TABLES.into_iter().enumerate() {
        let Some(Disk { scratch, disk, root }) = prepare(&format!("source{at}"), table) else {
            return;
        };
        let part = ["--partition", "the root"];
        let listing = of("manifest", &root, &[]);
        assert_eq!(of("manifest", &disk, &part), listing);
        let at = ROOT.to_string();
        assert_eq!(of("manifest", &disk, &["--offset", &at]), listing);
        let new = scratch.path().join("new.img");
        let out = ["-q", "-o", new.to_str().unwrap()];
        of("build", &disk, &[&out[..], &part].concat());
        assert_eq!(of("manifest", &new, &[]), listing);
        let compared = command(&["manifest", "--compare"]).args([&disk, &new]).args(part).output();
        assert_eq!(text(&compared.unwrap()), "");
        // Without it there is nothing to list, and the message suggests the option.
        for args in [&["manifest"][..], &["build", "--force", "-o", out[2]]] {
            let output = command(args).arg(&disk).output().unwrap();
            let (code, said) = failure(&output);
            assert!(code == 4 && said.contains("choose one with --partition: 1 "), "{said}");
        }
        let mut two = command(&["build", "--force", "-o", out[2]]);
        let output = two.args([&disk, &root]).args(part).output().unwrap();
        let (code, said) = failure(&output);
        assert!(code == 2 && said.contains("take one source"), "{said}");
    }
}

/// The same prediction and the same requests as on an image of the partition alone.
#[test]
fn a_kernel_is_asked_about_a_partition() {
    let Some(Disk { scratch, disk, root }) = prepare("partitions-kernel", TABLES[0]) else {
        return;
    };
    if !can_mount() {
        return;
    }
    let trace = trace_of(&scratch);
    let verified = |image: &Path, more: &[&str], how: &[&str]| {
        let args = [&["--trace", &trace, "--json"][..], more, how].concat();
        let mut told: Value = serde_json::from_str(&of("score", image, &args)).unwrap();
        told["image"] = Value::Null;
        told
    };
    let part = ["--partition", "root"];
    let kernel = ["--verify-kernel"];
    assert_eq!(verified(&disk, &part, &kernel), verified(&root, &[], &kernel));
    let program = [
        "--verify-program",
        "--tolerance",
        "100000",
        "--runs",
        "1",
        "--",
        "cat",
        "{}/d0/f0",
        "{}/d7/f7",
    ];
    assert_eq!(verified(&disk, &part, &program), verified(&root, &[], &program));

    // With a journal to be replayed, a copy of the disk is mounted, and the disk is not written.
    let commands = "journal_open\njournal_write -b 40 /dev/zero\njournal_close\n";
    let dirty = scratch.path().join("dirty.img");
    fs::copy(&root, &dirty).unwrap();
    let mut debugfs = Command::new("debugfs")
        .args(["-w", "-f", "-"])
        .arg(&dirty)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    debugfs.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    debugfs.wait().unwrap();
    let mut bytes = fs::read(&disk).unwrap();
    bytes[ROOT..ROOT + 47 * MIB].copy_from_slice(&fs::read(&dirty).unwrap());
    fs::write(&disk, &bytes).unwrap();
    let info = of("info", &disk, &["--partition", "2", "--skip-journal", "--json"]);
    assert!(info.contains("needs_recovery"), "{info}");
    verified(&disk, &part, &["--verify-kernel", "--tolerance", "100000"]);
    assert!(fs::read(&disk).unwrap() == bytes, "the disk was changed");
}

#[test]
fn a_partition_is_aged() {
    let Some(Disk { scratch, disk, root }) = prepare("partitions-age", TABLES[0]) else { return };
    let how = ["--profile", "mail", "--ops", "2000", "--into", "mail"];
    let how = [&how[..], &["-q"]].concat();
    let (alone, whole) = (scratch.join("alone.img"), scratch.path().join("whole.img"));
    of("age", &root, &[&how[..], &["-o", &alone]].concat());
    let part = ["--partition", "root"];
    let before = fs::read(&disk).unwrap();
    of("age", &disk, &[&how[..], &part, &["-o", whole.to_str().unwrap()]].concat());
    assert!(fs::read(&disk).unwrap() == before, "the old disk was changed");
    assert!(root_of(&whole, &scratch) == fs::read(&alone).unwrap(), "another file system");
    assert!(around(&whole) == around(&disk), "something else was changed");
    if ready("qemu-img") {
        // To a qcow2 image, and from one.
        let (first, second) = (scratch.path().join("1.qcow2"), scratch.path().join("2.qcow2"));
        of("age", &disk, &[&how[..], &part, &["-o", first.to_str().unwrap()]].concat());
        let same = |image: &Path| {
            run("qemu-img", &["compare", image.to_str().unwrap(), whole.to_str().unwrap()]);
        };
        same(&first);
        run(
            "qemu-img",
            &["convert", "-O", "qcow2", disk.to_str().unwrap(), second.to_str().unwrap()],
        );
        let output = command(&["age"]).arg(&second).args(&how).args(part).output().unwrap();
        let (code, said) = failure(&output);
        assert!(code == 4 && said.contains("-o NEW"), "{code}: {said}");
        let third = scratch.path().join("3.qcow2");
        of("age", &second, &[&how[..], &part, &["-o", third.to_str().unwrap()]].concat());
        same(&third);
    }
    of("age", &disk, &[&how[..], &part].concat());
    assert!(fs::read(&disk).unwrap() == fs::read(&whole).unwrap(), "in place: another disk");
    let output = command(&["age"]).arg(&disk).args(&how).output().unwrap();
    let (code, said) = failure(&output);
    assert!(code == 4 && said.contains("choose one with --partition"), "{code}: {said}");
}

#[test]
fn a_partition_is_tuned() {
    let Some(Disk { scratch, disk, .. }) = prepare("partitions-tune", TABLES[0]) else { return };
    let volume = scratch.path().join("volume.img");
    text(&command(&["mkfs", "--format", "ufs2", "--size", "16M"]).arg(&volume).output().unwrap());
    let mut bytes = fs::read(&disk).unwrap();
    bytes[MIB..17 * MIB].copy_from_slice(&fs::read(&volume).unwrap());
    fs::write(&disk, &bytes).unwrap();
    let part = ["--partition", "1"];
    let tuned = ["-n", "enable", "-m", "5", "-A"];
    assert_eq!(of("tune", &disk, &[&["-p"], &part[..]].concat()), of("tune", &volume, &["-p"]));
    of("tune", &volume, &tuned);
    of("tune", &disk, &[&tuned[..], &part].concat());
    bytes[MIB..17 * MIB].copy_from_slice(&fs::read(&volume).unwrap());
    assert!(fs::read(&disk).unwrap() == bytes, "not what is written to the volume alone");
}

/// A file system after all partitions is not part of the copy of the table.
#[test]
fn a_file_system_behind_all_partitions_is_whole() {
    // The root is in no partition.
    let table = "label: gpt\nstart=2048, size=16M, type=uefi, name=esp\n";
    let Some(Disk { scratch, disk, root }) = prepare("partitions-behind", table) else { return };
    let trace = trace_of(&scratch);
    let at = ROOT.to_string();
    let (alone, whole) = (scratch.join("alone.img"), scratch.path().join("whole.img"));
    let to = whole.to_str().unwrap();
    of("optimize", &root, &["--trace", &trace, "-o", &alone]);
    of("optimize", &disk, &["--trace", &trace, "--offset", &at, "-o", to]);
    assert!(root_of(&whole, &scratch) == fs::read(&alone).unwrap(), "another file system");
    assert!(around(&whole) == around(&disk), "something else was changed");
    let how = ["--ops", "500", "--into", "x", "-q", "--force", "-o"];
    of("age", &root, &[&how[..], &[&alone]].concat());
    of("age", &disk, &[&["--offset", &at], &how[..], &[to]].concat());
    assert!(root_of(&whole, &scratch) == fs::read(&alone).unwrap(), "another file system");
    assert!(around(&whole) == around(&disk), "something else was changed");
}

/// A file that the kernel has mounted is neither changed nor used as a source.
#[test]
fn a_mounted_file_is_not_changed() {
    let Some(Disk { scratch, disk, root }) = prepare("partitions-mounted", TABLES[0]) else {
        return;
    };
    if !can_mount() {
        return;
    }
    let trace = trace_of(&scratch);
    let at = scratch.join("at");
    fs::create_dir(&at).unwrap();
    let offset = format!("loop,offset={ROOT},sizelimit={}", 48 * MIB);
    for (image, options, part) in
        [(&root, "loop", &[][..]), (&disk, &*offset, &["--partition", "root"])]
    {
        let image = image.to_str().unwrap();
        run("mount", &["-o", options, image, &at]);
        let before = fs::read(image).unwrap();
        let free = scratch.join("free");
        let _ = fs::create_dir(&free);
        let to = scratch.join("to");
        let runs: [&[&str]; 8] = [
            &["age", image, "--ops", "10", "--into", "x", "-o", &to],
            &["optimize", image, "--trace", &trace, "-o", &to],
            &["build", image, "-o", &to],
            &["check", "-p", image],
            &["check", "-y", image],
            &["optimize", image, "--trace", &trace, "--in-place"],
            &["age", image, "--ops", "10", "--into", "x"],
            &["mount", image, &free, "-o", "rw"],
        ];
        for args in runs {
            let output = command(args).args(part).output().unwrap();
            let (_, said) = failure(&output);
            let said = said.replace("mounted read-write on", "mounted on");
            assert!(said.contains(&format!("is mounted on {at}")), "{args:?}: {said}");
        }
        assert!(fs::read(image).unwrap() == before);
        judges::unmount(&at).unwrap();
        // A process of another test may have a copy of the mount for a moment.
        for _ in 0..100 {
            if run("losetup", &["-j", image]).is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        of("check", Path::new(image), &[&["-p"], part].concat());
    }
}
