//! `seekless lab run` of boots, with a small system. Needs root and loop devices.

#[path = "judges/mod.rs"]
mod judges;

use judges::{can_mount, failure, seekless, text};
use std::fs;
use std::path::Path;

const PACKAGES: u32 = 24;
const FILES: u32 = 20;

/// Packages with files of a few blocks each, and a boot that reads one file of every package, then
/// a second one, with pauses of a millisecond.
fn write_experiment(dir: &Path, machines: &str) -> String {
    let mut system = String::from("# seekless system 1\n");
    for package in 0..PACKAGES {
        system += &format!("p\tpackage{package}\nd\t/usr/lib/{package}\n");
        for file in 0..FILES {
            system += &format!("f\t/usr/lib/{package}/file{file}\t{}\n", 9000 + file * 700);
        }
        system += &format!("h\t/usr/lib/{package}/again\t/usr/lib/{package}/file0\n");
        system += &format!("s\t/usr/lib/{package}/link\tfile1\n");
    }
    system += "p\t-\nf\t/var/lib/made\t5000\n";
    fs::write(dir.join("system"), system).expect("write");
    let mut trace = String::from("{\"seekless_trace\":1}\n");
    for at in 0..2 * PACKAGES {
        let path = format!("/usr/lib/{}/file{}", (at * 7) % PACKAGES, 3 + at / PACKAGES * 5);
        let time = 1_000_000 * u64::from(at);
        trace += &format!("{{\"time\":{time},\"op\":\"open\",\"path\":\"{path}\"}}\n");
        trace += &format!(
            "{{\"time\":{time},\"op\":\"read\",\"path\":\"{path}\",\"offset\":0,\"length\":8192}}\n"
        );
    }
    fs::write(dir.join("trace"), trace).expect("write");
    let (system, trace) = (dir.join("system"), dir.join("trace"));
    let text = format!(
        "name = \"small\"\nkind = \"boots\"\nsummary = \"a test\"\nsystem = {system:?}\n\
         trace = {trace:?}\nseeds = [1]\nrepetitions = 1\nreinstalls = 3.0\narchive = 0.25\n{machines}"
    );
    let path = dir.join("small.toml");
    fs::write(&path, text).expect("write");
    path.to_str().expect("path").into()
}

const EXT4: &str = "[[machine]]\nname = \"disk\"\nfs = \"ext4\"\nsize = \"48M\"\n\
    drive = \"raptor-74\"\nread_ahead = \"128K\"\n\
    states = [\"fresh\", \"aged\", \"readdir-order\", \"profile-order\", \"optimized\"]\n\
    prefetched = [\"readdir-order\"]\n";

#[test]
fn each_order_brings_what_it_should() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("dir");
    let experiment = write_experiment(dir.path(), EXT4);
    let kept = dir.path().join("kept");
    let args = ["lab", "run", &experiment, "-o", kept.to_str().expect("path"), "--json"];
    let said: serde_json::Value = serde_json::from_str(&text(&seekless(&args))).expect("JSON");
    let cells = said["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 6);
    let cell = |state: &str, prefetched: bool| {
        let is =
            |cell: &&serde_json::Value| cell["state"] == state && cell["prefetched"] == prefetched;
        cells.iter().find(is).unwrap_or_else(|| panic!("no {state}"))
    };
    let seeks = |state: &str| cell(state, false)["seeks"].as_u64().expect("seeks");
    let [fresh, aged, walked, profile, optimized] =
        ["fresh", "aged", "readdir-order", "profile-order", "optimized"].map(seeks);
    // 48 scattered files; in the order of the boot their contents are contiguous.
    for scattered in [fresh, aged, walked] {
        assert!(scattered > 45, "{said}");
        assert!(profile * 4 < scattered * 3, "{said}");
    }
    assert!(optimized < 10, "{said}");
    // In so small a system prefetching shortens the seek distance, but not always the time.
    let distance =
        |prefetched| cell("readdir-order", prefetched)["seek_bytes"].as_u64().expect("seek_bytes");
    assert!(distance(true) * 3 < distance(false), "{said}");
    for cell in cells {
        let (boot, io) = (cell["boot_s"].as_f64().expect("s"), cell["io_s"].as_f64().expect("s"));
        // 47 pauses of a millisecond.
        assert!((boot - io - 0.047).abs() < 1e-6, "{cell}");
        assert!(cell["read_bytes"].as_u64() >= Some(48 * 8192), "{cell}");
    }
    // All boots are saved: none is repeated, and the results are the same.
    let names = || {
        let list = fs::read_dir(&kept).expect("list");
        let mut names: Vec<_> = list.map(|e| e.expect("entry").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let made = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).expect("time");
    let first = kept.join("boot-disk+fresh+1+0.json");
    let then = made(&first);
    let again: serde_json::Value = serde_json::from_str(&text(&seekless(&args))).expect("JSON");
    assert_eq!((&again["cells"], names(), made(&first)), (&said["cells"], before, then));
    // Results of another experiment are not mixed in.
    let changed = fs::read_to_string(&experiment).expect("read").replace("3.0", "2.0");
    fs::write(&experiment, changed).expect("write");
    let (code, message) = failure(&seekless(&args[..5]));
    assert!(code == 4 && message.contains("another experiment"), "{code}: {message}");
}

#[test]
fn what_does_not_fit_is_said() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("dir");
    let experiment = write_experiment(dir.path(), &EXT4.replace("48M", "4M"));
    let temp = dir.path().join("temp");
    fs::create_dir(&temp).expect("mkdir");
    let run = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_seekless"));
        command.args(["lab", "run", &experiment, "--only", "fresh"]).env("TMPDIR", &temp);
        failure(&command.output().expect("runs"))
    };
    let (code, message) = run();
    assert!(code == 5 && message.contains("disk: ") && message.contains("No space"), "{message}");
    assert_eq!(fs::read_dir(&temp).expect("list").count(), 0, "something was left behind");
    // The next run removes the images of a killed one.
    fs::create_dir_all(temp.join("seekless-boots-999999999-x/to")).expect("mkdir");
    run();
    assert_eq!(fs::read_dir(&temp).expect("list").count(), 0);
}

#[test]
fn wrong_input_is_refused_before_anything_is_mounted() {
    let dir = tempfile::tempdir().expect("dir");
    let experiment = write_experiment(dir.path(), EXT4);
    for (args, code, part) in [
        (&["--only", "nowhere"][..], 2, "no boot is called nowhere"),
        (&["--jobs", "2"], 2, "--jobs"),
        (&["--shard", "1/2"], 2, "--shard"),
    ] {
        let args = [&["lab", "run", &experiment], args].concat();
        let (found, message) = failure(&seekless(&args));
        assert!(found == code && message.contains(part), "{message}");
    }
    fs::write(dir.path().join("system"), "# seekless system 1\np\ta\nf\t/../x\t1\n")
        .expect("write");
    let (code, message) = failure(&seekless(&["lab", "run", &experiment]));
    assert!(code == 3 && message.contains("line 3"), "{code}: {message}");
    fs::remove_file(dir.path().join("system")).expect("remove");
    assert_eq!(failure(&seekless(&["lab", "run", &experiment])).0, 6);
    let wrong = EXT4.replace("\"ext4\"", "\"xfs\"");
    let experiment = write_experiment(dir.path(), &wrong);
    let (code, message) = failure(&seekless(&["lab", "run", &experiment]));
    assert!(code == 2 && message.contains("only ext4"), "{code}: {message}");
}
