//! Images that are damaged, or become so while they are mounted.

use crate::judges::{Scratch, seekless, text, unmount};
use crate::{Mounted, make, ready};
use rustix::fs::statvfs;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

/// The owner that identifies the inode of a file.
const UID: u32 = 0x5A17_C0DE;

fn free_inodes(at: &Path) -> u64 {
    statvfs(at).expect("statvfs").f_ffree
}

/// Damages the only inode with that owner.
fn damage_inode(image: &str) {
    let mut bytes = fs::read(image).expect("image");
    let found: Vec<usize> = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, window)| *window == UID.to_le_bytes())
        .map(|(at, _)| at)
        .collect();
    let [at] = found[..] else { panic!("{} places look like it", found.len()) };
    // Its check hash is wrong now.
    bytes[at] ^= 1;
    fs::write(image, bytes).expect("image");
}

/// A listing that fails at a damaged inode releases the inodes looked up before.
#[test]
fn a_listing_that_fails_holds_nothing() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-damaged");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    make(&image, "ufs2", "16M", &[]);
    let mounted = Mounted::new(&image, &at, "rw");
    let empty = free_inodes(&at);
    for n in 0..40 {
        fs::write(at.join(n.to_string()), b"contents").expect("write");
    }
    chown(at.join("25"), Some(UID), None).expect("chown");
    mounted.end();
    damage_inode(&image);
    let mounted = Mounted::new(&image, &at, "rw");
    // An entry keeps the directory open.
    let good = fs::read_dir(&at).expect("list").filter(|entry| entry.is_ok()).count();
    assert!(good >= 25, "{good}");
    let bad = fs::metadata(at.join("25")).expect_err("its inode is damaged");
    assert_eq!(bad.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    for n in (0..40).filter(|n| *n != 25) {
        fs::remove_file(at.join(n.to_string())).expect("unlink");
    }
    // The kernel forgets the inodes asynchronously.
    let start = Instant::now();
    while free_inodes(&at) != empty - 1 {
        let free = free_inodes(&at);
        assert!(start.elapsed() < Duration::from_secs(60), "{free} of {empty} inodes free");
        std::thread::sleep(Duration::from_millis(20));
    }
    mounted.end();
}

/// An image that is truncated while it is mounted is not extended again, and the mount ends with an
/// error.
#[test]
fn an_image_cut_short_underfoot_is_an_error() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-cut");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    make(&image, "ufs2", "16M", &[]);
    let mut mounted = Mounted::new(&image, &at, "rw");
    fs::write(at.join("before"), vec![1; 100_000]).expect("write");
    let half = 8 << 20;
    fs::File::options().write(true).open(&image).expect("image").set_len(half).expect("truncate");
    fs::write(at.join("after"), vec![2; 100_000]).expect("nothing of it is on the disk yet");
    let synced = fs::File::open(at.join("after")).expect("open").sync_all();
    let error = synced.expect_err("half of the disk is gone");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    let later = fs::write(at.join("later"), b"x").expect_err("nothing is changed any more");
    assert!(later.raw_os_error().is_some(), "{later}");
    unmount(&at).expect("umount");
    let ended = mounted.server.wait().expect("server");
    assert!(!ended.success(), "{ended}");
    assert_eq!(fs::metadata(&image).expect("image").len(), half);
}

/// The same with a read-only mount.
#[test]
fn what_cannot_be_read_is_told_at_the_end() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("cut-read-only");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).expect("mkdir");
    for n in 0..8u8 {
        fs::write(tree.join(n.to_string()), vec![n; 1 << 20]).expect("write");
    }
    text(&seekless(&["build", tree.to_str().expect("path"), "-o", &image]));
    for cut in [false, true] {
        let mut mounted = Mounted::new(&image, &at, "ro");
        if cut {
            let file = fs::File::options().write(true).open(&image).expect("image");
            file.set_len(2 << 20).expect("truncate");
        }
        let failed = (0..8).filter(|n| fs::read(at.join(n.to_string())).is_err()).count();
        assert_eq!(failed > 0, cut, "{failed} files");
        unmount(&at).expect("umount");
        let ended = mounted.server.wait().expect("server");
        assert_eq!(ended.code(), Some(if cut { 6 } else { 0 }));
    }
}

/// Flags that FreeBSD acts on but we do not are named by a read-write mount, and shown by `info`.
#[test]
fn flags_that_are_not_acted_on_are_named() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-flags");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    fs::create_dir_all(&at).expect("mount point");
    for (format, home, flags, named, shown) in [
        ("ufs2", 65536, 0x10, "", "acls"),
        ("ufs1", 8192, 0x10, "POSIX.1e ACLs", "acls"),
        ("ufs2", 65536, 0x100, "NFSv4 ACLs", "nfsv4acls"),
        ("ufs2", 65536, 0x420, "MAC labels of files", "multilabel"),
        ("ufs2", 65536, 0x110, "POSIX.1e ACLs, NFSv4 ACLs", "nfsv4acls"),
    ] {
        let hashes: &[&str] = if format == "ufs2" { &["--check-hashes", "none"] } else { &[] };
        make(&image, format, "16M", hashes);
        let mut bytes = fs::read(&image).expect("image");
        let place = home + 1312;
        bytes[place..place + 4].copy_from_slice(&u32::to_le_bytes(flags));
        fs::write(&image, bytes).expect("image");
        assert!(text(&seekless(&["info", &image])).contains(shown), "{format} {flags:#x}");
        let server = std::process::Command::new(env!("CARGO_BIN_EXE_seekless"))
            .args(["mount", "-f", &image])
            .arg(&at)
            .args(["-o", "rw"])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("seekless mount");
        let outside = fs::metadata(scratch.path()).expect("scratch").dev();
        let start = Instant::now();
        while fs::metadata(&at).is_ok_and(|seen| seen.dev() == outside) {
            assert!(start.elapsed() < Duration::from_secs(60), "not mounted");
            std::thread::sleep(Duration::from_millis(10));
        }
        unmount(&at).expect("umount");
        let output = server.wait_with_output().expect("server");
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let wanted = match named {
            "" => String::new(),
            named => {
                format!("seekless: {image}: the volume has flags that are not acted on: {named}\n")
            }
        };
        assert_eq!(said, wanted, "{format} {flags:#x}");
    }
}
