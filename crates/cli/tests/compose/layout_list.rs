//! Layout lists: images are like them as they are like the images themselves, byte for byte; lists
//! that are cut short, damaged or of no use are named, and nothing is written.

use crate::judges::slice::some_or_all;
use crate::judges::{Scratch, can_mount, failure, ready, run, seekless, text};
use crate::like::{Random, build, change, list, new_tree, set_times};
use crate::like_fat::{self, DROP, small_tree};
use seekless_compose::layout_list::{LayoutList, ListError};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Bytes of the header of a list.
const HEADER: usize = 112;

fn layout(image: &str, list: &str, options: &[&str]) {
    let args = ["layout", image, "-o", list, "--force", "-q"];
    text(&seekless(&[&args[..], options].concat()));
}

/// Makes lists of the images in `options` that an image of `source` is like, and compares it with the
/// one that is like the lists.
pub(super) fn give_the_same(source: &str, image: &str, options: &[&str]) {
    let mut like = Vec::new();
    // Other blocks may be compared than the older image has.
    let has_other_blocks = options.iter().any(|option| ["-b", "--cluster-size"].contains(option));
    let unit: &[&str] = if has_other_blocks { &["--digest-unit", "512"] } else { &[] };
    let mut given: Vec<String> = options.iter().map(|&option| option.into()).collect();
    for at in 1..given.len() {
        if given[at - 1] == "--like" && !given[at].ends_with(".layout") {
            let path = format!("{}.{at}.layout", given[at]);
            layout(&given[at], &path, unit);
            given[at] = path.clone();
            like.push(path);
        }
    }
    let of_lists = format!("{image}.of-lists");
    let mut args: Vec<&str> = vec!["build", source, "-o", &of_lists, "--force", "-q"];
    args.extend(given.iter().map(String::as_str));
    text(&seekless(&args));
    let (one, other) = (fs::read(image).expect("read"), fs::read(&of_lists).expect("read"));
    assert!(one == other, "{options:?}: the image like the lists is another one");
    for path in like.iter().chain([&of_lists]) {
        fs::remove_file(path).expect("remove");
    }
}

/// Images of trees that change again and again, each like the list of the one before it.
fn successive(name: &str, seed: u64, options: &[&str], like: &[&str]) {
    let scratch = Scratch::new(&format!("layout-{name}"));
    let mut random = Random(seed);
    let root = scratch.join("tree");
    let is_fat = options.iter().any(|option| option.starts_with("fat"));
    let most = if options.contains(&"fat12") { 6_000 } else { 40_000 };
    match is_fat {
        true => small_tree(Path::new(&root), &mut random, most),
        false => new_tree(Path::new(&root), &mut random),
    }
    set_times(&root, 0);
    let mut old = scratch.join("0");
    build(&root, &old, options);
    for step in 1..4 {
        match is_fat {
            true => like_fat::change(Path::new(&root), &mut random, 20, most),
            false => change(Path::new(&root), &mut random, 40),
        }
        set_times(&root, step);
        let image = scratch.join(&step.to_string());
        // This compares it with the image that is like the list.
        build(&root, &image, &[&["--like", &old], like].concat());
        let (one, other) = (scratch.join("1.layout"), scratch.join("2.layout"));
        layout(&image, &one, &[]);
        layout(&image, &other, &[]);
        let bytes = fs::read(&one).expect("read");
        assert!(bytes == fs::read(other).expect("read"), "{name} {step}: the same list twice");
        let len = fs::metadata(&image).expect("stat").len();
        assert!((bytes.len() as u64) < len / 20, "{name} {step}: {} of {len}", bytes.len());
        old = image;
    }
}

macro_rules! successive {
    ($($name:ident: $seed:expr, [$($option:expr),*], $like:expr;)*) => {
        $(#[test]
        fn $name() {
            successive(stringify!($name), $seed, &[$($option),*], $like);
        })*
    };
}

successive! {
    lists_of_ext4: 31, [], &[];
    lists_of_ext4_with_small_blocks: 32, ["-b", "1024"], &[];
    lists_of_ext2: 33, ["--format", "ext2", "-b", "1024"], &[];
    lists_of_ext4_with_inline_data: 34, ["-O", "inline_data"], &[];
    lists_of_fat12: 35, ["--format", "fat12", "--free", "30%", "--drop", "all"],
        &["--format", "fat12", "--drop", "all"];
    lists_of_fat16: 36, ["--format", "fat16", "--free", "30%", "--drop", "all"],
        &["--format", "fat16", "--drop", "all"];
    lists_of_fat32: 37, ["--format", "fat32", "--free", "30%", "--drop", "all"],
        &["--format", "fat32", "--drop", "all"];
}

/// Several lists and images, traces with a budget, and shapes of their own.
#[test]
fn lists_take_the_place_of_images() {
    let scratch = Scratch::new("layout-several");
    let mut random = Random(41);
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut random);
    let (first, second, image, other) =
        (scratch.join("first"), scratch.join("second"), scratch.join("new"), scratch.join("other"));
    build(&root, &first, &[]);
    change(Path::new(&root), &mut random, 40);
    build(&root, &second, &["-b", "1024"]);
    change(Path::new(&root), &mut random, 40);
    let (of_first, of_second) = (scratch.join("first.layout"), scratch.join("second.layout"));
    layout(&first, &of_first, &[]);
    layout(&second, &of_second, &[]);
    let (trace, paths) = (scratch.join("trace"), scratch.join("paths"));
    let files = list(Path::new(&root), false);
    let read = files.iter().rev().step_by(3).take(20);
    let lines =
        read.map(|path| format!("/{}\n", path.strip_prefix(&root).expect("in it").display()));
    fs::write(&paths, lines.collect::<String>()).expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let traced = ["--trace", &trace, "--move-budget", "1M"];
    let read = |path: &str| fs::read(path).expect("read");
    for options in [&traced[..], &["-I", "512"]].into_iter().take(some_or_all(1, 2)) {
        build(&root, &image, &[&["--like", &first, "--like", &second], options].concat());
        for pair in [[&of_first, &second], [&first, &of_second], [&of_first, &of_second]] {
            let like = ["--like", pair[0].as_str(), "--like", pair[1].as_str()];
            build(&root, &other, &[&like[..], options].concat());
            assert!(read(&image) == read(&other), "{pair:?} {options:?}");
        }
    }
    // `optimize` takes them too.
    let (new, fast) = (scratch.join("built"), scratch.join("fast"));
    build(&root, &new, &[]);
    let args = ["optimize", &new, "--trace", &trace, "--force", "-q"];
    text(&seekless(&[&args[..], &["--like", &first, "-o", &fast]].concat()));
    text(&seekless(&[&args[..], &["--like", &of_first, "-o", &other]].concat()));
    assert!(read(&fast) == read(&other), "optimize");
}

/// Digests of larger blocks decide where they can; where they cannot, that is said.
#[test]
fn digests_of_other_blocks_decide_alike_or_not_at_all() {
    let scratch = Scratch::new("layout-units");
    let root = scratch.join("tree");
    let mut random = Random(43);
    fs::create_dir(&root).expect("mkdir");
    let old_bytes = random.bytes(40_000);
    for name in ["equal", "one", "none"] {
        fs::write(format!("{root}/{name}"), &old_bytes).expect("write");
    }
    fs::write(format!("{root}/hole"), vec![0; 300_000]).expect("write");
    let (old, image, other) = (scratch.join("old"), scratch.join("new"), scratch.join("other"));
    build(&root, &old, &["--size", "8M"]);
    // Grown files: with all blocks of 4K equal, with equal blocks of 1K only, with none.
    let grown = |change: &dyn Fn(usize, &mut u8)| {
        let mut bytes = [&old_bytes[..], &[1; 9_000]].concat();
        bytes[..40_000].iter_mut().enumerate().for_each(|(at, byte)| change(at, byte));
        bytes
    };
    let write = |name: &str, bytes: Vec<u8>| fs::write(format!("{root}/{name}"), bytes);
    write("equal", grown(&|_, _| {})).expect("write");
    write("none", grown(&|at, byte| *byte ^= u8::from(at % 500 == 0))).expect("write");
    write("hole", vec![0; 400_000]).expect("write");
    let read = |path: &str| fs::read(path).expect("read");
    let compare = |unit: &str, options: &[&str]| {
        let list = scratch.join("list.layout");
        layout(&old, &list, &["--digest-unit", unit]);
        build(&root, &image, &[&["--like", &old], options].concat());
        build(&root, &other, &[&["--like", &list], options].concat());
        assert!(read(&image) == read(&other), "{unit} {options:?}");
        list
    };
    for unit in ["512", "1K", "4K"] {
        compare(unit, &[]);
        if unit != "4K" {
            compare(unit, &["-b", "1024"]);
        }
    }
    write("one", grown(&|at, byte| *byte ^= u8::from(at % 4096 == 0))).expect("write");
    let list = compare("1K", &["-b", "1024"]);
    compare("512", &["-b", "1024"]);
    fs::remove_file(&image).expect("remove");
    layout(&old, &list, &[]);
    let args = ["build", &root, "-o", &image, "--like", &list, "-b", "1024"];
    // A warning of the shape comes first.
    let done = seekless(&args);
    let message = String::from_utf8_lossy(&done.stderr);
    assert_eq!(
        (done.status.code(), message.contains("digests of 4K")),
        (Some(4), true),
        "{message}"
    );
    assert!(!Path::new(&image).exists());
}

/// qcow2 images, partitions and standard output.
#[test]
fn lists_of_all_kinds_of_images_are_the_same() {
    let scratch = Scratch::new("layout-kinds");
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut Random(47));
    let (image, list) = (scratch.join("old.img"), scratch.join("old.layout"));
    build(&root, &image, &["--size", "32M"]);
    let said = text(&seekless(&["layout", &image, "-o", &list, "--json"]));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let bytes = fs::read(&list).expect("read");
    assert_eq!(said["bytes"], bytes.len());
    assert_eq!(said["image_bytes"], 32 << 20);
    assert_eq!(said["path"], list.as_str());
    assert_eq!(said["files"].as_u64(), Some(2 + 8 + 8 * 30), "with lost+found");
    let shown = seekless(&["layout", &image, "-o", "-"]);
    assert!(shown.stdout == bytes, "standard output");
    assert!(String::from_utf8_lossy(&shown.stderr).contains("standard output, "));
    // A file that is there stays.
    let (code, message) = failure(&seekless(&["layout", &image, "-o", &list]));
    assert_eq!((code, message.contains("--force")), (6, true), "{message}");
    let (code, message) = failure(&seekless(&["layout", &image, "-o", &image, "--force"]));
    assert_eq!((code, message.contains("over an input")), (2, true), "{message}");

    let disk = scratch.join("disk.img");
    let mut on_disk = vec![0; 33 << 20];
    on_disk[446 + 4] = 0x83;
    on_disk[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    on_disk[446 + 12..446 + 16].copy_from_slice(&65536u32.to_le_bytes());
    on_disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    on_disk[1 << 20..].copy_from_slice(&fs::read(&image).expect("read"));
    fs::write(&disk, on_disk).expect("write");
    let of_disk = scratch.join("disk.layout");
    for place in [&["--partition", "1"], &["--offset", "1M"]] {
        layout(&disk, &of_disk, place);
        assert!(fs::read(&of_disk).expect("read") == bytes, "{place:?}");
    }
    if ready("qemu-img") {
        let packed = scratch.join("old.qcow2");
        run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &image, &packed]);
        layout(&packed, &of_disk, &[]);
        assert!(fs::read(&of_disk).expect("read") == bytes, "qcow2");
    }
}

#[test]
fn what_is_no_base_has_no_list() {
    let scratch = Scratch::new("layout-refused");
    let root = scratch.join("tree");
    fs::create_dir(&root).expect("mkdir");
    fs::write(format!("{root}/file"), "text").expect("write");
    let (image, out) = (scratch.join("image"), scratch.join("out"));
    let refused = |image: &str, options: &[&str], code: i32, words: &str| {
        let args = [&["layout", image, "-o", &out], options].concat();
        let (found, message) = failure(&seekless(&args));
        assert_eq!((found, message.contains(words)), (code, true), "{options:?}: {message}");
        assert!(!Path::new(&out).exists(), "{options:?}: nothing is written");
    };
    refused(&root, &[], 2, "is a directory");
    refused(&scratch.join("none"), &[], 6, "none");
    fs::write(&image, vec![7; 100_000]).expect("write");
    refused(&image, &[], 4, "no known file system");
    build(&root, &image, &[]);
    refused(&image, &["--digest-unit", "3K"], 2, "power of two");
    refused(&image, &["--digest-unit", "256"], 2, "power of two");
    refused(&image, &["--partition", "1"], 4, "partition");
    let mut damaged = fs::read(&image).expect("read");
    let at = damaged.windows(4).position(|bytes| bytes == b"file").expect("the name");
    damaged[at] ^= 0x20;
    fs::write(&image, damaged).expect("write");
    refused(&image, &[], 3, "repair it with e2fsck");
    if can_mount() {
        build(&root, &image, &[]);
        let mounted = crate::judges::Mounted::of_kind(&scratch, &image, "ext4", "rw");
        let args = ["layout", &image, "-o", &out];
        let (code, message) = failure(&seekless(&args));
        assert_eq!((code, message.contains("is mounted")), (6, true), "{message}");
        drop(mounted);
    }
}

#[test]
fn lists_that_do_not_suit_are_named() {
    let scratch = Scratch::new("layout-unsuited");
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut Random(53));
    let (old, fat, image) = (scratch.join("old"), scratch.join("fat"), scratch.join("new"));
    build(&root, &old, &[]);
    build(&root, &fat, &[&["--format", "fat16"], DROP].concat());
    let (list, of_fat) = (scratch.join("old.layout"), scratch.join("fat.layout"));
    layout(&old, &list, &[]);
    layout(&fat, &of_fat, &[]);
    let refused = |options: &[&str], code: i32, words: &[&str]| {
        let args = ["build", &root, "-o", &image];
        let (found, message) = failure(&seekless(&[&args[..], options].concat()));
        let has_all = words.iter().all(|words| message.contains(words));
        assert_eq!((found, has_all), (code, true), "{options:?}: {message}");
        assert!(!Path::new(&image).exists(), "{options:?}: nothing is written");
    };
    refused(&["--like", &list, "--freed", "keep"], 2, &["old.layout", "--freed keep"]);
    refused(&["--like", &list, "--like-partition", "1"], 2, &["old.layout", "--like-partition"]);
    refused(&["--like", &of_fat], 4, &["fat.layout", "layout list", "ext images"]);
    let fat16 = [&["--format", "fat16", "--like", &list], DROP].concat();
    refused(&fat16, 4, &["old.layout", "layout list", "FAT images"]);
    // Free blocks have the bytes of the first older image: the others may be lists.
    build(&root, &image, &["--like", &old, "--like", &list, "--freed", "keep"]);
    fs::remove_file(&image).expect("remove");

    let sound = fs::read(&list).expect("read");
    let mut other = sound.clone();
    other[16] = 2;
    fs::write(&list, &other).expect("write");
    let words =
        "a layout list of version 2, written by seekless 0.1.0; this program reads version 1";
    refused(&["--like", &list], 4, &["old.layout", words]);
    fs::write(&list, &sound[..sound.len() - 1]).expect("write");
    let words = format!("cut short: it ends after {} of {} bytes", sound.len() - 1, sound.len());
    refused(&["--like", &list], 3, &["old.layout", &words]);
    fs::write(&list, [&sound[..], b"x"].concat()).expect("write");
    refused(&["--like", &list], 3, &["1 bytes follow it"]);
    let mut other = sound.clone();
    let at = sound.len() - 9;
    other[at] ^= 4;
    fs::write(&list, &other).expect("write");
    refused(&["--like", &list], 3, &["damaged: bytes", &format!("to {} do not", sound.len())]);
}

/// Each byte of the header and of the sums, and bytes of each piece: a flip is an error that names
/// its place, and so is an end anywhere.
#[test]
fn every_flip_and_every_cut_is_an_error() {
    let scratch = Scratch::new("layout-flips");
    let root = scratch.join("tree");
    new_tree(Path::new(&root), &mut Random(59));
    let (image, path) = (scratch.join("image"), scratch.join("list"));
    build(&root, &image, &[]);
    layout(&image, &path, &[]);
    let sound = fs::read(&path).expect("read");
    assert!(LayoutList::parse(&sound).is_ok());
    let pieces = u32::from_le_bytes(sound[92..96].try_into().expect("four")) as usize;
    assert!(pieces >= 1, "{pieces}");
    let payload = HEADER + 8 * pieces;
    let places = (0..payload).chain((payload..sound.len()).step_by(97));
    for at in places {
        for bit in [0, 7] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << bit;
            let error = LayoutList::parse(&bytes).err();
            let is_told = match error {
                Some(ListError::Checksum { start, end }) => (start..end).contains(&(at as u64)),
                Some(ListError::Invalid { .. }) => at < 16,
                Some(ListError::Version { .. }) => (16..20).contains(&at),
                Some(ListError::CutShort { .. }) => (56..64).contains(&at),
                None => false,
            };
            assert!(is_told, "byte {at} bit {bit}: {error:?}");
        }
    }
    for len in (0..payload + 64).chain((payload..sound.len()).step_by(97)) {
        let error = LayoutList::parse(&sound[..len]).err();
        assert!(matches!(error, Some(ListError::CutShort { .. })), "{len} bytes: {error:?}");
    }
}
