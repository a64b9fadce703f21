//! Large files that a trace reads in small pieces stay whole, unless chunks are all that counts.

use super::judges::{Scratch, manifest, run, same, seekless, text, timeless};
use serde_json::{Value, json};
use std::fs;

/// Bytes of the file, and of a read.
const LEN: u64 = 100_000_000;
const PAGE: u64 = 4096;

/// 1,000 reads of a page, at places without a pattern.
fn random_reads(path: &str, to: &str) {
    let pages = LEN / PAGE;
    let read = |n: u64| {
        // A prime: no page twice, and hardly two beside each other.
        let page = n * 10_007 % pages;
        json!({
            "time": n * 1000, "op": "read", "path": path, "pid": 1,
            "offset": page * PAGE, "length": PAGE,
        })
    };
    let lines = std::iter::once(json!({ "seekless_trace": 1 })).chain((1..=1000).map(read));
    fs::write(to, lines.map(|line| format!("{line}\n")).collect::<String>()).expect("write");
}

/// Extents of a file, as debugfs counts them.
fn extents(image: &str, path: &str) -> usize {
    let listed = run("debugfs", &["-R", &format!("ex {path}"), image]);
    // Level, entry and range of entries: leaves are at the last level.
    let is_leaf = |line: &&str| {
        let level: Vec<&str> = line.split_whitespace().take(2).collect();
        matches!(level[..], [here, last] if here.trim_end_matches('/') == last)
            && !line.contains("Level")
    };
    listed.lines().filter(is_leaf).count()
}

fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&text(&seekless(&[args, &["--json"]].concat()))).expect("JSON")
}

/// Chunks of the trace, and seconds of a read of the whole file on a disk.
fn prices(image: &str, trace: &str, whole: &str) -> (u64, f64) {
    let read = json_of(&["score", image, "--trace", trace]);
    let all = json_of(&["score", image, "--trace", whole, "--device", "sata-7200"]);
    let chunks = read["chunks"]["524288"].as_u64().expect("chunks");
    (chunks, all["devices"][0]["seconds"].as_f64().expect("seconds"))
}

#[test]
fn a_large_file_that_is_read_at_random_stays_whole() {
    let scratch = Scratch::new("scattered");
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    fs::create_dir_all(&tree).expect("mkdir");
    let contents: Vec<u8> = (0..LEN).map(|n| (n / 3 % 251) as u8).collect();
    fs::write(format!("{tree}/db"), contents).expect("write");
    for n in 0..200 {
        fs::write(format!("{tree}/{n}"), vec![n; 9000]).expect("write");
    }
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &tree, &image, "256M"]);
    let (trace, whole) = (scratch.join("random"), scratch.join("whole"));
    random_reads("/db", &trace);
    let paths = scratch.join("paths");
    fs::write(&paths, "/db\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &whole]));
    let (chunks, seconds) = prices(&image, &trace, &whole);
    let wanted = manifest(&image, &[]);

    let check = |image: &str, is_whole: bool| {
        run("e2fsck", &["-fn", image]);
        same(image, &timeless(&wanted), &timeless(&manifest(image, &[])));
        let (found, time) = prices(image, &trace, &whole);
        let count = extents(image, "/db");
        println!("{image}: {count} extents, {found} chunks for {chunks}, {time} s for {seconds}");
        if is_whole {
            assert!(count <= 40 && time <= seconds * 1.1, "{count} extents, {time} for {seconds}");
            assert!(found <= chunks + 1, "{found} chunks for {chunks}");
        } else {
            assert!(count > 1000 && time > seconds * 5.0, "{count} extents, {time} for {seconds}");
            assert!(found < chunks / 10, "{found} chunks for {chunks}");
        }
    };
    let new = scratch.join("new");
    let said = json_of(&["optimize", &image, "--trace", &trace, "-o", &new]);
    check(&new, true);
    let file = &said["scattered"][0];
    let bytes = file["bytes"].as_u64().expect("bytes");
    assert!(file["path"] == "/db" && (LEN..LEN + PAGE).contains(&bytes), "{said}");
    let ranges = file["ranges"].as_u64().expect("ranges");
    assert!((900..1000).contains(&ranges) && file["seeks_if_moved"] == ranges * 2, "{said}");
    assert!(file["chunks"].as_u64() > file["chunks_if_moved"].as_u64(), "{said}");
    let lazy = ["--for", "lazy", "--force"];
    let said = json_of(&[&["optimize", &image, "--trace", &trace, "-o", &new][..], &lazy].concat());
    assert_eq!(said["scattered"], json!([]));
    check(&new, false);
    for (for_what, is_whole) in [("disk", true), ("lazy", false)] {
        text(&seekless(
            &["build", &tree, "-o", &new, "--trace", &trace, "--for", for_what]
                .iter()
                .chain(&["--force"])
                .copied()
                .collect::<Vec<_>>(),
        ));
        let (found, time) = prices(&new, &trace, &whole);
        assert_eq!(extents(&new, "/db") <= 40, is_whole, "{for_what}");
        assert_eq!(time <= seconds * 1.1, is_whole, "{for_what}: {time} for {seconds}");
        assert_eq!(found < chunks / 10, !is_whole, "{for_what}: {found} chunks for {chunks}");
    }
    let told = text(&seekless(&["optimize", &image, "--trace", &trace, "--in-place"]));
    assert!(told.contains("/db (95.3M)") && told.contains("--for lazy"), "{told}");
    check(&image, true);
}
