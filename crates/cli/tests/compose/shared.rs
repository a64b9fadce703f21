//! Images that share chunks: with images of the same first sources, by blocks that keep the bytes of
//! files that are gone, and within a budget of bytes that move.

use super::like::{BLOCK, CHUNK, Random, build, fresh, list, new_tree, pieces, set_times};
use crate::archives::entry;
use crate::judges::slice::some_or_all;
use crate::judges::{Scratch, check, command, failure, manifest, run, same, seekless, text};
use crate::workshop::Workshop;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Images of the same base and of other things, none of which was seen by the build of another.
#[test]
fn images_that_begin_alike_share_chunks() {
    let scratch = Scratch::new("share");
    let mut random = Random(16);
    let base = scratch.join("base");
    new_tree(Path::new(&base), &mut random);
    for options in [&[][..], &["-b", "1024"], &["--format", "ext2"], &["-O", "inline_data"]] {
        let alone = scratch.join("alone.img");
        build(&base, &alone, &[options, &["--share"]].concat());
        check(&alone);
        let alone = fs::read(&alone).expect("read");
        let (mut unique, mut least) = (pieces(&alone, CHUNK), pieces(&alone, CHUNK).len());
        let mut images = Vec::new();
        for app in 0..some_or_all(2, 4) {
            let (layer, image) = (scratch.join(&format!("app{app}")), scratch.join("app.img"));
            let _ = fs::remove_dir_all(&layer);
            fs::create_dir_all(format!("{layer}/dir-3")).expect("mkdir");
            for file in 0..30 {
                let contents = random.bytes(40_000);
                fs::write(format!("{layer}/app{app}-{file}"), contents).expect("write");
            }
            // One file of the base is replaced, one is added beside others.
            fs::write(format!("{layer}/dir-3/file-3"), random.bytes(9_000)).expect("write");
            fs::write(format!("{layer}/dir-3/added"), random.bytes(9_000)).expect("write");
            let args = ["build", &base, &layer, "-o", &image, "--force", "-q", "--share"];
            text(&seekless(&[&args[..], options].concat()));
            check(&image);
            let free = scratch.join("free.img");
            text(&seekless(&["build", &base, &layer, "-o", &free, "--force", "-q"]));
            same("the tree", &manifest(&free, &[]), &manifest(&image, &[]));
            images.push(fs::read(&image).expect("read"));
            least += 3;
        }
        for image in &images {
            unique.extend(pieces(image, CHUNK));
        }
        // Replaced contents stay: a chunk with the superblock, bitmaps and inodes that change, and
        // one with the end of the contents. Bitmaps and inodes of 1K lie apart.
        let most = least + images.len() * 3;
        assert!(unique.len() <= most, "{options:?}: {} chunks, {most} at most", unique.len());
    }
    // The size moves nothing.
    let (small, large) = (scratch.join("small.img"), scratch.join("large.img"));
    build(&base, &small, &["--share", "--size", "130M"]);
    build(&base, &large, &["--share", "--size", "400M"]);
    check(&large);
    let (small, large) = (fs::read(small).expect("read"), fs::read(large).expect("read"));
    let new = fresh(&small, &large, CHUNK);
    assert!(new <= 4 + 5, "{new} chunks: the bitmaps of 4 groups, and copies");
    // A UUID of its own costs the chunk of the superblock and its copies.
    let (one, two) = (scratch.join("one.img"), scratch.join("two.img"));
    build(&base, &one, &["--share"]);
    build(&base, &two, &["--share", "-U", "5ee61e55-b007-4000-8000-000000000001"]);
    check(&two);
    let (one, two) = (fs::read(one).expect("read"), fs::read(two).expect("read"));
    assert!(fresh(&one, &two, CHUNK) <= 2);
}

/// Whether an image has these bytes at the beginning of any block.
fn contains(image: &str, bytes: &[u8]) -> bool {
    has(&fs::read(image).expect("read"), bytes)
}

fn has(image: &[u8], bytes: &[u8]) -> bool {
    (0..image.len()).step_by(1024).any(|at| image[at..].starts_with(bytes))
}

/// Blocks of files that are replaced or removed: zeros, or as they were. A kept block makes no chunk
/// new, and goes on being kept in the next image.
#[test]
fn freed_blocks_are_zeros_or_kept() {
    let scratch = Scratch::new("freed");
    let mut random = Random(21);
    let [root, old, image, next] = ["root", "old", "image", "next"].map(|name| scratch.join(name));
    new_tree(Path::new(&root), &mut random);
    let replaced = random.bytes(20_000);
    let all_removed: Vec<Vec<u8>> = (0..8).map(|_| random.bytes(50_000)).collect();
    let removed = &all_removed[6];
    fs::write(format!("{root}/dir-2/replaced"), &replaced).expect("write");
    for (dir, contents) in all_removed.iter().enumerate() {
        fs::write(format!("{root}/dir-{dir}/removed"), contents).expect("write");
    }
    build(&root, &old, &[]);
    let before = fs::read(&old).expect("read");
    fs::write(format!("{root}/dir-2/replaced"), random.bytes(90_000)).expect("write");
    for dir in 0..8 {
        fs::remove_file(format!("{root}/dir-{dir}/removed")).expect("remove");
    }
    let mut chunks = Vec::new();
    for (freed, is_kept) in [("zero", false), ("keep", true)] {
        build(&root, &image, &["--like", &old, "--freed", freed]);
        check(&image);
        assert_eq!(contains(&image, &replaced[..8192]), is_kept, "{freed}");
        assert_eq!(contains(&image, &removed[..8192]), is_kept, "{freed}");
        chunks.push(fresh(&before, &fs::read(&image).expect("read"), CHUNK));
        let [one, two] = [&root, &image].map(|tree| manifest(tree, &[]));
        same(freed, &one, &two);
        // In the next image, by default, nothing is left of them.
        fs::write(format!("{root}/next"), freed).expect("write");
        build(&root, &next, &["--like", &image]);
        assert!(!contains(&next, &removed[..8192]), "{freed}: zeros by default");
        build(&root, &next, &["--like", &image, "--freed", "keep"]);
        check(&next);
        let bytes = fs::read(&next).expect("read");
        let is_there = |contents: &&Vec<u8>| has(&bytes, &contents[..8192]);
        let count = all_removed.iter().filter(is_there).count();
        // The new file may lie in the place of one.
        assert_eq!(count >= 7, is_kept, "{freed}, then keep: {count}");
        fs::remove_file(format!("{root}/next")).expect("remove");
    }
    // The directories lie apart.
    assert!(chunks[1] + 4 <= chunks[0], "{chunks:?} new chunks");
    // Another shape has zeros there.
    build(&root, &image, &["--like", &old, "--freed", "keep", "-I", "512"]);
    check(&image);
    assert!(!contains(&image, &removed[..8192]), "of another shape");
    // An image is like an older one by its files.
    let trace = scratch.join("trace");
    fs::write(scratch.join("paths"), "/dir-2/replaced\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
    build(&root, &next, &[]);
    for (freed, is_kept) in [("zero", false), ("keep", true)] {
        let options =
            ["--trace", &trace, "-o", &image, "--like", &old, "--freed", freed, "--force"];
        text(&seekless(&[&["optimize", &next, "-q"], &options[..]].concat()));
        check(&image);
        assert_eq!(contains(&image, &removed[..8192]), is_kept, "optimize, {freed}");
    }
    let alone = failure(&seekless(&["build", &root, "-o", &next, "--force", "--freed", "keep"]));
    assert!(alone.0 == 2 && alone.1.contains("--like"), "{alone:?}");
    // An upper source over a lower one.
    let layer = scratch.join("layer");
    fs::create_dir_all(format!("{layer}/dir-6")).expect("mkdir");
    fs::write(format!("{layer}/dir-6/file-1"), "replaced").expect("write");
    let lower = random.bytes(30_000);
    fs::write(format!("{root}/dir-6/file-1"), &lower).expect("write");
    for (freed, is_kept) in [(&["--freed", "zero"][..], false), (&[], true)] {
        let args = ["build", &root, &layer, "-o", &image, "--share", "--force", "-q"];
        text(&seekless(&[&args[..], freed].concat()));
        check(&image);
        assert_eq!(contains(&image, &lower[..8192]), is_kept, "{freed:?}");
    }
}

/// A lower source alone would make a larger volume: its last group is not there.
#[test]
fn an_upper_source_may_make_the_volume_smaller() {
    let scratch = Scratch::new("smaller");
    let [base, layer, image] = ["base", "layer", "image"].map(|name| scratch.join(name));
    fs::create_dir(&base).expect("mkdir");
    fs::create_dir(&layer).expect("mkdir");
    let large = Random(24).bytes(20 << 20);
    fs::write(format!("{base}/large"), &large).expect("write");
    fs::write(format!("{base}/other"), "other").expect("write");
    fs::write(format!("{layer}/large"), "small").expect("write");
    let args = ["build", &base, &layer, "-o", &image, "--share", "-b", "1024", "-q"];
    text(&seekless(&args));
    check(&image);
    let len = fs::metadata(&image).expect("metadata").len();
    assert!(len < 20 << 20, "{len} bytes");
    // The contents of the upper source lie in front.
    assert!(contains(&image, &large[1 << 20..][..8192]));
}

/// Sources each of which replaces files and changes directories of those below: each image has
/// the chunks of the one below, but those of the superblock, inodes and bitmaps.
#[test]
fn layers_keep_what_lies_below() {
    let scratch = Scratch::new("layers-keep");
    let mut random = Random(22);
    let root = scratch.join("root");
    new_tree(Path::new(&root), &mut random);
    let mut sources = vec![root.clone()];
    let mut below: Option<Vec<u8>> = None;
    for layer in 0..5 {
        let image = scratch.join(&format!("image-{layer}"));
        let sources_of = sources.iter().map(String::as_str);
        let args: Vec<&str> = ["build"]
            .into_iter()
            .chain(sources_of)
            .chain(["-o", &image, "--share", "-q"])
            .collect();
        text(&seekless(&args));
        check(&image);
        let bytes = fs::read(&image).expect("read");
        if let Some(below) = &below {
            let own = size_of_files(&sources[layer]);
            let new = fresh(below, &bytes, CHUNK);
            let most = own.div_ceil(CHUNK as u64) as usize + 3;
            assert!(new <= most, "layer {layer}: {new} new chunks, {most} at most");
            // Two chunks have the superblock, bitmaps and inodes.
            let gone = fresh(&bytes, below, CHUNK);
            eprintln!("{layer}: {gone}, {new} of {most}");
            assert!(gone <= 2, "layer {layer}: {gone} chunks of the layers below are gone");
        }
        below = Some(bytes);
        let free = scratch.join("free");
        let sources_of = sources.iter().map(String::as_str);
        let args: Vec<&str> =
            ["build"].into_iter().chain(sources_of).chain(["-o", &free, "--force", "-q"]).collect();
        text(&seekless(&args));
        same(&format!("layer {layer}"), &manifest(&free, &[]), &manifest(&image, &[]));
        let next = scratch.join(&format!("layer-{layer}"));
        if layer == 2 {
            // One that replaces all that the one before it has by files without blocks.
            let last = sources.last().cloned().unwrap_or_default();
            for path in list(Path::new(&last), false) {
                let own = Path::new(&next).join(path.strip_prefix(&last).expect("below"));
                fs::create_dir_all(own.parent().expect("parent")).expect("mkdir");
                fs::write(own, "").expect("write");
            }
            sources.push(next);
            continue;
        }
        // The next layer: files replaced, one of them by a link to another, and directories added.
        for dir in [1, 4, 7] {
            fs::create_dir_all(format!("{next}/dir-{dir}/more-{layer}")).expect("mkdir");
            for file in 0..6 {
                let name = format!("{next}/dir-{dir}/file-{}", file + layer * 3);
                fs::write(name, random.contents()).expect("write");
            }
            // Not where the next layer would make two files of them, and so change directories.
            if layer != 1 {
                let from = format!("{next}/dir-{dir}/file-{}", layer * 3);
                fs::hard_link(from, format!("{next}/l{dir}")).expect("link");
            }
        }
        sources.push(next);
    }
}

/// A tree as the archive of a layer.
fn archived(shop: &Workshop, tree: &str) -> (String, Vec<u8>) {
    set_times(tree, 0);
    let archive = format!("{tree}.tar");
    run("tar", &["--sort=name", "--owner=0", "--group=0", "-C", tree, "-cf", &archive, "."]);
    let bytes = fs::read(&archive).expect("read");
    assert!(archive.starts_with(&shop.scratch.join("")));
    (archive, bytes)
}

/// The layers of a container image are layers of the volume: images of which nothing but the first
/// layers is equal share the chunks of these.
#[test]
fn layers_of_a_container_image_lie_apart() {
    let shop = Workshop::new("container-layers");
    let mut random = Random(41);
    let [base, one, two, image, other] =
        ["base", "one", "two", "image", "other"].map(|name| shop.scratch.join(name));
    new_tree(Path::new(&base), &mut random);
    let removed = random.bytes(70_000);
    fs::write(format!("{base}/dir-5/removed"), &removed).expect("write");
    let mut layers = vec![archived(&shop, &base)];
    for layer in [&one, &two] {
        fs::create_dir_all(format!("{layer}/dir-3")).expect("mkdir");
        for file in 0..25 {
            fs::write(format!("{layer}/dir-3/own-{file}"), random.bytes(40_000)).expect("write");
        }
        fs::write(format!("{layer}/dir-3/file-3"), random.bytes(9_000)).expect("write");
        layers.push(archived(&shop, layer));
    }
    let archives: Vec<Vec<u8>> = layers.iter().map(|(_, bytes)| bytes.clone()).collect();
    let mark = [entry("dir-5/.wh.removed", b'0', "", 0o600, b"").as_slice(), &[0; 1024]].concat();
    shop.layout(&[
        shop.image("all", &archives),
        shop.image("base", &archives[..1]),
        shop.image("one", &archives[..2]),
        shop.image("two", &[archives[0].clone(), archives[2].clone()]),
        shop.image("less", &[archives[0].clone(), archives[1].clone(), mark]),
    ]);
    let layout = shop.dir.to_str().expect("path").to_owned();
    let built = |tag: &str, options: &[&str]| {
        build(&layout, &image, &[&["--tag", tag, "--share"], options].concat());
        check(&image);
        build(&layout, &other, &["--tag", tag]);
        same(tag, &manifest(&other, &[]), &manifest(&image, &[]));
        fs::read(&image).expect("read")
    };
    // Where no layer removes anything, the layers are what their archives are as sources.
    let all = built("all", &[]);
    let paths: Vec<&str> = layers.iter().map(|(path, _)| path.as_str()).collect();
    let args = [&["build", "--share", "-q", "--force", "-o", &other][..], &paths].concat();
    text(&seekless(&args));
    assert!(all == fs::read(&other).expect("read"), "of layers and of archives");
    let (first, second) = (built("one", &[]), built("two", &[]));
    let own = size_of_files(&two).div_ceil(CHUNK as u64) as usize;
    let new = fresh(&first, &second, CHUNK);
    assert!(new <= own + 3, "{new} new chunks, {own} of contents");
    let new = fresh(&built("base", &[]), &first, CHUNK);
    assert!(new <= own + 3, "{new} new chunks on the base, {own} of contents");
    let new = fresh(&first, &all, CHUNK);
    assert!(new <= own + 3, "{new} new chunks on two layers, {own} of contents");
    // What a layer removes leaves the chunks below as they are.
    let less = built("less", &[]);
    assert!(contains(&image, &removed[..8192]), "kept");
    assert!(fresh(&first, &less, CHUNK) <= 3, "{} new chunks", fresh(&first, &less, CHUNK));
    built("less", &["--freed", "zero"]);
    assert!(!contains(&image, &removed[..8192]), "zeros");
    // A directory over a container image from standard input, which is read once.
    let saved = shop.pack("image.tar");
    let top = shop.scratch.join("top");
    fs::create_dir(&top).expect("mkdir");
    fs::write(format!("{top}/last"), random.bytes(40_000)).expect("write");
    let args = ["build", "-", &top, "-o", &image, "--force", "-q", "--share", "--tag", "one"];
    let mut piped = command(&args);
    text(&piped.stdin(File::open(&saved).expect("open")).output().expect("run"));
    check(&image);
    assert!(fresh(&first, &fs::read(&image).expect("read"), CHUNK) <= 1 + 3);
}

/// Files that a trace reads lie apart in the older image: within a budget, those move for which the
/// most seeks are saved.
#[test]
fn what_a_trace_reads_moves_within_a_budget() {
    let scratch = Scratch::new("budget");
    let mut random = Random(23);
    let [root, old, image] = ["root", "old", "image"].map(|name| scratch.join(name));
    new_tree(Path::new(&root), &mut random);
    set_times(&root, 0);
    build(&root, &old, &[]);
    let paths: String =
        (0..40).map(|nth| format!("/dir-{}/file-{}\n", nth * 5 % 8, nth * 7 % 30)).collect();
    let (list, trace) = (scratch.join("paths"), scratch.join("trace"));
    fs::write(&list, paths).expect("write");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
    let seeks = |image: &str| {
        let score = text(&seekless(&["score", image, "--trace", &trace, "--json"]));
        let score: serde_json::Value = serde_json::from_str(&score).expect("json");
        score["seeks"].as_u64().expect("seeks")
    };
    let before = fs::read(&old).expect("read");
    let mut found = Vec::new();
    for budget in ["0", "256K", "1M", "64M"] {
        let args = ["build", &root, "-o", &image, "--force", "--json", "--like", &old];
        let more = ["--trace", &trace, "--move-budget", budget];
        let told = text(&seekless(&[&args[..], &more].concat()));
        let told: serde_json::Value = serde_json::from_str(&told).expect("json");
        check(&image);
        same(budget, &manifest(&root, &[]), &manifest(&image, &[]));
        let number = |field: &str| told[field].as_u64().unwrap_or_default();
        let most = [("0", 0), ("256K", 256 << 10), ("1M", 1 << 20), ("64M", 64 << 20)];
        let most = most.into_iter().find(|(name, _)| *name == budget).expect("budget").1;
        assert!(number("moved_bytes") <= most, "{told}");
        if budget == "64M" {
            // As many as free space lies in.
            assert!(number("pieces_after") <= 8, "{told}");
        }
        if budget == "0" {
            assert!(fs::read(&image).expect("read") == before, "nothing moves");
        } else {
            assert!(number("pieces_after") < number("pieces_before"), "{told}");
            let new = fresh(&before, &fs::read(&image).expect("read"), BLOCK) as u64;
            // Directories and inodes besides.
            let moved = number("moved_bytes") + number("renumbered_bytes");
            assert!(moved <= most, "{told}");
            assert!(new <= moved / 4096 + 60, "{budget}: {new} blocks, {told}");
        }
        found.push(seeks(&image));
    }
    assert!(found.is_sorted_by(|more, fewer| more >= fewer), "{found:?} seeks");
    assert!(found.first() > found.last(), "{found:?} seeks");
    let alone = ["build", &root, "-o", &image, "--force", "--like", &old, "--move-budget", "1M"];
    assert_eq!(seekless(&alone).status.code(), Some(2), "there is no trace");
}

/// The bytes of a layer's files, in whole blocks.
fn size_of_files(root: &str) -> u64 {
    let size = |path: &PathBuf| fs::metadata(path).expect("metadata").len().next_multiple_of(4096);
    list(Path::new(root), false).iter().map(size).sum()
}
