//! `seekless optimize` on FAT images: the same files, laid out by a trace.

use crate::judges::{Scratch, failure, manifest, ready, run, same, seekless, text};
use crate::{fsck, mtools, populate, sparse};
use seekless_device::FileDevice;
use seekless_fat::FatImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn open(image: &str) -> FatImage {
    let device = Arc::new(FileDevice::open(Path::new(image)).expect("open"));
    FatImage::open(device, OpenOptions::default()).expect("image")
}

fn start(image: &FatImage, path: &str) -> u64 {
    let ino = resolve(image, path.as_bytes()).expect(path);
    image.block_map(ino).expect("map").runs[0].extent.start.get()
}

/// The names of a directory in the order of its entries.
fn names(image: &FatImage, dir: &str) -> Vec<String> {
    let mut names = Vec::new();
    let dir = resolve(image, dir.as_bytes()).expect(dir);
    image
        .read_dir(dir, 2, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        })
        .expect("names");
    names
}

/// The first cluster at a multiple of 512 KiB, on a FAT16 volume with one FAT.
fn first_of_chunk(image: &str) -> u64 {
    let image = open(image);
    let shape = image.geometry();
    let field = |name: &str| -> u64 {
        let found = shape.features.iter().find_map(|feature| feature.strip_prefix(name));
        found.expect(name).parse().expect("number")
    };
    let data = 1 + field("fat-sectors=") + field("root-entries=") / 16;
    (1024 - data) / u64::from(shape.cluster_blocks) + 3
}

/// Marks a free cluster of such a volume as bad.
fn mark_bad(image: &str, cluster: u64) {
    let mut bytes = fs::read(image).expect("read");
    let at = 512 + 2 * cluster as usize;
    assert_eq!(bytes[at..at + 2], [0, 0], "cluster {cluster} is free");
    bytes[at..at + 2].copy_from_slice(&[0xF7, 0xFF]);
    fs::write(image, bytes).expect("write");
}

/// The entries of directories for themselves and their parents without their clusters, sorted.
fn dots(bytes: &[u8]) -> Vec<[&[u8]; 3]> {
    let is_dot = |entry: &&[u8]| matches!(&entry[..12], b".          \x10" | b"..         \x10");
    let found = bytes.chunks_exact(32).filter(is_dot);
    let mut found: Vec<_> = found.map(|it| [&it[..20], &it[22..26], &it[28..]]).collect();
    found.sort_unstable();
    found
}

/// Gives each of these entries another time.
fn date_dots(image: &str) {
    let mut bytes = fs::read(image).expect("read");
    let entries =
        bytes.chunks_exact_mut(32).filter(|entry| entry[..12].ends_with(b"         \x10"));
    for (n, entry) in (0..).zip(entries.filter(|entry| entry[0] == b'.')) {
        (entry[13], entry[22]) = (n, n);
    }
    fs::write(image, bytes).expect("write");
}

#[test]
fn images_are_laid_out_anew_by_a_trace() {
    if !ready("mkfs.fat") || !ready("mcopy") || !ready("fsck.fat") {
        return;
    }
    let scratch = Scratch::new("fat-optimize");
    let (tree, old, new) = (scratch.join("tree"), scratch.join("old"), scratch.join("new"));
    let (list, trace) = (scratch.join("list"), scratch.join("trace"));
    populate(Path::new(&tree));
    let hot = ["DIR/FILE7.BIN", "DIR/FILE3.BIN", "many names/a name of some length 30"];
    fs::write(&list, hot.map(|path| format!("/{path}\n")).concat()).expect("write");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
    for (bits, size, options) in [
        ("12", 3 << 20, &["-s", "2"][..]),
        ("16", 20 << 20, &["-S", "1024"]),
        ("16", 40 << 20, &["-f", "1", "-a"]),
        ("32", 40 << 20, &["-s", "1"]),
        ("32", 300 << 20, &["-s", "8", "-n", "HAS LABEL"]),
    ] {
        let what = format!("FAT{bits} {options:?}");
        sparse(&old, size);
        run("mkfs.fat", &[&["-F", bits], options, &[&old]].concat());
        for top in ["DIR", "many names", "empty"] {
            mtools("mcopy", &old, &["-s", "-m", &format!("{tree}/{top}"), "::"]);
        }
        mtools("mattrib", &old, &["+h", "+s", "+r", "::/DIR/FILE1.BIN"]);
        mtools("mdel", &old, &["::/DIR/FILE8.BIN"]);
        // A bad cluster at the start of the hot part stays bad.
        let bad = options.contains(&"-a").then(|| first_of_chunk(&old));
        if let Some(cluster) = bad {
            mark_bad(&old, cluster);
            fsck(&old);
        }
        date_dots(&old);
        let shorts = mtools("mdir", &old, &["-a", "-/", "::"]);
        text(&seekless(&["optimize", &old, "--trace", &trace, "-o", &new, "--force"]));
        fsck(&new);
        same(&what, &manifest(&old, &[]), &manifest(&new, &[]));
        let both = [&old, &new].map(|image| fs::read(image).expect("read"));
        let [one, other] = [0, 1].map(|at| dots(&both[at]));
        assert!(one.len() >= 6 && one == other, "{what}: {one:?}, now {other:?}");
        // Short names, attributes and times are the same, in another order.
        let sorted = |listing: &str| {
            let mut lines: Vec<&str> = listing.lines().collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        assert_eq!(sorted(&shorts), sorted(&mtools("mdir", &new, &["-a", "-/", "::"])), "{what}");
        assert!(mtools("mattrib", &new, &["::/DIR/FILE1.BIN"]).contains("SHR"), "{what}");
        // Equal except for the location of the root directory.
        let info = |image: &str| -> String {
            let told = text(&seekless(&["info", image]));
            let words = told.split(' ').filter(|word| !word.starts_with("root-cluster="));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(info(&old), info(&new), "{what}");
        // Data read by the trace is stored together in the trace's order, and so are directory
        // entries.
        let image = open(&new);
        let places = hot.map(|path| start(&image, &format!("/{path}")));
        assert!(places.is_sorted(), "{what}: {places:?}");
        let cold = start(&image, "/DIR/FILE5.BIN");
        assert!(!(places[0]..=places[2]).contains(&cold), "{what}: {places:?}, {cold}");
        let sector = u64::from(image.geometry().block_size);
        assert!((places[2] - places[0]) * sector < 64 << 10, "{what}: {places:?}");
        assert_eq!(names(&image, "/DIR")[..2], ["FILE7.BIN", "FILE3.BIN"], "{what}");
        assert_eq!(names(&image, "/many names")[0], "a name of some length 30", "{what}");
        if let Some(cluster) = bad {
            let at = 512 + 2 * cluster as usize;
            assert_eq!(fs::read(&new).expect("read")[at..at + 2], [0xF7, 0xFF], "{what}");
        }
        // Two runs give the same image.
        let again = scratch.join("again");
        text(&seekless(&["optimize", &old, "--trace", &trace, "-o", &again, "--force"]));
        run("cmp", &[&new, &again]);
    }
}

#[test]
fn damaged_images_are_refused() {
    if !ready("mkfs.fat") || !ready("mcopy") {
        return;
    }
    let scratch = Scratch::new("fat-refused");
    let (image, new) = (scratch.join("image"), scratch.join("new"));
    let (list, trace, file) = (scratch.join("list"), scratch.join("trace"), scratch.join("file"));
    fs::write(&list, "/FILE\n").expect("write");
    fs::write(&file, vec![7; 5000]).expect("write");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
    sparse(&image, 8 << 20);
    run("mkfs.fat", &["-F", "16", "-s", "1", "-a", &image]);
    mtools("mcopy", &image, &[&file, "::/OTHER"]);
    mtools("mcopy", &image, &[&file, "::/FILE"]);
    let sound = fs::read(&image).expect("read");
    // The chain is truncated: it is shorter than the file.
    let mut damaged = sound.clone();
    damaged[512 + 4..512 + 6].copy_from_slice(&[0xFF, 0xFF]);
    fs::write(&image, &damaged).expect("write");
    let (code, message) = failure(&seekless(&["optimize", &image, "--trace", &trace, "-o", &new]));
    assert_eq!(code, 3, "{message}");
    assert!(
        message.contains("file.size-past-chain") && message.contains("seekless check -y"),
        "{message}"
    );
    assert!(!Path::new(&new).exists());
    // An image that was not unmounted cleanly is accepted.
    let mut dirty = sound;
    dirty[37] = 1;
    fs::write(&image, &dirty).expect("write");
    text(&seekless(&["optimize", &image, "--trace", &trace, "-o", &new]));
    let options =
        ["optimize", &image, "--trace", &trace, "-o", &new, "--inode-size", "256", "--force"];
    let (code, message) = failure(&seekless(&options));
    assert!(code == 2 && message.contains("for ext images"), "{message}");
}
