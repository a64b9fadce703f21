//! Names in directories, and values of attributes in inodes of their own, that stay where an older
//! image has them.

use crate::judges::{
    Mounted, Scratch, can_mount, check, manifest, ready, run, same, seekless, text,
};
use crate::like::{Random, build, fresh};
use std::fs;

/// Adds empty files with the next numbers to a directory; the hashes of the names scatter them.
fn add(dir: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        fs::write(format!("{dir}/the-name-of-file-{number:05}"), b"").expect("write");
    }
}

fn remove(dir: &str, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        fs::remove_file(format!("{dir}/the-name-of-file-{number:05}")).expect("remove");
    }
}

/// How many blocks of 1K an image has that an older one does not have.
fn new_blocks(old: &str, image: &str) -> usize {
    fresh(&fs::read(old).expect("read"), &fs::read(image).expect("read"), 1024)
}

/// The output of debugfs for a directory.
fn inspect(image: &str, request: &str) -> String {
    run("debugfs", &["-R", request, image])
}

/// The image is clean, it has the tree, and a kernel finds each of its names.
fn is_sound(scratch: &Scratch, what: &str, root: &str, image: &str) {
    check(image);
    let own = text(&seekless(&["check", image]));
    assert!(!own.contains("error"), "{what}: {own}");
    same(what, &manifest(root, &["lost+found"]), &manifest(image, &["lost+found"]));
    if can_mount() {
        let mounted = Mounted::of_kind(scratch, image, "ext4", "ro");
        let found = manifest(mounted.text(), &["lost+found"]);
        same(what, &manifest(root, &["lost+found"]), &found);
    }
}

/// A name more or less changes one block of a directory of many, whether that has an index or not.
#[test]
fn names_keep_their_blocks() {
    if !ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("like-names");
    for (number, options) in [
        &["-b", "1024"][..],
        &["-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed"],
        &["-b", "1024", "-O", "^dir_index"],
        &["-b", "1024", "--format", "ext2"],
    ]
    .into_iter()
    .enumerate()
    {
        let root = scratch.join(&format!("tree-{number}"));
        let dir = format!("{root}/dir");
        fs::create_dir_all(&dir).expect("mkdir");
        add(&dir, 0..2500);
        let (old, image, again) = (scratch.join("old"), scratch.join("new"), scratch.join("again"));
        build(&root, &old, options);
        remove(&dir, [70, 900, 901].into_iter());
        add(&dir, 9000..9003);
        build(&root, &image, &["--like", &old]);
        is_sound(&scratch, &format!("{options:?}"), &root, &image);
        // Six blocks of names, two of which may be split; the table's blocks with inodes, the root,
        // bitmaps, descriptors, the superblock.
        let found = new_blocks(&old, &image);
        assert!(found <= 30, "{options:?}: {found} blocks are new");
        build(&root, &again, &["--like", &image]);
        assert!(fs::read(&again).ok() == fs::read(&image).ok(), "{options:?}: nothing changed");
    }
}

/// A directory of one block that needs more gets an index, as by a kernel.
#[test]
fn a_directory_that_grows_gets_an_index() {
    if !ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("like-grows");
    let root = scratch.join("tree");
    let dir = format!("{root}/dir");
    fs::create_dir_all(&dir).expect("mkdir");
    add(&dir, 0..10);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &["-b", "1024", "-N", "2000"]);
    add(&dir, 10..600);
    build(&root, &image, &["--like", &old]);
    is_sound(&scratch, "grown", &root, &image);
    let found = inspect(&image, "htree_dump /dir");
    assert!(found.contains("Indirect levels: 0"), "{found}");
}

/// Leaves without room are split, nodes above them, too, and the index gets a level.
#[test]
fn full_leaves_are_split() {
    if !ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("like-leaves");
    let root = scratch.join("tree");
    let dir = format!("{root}/dir");
    fs::create_dir_all(&dir).expect("mkdir");
    add(&dir, 0..3200);
    let (mut old, image) = (scratch.join("0"), scratch.join("new"));
    build(&root, &old, &["-b", "1024", "-N", "8000"]);
    assert!(inspect(&old, "htree_dump /dir").contains("Indirect levels: 0"));
    for step in 1..5 {
        add(&dir, 3200 + step * 30..3200 + (step + 1) * 30);
        remove(&dir, (0..5).map(|n| step * 100 + n * 7));
        build(&root, &image, &["--like", &old]);
        is_sound(&scratch, &format!("step {step}"), &root, &image);
        let found = new_blocks(&old, &image);
        // A name splits a leaf in two, or changes it.
        assert!(found <= 120, "step {step}: {found} blocks are new");
        old = scratch.join(&step.to_string());
        fs::rename(&image, &old).expect("rename");
    }
    assert!(inspect(&old, "htree_dump /dir").contains("Indirect levels: 1"));
    if !can_mount() {
        return;
    }
    // A kernel goes on with such a directory, and a build with that of the kernel.
    {
        let mounted = Mounted::new(&scratch, &old, "rw");
        add(&format!("{}/dir", mounted.text()), 5000..5400);
        remove(&format!("{}/dir", mounted.text()), 1000..1500);
        fs::remove_dir_all(&root).expect("remove");
        run("cp", &["-a", &format!("{}/.", mounted.text()), &root]);
    }
    check(&old);
    add(&dir, 6000..6010);
    build(&root, &image, &["--like", &old]);
    is_sound(&scratch, "after the kernel", &root, &image);
    let found = inspect(&image, "htree_dump /dir");
    let leaves = |found: &str| found.lines().filter(|line| line.starts_with("Entry #")).count();
    let (before, after) = (leaves(&inspect(&old, "htree_dump /dir")), leaves(&found));
    assert!((before..before + 11).contains(&after), "{before} leaves, {after} then");
    // A directory with few names left is packed.
    remove(&dir, 1500..3000);
    build(&root, &image, &["--like", &old]);
    is_sound(&scratch, "few names", &root, &image);
    assert!(leaves(&inspect(&image, "htree_dump /dir")) * 2 < before, "it is packed");
}

/// Large values keep their inodes and their blocks.
#[test]
fn values_keep_their_inodes() {
    if !ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("like-values");
    let mut random = Random(21);
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    let mut set = |name: &str, len: usize| {
        let path = format!("{root}/{name}");
        fs::write(&path, name).expect("write");
        let (value, flags) = (random.bytes(len), rustix::fs::XattrFlags::empty());
        rustix::fs::setxattr(&path, "user.large", &value, flags).expect("setxattr");
    };
    for number in 0..40 {
        set(&format!("file-{number:02}"), 600 + number * 70);
    }
    let (old, new, image) = (scratch.join("old"), scratch.join("new"), scratch.join("image"));
    build(&root, &old, &["-b", "1024", "-O", "ea_inode"]);
    // Without the values of the first, and with one more in front.
    fs::remove_file(format!("{root}/file-00")).expect("remove");
    fs::remove_file(format!("{root}/file-01")).expect("remove");
    set("a-file", 3_000);
    let before = fs::read(&old).expect("read");
    let moved = |image: &str| {
        let after = fs::read(image).expect("read");
        before.chunks(1024).zip(after.chunks(1024)).filter(|(one, other)| one != other).count()
    };
    build(&root, &image, &["--like", &old]);
    check(&image);
    same("build", &manifest(&root, &["lost+found"]), &manifest(&image, &["lost+found"]));
    // The values have 97 blocks: 3 new ones, 2 of those that are removed, and metadata.
    assert!(moved(&image) <= 30, "build: {} blocks are others", moved(&image));
    build(&root, &new, &["-b", "1024", "-O", "ea_inode"]);
    let trace = scratch.join("trace");
    fs::write(&trace, "{\"seekless_trace\":1}\n{\"op\":\"read\",\"path\":\"/file-07\"}\n")
        .expect("trace");
    let like = ["--trace", &trace, "-o", &image, "--force", "-q", "--like", &old];
    text(&seekless(&[&["optimize", &new][..], &like].concat()));
    check(&image);
    same("optimize", &manifest(&new, &[]), &manifest(&image, &[]));
    assert!(moved(&image) <= 30, "optimize: {} blocks are others", moved(&image));
}

/// A lost+found without files keeps its blocks, which are room for repairs.
#[test]
fn lost_and_found_keeps_its_room() {
    if !ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("like-lost-found");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    fs::write(format!("{root}/file"), [1; 9000]).expect("write");
    let (old, new, image, trace) =
        (scratch.join("old"), scratch.join("new"), scratch.join("image"), scratch.join("trace"));
    run("mke2fs", &["-q", "-t", "ext4", "-b", "4096", "-d", &root, &old, "16M"]);
    build(&root, &new, &[]);
    fs::write(&trace, "{\"seekless_trace\":1}\n{\"op\":\"read\",\"path\":\"/file\"}\n")
        .expect("trace");
    let optimize = ["optimize", &new, "--trace", &trace, "-o", &image, "-q", "--force"];
    let build = ["build", &old, "-o", &image, "-q", "--force"];
    for command in [&optimize[..], &build] {
        text(&seekless(&[command, &["--like", &old]].concat()));
        check(&image);
        let blocks = |image: &str| {
            let found = inspect(image, "stat lost+found");
            let size = found.split("Size: ").nth(1).and_then(|rest| rest.split_whitespace().next());
            size.map(str::to_string)
        };
        assert_eq!(blocks(&image), Some("16384".into()), "{command:?}");
    }
}

/// With bytes left that may move, inodes that a trace reads get numbers behind one another.
#[test]
fn inodes_that_are_read_come_together() {
    if !ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("like-numbers");
    let root = scratch.join("tree");
    for dir in 0..20 {
        let dir = format!("{root}/dir-{dir:02}");
        fs::create_dir_all(&dir).expect("mkdir");
        add(&dir, 0..120);
    }
    let [old, image, again, paths, trace] =
        ["old", "new", "again", "paths", "trace"].map(|name| scratch.join(name));
    build(&root, &old, &["-N", "4000"]);
    let read = |n: usize| format!("/dir-{:02}/the-name-of-file-{:05}\n", n * 7 % 20, n * 11 % 120);
    fs::write(&paths, (0..60).map(read).collect::<String>()).expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let like = ["--like", &old, "--trace", &trace, "--move-budget"];
    let told = |budget: &str| -> serde_json::Value {
        let args = ["build", &root, "-o", &image, "--force", "--json"];
        let told = text(&seekless(&[&args[..], &like, &[budget]].concat()));
        check(&image);
        same(budget, &manifest(&root, &["lost+found"]), &manifest(&image, &["lost+found"]));
        serde_json::from_str(&told).expect("json")
    };
    let seeks = |image: &str| {
        let score = text(&seekless(&["score", image, "--trace", &trace, "--json"]));
        let score: serde_json::Value = serde_json::from_str(&score).expect("json");
        score["seeks"].as_u64().expect("seeks")
    };
    let few = told("8K");
    assert_eq!(few["renumbered_inodes"], 0, "{few}");
    let before = seeks(&image);
    let all = told("4M");
    let number = |field: &str| all[field].as_u64().expect("a number");
    assert!(number("renumbered_inodes") > 20, "{all}");
    assert!(number("inode_reads_after") + 3 <= number("inode_reads_before"), "{all}");
    assert!(seeks(&image) < before, "{before} seeks with the old numbers");
    let new = fresh(&fs::read(&old).expect("read"), &fs::read(&image).expect("read"), 4096) as u64;
    let moved = number("moved_bytes") + number("renumbered_bytes");
    assert!(new <= moved / 4096 + 8, "{new} blocks are new, {all}");
    // Numbers that a trace has brought together stay so.
    build(&root, &again, &["--like", &image]);
    assert!(fs::read(&again).ok() == fs::read(&image).ok(), "nothing changed");
}
