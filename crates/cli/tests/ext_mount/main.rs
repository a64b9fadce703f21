//! ext2, ext3 and ext4 images changed through the read-write mount and by the kernel in turn: each
//! finds the changes of the other, and e2fsck finds no errors. Needs root, FUSE and loop devices;
//! reports and passes without.

mod calls;
mod discard;
mod flags;
#[path = "../judges/mod.rs"]
mod judges;
#[path = "../judges/mounted.rs"]
mod mounted;
mod recover;
#[path = "../judges/recovery.rs"]
mod recovery;
mod semantics;

use judges::{Mounted as KernelMount, Scratch, check, failure, manifest, run, same, seekless};
use mounted::Mounted;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

const DISCIPLINES: [&str; 7] =
    ["sync", "normal", "async", "softdep", "journal=ordered", "journal=writeback", "journal=data"];

/// Arguments of `mke2fs` for images that are changed under a discipline.
fn journal(discipline: &str) -> &[&str] {
    if discipline.starts_with("journal") { &["-j"] } else { &[] }
}

fn ready() -> bool {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if fuse && judges::can_mount() {
        return true;
    }
    judges::skip("needs root, /dev/fuse and loop devices");
    false
}

/// ext4 with the features of mke2fs, except those that a mount does not maintain.
const EXT4: &[&str] = &["-t", "ext4", "-O", "^has_journal,^metadata_csum,^orphan_file"];

fn make(image: &str, how: &[&str]) {
    let kind: &[&str] = if how.contains(&"-t") { &[] } else { &["-t", "ext2"] };
    run("mke2fs", &[&["-q", "-F"], kind, how, &[image, "48M"]].concat());
}

fn populate(root: &Path, names: usize, large: usize) {
    for dir in ["dir/below/deep", "many", "empty"] {
        fs::create_dir_all(root.join(dir)).expect("mkdir");
    }
    let noise = |len: usize, seed: u64| -> Vec<u8> {
        (0..len as u64).map(|n| (seed.wrapping_mul(n | 1).wrapping_add(n) >> 7) as u8).collect()
    };
    for n in 0..15 {
        fs::write(root.join(format!("dir/{n}")), noise(n * 1531, n as u64)).expect("write");
    }
    fs::write(root.join("double"), noise(large, 78)).expect("write");
    for n in 0..names {
        fs::write(root.join(format!("many/a name of some length {n}")), b"x").expect("write");
    }
    fs::hard_link(root.join("dir/7"), root.join("dir/hard")).expect("link");
    symlink("short", root.join("dir/fast")).expect("symlink");
    symlink("l".repeat(600), root.join("dir/slow")).expect("symlink");
    run("mkfifo", &[root.join("fifo").to_str().expect("path")]);
    run("mknod", &[root.join("disk").to_str().expect("path"), "b", "259", "70000"]);
    let labelled = root.join("dir/9");
    run("setfattr", &["-n", "user.label", "-v", "some value", labelled.to_str().expect("path")]);
}

/// e2fsck finds no errors. Extent trees that could be narrower, which neither side looks for, are
/// no error.
fn sound(image: &str) {
    let said = run("e2fsck", &["-fn", "-E", "no_optimize_extents", image]);
    assert!(!said.contains("could be") && !said.contains("? no"), "{said}");
}

/// Changes many places of a file: preallocated blocks, holes, and the end.
fn scatter(path: &Path, seed: u64) {
    let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.expect("open");
    let text = path.to_str().expect("path");
    if seed.is_multiple_of(2) {
        run("fallocate", &["-o", "700000", "-l", "1500000", text]);
        run("fallocate", &["-n", "-o", "2000000", "-l", "900000", text]);
    }
    for n in 0..150u64 {
        let at = (n * 7919 + seed * 1013) % 500 * 5000;
        file.write_all_at(&[n as u8 | 1; 700], at).expect("write");
    }
    if seed == 3 {
        file.set_len(1_234_567).expect("truncate");
    }
    file.set_len(2_500_000).expect("truncate");
    file.sync_all().expect("fsync");
}

fn listing(path: &str) -> String {
    manifest(path, &["lost+found"])
}

#[test]
fn the_kernel_and_the_mount_change_an_image_in_turn() {
    if !ready() {
        return;
    }
    let ext2: [&[&str]; 2] = [&["-b", "4096"], &["-b", "1024", "-I", "128"]];
    let mut pairs: Vec<(&str, Vec<&str>)> = Vec::new();
    for (n, discipline) in DISCIPLINES.into_iter().enumerate() {
        pairs.push((discipline, ext2[n % 2].to_vec()));
    }
    for (n, discipline) in ["sync", "normal", "async"].into_iter().enumerate() {
        pairs.push((discipline, [EXT4, &["-b", ["4096", "1024"][n % 2]]].concat()));
    }
    for (discipline, how) in &pairs {
        let scratch = Scratch::new("ext-mount");
        let image = scratch.join("image");
        let at = scratch.path().join("at");
        make(&image, &[how, journal(discipline)].concat());
        let options = format!("rw,{discipline}");
        let mounted = Mounted::new(&image, &at, &options);
        populate(&at, 300, 5 << 20);
        let by_extents = how.contains(&"ext4");
        if by_extents {
            scatter(&at.join("scattered"), 0);
        }
        let ours = listing(at.to_str().expect("path"));
        mounted.end();
        sound(&image);
        {
            let kernel = KernelMount::new(&scratch, &image, "rw");
            same(&format!("{discipline}: the kernel"), &ours, &listing(kernel.text()));
            if by_extents {
                scatter(&kernel.path().join("scattered"), 1);
                scatter(&kernel.path().join("theirs too"), 2);
            }
            fs::remove_dir_all(kernel.path().join("many")).expect("rm");
            // Enough names for an index.
            fs::create_dir(kernel.path().join("theirs")).expect("mkdir");
            for n in 0..400 {
                let name = format!("theirs/one more name {n}");
                fs::write(kernel.path().join(name), b"y").expect("write");
            }
        }
        let mounted = Mounted::new(&image, &at, &options);
        if by_extents {
            scatter(&at.join("scattered"), 3);
            scatter(&at.join("theirs too"), 4);
        }
        for n in (0..400).step_by(3) {
            fs::remove_file(at.join(format!("theirs/one more name {n}"))).expect("rm");
            fs::write(at.join(format!("theirs/ours {n}")), vec![7; n * 9]).expect("write");
        }
        fs::rename(at.join("theirs"), at.join("dir/moved")).expect("mv");
        fs::rename(at.join("dir/3"), at.join("dir/4")).expect("mv");
        fs::rename(at.join("dir/5"), at.join("dir/moved/ours 0")).expect("mv");
        let ours = listing(at.to_str().expect("path"));
        mounted.end();
        sound(&image);
        let kernel = KernelMount::new(&scratch, &image, "ro");
        same(&format!("{discipline}: the kernel"), &ours, &listing(kernel.text()));
    }
}

/// Delayed allocation through the mount: all readers see the written data at once, and the kernel
/// sees it after the unmount.
#[test]
fn contents_that_wait_are_there_and_are_written_back() {
    if !ready() {
        return;
    }
    for options in ["rw,blocks=ext4-goal", "rw,delalloc,journal=writeback,cache=1M"] {
        let scratch = Scratch::new("ext-delayed");
        let image = scratch.join("image");
        let at = scratch.path().join("at");
        make(&image, &["-t", "ext4", "-b", "1024"]);
        let mounted = Mounted::new(&image, &at, options);
        populate(&at, 100, 5 << 20);
        scatter(&at.join("scattered"), 0);
        scatter(&at.join("scattered"), 3);
        fs::write(at.join("temporary"), vec![3; 1 << 20]).expect("write");
        fs::remove_file(at.join("temporary")).expect("rm");
        // st_blocks counts blocks that are not allocated yet.
        let file = at.join("fresh");
        fs::write(&file, vec![7; 100 << 10]).expect("write");
        let used =
            |path: &Path| std::os::unix::fs::MetadataExt::blocks(&path.metadata().expect("stat"));
        assert_eq!(used(&file), 200);
        fs::File::open(&file).expect("open").sync_all().expect("fsync");
        assert!((200..=202).contains(&used(&file)), "{}", used(&file));
        let ours = listing(at.to_str().expect("path"));
        mounted.end();
        sound(&image);
        let kernel = KernelMount::new(&scratch, &image, "ro");
        same(&format!("{options}: the kernel"), &ours, &listing(kernel.text()));
    }
}

#[test]
fn a_server_that_is_killed_leaves_what_e2fsck_repairs_unasked() {
    if !ready() {
        return;
    }
    let all = DISCIPLINES.into_iter().filter(|&discipline| discipline != "async");
    let ext2 = all.map(|discipline| (discipline, journal(discipline)));
    let ext4 = ["sync", "normal"].map(|discipline| (discipline, EXT4));
    let today = [("journal=ordered", &["-t", "ext4"][..])];
    for (discipline, how) in ext2.chain(ext4).chain(today) {
        let scratch = Scratch::new("ext-killed");
        let image = scratch.join("image");
        let at = scratch.path().join("at");
        make(&image, &[&["-b", "1024"], how].concat());
        let mut mounted = Mounted::new(&image, &at, &format!("rw,{discipline},ages=classic"));
        populate(&at, 60, 400_000);
        // fsync makes a file durable with its name, and a directory with its entries.
        for entry in fs::read_dir(at.join("dir")).expect("list") {
            let entry = entry.expect("entry");
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                fs::File::open(entry.path()).and_then(|file| file.sync_all()).expect("fsync");
            }
        }
        for dir in ["dir/below/deep", "dir"] {
            fs::File::open(at.join(dir)).and_then(|file| file.sync_all()).expect("fsync");
        }
        if how.len() > 1 {
            scatter(&at.join("dir/scattered"), 0);
            scatter(&at.join("empty/scattered"), 1);
            let file = fs::File::open(at.join("dir")).expect("open");
            file.sync_all().expect("fsync");
        }
        let durable = listing(at.join("dir").to_str().expect("path"));
        fs::remove_dir_all(at.join("many")).expect("rm");
        for n in 0..60 {
            fs::write(at.join(format!("empty/{n}")), vec![n as u8; n * 50]).expect("write");
        }
        if how.len() > 1 {
            let file = fs::File::options().write(true).open(at.join("empty/scattered"));
            let file = file.expect("open");
            for n in 0..100 {
                file.write_all_at(&[9; 3000], n * 13_000 % 400_000).expect("write");
            }
            file.set_len(200_000).expect("truncate");
        }
        mounted.server.kill().expect("kill");
        mounted.server.wait().expect("wait");
        run("umount", &["-l", at.to_str().expect("path")]);
        let done = std::process::Command::new("e2fsck").args(["-p", &image]).output().expect("run");
        let code = done.status.code();
        assert!(code == Some(0) || code == Some(1), "{discipline}: {code:?} {done:?}");
        sound(&image);
        let kernel = KernelMount::new(&scratch, &image, "ro");
        let found = listing(kernel.path().join("dir").to_str().expect("path"));
        same(&format!("{discipline}: what was durable"), &durable, &found);
    }
}

#[test]
fn a_listing_shows_what_stays_once_whatever_comes_and_goes() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ext-listing");
    let image = scratch.join("image");
    let at = scratch.path().join("at");
    make(&image, &["-b", "1024", "-j"]);
    let mounted = Mounted::new(&image, &at, "rw");
    let name = |kind: &str, n: usize| at.join(format!("{kind} with a name of some length {n}"));
    for n in 0..3000 {
        fs::write(name("stays", n), b"").expect("write");
        fs::write(name("goes", n), b"").expect("write");
    }
    let mut shown = Vec::new();
    for (n, entry) in fs::read_dir(&at).expect("list").enumerate() {
        shown.push(entry.expect("entry").file_name().into_string().expect("name"));
        if n % 10 == 0 {
            fs::remove_file(name("goes", n / 10)).expect("rm");
            for more in 0..3 {
                fs::write(name("comes", n * 3 + more), b"").expect("write");
            }
        }
    }
    let mut stays: Vec<&String> = shown.iter().filter(|name| name.starts_with("stays")).collect();
    stays.sort();
    stays.dedup();
    assert_eq!(stays.len(), 3000);
    let all = shown.len();
    shown.sort();
    shown.dedup();
    assert_eq!(all, shown.len(), "nothing twice");
    // A name removed during the listing is gone.
    assert!(fs::metadata(name("goes", 5)).is_err());
    mounted.end();
    check(&image);
}

#[test]
fn a_listing_that_the_kernel_keeps_follows_changes() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ext-kept-listing");
    let image = scratch.join("image");
    let at = scratch.path().join("at");
    make(&image, EXT4);
    let mounted = Mounted::new(&image, &at, "rw");
    let dir = at.join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let names = |dir: &Path| {
        let names = fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().expect("name")).collect();
        names.sort();
        names
    };
    let mut expected: Vec<String> = Vec::new();
    for n in 0..400 {
        assert_eq!(names(&dir), expected);
        let name = format!("{n:03}");
        if n % 3 == 2 {
            let old = expected.remove(n % expected.len().min(7));
            fs::rename(dir.join(old), dir.join(&name)).expect("rename");
        } else {
            fs::write(dir.join(&name), b"").expect("write");
        }
        expected.push(name);
        if n % 5 == 4 {
            fs::remove_file(dir.join(expected.remove(0))).expect("rm");
        }
    }
    let other = at.join("other");
    fs::create_dir(&other).expect("mkdir");
    assert!(names(&other).is_empty());
    fs::rename(&dir, other.join("dir")).expect("rename");
    assert_eq!(names(&other.join("dir")), expected);
    mounted.end();
    check(&image);
}

#[test]
fn what_is_not_kept_up_is_refused_by_name() {
    let scratch = Scratch::new("ext-refused");
    let image = scratch.join("image");
    let at = scratch.join("at");
    fs::create_dir_all(&at).expect("mkdir");
    let refused = |options: &str| {
        let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", options]));
        assert_eq!(code, 4, "{said}");
        said
    };
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "bigalloc", &image, "32M"]);
    let said = refused("rw");
    for feature in ["bigalloc", "read-only"] {
        assert!(said.contains(feature), "{said}");
    }
    make(&image, EXT4);
    let said = refused("rw,softdep");
    assert!(said.contains("softdep on an image with extent"), "{said}");
    make(&image, &[]);
    let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", "rw,policy=orlov"]));
    assert!(
        code != 0 && said.contains("ext2-orlov, find-group-dir, linear, linux-orlov"),
        "{said}"
    );
    for (options, expected) in [
        ("dirs=depth", "policy 'depth' is for UFS only"),
        ("blocks=blkpref", "policy 'blkpref' is for UFS only"),
        (
            "inodes=nearest",
            "available: parent, find-group-other, old-find-group-other, dir-reserve, dir-reserve-hashed",
        ),
        ("inodes=dir-reserve=1", "a directory can reserve 2 to"),
        ("inodes=dir-reserve=many", "policy 'dir-reserve=many'"),
        ("delalloc", "delalloc on an image without extent"),
    ] {
        let options = format!("rw,{options}");
        let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", &options]));
        assert!(code != 0 && said.contains(expected), "{said}");
    }
    run("debugfs", &["-w", "-R", "ssv state 0", &image]);
    let (code, said) = failure(&seekless(&["mount", &image, &at, "-o", "rw"]));
    assert!(code != 0 && said.contains("not clean"), "{said}");
    let repaired = seekless(&["check", "-p", &image]);
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    check(&image);
}
