//! Chunks that are read ahead, as a modelled disk sees them.

use super::judges::{failure, run, seekless, text};
use super::{Device, scene};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const CHUNK: u64 = 64 << 10;

/// The chunks that a list of `trace export` names.
fn listed(path: &str) -> Vec<u64> {
    let text = fs::read_to_string(path).expect("read");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let offset = |line: &str| line.split(' ').next().and_then(|word| word.parse::<u64>().ok());
    lines.map(|line| offset(line).expect("offset") / CHUNK).collect()
}

/// The list has each chunk once that a kernel reads for the trace; all of them are read, of devices
/// and of files; a list of another volume is refused.
#[test]
fn listed_chunks_are_read_ahead() {
    let Some((scratch, tree)) = scene("prefetch") else { return };
    let (image, trace) = (scratch.join("a.img"), scratch.join("a.trace"));
    let (paths, list) = (scratch.join("paths"), scratch.join("list"));
    fs::create_dir_all(format!("{tree}/many")).expect("mkdir");
    for n in 0..200 {
        fs::write(format!("{tree}/many/{n}"), vec![7; 5000 + n * 40]).expect("write");
    }
    text(&seekless(&["build", &tree, "-o", &image, "--size", "64M"]));
    let wanted: String = (0..200).step_by(9).map(|n| format!("/many/{n}\n")).collect();
    fs::write(&paths, wanted).expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let export = ["trace", "export", "--format", "chunks", "--chunk", "64K", "--image", &image];
    text(&seekless(&[&export[..], &[&trace, "-o", &list]].concat()));
    let chunks = listed(&list);
    let distinct: BTreeSet<u64> = chunks.iter().copied().collect();
    assert!(distinct.len() == chunks.len() && chunks.len() > 15, "{chunks:?}");
    // As the score counts them.
    let score = text(&seekless(&["score", &image, "--trace", &trace, "--chunk", "64K", "--json"]));
    let score: Value = serde_json::from_str(&score).expect("JSON");
    assert_eq!(score["chunks"]["65536"], chunks.len());

    let told = text(&seekless(&["prefetch", &list, &image, "--json"]));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        (&told["parts"], &told["bytes"]),
        (&chunks.len().into(), &(chunks.len() as u64 * CHUNK).into())
    );
    let device = Device::new(&scratch, "disk", 64 << 20);
    run("cp", &[&image, device.path()]);
    let user = ["--user", device.path(), "--window", "1M", "--readers", "3"];
    let told =
        text(&seekless(&[&["prefetch", &list, device.path(), "--json"][..], &user].concat()));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    // The command's own reads are not taken for the user's. (udev may read a new device.)
    let count = |key: &str| told[key].as_u64().expect("a count") as usize;
    assert_eq!(count("parts") + count("passed"), chunks.len(), "{told}");
    assert!(count("passed") < chunks.len() / 4, "{told}");

    run("truncate", &["-s", "63M", &image]);
    let (code, why) = failure(&seekless(&["prefetch", &list, &image]));
    assert!(code == 2 && why.contains("another volume"), "{code} {why}");
    fs::write(&list, "1 2 3\n").expect("write");
    let (code, why) = failure(&seekless(&["prefetch", &list, &image]));
    assert!(code == 3 && why.contains("line 1"), "{code} {why}");
}
