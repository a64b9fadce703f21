//! Traces in the formats of other tools, read by the tools that can be installed; the other formats
//! are tested next to their writers.

use super::judges::{self, ready};
use super::{errors, run, said, workshop};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes `disk.img` of a tree with a symlink on a path, and `linked.trace` through it.
fn linked(dir: &Path) {
    std::os::unix::fs::symlink("bin", dir.join("tree/sbin")).expect("link");
    fs::create_dir(dir.join("tree/dir")).expect("directory");
    said(dir, &["build", "tree", "-o", "disk.img", "--force"]);
    fs::write(dir.join("linked"), "/sbin/job\n/dir\n/bin/a b\n/absent\n").expect("list");
    said(dir, &["trace", "import", "--paths", "linked", "-o", "linked.trace"]);
}

fn exported(dir: &Path, form: &str, more: &[&str]) -> String {
    said(dir, &[&["trace", "export", "--format", form], more].concat())
}

#[test]
fn lists_for_runtimes_name_files_as_the_trace_or_the_image_does() {
    let scratch = workshop("exports-lists");
    let dir = scratch.path();
    linked(dir);
    let plain = exported(dir, "nydus", &["linked.trace"]);
    assert_eq!(plain, "/sbin/job\n/dir\n/bin/a b\n/absent\n");
    let with_image = ["linked.trace", "--image", "disk.img"];
    assert_eq!(exported(dir, "nydus", &with_image), "/bin/job\n/bin/a b\n");
    assert_eq!(exported(dir, "paths", &with_image), "/bin/job\n/bin/a b\n");
    let record = exported(dir, "stargz", &with_image);
    assert_eq!(record, "{\"path\":\"bin/job\"}\n{\"path\":\"bin/a b\"}\n");
    let list: Value = serde_json::from_str(&exported(dir, "soci", &with_image)).expect("JSON");
    assert_eq!(list, json!(["bin/job", "bin/a b"]));
    let output =
        run(dir, &[&["trace", "export", "--format", "overlaybd"], &with_image[..]].concat());
    assert_eq!(output.stdout, b"/bin/job\n");
    assert!(errors(&output).contains("1 paths that contain characters"), "{}", errors(&output));
    assert!(errors(&output).contains("only"), "the trace fits in part: {}", errors(&output));

    let answer = |form: &str| -> Value {
        serde_json::from_str(&exported(dir, form, &["job.trace", "--json"])).expect("JSON")
    };
    assert_eq!(answer("nydus"), json!({ "paths": ["/bin/job", "/bin/a b"] }));
    assert_eq!(answer("soci"), json!({ "paths": ["bin/job", "bin/a b"] }));
    assert_eq!(
        answer("stargz"),
        json!({ "records": [{ "path": "bin/job" }, { "path": "bin/a b" }] })
    );
}

/// Offsets and lengths of a list of ranges.
fn ranges(text: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let (offset, length) = line.split_once(' ').expect("two numbers");
        (offset.parse().expect("offset"), length.parse().expect("length"))
    };
    text.lines().map(range).collect()
}

#[test]
fn ranges_are_what_the_files_lie_in_and_lead_back_to_them() {
    let scratch = workshop("exports-ranges");
    let dir = scratch.path();
    let text = exported(dir, "ranges", &["job.trace", "--image", "disk.img"]);
    let list = ranges(&text);
    let size = fs::metadata(dir.join("disk.img")).expect("image").len();
    let mut sorted = list.clone();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{text}");
    assert!(sorted.last().is_some_and(|(offset, length)| offset + length <= size), "{text}");
    // The ranges contain the contents of the files.
    let image = fs::read(dir.join("disk.img")).expect("image");
    let holds = |what: &[u8]| {
        list.iter().any(|&(offset, length)| {
            image[offset as usize..(offset + length) as usize]
                .windows(what.len())
                .any(|w| w == what)
        })
    };
    assert!(holds(&[b'x'; 9000]) && holds(b"spaced"), "{text}");
    // Imported as the log of a device, they give the same files, and the directories of these.
    fs::write(dir.join("job.ranges"), &text).expect("write");
    said(
        dir,
        &["trace", "import", "--blocks", "job.ranges", "--image", "disk.img", "-o", "again.trace"],
    );
    let mut again: Vec<String> =
        exported(dir, "nydus", &["again.trace"]).lines().map(String::from).collect();
    again.sort();
    // The first file has two names; a log of blocks cannot distinguish them.
    assert!(again == ["/bin/a b", "/bin/job"] || again == ["/bin/a b", "/same"], "{again:?}");

    let answer = exported(dir, "ranges", &["job.trace", "--image", "disk.img", "--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["ranges"].as_array().expect("list").len(), list.len());
    assert_eq!(answer["ranges"][0], json!({ "offset": list[0].0, "length": list[0].1 }));

    // On a disk with an offset the ranges count from the beginning of the disk.
    let mut disk = vec![0; 1 << 20];
    disk.extend(&image);
    fs::write(dir.join("cloud.img"), &disk).expect("write");
    let moved = exported(dir, "ranges", &["job.trace", "--image", "cloud.img", "--offset", "1M"]);
    let expected: Vec<(u64, u64)> =
        list.iter().map(|(offset, length)| (offset + (1 << 20), *length)).collect();
    assert_eq!(ranges(&moved), expected);
}

#[test]
fn fio_reads_the_ranges() {
    if !ready("fio") {
        return;
    }
    let scratch = workshop("exports-fio");
    let dir = scratch.path();
    let list = ranges(&exported(dir, "ranges", &["job.trace", "--image", "disk.img"]));
    let bytes: u64 = list.iter().map(|(_, length)| length).sum();
    said(
        dir,
        &[
            "trace",
            "export",
            "--format",
            "fio",
            "job.trace",
            "--image",
            "disk.img",
            "-o",
            "warm.log",
        ],
    );
    let options = ["--name=warm", "--read_iolog=warm.log", "--readonly", "--output-format=json"];
    let output = Command::new("fio").args(options).current_dir(dir).output().expect("fio");
    let told = judges::text(&output);
    let told: Value = serde_json::from_str(&told[told.find('{').expect("JSON")..]).expect("JSON");
    assert_eq!(told["jobs"][0]["error"], 0);
    assert_eq!(told["jobs"][0]["read"]["io_bytes"], bytes);
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let scratch = workshop("exports-refused");
    let dir = scratch.path();
    fs::write(dir.join("none"), "").expect("list");
    said(dir, &["trace", "import", "--paths", "none", "-o", "none.trace"]);
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--format", "ranges", "job.trace"], 2, "needs --image"),
        (&["--format", "nydus", "job.trace", "--partition", "1"], 2, "need --image"),
        (&["--format", "nydus", "job.trace", "--target", "x"], 2, "fio format"),
        (&["--format", "overlaybd", "none.trace"], 4, "contains no files"),
        (&["--format", "ranges", "none.trace", "--image", "disk.img"], 4, "contains no reads"),
        (
            &["--format", "fio", "job.trace", "--image", "disk.img", "--target", "my disk"],
            2,
            "--replay_redirect",
        ),
    ];
    for (args, code, why) in cases {
        let output = run(dir, &[&["trace", "export"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", errors(&output));
        assert!(errors(&output).contains(why), "{args:?}: {}", errors(&output));
    }
}
