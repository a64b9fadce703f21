//! UFS images on the base of older ones: whatever the check, The Sleuth Kit, GRUB, dissect and the
//! tree say of any image, places that files and names keep, and few new chunks besides.

use crate::judges::slice::some_or_all;
use crate::judges::{Scratch, dissect, failure, manifest, ready, run, same, seekless, text};
use crate::like::{
    BLOCK, CHUNK, Random, build, build_once, fresh, list, new_tree, pieces, set_times, traced,
    without_budget,
};
use seekless_device::FileDevice;
use seekless_ffs::FfsImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::tree::NodeId;
use seekless_fs::{FileKind, Inspect};
use seekless_source::{ImageSource, TreeOptions};
use seekless_units::Ino;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

mod shapes;

/// A file of an image: its inode and its generation, its length, and the fragments of its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stored {
    ino: Ino,
    generation: u32,
    len: u64,
    is_directory: bool,
    fragments: Vec<u64>,
    /// Of a directory: its names with the ends of their entries.
    names: BTreeMap<Vec<u8>, u64>,
}

fn open(image: &str) -> Arc<FfsImage> {
    let device = FileDevice::open(Path::new(image)).expect("image");
    Arc::new(FfsImage::open(Arc::new(device), OpenOptions::default()).expect("UFS"))
}

/// The files of an image by their paths.
fn stored(image: &str) -> BTreeMap<String, Stored> {
    let image = open(image);
    let options = TreeOptions { raw_names: true, ..TreeOptions::default() };
    let source = ImageSource::open(image.clone(), &options).expect("tree");
    let tree = seekless_fs::source::Source::tree(&source);
    let by_inode = source.nodes_by_inode().expect("inodes");
    let inodes: BTreeMap<NodeId, Ino> = by_inode.iter().map(|(&ino, &node)| (node, ino)).collect();
    let mut all = BTreeMap::new();
    for id in tree.ids() {
        let ino = inodes[&id];
        let attr = image.attr(ino).expect("attr");
        let map = image.block_map(ino).expect("map");
        let fragments =
            map.runs.iter().flat_map(|run| run.extent.start.get()..run.extent.end().get());
        let mut names = BTreeMap::new();
        let is_directory = attr.kind == FileKind::Directory;
        if is_directory {
            let read = image.read_dir(ino, 0, &mut |entry| {
                names.insert(entry.name.to_vec(), entry.cookie);
                ControlFlow::Continue(())
            });
            read.expect("names");
        }
        let fragments = fragments.collect();
        let (generation, len) = (attr.generation, attr.size);
        let found = Stored { ino, generation, len, is_directory, fragments, names };
        all.insert(tree.shown_path(id).to_string(), found);
    }
    all
}

/// Files that both images have keep their number; those that are no longer keep all fragments.
/// Returns how many keep all fragments, and how many both images have.
fn kept(what: &str, old: &str, new: &str) -> (usize, usize) {
    let (before, after) = (stored(old), stored(new));
    let (mut keep, mut both) = (0, 0);
    for (path, new) in &after {
        let Some(old) = before.get(path).filter(|old| old.is_directory == new.is_directory) else {
            continue;
        };
        both += 1;
        let is_prefix = old.fragments.starts_with(&new.fragments);
        keep += usize::from(is_prefix);
        if new.is_directory {
            assert_eq!(old.ino, new.ino, "{what}: {path}");
        }
    }
    (keep, both)
}

/// Whether the check finds nothing, and dissect the files of a tree.
fn is_sound(image: &str, root: &str, is_little: bool) {
    text(&seekless(&["check", image]));
    if dissect::ready() && is_little {
        let wanted = dissect::of_manifest(&manifest(root, &[]));
        dissect::agrees(image, &wanted, image);
    }
}

/// Whether The Sleuth Kit and GRUB find the files of a tree in an image, too; a few of them.
fn judge(scratch: &Scratch, image: &str, root: &str, is_little: bool) {
    is_sound(image, root, is_little);
    if !ready("fls") || !ready("icat") {
        return;
    }
    let copy = scratch.join("icat");
    let listing = run("fls", &["-r", "-p", "-F", image]);
    let files: Vec<&str> = listing.lines().filter(|line| line.starts_with("r/r ")).collect();
    let regular = list(Path::new(root), false);
    let regular = regular.iter().filter(|path| path.symlink_metadata().expect("stat").is_file());
    assert_eq!(files.len(), regular.count(), "{image}");
    for line in files.iter().step_by(files.len() / 12 + 1) {
        let (ino, path) = line[4..].split_once(":\t").expect("an entry");
        let out = fs::File::create(&copy).expect("copy");
        let done = Command::new("icat").args([image, ino]).stdout(Stdio::from(out)).status();
        assert!(done.expect("icat").success(), "{image}: {path}");
        run("cmp", &[&copy, &format!("{root}/{path}")]);
        if is_little && ready("grub-fstest") {
            let inside = format!("(loop0)/{path}");
            run("grub-fstest", &[image, "cmp", &inside, &format!("{root}/{path}")]);
        }
    }
}

/// Changes a tree as upgrades do; `steps` changes.
fn change(root: &Path, random: &mut Random, steps: usize) {
    for step in 0..steps {
        let mut dirs = list(root, true);
        dirs.push(root.to_path_buf());
        let dir = dirs[random.below(dirs.len())].clone();
        let files = list(root, false);
        let Some(file) = files.get(random.below(files.len().max(1))) else { return };
        let number = random.below(1_000_000);
        let name = match random.below(3) {
            0 => format!("n{}", number % 100_000),
            1 => format!("a rather long name of a new file {step}-{number}"),
            _ => format!("new-{step}-{number}-{}", "x".repeat(number % 180)),
        };
        let name = dir.join(name);
        let is_file = file.symlink_metadata().expect("stat").is_file();
        match random.below(14) {
            0 => fs::create_dir(&name).expect("mkdir"),
            1 | 2 => fs::remove_file(file).expect("remove"),
            3 => fs::rename(file, &name).expect("rename"),
            4 => symlink("a/target".repeat(1 + random.below(40)), &name).expect("symlink"),
            5 => {
                let _ = fs::hard_link(file, &name);
            }
            6 if is_file => {
                let bytes = [fs::read(file).expect("read"), random.contents()].concat();
                fs::write(file, bytes).expect("write");
            }
            7 if is_file => {
                let mut bytes = fs::read(file).expect("read");
                if let Some(byte) = bytes.first_mut() {
                    *byte ^= 1;
                }
                fs::write(file, bytes).expect("write");
            }
            8 if is_file => {
                // A tail that grows or shrinks by some fragments.
                let mut bytes = fs::read(file).expect("read");
                let len = (bytes.len() + random.below(6_000)).saturating_sub(random.below(6_000));
                bytes.resize(len, 7);
                fs::write(file, bytes).expect("write");
            }
            9 if is_file => fs::write(file, random.contents()).expect("write"),
            10 if dir != root && random.below(4) == 0 => {
                fs::remove_dir_all(&dir).expect("remove");
            }
            11 => {
                let file = fs::File::create(&name).expect("create");
                file.set_len(300_000).expect("length");
                file.write_at(&random.bytes(9_000), 150_000).expect("write");
            }
            12 => {
                let value = "v".repeat(random.below(3_000));
                let set = ["-h", "-n", "user.note", "-v", &value];
                let path = file.to_str().expect("path");
                let _ = Command::new("setfattr").args(set).arg(path).output();
            }
            _ => fs::write(&name, random.contents()).expect("write"),
        }
    }
}

/// The options of a shape that are given again with `--like`.
fn again_options<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let kept = ["--big-endian", "--drop-xattrs"];
    let given = options.iter().skip(2).copied().filter(|option| kept.contains(option));
    options[..2].iter().copied().chain(given).collect()
}

/// A tree that is changed again and again, each image like the one before.
fn successive(name: &str, seed: u64, options: &[&str]) {
    let scratch = Scratch::new(&format!("like-ufs-{name}"));
    let mut random = Random(seed);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    set_times(&root, 0);
    let (mut old, image, again, free) =
        (scratch.join("0"), scratch.join("image"), scratch.join("again"), scratch.join("free"));
    build(&root, &old, options);
    let format = again_options(options);
    let is_little = !options.contains(&"--big-endian");
    let (mut keep, mut both, mut chunks) = (0, 0, (0, 0));
    for step in 1..if name == "campaign" { 4 } else { some_or_all(2, 3) } {
        let steps = 1 + random.below(60);
        change(Path::new(&root), &mut random, steps);
        set_times(&root, step);
        let freed = ["zero", "keep"][random.below(2)];
        let traced = match name {
            "campaign" => traced(&scratch, &root, &mut random),
            _ => Vec::new(),
        };
        let by: Vec<&str> = traced.iter().map(String::as_str).collect();
        let like = [&["--like", &old, "--freed", freed][..], &format, &by].concat();
        build(&root, &image, &like);
        build_once(&root, &again, &like);
        build(&root, &free, &[options, &without_budget(&traced)].concat());
        let may_move = by.contains(&"--move-budget");
        let what = format!("{name} {seed} {step}");
        let bytes = fs::read(&image).expect("read");
        assert!(bytes == fs::read(&again).expect("read"), "{what}: the same bytes twice");
        judge(&scratch, &image, &root, is_little);
        let said = text(&seekless(&["check", &image]));
        assert!(!said.contains("error"), "{what}: {said}");
        same(&what, &manifest(&free, &[]), &manifest(&image, &[]));
        let before = fs::read(&old).expect("read");
        let free = fs::read(&free).expect("read");
        let new = |size: usize| (fresh(&before, &bytes, size), fresh(&before, &free, size));
        let (like, anew) = new(BLOCK);
        // Equal blocks count wherever they lie: few heads of groups and inodes make the difference.
        assert!(like <= anew + 4 || may_move, "{what}: {like} new blocks, {anew} without");
        let (like, anew) = new(CHUNK);
        if !by.is_empty() {
            // New contents lie together and not in holes.
            assert!(like <= anew + 6 || may_move, "{what}: {like} new chunks, {anew} without");
        }
        if by.is_empty() {
            (chunks.0, chunks.1) = (chunks.0 + like, chunks.1 + anew);
            let (some, all) = kept(&what, &old, &image);
            (keep, both) = (keep + some, both + all);
        }
        old = scratch.join(&step.to_string());
        fs::rename(&image, &old).expect("rename");
    }
    // Nearly all chunks of so small an image change, and with its holes it has up to two more.
    let (like, anew) = chunks;
    assert!(like <= anew + 6, "{name} {seed}: {like} new chunks, {anew} without");
    assert!(keep * 10 >= both * 8, "{name} {seed}: {keep} of {both} files keep their fragments");
    // An equal tree gives an equal image.
    build(&root, &image, &[&["--like", &old, "--freed", "keep"][..], &format].concat());
    let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
    assert!(before == after, "{name}: nothing changed");
}

const SHAPES: &[&[&str]] = &[
    &["--format", "ufs2"],
    &["--format", "ufs1"],
    &["--format", "ufs2", "-b", "4096", "-f", "512", "-m", "0"],
    &["--format", "ufs1", "-b", "8192", "-f", "1024", "--big-endian", "--drop-xattrs"],
    &["--format", "ufs2", "-b", "16384", "-f", "4096", "--big-endian"],
    &["--format", "ufs2", "-b", "65536", "-f", "8192", "--check-hashes", "groups"],
    &["--format", "ufs1", "-b", "8192", "-f", "8192", "--soft-updates"],
    &["--format", "ufs2", "-b", "8192", "-f", "2048", "--size", "64M", "--check-hashes", "none"],
    &["--format", "ufs1", "-b", "65536", "-f", "8192", "-L", "label"],
];

/// The options of a shape; UFS1 has no extended attributes.
fn shape(number: usize) -> Vec<&'static str> {
    let mut options = SHAPES[number % SHAPES.len()].to_vec();
    if options[1] == "ufs1" && !options.contains(&"--drop-xattrs") {
        options.push("--drop-xattrs");
    }
    options
}

/// Many seeds: `LIKE_SEEDS` pairs of trees (300 by default), over all shapes.
#[test]
#[ignore = "a campaign"]
fn campaign() {
    let seeds: Option<u64> = std::env::var("LIKE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(300).div_ceil(3) {
        successive("campaign", 2000 + seed, &shape(seed as usize));
    }
}

macro_rules! successive {
    ($($name:ident: $seed:expr, $shape:expr;)*) => {
        $(#[test]
        fn $name() {
            successive(stringify!($name), $seed, &shape($shape));
        })*
    };
}

successive! {
    successive_images_of_ufs2: 1, 0;
    successive_images_of_ufs1: 2, 1;
    successive_images_of_fragments_of_512: 3, 2;
    successive_big_endian_images_of_ufs1: 4, 3;
    successive_big_endian_images_of_ufs2: 5, 4;
    successive_images_of_blocks_of_64k: 6, 5;
    successive_images_without_fragments: 7, 6;
    successive_images_of_ufs_of_a_size: 8, 7;
    successive_images_of_ufs1_of_64k: 9, 8;
}

/// One file added and one grown: the chunks that cannot be avoided.
#[test]
fn few_chunks_are_new() {
    let scratch = Scratch::new("like-ufs-few");
    let mut random = Random(11);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image, free) = (scratch.join("old"), scratch.join("new"), scratch.join("free"));
    let tree = scratch.join("unchanged");
    run("cp", &["-a", &root, &tree]);
    fs::create_dir(format!("{root}/added")).expect("mkdir");
    fs::write(format!("{root}/added/file"), random.bytes(300_000)).expect("write");
    let grown = format!("{root}/dir-5/file-7");
    let bytes = [fs::read(&grown).expect("read"), random.bytes(5_000)].concat();
    fs::write(&grown, bytes).expect("write");
    for options in [
        &["--format", "ufs2"][..],
        &["--format", "ufs1", "-b", "8192", "-f", "1024"],
        &["--format", "ufs2", "-b", "4096", "-f", "4096"],
    ] {
        build(&tree, &old, options);
        let before = fs::read(&old).expect("read");
        build(&root, &image, &[&["--like", &old, "--like-strict"], &options[..2]].concat());
        build(&root, &free, options);
        let after = fs::read(&image).expect("read");
        let (blocks, chunks) = (fresh(&before, &after, BLOCK), fresh(&before, &after, CHUNK));
        // The contents, and: two directories, the root, two heads of groups, two blocks of inodes,
        // the summaries and the superblock.
        assert!(blocks <= 76 + 12 && chunks <= 6, "{options:?}: {blocks} blocks, {chunks} chunks");
        let anew = fresh(&before, &fs::read(&free).expect("read"), CHUNK);
        assert!(anew > 3 * chunks, "{options:?}: {anew} new chunks without");
        build(&root, &free, &[&["--like", &image], &options[..2]].concat());
        assert!(fs::read(&free).expect("read") == after, "{options:?}: nothing changed");
        let (keep, both) = kept("few", &old, &image);
        assert!(keep + 2 >= both && both > 240, "{options:?}: {keep} of {both}");
    }
}

/// Every file that is no longer than before keeps its number and its fragments, wherever it is in the
/// tree; one that got shorter keeps the first of them.
#[test]
fn files_keep_their_inodes_and_fragments() {
    let scratch = Scratch::new("like-ufs-places");
    let mut random = Random(12);
    let root = scratch.join("tree");
    fs::create_dir_all(format!("{root}/dir")).expect("mkdir");
    let at = |name: &str| format!("{root}/dir/{name}");
    for n in 0..40 {
        fs::write(at(&n.to_string()), random.bytes(200 + n * 1_111)).expect("write");
    }
    for format in ["ufs1", "ufs2"] {
        let tree = scratch.join(format);
        run("cp", &["-a", &root, &tree]);
        let at = |name: &str| format!("{tree}/dir/{name}");
        let (old, image) = (scratch.join("old"), scratch.join("new"));
        build(&tree, &old, &["--format", format, "-b", "8192", "-f", "1024"]);
        fs::remove_file(at("3")).expect("remove");
        fs::rename(at("7"), at("moved")).expect("rename");
        let bytes = fs::read(at("20")).expect("read");
        fs::write(at("20"), &bytes[..bytes.len() - 1500]).expect("write");
        fs::write(at("21"), random.bytes(200 + 21 * 1_111)).expect("write");
        build(&tree, &image, &["--format", format, "--like", &old]);
        let (before, after) = (stored(&old), stored(&image));
        let file = |all: &BTreeMap<String, Stored>, name: &str| {
            let found = all.iter().find(|(path, _)| path.ends_with(&format!("dir/{name}")));
            found.unwrap_or_else(|| panic!("no {name}")).1.clone()
        };
        for n in (0..40).filter(|n| ![3, 7, 20].contains(n)) {
            let name = n.to_string();
            assert_eq!(file(&before, &name), file(&after, &name), "{format}: {name}");
        }
        assert_eq!(file(&before, "7"), file(&after, "moved"), "{format}: other name");
        let (long, short) = (file(&before, "20"), file(&after, "20"));
        assert_eq!(long.ino, short.ino, "{format}");
        assert_eq!(long.fragments[..short.fragments.len()], short.fragments, "{format}");
        judge(&scratch, &image, &tree, true);
    }
}

/// A tail that grows stays if the fragments behind it are free, or their file is gone.
#[test]
fn tails_grow_where_there_is_room() {
    let scratch = Scratch::new("like-ufs-tails");
    let mut random = Random(13);
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    let at = |name: &str| format!("{root}/{name}");
    for name in ["a", "b", "c", "d"] {
        fs::write(at(name), random.bytes(2_000)).expect("write");
    }
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &["--format", "ufs2", "-b", "8192", "-f", "1024"]);
    let before = stored(&old);
    // The four share a block of eight fragments, in the order of their names.
    let first = |all: &BTreeMap<String, Stored>, name: &str| {
        let found = all.iter().find(|(path, _)| path.trim_start_matches('/') == name);
        let found = found.unwrap_or_else(|| panic!("no {name} in {:?}", all.keys()));
        found.1.fragments[0]
    };
    let start = first(&before, "a");
    assert_eq!(["b", "c", "d"].map(|name| first(&before, name) - start), [2, 4, 6]);
    fs::remove_file(at("b")).expect("remove");
    for name in ["a", "c"] {
        let bytes = [fs::read(at(name)).expect("read"), random.bytes(1_000)].concat();
        fs::write(at(name), bytes).expect("write");
    }
    build(&root, &image, &["--format", "ufs2", "--like", &old]);
    let after = stored(&image);
    assert_eq!(first(&after, "a"), start, "the fragments of b are free");
    assert_eq!(first(&after, "c"), start + 3, "one of b and its own");
    assert_eq!(first(&after, "d"), start + 6);
    // The last one cannot grow in its block. A new tail takes the fragments that it had.
    let bytes = [fs::read(at("d")).expect("read"), random.bytes(1_000)].concat();
    fs::write(at("d"), bytes).expect("write");
    fs::write(at("e"), random.bytes(2_048)).expect("write");
    let again = scratch.join("again");
    build(&root, &again, &["--format", "ufs2", "--like", &image]);
    let after = stored(&again);
    assert_ne!(first(&after, "d") / 8, start / 8, "the block ends behind d");
    assert_eq!(first(&after, "e"), start + 6, "the hole of d");
    judge(&scratch, &again, &root, true);
}

/// The places of names in a directory of a little-endian image, in bytes, from the directory's own
/// bytes.
fn places(image: &str, dir: &Stored, fragment: usize) -> BTreeMap<Vec<u8>, usize> {
    let image = fs::read(image).expect("read");
    let parts = dir.fragments.iter().map(|&at| &image[at as usize * fragment..][..fragment]);
    let bytes: Vec<u8> = parts.flatten().copied().take(dir.len as usize).collect();
    let (mut at, mut places) = (0, BTreeMap::new());
    while at < bytes.len() {
        let ino = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        assert!(len >= 8 && at % 512 + len <= 512, "an entry of {len} bytes at {at}");
        if ino != 0 {
            places.insert(bytes[at + 8..at + 8 + usize::from(bytes[at + 7])].to_vec(), at);
        }
        at += len;
    }
    places
}

/// Names keep their places where others go, and come into the places of these.
#[test]
fn names_stay_in_their_places() {
    let scratch = Scratch::new("like-ufs-names");
    let mut random = Random(14);
    let root = scratch.join("tree");
    let dir = format!("{root}/dir");
    fs::create_dir_all(&dir).expect("mkdir");
    for n in 0..200 {
        let name = format!("{dir}/{n}-{}", "n".repeat(random.below(60)));
        fs::write(name, "text").expect("write");
    }
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &["--format", "ufs1", "-b", "8192", "-f", "1024"]);
    let names = |image: &str| {
        let all = stored(image);
        all.into_iter().find(|(path, _)| path.ends_with("dir")).expect("dir").1
    };
    let before = names(&old);
    for (n, file) in list(Path::new(&dir), false).iter().enumerate() {
        if n % 5 == 0 {
            fs::remove_file(file).expect("remove");
        }
    }
    for n in 0..20 {
        fs::write(format!("{dir}/new-{n}"), "text").expect("write");
    }
    build(&root, &image, &["--format", "ufs1", "--like", &old]);
    judge(&scratch, &image, &root, true);
    let after = names(&image);
    let (was, is) = (places(&old, &before, 1024), places(&image, &after, 1024));
    for (name, at) in &is {
        let shown = String::from_utf8_lossy(name);
        assert!(was.get(name).is_none_or(|was| was == at), "{shown} was at {:?}", was.get(name));
    }
    assert_eq!(is.len(), 200 - 40 + 20 + 2);
    assert_eq!(before.len, after.len, "the new names lie between the others");
    assert_eq!(before.fragments, after.fragments);
    // The last ones go: the directory becomes shorter.
    for file in list(Path::new(&dir), false) {
        let name = file.file_name().expect("name").to_string_lossy().into_owned();
        let end = after.names[name.as_bytes()];
        if end > 2048 {
            fs::remove_file(file).expect("remove");
        }
    }
    let again = scratch.join("again");
    build(&root, &again, &["--format", "ufs1", "--like", &image]);
    assert_eq!(names(&again).len, 2048);
    judge(&scratch, &again, &root, true);
}

/// Files that keep their inodes keep their generations; how many files have an inode with another
/// generation than its file had before.
fn generations_are_kept(old: &str, new: &str) -> usize {
    let (old, new) = (stored(old), stored(new));
    let by_inode: BTreeMap<Ino, (&String, u32)> =
        old.iter().map(|(path, file)| (file.ino, (path, file.generation))).collect();
    let (mut same, mut other) = (0, 0);
    for (path, file) in &new {
        let Some(&(before, generation)) = by_inode.get(&file.ino) else { continue };
        if before == path {
            assert_eq!(file.generation, generation, "{path}");
            same += 1;
        } else if file.generation != generation {
            // Not a file that was renamed.
            other += 1;
        }
    }
    assert!(same > 100, "{same} files with their generation");
    other
}

/// Images that seekless's engine wrote for long, with fragments of several directories in a block.
#[test]
fn images_that_were_in_use() {
    let mut other = 0;
    for (number, options) in [
        &["--format", "ufs2", "-b", "8192", "-f", "1024", "--soft-updates"][..],
        &["--format", "ufs1", "-b", "16384", "-f", "2048"],
        &["--format", "ufs2", "--big-endian"],
    ]
    .into_iter()
    .enumerate()
    .step_by(some_or_all(2, 1))
    {
        let scratch = Scratch::new(&format!("like-ufs-used-{number}"));
        let mut random = Random(20 + number as u64);
        let root = scratch.join("tree");
        new_tree(Path::new(&root), &mut random);
        let (old, image) = (scratch.join("old"), scratch.join("new"));
        build(&root, &old, &[options, &["--size", "64M"]].concat());
        let age = ["age", &old, "--ops", "1500", "--seed", "5", "--fullness", "0.6", "-q"];
        text(&seekless(&age));
        text(&seekless(&["check", &old]));
        let aged = scratch.join("aged");
        text(&seekless(&["cp", "-r", &old, "/", &aged]));
        change(Path::new(&aged), &mut random, 30);
        let like = again_options(options);
        let like = [&["--like", &old, "--like-strict", "--drop-xattrs"][..], &like].concat();
        build(&aged, &image, &like);
        judge(&scratch, &image, &aged, !options.contains(&"--big-endian"));
        let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
        assert_eq!(before.len(), after.len(), "{options:?}");
        let (keep, both) = kept("used", &old, &image);
        assert!(keep * 10 >= both * 9, "{options:?}: {keep} of {both} files keep their fragments");
        let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
        assert!(new * 4 <= all, "{options:?}: {new} of {all} blocks are new");
        other += generations_are_kept(&old, &image);
        let again = scratch.join("again");
        build(&aged, &again, &[&["--like", &image, "--drop-xattrs"][..], &like[4..]].concat());
        assert!(fs::read(&again).expect("read") == after, "{options:?}: nothing changed");
        // The new image is changed as the old one.
        text(&seekless(&["age", &image, "--ops", "500", "--into", "more", "-q"]));
        text(&seekless(&["check", &image]));
    }
    assert!(other > 0, "no inode was given to another file");
}

/// Images that makefs wrote, of both versions and byte orders.
#[test]
fn images_of_makefs() {
    if !ready("makefs") {
        return;
    }
    for (number, (version, order)) in [("1", "le"), ("1", "be"), ("2", "le"), ("2", "be")]
        .into_iter()
        .enumerate()
        .step_by(some_or_all(3, 1))
    {
        let what = format!("version={version},bsize=8192,fsize=1024");
        let scratch = Scratch::new(&format!("like-ufs-makefs-{number}"));
        let mut random = Random(30 + number as u64);
        let (root, old, image) = (scratch.join("tree"), scratch.join("old"), scratch.join("new"));
        new_tree(Path::new(&root), &mut random);
        let make = ["-t", "ffs", "-B", order, "-s", "64m", "-f", "3000", "-o", &what];
        run("makefs", &[&make[..], &[&old, &root]].concat());
        change(Path::new(&root), &mut random, 20);
        let format = format!("ufs{version}");
        let endian: &[&str] = if order == "be" { &["--big-endian"] } else { &[] };
        let like = ["--format", &format, "--like", &old, "--like-strict", "--drop-xattrs"];
        let options = [&like[..], endian].concat();
        build(&root, &image, &options);
        match version {
            "1" => judge(&scratch, &image, &root, order == "le"),
            // The Sleuth Kit does not look for UFS2 at byte 8192.
            _ => {
                is_sound(&image, &root, order == "le");
                let free = scratch.join("free");
                let own = ["--format", &format, "--drop-xattrs"];
                build_once(&root, &free, &[&own[..], endian].concat());
                same(&what, &manifest(&free, &[]), &manifest(&image, &[]));
            }
        }
        let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
        assert_eq!(before.len(), after.len(), "{what}, {order}");
        let (keep, both) = kept("makefs", &old, &image);
        assert!(keep * 10 >= both * 9, "{what}: {keep} of {both} files keep their fragments");
        let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
        assert!(new * 4 <= all, "{what}, {order}: {new} of {all} blocks are new");
    }
}

/// A last fragment in the second image lies in a block of a file of the first: the block stays.
#[test]
fn blocks_of_the_first_are_not_taken_for_fragments_of_the_second() {
    let scratch = Scratch::new("like-ufs-claims");
    let mut random = Random(41);
    let [both, one, two] = ["both", "one", "two"].map(|name| scratch.join(name));
    for root in [&both, &one, &two] {
        fs::create_dir(root).expect("mkdir");
    }
    let format = ["--format", "ufs2", "-b", "16384", "-f", "2048", "--size", "16M"];
    let (large, small) = (random.bytes(160_000), random.bytes(3_000));
    for root in [&one, &both] {
        fs::write(format!("{root}/large"), &large).expect("write");
    }
    for root in [&two, &both] {
        fs::write(format!("{root}/small"), &small).expect("write");
    }
    let [image, first, second] = ["new.img", "one.img", "two.img"].map(|name| scratch.join(name));
    build(&one, &first, &format);
    build(&two, &second, &format);
    let (large, small) = (&stored(&first)["large"], &stored(&second)["small"]);
    assert!(small.fragments.iter().any(|at| large.fragments.contains(at)), "nothing in common");
    build(&both, &image, &["--like", &first, "--like", &second, "--format", "ufs2"]);
    judge(&scratch, &image, &both, true);
    assert_eq!(stored(&image)["large"].fragments, large.fragments);
}

#[test]
fn the_first_of_several_counts() {
    let scratch = Scratch::new("like-ufs-several");
    let mut random = Random(17);
    let (base, more) = (scratch.join("base"), scratch.join("more"));
    new_tree(Path::new(&base), &mut random);
    let format = ["--format", "ufs2", "-b", "16384", "-f", "2048"];
    build(&base, &scratch.join("base.img"), &format);
    run("cp", &["-a", &base, &more]);
    for file in 0..60 {
        fs::write(format!("{more}/added-{file}"), random.bytes(1_000 + file * 500)).expect("write");
    }
    let (image, base, other) =
        (scratch.join("new.img"), scratch.join("base.img"), scratch.join("more.img"));
    build(&more, &other, &["--like", &base, "--format", "ufs2"]);
    fs::write(format!("{more}/last"), random.bytes(5_000)).expect("write");
    build(&more, &image, &["--like", &base, "--like", &other, "--format", "ufs2"]);
    judge(&scratch, &image, &more, true);
    let (keep, both) = kept("base", &base, &image);
    assert!(keep + 1 >= both && both > 240, "{keep} of {both} of the first");
    let (keep, both) = kept("other", &other, &image);
    assert!(keep + 1 >= both && both > 300, "{keep} of {both} of the second");
}

/// Free blocks and fragments are zeros, or keep the bytes of the older image.
#[test]
fn freed_fragments_keep_their_bytes() {
    let scratch = Scratch::new("like-ufs-freed");
    let mut random = Random(18);
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    for n in 0..24 {
        fs::write(format!("{root}/{n}"), random.bytes(3_000)).expect("write");
    }
    let secret = b"the contents that were removed, ".repeat(90);
    fs::write(format!("{root}/5"), &secret).expect("write");
    fs::write(format!("{root}/large"), secret.repeat(30)).expect("write");
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    let format = ["--format", "ufs2", "-b", "8192", "-f", "1024"];
    build(&root, &old, &format);
    fs::remove_file(format!("{root}/5")).expect("remove");
    fs::remove_file(format!("{root}/large")).expect("remove");
    let count = |image: &str| {
        let bytes = fs::read(image).expect("read");
        bytes.windows(32).step_by(32).filter(|piece| *piece == &secret[..32]).count()
    };
    let all = count(&old);
    assert!(all > 2700, "{all}");
    for (freed, left) in [("zero", 0), ("keep", all)] {
        build(&root, &image, &["--like", &old, "--format", "ufs2", "--freed", freed]);
        assert_eq!(count(&image), left, "{freed}");
        judge(&scratch, &image, &root, true);
    }
    let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
    let new = fresh(&before, &after, BLOCK);
    assert!(new <= 8, "{new} new blocks");
}

/// New files lie in the order in which a trace reads them, with their last fragments; with a budget,
/// others move there.
#[test]
fn new_files_follow_the_trace() {
    let scratch = Scratch::new("like-ufs-trace");
    let mut random = Random(19);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image, trace) = (scratch.join("old"), scratch.join("new"), scratch.join("trace"));
    let format = ["--format", "ufs2", "-b", "8192", "-f", "1024"];
    build(&root, &old, &[&format[..], &["--size", "+4M"]].concat());
    for file in 0..9 {
        fs::write(format!("{root}/added-{file}"), random.bytes(18_000)).expect("write");
    }
    let paths = scratch.join("paths");
    let others: String =
        (0..8).map(|n| format!("/dir-{n}/file-{}\n", n * 3)).collect::<Vec<_>>().concat();
    fs::write(&paths, format!("/added-7\n/added-3\n/added-5\n{others}")).expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let like = ["--format", "ufs2", "--like", &old, "--trace", &trace, "--chunk", "64K"];
    build(&root, &image, &like);
    judge(&scratch, &image, &root, true);
    let all = stored(&image);
    let at = |name: &str| {
        let found = all.iter().find(|(path, _)| path.ends_with(name)).expect("there");
        found.1.fragments.clone()
    };
    let near = |one: &str, next: &str| at(next)[0].abs_diff(at(one)[0]) <= 40;
    assert!(near("added-7", "added-3") && near("added-3", "added-5"), "in one place");
    let args = ["build", &root, "-o", &image, "--force", "--json", "--move-budget", "1M"];
    let said = text(&seekless(&[&args[..], &like].concat()));
    assert!(said.contains("pieces_after"), "{said}");
    judge(&scratch, &image, &root, true);
}

/// An image that was built without the older one is laid out as if it had been built on it; of the
/// other version and the other byte order too.
#[test]
fn an_image_is_laid_out_like_an_older_one() {
    let scratch = Scratch::new("like-ufs-optimize");
    let mut random = Random(23);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, new, image, trace) =
        (scratch.join("old"), scratch.join("new"), scratch.join("image"), scratch.join("trace"));
    build(&root, &old, &["--format", "ufs2", "--size", "+4M"]);
    for file in 0..9 {
        fs::write(format!("{root}/added-{file}"), random.bytes(18_000)).expect("write");
    }
    let paths = scratch.join("paths");
    fs::write(&paths, "/added-7\n/added-3\n/added-5\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let args = ["optimize", &new, "--trace", &trace, "-o", &image, "--chunk", "64K", "--like"];
    for made in [
        &["--format", "ufs2"][..],
        &["--format", "ufs2", "--big-endian", "-b", "8192", "-f", "1024"],
        &["--format", "ufs1"],
    ] {
        build(&root, &new, made);
        text(&seekless(&[&args[..], &[&old, "--force"]].concat()));
        judge(&scratch, &image, &root, true);
        same("the tree", &manifest(&new, &[]), &manifest(&image, &[]));
        let (before, after) = (fs::read(&old).expect("read"), fs::read(&image).expect("read"));
        assert_eq!(before.len(), after.len(), "{made:?}: the older shape");
        let (blocks, chunks) = (fresh(&before, &after, BLOCK), fresh(&before, &after, CHUNK));
        assert!(blocks <= 70 && chunks <= 6, "{made:?}: {blocks} blocks, {chunks} chunks");
        let all = stored(&image);
        let at = |name: &str| {
            let found = all.iter().find(|(path, _)| path.ends_with(name)).expect("there");
            found.1.fragments[0]
        };
        let near = |one: &str, next: &str| at(next).abs_diff(at(one)) <= 12;
        assert!(near("added-7", "added-3") && near("added-3", "added-5"), "{made:?}: one place");
    }
    let written = fs::read(&image).expect("read");
    let fat = scratch.join("fat");
    build(&root, &fat, &["--format", "fat32", "--drop", "all"]);
    let (code, message) = failure(&seekless(&[&args[..], &[&fat, "--force"]].concat()));
    assert_eq!((code, message.contains("UFS images")), (4, true), "{message}");
    assert!(fs::read(&image).expect("read") == written, "nothing is written");
}

/// Every file of an older image and nothing else: bytes of names that are gone do not stay.
#[test]
fn removed_names_leave_zeros() {
    let scratch = Scratch::new("like-ufs-zeros");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    for name in ["first", "secret-name-of-a-file", "third", "secret-name-at-the-end"] {
        fs::write(format!("{root}/{name}"), "text").expect("write");
    }
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &["--format", "ufs1", "-b", "4096", "-f", "512"]);
    for name in ["secret-name-of-a-file", "secret-name-at-the-end"] {
        fs::remove_file(format!("{root}/{name}")).expect("remove");
    }
    build(&root, &image, &["--format", "ufs1", "--like", &old, "--freed", "keep"]);
    let bytes = fs::read(&image).expect("read");
    assert!(!bytes.windows(6).any(|piece| piece == b"secret"), "a name is left");
}
