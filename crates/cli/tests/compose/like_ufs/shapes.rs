//! Shapes of older UFS images: what a new volume takes over, and what it cannot.

use super::*;
use crate::judges::slice::some_or_all;

/// A volume grows by whole groups until its summary area is full; beyond that it has a shape of its
/// own, in which contents lie at the same bytes.
#[test]
fn volumes_grow_by_groups() {
    let scratch = Scratch::new("like-ufs-grown");
    let mut random = Random(31);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    let (mut has_grown, mut has_own) = (0, 0);
    for (number, options) in [
        &["--format", "ufs2", "-b", "4096", "-f", "512", "-L", "LABEL"][..],
        &["--format", "ufs1", "-b", "8192", "-f", "1024"],
        &["--format", "ufs2"],
    ]
    .into_iter()
    .enumerate()
    {
        build(&root, &old, options);
        let like = [&["--like", &old], &options[..2]].concat();
        let before = fs::read(&old).expect("read");
        let groups = |image: &str| open(image).geometry().groups;
        let all = [20_000, 8_000_000, 130_000_000, 1_000_000];
        for bytes in all.into_iter().take(some_or_all(3, 4)) {
            if bytes > 8_000_000 && number > 0 {
                continue;
            }
            let added = format!("{root}/added-{number}");
            let file = fs::File::create(&added).expect("create");
            let piece = random.bytes(bytes.min(1_000_000));
            for n in 0..bytes / piece.len() {
                file.write_at(&piece, (n * piece.len()) as u64).expect("write");
            }
            drop(file);
            build(&root, &image, &like);
            judge(&scratch, &image, &root, true);
            let after = fs::read(&image).expect("read");
            let strict = [&["build", &root, "-o", &image, "--force", "--like-strict"], &like[..]];
            let output = seekless(&strict.concat());
            let what = format!("{options:?} {bytes}");
            if output.status.success() {
                assert!(fs::read(&image).expect("read") == after, "{what}: strict or not");
                if after.len() > before.len() {
                    has_grown += 1;
                    let geometry = open(&image).geometry().clone();
                    assert_eq!(geometry.blocks % geometry.blocks_per_group, 0, "{what}");
                    assert!(geometry.groups >= groups(&old), "{what}");
                    if options.contains(&"ufs2") {
                        // `struct fsrecovery` ends in front of the superblock.
                        let word = |at: usize| {
                            u32::from_le_bytes(after[at..at + 4].try_into().expect("a word"))
                        };
                        assert_eq!(word(65_536 - 20), 0x1954_0119, "{what}");
                        assert_eq!(word(65_536 - 4), geometry.groups, "{what}");
                    }
                }
            } else {
                let (code, message) = failure(&output);
                assert_eq!((code, message.contains("summary area")), (4, true), "{message}");
                has_own += 1;
            }
            if bytes < 20_000_000 {
                let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
                let most = bytes / BLOCK + all / 20 + 20;
                assert!(new <= most, "{what}: {new} of {all} blocks are new");
            }
            fs::remove_file(&added).expect("remove");
        }
    }
    assert!(
        has_own > 0 && has_grown > some_or_all(2, 3),
        "{has_own} have another shape, {has_grown} grew"
    );
}

/// A size that was asked for, and options that change settings but not the shape.
#[test]
fn options_change_what_they_name() {
    let scratch = Scratch::new("like-ufs-options");
    let mut random = Random(15);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    let format = ["--format", "ufs2"];
    build(&root, &old, &[&format[..], &["-L", "before", "-m", "5", "--avgfpdir", "9"]].concat());
    let before = fs::read(&old).expect("read");
    let shown = |image: &str| text(&seekless(&["tune", "-p", image]));
    let settings = shown(&old);
    for (options, words) in [
        (&["-L", "after"][..], "after"),
        (&["-m", "12"], "12"),
        (&["--maxbpg", "77"], "77"),
        (&["--avgfilesize", "5000"], "5000"),
        (&["--optimize", "time"], "time"),
        (&["--soft-updates"], "enabled"),
        (&["--check-hashes", "groups"], ""),
        (&["--check-hashes", "none"], ""),
        (&["--size", "96M"], ""),
    ]
    .into_iter()
    .step_by(some_or_all(2, 1))
    {
        let like = [&["--like", &old, "--like-strict"], &format[..], options].concat();
        build(&root, &image, &like);
        judge(&scratch, &image, &root, true);
        let now = shown(&image);
        let changed: Vec<&str> =
            now.lines().filter(|line| !settings.lines().any(|old| old == *line)).collect();
        let expected = usize::from(!words.is_empty());
        assert_eq!(changed.len(), expected, "{options:?}: {now}\n{settings}");
        assert!(changed.iter().all(|line| line.contains(words)), "{options:?}: {changed:?}");
        let after = fs::read(&image).expect("read");
        let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
        let is_hash = options[0] == "--check-hashes";
        // The superblock, its copies and heads of new groups.
        let most = if is_hash { all / 5 } else { 100 };
        assert!(new <= most, "{options:?}: {new} of {all} blocks are new");
        if options[0] == "--size" {
            assert_eq!(after.len(), 96 << 20);
        }
    }
}

/// Other blocks, fragments and groups: the volume has a shape of its own, or is refused.
#[test]
fn another_shape_keeps_what_it_can() {
    let scratch = Scratch::new("like-ufs-shape");
    let mut random = Random(16);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (old, image) = (scratch.join("old"), scratch.join("new"));
    build(&root, &old, &["--format", "ufs2", "-b", "8192", "-f", "1024", "--size", "48M"]);
    let before = fs::read(&old).expect("read");
    for (options, words, most) in [
        (&["-b", "4096"][..], "blocks of 8192 bytes", 30),
        (&["-f", "2048"], "fragments of 1024 bytes", 45),
        (&["--bytes-per-inode", "4096"], "inodes", 30),
    ] {
        let like = [&["--like", &old, "--format", "ufs2", "--size", "48M"], options].concat();
        build(&root, &image, &like);
        judge(&scratch, &image, &root, true);
        same("the tree", &manifest(&old, &[]), &manifest(&image, &[]));
        let after = fs::read(&image).expect("read");
        let (new, all) = (fresh(&before, &after, BLOCK), pieces(&after, BLOCK).len());
        assert!(new * 100 <= all * most, "{options:?}: {new} of {all} blocks are new");
        let strict = ["build", &root, "-o", &scratch.join("none"), "--like-strict"];
        let (code, message) = failure(&seekless(&[&strict[..], &like].concat()));
        assert_eq!((code, message.contains(words)), (4, true), "{options:?}: {message}");
    }
}

#[test]
fn bases_that_do_not_suit_are_named() {
    let scratch = Scratch::new("like-ufs-refused");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    fs::write(format!("{root}/file"), "text").expect("write");
    let (old, ext, image) = (scratch.join("old"), scratch.join("ext"), scratch.join("new"));
    build(&root, &ext, &[]);
    let refused = |options: &[&str], code: i32, words: &str| {
        let args = [&["build", &root, "-o", &image], options].concat();
        let (found, message) = failure(&seekless(&args));
        assert_eq!((found, message.contains(words)), (code, true), "{options:?}: {message}");
        assert!(!Path::new(&image).exists(), "{options:?}: nothing is written");
    };
    let ufs2 = ["--format", "ufs2", "--like"];
    refused(&[&ufs2[..], &[&ext]].concat(), 4, "UFS images");
    refused(&[&ufs2[..], &[&scratch.join("none")]].concat(), 6, "none");
    build(&root, &old, &["--format", "ufs2", "--size", "16M"]);
    refused(&[&ufs2[..], &[&old, "--size", "12M"]].concat(), 2, "smaller");
    refused(&["--format", "ufs1", "--like", &old], 4, "UFS2, not UFS1");
    refused(&[&ufs2[..], &[&old, "--big-endian"]].concat(), 4, "little-endian");
    refused(&["--format", "fat16", "--drop", "all", "--like", &old], 4, "FAT images");
    let optimize = ["optimize", &old, "--trace", &old, "-o", &image, "--like", &old];
    assert_eq!(failure(&seekless(&optimize)).0, 4, "optimize is for ext and FAT");
    // Without check hashes, so that fields can be set; 65536 is the place of the superblock.
    let make = ["--format", "ufs2", "--size", "16M", "--check-hashes", "none", "-b", "8192"];
    build(&root, &old, &make);
    let sound = fs::read(&old).expect("read");
    let place = |at: usize| 65536 + at;
    for (what, at, value, code, words) in [
        ("not clean", place(209), 0u8, 3, "not-clean"),
        ("a journal", place(1312), 8, 4, "journaled soft updates"),
        ("a gjournal", place(1312), 0x40, 4, "gjournal"),
        ("needs fsck", place(1312), 4, 3, "not-clean"),
        ("free blocks", place(1008 + 8), 9, 3, &old),
    ] {
        let mut bytes = sound.clone();
        bytes[at] = value;
        fs::write(&old, &bytes).expect("write");
        let args = ["build", &root, "-o", &image, "--format", "ufs2", "--like", &old];
        let (found, message) = failure(&seekless(&args));
        assert_eq!((found, message.contains(words)), (code, true), "{what}: {message}");
        assert!(!Path::new(&image).exists(), "{what}: nothing is written");
    }
    // A bit of the first group's map.
    let mut bytes = sound;
    let magic = 0x0009_0255u32.to_le_bytes();
    let head = bytes.windows(4).step_by(4).position(|word| word == magic).expect("a head") * 4 - 4;
    bytes[head + 168 + 5] ^= 8;
    fs::write(&old, &bytes).expect("write");
    refused(&[&ufs2[..], &[&old]].concat(), 3, "bitmap");
}
