//! FAT images changed through the read-write mount: mtools reads the files that programs wrote, and
//! fsck.fat finds no errors. Needs root and FUSE.

use crate::judges::{Scratch, manifest, ready, run, same, skip};
use crate::mounted::Mounted;
use crate::read::comparable;
use crate::{fsck, mtools, populate, sparse};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

fn can_mount() -> bool {
    if !ready("mkfs.fat") || !ready("mcopy") || !ready("fsck.fat") || !ready("umount") {
        return false;
    }
    let there = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !there {
        skip("no FUSE");
    }
    there
}

#[test]
fn what_programs_put_there_is_there() {
    if !can_mount() {
        return;
    }
    for (n, (bits, discipline)) in
        [("12", "softdep"), ("16", "normal"), ("32", "softdep"), ("32", "async"), ("16", "sync")]
            .into_iter()
            .enumerate()
    {
        let scratch = Scratch::new("fat-live");
        let (tree, image) = (scratch.join("tree"), scratch.join("image"));
        let at = scratch.path().join("at");
        populate(Path::new(&tree));
        let (size, how): (u64, &[&str]) = match bits {
            "12" => (12 << 20, &["-s", "8"]),
            "16" => (24 << 20, &["-s", "4"]),
            _ => (40 << 20, &["-s", "1"]),
        };
        sparse(&image, size);
        run("mkfs.fat", &[&["-F", bits], how, &[&image]].concat());
        let policy = ["0", "next-fit", "random", "5", "3"][n];
        let options = format!("rw,{discipline},clusters={policy}");
        let mounted = Mounted::new(&image, &at, &options);
        for top in ["DIR", "many names", "empty"] {
            run(
                "cp",
                &[
                    "-r",
                    "--preserve=timestamps",
                    &format!("{tree}/{top}"),
                    &format!("{}/", at.display()),
                ],
            );
        }
        let listed = comparable(&manifest(at.to_str().expect("path"), &[]));
        same(discipline, &comparable(&manifest(&tree, &[])), &listed);
        change(&at);
        mounted.end();
        fsck(&image);
        let copy = scratch.join("copy");
        fs::create_dir(&copy).expect("mkdir");
        mtools("mcopy", &image, &["-s", "-n", "::", &copy]);
        assert_eq!(fs::read(format!("{copy}/Renamed")).expect("read"), changed());
        // mtools changes the image, and the next mount sees the changes.
        mtools("mmd", &image, &["::/THEIRS"]);
        mtools("mcopy", &image, &[&format!("{copy}/Renamed"), "::/THEIRS/a long name of theirs"]);
        let mounted = Mounted::new(&image, &at, "rw,softdep");
        assert_eq!(fs::read(at.join("theirs/A LONG NAME of theirs")).expect("read"), changed());
        fs::remove_dir_all(at.join("THEIRS")).expect("rm");
        fs::remove_dir_all(at.join("many names")).expect("rm");
        mounted.end();
        fsck(&image);
    }
}

fn changed() -> Vec<u8> {
    let mut bytes = vec![0; 40_000];
    bytes[..5].copy_from_slice(b"begin");
    bytes[30_000..30_003].copy_from_slice(b"end");
    bytes.truncate(35_000);
    bytes
}

/// Changes of the tree: names in other cases, ends of files, permissions, open files.
fn change(at: &Path) {
    let file = at.join("new file.text");
    fs::write(&file, b"begin").expect("write");
    let open = fs::File::options().read(true).write(true).open(&file).expect("open");
    open.write_all_at(b"end", 30_000).expect("write past the end");
    open.set_len(35_000).expect("truncate");
    open.sync_all().expect("fsync");
    // A name cached by the kernel as absent appears in another case.
    assert!(!at.join("RENAMED").exists());
    fs::rename(&file, at.join("Renamed")).expect("rename");
    assert_eq!(fs::read(at.join("RENAMED")).expect("read"), changed());
    assert!(!file.exists());
    let number = fs::metadata(at.join("renamed")).expect("stat").ino();
    assert_eq!(open.metadata().expect("stat").ino(), number);
    fs::write(at.join("gone"), b"still here").expect("write");
    let gone = fs::File::open(at.join("GONE")).expect("open");
    fs::remove_file(at.join("Gone")).expect("unlink");
    assert!(!at.join("gone").exists() && !at.join("GONE").exists());
    let mut held = [0; 10];
    gone.read_exact_at(&mut held, 0).expect("read");
    assert_eq!(&held, b"still here");
    let only_read = fs::Permissions::from_mode(0o444);
    fs::write(at.join("locked"), b"x").expect("write");
    fs::set_permissions(at.join("locked"), only_read).expect("chmod");
    assert_eq!(fs::metadata(at.join("LOCKED")).expect("stat").mode() & 0o777, 0o444);
    let error = |done: std::io::Result<()>| done.expect_err("refused").raw_os_error();
    let errno = |errno: rustix::io::Errno| Some(errno.raw_os_error());
    let permitted = errno(rustix::io::Errno::PERM);
    assert_eq!(error(std::os::unix::fs::symlink("x", at.join("s"))), permitted);
    assert_eq!(error(fs::hard_link(at.join("locked"), at.join("l"))), permitted);
    let chowned = std::os::unix::fs::chown(at.join("locked"), Some(7), None);
    assert_eq!(error(chowned), permitted);
    assert_eq!(error(fs::write(at.join("a?b"), b"x")), errno(rustix::io::Errno::INVAL));
    let long = "é".repeat(255);
    fs::write(at.join(&long), b"long").expect("write");
    assert_eq!(fs::read(at.join(long.to_uppercase())).expect("read"), b"long");
    // mtools does not copy names of this length.
    fs::remove_file(at.join(long)).expect("unlink");
}

/// Options without meaning on FAT are refused by name, and an image in use is refused.
#[test]
fn what_makes_no_sense_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("fat-refused");
    let (image, at) = (scratch.join("image"), scratch.join("at"));
    fs::create_dir(&at).expect("mkdir");
    sparse(&image, 4 << 20);
    run("mkfs.fat", &["-F", "16", "-s", "1", &image]);
    for (options, word, code) in [
        ("rw,journal=ordered", "journal", 4),
        ("rw,dirs=orlov", "dirs=", 4),
        ("rw,blocks=next-free", "blocks=", 4),
        ("rw,delalloc", "delalloc", 4),
        ("rw,clusters=best-fit", "next-near", 4),
        ("rw,tz=2000", "tz", 2),
    ] {
        let done = crate::judges::seekless(&["mount", &image, &at, "-o", options]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{options}: {said}");
        assert!(said.contains(word), "{options}: {said}");
    }
    // Dirty, as Linux marks it while it is mounted.
    let mut bytes = fs::read(&image).expect("read");
    bytes[37] |= 1;
    fs::write(&image, &bytes).expect("write");
    let done = crate::judges::seekless(&["mount", &image, &at, "-o", "rw"]);
    assert!(!done.status.success());
    assert!(String::from_utf8_lossy(&done.stderr).contains("in use"));
    let mounted = Mounted::new(&image, Path::new(&at), "rw,force");
    fs::write(format!("{at}/x"), "x").expect("write");
    mounted.end();
    assert_eq!(fs::read(&image).expect("read")[37] & 1, 1, "it is as it was found");
}
