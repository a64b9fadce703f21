//! Images of all kinds, compared with their conversion by `qemu-img convert`. Needs qemu-img and
//! qemu-io (qemu-utils); the tests are skipped without them.

#[path = "../../../fs/tests/shared/list.rs"]
mod list;
#[path = "../../../fs/tests/shared/property.rs"]
mod property;
#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;

use list::list;
use property::for_all;
use proptest::prelude::{Just, Strategy};
use proptest::prop_oneof;
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

/// Writes, zeros and discards at random places of an image, in the words of qemu-io.
fn changes() -> impl Strategy<Value = Vec<String>> {
    let sectors = prop_oneof![Just(1), 1..=64u64, 1..=2048u64];
    let kind = prop_oneof![
        4 => (1..256u32).prop_map(|byte| format!("write -P {byte}")),
        1 => Just("write -z".to_string()),
        1 => Just("write -z -u".to_string()),
        1 => Just("discard".to_string()),
    ];
    let change = (kind, sectors, 0..LEN / 512).prop_map(|(kind, len, at)| {
        let at = at % (LEN / 512 - len + 1);
        format!("{kind} {} {}", 512 * at, 512 * len)
    });
    list(change, 60..=60)
}

fn fill(dir: &Path, image: &str, changes: &[String]) {
    let flags: Vec<&str> = changes.iter().flat_map(|change| ["-c", change]).collect();
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
            let wanted = &wanted[at..at + len];
            // Only where they differ byte by byte, which is slow.
            let differs = || read.iter().zip(wanted).position(|(read, wanted)| read != wanted);
            assert!(read == wanted, "{image} in pieces of {piece}: {:?} from {at} on", differs());
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
    for bits in 9..=21 {
        for compat in ["0.10", "1.1"] {
            let options = format!("compat={compat},cluster_size={}", 1 << bits);
            for_all((1, bits), (Just(options), list(changes(), 2..=2)), |(options, changes)| {
                let (_scratch, dir) = scratch();
                create(&dir, "image", &options, &[]);
                for changes in changes {
                    fill(&dir, "image", &changes);
                    agrees(&dir, "image");
                }
            });
        }
    }
}

/// Contents that compress well, badly and not at all.
fn noise() -> Vec<u8> {
    let mut state = 9u64;
    let mut below = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % limit) as u8
    };
    let byte = |at: u32| match at >> 20 {
        0 => below(256),
        1 => below(3),
        _ => (at >> 8) as u8,
    };
    (0..3 << 20).map(byte).collect()
}

#[test]
fn compressed_clusters() {
    if !ready() {
        return;
    }
    let noise = noise();
    let kinds = ["zlib", "zstd"].into_iter();
    let kinds = kinds.flat_map(|kind| [9, 12, 16, 21].map(|bits| (kind, 1 << bits)));
    for (n, (kind, size)) in kinds.enumerate() {
        let options = format!("cluster_size={size},compression_type={kind}");
        for_all((1, n), (Just(options), [changes(), changes()]), |(options, [before, after])| {
            let (_scratch, dir) = scratch();
            create(&dir, "plain", "cluster_size=64k", &[]);
            fill(&dir, "plain", &before);
            fs::write(dir.join("noise"), &noise).expect("noise");
            run("qemu-io", &dir, &["-f", "qcow2", "-c", "write -s noise 5M 3M", "plain"]);
            convert(&dir, "plain", &options, "packed");
            agrees(&dir, "packed");
            // Some of it is written again, over compressed clusters.
            fill(&dir, "packed", &after);
            agrees(&dir, "packed");
        });
    }
}

/// Compresses all of an image.
fn convert(dir: &Path, image: &str, options: &str, to: &str) {
    let convert = ["convert", "-c", "-f", "qcow2", "-O", "qcow2", "-o", options, image, to];
    run("qemu-img", dir, &convert);
}

#[test]
fn subclusters() {
    if !ready() {
        return;
    }
    for bits in [14, 16, 21] {
        let options = format!("extended_l2=on,cluster_size={}", 1 << bits);
        let changes = (list(changes(), 4..=4), changes());
        for_all((1, bits), (Just(options), changes), |(options, (before, after))| {
            let (_scratch, dir) = scratch();
            create(&dir, "image", &options, &[]);
            for changes in before {
                fill(&dir, "image", &changes);
                agrees(&dir, "image");
            }
            convert(&dir, "image", &options, "packed");
            fill(&dir, "packed", &after);
            agrees(&dir, "packed");
        });
    }
}

#[test]
fn backing_files() {
    if !ready() {
        return;
    }
    for_all(1, [changes(), changes(), changes(), changes()], |changes| {
        let (_scratch, dir) = scratch();
        backed(&dir, &changes);
    });
}

fn backed(dir: &Path, [one, two, three, after]: &[Vec<String>; 4]) {
    let raw: Vec<u8> = (0..LEN / 2).map(|at| (at / 777) as u8).collect();
    fs::write(dir.join("base.raw"), raw).expect("raw");
    fs::create_dir(dir.join("below")).expect("mkdir");
    // The base is shorter than the images on top of it; an image in the middle has subclusters.
    create(dir, "one", "cluster_size=64k", &["-b", "base.raw", "-F", "raw"]);
    fill(dir, "one", one);
    create(dir, "two", "extended_l2=on,cluster_size=32k", &["-b", "one", "-F", "qcow2"]);
    fill(dir, "two", two);
    create(dir, "three", "cluster_size=4k", &["-b", "two", "-F", "qcow2"]);
    fill(dir, "three", three);
    for image in ["one", "two", "three"] {
        agrees(dir, image);
    }
    // Snapshots are ignored.
    run("qemu-img", dir, &["snapshot", "-c", "before", "three"]);
    fill(dir, "three", after);
    agrees(dir, "three");
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
    for (n, raw) in ["on", "off"].into_iter().enumerate() {
        let options = format!("data_file=image.raw,data_file_raw={raw}");
        for_all((1, n), (Just(options), list(changes(), 2..=2)), |(options, changes)| {
            let (_scratch, dir) = scratch();
            create(&dir, "image", &options, &[]);
            for changes in changes {
                fill(&dir, "image", &changes);
                agrees(&dir, "image");
            }
        });
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
