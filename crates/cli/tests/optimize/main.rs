//! Images optimized by `seekless optimize`, made by mke2fs and filled by the kernel: the same file
//! system for e2fsck, dumpe2fs, the kernel and us. Needs root, loop devices and e2fsprogs; reports
//! and passes without them.

#[path = "../judges/mod.rs"]
mod judges;
#[path = "../../../ext/tests/testsuite/judge/populate.rs"]
mod populate;

mod bad_blocks;
mod damaged;
mod encrypted;
mod held_out;
mod hostile;
mod in_place;
mod order;
mod orphans;
mod scattered;
mod symlinks;

use judges::{
    Mounted, Scratch, can_mount, copy_live, failure, header, manifest, run, same, seekless, text,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Fields that must be the same in both superblocks. Free blocks have a rule of their own: see
/// [`judge_pair`].
const KEPT: &[&str] = &[
    "Filesystem volume name",
    "Filesystem UUID",
    "Filesystem features",
    "Filesystem flags",
    "Default mount options",
    "Inode count",
    "Block count",
    "Reserved block count",
    "Free inodes",
    "First block",
    "Block size",
    "Cluster size",
    "Blocks per group",
    "Inodes per group",
    "Inode size",
    "Journal inode",
    "Default directory hash",
    "Directory Hash Seed",
];

/// Length of files that are nearly all holes: listings digest the zeros.
const HOLE: u64 = 310 << 20;

struct Case<'a> {
    name: &'a str,
    size: &'a str,
    options: &'a [&'a str],
    load: populate::Load,
}

impl Case<'_> {
    /// Makes an image with a tree; returns its path.
    fn make(&self, scratch: &Scratch) -> String {
        let image = scratch.join("old");
        let args = [&["-q", "-F", "-L", "kept"], self.options, &[&image, self.size]].concat();
        run("mke2fs", &args);
        let mounted = Mounted::new(scratch, &image, "rw");
        populate::fill(mounted.path(), &self.load);
        image
    }

    fn judge(&self) {
        if !can_mount() {
            return;
        }
        let scratch = Scratch::new(self.name);
        let old = self.make(&scratch);
        judge_pair(&scratch, &old, "rw");
    }
}

/// Every third path of a listing, in shuffled order.
fn some_paths(listing: &str) -> String {
    let mut paths: Vec<&str> = listing
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next()?.strip_prefix('.'))
        .filter(|path| !path.is_empty() && !path.contains('\\') && !path.starts_with("/holes"))
        .step_by(3)
        .collect();
    // Pseudo-random, and the same in every run.
    paths.sort_by_key(|path| {
        path.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)))
    });
    paths.iter().map(|path| format!("{path}\n")).collect()
}

/// Writes a trace of some files of an image; returns its path.
fn trace_of(scratch: &Scratch, listing: &str) -> String {
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    fs::write(&paths, some_paths(listing)).expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    trace
}

/// Optimizes an image, and calls every judge. The kernel can mount `old` without changing it only
/// if it needs no recovery; an image that does is mounted from a copy.
fn judge_pair(scratch: &Scratch, old: &str, access: &str) {
    let new = scratch.join("new");
    let listing = manifest(old, &[]);
    let trace = trace_of(scratch, &listing);
    text(&seekless(&["optimize", old, "--trace", &trace, "-o", &new]));
    run("e2fsck", &["-fn", &new]);
    same("our listing", &listing, &manifest(&new, &[]));
    let before = scratch.join("before");
    run("cp", &["--sparse=always", old, &before]);
    let (sectors_before, sectors_after) = {
        let (before, after) =
            (Mounted::new(scratch, &before, access), Mounted::new(scratch, &new, "ro"));
        let theirs = manifest(before.text(), &[]);
        same("the kernel's listing", &theirs, &manifest(after.text(), &[]));
        same("both listings", &listing, &theirs);
        (sectors(before.text()), sectors(after.text()))
    };
    let grown = (sectors_after - sectors_before) / sectors_in_block(&new);
    same_superblock(&before, &new, grown);
    if access == "rw" {
        use_it(scratch, &new);
    }
}

/// Sectors allocated to the files of a mount.
fn sectors(mount: &str) -> i64 {
    let listed = run("find", &[mount, "-xdev", "-printf", "%i %b\n"]);
    let files: BTreeSet<&str> = listed.lines().collect();
    let count = |line: &str| line.split_once(' ').and_then(|(_, count)| count.parse::<i64>().ok());
    files.into_iter().map(|line| count(line).expect("sectors")).sum()
}

fn sectors_in_block(image: &str) -> i64 {
    let header = header(image);
    let size = header.iter().find(|(name, _)| name == "Block size").expect("block size");
    size.1.parse::<i64>().expect("number") / 512
}

/// Compares two superblocks. `grown` is the number of blocks that the files have in addition.
fn same_superblock(before: &str, new: &str, grown: i64) {
    let (before, after) = (header(before), header(new));
    let value = |of: &[(String, String)], name: &str| {
        let found = of.iter().find(|(known, _)| known == name);
        // A clean image needs no recovery any more.
        found.map(|(_, value)| value.replace(" needs_recovery", ""))
    };
    for name in KEPT {
        assert_eq!(value(&before, name), value(&after, name), "{name}");
    }
    // A file whose hot ranges are apart from its cold ones has more extents, and its map may need
    // another block; otherwise no block is lost. (A file that counts a shared attribute block does
    // so before and after.)
    let count = |of, name| value(of, name).and_then(|text| text.parse::<i64>().ok());
    let free = |of| count(of, "Free blocks").expect("number");
    assert_eq!(free(&before) - free(&after), grown, "free blocks");
    let blocks = count(&before, "Block count").expect("number");
    let used = blocks - free(&before);
    assert!(grown <= used / 50, "maps grew by {grown} blocks, {used} were in use");
}

/// The kernel can write to the image.
fn use_it(scratch: &Scratch, image: &str) {
    {
        let mounted = Mounted::new(scratch, image, "rw");
        fs::write(mounted.path().join("new"), vec![3; 200_000]).expect("write");
        fs::remove_dir_all(mounted.path().join("many")).expect("remove");
        fs::remove_dir_all(mounted.path().join("attributes")).expect("remove");
        fs::create_dir(mounted.path().join("newer")).expect("mkdir");
    }
    run("e2fsck", &["-fn", image]);
}

macro_rules! judged {
    ($($name:ident: $size:expr, [$($option:expr),*];)*) => {
        $(#[test]
        fn $name() {
            let load = populate::Load { hole: HOLE, ..populate::Load::default() };
            Case { name: stringify!($name), size: $size, options: &[$($option),*], load }.judge();
        })*
    };
}

judged! {
    ext2_1k: "128M", ["-t", "ext2", "-b", "1024"];
    ext2_4k_128_byte_inodes: "128M", ["-t", "ext2", "-b", "4096", "-I", "128"];
    ext3_2k: "128M", ["-t", "ext3", "-b", "2048"];
    ext4_1k: "128M", ["-t", "ext4", "-b", "1024"];
    ext4_4k: "128M", ["-t", "ext4", "-b", "4096"];
    no_extents: "128M", ["-t", "ext4", "-O", "^extent,^64bit,^bigalloc"];
    bigalloc: "128M", ["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"];
    bigalloc_1k: "128M", ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"];
    inline_data: "128M", ["-t", "ext4", "-O", "inline_data", "-I", "256"];
    inline_data_big_inodes:
        "128M", ["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "1024"];
    meta_bg: "256M", ["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"];
    no_flex_bg: "128M", ["-t", "ext4", "-b", "1024", "-O", "^flex_bg"];
    no_64bit: "128M", ["-t", "ext4", "-O", "^64bit"];
    uninit_bg: "256M", ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"];
    no_checksums: "128M", ["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"];
    sparse_super2: "128M", ["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"];
    metadata_csum_seed: "128M", ["-t", "ext4", "-O", "metadata_csum_seed"];
    orphan_file: "128M", ["-t", "ext4", "-O", "orphan_file"];
    ea_inode: "128M", ["-t", "ext4", "-O", "ea_inode"];
    mmp: "128M", ["-t", "ext4", "-O", "mmp"];
    no_filetype: "128M", ["-t", "ext4", "-O", "^filetype"];
    no_journal_no_index: "128M", ["-t", "ext4", "-O", "^has_journal,^dir_index"];
    verity_and_stable_inodes: "128M", ["-t", "ext4", "-O", "verity,stable_inodes,encrypt"];
}

#[test]
fn a_large_index() {
    let load = populate::Load { names: 50_000, long_names: false, hole: HOLE };
    let options = ["-t", "ext4", "-b", "1024", "-N", "60000"];
    Case { name: "index", size: "256M", options: &options, load }.judge();
}

#[test]
fn three_levels_of_index() {
    let load = populate::Load { names: 25_000, long_names: true, hole: HOLE };
    let options = ["-t", "ext4", "-b", "1024", "-N", "30000", "-O", "large_dir"];
    Case { name: "large-dir", size: "256M", options: &options, load }.judge();
}

/// The kernel may lack quota support, which it needs only for writes.
#[test]
fn project() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("project");
    let load = populate::Load { hole: HOLE, ..populate::Load::default() };
    let old = Case { name: "project", size: "128M", options: &["-t", "ext4"], load }.make(&scratch);
    // tune2fs would add the quota feature.
    run("debugfs", &["-w", "-R", "feature project", &old]);
    judge_pair(&scratch, &old, "ro");
}

/// This kernel may not support case-insensitive directories; mke2fs does.
#[test]
fn case_insensitive_names() {
    let scratch = Scratch::new("casefold");
    let (tree, old, new) = (scratch.path().join("tree"), scratch.join("old"), scratch.join("new"));
    fs::create_dir_all(tree.join("folds")).expect("mkdir");
    for n in 0..1000 {
        fs::write(tree.join("folds").join(format!("Größe-{n}")), n.to_string()).expect("write");
    }
    let from = tree.to_str().expect("path");
    let options = ["-q", "-t", "ext4", "-b", "1024", "-O", "casefold", "-d", from, &old, "32M"];
    run("mke2fs", &options);
    run("debugfs", &["-w", "-R", "set_inode_field /folds flags 0x40080000", &old]);
    // Makes the index; an exit code of 1 reports changes.
    let _ = std::process::Command::new("e2fsck").args(["-fyD", &old]).output();
    let listing = manifest(&old, &[]);
    let trace = trace_of(&scratch, &listing);
    text(&seekless(&["optimize", &old, "--trace", &trace, "-o", &new]));
    run("e2fsck", &["-fn", &new]);
    same("our listing", &listing, &manifest(&new, &[]));
    for n in (0..1000).step_by(37) {
        let found = text(&seekless(&["cat", &new, &format!("/folds/GRÖßE-{n}")]));
        assert_eq!(found, n.to_string());
    }
}

/// An image copied while the kernel was writing to it: its journal is live.
#[test]
fn a_live_journal() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("live");
    let options = ["-t", "ext4", "-b", "1024"];
    let load = populate::Load { hole: HOLE, ..populate::Load::default() };
    let image = Case { name: "live", size: "128M", options: &options, load }.make(&scratch);
    let live = scratch.join("live");
    {
        let mounted = Mounted::new(&scratch, &image, "rw");
        fs::remove_dir_all(mounted.path().join("small")).expect("remove");
        fs::write(mounted.path().join("after"), vec![9; 50_000]).expect("write");
        fs::File::open(mounted.path()).and_then(|dir| dir.sync_all()).expect("fsync");
        copy_live(&image, &live);
    }
    let features = header(&live);
    assert!(features.iter().any(|(_, value)| value.contains("needs_recovery")), "not live");
    judge_pair(&scratch, &live, "rw");
}

/// A file read in pieces, out of order, gets a map of more blocks, which are charged to its owner;
/// e2fsck compares the quota files with the usage.
#[test]
fn quota_follows_what_is_charged() {
    let scratch = Scratch::new("quota");
    let (tree, old, new) = (scratch.path().join("tree"), scratch.join("old"), scratch.join("new"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(tree.join("big"), vec![7; 20 << 20]).expect("write");
    let from = tree.to_str().expect("path");
    run("mke2fs", &["-q", "-t", "ext4", "-b", "1024", "-d", from, &old, "64M"]);
    run("tune2fs", &["-O", "quota", &old]);
    let mut events = String::from("{\"seekless_trace\":1}\n");
    for n in 0..600 {
        let offset = (n * 7919 % 5000) * 4096;
        events += &format!(
            "{{\"time\":{n},\"op\":\"read\",\"path\":\"/big\",\"offset\":{offset},\"length\":4096}}\n"
        );
    }
    let trace = scratch.join("trace");
    fs::write(&trace, events).expect("write");
    text(&seekless(&["optimize", &old, "--trace", &trace, "-o", &new]));
    run("e2fsck", &["-fn", &new]);
    let blocks = |image: &str| {
        let output =
            std::process::Command::new("debugfs").args(["-R", "stat /big", image]).output();
        let text = String::from_utf8_lossy(&output.expect("debugfs").stdout).into_owned();
        let count = text.split("Blockcount: ").nth(1).and_then(|rest| rest.split('\n').next());
        count.expect("a block count").trim().parse::<u64>().expect("a number")
    };
    assert!(blocks(&new) > blocks(&old), "the map did not grow");
}

/// The value of an attribute in an inode of its own counts by its length for the file that has it,
/// whatever blocks its map has: this one's shrinks to nothing.
#[test]
fn quota_of_values_does_not_follow_their_maps() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("quota-values");
    let (tree, old, new) = (scratch.path().join("tree"), scratch.join("old"), scratch.join("new"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(tree.join("block"), [7; 1000]).expect("write");
    let from = tree.to_str().expect("path");
    run("mke2fs", &["-q", "-t", "ext4", "-b", "1024", "-O", "ea_inode", &old, "4M"]);
    let free = |image: &str| {
        let found = header(image).into_iter().find(|(key, _)| key == "Free blocks");
        found.expect("free blocks").1.parse::<usize>().expect("a number")
    };
    // One block behind the other, and nothing free behind them, so that the value finds only
    // single blocks, wherever in the volume the kernel begins to look for some; between files that
    // will lie together.
    let commands = scratch.join("commands");
    let writes: String = (0..600).map(|n| format!("write {from}/block {n}\n")).collect();
    fs::write(&commands, writes).expect("write");
    run("debugfs", &["-w", "-f", &commands, &old]);
    fs::write(tree.join("rest"), vec![8; (free(&old) - 8) * 1024]).expect("write");
    run("debugfs", &["-w", "-R", &format!("write {from}/rest rest"), &old]);
    assert!(free(&old) <= 8, "{} blocks are free", free(&old));
    {
        let mounted = Mounted::new(&scratch, &old, "rw");
        let at = |n: u32| mounted.path().join(n.to_string());
        (300..600).step_by(2).for_each(|n| fs::remove_file(at(n)).expect("remove"));
        rustix::fs::sync();
        let (file, value) = (at(1), "x".repeat(20_000));
        run("setfattr", &["-n", "user.large", "-v", &value, file.to_str().expect("path")]);
    }
    run("tune2fs", &["-O", "quota", &old]);
    // The usage in new quota files is right after the second run: their own maps grow in the first.
    for _ in 0..2 {
        let _ = std::process::Command::new("e2fsck").args(["-fy", &old]).output();
    }
    run("e2fsck", &["-fn", &old]);
    let paths = scratch.join("paths");
    let read = (0..300).rev().chain((300..600).rev().step_by(2));
    let read: String = read.map(|n| format!("/{n}\n")).collect();
    fs::write(&paths, read + "/rest\n").expect("write");
    let trace = scratch.join("trace");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    text(&seekless(&["optimize", &old, "--trace", &trace, "-o", &new]));
    run("e2fsck", &["-fn", &new]);
    assert!(free(&new) > free(&old), "no map has shrunk");
}

/// A hash tree would not match the new image: it is left out, and a warning says so.
#[test]
fn bytes_behind_the_file_system_are_left_out_with_a_warning() {
    let scratch = Scratch::new("behind");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), [7; 9000]).expect("write");
    fs::write(scratch.join("paths"), "/file\n").expect("write");
    let trace = scratch.join("trace");
    text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
    let said = |image: &str, more: &[&str]| {
        let new = format!("{image}.new");
        let args = ["optimize", image, "--trace", &trace, "-o", &new, "--force"];
        let output = seekless(&[&args, more].concat());
        text(&output);
        String::from_utf8(output.stderr).expect("text")
    };
    for (format, rebuild) in [("ext4", &["--inode-size", "512"][..]), ("fat32", &[])] {
        let image = scratch.join(format);
        let args = ["build", &tree, "-o", &image, "--format", format, "--drop", "all"];
        text(&seekless(if format == "ext4" { &args[..6] } else { &args[..] }));
        let len = fs::metadata(&image).expect("stat").len();
        let file = fs::File::options().write(true).open(&image).expect("open");
        file.set_len(len + 5000).expect("length");
        assert_eq!(said(&image, &[]), "", "zeros");
        file.write_all_at(b"tree", len + 4000).expect("write");
        for more in [&[], rebuild, &["--like", &image]] {
            let said = said(&image, more);
            assert!(
                said.contains("5000 bytes behind the file system"),
                "{format} {more:?}: {said}"
            );
        }
    }
}

/// A rebuild has no projects, and says so.
#[test]
fn flags_that_a_rebuild_cannot_have_are_counted() {
    let scratch = Scratch::new("project-flags");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), [7; 9000]).expect("write");
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &tree, &image, "16M"]);
    run("debugfs", &["-w", "-R", "set_inode_field /file flags 0x20080000", &image]);
    fs::write(scratch.join("paths"), "/file\n").expect("write");
    let trace = scratch.join("trace");
    text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
    let new = scratch.join("new");
    let args = ["optimize", &image, "--trace", &trace, "-o", &new, "--inode-size", "512"];
    let output = seekless(&args);
    text(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("1 file with flags that the image cannot have: project"), "{said}");
    run("e2fsck", &["-fn", &new]);
}

/// e2fsck counts usage itself, and compares.
#[test]
fn quota() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("quota");
    let load = populate::Load { hole: HOLE, ..populate::Load::default() };
    let old = Case { name: "quota", size: "128M", options: &["-t", "ext4"], load }.make(&scratch);
    run("tune2fs", &["-O", "quota,project", "-Q", "usrquota,grpquota,prjquota", &old]);
    judge_pair(&scratch, &old, "ro");
}

/// An image with its superblock changed by debugfs, and a trace of it.
fn with_superblock(scratch: &Scratch, kind: &str, change: &str) -> (String, String) {
    let (image, trace) = (scratch.join("old"), scratch.join("trace"));
    run("mke2fs", &["-q", "-F", "-t", kind, "-b", "1024", &image, "20M"]);
    run("debugfs", &["-w", "-R", &format!("set_super_value {change}"), &image]);
    fs::write(scratch.path().join("paths"), "/lost+found\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
    (image, trace)
}

/// The error flag of the superblock is kept: an image that e2fsck finds sound can be optimized, but
/// still has to be checked.
#[test]
fn a_mark_of_errors_is_kept() {
    for kind in ["ext4", "ext2"] {
        let scratch = Scratch::new("errors");
        let (image, trace) = with_superblock(&scratch, kind, "state 2");
        let new = scratch.join("new");
        run("e2fsck", &["-fn", &image]);
        text(&seekless(&["optimize", &image, "--trace", &trace, "-o", &new]));
        run("e2fsck", &["-fn", &new]);
        let state = header(&new).into_iter().find(|(key, _)| key == "Filesystem state");
        assert!(state.is_some_and(|(_, state)| state.contains("with errors")), "{kind}");
    }
}

/// Wrong values in superblock fields that only e2fsck checks must not be copied over the backups.
#[test]
fn a_superblock_that_e2fsck_gives_up_is_refused() {
    for change in [
        "log_cluster_size 3",
        "clusters_per_group 77",
        "log_groups_per_flex 100",
        "r_blocks_count 11000",
        "rev_level 8",
        "desc_size 33",
        "journal_inum 77",
    ] {
        for kind in ["ext4", "ext2"] {
            let scratch = Scratch::new("superblock");
            let (image, trace) = with_superblock(&scratch, kind, change);
            let new = scratch.join("new");
            let args = ["optimize", &image, "--trace", &trace, "-o", &new];
            let (code, message) = failure(&seekless(&args));
            assert!(code == 3 && message.contains("superblock"), "{kind}, {change}: {message}");
            assert!(!Path::new(&new).exists());
        }
    }
}

/// A bitmap marks part of an inode table as free: no file may be placed there.
#[test]
fn metadata_that_its_bitmap_calls_free_is_refused_by_name() {
    let scratch = Scratch::new("free-table");
    let (tree, image, new) = (scratch.join("tree"), scratch.join("old"), scratch.join("new"));
    fs::create_dir(&tree).expect("mkdir");
    for n in 0..300 {
        fs::write(format!("{tree}/{n}"), vec![7; 3000]).expect("write");
    }
    run("mke2fs", &["-q", "-t", "ext4", "-b", "1024", "-d", &tree, &image, "16M"]);
    let said = run("dumpe2fs", &[&image]);
    let (_, rest) = said.split_once("Inode table at ").expect("dumpe2fs");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let table: u64 = digits.parse().expect("number");
    run("debugfs", &["-w", "-R", &format!("freeb {} 20", table + 20), &image]);
    let trace = scratch.join("trace");
    fs::write(scratch.path().join("paths"), "/7\n/200\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
    for more in [&[][..], &["--inode-size", "512"]] {
        let args = [&["optimize", &image, "--trace", &trace, "-o", &new], more].concat();
        let (code, message) = failure(&seekless(&args));
        assert!(code == 3 && message.contains("bitmap.blocks-free"), "{message}");
        assert!(message.contains("e2fsck"), "{message}");
        assert!(!Path::new(&new).exists());
    }
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("again");
    let load = populate::Load { hole: HOLE, ..populate::Load::default() };
    let old = Case { name: "again", size: "128M", options: &["-t", "ext4"], load }.make(&scratch);
    let trace = trace_of(&scratch, &manifest(&old, &[]));
    let (first, second) = (scratch.join("first"), scratch.join("second"));
    for new in [&first, &second] {
        text(&seekless(&["optimize", &old, "--trace", &trace, "-o", new]));
    }
    run("cmp", &[&first, &second]);
    let sum = run("sha256sum", &[&old]);
    let (code, message) = failure(&seekless(&["optimize", &old, "--trace", &trace, "-o", &old]));
    assert!(code == 6 && message.contains("--force"), "{message}");
    assert_eq!(sum, run("sha256sum", &[&old]), "the old image was written");
}
