//! `-o discard` and `fstrim`, on every format: free blocks become holes of the image file, all others
//! stay.

use crate::judges::{Mounted as KernelMount, Scratch, check, run, seekless, text, unmount};
use crate::mounted::Mounted;
use crate::ready;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The arguments of `seekless mkfs`, or of `mke2fs`, and the disciplines.
const VOLUMES: &[(&str, &[&str], &[&str])] = &[
    ("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "1024"], &["softdep", "normal"]),
    ("mke2fs", &["-q", "-F", "-t", "ext4"], &["journal=ordered"]),
    ("ufs2", &[], &["softdep"]),
    ("ufs1", &["-b", "4K", "-f", "512"], &["normal"]),
    ("fat32", &[], &["softdep"]),
];

fn make(image: &str, kind: &str, how: &[&str]) {
    let _ = fs::remove_file(image);
    if kind == "mke2fs" {
        run("mke2fs", &[how, &[image, "64M"]].concat());
    } else {
        let args = ["mkfs", image, "--format", kind, "--size", "64M"];
        text(&seekless(&[&args[..], how].concat()));
    }
}

fn is_sound(image: &str, kind: &str) {
    if kind == "mke2fs" {
        check(image);
    }
    text(&seekless(&["check", image]));
}

/// Bytes that the host keeps for the image.
fn kept(image: &str) -> u64 {
    File::open(image).and_then(|file| file.sync_all()).expect("fsync");
    fs::metadata(image).expect("image").blocks() * 512
}

fn noise(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed | 1).collect()
}

/// Writes a file that is on the disk then.
fn put(path: &Path, contents: &[u8]) {
    fs::write(path, contents).expect("write");
    File::open(path).and_then(|file| file.sync_all()).expect("fsync");
}

fn fill(dir: &Path) {
    put(&dir.join("stays"), &noise(MIB, 1));
    put(&dir.join("goes"), &noise(7 * MIB, 2));
    put(&dir.join("cut"), &noise(4 * MIB, 3));
    for n in 0..12 {
        put(&dir.join(format!("small{n}")), &noise(30_000, n));
    }
}

fn judge(at: &Path) {
    assert!(fs::read(at.join("stays")).expect("read") == noise(MIB, 1), "a file that stays");
    assert!(fs::read(at.join("cut")).expect("read") == noise(4 * MIB, 3)[..100_000], "a cut file");
    for n in (1..12).step_by(2) {
        let held = fs::read(at.join(format!("small{n}"))).expect("read");
        assert!(held == noise(30_000, n), "a small file that stays");
    }
}

fn remove(at: &Path) {
    fs::remove_file(at.join("goes")).expect("rm");
    fs::File::options()
        .write(true)
        .open(at.join("cut"))
        .expect("open")
        .set_len(100_000)
        .expect("cut");
    for n in (0..12).step_by(2) {
        fs::remove_file(at.join(format!("small{n}"))).expect("rm");
    }
    File::open(at).and_then(|dir| dir.sync_all()).expect("fsync");
}

#[test]
fn freed_blocks_become_holes() {
    if !ready() {
        return;
    }
    for (kind, how, disciplines) in VOLUMES {
        for discipline in *disciplines {
            let scratch = Scratch::on_disk("discard");
            let (image, at) = (scratch.join("image"), scratch.path().join("at"));
            let begin =
                |option: &str| Mounted::new(&image, &at, &format!("rw,{discipline},{option}"));
            let shown = format!("{kind} {how:?} {discipline}");
            // By default nothing goes.
            make(&image, kind, how);
            let mounted = begin("nodiscard");
            fill(&at);
            let full = kept(&image);
            remove(&at);
            mounted.end();
            assert!(kept(&image) > full - MIB, "{shown}: kept without the option");
            is_sound(&image, kind);

            make(&image, kind, how);
            let mounted = begin("discard");
            fill(&at);
            let full = kept(&image);
            assert!(full > 11 * MIB, "{shown}: {full}");
            remove(&at);
            // While it is in use; soft updates take their time.
            let since = Instant::now();
            while *discipline != "softdep" && kept(&image) > full - 10 * MIB {
                assert!(since.elapsed() < Duration::from_secs(60), "{shown}: {}", kept(&image));
                sleep(Duration::from_millis(200));
            }
            judge(&at);
            // Blocks that are taken again are not lost.
            put(&at.join("again"), &noise(5 * MIB, 9));
            sleep(Duration::from_millis(1500));
            fs::write("/proc/sys/vm/drop_caches", "3").expect("caches");
            assert!(fs::read(at.join("again")).expect("read") == noise(5 * MIB, 9), "{shown}");
            // Blocks that are freed last become holes at the unmount.
            fs::remove_file(at.join("again")).expect("rm");
            mounted.end();
            assert!(kept(&image) < full - 10 * MIB, "{shown}: {} of {full}", kept(&image));
            is_sound(&image, kind);
            let mounted = Mounted::new(&image, &at, "ro");
            judge(&at);
            mounted.end();
        }
    }
}

/// `tune2fs -o discard`, `tunefs -t enable`.
#[test]
fn a_volume_may_ask_for_it() {
    if !ready() {
        return;
    }
    for (option, goes) in [("discard", true), ("^discard", false)] {
        let scratch = Scratch::on_disk("discard-default");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        make(&image, "mke2fs", &["-q", "-F", "-t", "ext4"]);
        run("tune2fs", &["-o", option, &image]);
        let mounted = Mounted::new(&image, &at, "rw");
        fill(&at);
        let full = kept(&image);
        remove(&at);
        mounted.end();
        assert_eq!(kept(&image) < full - 10 * MIB, goes, "{option}");
        check(&image);
    }
    for trim in [0, 4] {
        let scratch = Scratch::new("discard-flag");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        make(&image, "ufs2", &["--check-hashes", "none"]);
        // The second byte of `fs_flags`.
        let file = File::options().write(true).open(&image).expect("open");
        file.write_all_at(&[trim], 65536 + 1313).expect("write");
        let mounted = Mounted::new(&image, &at, "rw");
        fill(&at);
        let full = kept(&image);
        remove(&at);
        mounted.end();
        assert_eq!(kept(&image) < full - 10 * MIB, trim != 0, "fs_flags {trim:#x}00");
        text(&seekless(&["check", &image]));
    }
}

/// Bytes that `fstrim` says were trimmed.
fn fstrim(at: &Path, how: &[&str]) -> u64 {
    let at = at.to_str().expect("path");
    let said = run("fstrim", &[&["-v"], how, &[at]].concat());
    let count = said.split_once('(').and_then(|(_, rest)| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).expect("a number of bytes")
}

/// `FITRIM`: all free blocks become holes, also those that were freed without `-o discard`.
#[test]
fn free_blocks_become_holes_on_request() {
    if !ready() {
        return;
    }
    for (kind, how, disciplines) in VOLUMES {
        for discipline in *disciplines {
            let scratch = Scratch::on_disk("trim");
            let (image, at) = (scratch.join("image"), scratch.path().join("at"));
            let shown = format!("{kind} {how:?} {discipline}");
            make(&image, kind, how);
            let mounted = Mounted::new(&image, &at, &format!("rw,{discipline},nodiscard"));
            fill(&at);
            let full = kept(&image);
            remove(&at);
            assert!(kept(&image) > full - MIB, "{shown}: kept without the option");
            // A file that has no name is in use still.
            let held = at.join("held");
            fs::write(&held, noise(3 * MIB, 11)).expect("write");
            let open = File::open(&held).expect("open");
            fs::remove_file(&held).expect("rm");
            let trimmed = fstrim(&at, &[]);
            assert!((40 * MIB..64 * MIB).contains(&trimmed), "{shown}: {trimmed}");
            assert!(kept(&image) < full - 6 * MIB, "{shown}: {} of {full}", kept(&image));
            fs::write("/proc/sys/vm/drop_caches", "3").expect("caches");
            let mut bytes = vec![0; 3 << 20];
            open.read_exact_at(&mut bytes, 0).expect("read");
            assert!(bytes == noise(3 * MIB, 11), "{shown}: an open file without a name");
            drop(open);
            judge(&at);
            // A part of the volume, and long runs alone.
            let part = fstrim(&at, &["-o", "8M", "-l", "8M"]);
            assert!(part > 0 && part <= 8 * MIB, "{shown}: {part}");
            // The end of the volume, behind the bytes that `df` counts.
            let end = fstrim(&at, &["-o", "63M"]);
            assert!(end > 0 && end <= MIB, "{shown}: {end}");
            let long = fstrim(&at, &["-m", "1M"]);
            assert!(long > 20 * MIB && long <= fstrim(&at, &[]), "{shown}: {long}");
            assert_eq!(fstrim(&at, &["-m", "1G"]), 0, "{shown}");
            for wrong in [["-o", "1G"], ["-l", "100"]] {
                let wrong = Command::new("fstrim").args(wrong).arg(&at).output().expect("fstrim");
                assert!(!wrong.status.success(), "{shown}");
            }
            // Nothing is freed by itself from then on.
            put(&at.join("later"), &noise(5 * MIB, 9));
            let before = kept(&image);
            fs::remove_file(at.join("later")).expect("rm");
            mounted.end();
            assert!(kept(&image) > before - MIB, "{shown}: {} of {before}", kept(&image));
            is_sound(&image, kind);
            let mounted = Mounted::new(&image, &at, "ro");
            judge(&at);
            mounted.end();
        }
    }
}

/// The same is free, and as much of the image becomes a hole, as under the kernel.
#[test]
fn as_much_is_trimmed_and_discarded_as_by_the_kernel() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("trim-kernel");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let copy = scratch.join("copy");
    make(&image, "mke2fs", &["-q", "-F", "-t", "ext4"]);
    let mounted = Mounted::new(&image, &at, "rw,nodiscard");
    fill(&at);
    remove(&at);
    mounted.end();
    run("cp", &["--sparse=never", &image, &copy]);
    run("cp", &["--sparse=never", &image, &scratch.join("second")]);
    let mounted = Mounted::new(&copy, &at, "rw,nodiscard");
    let ours = fstrim(&at, &[]);
    mounted.end();
    let kernel = KernelMount::of_kind(&scratch, &scratch.join("second"), "ext4", "rw");
    let theirs = fstrim(kernel.path(), &[]);
    drop(kernel);
    assert_eq!(ours, theirs, "bytes trimmed");
    let (ours, theirs) = (kept(&copy), kept(&scratch.join("second")));
    assert!(ours.abs_diff(theirs) <= 256 << 10, "{ours} and {theirs} bytes kept");

    // `-o discard`, after the same operations.
    let mut sizes = Vec::<(u64, u64)>::new();
    for by_kernel in [false, true] {
        make(&image, "mke2fs", &["-q", "-F", "-t", "ext4"]);
        let (root, ours, theirs) = if by_kernel {
            let kernel = KernelMount::of_kind(&scratch, &image, "ext4", "rw,discard");
            (kernel.path().to_path_buf(), None, Some(kernel))
        } else {
            (at.clone(), Some(Mounted::new(&image, &at, "rw,discard")), None)
        };
        fill(&root);
        let full = kept(&image);
        remove(&root);
        if let Some(mounted) = ours {
            mounted.end();
        }
        if let (Some(_), Some(&(_, ours))) = (&theirs, sizes.first()) {
            // The kernel discards in the background, and leaves the rest when it unmounts
            // (`ext4_discard_work`).
            run("sync", &["-f", &root.to_string_lossy()]);
            let end = Instant::now() + Duration::from_secs(30);
            while kept(&image) > ours + MIB && Instant::now() < end {
                sleep(Duration::from_millis(50));
            }
        }
        drop(theirs);
        check(&image);
        sizes.push((full, kept(&image)));
    }
    let [(full, ours), (theirs_full, theirs)] = sizes[..] else { panic!("two") };
    assert!(full - ours > 10 * MIB && theirs_full - theirs > 10 * MIB, "{sizes:?}");
    assert!(ours.abs_diff(theirs) <= MIB, "{sizes:?}");
}

/// Blocks that are marked as free may be in use there.
#[test]
fn an_image_that_is_not_clean_is_not_trimmed() {
    if !ready() {
        return;
    }
    for (kind, how) in [("mke2fs", &["-q", "-F", "-t", "ext2"][..]), ("ufs2", &[]), ("fat32", &[])]
    {
        let scratch = Scratch::new("trim-unclean");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        make(&image, kind, how);
        let mut mounted = Mounted::new(&image, &at, "rw");
        fill(&at);
        mounted.server.kill().expect("kill");
        mounted.server.wait().expect("server");
        unmount(&at).expect("umount");
        drop(mounted);
        let mounted = Mounted::new(&image, &at, "rw,force");
        let refused = Command::new("fstrim").arg(&at).output().expect("fstrim");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("needs cleaning"), "{kind}: {said}");
        // And not by everybody.
        let other = ["--reuid", "65534", "--clear-groups", "fstrim"];
        let refused = Command::new("setpriv").args(other).arg(&at).output().expect("setpriv");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("not permitted"), "{kind}: {said}");
        mounted.end();
    }
}
