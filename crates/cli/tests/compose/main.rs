//! Images that `seekless build` writes, judged by e2fsck, debugfs, dumpe2fs and the kernel's own
//! mount. Needs e2fsprogs, and root with loop devices for the mounts; reports and passes without
//! them.

#[path = "../judges/mod.rs"]
mod judges;
#[path = "../../../ext/tests/testsuite/judge/populate.rs"]
mod populate;

mod alone;
mod amended;
mod archives;
mod compat;
mod containers;
mod device_tables;
mod disks;
mod features;
mod flags;
mod foreign;
mod kill;
mod layers;
mod layout_list;
mod like;
mod like_fat;
mod like_names;
mod like_ufs;
mod manifests;
mod options;
mod per_layer;
mod refusals;
mod reuse;
mod selected;
mod shared;
mod sizes;
mod sources;
mod sparse_images;
mod stacks;
mod tree;
mod verity;
mod workshop;

use judges::{Mounted, Scratch, can_mount, check, command, manifest, run, same, seekless, text};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Length of files that are nearly all holes: our listings leave the holes of such files out of the
/// digest, which saves minutes.
const HUGE: u64 = 65 << 30;

/// The tree that most tests build, made once a run. The attributes of its files are those that a
/// file system on a disk takes.
fn sample() -> &'static str {
    static SAMPLE: OnceLock<String> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let root = format!("{}/sample-tree", judges::ON_DISK);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).expect("mkdir");
        let load = populate::Load { names: 3000, hole: HUGE, ..populate::Load::default() };
        populate::fill(Path::new(&root), &load);
        tree::add(Path::new(&root));
        root
    })
}

/// Files that do not fit images with small blocks: a link target must be shorter than a block,
/// attributes must fit in one block.
const TOO_LARGE_FOR_1K: &[&str] =
    &["big-900", "big-3000", "big-3500", "length-1024", "length-4000", "length-4094"];
const TOO_LARGE_FOR_1K_MAPS: &[&str] = &[
    "big-900",
    "big-3000",
    "big-3500",
    "length-1024",
    "length-4000",
    "length-4094",
    "/holes/sparse",
    "nothing",
    "/sparse/large",
];
const TOO_LARGE_FOR_2K: &[&str] = &["big-3000", "big-3500", "length-4000", "length-4094"];

/// Builds the sample with options, and calls every judge.
struct Case<'a> {
    name: &'a str,
    options: &'a [&'a str],
    excludes: &'a [&'a str],
    /// Whether the image supports all times of the sample.
    times: bool,
}

impl Case<'_> {
    fn judge(&self) {
        if !can_mount() {
            return;
        }
        let scratch = Scratch::new(self.name);
        let image = scratch.join("image");
        let mut args = vec!["build", sample(), "-o", &image];
        args.extend(self.options);
        for exclude in self.excludes {
            args.extend(["--exclude", exclude]);
        }
        text(&seekless(&args));
        check(&image);
        run("dumpe2fs", &[&image]);
        let stat = run("debugfs", &["-R", "stat /multiples/of-2048", &image]);
        assert!(stat.contains("Size: 2048"), "{stat}");
        let listed = run("debugfs", &["-R", "ls /many", &image]);
        assert!(listed.contains("name-1000"), "{listed}");
        self.compare(&scratch, &image);
        change(&scratch, &image);
        check(&image);
    }

    fn compare(&self, scratch: &Scratch, image: &str) {
        let listing = |path: &str| {
            let listing = manifest(path, self.excludes);
            if self.times { listing } else { judges::timeless(&listing) }
        };
        let wanted = listing(sample());
        same("the image", &wanted, &listing(image));
        let mounted = Mounted::new(scratch, image, "ro");
        same("the mount", &wanted, &listing(mounted.text()));
    }
}

/// Changes an image through the kernel: writes, grows and deletes files.
fn change(scratch: &Scratch, image: &str) {
    let mounted = Mounted::new(scratch, image, "rw");
    let at = |name: &str| mounted.path().join(name);
    fs::write(at("new"), vec![7; 300_000]).expect("write");
    fs::create_dir_all(at("new-directory/below")).expect("mkdir");
    for n in 0..40 {
        let path = at("many").join(format!("a name that is new {n}"));
        fs::write(path, vec![n as u8; n]).expect("write");
    }
    for gone in ["names", "shared", "small", "sizes/of-3000001", "multiples/of-1061888"] {
        let path = at(gone);
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.unwrap_or_else(|error| panic!("{gone}: {error}"));
    }
}

macro_rules! judged {
    ($($name:ident: $excludes:expr, $times:expr, [$($option:expr),*];)*) => {
        $(#[test]
        fn $name() {
            Case {
                name: stringify!($name),
                options: &[$($option),*],
                excludes: $excludes,
                times: $times,
            }
            .judge();
        })*
    };
}

judged! {
    as_mke2fs_does: &[], true, ["-N", "30000"];
    blocks_of_1k: TOO_LARGE_FOR_1K, true, ["-b", "1024", "-m", "20"];
    blocks_of_2k: TOO_LARGE_FOR_2K, true, ["-b", "2048", "-m", "20"];
    ext2: TOO_LARGE_FOR_1K_MAPS, true, ["--format", "ext2", "-b", "1024", "-m", "20"];
    ext2_of_old: &[], false, ["--format", "ext2", "-I", "128", "-m", "20"];
    ext3: &[], true, ["--format", "ext3", "-m", "20"];
    ext3_of_1k: TOO_LARGE_FOR_1K_MAPS, true, ["--format", "ext3", "-b", "1024", "-m", "20"];
    no_extents: &[], true, ["-O", "^extent,^64bit", "-m", "20"];
    no_extents_1k:
        TOO_LARGE_FOR_1K_MAPS, true, ["-O", "^extent,^64bit", "-b", "1024", "-m", "20"];
    no_64bit: &[], true, ["-O", "^64bit", "-m", "20"];
    inline_data: &[], true, ["-O", "inline_data", "-m", "20"];
    inline_data_in_large_inodes:
        TOO_LARGE_FOR_1K, true, ["-O", "inline_data", "-I", "1024", "-b", "1024", "-m", "20"];
    value_inodes: &[], true, ["-O", "ea_inode", "-m", "20"];
    value_inodes_without_checksums:
        &[], true, ["-O", "ea_inode,^metadata_csum,^metadata_csum_seed", "-m", "20"];
    large_dir: TOO_LARGE_FOR_1K, true, ["-O", "large_dir", "-b", "1024", "-m", "20"];
    uninit_bg:
        TOO_LARGE_FOR_1K, true,
        ["-O", "^metadata_csum,^metadata_csum_seed,uninit_bg", "-b", "1024", "-m", "20"];
    no_checksums: &[], true, ["-O", "^metadata_csum,^metadata_csum_seed", "-m", "20"];
    no_flex_bg: TOO_LARGE_FOR_1K, true, ["-O", "^flex_bg", "-b", "1024", "-m", "20"];
    no_journal: &[], true, ["-O", "^has_journal,^orphan_file", "-m", "20"];
    no_orphan_file: &[], true, ["-O", "^orphan_file", "-m", "20"];
    no_resize_inode: &[], true, ["-O", "^resize_inode", "-m", "20"];
    no_index: &[], true, ["-O", "^dir_index", "-m", "20"];
    no_sparse_super:
        TOO_LARGE_FOR_1K, true,
        ["-O", "^sparse_super,^resize_inode", "-b", "1024", "-m", "20"];
    inodes_of_128: &[], false, ["-I", "128", "-m", "20"];
    inodes_of_512: &[], true, ["-I", "512", "-m", "20"];
    inodes_of_1024: &[], true, ["-I", "1024", "-m", "20"];
    twenty_gigabytes: &[], true, ["--size", "20G"];
    nothing_reserved: &[], true, ["-m", "0", "--size", "300M"];
}

#[test]
fn names_and_marks_are_as_asked_for() {
    let scratch = Scratch::new("marks");
    let (from, image) = (scratch.join("from"), scratch.join("image"));
    fs::create_dir(&from).expect("mkdir");
    fs::write(scratch.path().join("from/file"), b"x").expect("write");
    let uuid = "01234567-89ab-4cde-8f01-23456789abcd";
    let output = command(&["build", &from, "-o", &image, "-L", "label", "-U", uuid, "-m", "1.5"])
        .args(["--size", "64M", "-N", "1000", "--journal-size", "8M", "--owner", "7:8"])
        .env("SOURCE_DATE_EPOCH", "1600000000")
        .output();
    text(&output.expect("seekless"));
    check(&image);
    let header = judges::header(&image);
    let value = |name: &str| {
        let found = header.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_else(|| panic!("no {name}"))
    };
    assert_eq!(value("Filesystem volume name"), "label");
    assert_eq!(value("Filesystem UUID"), uuid);
    assert_eq!(value("Block count"), "16384");
    assert_eq!(value("Reserved block count"), "245");
    assert!(value("Inode count").parse::<u32>().expect("number") >= 1000);
    assert!(value("Filesystem created").ends_with("2020"), "{}", value("Filesystem created"));
    assert_eq!(value("Total journal size"), "8M");
    let listing = manifest(&image, &[]);
    assert!(listing.contains("./file type=file mode=0644 uid=7 gid=8"), "{listing}");
    assert!(listing.contains("time=1600000000.000000000"), "newer than SOURCE_DATE_EPOCH");
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let scratch = Scratch::new("same");
    let (first, second) = (scratch.join("first"), scratch.join("second"));
    for image in [&first, &second] {
        text(&seekless(&["build", sample(), "-o", image]));
    }
    run("cmp", &[&first, &second]);
}

/// A directory without an index is listed in the order of creation.
#[test]
fn the_order_of_listing_does_not_leak_in() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("order");
    let volume = scratch.join("volume");
    run("mke2fs", &["-q", "-t", "ext4", "-O", "^dir_index", &volume, "64M"]);
    let mounted = Mounted::new(&scratch, &volume, "rw");
    let mut names: Vec<u32> = (0..600).collect();
    let mut images = Vec::new();
    for copy in ["forwards", "shuffled"] {
        let root = mounted.path().join(copy);
        for n in &names {
            let dir = root.join(format!("dir-{}", n % 17));
            fs::create_dir_all(&dir).expect("mkdir");
            fs::write(dir.join(format!("file-{n}")), n.to_string()).expect("write");
        }
        // Links of one file in several directories: their order must not matter.
        for n in names.iter().filter(|&n| n % 17 == 0) {
            let from = root.join(format!("dir-0/file-{n}"));
            let to = root.join(format!("dir-{}/link-{n}", n % 16 + 1));
            fs::hard_link(from, to).expect("link");
        }
        tree::stop_the_clock(root.to_str().expect("path"));
        images.push(scratch.join(copy));
        text(&seekless(&["build", root.to_str().expect("path"), "-o", images.last().expect("it")]));
        // A permutation: 7 and 600 have no common divisor.
        names = (0..600).map(|n| n * 7 % 600).collect();
    }
    run("cmp", &images);
    check(&images[0]);
}

#[test]
fn a_directory_of_forty_thousand_files() {
    crowded(40_000, &["-b", "1024"]);
}

#[test]
#[ignore = "a minute: the campaign of large trees"]
fn a_directory_of_three_hundred_thousand_files() {
    crowded(300_000, &[]);
    crowded(300_000, &["-b", "1024", "-O", "large_dir"]);
}

fn crowded(names: u32, options: &[&str]) {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("crowd");
    let (from, image) = (scratch.join("from"), scratch.join("image"));
    tree::crowd(&scratch.path().join("from/below"), names);
    text(&seekless(&[&["build", &from, "-o", &image], options].concat()));
    check(&image);
    let wanted = manifest(&from, &[]);
    same("the image", &wanted, &manifest(&image, &[]));
    let mounted = Mounted::new(&scratch, &image, "ro");
    same("the mount", &wanted, &manifest(mounted.text(), &[]));
    // Lookups by name use the index, unlike a listing.
    for n in (0..names).step_by(97) {
        let path = mounted.path().join(format!("below/one-of-many-{n}"));
        assert!(path.exists(), "{}", path.display());
    }
}

/// Beyond 65,000 links, the link count of a directory is 1.
#[test]
fn seventy_thousand_subdirectories() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("subdirectories");
    let (from, image) = (scratch.join("from"), scratch.join("image"));
    let below = scratch.path().join("from/below");
    fs::create_dir_all(&below).expect("mkdir");
    for n in 0..70_000 {
        fs::create_dir(below.join(n.to_string())).expect("mkdir");
    }
    text(&seekless(&["build", &from, "-o", &image, "-b", "1024"]));
    check(&image);
    let stat = run("debugfs", &["-R", "stat /below", &image]);
    assert!(stat.contains("Links: 1 "), "{stat}");
    same("the image", &manifest(&from, &[]), &manifest(&image, &[]));
    let output = seekless(&["build", &from, "-o", &scratch.join("no"), "-O", "^dir_nlink"]);
    let (code, message) = judges::failure(&output);
    assert!(
        code == 5 && message.contains("from: no space: below: ") && message.contains("dir_nlink"),
        "{message}"
    );
}
