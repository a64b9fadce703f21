//! Free space in addition to the contents: at least as much as requested, and not much more, with
//! inodes for it.

use crate::judges::{Mounted, Scratch, can_mount, check, header, ready, run, seekless, text};
use std::fs;

const MIB: u64 = 1 << 20;

/// Makes a tree of `files` files with `len` bytes each.
fn tree(scratch: &Scratch, name: &str, files: u64, len: usize) -> String {
    let root = scratch.join(name);
    fs::create_dir(&root).expect("mkdir");
    for n in 0..files {
        fs::write(format!("{root}/{n:04}"), vec![b'x'; len]).expect("write");
    }
    root
}

/// Size and free space for ordinary users in bytes, and the number of free inodes.
fn room(image: &str) -> (u64, u64, u64) {
    let head = header(image);
    let number = |name: &str| -> u64 {
        let found = head.iter().find(|(key, _)| key == name).expect(name);
        found.1.parse().expect("number")
    };
    let size = number("Block size");
    let free = number("Free blocks") - number("Reserved block count");
    (number("Block count") * size, free * size, number("Free inodes"))
}

fn near(what: &str, found: u64, wanted: u64) {
    let most = wanted + wanted / 20 + MIB;
    assert!((wanted..=most).contains(&found), "{what}: {found}, not {wanted}");
}

#[test]
fn so_much_is_free_besides_the_reserve() {
    let scratch = Scratch::new("sizes");
    let image = scratch.join("image");
    let small = tree(&scratch, "small", 900, 3000);
    let large = tree(&scratch, "large", 3, 9_000_000);
    for source in [&small, &large] {
        for options in [&[][..], &["-m", "0"], &["-b", "1024"], &["-O", "^has_journal"]] {
            for (more, wanted) in [("+1M", MIB), ("+300M", 300 * MIB)] {
                let args = ["build", source, "-o", &image, "--force", "--size", more];
                text(&seekless(&[&args[..], options].concat()));
                check(&image);
                let (_, free, inodes) = room(&image);
                near(&format!("{source} {more} {options:?}"), free, wanted);
                // As many inodes as mke2fs makes by default, or as the contents suggest.
                let least = if *source == small { wanted / 4096 } else { wanted / 16384 };
                assert!(inodes * 10 > least * 9, "{source} {more}: {inodes} inodes");
                assert!(inodes < least * 2 + 5000, "{source} {more}: {inodes} inodes");
            }
            for (percent, share) in [("20%", 20), ("50", 50)] {
                let args = ["build", source, "-o", &image, "--force", "--free", percent];
                text(&seekless(&[&args[..], options].concat()));
                check(&image);
                let (all, free, _) = room(&image);
                near(&format!("{source} {percent} {options:?}"), free, all * share / 100);
            }
        }
    }
    // Files fit in the free space of the image.
    text(&seekless(&["build", &small, "-o", &image, "--force", "--size", "+20M"]));
    if can_mount() {
        let mounted = Mounted::new(&scratch, &image, "rw");
        fs::write(mounted.path().join("more"), vec![1; 20 << 20]).expect("room for it");
    }
    // Two runs give the same image.
    let again = scratch.join("again");
    for to in [&image, &again] {
        text(&seekless(&["build", &small, "-o", to, "--force", "--free", "33.3"]));
    }
    run("cmp", &[&image, &again]);
}

#[test]
fn other_formats_have_room_too() {
    let scratch = Scratch::new("sizes-others");
    let image = scratch.join("image");
    let source = tree(&scratch, "tree", 50, 30_000);
    let free = |image: &str| -> (u64, u64) {
        let info = text(&seekless(&["info", image, "--json"]));
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        let number = |key: &str| info[key].as_u64().expect("number");
        let size = number("block_size");
        (number("blocks") * size, number("free_blocks") * size)
    };
    for format in ["ufs1", "ufs2", "fat"] {
        let args = ["build", &source, "-o", &image, "--force", "--format", format];
        text(&seekless(&[&args[..], &["--size", "+40M"]].concat()));
        let (all, found) = free(&image);
        // FAT and UFS count the reserve as free.
        assert!((40 * MIB..46 * MIB + all / 12).contains(&found), "{format}: {found} of {all}");
        text(&seekless(&[&args[..], &["--free", "60%"]].concat()));
        let (all, found) = free(&image);
        assert!((55..=75).contains(&(found * 100 / all)), "{format}: {found} of {all}");
        if format == "fat" && ready("fsck.fat") {
            run("fsck.fat", &["-n", &image]);
        }
    }
}

#[test]
fn what_leaves_no_room_is_refused() {
    let scratch = Scratch::new("sizes-refused");
    let image = scratch.join("image");
    let source = tree(&scratch, "tree", 1, 10);
    let cases: [(&[&str], &str); 3] = [
        (&["--free", "60%", "-m", "40"], "less than 5%"),
        (&["--size", "+16383P"], "too many"),
        (&["--free", "95"], "from 0 to 90"),
    ];
    for (options, why) in cases {
        let output = seekless(&[&["build", &source, "-o", &image], options].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(why), "{options:?}: {message}");
        assert_eq!(output.status.code(), Some(2), "{options:?}: {message}");
    }
    let both = seekless(&["build", &source, "-o", &image, "--free", "5", "--size", "+1M"]);
    assert_eq!(both.status.code(), Some(2));
}
