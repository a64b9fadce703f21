//! Files deleted while they were open: an image copied at that moment is optimized with them, and
//! the next mount of the new image frees the same files as that of the old one.

use super::judges::{Mounted, Scratch, can_mount, copy_live, failure, header, manifest, run, same};
use super::{seekless, text, trace_of};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Copies an image while its mount has orphans: some with blocks of maps and attributes, and nested
/// directories.
fn copy_with_orphans(scratch: &Scratch, options: &[&str], frozen: bool) -> String {
    let (image, copy) = (scratch.join("image"), scratch.join("old"));
    run("mke2fs", &[&["-q", "-F"], options, &[&image, "64M"]].concat());
    let mounted = Mounted::new(scratch, &image, "rw");
    let at = |name: &str| mounted.path().join(name);
    let names = ["pieces", "small", "tiny", "whole"];
    fs::create_dir_all(at("gone/inner/innermost")).expect("mkdir");
    fs::create_dir(at("stays")).expect("mkdir");
    for n in 0..40 {
        fs::write(at(&format!("stays/{n}")), vec![n; 5000]).expect("write");
    }
    let mut held = Vec::new();
    for (name, bytes) in names.iter().zip([0, 3000, 40, 400_000]) {
        fs::write(at(name), vec![7; bytes]).expect("write");
        run(
            "setfattr",
            &["-n", "user.kept", "-v", &"x".repeat(300), at(name).to_str().expect("path")],
        );
        held.push(fs::OpenOptions::new().write(true).open(at(name)).expect("open"));
    }
    for n in 0..400 {
        // Every other block: a map of many blocks.
        std::os::unix::fs::FileExt::write_all_at(&held[0], &[9; 1024], n * 8192).expect("write");
    }
    for name in ["gone", "gone/inner", "gone/inner/innermost"] {
        held.push(fs::File::open(at(name)).expect("open"));
    }
    rustix::fs::sync();
    for name in names {
        fs::remove_file(at(name)).expect("unlink");
    }
    fs::remove_dir_all(at("gone")).expect("remove");
    fs::File::open(mounted.path()).and_then(|dir| dir.sync_all()).expect("fsync");
    rustix::fs::sync();
    if frozen {
        run("fsfreeze", &["-f", mounted.text()]);
    }
    copy_live(&image, &copy);
    if frozen {
        run("fsfreeze", &["-u", mounted.text()]);
    }
    drop(held);
    copy
}

/// Number of orphans in the findings of the check.
fn orphans(image: &str) -> usize {
    let output = seekless(&["check", image, "--json"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("\"unexpected\":0"), "{said}");
    said.matches("inode.orphan").count()
}

/// Listing, free blocks and inodes, and sectors of files after the kernel has processed the
/// orphans.
fn free_after_mount(scratch: &Scratch, image: &str) -> (String, [i64; 2], i64) {
    let listing = {
        let mounted = Mounted::new(scratch, image, "rw");
        (manifest(mounted.text(), &[]), super::sectors(mounted.text()))
    };
    run("e2fsck", &["-fn", image]);
    let header = header(image);
    let count = |name: &str| {
        let found = header.iter().find(|(known, _)| known == name).expect("a count");
        found.1.parse::<i64>().expect("a number")
    };
    (listing.0, [count("Free blocks"), count("Free inodes")], listing.1)
}

fn judge(name: &str, options: &[&str], frozen: bool) {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(name);
    let old = copy_with_orphans(&scratch, options, frozen);
    let new = scratch.join("new");
    let count = orphans(&old);
    assert_eq!(count, 7, "orphans of {name}");
    let listing = manifest(&old, &[]);
    let trace = trace_of(&scratch, &listing);
    text(&seekless(&["optimize", &old, "--trace", &trace, "-o", &new]));
    assert_eq!(orphans(&new), count, "orphans of the new image");
    same("our listing", &listing, &manifest(&new, &[]));
    let repaired = scratch.join("repaired");
    // e2fsck processes the orphans as well: an exit code of 1 reports that, and no errors remain.
    run("cp", &["--sparse=always", &new, &repaired]);
    let output = Command::new("e2fsck").args(["-fp", &repaired]).output().expect("e2fsck");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code().is_some_and(|code| code < 2), "{said}");
    run("e2fsck", &["-fn", &repaired]);
    let (before, [blocks, inodes], sectors) = free_after_mount(&scratch, &old);
    let (after, [new_blocks, new_inodes], new_sectors) = free_after_mount(&scratch, &new);
    same("the kernel's listing", &before, &after);
    assert_eq!(inodes, new_inodes, "free inodes");
    let grown = (new_sectors - sectors) / super::sectors_in_block(&new);
    assert_eq!(blocks - new_blocks, grown, "free blocks");
}

macro_rules! judged {
    ($($name:ident: [$($option:expr),*], $frozen:expr;)*) => {
        $(#[test]
        fn $name() {
            judge(stringify!($name), &[$($option),*], $frozen);
        })*
    };
}

judged! {
    orphans_of_ext3: ["-t", "ext3", "-b", "1024"], true;
    orphans_in_a_list: ["-t", "ext4", "-b", "1024", "-O", "^orphan_file"], true;
    orphans_in_a_list_with_a_live_journal: ["-t", "ext4", "-O", "^orphan_file"], false;
    orphans_in_a_file: ["-t", "ext4", "-b", "1024", "-O", "orphan_file"], true;
    orphans_in_a_file_with_a_live_journal: ["-t", "ext4", "-O", "orphan_file"], false;
    orphans_in_a_file_without_checksums: ["-t", "ext4", "-O", "orphan_file,^metadata_csum"], true;
    orphans_with_inline_data: ["-t", "ext4", "-O", "^orphan_file,inline_data", "-I", "512"], true;
    orphans_with_bigalloc: ["-t", "ext4", "-O", "^orphan_file,bigalloc", "-C", "16384"], true;
}

/// Optimizes an image that debugfs has changed; returns the output and the paths of both images.
fn change_and_optimize(scratch: &Scratch, change: &str) -> (std::process::Output, String, String) {
    let (image, new, trace) = (scratch.join("image"), scratch.join("new"), scratch.join("trace"));
    fs::write(scratch.path().join("paths"), "/lost+found\n").expect("write");
    let paths = scratch.join("paths");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "orphan_file", &image, "20M"]);
    run("debugfs", &["-w", "-R", change, &image]);
    let output = seekless(&["optimize", &image, "--trace", &trace, "-o", &new, "--force"]);
    (output, image, new)
}

#[test]
fn what_is_no_orphan_file_is_refused() {
    let scratch = Scratch::new("no-orphan-file");
    for change in ["zap_block -f <12> -p 0x11 0", "zap_block -f <12> -p 0x11 -o 0 -l 4 0"] {
        let (output, _, new) = change_and_optimize(&scratch, change);
        let (exit, message) = failure(&output);
        assert!(exit == 3 && message.contains("orphan.file"), "{change}: {message}");
        assert!(!Path::new(&new).exists());
    }
}

/// An orphan list that begins with an invalid inode: a mount drops it, and so do we.
#[test]
fn what_is_no_list_of_orphans_is_dropped() {
    let scratch = Scratch::new("no-orphans");
    for orphan in ["1", "8", "2", "99999999", "700"] {
        let (output, image, new) =
            change_and_optimize(&scratch, &format!("ssv last_orphan {orphan}"));
        run("e2fsck", &["-fn", &image]);
        text(&output);
        run("e2fsck", &["-fn", &new]);
        assert!(!run("dumpe2fs", &["-h", &new]).contains("First orphan"), "{orphan}");
    }
    // An inode in use with a name would be truncated to its size, which changes nothing.
    let (output, _, new) = change_and_optimize(&scratch, "ssv last_orphan 11");
    text(&output);
    run("e2fsck", &["-fn", &new]);
    assert!(run("dumpe2fs", &["-h", &new]).contains("First orphan inode:       11"));
}

/// A kernel marks the orphan file as in use when it mounts, so that a crash leaves the mark though no
/// file was deleted.
#[test]
fn an_empty_orphan_file_is_no_damage() {
    let scratch = Scratch::new("orphan-present");
    let (output, old, new) = change_and_optimize(&scratch, "feature orphan_present");
    assert!(run("dumpe2fs", &["-h", &old]).contains("orphan_present"));
    text(&output);
    run("e2fsck", &["-fn", &new]);
    assert!(!run("dumpe2fs", &["-h", &new]).contains("orphan_present"));
}
