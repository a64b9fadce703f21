//! `score` and `map`: figures that can be verified by the requests, and a page that is opened in a
//! browser.

#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;

mod compare;
mod store;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn seekless(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seekless")).args(args).current_dir(dir).output().unwrap()
}

fn text(args: &[&str], dir: &Path) -> String {
    let output = seekless(args, dir);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str], dir: &Path) -> Value {
    serde_json::from_str(&text(args, dir)).unwrap()
}

const DIRS: usize = 40;
const FILES: usize = 12;

/// Paths of files to read, in an order unlike that of their names; one contains markup, one is not
/// UTF-8, and one does not exist.
fn paths() -> Vec<String> {
    let name = |at: usize| format!("/dir{:02}/file{:02}", at / FILES, at % FILES);
    let mut paths: Vec<String> = (0..DIRS * FILES).map(|at| name(at * 191 % 480)).collect();
    paths.truncate(200);
    paths.push("/dir01/<script>alert(1)<\\/script>".replace("\\/", "\u{2215}"));
    paths.push("\"/dir02/\\377\\376\"".into());
    paths.push("/not/there".into());
    paths
}

/// Two images of one tree: `old.img`, and one laid out for `job.trace`.
fn prepare(dir: &Path) {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for at in 0..DIRS {
        let sub = dir.join(format!("tree/dir{at:02}"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..FILES {
            let len = 700 + (at * FILES + file) * 97 % 50_000;
            fs::write(sub.join(format!("file{file:02}")), vec![file as u8; len]).unwrap();
        }
    }
    let odd = paths().into_iter().find(|path| path.contains('<')).unwrap();
    fs::write(dir.join(format!("tree{odd}")), vec![1; 9000]).unwrap();
    fs::write(dir.join("tree/dir02").join(OsStr::from_bytes(b"\xFF\xFE")), vec![2; 9000]).unwrap();
    fs::write(dir.join("paths"), paths().join("\n") + "\n").unwrap();
    text(&["build", "tree", "-o", "old.img", "--size", "128M"], dir);
    text(&["trace", "import", "--paths", "paths", "-o", "job.trace"], dir);
    text(&["optimize", "old.img", "--trace", "job.trace", "-o", "new.img"], dir);
}

fn log(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sum(log: &[Value], key: &str) -> u64 {
    log.iter().map(|line| line[key].as_u64().unwrap()).sum()
}

fn count(log: &[Value], wanted: impl Fn(&Value) -> bool) -> u64 {
    log.iter().filter(|line| wanted(line)).count() as u64
}

#[test]
fn the_log_of_requests_adds_up_to_the_score() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let args = ["score", "old.img", "--trace", "job.trace", "--chunk", "512K", "--chunk", "64K"];
    let score = json(&[&args[..], &["--json", "--explain", "--io-log", "io"]].concat(), dir);
    let log = log(&dir.join("io"));
    assert_eq!(score["requests"], log.len());
    assert_eq!(score["bytes"], sum(&log, "bytes"));
    assert_eq!(score["seek_distance_bytes"], sum(&log, "seek_distance_bytes"));
    assert_eq!(score["seeks"], count(&log, |line| line["seek_distance_bytes"] != 0));
    assert_eq!(score["data_requests"], count(&log, |line| line["purpose"] == "data"));
    assert_eq!(score["metadata_requests"], count(&log, |line| line["purpose"] != "data"));
    for size in [64 << 10, 512 << 10] {
        let range = |line: &Value| {
            let (from, len) = (line["offset"].as_u64().unwrap(), line["bytes"].as_u64().unwrap());
            from / size..=(from + len - 1) / size
        };
        let chunks: BTreeSet<u64> = log.iter().flat_map(range).collect();
        assert_eq!(score["chunks"][size.to_string()], chunks.len());
        let floor = score["bytes"].as_u64().unwrap().div_ceil(size);
        assert_eq!(score["chunks_floor"][size.to_string()], floor);
    }
    let explained = |key: &str| -> u64 {
        let rows = score["by_purpose"].as_object().unwrap().values();
        rows.map(|row| row[key].as_u64().unwrap()).sum()
    };
    assert_eq!(
        [score["requests"].clone(), score["seeks"].clone()],
        [explained("requests"), explained("seeks")]
    );
    assert_eq!(score["missing"], serde_json::json!(["/not/there"]));
    check_paths(&log);
    check_blocks(&log, dir);
}

/// Each file that was read is in the log under its own name.
fn check_paths(log: &[Value]) {
    let data: BTreeSet<&str> = log
        .iter()
        .filter(|line| line["purpose"] == "data")
        .filter_map(|l| l["path"].as_str())
        .collect();
    assert!(data.contains("/dir02/\\377\\376"), "{data:?}");
    let plain = paths().into_iter().filter(|path| !path.starts_with('"') && path != "/not/there");
    for path in plain {
        assert!(data.contains(path.as_str()), "{path} is not among {data:?}");
    }
    let sequence: Vec<u64> = log.iter().filter_map(|line| line["sequence"].as_u64()).collect();
    assert_eq!(sequence, (0..log.len() as u64).collect::<Vec<_>>());
}

/// The blocks of a file in the log agree with those that debugfs prints.
fn check_blocks(log: &[Value], dir: &Path) {
    let path = &paths()[5];
    let Ok(found) = Command::new("debugfs")
        .args(["-R", &format!("blocks {path}"), "old.img"])
        .current_dir(dir)
        .output()
    else {
        return println!("not compared: debugfs is not installed");
    };
    let expected: Vec<u64> = String::from_utf8(found.stdout)
        .unwrap()
        .split_whitespace()
        .map(|block| block.parse().unwrap())
        .collect();
    let wanted = |line: &&Value| line["path"] == **path && line["purpose"] == "data";
    let logged: Vec<u64> = log
        .iter()
        .filter(wanted)
        .flat_map(|line| {
            let start = line["block"].as_u64().unwrap();
            start..start + line["blocks"].as_u64().unwrap()
        })
        .collect();
    assert!(!logged.is_empty());
    assert_eq!(logged, expected);
}

#[test]
fn two_images_stand_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let args = ["score", "old.img", "new.img", "--trace", "job.trace"];
    let both = json(&[&args[..], &["--json"]].concat(), dir);
    assert_eq!((&both["a"]["image"], &both["b"]["image"]), (&"old.img".into(), &"new.img".into()));
    let seeks = |of: &str| both[of]["seeks"].as_u64().unwrap();
    assert!(seeks("b") * 4 < seeks("a"), "{} to {}", seeks("a"), seeks("b"));
    let shown = text(&args, dir);
    let row = shown.lines().find(|line| line.starts_with("seeks ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let ratio = seeks("b") as f64 / seeks("a") as f64;
    let ratio = if ratio < 0.1 { format!("{ratio:.4}") } else { format!("{ratio:.2}") };
    assert_eq!(cells, ["seeks", &seeks("a").to_string(), &seeks("b").to_string(), &ratio]);
    assert!(shown.contains("\nprefetch seeks ") && shown.contains("\nprefetch: cost of reading"));
    assert!(shown.contains("/not/there"));
}

#[test]
fn the_map_accounts_for_every_block() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let map = json(&["map", "old.img", "--trace", "job.trace", "--json"], dir);
    let info = json(&["info", "old.img", "--json"], dir);
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for group in map["groups"].as_array().unwrap() {
        for key in ["blocks", "metadata", "directories", "data", "internal", "free", "read"] {
            *sums.entry(key).or_default() += group[key].as_u64().unwrap();
        }
    }
    assert_eq!(info["blocks"], sums["blocks"]);
    assert_eq!(info["free_blocks"], sums["free"]);
    let parts = ["metadata", "directories", "data", "internal", "free"];
    assert_eq!(sums["blocks"], parts.iter().map(|part| sums[part]).sum::<u64>());
    // lost+found is as large as with mke2fs; the other directories have a block each.
    assert!(sums["directories"] > DIRS as u64);
    let score = json(&["score", "old.img", "--trace", "job.trace", "--json"], dir);
    assert_eq!(score["bytes"], sums["read"] * 4096);
    let drawn = text(&["map", "old.img", "--trace", "job.trace", "--width", "60"], dir);
    assert!(drawn.lines().any(|line| line.starts_with("0 ") && line.contains('F')), "{drawn}");
    assert!(!drawn.contains('\x1b'), "colours without a terminal");
    let timed = ["old.img", "--trace", "job.trace", "--device", "sata-7200"];
    let score = json(&[&["score", "--json"], &timed[..]].concat(), dir);
    let map = json(&[&["map", "--json"], &timed[..]].concat(), dir);
    assert_eq!(map["devices"], score["devices"]);
    let drawn = text(&[&["map"], &timed[..]].concat(), dir);
    // The picture's sum is the time of the replay: nothing works when there is no think time.
    text(&[&["score", "--boot-chart", "boot.svg"], &timed[..]].concat(), dir);
    let chart = fs::read_to_string(dir.join("boot.svg")).unwrap();
    let says = format!("disk, {:.2} s<", score["devices"][0]["seconds"].as_f64().unwrap());
    assert!(chart.contains(&says) && chart.contains("processor, 0.00 s<"), "{says}: {chart}");
    let bytes = fs::read(dir.join("old.img")).unwrap();
    for (option, file) in ["--boot-chart", "--io-log"]
        .into_iter()
        .flat_map(|option| ["old.img", "./job.trace"].map(|file| (option, file)))
    {
        let refused = seekless(&[&["score", option, file], &timed[..]].concat(), dir);
        assert_eq!(refused.status.code(), Some(2), "{option} {file}");
    }
    let both = ["score", "--io-log", "new", "--boot-chart", "./new"];
    assert_eq!(seekless(&[&both, &timed[..]].concat(), dir).status.code(), Some(2));
    assert!(fs::read(dir.join("old.img")).unwrap() == bytes, "the image was overwritten");
    let seconds = score["devices"][0]["seconds"].as_f64().unwrap();
    assert!(drawn.ends_with(&format!("\nold.img: {seconds:.2} s on sata-7200\n")), "{drawn}");
}

#[test]
fn groups_without_files_are_one_row_of_the_map() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), vec![7; 100_000]).unwrap();
    text(&["build", "tree", "-o", "large.img", "--size", "2G", "-q"], dir);
    let drawn = text(&["map", "large.img"], dir);
    let rows: Vec<&str> = drawn.lines().filter(|line| line.ends_with('%')).collect();
    let folded: Vec<&&str> =
        rows.iter().filter(|row| row.contains("rows without files)")).collect();
    assert!(rows.len() < 16 && !folded.is_empty(), "{drawn}");
    // No group is missing: folded ones are counted.
    let hidden = |row: &&&str| row.split_once('(')?.1.split_once(' ')?.0.parse::<usize>().ok();
    let hidden: usize = folded.iter().filter_map(hidden).sum();
    assert_eq!(rows.len() - folded.len() + hidden, 16, "{drawn}");
}

/// Runs Debian's browser without a window; `None` if it is not installed.
fn browser(dir: &Path, extra: &[&str]) -> Option<Output> {
    let profile = format!("--user-data-dir={}", dir.join("profile").display());
    let page = format!("file://{}", dir.join("map.html").display());
    let ran = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--timeout=20000", &profile])
        .args(extra)
        .arg(page)
        .output();
    match ran {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(output)
        }
        Err(_) => {
            skip::skip("chromium is not installed");
            None
        }
    }
}

#[test]
fn a_browser_shows_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let both = ["old.img", "new.img", "--trace", "job.trace", "--device", "sata-7200"];
    text(&[&["map", "--html", "map.html"], &both[..]].concat(), dir);
    let page = fs::read_to_string(dir.join("map.html")).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains("http"), "something from outside");
    let png = dir.join("page.png");
    let screenshot = format!("--screenshot={}", png.display());
    let Some(_) = browser(dir, &["--window-size=1366,1400", &screenshot]) else { return };
    check_picture(&png);
    let Some(dom) = browser(dir, &["--dump-dom"]) else { return };
    let dom = String::from_utf8(dom.stdout).unwrap();
    // Computed by the script of the page from the requests, not written into it.
    let both = json(&[&["score", "--json"], &both[..]].concat(), dir);
    for (at, image) in ["a", "b"].into_iter().enumerate() {
        let (requests, seeks) = (&both[image]["requests"], &both[image]["seeks"]);
        let counts =
            format!("id=\"counts-{at}\"><b>{requests}</b> requests, <b>{seeks}</b> seeks, <b>");
        assert!(!page.contains(&counts) && dom.contains(&counts), "{counts} is not in\n{dom}");
        let seconds = both[image]["devices"][0]["seconds"].as_f64().unwrap();
        let time = format!(" read, <b>{seconds:.2}</b> s on sata-7200</p>");
        assert!(dom.contains(&time), "{time} is not in\n{dom}");
    }
    // Keys step through the requests, like a pointer.
    let keys = "<script>for (const id of [\"map-0\", \"plot-1\"]) {\n\
        const picture = document.getElementById(id);\n\
        for (const key of [\"ArrowRight\", \"ArrowRight\"])\n\
        picture.dispatchEvent(new KeyboardEvent(\"keydown\", { key }));\n\
        picture.after(document.getElementById(\"tip\").cloneNode(true));\n}</script></body>";
    fs::write(dir.join("map.html"), page.replace("</body>", keys)).unwrap();
    let Some(dom) = browser(dir, &["--dump-dom"]) else { return };
    let dom = String::from_utf8(dom.stdout).unwrap();
    assert!(dom.matches("\nrequest 2: ").count() >= 2, "no request is told of in\n{dom}");
}

/// A sequential layout is faster than a scattered one on any disk.
#[test]
fn no_disk_finds_the_image_laid_out_for_the_trace_slower() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let presets = json(&["model", "list", "--json"], dir);
    let disk = |one: &&Value| one["kind"] == "hdd";
    let disks: Vec<&str> =
        presets["presets"].as_array().unwrap().iter().filter(disk).map(name).collect();
    assert!(disks.len() >= 10, "{disks:?}");
    let mut args = vec!["score", "old.img", "new.img", "--trace", "job.trace", "--json"];
    args.extend(disks.iter().flat_map(|disk| ["--device", disk]));
    let both = json(&args, dir);
    let seconds = |image: &str, at: usize| both[image]["devices"][at]["seconds"].as_f64().unwrap();
    for (at, disk) in disks.iter().enumerate() {
        let (old, new) = (seconds("a", at), seconds("b", at));
        assert!(new < 0.7 * old, "{disk}: {old} s as built, {new} s laid out anew");
    }
}

fn name(preset: &Value) -> &str {
    preset["name"].as_str().unwrap()
}

/// The picture has the size of the window, and is not empty.
fn check_picture(png: &Path) {
    let file = std::io::BufReader::new(fs::File::open(png).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((frame.width, frame.height), (1366, 1400));
    let samples = frame.color_type.samples();
    let colours: BTreeSet<&[u8]> = pixels.chunks_exact(samples).collect();
    assert!(colours.len() > 50, "only {} colours", colours.len());
    // The map of the old image, right of its labels, contains the colours of the read path, from
    // the first (bluish) to the last (orange).
    let saturated = |wanted: fn(i32, i32, i32) -> bool| {
        let of = |pixel: &&[u8]| wanted(pixel[0].into(), pixel[1].into(), pixel[2].into());
        pixels.chunks_exact(samples).filter(of).count()
    };
    assert!(saturated(|r, g, b| b > r + 80 && b > g + 80) > 200, "nothing read early");
    assert!(saturated(|r, g, b| r > b + 120 && g > b + 60) > 200, "nothing read late");
}

/// Fetches that a kernel was observed to make include its read-ahead; a program's requests do not.
#[test]
fn of_what_was_fetched_nothing_is_read_ahead_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), vec![3; 1 << 20]).unwrap();
    text(&["build", "tree", "-o", "disk.img"], dir);
    let requests = |op: &str, fetched: bool| -> Vec<(u64, u64)> {
        let mut trace = String::from("{\"seekless_trace\":1}\n");
        for (offset, length) in [(0, 4096), (65536, 131_072), (61440, 8192)] {
            let event = serde_json::json!({
                "op": op, "path": "/file", "offset": offset, "length": length, "fetched": fetched,
            });
            trace += &format!("{event}\n");
        }
        fs::write(dir.join("trace"), trace).unwrap();
        text(&["score", "disk.img", "--trace", "trace", "--io-log", "log"], dir);
        let data = log(&dir.join("log")).into_iter().filter(|line| line["purpose"] == "data");
        let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
        data.map(|line| (number(&line, "block"), number(&line, "blocks"))).collect()
    };
    for op in ["read", "fault"] {
        let exact = requests(op, true);
        let start = exact[0].0;
        assert_eq!(exact, [(start, 1), (start + 16, 32), (start + 15, 1)], "{op}");
        let more: u64 = requests(op, false).iter().map(|(_, blocks)| blocks).sum();
        assert!(more > 34, "{op}: {more} blocks with read-ahead");
    }
}

/// The ranges that a score requests from a device, in bytes.
fn ranges(image: &str, trace: &str, dir: &Path) -> Vec<(u64, u64)> {
    text(&["score", image, "--trace", trace, "--io-log", "ranges.log"], dir);
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
    let block_size = json(&["info", image, "--json"], dir)["block_size"].as_u64().unwrap();
    log(&dir.join("ranges.log"))
        .iter()
        .map(|line| (number(line, "block") * block_size, number(line, "blocks") * block_size))
        .collect()
}

fn import(log: &str, image: &str, more: &[&str], dir: &Path) -> (Option<i32>, Value) {
    let args =
        ["trace", "import", "--blocks", log, "--image", image, "-o", "blocks.trace", "--json"];
    let output = seekless(&[&args, more].concat(), dir);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = said.lines().next().unwrap_or_default();
    (output.status.code(), serde_json::from_str(first).unwrap_or(Value::String(said)))
}

/// Symlinks and empty files have no blocks other than those of their inodes: reads of these lead
/// back to the files.
#[test]
fn inodes_alone_are_found_in_a_log_of_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("tree/links")).unwrap();
    fs::create_dir_all(dir.join("tree/data")).unwrap();
    for n in 0..3000 {
        fs::write(dir.join(format!("tree/data/{n}")), vec![7; 300]).unwrap();
        std::os::unix::fs::symlink(format!("../data/{n}"), dir.join(format!("tree/links/{n}")))
            .unwrap();
    }
    // The same times, and therefore the same locations, in every run.
    let mut touch = Command::new("find");
    touch.args(["tree", "-exec", "touch", "-h", "-d", "@1000000000", "{}", "+"]).current_dir(dir);
    assert!(touch.status().unwrap().success());
    text(&["build", "tree", "-o", "old.img"], dir);
    let mut trace = String::from("{\"seekless_trace\":1}\n");
    for n in [3, 250, 2999] {
        let path = format!("/links/{n}");
        trace += &format!("{{\"time\":{n},\"op\":\"lookup\",\"path\":\"{path}\"}}\n");
    }
    trace += "{\"time\":3700,\"op\":\"read\",\"path\":\"/data/5\",\"offset\":0,\"length\":300}\n";
    fs::write(dir.join("job.trace"), trace).unwrap();
    let asked = ranges("old.img", "job.trace", dir);
    let lines = asked.iter().map(|(offset, length)| format!("{offset} {length}\n"));
    fs::write(dir.join("ranges"), lines.collect::<String>()).unwrap();
    let (code, said) = import("ranges", "old.img", &[], dir);
    assert_eq!(code, Some(0), "{said}");
    let events = log(&dir.join("blocks.trace"));
    let paths: Vec<&str> = events.iter().filter_map(|event| event["path"].as_str()).collect();
    for path in ["/links/3", "/links/250", "/links/2999", "/data/5"] {
        assert!(paths.contains(&path), "no {path} in {paths:?}");
    }
    // At most the files of one inode block each, without those of blocks read around it.
    let links = paths.iter().filter(|path| path.starts_with("/links/")).count();
    assert!((3..=3 * 16).contains(&links), "{links} links");
    let place = |path: &str| paths.iter().position(|other| *other == path);
    assert!(place("/links/3") < place("/links/2999") && place("/links/2999") < place("/data/5"));
    text(&["optimize", "old.img", "--trace", "blocks.trace", "-o", "new.img"], dir);
    let scores = json(&["score", "old.img", "new.img", "--trace", "job.trace", "--json"], dir);
    let seeks = |of: &str| scores[of]["seeks"].as_u64().unwrap();
    assert!(seeks("b") < seeks("a"), "{scores}");
}

/// Requests to a device lead back to files: an image laid out by them is as good as one laid out by
/// the program's accesses.
#[test]
fn a_log_of_a_device_becomes_a_trace_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir);
    let asked = ranges("old.img", "job.trace", dir);
    let write = |skip: u64| {
        let lines = asked.iter().map(|(offset, length)| format!("{} {length}\n", offset + skip));
        fs::write(dir.join("ranges"), lines.collect::<String>()).unwrap();
    };
    write(0);
    let (code, said) = import("ranges", "old.img", &[], dir);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said["reads"], asked.len());
    assert_eq!((&said["free"], &said["outside"]), (&0.into(), &0.into()), "{said}");
    assert_eq!(said["bytes"], asked.iter().map(|(_, length)| length).sum::<u64>());
    let first = fs::read(dir.join("blocks.trace")).unwrap();
    text(&["optimize", "old.img", "--trace", "blocks.trace", "-o", "blocks.img"], dir);
    let scores = json(&["score", "new.img", "blocks.img", "--trace", "job.trace", "--json"], dir);
    assert_eq!(scores["a"]["seeks"], scores["b"]["seeks"], "{scores}");
    assert_eq!(scores["a"]["chunks"], scores["b"]["chunks"], "{scores}");

    // Reads outside of files are kept as well, each time they occur, in their place in the order.
    let text_of = |lines: String| fs::write(dir.join("ranges"), lines).unwrap();
    let lines = asked.iter().map(|(offset, length)| format!("{offset} {length}\n"));
    text_of(["0 4096\n", &lines.collect::<String>(), "0 4096\n"].concat());
    let (code, said) = import("ranges", "old.img", &[], dir);
    assert_eq!(code, Some(0), "{said}");
    let events = log(&dir.join("blocks.trace"));
    assert_eq!(events.iter().filter(|event| event["op"] == "device").count(), 2);
    let both = ["score", "old.img", "blocks.img", "--trace", "blocks.trace", "--explain", "--json"];
    let scores = json(&both, dir);
    for one in ["a", "b"] {
        assert_eq!(scores[one]["by_purpose"]["device"]["requests"], 2, "{scores}");
    }
    // A log without reads of these files is refused.
    text_of("0 4096\n".into());
    assert_eq!(import("ranges", "old.img", &[], dir).0, Some(3));

    // A log of a partition gives the same trace, with the offset of the partition.
    write(1 << 20);
    let (code, _) = import("ranges", "old.img", &["--offset", "1M"], dir);
    assert_eq!(code, Some(0));
    assert!(fs::read(dir.join("blocks.trace")).unwrap() == first);

    // A warning if most of it does not fit.
    let output = seekless(
        &[
            "trace", "import", "--blocks", "ranges", "--image", "old.img", "--offset", "40M", "-o",
            "t",
        ],
        dir,
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("the log of another image"), "{errors}");
    for (text, wanted) in [
        ("neither\nof the two\n", "no reads of a device"),
        ("999999999999 4096\n", "none of the reads is of a file"),
    ] {
        fs::write(dir.join("odd"), text).unwrap();
        let (code, said) = import("odd", "old.img", &[], dir);
        assert_eq!(code, Some(3), "{said}");
        let output = seekless(&["trace", "import", "--blocks", "odd", "--image", "old.img"], dir);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(wanted), "{errors}");
    }
}
