//! Images that `seekless optimize` lays out anew, made by mke2fs and filled by
//! the kernel: the same file system for e2fsck, dumpe2fs, the kernel and us.
//! Needs root, loop devices and e2fsprogs; says so and passes without them.

#[path = "../judges/mod.rs"]
mod judges;
#[path = "../../../ext/tests/judge/populate.rs"]
mod populate;

mod hostile;

use judges::{Mounted, Scratch, can_mount, failure, header, manifest, run, same, seekless, text};
use std::fs;
use std::path::Path;

/// What must be the same in both superblocks. Free blocks have a rule of their
/// own: see [`judge_pair`].
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

/// Length of files that are nearly all hole: listings digest the zeros.
const HOLE: u64 = 310 << 20;

struct Case<'a> {
    name: &'a str,
    size: &'a str,
    options: &'a [&'a str],
    load: populate::Load,
}

impl Case<'_> {
    /// An image with a tree; its path.
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
        judge_pair(&scratch, &old);
    }
}

/// Every third path of a listing, in an order of its own.
fn some_paths(listing: &str) -> String {
    let mut paths: Vec<&str> = listing
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next()?.strip_prefix('.'))
        .filter(|path| !path.is_empty() && !path.contains('\\') && !path.starts_with("/holes"))
        .step_by(3)
        .collect();
    // As good as random, and the same every time.
    paths.sort_by_key(|path| {
        path.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)))
    });
    paths.iter().map(|path| format!("{path}\n")).collect()
}

/// A trace of some of what is on an image; its path.
fn trace_of(scratch: &Scratch, listing: &str) -> String {
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    fs::write(&paths, some_paths(listing)).expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    trace
}

/// Lays an image out anew and asks every judge. `old` must not need recovery
/// for the kernel to mount it unchanged; an image that does is mounted from a
/// copy.
fn judge_pair(scratch: &Scratch, old: &str) {
    let new = scratch.join("new");
    let listing = manifest(old, &[]);
    let trace = trace_of(scratch, &listing);
    text(&seekless(&["optimize", old, "--trace", &trace, "-o", &new]));
    run("e2fsck", &["-fn", &new]);
    same("our listing", &listing, &manifest(&new, &[]));
    let before = scratch.join("before");
    run("cp", &["--sparse=always", old, &before]);
    {
        let (before, after) =
            (Mounted::new(scratch, &before, "rw"), Mounted::new(scratch, &new, "ro"));
        let theirs = manifest(before.text(), &[]);
        same("the kernel's listing", &theirs, &manifest(after.text(), &[]));
        same("both listings", &judged(&listing), &judged(&theirs));
    }
    same_superblock(&before, &new);
    use_it(scratch, &new);
}

/// A listing without what a mount shows otherwise: encrypted names.
fn judged(listing: &str) -> String {
    let known = listing.lines().filter(|line| !line.starts_with("./encrypted/"));
    known.collect::<Vec<_>>().join("\n")
}

fn same_superblock(before: &str, new: &str) {
    let (before, after) = (header(before), header(new));
    let value = |of: &[(String, String)], name: &str| {
        let found = of.iter().find(|(known, _)| known == name);
        // A clean image does not need recovery any more.
        found.map(|(_, value)| value.replace(" needs_recovery", ""))
    };
    for name in KEPT {
        assert_eq!(value(&before, name), value(&after, name), "{name}");
    }
    // Contiguous files need fewer blocks for their maps, never more in sum than
    // one block of map for every file that is now hot and cold in two places.
    let free = |of| value(of, "Free blocks").and_then(|text| text.parse::<i64>().ok());
    let (before, after) = (free(&before).expect("number"), free(&after).expect("number"));
    assert!(after >= before, "{before} blocks were free, now {after}");
}

/// The kernel can go on with it.
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
    project: "128M", ["-t", "ext4", "-O", "project"];
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

#[test]
fn case_insensitive_names() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("casefold");
    let load = populate::Load { hole: HOLE, ..populate::Load::default() };
    let options = ["-t", "ext4", "-O", "casefold"];
    let old = Case { name: "casefold", size: "128M", options: &options, load }.make(&scratch);
    let mounted = Mounted::new(&scratch, &old, "rw");
    let dir = mounted.path().join("folded");
    fs::create_dir(&dir).expect("mkdir");
    let flagged = std::process::Command::new("chattr").arg("+F").arg(&dir).status();
    if !flagged.expect("chattr").success() {
        eprintln!("skipped: this kernel does not fold case");
        return;
    }
    for n in 0..2000 {
        fs::write(dir.join(format!("Größe-{n}")), n.to_string()).expect("write");
    }
    drop(mounted);
    judge_pair(&scratch, &old);
    let mounted = Mounted::new(&scratch, &scratch.join("new"), "ro");
    for n in (0..2000).step_by(37) {
        let found = fs::read_to_string(mounted.path().join(format!("folded/GRÖSSE-{n}")));
        let folded = fs::read_to_string(mounted.path().join(format!("folded/gröSSe-{n}")));
        assert_eq!(found.expect("by upper case"), folded.expect("by mixed case"));
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
        run("cp", &["--sparse=always", &image, &live]);
    }
    let features = header(&live);
    assert!(features.iter().any(|(_, value)| value.contains("needs_recovery")), "not live");
    judge_pair(&scratch, &live);
}

#[test]
fn quota_is_refused_by_name() {
    let scratch = Scratch::new("quota");
    let (image, new) = (scratch.join("old"), scratch.join("new"));
    run("mke2fs", &["-q", "-t", "ext4", "-O", "quota", &image, "16M"]);
    let trace = scratch.join("trace");
    fs::write(scratch.path().join("paths"), "/lost+found\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
    let (code, message) = failure(&seekless(&["optimize", &image, "--trace", &trace, "-o", &new]));
    assert!(code == 4 && message.contains("quota"), "{message}");
    assert!(!Path::new(&new).exists());
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
