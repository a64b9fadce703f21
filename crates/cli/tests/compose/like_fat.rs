//! FAT images on the base of older ones: whatever fsck.fat, mtools and the tree say of any image,
//! names that keep their short names, and few new chunks besides.

use crate::judges::slice::some_or_all;
use crate::judges::{Scratch, failure, manifest, ready, run, same, seekless, text};
use crate::like::{
    BLOCK, CHUNK, Random, build, build_once, fresh, list, new_tree, pieces, traced, without_budget,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(super) const DROP: &[&str] = &["--drop", "all"];

/// Whether mtools read an image: they go by the number of clusters alone.
fn suits_mtools(image: &str) -> bool {
    let bytes = fs::read(image).expect("read");
    let is_fat32 = bytes[22..24] == [0, 0];
    !is_fat32 || bytes.len() / 512 / usize::from(bytes[13]) > 66_600
}

/// fsck.fat finds nothing, and mtools read the files of the tree.
fn judge(scratch: &Scratch, image: &str, root: &str) {
    run("fsck.fat", &["-n", image]);
    if !suits_mtools(image) {
        return;
    }
    let copy = scratch.join("mcopy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).expect("mkdir");
    if fs::read_dir(root).expect("list").next().is_some() {
        run("mcopy", &["-s", "-n", "-p", "-Q", "-i", image, "::*", &copy]);
    }
    let relative = |root: &str, dirs: bool| {
        let paths = list(Path::new(root), dirs).into_iter();
        let kept = paths.filter(|path| dirs || path.symlink_metadata().expect("stat").is_file());
        kept.map(|path| path.strip_prefix(root).expect("below").to_path_buf()).collect::<Vec<_>>()
    };
    assert_eq!(relative(root, true), relative(&copy, true), "{image}: directories");
    assert_eq!(relative(root, false), relative(&copy, false), "{image}: files");
    for path in relative(root, false) {
        let read = |root: &str| fs::read(Path::new(root).join(&path)).expect("read");
        assert!(read(root) == read(&copy), "{image}: {}", path.display());
    }
}

/// The short names of an image by path, as mdir lists them.
fn short_names(image: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut dir = String::new();
    for line in run("mdir", &["-a", "-/", "-i", image, "::"]).lines() {
        if let Some(path) = line.strip_prefix("Directory for ::") {
            dir = path.trim_end_matches('/').to_string();
            continue;
        }
        // NAME     EXT  SIZE-OR-<DIR> DATE TIME LONG NAME
        let Some(short) = line.get(..12).filter(|short| !short.starts_with([' ', '.'])) else {
            continue;
        };
        let words: Vec<&str> = line[12..].split_whitespace().collect();
        let Some(time @ 1..) = words.iter().position(|word| word.contains(':')) else { continue };
        let long = words[time + 1..].join(" ");
        let name = if long.is_empty() { short.trim().to_string() } else { long };
        names.insert(format!("{dir}/{name}"), short.to_string());
    }
    names
}

/// Files that both images have under the same path have the same short name in them, unless another
/// file has that as its name; returns how many.
fn same_short_names(what: &str, old: &str, new: &str) -> usize {
    let (before, after) = (short_names(old), short_names(new));
    let mut kept = 0;
    for (path, short) in &after {
        let Some(old) = before.get(path) else { continue };
        let (base, extension) = old.split_at(8);
        let spelt = [base.trim(), extension.trim()].join(if extension.trim().is_empty() {
            ""
        } else {
            "."
        });
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let other = format!("{dir}/{spelt}").to_uppercase();
        let is_another = |name: &String| name != path && name.to_uppercase() == other;
        if !after.keys().any(is_another) {
            assert_eq!(old, short, "{what}: {path}");
            kept += 1;
        }
    }
    kept
}

/// Contents of up to `most` bytes, most of them short.
fn contents(random: &mut Random, most: usize) -> Vec<u8> {
    let most = [60, most / 40, most / 7, most][random.below(4)].max(1);
    let len = random.below(most);
    random.bytes(len)
}

pub(super) fn small_tree(root: &Path, random: &mut Random, most: usize) {
    fs::create_dir(root).expect("mkdir");
    for dir in 0..6 {
        let at = root.join(format!("Directory number {dir}"));
        fs::create_dir(&at).expect("mkdir");
        for file in 0..16 {
            let name = match file % 4 {
                0 => format!("FILE{file}.TXT"),
                1 => format!("file{file}.txt"),
                2 => format!("a rather long name of file {file}.text"),
                _ => format!("a rather long name {}", "x".repeat(file)),
            };
            fs::write(at.join(name), contents(random, most)).expect("write");
        }
    }
}

/// Changes a tree as upgrades do; `steps` changes, of files with up to `most` bytes.
pub(super) fn change(root: &Path, random: &mut Random, steps: usize, most: usize) {
    for step in 0..steps {
        let mut dirs = list(root, true);
        dirs.push(root.to_path_buf());
        let dir = dirs[random.below(dirs.len())].clone();
        let files = list(root, false);
        let Some(file) = files.get(random.below(files.len().max(1))) else { return };
        let number = random.below(1_000_000);
        let name = match random.below(3) {
            0 => format!("NEW{}.{step}", number % 1000),
            1 => format!("a rather long name of a new file {step}-{number}"),
            _ => format!("new-{step}-{number}.text"),
        };
        let name = dir.join(name);
        match random.below(14) {
            0 => fs::create_dir(&name).expect("mkdir"),
            1 | 2 => fs::remove_file(file).expect("remove"),
            3 => fs::rename(file, &name).expect("rename"),
            4 => {
                // Another case, unless that is the name of another file.
                let own = file.file_name().expect("name").to_string_lossy().into_owned();
                let other = file.with_file_name(own.to_uppercase());
                fs::rename(file, other).expect("rename");
            }
            5 => {
                let _ = fs::hard_link(file, &name);
            }
            6 => {
                let bytes = [fs::read(file).expect("read"), contents(random, most)].concat();
                fs::write(file, bytes).expect("write");
            }
            7 => {
                let mut bytes = fs::read(file).expect("read");
                if let Some(byte) = bytes.first_mut() {
                    *byte ^= 1;
                }
                fs::write(file, bytes).expect("write");
            }
            8 => fs::write(file, contents(random, most)).expect("write"),
            9 if dir != root && random.below(4) == 0 => {
                fs::remove_dir_all(&dir).expect("remove");
            }
            10 => {
                // The short name that another file may have.
                fs::write(dir.join(format!("ARATHE~{}", 1 + number % 4)), b"short").expect("write");
            }
            _ => fs::write(&name, contents(random, most)).expect("write"),
        }
    }
}

/// A tree that is changed again and again, each image like the one before.
fn successive(name: &str, seed: u64, options: &[&str], most: usize) {
    if !ready("fsck.fat") || !ready("mcopy") {
        return;
    }
    let scratch = Scratch::new(&format!("like-fat-{name}"));
    let mut random = Random(seed);
    let root = scratch.join("tree");
    small_tree(Path::new(&root), &mut random, most);
    let options = &[options, DROP].concat()[..];
    let (mut old, image, again, free) =
        (scratch.join("0"), scratch.join("image"), scratch.join("again"), scratch.join("free"));
    build(&root, &old, options);
    let mut kept = 0;
    for step in 1..some_or_all(3, 4) {
        let steps = 1 + random.below(40);
        change(Path::new(&root), &mut random, steps, most);
        let freed = ["zero", "keep"][random.below(2)];
        let format = &options[..2];
        let traced = match name {
            "campaign" => traced(&scratch, &root, &mut random),
            _ => Vec::new(),
        };
        let by: Vec<&str> = traced.iter().map(String::as_str).collect();
        let like = [&["--like", &old, "--freed", freed][..], format, DROP, &by].concat();
        build(&root, &image, &like);
        build_once(&root, &again, &like);
        build(&root, &free, &[options, &without_budget(&traced)].concat());
        let may_move = by.contains(&"--move-budget");
        let what = format!("{name} {seed} {step}");
        let bytes = fs::read(&image).expect("read");
        assert!(bytes == fs::read(&again).expect("read"), "{what}: the same bytes twice");
        judge(&scratch, &image, &root);
        let said = text(&seekless(&["check", &image]));
        assert!(!said.contains("error"), "{what}: {said}");
        same(&what, &manifest(&free, &[]), &manifest(&image, &[]));
        if suits_mtools(&image) {
            kept += same_short_names(&what, &old, &image);
        }
        let before = fs::read(&old).expect("read");
        let free = fs::read(&free).expect("read");
        for size in [BLOCK, CHUNK] {
            let (like, free) = (fresh(&before, &bytes, size), fresh(&before, &free, size));
            // Holes spread a few chunks of contents over a few more; by a trace, new contents lie
            // together and not in holes.
            let are_few = size == CHUNK && pieces(&bytes, size).len() < 12;
            let more = if are_few { 2 } else { usize::from(name == "campaign") };
            let most = free + more + if by.is_empty() { 0 } else { 4 };
            assert!(
                like <= most || may_move,
                "{what} {freed} {by:?}: {like} new pieces of {size}, {free} without"
            );
        }
        old = scratch.join(&step.to_string());
        fs::rename(&image, &old).expect("rename");
    }
    let is_untold = !suits_mtools(&old);
    assert!(kept > 100 || is_untold, "{name}: {kept} names have been there before");
    // An equal tree gives an equal image.
    let like = ["--like", &old, "--freed", "keep", options[0], options[1]];
    build(&root, &image, &[&like[..], DROP].concat());
    let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
    assert!(before == after, "{name}: nothing changed");
}

/// Many seeds: `LIKE_SEEDS` pairs of trees (300 by default), over all shapes.
#[test]
#[ignore = "a campaign"]
fn campaign() {
    let seeds: Option<u64> = std::env::var("LIKE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(300).div_ceil(3) {
        let (options, most) = SHAPES[seed as usize % SHAPES.len()];
        successive("campaign", 1000 + seed, options, most);
    }
}

const SHAPES: &[(&[&str], usize)] = &[
    (&["--format", "fat12", "--sectors-per-cluster", "1", "--size", "2M"], 20_000),
    (&["--format", "fat12", "--sectors-per-cluster", "8", "--size", "8M"], 40_000),
    (&["--format", "fat16", "--sectors-per-cluster", "1", "--size", "8M"], 60_000),
    (&["--format", "fat16", "--sectors-per-cluster", "4", "--size", "16M", "--no-align"], 60_000),
    (&["--format", "fat32", "--sectors-per-cluster", "1", "--size", "36M", "-L", "OLD"], 60_000),
    (&["--format", "fat32", "--sectors-per-cluster", "8", "--size", "24M"], 200_000),
    (&["--format", "fat32", "--sectors-per-cluster", "16", "--size", "32M", "-L", "X"], 200_000),
];

macro_rules! successive {
    ($($name:ident: $seed:expr, $shape:expr;)*) => {
        $(#[test]
        fn $name() {
            let (options, most) = SHAPES[$shape];
            successive(stringify!($name), $seed, options, most);
        })*
    };
}

successive! {
    successive_images_of_fat12: 1, 0;
    successive_images_of_fat12_in_4k: 2, 1;
    successive_images_of_fat16: 3, 2;
    successive_images_of_fat16_in_2k: 4, 3;
    successive_images_of_fat32: 5, 4;
    successive_images_of_fat32_in_4k: 6, 5;
    successive_images_of_fat32_in_8k: 7, 6;
}

/// One file added and one grown: the chunks that cannot be avoided.
#[test]
fn few_chunks_are_new() {
    let scratch = Scratch::new("like-fat-few");
    let mut random = Random(11);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    let shape = ["--format", "fat32", "--sectors-per-cluster", "8", "--size", "32M"];
    build(&root, &old, &[&shape[..], DROP].concat());
    let before = fs::read(&old).expect("read");
    fs::create_dir(format!("{root}/added")).expect("mkdir");
    fs::write(format!("{root}/added/file"), random.bytes(300_000)).expect("write");
    let grown = format!("{root}/dir-5/file-7");
    let bytes = [fs::read(&grown).expect("read"), random.bytes(5_000)].concat();
    fs::write(&grown, bytes).expect("write");
    build(&root, &image, &[&["--like", &old], &shape[..2], DROP].concat());
    let after = fs::read(&image).expect("read");
    let (blocks, chunks) = (fresh(&before, &after, BLOCK), fresh(&before, &after, CHUNK));
    assert!(blocks <= 76 + 9 && chunks <= 4, "{blocks} blocks, {chunks} chunks");
    build(&root, &old, &[&["--like", &image], &shape[..2], DROP].concat());
    assert!(fs::read(&old).expect("read") == after, "nothing changed");
}

/// Names keep their places and short names where others go, and come into the slots of these.
#[test]
fn entries_stay_in_their_slots() {
    if !ready("mdir") {
        return;
    }
    let scratch = Scratch::new("like-fat-slots");
    let root = scratch.join("tree");
    fs::create_dir_all(format!("{root}/dir")).expect("mkdir");
    let write = |name: &str| fs::write(format!("{root}/dir/{name}"), name).expect("write");
    for number in 1..=5 {
        write(&format!("a long name {number}"));
    }
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &[&["--format", "fat16"], DROP].concat());
    let like = [&["--format", "fat16", "--like", &old], DROP].concat();
    fs::remove_file(format!("{root}/dir/a long name 2")).expect("remove");
    build(&root, &image, &like);
    assert_eq!(same_short_names("one removed", &old, &image), 5);
    let names = short_names(&image);
    assert_eq!(names["/dir/a long name 5"].trim(), "ALONGN~5");
    // A name of the same length takes the slots of the removed one. A new file has a short name of
    // an older one as its own name, and gets it.
    write("b long name 6");
    write("ALONGN~1");
    build(&root, &image, &like);
    let names = short_names(&image);
    assert_eq!(names["/dir/ALONGN~1"].trim(), "ALONGN~1");
    assert_eq!(names["/dir/a long name 1"].trim(), "ALONGN~2");
    assert_eq!(names["/dir/a long name 3"].trim(), "ALONGN~3");
    judge(&scratch, &image, &root);
    let listed = run("mdir", &["-b", "-i", &image, "::/dir"]);
    let order: Vec<&str> = listed.lines().filter_map(|line| line.split("/dir/").nth(1)).collect();
    let at = |name: &str| order.iter().position(|&listed| listed == name).expect("listed");
    assert!(at("b long name 6") < at("a long name 3"), "{order:?}");
}

/// Images that mkfs.fat made and mtools filled.
#[test]
fn images_of_mkfs_and_mtools() {
    if !ready("mkfs.fat") || !ready("mcopy") {
        return;
    }
    for (number, make) in [
        &["-F", "12", "-s", "8", "-n", "OLD LABEL"][..],
        &["-F", "16", "-s", "4", "-f", "1", "-r", "256"],
        &["-F", "32", "-s", "1", "-R", "48", "-h", "63", "-n", "OLD"],
        &["-F", "16", "-s", "1", "-S", "1024", "-a"],
    ]
    .into_iter()
    .enumerate()
    {
        let scratch = Scratch::new(&format!("like-fat-foreign-{number}"));
        let mut random = Random(20 + number as u64);
        let root = scratch.join("tree");
        small_tree(Path::new(&root), &mut random, 40_000);
        let (old, image) = (scratch.join("old"), scratch.join("new"));
        run(
            "mkfs.fat",
            &[&["-C"], make, &[&old, ["12288", "36864"][usize::from(make[1] == "32")]]].concat(),
        );
        for dir in list(Path::new(&root), true) {
            run("mcopy", &["-s", "-m", "-i", &old, dir.to_str().expect("UTF-8"), "::"]);
        }
        run("mdel", &["-i", &old, "::Directory number 3/FILE4.TXT"]);
        run("fsck.fat", &["-n", &old]);
        change(Path::new(&root), &mut random, 5, 40_000);
        let format = format!("fat{}", make[1]);
        let like = [&["--format", &format, "--like", &old, "--like-strict"], DROP].concat();
        build(&root, &image, &like);
        judge(&scratch, &image, &root);
        same_short_names(&format, &old, &image);
        let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
        assert_eq!(before.len(), after.len(), "{make:?}");
        let at = if make[1] == "32" { 90 } else { 62 };
        assert!(before[at..510] == after[at..510], "{make:?}: the boot program");
        assert!(before[3..11] == after[3..11], "{make:?}: the name of its maker");
        let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
        assert!(new * 4 <= all, "{make:?}: {new} of {all} blocks are new");
    }
}

/// A volume grows as far as its FATs have entries; beyond that it has a shape of its own, in which
/// contents lie at the same bytes.
#[test]
fn volumes_grow_within_their_fats() {
    let scratch = Scratch::new("like-fat-grown");
    let mut random = Random(31);
    let root = scratch.join("tree");
    small_tree(Path::new(&root), &mut random, 200_000);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    let (mut has_grown, mut has_own) = (0, 0);
    let files = list(Path::new(&root), false).into_iter();
    let sizes = files.map(|file| file.metadata().expect("stat").len().next_multiple_of(2048));
    let size = (sizes.sum::<u64>() + 300_000).to_string();
    for (number, shape) in [
        &["--format", "fat16", "--sectors-per-cluster", "1", "--no-align"][..],
        &["--format", "fat32", "--sectors-per-cluster", "4", "-L", "LABEL", "--size", &size],
        &["--format", "fat12", "--sectors-per-cluster", "4"],
    ]
    .into_iter()
    .enumerate()
    {
        build(&root, &old, &[shape, DROP].concat());
        let like = [&["--like", &old], &shape[..2], DROP].concat();
        let before = fs::read(&old).expect("read");
        for bytes in [20_000, 60_000, 400_000, 2_000_000] {
            let added = format!("{root}/added-{number}");
            fs::write(&added, random.bytes(bytes)).expect("write");
            build(&root, &image, &like);
            if ready("mcopy") && ready("fsck.fat") {
                judge(&scratch, &image, &root);
            }
            let after = fs::read(&image).expect("read");
            let strict = [&["build", &root, "-o", &image, "--force", "--like-strict"], &like[..]];
            let output = seekless(&strict.concat());
            if output.status.success() {
                has_grown += u32::from(after.len() > before.len());
                assert!(fs::read(&image).expect("read") == after, "{shape:?}: strict or not");
            } else {
                let (code, message) = failure(&output);
                assert_eq!((code, message.contains("older volume has")), (4, true), "{message}");
                has_own += 1;
            }
            let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
            let most = bytes / BLOCK + all / 10 + 20;
            assert!(new <= most, "{shape:?} {bytes}: {new} of {all} blocks are new");
            fs::remove_file(&added).expect("remove");
        }
    }
    assert!(has_own > 2 && has_grown > 0, "{has_own} have another shape, {has_grown} grew");
}

/// Other clusters and sectors: the volume has a shape of its own, or is refused.
#[test]
fn another_shape_keeps_what_it_can() {
    let scratch = Scratch::new("like-fat-shape");
    let mut random = Random(15);
    let root = scratch.join("tree");
    small_tree(Path::new(&root), &mut random, 100_000);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    let shape = ["--format", "fat16", "--sectors-per-cluster", "2", "--size", "+1M"];
    build(&root, &old, &[&shape[..], DROP].concat());
    let before = fs::read(&old).expect("read");
    for (options, words, most) in [
        (["--sectors-per-cluster", "1"], "2 sectors in a cluster", 30),
        (["--sectors-per-cluster", "4"], "2 sectors in a cluster", 75),
        (["--fats", "1"], "2 FATs", 30),
        (["--root-entries", "1024"], "512 entries", 30),
    ] {
        let like = [&["--like", &old, "--format", "fat16"], &options[..], DROP].concat();
        build(&root, &image, &like);
        if ready("mcopy") && ready("fsck.fat") {
            judge(&scratch, &image, &root);
        }
        same("the tree", &manifest(&old, &[]), &manifest(&image, &[]));
        let after = fs::read(&image).expect("read");
        let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
        assert!(new * 100 <= all * most, "{options:?}: {new} of {all} blocks are new");
        let strict = ["build", &root, "-o", &scratch.join("none"), "--like-strict"];
        let (code, message) = failure(&seekless(&[&strict[..], &like].concat()));
        assert_eq!((code, message.contains(words)), (4, true), "{options:?}: {message}");
    }
}

/// New files lie in the order in which a trace reads them.
#[test]
fn new_files_follow_the_trace() {
    if !ready("mshowfat") {
        return;
    }
    let scratch = Scratch::new("like-fat-trace");
    let mut random = Random(17);
    let root = scratch.join("tree");
    small_tree(Path::new(&root), &mut random, 40_000);
    let (old, image, trace) = (scratch.join("old"), scratch.join("new"), scratch.join("trace"));
    build(&root, &old, &[&["--format", "fat16", "--size", "+2M"], DROP].concat());
    for file in 0..9 {
        fs::write(format!("{root}/added-{file}"), random.bytes(20_000)).expect("write");
    }
    let paths = scratch.join("paths");
    fs::write(&paths, "/added-7\n/added-3\n/added-5\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let like = ["--format", "fat16", "--like", &old, "--trace", &trace, "--chunk", "4K"];
    build(&root, &image, &[&like[..], DROP].concat());
    let clusters = |name: &str| -> Vec<u32> {
        let shown = run("mshowfat", &["-i", &image, &format!("::{name}")]);
        let numbers = shown.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        numbers.filter_map(|word| word.parse().ok()).collect()
    };
    let last = |name: &str| clusters(name).last().copied().expect("clusters");
    let first = |name: &str| clusters(name).into_iter().find(|&n| n > 9).expect("clusters");
    assert_eq!(last("added-7") + 1, first("added-3"));
    assert_eq!(last("added-3") + 1, first("added-5"));
}

/// An image that was built without the older one, or that mtools changed, is laid out as if it had
/// been built on it: with all files that it has, and with few new chunks.
#[test]
fn an_image_is_laid_out_like_an_older_one() {
    if !ready("mdeltree") {
        return;
    }
    let scratch = Scratch::new("like-fat-optimize");
    let mut random = Random(18);
    let root = scratch.join("tree");
    small_tree(Path::new(&root), &mut random, 40_000);
    let (old, new, image, trace) =
        (scratch.join("old"), scratch.join("new"), scratch.join("image"), scratch.join("trace"));
    let fat16 = [&["--format", "fat16", "--size", "32M"][..], DROP].concat();
    build(&root, &old, &fat16);
    fs::create_dir(format!("{root}/added")).expect("mkdir");
    for file in 0..9 {
        fs::write(format!("{root}/added/file-{file}"), random.bytes(20_000)).expect("write");
    }
    build(&root, &new, &["--format", "fat32", "--size", "64M", "--drop", "all"]);
    let spare = scratch.join("spare");
    fs::create_dir(&spare).expect("mkdir");
    fs::write(format!("{spare}/one of mcopy's"), random.bytes(30_000)).expect("write");
    run("mcopy", &["-s", "-i", &new, &spare, "::"]);
    run("mdeltree", &["-i", &new, "::added/file-4"]);
    fs::remove_file(format!("{root}/added/file-4")).expect("remove");
    run("cp", &["-a", &spare, &root]);
    let paths = scratch.join("paths");
    fs::write(&paths, "/added/file-7\n/added/file-3\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let args = ["optimize", &new, "--trace", &trace, "-o", &image, "--like"];
    let said = text(&seekless(&[&args[..], &[&old, "--json"]].concat()));
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert!(said["traces"][0]["after"]["seeks"].is_u64(), "{said}");
    judge(&scratch, &image, &root);
    same("the tree", &manifest(&new, &[]), &manifest(&image, &[]));
    let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
    assert_eq!((before.len(), &before[54..62]), (after.len(), &after[54..62]), "the older shape");
    let (blocks, chunks) = (fresh(&before, &after, BLOCK), fresh(&before, &after, CHUNK));
    // 190 KB are new, in 47 blocks.
    assert!(blocks <= 70 && chunks <= 5, "{blocks} blocks, {chunks} chunks");

    let list = scratch.join("old.layout");
    text(&seekless(&["layout", &old, "-o", &list]));
    text(&seekless(&[&args[..], &[&list, "--force"]].concat()));
    assert!(fs::read(&image).expect("read") == after, "a layout list gives the same bytes");
    let ext = scratch.join("ext");
    build(&root, &ext, &[]);
    let (code, message) = failure(&seekless(&[&args[..], &[&ext, "--force"]].concat()));
    assert_eq!((code, message.contains("FAT images")), (4, true), "{message}");
    assert!(fs::read(&image).expect("read") == after, "nothing is written");
    let part = ["--partition", "1", "--force"];
    let (code, message) = failure(&seekless(&[&args[..], &[&old], &part].concat()));
    assert_eq!((code, message.contains("--like")), (2, true), "{message}");
    let mut damaged = fs::read(&new).expect("read");
    damaged[510] = 0;
    fs::write(&new, damaged).expect("write");
    let (code, message) = failure(&seekless(&[&args[..], &[&old, "--force"]].concat()));
    assert_eq!((code, message.contains(&new)), (3, true), "{message}");
}

#[test]
fn bases_that_do_not_suit_are_named() {
    let scratch = Scratch::new("like-fat-refused");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    fs::write(format!("{root}/file"), "text").expect("write");
    let (old, ext, image) = (scratch.join("old"), scratch.join("ext"), scratch.join("new"));
    build(&root, &old, &[&["--format", "fat16", "--size", "16M"], DROP].concat());
    build(&root, &ext, &[]);
    let refused = |options: &[&str], code: i32, words: &str| {
        let args = [&["build", &root, "-o", &image], DROP, options].concat();
        let (found, message) = failure(&seekless(&args));
        assert_eq!((found, message.contains(words)), (code, true), "{options:?}: {message}");
        assert!(!Path::new(&image).exists(), "{options:?}: nothing is written");
    };
    let fat16 = ["--format", "fat16", "--like"];
    refused(&[&fat16[..], &[&ext]].concat(), 4, "FAT images");
    refused(&[&fat16[..], &[&scratch.join("none")]].concat(), 6, "none");
    refused(&[&fat16[..], &[&old, "--size", "12M"]].concat(), 2, "smaller");
    refused(&["--format", "fat32", "--like", &old], 4, "FAT16");
    refused(&["--format", "ufs2", "--like", &old], 4, "UFS images");
    let sound = fs::read(&old).expect("read");
    let mut dirty = sound.clone();
    dirty[37] |= 1;
    fs::write(&old, &dirty).expect("write");
    refused(&[&fat16[..], &[&old]].concat(), 3, "not unmounted");
    let reserved = usize::from(u16::from_le_bytes([sound[14], sound[15]]));
    for (at, bytes) in [(reserved * 512 + 3, 0x7F), (0, 0)] {
        let mut damaged = sound.clone();
        damaged[at] = bytes;
        fs::write(&old, &damaged).expect("write");
        refused(&[&fat16[..], &[&old]].concat(), 3, &old);
    }
}

/// A FAT image has the hidden and system files of its source; other formats say that they lose them.
#[test]
fn hidden_and_system_files_stay_so() {
    if !ready("mattrib") {
        return;
    }
    let scratch = Scratch::new("fat-hidden");
    let root = scratch.join("tree");
    fs::create_dir_all(format!("{root}/DIR")).expect("mkdir");
    for name in ["IO.SYS", "HIDDEN", "PLAIN", "DIR/FILE"] {
        fs::write(format!("{root}/{name}"), name).expect("write");
    }
    let [old, new, image, trace] = ["old", "new", "image", "trace"].map(|name| scratch.join(name));
    build_once(&root, &old, &["--format", "fat16", "--size", "16M", "--drop", "all"]);
    for (change, path) in [("+s", "IO.SYS"), ("+h", "IO.SYS"), ("+h", "HIDDEN"), ("+h", "DIR")] {
        run("mattrib", &["-i", &old, change, &format!("::{path}")]);
    }
    let listed = |image: &str| run("mattrib", &["-/", "-i", image, "::"]);
    let wanted = listed(&old);
    assert!(wanted.contains("SH") && wanted.matches(" H ").count() == 2, "{wanted}");
    build_once(&old, &new, &["--format", "fat16", "--size", "16M"]);
    assert_eq!(listed(&new), wanted, "a build");
    run("mattrib", &["-i", &new, "-h", "::HIDDEN"]);
    build_once(&new, &image, &["--format", "fat16", "--like", &old]);
    assert_eq!(listed(&image), listed(&new), "with --like");
    fs::write(&trace, "{\"seekless_trace\":1}\n{\"op\":\"read\",\"path\":\"/PLAIN\"}\n")
        .expect("trace");
    let args = ["optimize", &new, "--trace", &trace, "-o", &image, "--force", "-q"];
    text(&seekless(&[&args[..], &["--like", &old]].concat()));
    assert_eq!(listed(&image), listed(&new), "optimize --like");
    let output = seekless(&["build", &old, "-o", &image, "--force"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("3 files"), "{said}");
    assert!(said.contains("hidden, system"), "{said}");
}

/// An empty label removes that of the older image, as mke2fs and mkfs.fat take it; without one it
/// stays.
#[test]
fn an_empty_label_removes_that_of_the_older_image() {
    let scratch = Scratch::new("like-label");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    fs::write(format!("{root}/file"), "text").expect("write");
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    for options in [
        &["--format", "ext4"][..],
        &["--format", "ufs2"],
        &["--format", "fat16", "--size", "16M", "--drop", "all"],
        &["--format", "fat12", "--size", "2M", "--drop", "all"],
    ] {
        build_once(&root, &old, &[options, &["-L", "OLDER"]].concat());
        let format = &options[..2];
        let label = |given: &[&str]| -> String {
            let like = ["--like", &old, "--drop", "all"];
            let like = if format[1].starts_with("fat") { &like[..] } else { &like[..2] };
            build_once(&root, &image, &[format, like, given].concat());
            let found = text(&seekless(&["info", &image, "--json"]));
            let found: serde_json::Value = serde_json::from_str(&found).expect("json");
            found["label"].as_str().expect("label").to_string()
        };
        assert_eq!(label(&[]), "OLDER", "{options:?}");
        assert_eq!(label(&["-L", "OTHER"]), "OTHER", "{options:?}");
        assert_eq!(label(&["-L", ""]), "", "{options:?}");
        if format[1].starts_with("fat") {
            run("fsck.fat", &["-n", &image]);
            let bytes = fs::read(&image).expect("read");
            assert_eq!(bytes[43..54], *b"NO NAME    ", "{options:?}");
            assert!(!bytes.windows(8).any(|found| found == b"OLDER   "), "{options:?}");
        }
    }
}

/// Where the boot sector has no extended part, a boot program may have the bytes of number and label.
#[test]
fn boot_sectors_without_a_label_keep_their_program() {
    if !ready("mdir") {
        return;
    }
    let scratch = Scratch::new("fat-old-boot");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    fs::write(format!("{root}/FILE"), "text").expect("write");
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    let format = ["--format", "fat12", "--drop", "all"];
    build_once(&root, &old, &[&format[..], &["--size", "2M"]].concat());
    let mut bytes = fs::read(&old).expect("read");
    bytes[38..510].fill(0x90);
    fs::write(&old, &bytes).expect("write");
    for label in ["", "LABEL"] {
        build_once(&root, &image, &[&format[..], &["--like", &old, "-L", label]].concat());
        let found = fs::read(&image).expect("read");
        assert!(found[38..510] == bytes[38..510], "{label}");
        let listed = run("mdir", &["-i", &image, "::"]);
        assert!(listed.contains(if label.is_empty() { "has no label" } else { label }), "{listed}");
    }
}
