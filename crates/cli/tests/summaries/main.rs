//! Summaries in place of traces: one trace and its summary give the same image, byte for byte, in
//! every format; summaries of several are merged, shown and exported.

#[path = "../judges/mod.rs"]
mod judges;

use judges::{Scratch, failure, ready, run, seekless, text};
use seekless_layout::essential::compact;
use seekless_layout::trace::{Event, Reader, Writer, write_packed};
use std::fmt::Write;
use std::fs;
use std::io::BufReader;
use std::path::Path;

/// A generator of numbers: Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

const FILES: u64 = 90;

/// Length of a file of which pieces stay in their places.
const LARGE: u64 = 17 << 20;

/// Path and length of a file.
fn file(number: u64, seed: u64) -> (String, u64) {
    let len = match number {
        0 => LARGE,
        _ => Random(seed * 1000 + number).below(if number.is_multiple_of(5) {
            400_000
        } else {
            20_000
        }),
    };
    (format!("/d{}/f{number}", number % 7), len)
}

fn tree(root: &str, seed: u64, has_links: bool) {
    for number in 0..FILES {
        let (path, len) = file(number, seed);
        let path = format!("{root}{path}");
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        let byte = u8::try_from(number).unwrap();
        fs::write(&path, vec![byte; usize::try_from(len).unwrap()]).unwrap();
        if has_links && number % 9 == 0 {
            let to = format!("../d{}/f{number}", number % 7);
            std::os::unix::fs::symlink(to, format!("{root}/d{}/l{number}", number % 7)).unwrap();
        }
    }
    run("chmod", &["-R", "u=rwX,go=rX", root]);
    run("find", &[root, "-exec", "touch", "-h", "-d", "@1700000000", "{}", "+"]);
}

/// A trace of processes that run at the same time, read parts again and again, fault and list. With
/// `fetched`, some reads are as the kernel fetched them.
fn trace(path: &str, seed: u64, fetched: bool, has_links: bool) {
    let mut random = Random(seed);
    let mut lines = String::from("{\"seekless_trace\":1}\n");
    let mut time = 0;
    for _ in 0..3000 {
        // Pauses, some of them long: stretches of processes that race.
        time += random.below(3) * if random.below(50) == 0 { 100_000 } else { 100 };
        let pid = 1 + random.below(6);
        let number = random.below(FILES / 3) * (1 + random.below(3)) % FILES;
        let (name, len) = file(number, seed);
        let (op, range) = match random.below(16) {
            0 => ("open", None),
            1 => ("stat", None),
            2 => ("exec", None),
            3 => ("lookup", None),
            4 if random.below(3) == 0 => ("read", None),
            5..8 => ("fault", Some((random.below(len / 4096 + 1) * 4096, 4096))),
            8..11 => ("read", Some((random.below(len + 1), 1 + random.below(9000)))),
            _ => ("read", Some((random.below(len / 4096 + 1) * 4096, 4096 << random.below(4)))),
        };
        let (op, name) = match random.below(60) {
            0 => ("readdir", format!("/d{}", number % 7)),
            1 => ("stat", format!("/d{}/missing{}", number % 7, random.below(9))),
            2 if has_links => ("readlink", format!("/d{}/l{}", number % 7, number / 9 * 9)),
            _ => (op, name),
        };
        let comm = pid % 3;
        write!(lines, "{{\"time\":{time},\"pid\":{pid},\"comm\":\"p{comm}\",\"op\":\"{op}\",\"path\":\"{name}\"").unwrap();
        if let Some((offset, length)) = range {
            write!(lines, ",\"offset\":{offset},\"length\":{length}").unwrap();
        }
        if fetched && op != "fault" && random.below(2) == 0 {
            lines.push_str(",\"fetched\":true");
        }
        lines.push_str("}\n");
    }
    fs::write(path, lines).unwrap();
}

/// Runs a command with the trace and with its summary, which must give the same file.
fn both(command: &[&str], scratch: &Scratch, with: &[&str], kind: &str) -> Vec<u8> {
    let images = with.iter().map(|trace| {
        let image = scratch.join("out.img");
        let args = [command, &["--trace", trace, "-o", &image, "--force"]].concat();
        text(&seekless(&args));
        fs::read(image).unwrap()
    });
    let images: Vec<Vec<u8>> = images.collect();
    assert!(images[0] == images[1], "{kind}: the summary gives another image than the trace");
    images[0].clone()
}

#[test]
fn one_trace_and_its_summary_give_the_same_image() {
    let kinds: &[(&str, &[&str], bool)] = &[
        ("ext4", &["--size", "64M"], true),
        ("ext4", &["--size", "64M", "--block-size", "1K"], true),
        ("ufs2", &["--size", "64M"], true),
        ("fat32", &["--size", "96M", "--drop", "owners,modes"], false),
    ];
    for seed in 1..=3 {
        for &(format, options, has_links) in kinds {
            let scratch = Scratch::new("summaries");
            let (root, recorded) = (scratch.join("tree"), scratch.join("t.trace"));
            let (summary, plain) = (scratch.join("t.parquet"), scratch.join("plain.img"));
            tree(&root, seed, has_links);
            trace(&recorded, seed, seed % 2 == 0, has_links);
            text(&seekless(&["trace", "summarize", &recorded, "-o", &summary]));
            let kind = format!("{format} {options:?}, seed {seed}");
            let build = [&["build", &root, "--format", format], options].concat();
            text(&seekless(&[&build[..], &["-o", &plain]].concat()));
            let with = [&*recorded, &*summary];
            let built = both(&build, &scratch, &with, &kind);
            assert!(built != fs::read(&plain).unwrap(), "{kind}: laid out by the trace");
            if format == "ufs2" {
                continue;
            }
            for how in ["disk", "lazy"] {
                let optimize = ["optimize", &plain, "--for", how];
                let optimized = both(&optimize, &scratch, &with, &format!("{kind} {how}"));
                assert!(optimized != fs::read(&plain).unwrap(), "{kind}: laid out by the trace");
            }
        }
    }
}

/// As `record --compact` writes it.
#[test]
fn a_trace_of_first_touches_gives_the_same_image() {
    let scratch = Scratch::new("summaries");
    let (root, plain) = (scratch.join("tree"), scratch.join("plain.img"));
    let (recorded, compacted) = (scratch.join("t.trace"), scratch.join("compact.trace.zst"));
    tree(&root, 1, true);
    text(&seekless(&["build", &root, "--format", "ext4", "--size", "64M", "-o", &plain]));
    for seed in 4..=6 {
        trace(&recorded, seed, seed % 2 == 0, true);
        let whole = Reader::new(BufReader::new(fs::File::open(&recorded).unwrap())).unwrap();
        let whole: Vec<Event> = whole.collect::<Result<_, _>>().unwrap();
        let count = whole.len();
        let first = compact(whole);
        assert!(first.len() * 4 < count * 3, "{} of {count}", first.len());
        let mut out = fs::File::create(&compacted).unwrap();
        write_packed(compacted.as_ref(), &mut out, |out| {
            let mut writer = Writer::new(out, &serde_json::Map::new())?;
            first.iter().try_for_each(|event| writer.write(event))
        })
        .unwrap();
        let with = [&*recorded, &*compacted];
        let build = ["build", &root, "--format", "ext4", "--size", "64M"];
        let built = both(&build, &scratch, &with, &format!("build, seed {seed}"));
        assert!(built != fs::read(&plain).unwrap(), "laid out by the trace");
        both(&["optimize", &plain], &scratch, &with, &format!("optimize, seed {seed}"));
    }
}

/// An access that was made before is passed over where it has no more effect. With other ranges that
/// lead behind the ends of the same files it is another access, and is replayed.
#[test]
fn accesses_that_are_passed_over_have_no_effect() {
    let scratch = Scratch::new("summaries");
    let (root, image) = (scratch.join("tree"), scratch.join("plain.img"));
    tree(&root, 1, true);
    text(&seekless(&["build", &root, "--format", "ext4", "--size", "64M", "-o", &image]));
    let scores = [false, true].map(|differ| {
        let mut random = Random(5);
        let mut lines = String::from("{\"seekless_trace\":1}\n");
        for number in 0..4000 {
            let (name, len) = file(random.below(FILES), 1);
            let (op, offset) = match random.below(8) {
                0 => ("open", 0),
                1 => ("stat", 0),
                2 => ("exec", 0),
                3 => ("fault", len / 4096 * 4096),
                4 => ("read", random.below(len / 4096 + 1) * 4096),
                _ => ("read", len / 4096 / 2 * 4096),
            };
            let more = if differ { number } else { 0 };
            let (pid, time) = (1 + random.below(5), number * 100);
            let length = len - offset + 1 + more;
            let range = format!("\"offset\":{offset},\"length\":{length}");
            let fetched = if random.below(9) == 0 { ",\"fetched\":true" } else { "" };
            writeln!(
                lines,
                "{{\"time\":{time},\"pid\":{pid},\"op\":\"{op}\",\"path\":\"{name}\",{range}{fetched}}}"
            )
            .unwrap();
        }
        let path = scratch.join("t.trace");
        fs::write(&path, lines).unwrap();
        text(&seekless(&["score", &image, "--trace", &path, "--json"]))
    });
    assert_eq!(scores[0], scores[1]);
    assert!(scores[0].contains("\"seeks\""));
}

#[test]
fn summaries_are_merged_shown_and_exported() {
    let scratch = Scratch::new("summaries");
    let traces: Vec<String> = (1..=5).map(|seed| scratch.join(&format!("{seed}.trace"))).collect();
    let mut summaries = Vec::new();
    for (seed, path) in (1..).zip(&traces) {
        trace(path, seed, true, false);
        let summary = path.replace(".trace", ".parquet");
        text(&seekless(&["trace", "summarize", path, "-o", &summary]));
        summaries.push(summary);
    }
    let merged = |inputs: &[&str], name: &str, more: &[&str]| {
        let out = scratch.join(name);
        text(&seekless(&[&["trace", "merge"], inputs, more, &["-o", &out]].concat()));
        out
    };
    let all: Vec<&str> = summaries.iter().map(String::as_str).collect();
    let sum = merged(&all, "all.parquet", &[]);
    let left = merged(&[all[3], all[0]], "left.parquet", &[]);
    let right = merged(&[all[4], &left, all[1]], "right.parquet", &["--memory", "1M"]);
    let again = merged(&[all[2], &right], "again.parquet", &[]);
    assert!(fs::read(&sum).unwrap() == fs::read(again).unwrap(), "another tree of merges");
    let lines = text(&seekless(&["trace", "show", &sum, "--json"]));
    let rows: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().any(|row| row["machines"] == 5));
    // Rows of few machines are gone; other rows are the same.
    let floor = merged(&all, "floor.parquet", &["--min-machines", "3"]);
    let left_over = text(&seekless(&["trace", "show", &floor, "--json"]));
    let count = left_over.lines().count();
    assert_eq!(count, rows.iter().filter(|row| row["machines"].as_u64() >= Some(3)).count());
    assert!(count > 0 && count < rows.len());
    let paths = text(&seekless(&["trace", "export", &sum]));
    assert!(paths.lines().any(|path| path == "/d0/f0"), "{paths}");
    assert!(text(&seekless(&["trace", "show", &sum])).contains("/d0/f0"));

    let mixed = failure(&seekless(&["trace", "merge", &traces[0], all[0], "-o", "x"]));
    assert_eq!(mixed.0, 2, "{}", mixed.1);
    let (code, message) = failure(&seekless(&["trace", "summarize", all[0], "-o", "x"]));
    assert!(code == 2 && message.contains(all[0]), "{message}");
    let whole = fs::read(all[1]).unwrap();
    fs::write(all[1], &whole[..whole.len() - 50]).unwrap();
    let out = scratch.join("none.parquet");
    let (code, message) = failure(&seekless(&["trace", "merge", all[0], all[1], "-o", &out]));
    assert!(code == 3 && message.contains(all[1]), "{code} {message}");
    assert!(!Path::new(&out).exists(), "nothing half written");
}

/// A summary whose data make a decoder panic, though their checksum is right. It was made of one by
/// a byte turned over, as `crates/summary/tests/sums.rs` does, which writes it to the file that the
/// variable SEEKLESS_UNDECODABLE names.
#[test]
fn a_summary_that_cannot_be_decoded_is_named() {
    let scratch = Scratch::new("summaries");
    let path = scratch.join("made.parquet");
    fs::write(&path, include_bytes!("undecodable.parquet")).unwrap();
    let out = scratch.join("none.parquet");
    let ways: [&[&str]; 3] = [
        &["trace", "show", &path],
        &["trace", "merge", &path, "-o", &out],
        &["trace", "export", &path],
    ];
    for way in ways {
        let (code, message) = failure(&seekless(way));
        assert_eq!(code, 3, "{message}");
        assert!(message.contains(&path) && message.contains("cannot be decoded"), "{message}");
    }
    assert!(!Path::new(&out).exists(), "nothing half written");
}

#[test]
fn sizes_of_nothing_are_refused() {
    let ways: [(&str, &[&str]); 5] = [
        ("--memory", &["trace", "merge", "t.trace"]),
        ("--memory", &["crash", "replay", "log"]),
        ("--buffer", &["record", "-o", "t.trace"]),
        ("--max-request", &["score", "disk.img", "--trace", "t.trace"]),
        ("--chunk", &["build", "tree", "--trace", "t.trace", "-o", "disk.img"]),
    ];
    for (option, way) in ways {
        let done = seekless(&[way, &[option, "0M"]].concat());
        let message = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{message}");
        assert!(message.contains("'0M' for '") && message.contains(option), "{message}");
    }
}

#[test]
fn names_of_a_trace_do_not_reach_the_terminal() {
    let scratch = Scratch::new("summaries");
    let (trace, summary) = (scratch.join("t.trace"), scratch.join("t.parquet"));
    let escape = "\\u001b[2J";
    let event = format!("\"comm\":\"c{escape}\",\"op\":\"o{escape}\",\"path\":\"/p{escape}\"");
    fs::write(&trace, format!("{{\"seekless_trace\":1}}\n{{{event}}}\n")).unwrap();
    text(&seekless(&["trace", "summarize", &trace, "-o", &summary]));
    for shown in [&trace, &summary] {
        let shown = text(&seekless(&["trace", "show", shown]));
        assert!(!shown.contains('\x1b') && shown.matches("[2J").count() == 3, "{shown:?}");
    }
}

#[test]
fn compressed_traces_are_read_and_written() {
    let scratch = Scratch::new("summaries");
    let (plain, packed) = (scratch.join("t.trace"), scratch.join("t.trace.zst"));
    trace(&plain, 1, false, false);
    text(&seekless(&["trace", "merge", &plain, "-o", &packed]));
    let merged = scratch.join("merged.trace");
    text(&seekless(&["trace", "merge", &plain, "-o", &merged]));
    if ready("zstd") {
        let unpacked = run("zstd", &["-dcq", &packed]);
        assert_eq!(unpacked, fs::read_to_string(&merged).unwrap(), "by zstd");
    }
    let (one, two) = (scratch.join("1"), scratch.join("2"));
    for (trace, summary) in [(&plain, &one), (&packed, &two)] {
        text(&seekless(&["trace", "summarize", trace, "-o", summary]));
    }
    assert!(fs::read(one).unwrap() == fs::read(two).unwrap());
    let whole = fs::read(&packed).unwrap();
    fs::write(&packed, &whole[..whole.len() - 50]).unwrap();
    let out = scratch.join("none.trace");
    let (code, message) = failure(&seekless(&["trace", "merge", &plain, &packed, "-o", &out]));
    assert!(code == 3 && message.contains(&packed) && message.contains("cut short"), "{message}");
    assert!(!Path::new(&out).exists(), "nothing half written");
}
