//! Images of all kinds, compared with their conversion by `qemu-img convert`. Needs qemu-img and
//! qemu-io (qemu-utils); the tests are skipped without them.

#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;

use seekless_qcow2::{Qcow2Error, open};
use seekless_units::ByteLen;
use skip::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Length of the disks in bytes: no whole number of clusters of any size.
const LEN: u64 = (20 << 20) + 512;

fn ready() -> bool {
    for program in ["qemu-img", "qemu-io"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(&format!("{program} is not installed"));
            return false;
        }
    }
    true
}

fn run(program: &str, dir: &Path, args: &[&str]) {
    let output = Command::new(program).current_dir(dir).args(args).output().expect(program);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
}

/// A small generator, so that every run has the same images.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Writes, zeros and discards at random places of an image.
fn fill(dir: &Path, image: &str, seed: u64) {
    let mut random = Random(seed);
    let mut commands = Vec::new();
    for _ in 0..60 {
        let len = match random.below(3) {
            0 => 512,
            1 => 512 * (1 + random.below(64)),
            _ => 512 * (1 + random.below(2048)),
        };
        let at = 512 * random.below((LEN - len) / 512 + 1);
        let command = match random.below(7) {
            0 => format!("write -z {at} {len}"),
            1 => format!("write -z -u {at} {len}"),
            2 => format!("discard {at} {len}"),
            _ => format!("write -P {} {at} {len}", 1 + random.below(255)),
        };
        commands.push(command);
    }
    let flags: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    run("qemu-io", dir, &[&["-f", "qcow2"], &flags[..], &[image]].concat());
}

/// Reads an image in pieces of several sizes, and compares it with the conversion.
fn agrees(dir: &Path, image: &str) {
    run("qemu-img", dir, &["convert", "-f", "qcow2", "-O", "raw", image, "judged.raw"]);
    let wanted = fs::read(dir.join("judged.raw")).expect("raw");
    let disk = open(&dir.join(image)).unwrap_or_else(|error| panic!("{image}: {error}"));
    assert_eq!(disk.len().get(), wanted.len() as u64, "{image}");
    for piece in [1 << 20, 3 << 19, 4096] {
        let mut at = 0;
        while at < wanted.len() {
            let len = piece.min(wanted.len() - at);
            let mut read = vec![0xAA; len];
            disk.read_bytes(ByteLen::new(at as u64), &mut read)
                .unwrap_or_else(|error| panic!("{image} at {at}: {error}"));
            let differs = read.iter().zip(&wanted[at..]).position(|(read, wanted)| read != wanted);
            assert_eq!(differs, None, "{image} in pieces of {piece} from {at} on");
            at += len;
        }
    }
}

fn create(dir: &Path, image: &str, options: &str, more: &[&str]) {
    let len = LEN.to_string();
    let create = ["create", "-q", "-f", "qcow2", "-o", options];
    run("qemu-img", dir, &[&create, more, &[image, &len]].concat());
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("directory");
    let dir = scratch.path().to_path_buf();
    (scratch, dir)
}

#[test]
fn clusters_of_all_sizes() {
    if !ready() {
        return;
    }
    let (_scratch, dir) = scratch();
    for bits in 9..=21 {
        for compat in ["0.10", "1.1"] {
            let image = format!("{bits}-{compat}");
            create(&dir, &image, &format!("compat={compat},cluster_size={}", 1 << bits), &[]);
            for seed in 0..2 {
                fill(&dir, &image, bits * 10 + seed);
                agrees(&dir, &image);
            }
        }
    }
}

#[test]
fn compressed_clusters() {
    if !ready() {
        return;
    }
    let (_scratch, dir) = scratch();
    create(&dir, "plain", "cluster_size=64k", &[]);
    fill(&dir, "plain", 4);
    // Contents that compress well, badly and not at all.
    let mut noise = Random(9);
    let bytes: Vec<u8> = (0..3 << 20)
        .map(|at: u32| match at >> 20 {
            0 => noise.below(256) as u8,
            1 => noise.below(3) as u8,
            _ => (at >> 8) as u8,
        })
        .collect();
    fs::write(dir.join("noise"), bytes).expect("noise");
    run("qemu-io", &dir, &["-f", "qcow2", "-c", "write -s noise 5M 3M", "plain"]);
    for (kind, sizes) in [("zlib", [9, 12, 16, 21]), ("zstd", [9, 12, 16, 21])] {
        for bits in sizes {
            let image = format!("{kind}-{bits}");
            let options = format!("cluster_size={},compression_type={kind}", 1 << bits);
            let convert = ["convert", "-c", "-f", "qcow2", "-O", "qcow2", "-o", &options];
            run("qemu-img", &dir, &[&convert, &["plain", &image][..]].concat());
            agrees(&dir, &image);
            // Some of it is written again, over compressed clusters.
            fill(&dir, &image, bits);
            agrees(&dir, &image);
        }
    }
}

#[test]
fn subclusters() {
    if !ready() {
        return;
    }
    let (_scratch, dir) = scratch();
    for bits in [14, 16, 21] {
        let image = format!("extended-{bits}");
        let options = format!("extended_l2=on,cluster_size={}", 1 << bits);
        create(&dir, &image, &options, &[]);
        for seed in 0..4 {
            fill(&dir, &image, bits + seed);
            agrees(&dir, &image);
        }
        let packed = format!("{image}-packed");
        let convert = ["convert", "-c", "-f", "qcow2", "-O", "qcow2", "-o", &options];
        run("qemu-img", &dir, &[&convert, &[image.as_str(), packed.as_str()][..]].concat());
        fill(&dir, &packed, 3);
        agrees(&dir, &packed);
    }
}

#[test]
fn backing_files() {
    if !ready() {
        return;
    }
    let (_scratch, dir) = scratch();
    let raw: Vec<u8> = (0..LEN / 2).map(|at| (at / 777) as u8).collect();
    fs::write(dir.join("base.raw"), raw).expect("raw");
    fs::create_dir(dir.join("below")).expect("mkdir");
    // The base is shorter than the images on top of it; an image in the middle has subclusters.
    create(&dir, "one", "cluster_size=64k", &["-b", "base.raw", "-F", "raw"]);
    fill(&dir, "one", 1);
    create(&dir, "two", "extended_l2=on,cluster_size=32k", &["-b", "one", "-F", "qcow2"]);
    fill(&dir, "two", 2);
    create(&dir, "three", "cluster_size=4k", &["-b", "two", "-F", "qcow2"]);
    fill(&dir, "three", 3);
    for image in ["one", "two", "three"] {
        agrees(&dir, image);
    }
    // Snapshots are ignored.
    run("qemu-img", &dir, &["snapshot", "-c", "before", "three"]);
    fill(&dir, "three", 4);
    agrees(&dir, "three");
    // Opened from another directory, also through a link.
    std::os::unix::fs::symlink(dir.join("three"), dir.join("below/link")).expect("link");
    let disk = open(&dir.join("below/link")).expect("link");
    assert_eq!(disk.len().get(), LEN);
}

fn unsupported(path: &Path) -> String {
    match open(path) {
        Err(Qcow2Error::Unsupported(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{}: opened", path.display()),
    }
}

#[test]
fn files_elsewhere_and_in_circles_are_refused() {
    if !ready() {
        return;
    }
    let (_scratch, dir) = scratch();
    fs::create_dir(dir.join("d")).expect("mkdir");
    fs::write(dir.join("base"), vec![7; 1 << 20]).expect("base");
    let refer = |image: &str, name: &str| {
        create(&dir, image, "cluster_size=64k", &["-u", "-b", name, "-F", "raw"]);
        unsupported(&dir.join(image))
    };
    let absolute = dir.join("base").display().to_string();
    for name in [absolute.as_str(), "../base", "nbd://localhost/base"] {
        let why = refer("d/image", name);
        assert!(why.contains("only files beside"), "{name}: {why}");
        assert!(why.contains(&format!("{name:?}")), "{name}: {why}");
    }
    // Each the backing file of the other.
    create(&dir, "a", "cluster_size=64k", &["-u", "-b", "b", "-F", "qcow2"]);
    create(&dir, "b", "cluster_size=64k", &["-u", "-b", "a", "-F", "qcow2"]);
    assert!(unsupported(&dir.join("a")).contains("backing file of itself"));
    // A long chain, each link sound.
    create(&dir, "c0", "cluster_size=64k", &[]);
    for n in 1..40 {
        let below = format!("c{}", n - 1);
        create(&dir, &format!("c{n}"), "cluster_size=64k", &["-u", "-b", &below, "-F", "qcow2"]);
    }
    assert!(open(&dir.join("c31")).is_ok());
    assert!(unsupported(&dir.join("c32")).contains("more than 32"));
    // Opening a pipe would block.
    run("mkfifo", &dir, &["pipe"]);
    assert!(refer("e", "pipe").contains("neither a file"));
    match open(&{
        create(&dir, "f", "cluster_size=64k", &["-u", "-b", "missing", "-F", "raw"]);
        dir.join("f")
    }) {
        Err(Qcow2Error::Open { path, .. }) => assert!(path.ends_with("missing")),
        _ => panic!("opened without its backing file"),
    }
}

#[test]
fn external_data_files() {
    if !ready() {
        return;
    }
    let (_scratch, dir) = scratch();
    for raw in ["on", "off"] {
        let image = format!("data-{raw}");
        let options = format!("data_file={image}.raw,data_file_raw={raw}");
        create(&dir, &image, &options, &[]);
        for seed in 0..2 {
            fill(&dir, &image, seed);
            agrees(&dir, &image);
        }
    }
}

#[test]
fn other_files_are_what_they_are() {
    let (_scratch, dir) = scratch();
    fs::write(dir.join("raw"), vec![5; 777]).expect("write");
    let file = open(&dir.join("raw")).expect("raw");
    let mut bytes = [0; 777];
    file.read_bytes(ByteLen::ZERO, &mut bytes).expect("read");
    assert_eq!(bytes, [5; 777]);
    assert!(matches!(open(&dir.join("none")), Err(Qcow2Error::Open { .. })));
}
