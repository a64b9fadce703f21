//! Images written to devices: the same bytes as in a file, no remains of the previous contents, no
//! damage to a device in use.

use crate::judges::{command, failure, manifest, ready, run, same, seekless, text};
use crate::{Device, MIB, Mount, scene};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_device_holds_what_a_file_of_its_size_would() {
    let Some((scratch, tree)) = scene("device-same") else { return };
    let device = Device::new(&scratch, "device", 64 * MIB + 512);
    let file = scratch.join("file");
    for options in [
        &[][..],
        &["-b", "1024"],
        &["--format", "ext2"],
        &["--format", "ufs1"],
        &["--format", "ufs2"],
        &["--format", "fat16", "--drop", "all"],
        &["--format", "fat32", "--drop", "all"],
        &["--verity"],
    ] {
        let build = |to: &[&str]| {
            text(&seekless(&[&["build", &tree, "--force", "-o"], to, options].concat()))
        };
        build(&[device.path()]);
        let written = device.bytes();
        // The file system fills the device up to a multiple of its blocks, and a file of that size
        // has the same bytes.
        let told = text(&seekless(&["info", "--json", device.path()]));
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        let size = told["blocks"].as_u64().unwrap() * told["block_size"].as_u64().unwrap();
        let least = if options == ["--verity"] { 63 * MIB } else { 64 * MIB - 65536 };
        assert!(size >= least && size <= 64 * MIB + 512, "{options:?}: {size}");
        build(&[file.as_str(), "--size", &size.to_string()]);
        let wanted = fs::read(&file).expect("file");
        assert!(wanted.len() <= written.len(), "{options:?}");
        let (image, behind) = written.split_at(wanted.len());
        let differs = image.iter().zip(&wanted).position(|(device, file)| device != file);
        assert_eq!(differs, None, "{options:?}");
        assert!(behind.iter().all(|&byte| byte == 0), "{options:?}: {} behind", behind.len());
    }
}

#[test]
fn the_kernel_and_e2fsck_take_it() {
    let Some((scratch, tree)) = scene("device-judged") else { return };
    let device = Device::new(&scratch, "device", 64 * MIB);
    for options in [&[][..], &["--size", "24M"], &["--free", "40%"], &["--size", "+10M"]] {
        text(&seekless(&[&["build", &tree, "--force", "-o", device.path()], options].concat()));
        run("e2fsck", &["-fn", device.path()]);
        assert_eq!(device.signatures(), ["ext4"], "{options:?}");
        let listed = manifest(device.path(), &[]);
        let mounted = Mount::new(&scratch, device.path(), "ro");
        same("the kernel's listing", &manifest(&mounted.0, &[]), &listed);
    }
    let (code, message) =
        failure(&seekless(&["build", &tree, "--force", "-o", device.path(), "--size", "80M"]));
    let sizes = [format!("{} bytes", 80 * MIB), format!("{} bytes", 64 * MIB)];
    assert!(code == 5 && sizes.iter().all(|size| message.contains(size)), "{message}");
    assert_eq!(device.signatures(), ["ext4"], "a refusal has written");
}

#[test]
fn a_device_too_small_says_both_sizes() {
    let Some((scratch, tree)) = scene("device-small") else { return };
    let device = Device::new(&scratch, "device", MIB);
    let before = device.bytes();
    for options in [&[][..], &["--format", "ufs2"], &["--disk"], &["--verity"]] {
        let args = [&["build", &tree, "-o", device.path()], options].concat();
        let (code, message) = failure(&seekless(&args));
        assert!(code == 5 && message.contains(&format!("{MIB} bytes")), "{message}");
        assert!(device.bytes() == before, "{options:?}: a refusal has written");
    }
}

/// Signatures of all sorts, as their own tools write them.
const HELD: &[(&str, &str, &str)] = &[
    ("mke2fs", "mke2fs -q -F -t ext4", "an ext image"),
    ("mkfs.fat", "mkfs.fat -I", "a FAT image"),
    ("mkswap", "mkswap -f", "swap space"),
    ("mkfs.btrfs", "mkfs.btrfs -q -f -m single", "a btrfs image"),
    ("sgdisk", "sgdisk -o -n 1:2048:0", "a disk with a partition table (GPT)"),
    ("sfdisk", "echo start=2048 | sfdisk -q --label dos", "a disk with a partition table (MBR)"),
];

#[test]
fn what_is_there_is_named_and_leaves_nothing() {
    let Some((scratch, tree)) = scene("device-held") else { return };
    for &(program, make, held) in HELD {
        if !ready(program) {
            continue;
        }
        for size in [&[][..], &["--size", "8M"]] {
            let device = Device::new(&scratch, "held", 128 * MIB);
            let make = format!("{make} {} >/dev/null 2>&1", device.path());
            run("sh", &["-c", &make]);
            let before = device.bytes();
            let args = [&["build", &tree, "-o", device.path()], size].concat();
            let (code, message) = failure(&seekless(&args));
            assert!(code == 6 && message.contains(held), "{program}: {message}");
            assert!(message.contains("--force"), "{message}");
            assert!(device.bytes() == before, "{program}: a refusal has written");
            text(&seekless(&[&args[..], &["--force"]].concat()));
            assert_eq!(device.signatures(), ["ext4"], "{program} {size:?}");
            let tags = device.blkid();
            assert!(tags.contains("TYPE=\"ext4\"") && !tags.contains("PTTYPE"), "{tags}");
            run("e2fsck", &["-fn", device.path()]);
        }
    }
    // Only the copy of a table, at the end of the device.
    if ready("sgdisk") {
        let device = Device::new(&scratch, "copy", 64 * MIB);
        run("sgdisk", &["-o", "-n", "1:2048:0", device.path()]);
        run("dd", &["if=/dev/zero", &format!("of={}", device.path()), "bs=1M", "count=1"]);
        let (_, message) = failure(&seekless(&["build", &tree, "-o", device.path()]));
        assert!(message.contains("a partition table (gpt)"), "{message}");
    }
}

#[test]
fn what_is_in_use_is_not_touched() {
    let Some((scratch, tree)) = scene("device-in-use") else { return };
    let device = Device::new(&scratch, "device", 64 * MIB);
    text(&seekless(&["build", &tree, "-o", device.path()]));
    let outputs: [&[&str]; 4] = [
        &["build", &tree, "--force", "-o"],
        &["build", &tree, "--force", "--disk", "--esp-size", "8M", "-o"],
        &["build", &tree, "--force", "--format", "fat16", "--drop", "all", "-o"],
        &["mkfs", "--format", "ufs2", "--force"],
    ];
    for how in ["ro", "rw"] {
        let mounted = Mount::new(&scratch, device.path(), how);
        let before = device.bytes();
        for output in outputs {
            let (code, message) = failure(&seekless(&[output, &[device.path()]].concat()));
            let wanted = format!("is mounted on {}", mounted.0);
            assert!(code == 6 && message.contains(&wanted), "{message}");
        }
        assert!(device.bytes() == before, "{how}: a refusal has written");
    }
    // Used as swap space.
    run("mkswap", &["-f", device.path()]);
    if Command::new("swapon").arg(device.path()).status().is_ok_and(|done| done.success()) {
        let refused = seekless(&["build", &tree, "--force", "-o", device.path()]);
        run("swapoff", &[device.path()]);
        let (code, message) = failure(&refused);
        assert!(code == 6 && message.contains("is in use"), "{message}");
    }
    // Used by another device.
    if ready("dmsetup") {
        let name = format!("seekless-test-{}", std::process::id());
        let table = format!("0 2048 linear {} 0", device.path());
        // Some kernels have no device mapper.
        let made = Command::new("dmsetup").args(["create", &name, "--table", &table]).output();
        if made.is_ok_and(|made| made.status.success()) {
            let refused = seekless(&["build", &tree, "--force", "-o", device.path()]);
            run("dmsetup", &["remove", "--retry", &name]);
            let (code, message) = failure(&refused);
            assert!(code == 6 && message.contains("is in use"), "{message}");
        }
    }
}

#[test]
fn blocks_smaller_than_sectors_are_refused() {
    let Some((scratch, tree)) = scene("device-sectors") else { return };
    let backing = scratch.path().join("device");
    fs::File::create(&backing).unwrap().set_len(64 * MIB).unwrap();
    let device = Device::on(backing, &["--sector-size", "4096"]);
    let small = scratch.join("small");
    text(&seekless(&["build", &tree, "-b", "1024", "-o", &small]));
    let refused: [(&[&str], &str); 7] = [
        (&["age", &small, "--ops", "1", "-o"], "larger blocks"),
        (&["build", &tree, "-b", "1024", "-o"], "--block-size"),
        (&["build", &tree, "--format", "ufs2", "-b", "8192", "-o"], "--fragment-size"),
        (&["build", &tree, "--format", "fat16", "--drop", "all", "-o"], "--sector-size"),
        (&["build", &tree, "--disk", "--esp-size", "8M", "-o"], "partition tables"),
        (&["mkfs", "--format", "fat16"], "--sector-size"),
        (&["mkfs", "--format", "ufs2", "-b", "8192", "-f", "1024"], "--fragment-size"),
    ];
    for (args, hint) in refused {
        let (code, message) = failure(&seekless(&[args, &[device.path()]].concat()));
        assert!(code == 4 && message.contains(hint), "{message}");
        assert!(message.contains("sectors of 4096 bytes"), "{message}");
    }
    text(&seekless(&["mkfs", "--format", "fat16", "-S", "4096", device.path()]));
    text(&seekless(&["build", &tree, "--force", "-o", device.path()]));
    run("e2fsck", &["-fn", device.path()]);
    drop(Mount::new(&scratch, device.path(), "rw"));
}

/// Behind the volume the device has bytes that are no zeros.
#[test]
fn a_volume_grows_to_its_device() {
    let Some((scratch, tree)) = scene("device-grows") else { return };
    for format in ["ufs1", "ufs2"] {
        let device = Device::new(&scratch, "device", 64 * MIB);
        let build = ["build", &tree, "--format", format, "--size", "9M", "-o", device.path()];
        text(&seekless(&build));
        let wanted = manifest(device.path(), &[]);
        let before = device.bytes();
        let (code, message) = failure(&seekless(&["growfs", device.path(), "-s", "65M"]));
        assert!(code == 5 && message.contains("the device has 64M, not 65M"), "{message}");
        assert!(device.bytes() == before, "{format}: a refusal has written");
        let said = text(&seekless(&["growfs", device.path()]));
        assert!(said.contains("has grown from 9M to 6"), "{said}");
        text(&seekless(&["check", device.path()]));
        same(format, &wanted, &manifest(device.path(), &[]));
    }
}

#[test]
fn a_source_is_not_written_over() {
    let Some((scratch, tree)) = scene("device-itself") else { return };
    let device = Device::new(&scratch, "device", 64 * MIB);
    text(&seekless(&["build", &tree, "-o", device.path()]));
    let before = device.bytes();
    let trace = scratch.join("trace");
    fs::write(scratch.path().join("paths"), "/d1/f8\n").expect("paths");
    let paths = scratch.join("paths");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let backing = device.backing.to_str().expect("path");
    // A second device on the same file.
    let twin = Device::on(device.backing.clone(), &["--read-only"]);
    let runs: [&[&str]; 4] = [
        &["build", twin.path(), "--force", "-o", device.path()],
        &["build", backing, "--force", "-o", device.path()],
        &["build", device.path(), "--force", "-o", device.path()],
        &["optimize", device.path(), "--trace", &trace, "--force", "-o", device.path()],
    ];
    for args in runs {
        let (code, message) = failure(&seekless(args));
        assert!(code == 2 && message.contains("over an input"), "{message}");
    }
    assert!(device.bytes() == before);
}

#[test]
fn one_that_cannot_be_written_is_as_it_was() {
    let Some((scratch, tree)) = scene("device-read-only") else { return };
    let backing = Device::new(&scratch, "backing", 32 * MIB).backing.clone();
    let before = fs::read(&backing).expect("backing file");
    let device = Device::on(backing, &["--read-only"]);
    let (_, message) = failure(&seekless(&["build", &tree, "--force", "-o", device.path()]));
    assert!(!message.contains("lost"), "{message}");
    assert!(device.bytes() == before);
}

#[test]
fn a_device_that_fails_shows_no_file_system() {
    let Some((scratch, tree)) = scene("device-fails") else { return };
    // The backing file system has less space than the device.
    let small = scratch.join("small");
    fs::create_dir(&small).expect("mkdir");
    run("mount", &["-t", "tmpfs", "-o", "size=8M", "tmpfs", &small]);
    let backing = std::path::Path::new(&small).join("device");
    fs::File::create(&backing).unwrap().set_len(64 * MIB).unwrap();
    fs::write(format!("{tree}/large"), vec![7; 30 << 20]).expect("large");
    let (built, shown) = {
        let device = Device::on(backing, &[]);
        let built = seekless(&["build", &tree, "-o", device.path()]);
        (built, device.blkid())
    };
    run("umount", &["-l", &small]);
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(matches!(built.status.code(), Some(5 | 6)), "{said}");
    assert!(said.contains("os error") && said.contains("is not complete"), "{said}");
    assert!(!said.contains(" bytes"), "{said}");
    assert_eq!(shown, "");
}

/// Times at which a build is killed.
const ROUNDS: u32 = 10;

/// Killed during writes. (The order of writes covers a power failure:
/// `the_beginning_comes_after_all_else`.)
#[test]
fn killed_at_any_moment() {
    let Some((scratch, tree)) = scene("device-kill") else { return };
    fs::write(format!("{tree}/large"), vec![7; 40 << 20]).expect("large");
    let device = Device::new(&scratch, "device", 128 * MIB);
    // Before each run the device contains another file system, which must be intact or gone.
    let other = scratch.join("other");
    text(&seekless(&["build", &format!("{tree}/d1"), "-o", &other, "--size", "128M"]));
    let old = fs::read(&other).expect("other");
    for more in [
        &[][..],
        &["--disk", "--esp-size", "40M"],
        &["--format", "ufs2"],
        &["--format", "fat32", "--drop", "all"],
    ] {
        let args = [&["build", &tree, "--force", "-o", device.path()], more].concat();
        let started = Instant::now();
        text(&seekless(&args));
        let usual = started.elapsed();
        let whole = device.bytes();
        let (mut killed, mut gone) = (0, 0);
        for round in 0..ROUNDS {
            let (from, to) = (format!("if={other}"), format!("of={}", device.path()));
            run("dd", &[&from, &to, "bs=4M", "status=none", "conv=fsync"]);
            let mut child = command(&args);
            let child = child.stderr(Stdio::null()).stdout(Stdio::null()).spawn();
            let mut child = child.expect("seekless");
            std::thread::sleep(Duration::min(usual, Duration::from_secs(5)) * round / ROUNDS);
            child.kill().expect("kill");
            let done = child.wait().expect("wait").success();
            killed += u32::from(!done);
            let bytes = device.bytes();
            if bytes == old {
                assert!(!done, "{more:?}, round {round}");
            } else if bytes != whole {
                assert!(!done, "{more:?}, round {round}");
                assert_eq!(device.blkid(), "", "{more:?}, round {round}");
                gone += 1;
            }
        }
        assert!(killed > 2 && gone > 0, "{more:?}: {killed} killed, {gone} while writing");
    }
}

/// The first sectors are written after all others are on stable storage, judged by the system calls
/// on the device.
#[test]
fn the_beginning_comes_after_all_else() {
    let Some((scratch, tree)) = scene("device-order") else { return };
    if !ready("strace") {
        return;
    }
    let (device, log) = (Device::new(&scratch, "device", 64 * MIB), scratch.join("calls"));
    for more in [&[][..], &["--disk", "--esp-size", "8M"], &["--format", "fat16", "--drop", "all"]]
    {
        let built = command(&[&["build", &tree, "--force", "-o", device.path()], more].concat());
        let mut traced = Command::new("strace");
        traced.args(["-f", "-y", "-e", "trace=pwrite64,fdatasync,fsync", "-o", &log]);
        text(&traced.arg(built.get_program()).args(built.get_args()).output().expect("strace"));
        let calls = fs::read_to_string(&log).expect("calls");
        let own = format!("<{}>", device.path());
        let mut order = Vec::new();
        for call in calls.lines().filter(|call| call.contains(&own)) {
            // The last argument of a write is its offset.
            let offset = call.rsplit_once(") = ").and_then(|(args, _)| args.rsplit_once(", "));
            order.push(match offset {
                Some((_, offset)) if call.contains("pwrite64") => {
                    let offset: usize = offset.parse().expect("an offset");
                    if offset < 512 << 10 { "beginning" } else { "rest" }
                }
                _ => "flush",
            });
        }
        order.dedup();
        let end = &order[order.len().saturating_sub(4)..];
        assert_eq!(end, ["rest", "flush", "beginning", "flush"], "{more:?}: {order:?}");
        assert_eq!(order.iter().filter(|what| **what == "beginning").count(), 1, "{order:?}");
    }
}

#[test]
fn empty_file_systems() {
    let Some((scratch, _)) = scene("device-mkfs") else { return };
    let device = Device::new(&scratch, "device", 64 * MIB);
    let file = scratch.join("file");
    for (format, kind) in [("ufs2", "ufs"), ("fat32", "vfat"), ("fat16", "vfat")] {
        let make = |to: &[&str]| {
            let mut mkfs = command(&[&["mkfs", "--format", format, "--force"], to].concat());
            text(&mkfs.env("SOURCE_DATE_EPOCH", "1700000000").output().expect("seekless"))
        };
        make(&[device.path()]);
        make(&[&file, "--size", "64M"]);
        assert!(device.bytes() == fs::read(&file).expect("file"), "{format}");
        assert_eq!(device.signatures(), [kind], "{format}");
        let (code, message) = failure(&seekless(&["mkfs", "--format", format, device.path()]));
        assert!(code == 6 && message.contains("--force"), "{message}");
        make(&[device.path(), "--size", "32M"]);
        assert_eq!(device.signatures(), [kind], "{format}");
    }
}

#[test]
fn optimize_writes_to_a_device() {
    let Some((scratch, tree)) = scene("device-optimize") else { return };
    let (image, file, trace) = (scratch.join("image"), scratch.join("file"), scratch.join("trace"));
    text(&seekless(&["build", &tree, "-o", &image, "--size", "32M"]));
    fs::write(scratch.path().join("paths"), "/d1/f8\n/d5/f5\n").expect("paths");
    let paths = scratch.join("paths");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let device = Device::new(&scratch, "device", 48 * MIB);
    text(&seekless(&["optimize", &image, "--trace", &trace, "-o", device.path()]));
    text(&seekless(&["optimize", &image, "--trace", &trace, "-o", &file]));
    let wanted = fs::read(&file).expect("file");
    assert!(device.bytes()[..wanted.len()] == wanted);
    run("e2fsck", &["-fn", device.path()]);
    assert_eq!(device.signatures(), ["ext4"]);
    let small = Device::new(&scratch, "small", 8 * MIB);
    let args = ["optimize", &image, "--trace", &trace, "-o", small.path()];
    let (code, message) = failure(&seekless(&args));
    assert!(code == 5 && message.contains(&format!("{} bytes", 8 * MIB)), "{message}");
    // In place: refused while it is mounted.
    let in_place = ["optimize", device.path(), "--trace", &trace, "--in-place"];
    {
        let _mounted = Mount::new(&scratch, device.path(), "rw");
        let (code, message) = failure(&seekless(&in_place));
        assert!(code == 6 && message.contains("in use"), "{message}");
    }
    let listed = manifest(device.path(), &[]);
    text(&seekless(&in_place));
    run("e2fsck", &["-fn", device.path()]);
    same("in place", &listed, &manifest(device.path(), &[]));
}

/// A file that is mounted through a loop device, and the file behind a device that is read.
#[test]
fn a_file_behind_a_device_is_not_replaced() {
    let Some((scratch, tree)) = scene("device-behind") else { return };
    let device = Device::new(&scratch, "device", 64 * MIB);
    text(&seekless(&["build", &tree, "-o", device.path()]));
    let backing = device.backing.to_str().expect("path").to_string();
    let before = device.bytes();
    fs::write(scratch.path().join("paths"), "/d1/f8\n").expect("paths");
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let optimize = ["optimize", device.path(), "--trace", &trace, "--force", "-o", &backing];
    let (code, message) = failure(&seekless(&optimize));
    assert!(code == 2 && message.contains("over an input"), "{message}");
    let mounted = Mount::new(&scratch, device.path(), "ro");
    for args in [
        &["build", &tree, "--force", "-o", &backing][..],
        &["mkfs", "--format", "ufs2", "--size", "8M", "--force", &backing],
    ] {
        let (code, message) = failure(&seekless(args));
        assert!(code == 6 && message.contains("is mounted on"), "{args:?}: {message}");
    }
    drop(mounted);
    assert!(fs::read(&backing).expect("file") == before);
}
