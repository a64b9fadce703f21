//! Images on the base of older ones: whatever e2fsck, the kernel and the tree say of any image, and
//! few new chunks besides.

use crate::judges::slice::some_or_all;
use crate::judges::{
    Mounted, Scratch, can_mount, check, failure, header, manifest, ready, run, same, seekless, text,
};
use crate::layout_list;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const CHUNK: usize = 512 << 10;
pub(super) const BLOCK: usize = 4096;

/// Numbers of a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(4)).map(|_| (self.below(1 << 31) as u32).to_le_bytes());
        words.flatten().take(len).collect()
    }

    /// Contents of a usual length, of any size up to 200 KB.
    pub(super) fn contents(&mut self) -> Vec<u8> {
        let most = [60, 5_000, 30_000, 200_000][self.below(4)];
        let len = self.below(most);
        self.bytes(len)
    }
}

/// The files or the directories below a path, sorted.
pub(super) fn list(root: &Path, dirs: bool) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).expect("list") {
            let path = entry.expect("entry").path();
            let is_dir = path.symlink_metadata().expect("stat").is_dir();
            if is_dir {
                pending.push(path.clone());
            }
            if is_dir == dirs {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn pick(random: &mut Random, of: &[PathBuf]) -> Option<PathBuf> {
    (!of.is_empty()).then(|| of[random.below(of.len())].clone())
}

/// Changes a tree as upgrades do; `steps` changes.
pub(super) fn change(root: &Path, random: &mut Random, steps: usize) {
    for step in 0..steps {
        let mut dirs = list(root, true);
        dirs.push(root.to_path_buf());
        let files = list(root, false);
        let dir = pick(random, &dirs).expect("a directory");
        let name = dir.join(format!("new-{step}-{}", random.below(1_000_000)));
        let file = pick(random, &files);
        match (random.below(12), file) {
            (0..4, _) => fs::write(&name, random.contents()).expect("write"),
            (4, _) => fs::create_dir(&name).expect("mkdir"),
            (5, _) => symlink("a/target".repeat(1 + random.below(20)), &name).expect("symlink"),
            (6, Some(file)) => fs::remove_file(file).expect("remove"),
            (7, Some(file)) => fs::rename(file, &name).expect("rename"),
            (8, Some(file)) => {
                let _ = fs::hard_link(file, &name);
            }
            (9, Some(file)) if file.is_file() => {
                let mut bytes = fs::read(&file).expect("read");
                bytes.extend(random.contents());
                fs::write(file, bytes).expect("write");
            }
            (10, Some(file)) if file.is_file() => {
                // One byte changed, or all contents.
                let mut bytes = fs::read(&file).expect("read");
                match bytes.len() {
                    0 => bytes = random.contents(),
                    len if random.below(2) == 0 => bytes[random.below(len)] ^= 1,
                    _ => bytes = random.contents(),
                }
                fs::write(file, bytes).expect("write");
            }
            (_, Some(file)) if file.is_file() => {
                let mode = 0o600 + random.below(64) as u32;
                fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("chmod");
            }
            _ => fs::write(&name, random.contents()).expect("write"),
        }
    }
}

pub(super) fn new_tree(root: &Path, random: &mut Random) {
    fs::create_dir(root).expect("mkdir");
    for dir in 0..8 {
        let at = root.join(format!("dir-{dir}"));
        fs::create_dir(&at).expect("mkdir");
        for file in 0..30 {
            fs::write(at.join(format!("file-{file}")), random.contents()).expect("write");
        }
    }
}

/// Gives the files that have changed a time by their step: the UUID of a free build, and so the order
/// of its directories, follows from the times.
pub(super) fn set_times(root: &str, step: usize) {
    let time = format!("@{}", 1_700_000_000 + step);
    run("find", &[root, "-newermt", "@1750000000", "-exec", "touch", "-h", "-d", &time, "{}", "+"]);
}

/// Digests of the pieces of an image that are not zeros.
pub(super) fn pieces(image: &[u8], size: usize) -> HashSet<[u8; 32]> {
    let zeros = vec![0; size];
    let pieces = image.chunks(size).filter(|piece| **piece != zeros[..piece.len()]);
    pieces.map(|piece| Sha256::digest(piece).into()).collect()
}

/// How many pieces of `new` are in no image of `old`.
pub(super) fn fresh(old: &[u8], new: &[u8], size: usize) -> usize {
    let have = pieces(old, size);
    pieces(new, size).difference(&have).count()
}

/// Builds an image.
pub(super) fn build_once(source: &str, image: &str, options: &[&str]) {
    let args = ["build", source, "-o", image, "--force", "-q"];
    text(&seekless(&[&args[..], options].concat()));
}

/// Builds an image, and again like lists of the older ones.
pub(super) fn build(source: &str, image: &str, options: &[&str]) {
    build_once(source, image, options);
    if options.contains(&"--like") && !options.contains(&"keep") {
        layout_list::give_the_same(source, image, options);
    }
}

/// The options of a step of a campaign: none, a trace of some files, or such a trace and bytes that
/// may move for it.
pub(super) fn traced(scratch: &Scratch, root: &str, random: &mut Random) -> Vec<String> {
    let kind = random.below(3);
    let files = list(Path::new(root), false);
    let files: Vec<&PathBuf> = files.iter().filter(|path| path.is_file()).collect();
    if kind == 0 || files.is_empty() {
        return Vec::new();
    }
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    let read = (0..1 + random.below(60)).map(|_| files[random.below(files.len())]);
    let below = |path: &PathBuf| path.strip_prefix(root).expect("below").display().to_string();
    let read: String = read.map(|path| format!("/{}\n", below(path))).collect();
    fs::write(&paths, read).expect("write");
    let _ = fs::remove_file(&trace);
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let mut options = vec!["--trace".to_string(), trace];
    if kind == 2 {
        let budget = ["64K", "500K", "20M"][random.below(3)];
        options.extend(["--move-budget".to_string(), budget.to_string()]);
    }
    options
}

/// Options without the bytes that may move, which an image without an older one does not have.
pub(super) fn without_budget(traced: &[String]) -> Vec<&str> {
    traced.iter().take(2).map(String::as_str).collect()
}

/// A tree that is changed again and again, each image like the one before. In a campaign, by traces
/// now and then, with a directory of many names, and each image is mounted.
fn successive(name: &str, seed: u64, options: &[&str]) {
    let is_campaign = name == "campaign";
    let scratch = Scratch::new(&format!("like-{name}"));
    let mut random = Random(seed);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    set_times(&root, 0);
    let (mut old, image, again, free) =
        (scratch.join("0"), scratch.join("image"), scratch.join("again"), scratch.join("free"));
    let many = format!("{root}/many");
    let add = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            fs::write(format!("{many}/one-of-many-names-{number}"), b"").expect("write");
        }
    };
    if is_campaign {
        fs::create_dir(&many).expect("mkdir");
        add(0..random.below(600));
    }
    build(&root, &old, options);
    // The older image keeps the options of its shape; others are given again.
    let given: Vec<&str> = options
        .iter()
        .zip(options.iter().skip(1))
        .filter(|pair| *pair.0 == "-m")
        .fold(Vec::new(), |mut all, pair| {
            all.extend([*pair.0, *pair.1]);
            all
        });
    for step in 1..if is_campaign { 4 } else { some_or_all(2, 3) } {
        let steps = 1 + random.below(60);
        change(Path::new(&root), &mut random, steps);
        if is_campaign {
            fs::create_dir_all(&many).expect("mkdir");
            add(step * 1000..step * 1000 + random.below(60));
        }
        set_times(&root, step);
        let freed = ["zero", "keep"][random.below(2)];
        let traced = if is_campaign { traced(&scratch, &root, &mut random) } else { Vec::new() };
        let by: Vec<&str> = traced.iter().map(String::as_str).collect();
        let like = [&["--like", &old, "--freed", freed][..], &given, &by].concat();
        build(&root, &image, &like);
        build_once(&root, &again, &like);
        build(&root, &free, &[options, &without_budget(&traced)].concat());
        let what = format!("{name} {seed} {step}");
        let bytes = fs::read(&image).expect("read");
        assert!(bytes == fs::read(&again).expect("read"), "{what}: the same bytes twice");
        check(&image);
        let text = text(&seekless(&["check", &image]));
        assert!(!text.contains("error"), "{what}: {text}");
        same(&what, &manifest(&free, &[]), &manifest(&image, &[]));
        if is_campaign && can_mount() {
            let mounted = Mounted::of_kind(&scratch, &image, "ext4", "ro");
            same(&what, &manifest(&root, &[]), &manifest(mounted.text(), &["lost+found"]));
        }
        let before = fs::read(&old).expect("read");
        let free = fs::read(&free).expect("read");
        for size in [BLOCK, CHUNK] {
            // Blocks that moved are new besides.
            let may_move = by.contains(&"--move-budget");
            let (like, free) = (fresh(&before, &bytes, size), fresh(&before, &free, size));
            // Of so few chunks nearly all are new, and holes make the image a few longer. By a trace,
            // new contents lie together and not in holes.
            let more = match (size, pieces(&bytes, size).len()) {
                (CHUNK, ..24) if is_campaign => 3 + 2 * usize::from(!by.is_empty()),
                _ => 0,
            };
            let what = format!("{what} {options:?} {freed} {by:?}");
            assert!(like <= free + more || may_move, "{what}: {like} of {size}, {free} without");
        }
        old = scratch.join(&step.to_string());
        fs::rename(&image, &old).expect("rename");
    }
    if can_mount() && !is_campaign {
        let mounted = Mounted::of_kind(&scratch, &old, "ext4", "ro");
        same(name, &manifest(&root, &[]), &manifest(mounted.text(), &[]));
    }
}

/// Many seeds: `LIKE_SEEDS` pairs of trees (500 by default), over all shapes.
#[test]
#[ignore = "a campaign"]
fn campaign() {
    let shapes: [&[&str]; 10] = [
        &[],
        &["-m", "0"],
        &["-b", "1024"],
        &["--format", "ext2"],
        &["-O", "inline_data"],
        &["-O", "^extent,^64bit"],
        &["-I", "512", "-m", "1"],
        &["-b", "1024", "-O", "ea_inode,large_dir", "-m", "0"],
        &["-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed", "-L", "label"],
        &["--format", "ext2", "-O", "^dir_index", "-b", "1024"],
    ];
    let seeds: Option<u64> = std::env::var("LIKE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let only: Option<u64> = std::env::var("LIKE_SEED").ok().and_then(|seed| seed.parse().ok());
    if let Some(seed) = only {
        successive("campaign", seed, shapes[(seed - 1000) as usize % shapes.len()]);
        return;
    }
    for seed in 0..seeds.unwrap_or(500).div_ceil(3) {
        successive("campaign", 1000 + seed, shapes[seed as usize % shapes.len()]);
    }
}

macro_rules! successive {
    ($($name:ident: $seed:expr, [$($option:expr),*];)*) => {
        $(#[test]
        fn $name() {
            if ready("e2fsck") {
                successive(stringify!($name), $seed, &[$($option),*]);
            }
        })*
    };
}

successive! {
    successive_images: 1, [];
    successive_images_without_reserve: 2, ["-m", "0"];
    successive_images_of_1k: 3, ["-b", "1024"];
    successive_images_of_ext2: 4, ["--format", "ext2", "-b", "1024"];
    successive_images_of_ext3: 5, ["--format", "ext3"];
    successive_images_with_inline_data: 6, ["-O", "inline_data"];
    successive_images_without_index: 7, ["-O", "^dir_index,^metadata_csum"];
    successive_images_of_a_size: 8, ["--size", "200M"];
}

/// One file added and one grown, and a directory of files added: the chunks that cannot be avoided.
#[test]
fn few_chunks_are_new() {
    let scratch = Scratch::new("like-few");
    let mut random = Random(11);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &[]);
    let before = fs::read(&old).expect("read");
    fs::create_dir(format!("{root}/added")).expect("mkdir");
    fs::write(format!("{root}/added/file"), random.bytes(300_000)).expect("write");
    let grown = format!("{root}/dir-5/file-7");
    let bytes = [fs::read(&grown).expect("read"), random.bytes(5_000)].concat();
    fs::write(&grown, bytes).expect("write");
    build(&root, &image, &["--like", &old]);
    let after = fs::read(&image).expect("read");
    let (blocks, chunks) = (fresh(&before, &after, BLOCK), fresh(&before, &after, CHUNK));
    assert!(blocks <= 76 + 20 && chunks <= 5, "{blocks} blocks, {chunks} chunks");
    for file in 0..60 {
        fs::write(format!("{root}/added/file-{file}"), random.bytes(100_000)).expect("write");
    }
    build(&root, &image, &["--like", &old]);
    let after = fs::read(&image).expect("read");
    let (blocks, chunks) = (fresh(&before, &after, BLOCK), fresh(&before, &after, CHUNK));
    assert!(blocks <= 1576 + 40 && chunks <= 13 + 6, "{blocks} blocks, {chunks} chunks");
    // An equal tree gives an equal image.
    build(&root, &old, &["--like", &image]);
    assert!(fs::read(&old).expect("read") == after, "nothing changed");
}

/// The copies of the superblock keep the counts of the older image. That is enough to repair the
/// volume from.
#[test]
fn the_copies_are_good_for_a_repair() {
    if !ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("like-copies");
    let mut random = Random(12);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &["--size", "300M"]);
    change(Path::new(&root), &mut random, 200);
    build(&root, &image, &["--like", &old]);
    let before = fs::read(&old).expect("read");
    let after = fs::read(&image).expect("read");
    let copy = 32768 * BLOCK;
    assert!(before[copy..copy + 2 * BLOCK] == after[copy..copy + 2 * BLOCK], "the first copy");
    let wanted = manifest(&image, &[]);
    let mut broken = after.clone();
    broken[1024..3 * BLOCK].fill(0);
    for judge in ["e2fsck", "seekless"] {
        fs::write(&image, &broken).expect("write");
        if judge == "e2fsck" {
            let fixed = Command::new("e2fsck").args(["-fy", &image]).output();
            assert_eq!(fixed.expect("e2fsck").status.code(), Some(1), "{judge}");
        } else {
            seekless(&["check", "-y", &image]);
        }
        check(&image);
        same(judge, &wanted, &manifest(&image, &[]));
    }
}

/// Images that others made and the kernel changed.
#[test]
fn images_of_mke2fs_and_the_kernel() {
    if !ready("mke2fs") || !can_mount() {
        return;
    }
    let scratch = Scratch::new("like-foreign");
    let mut random = Random(13);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024", "-g", "4096"],
        &["-t", "ext4", "-O", "^flex_bg,^64bit", "-I", "512"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext3"],
    ]
    .into_iter()
    .step_by(some_or_all(2, 1))
    {
        let (old, image) = (scratch.join("old"), scratch.join("new"));
        let _ = fs::remove_file(&old);
        run("mke2fs", &[&["-q", "-F", "-d", &root], options, &[&old, "150M"]].concat());
        if options == ["-t", "ext3"] {
            run("tune2fs", &["-E", "hash_alg=tea", &old]);
        }
        {
            let mounted = Mounted::new(&scratch, &old, "rw");
            change(mounted.path(), &mut random, 60);
        }
        build(&root, &image, &["--like", &old]);
        check(&image);
        same("the tree", &manifest(&root, &["lost+found"]), &manifest(&image, &["lost+found"]));
        let mounted = Mounted::new(&scratch, &image, "rw");
        change(mounted.path(), &mut random, 30);
        drop(mounted);
        check(&image);
        let field = |image: &str, name: &str| {
            header(image).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
        };
        for name in ["Filesystem UUID", "Inodes per group", "Block count", "Flex block group size"]
        {
            assert_eq!(field(&old, name), field(&image, name), "{options:?}: {name}");
        }
    }
}

/// An image that was built without the older one is laid out as if it had been built on it.
#[test]
fn an_image_is_laid_out_like_an_older_one() {
    let scratch = Scratch::new("like-optimize");
    let mut random = Random(17);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, new, image, trace) =
        (scratch.join("old"), scratch.join("new"), scratch.join("image"), scratch.join("trace"));
    build(&root, &old, &[]);
    for file in 0..20 {
        fs::write(format!("{root}/added-{file}"), random.bytes(30_000)).expect("write");
    }
    build(&root, &new, &["-O", "^has_journal"]);
    let paths = scratch.join("paths");
    fs::write(&paths, "/added-7\n/dir-3/file-3\n/added-3\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let args = ["optimize", &new, "--trace", &trace, "-o", &image, "--like", &old, "--like-strict"];
    text(&seekless(&args));
    if ready("e2fsck") {
        check(&image);
    }
    same("the tree", &manifest(&new, &[]), &manifest(&image, &[]));
    let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
    let (blocks, chunks) = (fresh(&before, &after, BLOCK), fresh(&before, &after, CHUNK));
    assert!(blocks <= 160 + 20 && chunks <= 6, "{blocks} blocks, {chunks} chunks");
}

#[test]
fn the_first_of_several_counts() {
    let scratch = Scratch::new("like-several");
    let mut random = Random(14);
    let (base, more) = (scratch.join("base"), scratch.join("more"));
    new_tree(Path::new(&base), &mut random);
    build(&base, &scratch.join("base.img"), &[]);
    run("cp", &["-a", &base, &more]);
    for file in 0..20 {
        fs::write(format!("{more}/added-{file}"), random.bytes(50_000)).expect("write");
    }
    build(&more, &scratch.join("more.img"), &["--like", &scratch.join("base.img")]);
    fs::write(format!("{more}/last"), random.bytes(5_000)).expect("write");
    let (image, base, other) =
        (scratch.join("new.img"), scratch.join("base.img"), scratch.join("more.img"));
    build(&more, &image, &["--like", &base, "--like", &other]);
    let read = |path: &str| fs::read(path).expect("read");
    let chunks = |new: usize, of: &str| {
        let found = fresh(&read(of), &read(&image), CHUNK);
        assert!(found <= new, "{found} new chunks beside {of}");
    };
    chunks(4, &other);
    chunks(6, &base);
}

/// Shapes that options exclude, and shapes at the ends of their ranges: each image is clean and has
/// the tree, or nothing is written and the reason is named.
#[test]
fn no_shape_makes_an_image_unsound() {
    if !ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("like-shapes");
    let mut random = Random(18);
    let (root, small) = (scratch.join("tree"), scratch.join("small"));
    fs::create_dir(&root).expect("mkdir");
    for file in 0..60 {
        fs::write(format!("{root}/file-{file}"), random.bytes(9_000)).expect("write");
    }
    fs::create_dir(&small).expect("mkdir");
    fs::write(format!("{small}/file"), random.bytes(9_000)).expect("write");
    let uuid = "5ee61e55-b007-4000-8000-000000000001";
    for (tree, make, size, options, grown) in [
        (
            &root,
            &["-t", "ext4", "-O", "metadata_csum_seed"][..],
            "24M",
            &["-O", "^metadata_csum_seed", "-U", uuid][..],
            0,
        ),
        (
            &root,
            &["-t", "ext4", "-O", "metadata_csum_seed"],
            "24M",
            &["--compat", "debian11", "-U", "random"],
            0,
        ),
        (&root, &["-t", "ext4", "-b", "1024"], "24M", &["-O", "^flex_bg"], 0),
        (&root, &["-t", "ext4", "-b", "1024"], "24M", &["-O", "^metadata_csum"], 0),
        (&root, &["-t", "ext4", "-b", "1024"], "24M", &["-O", "^metadata_csum,uninit_bg"], 0),
        (&root, &["-t", "ext4", "-b", "1024"], "24M", &["-U", uuid], 9_000_000),
        (&small, &["-t", "ext4", "-N", "16", "-O", "^has_journal"], "16M", &[], 0),
        (
            &small,
            &["-t", "ext2", "-g", "256", "-N", "14080", "-O", "^resize_inode,^64bit", "-m", "0"],
            "4M",
            &[],
            300_000,
        ),
        (
            &root,
            &["-t", "ext4", "-g", "1024", "-O", "meta_bg,^resize_inode,^has_journal"],
            "24M",
            &["-O", "^meta_bg"],
            0,
        ),
        (
            &root,
            &["-t", "ext4", "-C", "16384", "-O", "bigalloc,^resize_inode"],
            "40M",
            &["-O", "^bigalloc"],
            0,
        ),
        (&root, &["-t", "ext4", "-O", "quota"], "24M", &[], 0),
        (&root, &["-t", "ext4", "-G", "8", "-g", "512"], "24M", &[], 5_000_000),
        (&root, &["-t", "ext4", "-E", "packed_meta_blocks=1"], "24M", &[], 30_000_000),
    ] {
        let (old, image) = (scratch.join("old"), scratch.join("new"));
        let _ = (fs::remove_file(&old), fs::remove_file(&image));
        let blocks: &[&str] = if make.contains(&"-b") { &[] } else { &["-b", "1024"] };
        run("mke2fs", &[&["-q", "-F", "-d", tree], make, blocks, &[&old, size]].concat());
        let more = format!("{tree}/more");
        if grown > 0 {
            fs::write(&more, random.bytes(grown)).expect("write");
        }
        let args = ["build", tree, "-o", &image, "-q", "--like", &old];
        let output = seekless(&[&args[..], options].concat());
        if output.status.success() {
            check(&image);
            same(
                &format!("{make:?} {options:?}"),
                &manifest(tree, &["lost+found"]),
                &manifest(&image, &["lost+found"]),
            );
        } else {
            let (code, message) = failure(&output);
            assert_eq!((code, message.contains("quota")), (4, true), "{make:?}: {message}");
        }
        let _ = fs::remove_file(&more);
    }
    for options in [
        &["-b", "1024", "-i", "1M"][..],
        &["-i", "16M", "-I", "512"],
        &["-b", "1024", "-i", "16M"],
        &["-m", "0", "-J", "size=4"],
    ] {
        let image = scratch.join("shared");
        build(&root, &image, &[&["--share"], options].concat());
        check(&image);
    }
    let (code, message) =
        failure(&seekless(&["build", &root, "-o", &scratch.join("x"), "--share", "--size", "512"]));
    assert_eq!((code, message.contains("too small")), (5, true), "{message}");
}

/// A group that the older image did not use is not marked so in a copy when the new one does.
#[test]
fn copies_mark_no_used_group_as_unused() {
    if !ready("dumpe2fs") {
        return;
    }
    let scratch = Scratch::new("like-marks");
    let mut random = Random(19);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &["-b", "1024", "--size", "80M"]);
    for file in 0..40 {
        fs::write(format!("{root}/more-{file}"), random.bytes(600_000)).expect("write");
    }
    build(&root, &image, &["--like", &old]);
    let unused = |options: &[&str], image: &str| -> HashSet<String> {
        // It complains of bitmaps whose checksums are not those of a copy.
        let shown = Command::new("dumpe2fs").args(options).arg(image).output().expect("dumpe2fs");
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.contains("Group 1:"), "{shown}");
        let groups = shown.lines().filter(|line| line.starts_with("Group "));
        let marks = ["INODE_UNINIT", "BLOCK_UNINIT"];
        let marked = groups.flat_map(|line| {
            let group = line.split(':').next().unwrap_or_default().to_string();
            let has = marks.into_iter().filter(|mark| line.contains(mark));
            has.map(move |mark| format!("{group} {mark}")).collect::<Vec<_>>()
        });
        marked.collect()
    };
    let copy = ["-o", "superblock=8193", "-o", "blocksize=1024"];
    let (before, now) = (unused(&[], &old), unused(&[], &image));
    assert!(before.difference(&now).next().is_some(), "a group came into use");
    let copied = unused(&copy, &image);
    assert!(copied.is_subset(&now), "{:?}", copied.difference(&now).collect::<Vec<_>>());
    build(&root, &image, &["-b", "1024", "--share"]);
    assert!(unused(&copy, &image).is_empty(), "the copy marks nothing");
}

/// Files in many pieces keep their places where longer maps need more room than there is.
#[test]
fn a_volume_grows_for_longer_maps() {
    if !ready("mke2fs") || !can_mount() {
        return;
    }
    let scratch = Scratch::new("like-pieces");
    let mut random = Random(20);
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    let old = scratch.join("old");
    let make = ["-q", "-F", "-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"];
    run("mke2fs", &[&make[..], &[&old, "14M"]].concat());
    {
        let mounted = Mounted::new(&scratch, &old, "rw");
        for _ in 0..7 {
            for file in 0..300 {
                use std::io::Write;
                let path = mounted.path().join(format!("file-{file}"));
                let mut file =
                    fs::OpenOptions::new().create(true).append(true).open(path).expect("open");
                file.write_all(&random.bytes(1024)).expect("write");
                file.sync_all().expect("sync");
            }
        }
        run("cp", &["-a", &format!("{}/.", mounted.text()), &root]);
    }
    for len in [7_000_000, 7_700_000, 7_900_000, 8_000_000, 8_100_000] {
        fs::write(format!("{root}/added"), random.bytes(len)).expect("write");
        let image = scratch.join("new");
        build(&root, &image, &["--like", &old]);
        check(&image);
        same("the tree", &manifest(&root, &["lost+found"]), &manifest(&image, &["lost+found"]));
    }
}

/// Where the volume gets another shape, contents lie at the same bytes as far as they can.
#[test]
fn another_shape_keeps_what_it_can() {
    let scratch = Scratch::new("like-shape");
    let mut random = Random(15);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &[]);
    let before = fs::read(&old).expect("read");
    for (options, most) in [
        (&["-b", "1024"][..], 40),
        (&["-b", "8192"], 70),
        (&["-N", "9000"], 20),
        (&["-O", "^64bit"], 20),
        (&["-I", "512"], 40),
    ] {
        build(&root, &image, &[&["--like", &old], options].concat());
        if ready("e2fsck") {
            check(&image);
        }
        same("the tree", &manifest(&old, &[]), &manifest(&image, &[]));
        let after = fs::read(&image).expect("read");
        let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
        assert!(new * 100 <= all * most, "{options:?}: {new} of {all} blocks are new");
    }
}

#[test]
fn bases_that_do_not_suit_are_named() {
    let scratch = Scratch::new("like-refused");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    fs::write(format!("{root}/file"), "text").expect("write");
    let (old, ufs, image) = (scratch.join("old"), scratch.join("ufs"), scratch.join("new"));
    build(&root, &old, &["--size", "64M"]);
    build(&root, &ufs, &["--format", "ufs2"]);
    let refused = |options: &[&str], code: i32, words: &str| {
        let args = ["build", &root, "-o", &image];
        let (found, message) = failure(&seekless(&[&args[..], options].concat()));
        assert_eq!((found, message.contains(words)), (code, true), "{options:?}: {message}");
        assert!(!Path::new(&image).exists(), "{options:?}: nothing is written");
    };
    refused(&["--like", &ufs], 4, "ext images");
    refused(&["--like", &root], 2, &root);
    refused(&["--like", &scratch.join("none")], 6, "none");
    refused(&["--like", &old, "--size", "32M"], 2, "smaller");
    refused(&["--like", &old, "--format", "fat32"], 4, "FAT images");
    refused(&["--like", &old, "--format", "ufs2"], 4, "UFS images");
    refused(&["--like", &old, "--like-strict", "-b", "1024"], 4, "blocks of 4096");
    refused(&["--like", &old, "--like-strict", "-N", "5000"], 4, "inodes in a group");
    let mut damaged = fs::read(&old).expect("read");
    let at = damaged.windows(4).position(|bytes| bytes == b"file").expect("the name");
    damaged[at] ^= 0x20;
    fs::write(&old, damaged).expect("write");
    refused(&["--like", &old], 3, &old);
}

/// The new image has the version of the older one: that is said where the image has another one, and
/// refused with --like-strict.
#[test]
fn another_version_is_said() {
    let scratch = Scratch::new("like-version");
    let (tree, trace) = (scratch.join("tree"), scratch.join("trace"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), [1; 5000]).expect("write");
    fs::write(&trace, "{\"seekless_trace\":1}\n{\"op\":\"read\",\"path\":\"/file\"}\n")
        .expect("trace");
    let image = |name: &str, options: &str| {
        let path = scratch.join(name);
        let args = ["build", &tree, "-o", &path, "-q"];
        let options: Vec<&str> = options.split(' ').collect();
        text(&seekless(&[&args[..], &options].concat()));
        path
    };
    let pairs = [
        ("--format fat16 --size 16M", "--format fat12 --size 4M", "fat12"),
        ("--format ufs2", "--format ufs1", "ufs1"),
        ("--format ufs2", "--format ufs2 --big-endian", "big-endian"),
        ("--format ext4", "--format ext2", "ext2"),
    ];
    let new = scratch.join("new");
    for (source, older, is) in pairs {
        let (source, older) = (image("source", source), image("older", older));
        let args = ["optimize", &source, "--trace", &trace, "-o", &new, "--like", &older];
        let (code, said) = failure(&seekless(&[&args[..], &["--like-strict"]].concat()));
        assert!(code == 4 && said.contains(is), "{older}: {said}");
        assert!(fs::metadata(&new).is_err(), "nothing is written");
        let output = seekless(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(is), "{older}: {said}");
        fs::remove_file(&new).expect("remove");
        fs::remove_file(source).expect("remove");
        fs::remove_file(older).expect("remove");
    }
    // Nor is any file added.
    let bare = image("bare", "--no-lost-found");
    for more in [&["--like", bare.as_str()][..], &["--inode-size", "512"]] {
        let args = ["optimize", &bare, "--trace", &trace, "-o", &new, "--force", "-q"];
        text(&seekless(&[&args[..], more].concat()));
        assert_eq!(text(&seekless(&["ls", &new])), "file\n", "{more:?}");
    }
    // Sizes beyond all numbers are refused.
    for size in ["+8000000T", "+18446744073709551615"] {
        for more in [&[][..], &["--like", &image("fat", "--format fat12 --size 4M")]] {
            let args = ["build", &tree, "-o", &new, "--force", "--format", "fat12", "--size", size];
            let output = seekless(&[&args[..], more].concat());
            assert_eq!(output.status.code(), Some(5), "{size} {more:?}: {output:?}");
        }
        fs::remove_file(scratch.join("fat")).expect("remove");
    }
}

#[test]
fn optimize_counts_what_stays_as_a_build_does() {
    let scratch = Scratch::new("like-optimize-counts");
    let (tree, trace) = (scratch.join("tree"), scratch.join("trace"));
    fs::create_dir(&tree).expect("mkdir");
    for n in 0..40u8 {
        fs::write(format!("{tree}/{n:02}"), vec![n; 9000]).expect("write");
    }
    let [old, new, built, optimized] =
        ["old", "new", "built", "optimized"].map(|name| scratch.join(name));
    text(&seekless(&["build", &tree, "-o", &old, "-q", "--no-lost-found"]));
    fs::rename(format!("{tree}/03"), format!("{tree}/moved")).expect("rename");
    fs::write(format!("{tree}/added"), [200; 9000]).expect("write");
    text(&seekless(&["build", &tree, "-o", &new, "-q", "--no-lost-found"]));
    let read = |n: u32| format!("{{\"op\":\"read\",\"path\":\"/{:02}\"}}\n", n * 23 % 40);
    let reads: String = (5..15).map(read).collect();
    fs::write(&trace, format!("{{\"seekless_trace\":1}}\n{reads}")).expect("trace");
    let options = ["--trace", &trace, "--like", &old, "--move-budget", "1M", "--json"];
    let counts = |command: &[&str]| -> serde_json::Value {
        let output = text(&seekless(&[command, &options].concat()));
        serde_json::from_str(&output).expect("JSON")
    };
    let build = counts(&["build", &tree, "-o", &built, "--no-lost-found"]);
    let optimize = counts(&["optimize", &new, "-o", &optimized])["written"].clone();
    for key in ["like_same_path", "like_same_contents", "moved_bytes", "moved_chunks", "files"] {
        assert!(build[key].is_u64(), "{key}: {build}");
        assert_eq!(optimize[key], build[key], "{key}");
    }
    assert_eq!(optimize["like_same_contents"], 1);
    assert!(optimize["moved_bytes"].as_u64() > Some(0), "{optimize}");
}
