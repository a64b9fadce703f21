//! The order in which files lie in an optimized image.

use super::judges::{Scratch, run, seekless, text};
use serde_json::json;
use std::fs;

/// The first block of a file, by debugfs.
fn first_block(image: &str, path: &str) -> u64 {
    run("debugfs", &["-R", &format!("bmap {path} 0"), image]).trim().parse().expect("a block")
}

/// A tree of `all` files `/D/N` of 5000 bytes in ten directories, as an image by mke2fs.
fn image(scratch: &Scratch, all: u32) -> String {
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    for n in 0..all {
        let dir = format!("{tree}/{}", n % 10);
        fs::create_dir_all(&dir).expect("mkdir");
        fs::write(format!("{dir}/{n}"), [1; 5000]).expect("write");
    }
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "4096", "-d", &tree, &image, "32M"]);
    image
}

/// Optimizes an image by reads of these files, each by a process.
fn optimized(scratch: &Scratch, image: &str, reads: impl Iterator<Item = (u32, u32)>) -> String {
    let (trace, new) = (scratch.join("a.trace"), scratch.join("new.img"));
    let read = |(at, (pid, n)): (u64, (u32, u32))| {
        let path = format!("/{}/{n}", n % 10);
        json!({ "time": at * 100_000, "pid": pid, "op": "read", "path": path })
    };
    let lines = std::iter::once(json!({ "seekless_trace": 1 })).chain((0..).zip(reads).map(read));
    fs::write(&trace, lines.map(|line| format!("{line}\n")).collect::<String>()).expect("write");
    text(&seekless(&["optimize", image, "--trace", &trace, "-o", &new]));
    new
}

/// Four processes side by side, each of which reads in bursts: another run reads near the same
/// places only if the order between them is kept.
#[test]
fn reads_of_processes_side_by_side_keep_their_order() {
    let scratch = Scratch::new("order-processes");
    let image = image(&scratch, 400);
    let files: Vec<u32> = (0..200).map(|at| at * 149 % 400).collect();
    let reads = (0..).zip(&files).map(|(at, &n): (u32, _)| (1 + at / 3 % 4, n));
    let new = optimized(&scratch, &image, reads);
    let places: Vec<u64> =
        files.iter().map(|n| first_block(&new, &format!("/{}/{n}", n % 10))).collect();
    assert!(places.is_sorted(), "{places:?}");
}

/// Files that the trace does not read: those beside the ones that it reads lie before all others.
#[test]
fn files_in_directories_that_are_read_lie_before_others() {
    let scratch = Scratch::new("order-neighbours");
    let image = image(&scratch, 400);
    let new = optimized(&scratch, &image, (0..20).map(|at| (1, at * 10 + 7)));
    let place = |n: u32| first_block(&new, &format!("/{}/{n}", n % 10));
    let neighbours: Vec<u64> = (20..40).map(|at| place(at * 10 + 7)).collect();
    let others = (0..400).filter(|n| n % 10 != 7).map(place).min().expect("others");
    assert!(neighbours.iter().all(|&at| at < others), "{neighbours:?} {others}");
}
