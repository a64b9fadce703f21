//! `score --store`: chunks that are cut out of the image and compressed one by one by the program
//! zstd.

use super::skip::skip;
use super::{json, log, seekless, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const SIZES: [usize; 3] = [128 << 10, 512 << 10, 5 << 20];

/// 700,000 bytes: text of this many different words, the first ones more often, or bytes without
/// order.
fn contents(number: usize, words: u64) -> Vec<u8> {
    let mut state = number as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let mut bytes = Vec::new();
    while bytes.len() < 700_000 {
        match words {
            0 => bytes.push(next() as u8),
            _ => bytes.extend(format!("{:x} ", (next() % words * (next() % words)).pow(2)).bytes()),
        }
    }
    bytes.truncate(700_000);
    bytes
}

/// An image `a.img` of files that compress more or less, and `b.img`, in which one file is longer;
/// a trace that reads all of them. The images end within a chunk.
fn prepare(dir: &Path) {
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    for (number, words) in [30, 0, 300, 5_000, 0, 800, 90, 20_000, 2_000].into_iter().enumerate() {
        fs::write(tree.join(format!("file{number}")), contents(number, words)).unwrap();
    }
    let build = |image| {
        text(&["build", "tree", "-o", image, "--format", "ext2", "--size", "7300K", "-q"], dir)
    };
    build("a.img");
    let mut longer = fs::read(tree.join("file3")).unwrap();
    longer.extend(&contents(9, 500)[..200_000]);
    fs::write(tree.join("file3"), longer).unwrap();
    build("b.img");
    let paths = (0..9).map(|number| format!("/file{number}\n")).collect::<String>();
    fs::write(dir.join("paths"), paths).unwrap();
    text(&["trace", "import", "--paths", "paths", "-o", "job.trace"], dir);
}

/// The chunks of an image that the requests of the score touch.
fn chunks<'a>(image: &str, bytes: &'a [u8], size: usize, dir: &Path) -> Vec<&'a [u8]> {
    text(&["score", image, "--trace", "job.trace", "--io-log", "io.jsonl"], dir);
    let of = |line: &Value, key: &str| line[key].as_u64().unwrap() as usize;
    let numbers: BTreeSet<usize> = log(&dir.join("io.jsonl"))
        .iter()
        .flat_map(|line| {
            let start = of(line, "offset");
            start / size..=(start + of(line, "bytes") - 1) / size
        })
        .collect();
    numbers.into_iter().map(|number| bytes.chunks(size).nth(number).unwrap()).collect()
}

/// Bytes of the chunks' frames by the program zstd; those of zeros have none.
fn zstd(chunks: &[&[u8]], level: u64, dir: &Path) -> u64 {
    let one = |chunk: &&[u8]| {
        if chunk.iter().all(|&byte| byte == 0) {
            return 0;
        }
        fs::write(dir.join("chunk"), chunk).unwrap();
        let level = format!("-{level}");
        let args = ["-q", &level, "--no-check", "--single-thread", "-c", "chunk"];
        let done = Command::new("zstd").args(args).current_dir(dir).output().expect("zstd");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        done.stdout.len() as u64
    };
    chunks.iter().map(one).sum()
}

/// Versions of zstd compress slightly differently: 1.5.4 and 1.5.7 by half a percent at most here.
fn assert_near(found: &Value, judged: u64, context: &str) {
    let found = found.as_u64().unwrap();
    assert!(found.abs_diff(judged) <= judged / 100, "{context}: {found}, by zstd {judged}");
}

fn with_sizes<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let sizes = ["--chunk", "128K", "--chunk", "512K", "--chunk", "5M"];
    [&["score", "--json", "--trace", "job.trace"], args, &sizes].concat()
}

#[test]
fn chunks_are_as_long_as_zstd_makes_them() {
    if Command::new("zstd").arg("--version").output().is_err() {
        return skip("zstd is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let [a, b] = ["a.img", "b.img"].map(|name| fs::read(dir.join(name)).unwrap());
    for (codec, level) in [("zstd", 3), ("zstd:1", 1), ("zstd:12", 12)] {
        let args = ["score", "a.img", "--trace", "job.trace", "--store", codec, "--chunk", "128K"];
        let found = json(&[&args[..], &["--json"]].concat(), dir);
        let store = &found["store"];
        assert_eq!((&store["codec"], &store["level"]), (&"zstd".into(), &level.into()));
        let judged = zstd(&chunks("a.img", &a, 128 << 10, dir), level, dir);
        assert_near(&store["fetched_bytes"]["131072"], judged, codec);
    }
    let last = chunks("a.img", &a, 5 << 20, dir).pop().unwrap();
    assert!(last.len() < 5 << 20, "a short chunk is read");
    let both = json(&with_sizes(&["a.img", "b.img", "--store", "zstd:3"]), dir);
    for (key, image, bytes) in [("a", "a.img", &a), ("b", "b.img", &b)] {
        for size in SIZES {
            let chunks = chunks(image, bytes, size, dir);
            let found = &both[key]["store"]["fetched_bytes"][size.to_string()];
            assert_near(found, zstd(&chunks, 3, dir), &format!("{image}, {size}"));
        }
    }
    // A cache has the chunks of a.img.
    let cached = json(&with_sizes(&["b.img", "--cached", "a.img", "--store", "zstd"]), dir);
    for size in SIZES {
        let stored: BTreeSet<&[u8]> = a.chunks(size).collect();
        let missing: BTreeSet<&[u8]> =
            chunks("b.img", &b, size, dir).into_iter().filter(|it| !stored.contains(it)).collect();
        let missing: Vec<&[u8]> = missing.into_iter().collect();
        let found = &cached["store"]["fetched_bytes"][size.to_string()];
        assert_near(found, zstd(&missing, 3, dir), &format!("cached, {size}"));
        assert_ne!(found, 0);
    }
    let own = json(&with_sizes(&["b.img", "--cached", "b.img", "--store", "zstd"]), dir);
    let own = own["store"]["fetched_bytes"].as_object().unwrap();
    assert!(own.len() == SIZES.len() && own.values().all(|it| it == 0), "{own:?}");
}

#[test]
fn chunks_without_compression_and_chunks_of_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    // Zeros that are read: the blocks of a file are overwritten in the image.
    let mut image = fs::read(dir.join("a.img")).unwrap();
    let file = fs::read(dir.join("tree/file1")).unwrap();
    let start = (0..image.len()).step_by(1024).find(|&at| image[at..].starts_with(&file)).unwrap();
    image[start..start + file.len()].fill(0);
    fs::write(dir.join("a.img"), &image).unwrap();
    let found = json(&with_sizes(&["a.img", "--store", "none"]), dir);
    assert_eq!(
        (&found["store"]["codec"], &found["store"]["level"]),
        (&"none".into(), &Value::Null)
    );
    let mut zeros = 0;
    for size in SIZES {
        let chunks = chunks("a.img", &image, size, dir);
        assert_eq!(found["chunks"][size.to_string()], chunks.len() as u64);
        let (holes, others): (Vec<&[u8]>, Vec<&[u8]>) =
            chunks.into_iter().partition(|chunk| chunk.iter().all(|&byte| byte == 0));
        zeros += holes.len();
        let bytes: usize = others.iter().map(|chunk| chunk.len()).sum();
        assert_eq!(found["store"]["fetched_bytes"][size.to_string()], bytes as u64, "{size}");
    }
    assert!(zeros > 0, "a chunk of zeros was read");
    let plain = json(&with_sizes(&["a.img"]), dir);
    assert!(plain.get("store").is_none());
}

#[test]
fn equal_chunks_are_fetched_once_into_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    fs::copy(dir.join("tree/file1"), dir.join("tree/file4")).unwrap();
    text(&["build", "tree", "-o", "twice.img", "--format", "ext2", "-q"], dir);
    fs::write(dir.join("empty"), [0; 4096]).unwrap();
    let args = [
        "score",
        "twice.img",
        "--trace",
        "job.trace",
        "--store",
        "none",
        "--chunk",
        "4K",
        "--json",
    ];
    let bytes = |found: &Value| found["store"]["fetched_bytes"]["4096"].as_u64().unwrap();
    let (each, once) = (json(&args, dir), json(&[&args[..], &["--cached", "empty"]].concat(), dir));
    assert_eq!(bytes(&each), each["chunks"]["4096"].as_u64().unwrap() * 4096);
    assert_eq!(bytes(&once), once["chunks_not_cached"]["4096"].as_u64().unwrap() * 4096);
    let copies = 700_000 / 4096 * 4096;
    assert!(bytes(&once) + copies <= bytes(&each), "{} of {}", bytes(&once), bytes(&each));
}

#[test]
fn the_table_has_a_row_for_each_size() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let args = ["score", "a.img", "b.img", "--trace", "job.trace", "--store", "zstd:9"];
    let table = text(&args, dir);
    for size in ["128K", "512K", "4M"] {
        let row = table.lines().find(|it| it.starts_with(&format!("chunks of {size}, zstd:9 ")));
        assert!(row.is_some(), "{table}");
    }
}

#[test]
fn other_codecs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    for codec in ["lz4", "zstd:0", "zstd:20", "zstd:", "none:1", ""] {
        let done = seekless(&["score", "a.img", "--trace", "job.trace", "--store", codec], dir);
        let message = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{codec}: {message}");
        assert!(
            message.contains("none, zstd or zstd:LEVEL with a level from 1 to 19"),
            "{message}"
        );
    }
    let args = ["score", "a.img", "--trace", "job.trace", "--store", "zstd", "--verify-kernel"];
    assert_eq!(seekless(&args, dir).status.code(), Some(2));
}
