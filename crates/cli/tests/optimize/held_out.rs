//! The figures of a run that was not recorded are those of images that were laid out by the other
//! recordings.

use super::judges::{Mounted, Scratch, can_mount, run, seekless, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileExt;

const FILES: u64 = 240;

/// A file of blocks with holes between them: its map has blocks of its own.
fn sparse(path: &str) {
    let file = fs::File::create(path).expect("create");
    for n in 0..700 {
        file.write_all_at(&[7; 4096], n * 8192).expect("write");
    }
}

/// A recording of `command`, whose order is one of its own by `seed`; it reads some of the files.
fn recording(to: &str, command: &str, seed: u64) {
    let mut files: Vec<u64> = (0..FILES).filter(|n| n % 5 != seed % 5).collect();
    // A linear congruential generator by Knuth (The Art of Computer Programming, volume 2).
    let mut state = seed;
    files.sort_by_cached_key(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    });
    let read = |(n, file): (usize, u64)| {
        // The attributes of programs are read.
        let op = if file % 3 == 0 { "exec" } else { "read" };
        json!({ "time": n * 1000, "op": op, "path": format!("/{}/{file}", file % 7), "pid": 1 })
    };
    let page = |n: u64| {
        let offset = (n * 37 + seed) % 700 * 8192;
        json!({
            "time": 1_000_000 + n * 1000, "op": "read", "path": "/sparse", "pid": 2,
            "offset": offset, "length": 4096,
        })
    };
    let header = json!({ "seekless_trace": 1, "command": [command] });
    let events = files.into_iter().enumerate().map(read).chain((0..60).map(page));
    let lines = std::iter::once(header).chain(events);
    fs::write(to, lines.map(|line| format!("{line}\n")).collect::<String>()).expect("write");
}

fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&text(&seekless(&[args, &["--json"]].concat()))).expect("JSON")
}

/// The options for these traces.
fn given<'a>(traces: &[&'a String]) -> Vec<&'a str> {
    traces.iter().flat_map(|trace| ["--trace", trace.as_str()]).collect()
}

/// Gives half of the files one of ten attributes: the kernel stores each once, in a block that several
/// files share.
fn share_attributes(scratch: &Scratch, image: &str) {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(scratch, image, "rw");
    for n in (0..FILES).step_by(2) {
        let value = (n / 2 % 10).to_string().repeat(300);
        let path = format!("{}/{}/{n}", mounted.text(), n % 7);
        run("setfattr", &["-n", "user.label", "-v", &value, &path]);
    }
}

#[test]
fn each_recording_is_scored_where_the_others_lay_out() {
    let scratch = Scratch::new("held-out");
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    for n in 0..FILES {
        let dir = format!("{tree}/{}", n % 7);
        fs::create_dir_all(&dir).expect("mkdir");
        fs::write(format!("{dir}/{n}"), vec![n as u8; 900 + (n * 7919 % 60_000) as usize])
            .expect("write");
    }
    sparse(&format!("{tree}/sparse"));
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "128", "-d", &tree];
    run("mke2fs", &[&options[..], &[&image, "64M"]].concat());
    share_attributes(&scratch, &image);
    let traces: Vec<String> = (1..=4).map(|n| scratch.join(&format!("{n}.trace"))).collect();
    for (trace, seed) in traces.iter().zip(1..) {
        recording(trace, if seed == 4 { "other" } else { "program" }, seed);
    }
    let out = scratch.join("out.img");
    let all: Vec<&String> = traces.iter().collect();
    let optimized =
        json_of(&[&["optimize", &image, "-o", &out, "--force"][..], &given(&all)].concat());
    let [held_out] = optimized["held_out"].as_array().expect("array").as_slice() else {
        panic!("one program has several recordings: {optimized}")
    };
    assert_eq!(held_out["traces"], json!(traces[..3]));
    let keys = ["requests", "seeks", "seek_distance_bytes", "bytes", "chunks"];
    let mut found: [Vec<u64>; 5] = Default::default();
    let attributes = |image: &str| -> Vec<String> {
        let of = |n: u64| run("debugfs", &["-R", &format!("stat /{}/{n}", n % 7), image]);
        let lines = (0..FILES).step_by(6).map(of);
        lines
            .flat_map(|it| it.lines().find(|it| it.contains("File ACL")).map(String::from))
            .collect()
    };
    for left_out in &traces[..3] {
        let others: Vec<&String> = traces.iter().filter(|trace| *trace != left_out).collect();
        let args = [&["optimize", &image, "-o", &out, "--force"][..], &given(&others)].concat();
        text(&seekless(&args));
        if can_mount() {
            let (before, after) = (attributes(&image), attributes(&out));
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
            assert!(before.len() == 40 && moved > 20, "{before:?} {after:?}");
        }
        let score = json_of(&["score", &out, "--trace", left_out, "--order", "recorded"]);
        for (key, found) in keys.iter().zip(&mut found) {
            let figure = if *key == "chunks" { &score[key]["524288"] } else { &score[key] };
            found.push(figure.as_u64().expect("number"));
        }
    }
    for (key, found) in keys.iter().zip(&found) {
        let bounds = json!([found.iter().min(), found.iter().max()]);
        assert_eq!(held_out[key], bounds, "{key}: {found:?}");
    }
    let (least, most) =
        (found[1].iter().min().expect("three"), found[1].iter().max().expect("three"));
    assert!(least < most, "the orders differ");
    let expected: Vec<u64> =
        serde_json::from_value(held_out["expected_seeks"].clone()).expect("pair");
    assert!(expected[0] < *least && expected[1] > *most, "{expected:?}");
    // A copy of a recording changes nothing: the layout may not have the order of the one left out.
    let copy = scratch.join("copy.trace");
    fs::copy(&traces[0], &copy).expect("copy");
    let of = |traces: &[&String]| {
        let args = [&["optimize", &image, "-o", &out, "--force"][..], &given(traces)].concat();
        json_of(&args)["held_out"].clone()
    };
    let two = of(&[&traces[0], &traces[1]]);
    assert!(two[0]["seeks"].is_array());
    assert_eq!(of(&[&traces[0], &traces[1], &copy]), two);
    // The layout has the order of one of them.
    let traces = optimized["traces"].as_array().expect("array").iter();
    let own = traces.map(|trace| trace["after"]["seeks"].as_u64().expect("number")).min();
    let own = own.expect("there are four");
    assert!(own * 2 < *least, "a recording is no measure of other runs: {own}, {least}");
}

#[test]
fn one_recording_tells_no_range() {
    let scratch = Scratch::new("held-out-none");
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    fs::create_dir_all(format!("{tree}/0")).expect("mkdir");
    fs::write(format!("{tree}/0/0"), "0").expect("write");
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &tree, &image, "8M"]);
    let (one, other) = (scratch.join("1.trace"), scratch.join("2.trace"));
    recording(&one, "program", 1);
    recording(&other, "other", 2);
    let out = scratch.join("out.img");
    for traces in [vec![&one], vec![&one, &other]] {
        let args = [&["optimize", &image, "-o", &out, "--force"][..], &given(&traces)].concat();
        assert_eq!(json_of(&args)["held_out"], json!([]));
        assert!(!text(&seekless(&args)).contains("not recorded"));
    }
    // The same events again are no other recording; another order is.
    let again = scratch.join("3.trace");
    recording(&again, "program", 3);
    for (second, expected) in [(&one, false), (&again, true)] {
        let args = ["optimize", &image, "-o", &out, "--force", "--trace", &one, "--trace", second];
        let told = text(&seekless(&args)).contains("a run that was not recorded, by 2 traces as");
        assert_eq!(told, expected);
    }
}

/// A volume of several groups, whose inode tables are used in part.
#[test]
fn a_trace_is_scored_where_the_others_lay_out() {
    let scratch = Scratch::new("held-out-each");
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    for n in 0..4000u64 {
        let dir = format!("{tree}/{}/{}", n % 10, n / 10 % 20);
        fs::create_dir_all(&dir).expect("mkdir");
        fs::write(format!("{dir}/{n}"), vec![n as u8; (n * 7919 % 9_000) as usize]).expect("write");
    }
    let options = ["-q", "-F", "-t", "ext4", "-b", "1024", "-g", "4096", "-G", "2", "-d", &tree];
    run("mke2fs", &[&options[..], &[&image, "64M"]].concat());
    // Each reads some of the files of a directory that the others do not read.
    let traces: Vec<String> = (0..3).map(|n| scratch.join(&format!("{n}.trace"))).collect();
    for (trace, seed) in traces.iter().zip(0u64..) {
        let header = json!({ "seekless_trace": 1 });
        let read = |n: u64| {
            let n = if n.is_multiple_of(3) { n * 10 + seed } else { n * 10 + 7 };
            let path = format!("/{}/{}/{n}", n % 10, n / 10 % 20);
            json!({ "time": n * 1000, "op": "read", "path": path, "pid": 1 })
        };
        let lines = std::iter::once(header).chain((0..400).map(read));
        fs::write(trace, lines.map(|line| format!("{line}\n")).collect::<String>()).expect("write");
    }
    let out = scratch.join("out.img");
    let all: Vec<&String> = traces.iter().collect();
    let args =
        [&["optimize", &image, "-o", &out, "--holdout", "--force"][..], &given(&all)].concat();
    let optimized = json_of(&args);
    for (at, left_out) in traces.iter().enumerate() {
        let others: Vec<&String> = traces.iter().filter(|trace| *trace != left_out).collect();
        let args = [&["optimize", &image, "-o", &out, "--force"][..], &given(&others)].concat();
        text(&seekless(&args));
        let score = json_of(&["score", &out, "--trace", left_out]);
        let held_out = &optimized["traces"][at]["held_out"];
        for key in ["requests", "metadata_requests", "seeks", "seek_distance_bytes", "bytes"] {
            assert_eq!(held_out[key], score[key], "{key} of {left_out}");
        }
        assert_eq!(held_out["chunks"]["524288"], score["chunks"]["524288"]);
        let seeks = |of: &str| optimized["traces"][at][of]["seeks"].as_u64().expect("number");
        assert!(seeks("after") < seeks("held_out") && seeks("held_out") < seeks("before"));
    }
    let shown = text(&seekless(&args));
    assert_eq!(shown.matches("before         after    without it").count(), 3, "{shown}");
    assert!(json_of(&[&args[..4], &args[5..]].concat())["traces"][0].get("held_out").is_none());
}

#[test]
fn a_trace_without_others_is_refused() {
    let scratch = Scratch::new("held-out-refused");
    let (ext, fat) = (scratch.join("a.img"), scratch.join("f.img"));
    run("mke2fs", &["-q", "-F", "-t", "ext4", &ext, "8M"]);
    fs::File::create(&fat).and_then(|file| file.set_len(8 << 20)).expect("create");
    run("mkfs.fat", &[&fat]);
    let (one, other) = (scratch.join("1.trace"), scratch.join("2.trace"));
    recording(&one, "program", 1);
    recording(&other, "program", 2);
    let out = scratch.join("out.img");
    for (image, second, code, why) in [
        (&ext, &one, 2, "--holdout needs two traces with different events"),
        (&fat, &other, 4, "--holdout supports ext images without bigalloc only"),
    ] {
        let args = ["optimize", image, "-o", &out, "--holdout", "--trace", &one, "--trace", second];
        let ran = seekless(&args);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(why), "{ran:?}");
        assert!(!std::path::Path::new(&out).exists());
    }
}
