//! What is done to volumes through the kernel's mount.

use crate::order::judge::{run, text};
use crate::order::state::contents;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// A file with `len` bytes of its own.
pub(super) fn write(root: &Path, name: &str, len: usize) {
    fs::write(root.join(name), contents(name, len)).expect("write");
}

/// `len` more bytes at a file's end.
pub(super) fn append(root: &Path, name: &str, len: usize) {
    let mut file = OpenOptions::new().append(true).open(root.join(name)).expect("open");
    file.write_all(&contents(&format!("more of {name}"), len)).expect("append");
}

/// `len` other bytes from a place in a file on.
pub(super) fn overwrite(root: &Path, name: &str, from: u64, len: usize) {
    let file = OpenOptions::new().write(true).open(root.join(name)).expect("open");
    file.write_all_at(&contents(&format!("new {name}"), len), from).expect("write");
}

/// A file of three blocks, of which the second is a hole.
pub(super) fn sparse(root: &Path, name: &str) {
    write(root, name, 1024);
    overwrite(root, name, 2048, 1024);
}

/// A directory in which a name of 60 bytes begins at byte 496.
pub(super) fn cross(root: &Path) {
    mkdir(root, "y");
    for (name, n) in [("f".repeat(236), 1), ("g".repeat(208), 2), ("e".into(), 3)] {
        fs::write(root.join("y").join(name), contents(&format!("y {n}"), 600)).expect("write");
    }
}

pub(super) fn truncate(root: &Path, name: &str, len: u64) {
    let file = OpenOptions::new().write(true).open(root.join(name)).expect("open");
    file.set_len(len).expect("truncate");
}

pub(super) fn unlink(root: &Path, name: &str) {
    fs::remove_file(root.join(name)).expect("unlink");
}

pub(super) fn link(root: &Path, old: &str, new: &str) {
    fs::hard_link(root.join(old), root.join(new)).expect("link");
}

pub(super) fn rename(root: &Path, old: &str, new: &str) {
    fs::rename(root.join(old), root.join(new)).expect("rename");
}

/// Two names change places.
pub(super) fn exchange(root: &Path, one: &str, other: &str) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let (one, other) = (root.join(one), root.join(other));
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("exchange");
}

pub(super) fn mkdir(root: &Path, name: &str) {
    fs::create_dir(root.join(name)).expect("mkdir");
}

pub(super) fn rmdir(root: &Path, name: &str) {
    fs::remove_dir(root.join(name)).expect("rmdir");
}

/// A symlink whose target has `len` bytes.
pub(super) fn symlink(root: &Path, len: usize, name: &str) {
    std::os::unix::fs::symlink("t".repeat(len), root.join(name)).expect("symlink");
}

pub(super) fn chmod(root: &Path, name: &str) {
    fs::set_permissions(root.join(name), Permissions::from_mode(0o600)).expect("chmod");
}

/// Gives a file an attribute, the same to each.
pub(super) fn set(root: &Path, name: &str) {
    let value = "v".repeat(300);
    run("setfattr", &["-n", "user.note", "-v", &value, text(&root.join(name))]);
}

/// Gives it another value of the same length.
pub(super) fn change(root: &Path, name: &str) {
    let value = "w".repeat(300);
    run("setfattr", &["-n", "user.note", "-v", &value, text(&root.join(name))]);
}

/// Gives it to a second file. The kernel finds a block that others have only when
/// it has read it since the mount.
pub(super) fn set_as(root: &Path, first: &str, second: &str) {
    run("getfattr", &["-n", "user.note", text(&root.join(first))]);
    set(root, second);
}

/// Removes it.
pub(super) fn unset(root: &Path, name: &str) {
    run("setfattr", &["-x", "user.note", text(&root.join(name))]);
}

/// A file that takes all free blocks.
pub(super) fn exhaust_blocks(root: &Path) {
    let mut file = fs::File::create(root.join("all")).expect("create");
    let block = contents("all", 1024);
    while file.write_all(&block).is_ok() {}
}

/// Takes all free inodes.
pub(super) fn exhaust_inodes(root: &Path) {
    fs::create_dir(root.join("many")).expect("mkdir");
    let mut n = 0;
    while fs::File::create(root.join(format!("many/{n}"))).is_ok() {
        n += 1;
    }
    assert!(n > 10, "no inodes");
}

/// A directory with a directory whose name is in another sector than later names.
pub(super) fn dir_before(root: &Path) {
    mkdir(root, "v");
    mkdir(root, "v/old");
    write(root, "v/old/f", 900);
    for (name, n) in [("f".repeat(236), 1), ("g".repeat(224), 2), ("edge".into(), 3)] {
        fs::write(root.join("v").join(name), contents(&format!("v {n}"), 600)).expect("write");
    }
}

/// A directory of one block that has no room for another name.
pub(super) fn fill_dir(root: &Path) {
    mkdir(root, "x");
    // 24 bytes for "." and "..", 4 * 248, and 8 that are left.
    for n in 0..4 {
        write(root, &format!("x/{}{n}", "n".repeat(239)), 500);
    }
}
/// Another block for the file that has all the others: it gets one that was freed.
pub(super) fn append_to_all(root: &Path) {
    append(root, "all", 900);
}

/// More names in that directory, of the same length.
pub(super) fn add_names(root: &Path, numbers: Range<u32>) {
    for n in numbers {
        link(root, "d/in", &format!("x/{}{n}", "m".repeat(239)));
    }
}
