//! `seekless age` from outside: its output, its refusals, and aged images as read by The Sleuth Kit
//! and GRUB.

mod judges;

use judges::{Scratch, command, failure, ready, run, seekless, text};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn empty(scratch: &Scratch, format: &str, size: &str) -> String {
    let image = scratch.join(&format!("{format}.img"));
    match format {
        "fat12" | "fat16" | "fat32" => {
            drop(text(&seekless(&["mkfs", "--format", format, "--size", size, &image])));
        }
        "ext2" => drop(run("mke2fs", &["-q", "-t", "ext2", &image, size])),
        _ => drop(text(&seekless(&["mkfs", "--format", format, "-s", size, &image]))),
    }
    image
}

fn json(args: &[&str]) -> Value {
    let args = [&["age", "--json"], args].concat();
    serde_json::from_str(&text(&seekless(&args))).expect("JSON")
}

#[test]
fn the_same_seed_gives_the_same_image() {
    let scratch = Scratch::new("age-seed");
    for format in ["ufs1", "ufs2", "ext2", "fat16"] {
        let image = empty(&scratch, format, "32M");
        let before = fs::read(&image).expect("image");
        let aged = |seed: &str| {
            let new = scratch.join(&format!("{format}-{seed}"));
            let args = ["--profile", "mail", "--ops", "3000", "--seed", seed, "--force", "-o"];
            let mut said = json(&[&[&*image][..], &args, &[&*new]].concat());
            assert_eq!(said["samples"].as_array().map(Vec::len), Some(101));
            said["subject"].take();
            assert!(seekless(&["check", &new]).status.success());
            (fs::read(&new).expect("image"), said)
        };
        let (first, said) = aged("1");
        let (again, repeated) = aged("1");
        assert!(first == again && said == repeated, "{format}: the same seed");
        assert!(first != aged("2").0, "{format}: another seed");
        assert!(fs::read(&image).expect("image") == before, "the old image is only read");
    }
}

#[test]
fn others_read_aged_images() {
    if !["fsstat", "fls", "tsk_recover", "grub-fstest", "rsync"].into_iter().all(ready) {
        return;
    }
    let scratch = Scratch::new("age-judges");
    for (format, profile) in [("ufs1", "git"), ("ufs2", "build")] {
        let image = empty(&scratch, format, "64M");
        text(&seekless(&["age", &image, "--profile", profile, "--ops", "6000"]));
        text(&seekless(&["check", &image]));
        run("fsstat", &[&image]);
        let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
        text(&seekless(&["cp", "-r", &image, "/", &ours]));
        run("tsk_recover", &["-a", &image, &theirs]);
        let different = run("rsync", &["-rcni", "--delete", &format!("{ours}/"), &theirs]);
        let files = different.lines().filter(|line| line.starts_with(">f") || line.contains("del"));
        assert_eq!(files.collect::<Vec<_>>(), Vec::<&str>::new(), "{format}");
        let names = run("fls", &["-r", "-p", "-u", "-F", &image]);
        let names: Vec<&str> = names.lines().filter_map(|line| line.split('\t').nth(1)).collect();
        assert!(names.len() > 500, "{format}: {} files", names.len());
        for name in names.iter().step_by(names.len() / 10) {
            let (inside, outside) = (format!("(loop0)/{name}"), format!("{ours}/{name}"));
            run("grub-fstest", &[&image, "cmp", &inside, &outside]);
        }
        fs::remove_dir_all(&ours).expect("rm");
        fs::remove_dir_all(&theirs).expect("rm");
    }
}

#[test]
fn what_cannot_be_aged_is_refused() {
    let scratch = Scratch::new("age-refusals");
    let image = empty(&scratch, "ufs1", "16M");
    let before = fs::read(&image).expect("image");
    let refused = |args: &[&str], code: i32, words: &str| {
        let (found, message) = failure(&seekless(&[&["age"], args].concat()));
        assert!(found == code && message.contains(words), "{args:?}: {found} {message}");
    };
    refused(&[&image, "--ops", "9", "--profile", "mial"], 2, "unknown profile 'mial'");
    refused(&[&image, "--ops", "9", "--plot", "x.png"], 2, "must end in .svg or .html");
    refused(&[&image, "--ops", "9", "--into", "a/b"], 2, "invalid file name");
    refused(&[&image, "--ops", "9", "--mount-options", "sofdep"], 2, "did you mean softdep");
    refused(&[&image, "--ops", "9", "--mount-options", "policy=none"], 4, "unknown policy 'none'");
    let code = |args: &[&str]| seekless(&[&["age"], args].concat()).status.code();
    assert_eq!(code(&[&image]), Some(2), "no operations");
    assert_eq!(code(&[&image, "--ops", "9", "--fullness", "1.5"]), Some(2));
    let profile = scratch.join("mine.toml");
    let good = text(&seekless(&["age", "--show-profile", "git"]));
    let line = good.lines().position(|line| line.starts_with("lifetime")).expect("line") + 1;
    for (wrong, key) in
        [("lifetimes = {}", "lifetimes"), ("lifetime = { median = '3 moons' }", "median")]
    {
        let mut lines: Vec<&str> = good.lines().collect();
        lines[line - 1] = wrong;
        fs::write(&profile, lines.join("\n")).expect("write");
        let place = format!("{profile}:{line}: {key}: ");
        refused(&[&image, "--ops", "9", "--profile", &profile], 2, &place);
    }
    fs::write(&profile, &good).expect("write");
    assert!(fs::read(&image).expect("image") == before, "changed");
    text(&seekless(&["age", &image, "--ops", "9", "--profile", &profile]));
    refused(&[&image, "--ops", "9", "--profile", &profile], 6, "already exists (use --into NAME");
    text(&seekless(&["age", &image, "--ops", "9", "--profile", &profile, "--into", "again"]));
    refused(&[&image, "--ops", "9", "--into", "again"], 6, "not empty (use --into NAME");
    text(&seekless(&["age", &image, "--ops", "9000", "--profile", "build", "--fullness", "0.5"]));
    refused(&[&image, "--ops", "9", "--fullness", "0.4"], 5, "% full");
    text(&seekless(&["check", &image]));
    // Clears `fs_clean`.
    let mut unclean = fs::read(&image).expect("image");
    unclean[8192 + 209] = 0;
    fs::write(&image, unclean).expect("image");
    refused(&[&image, "--ops", "9"], 4, "not clean");
}

#[test]
fn what_an_ext_image_has_that_is_not_kept_up_is_named() {
    if !ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("age-ext");
    let image = scratch.join("image");
    run("mke2fs", &["-q", "-t", "ext4", "-O", "bigalloc", &image, "64M"]);
    let (code, message) = failure(&seekless(&["age", &image, "--ops", "9"]));
    assert!(code == 4 && message.contains("bigalloc"), "{code} {message}");
}

#[test]
fn images_of_ext_are_aged_and_stay_sound() {
    if !ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("age-ext-all");
    for kind in ["ext2", "ext3", "ext4"] {
        let image = scratch.join(kind);
        run("mke2fs", &["-q", "-t", kind, &image, "48M"]);
        text(&seekless(&["age", &image, "--ops", "2000", "--profile", "git", "--seed", "4"]));
        run("e2fsck", &["-fn", &image]);
    }
}

/// Every profile on every FAT width, and every policy for clusters.
#[test]
fn images_of_fat_are_aged_and_stay_sound() {
    if !ready("fsck.fat") {
        return;
    }
    let scratch = Scratch::new("age-fat");
    let policies = ["first-fit", "next-fit", "random-near", "random-next", "random", "next-near"];
    let profiles = ["packages", "mail", "build", "git", "server"];
    for (n, (format, size)) in
        [("fat12", "16M"), ("fat16", "48M"), ("fat32", "48M")].iter().enumerate()
    {
        let image = empty(&scratch, format, size);
        for (m, profile) in profiles.iter().enumerate() {
            let aged = scratch.join("aged.img");
            let policy =
                format!("clusters={}", policies[(n * profiles.len() + m) % policies.len()]);
            let args = [&*image, "-o", &*aged, "--force", "--profile", profile, "--ops", "2500"];
            let said = json(&[&args[..], &["--mount-options", &*policy]].concat());
            run("fsck.fat", &["-n", &aged]);
            text(&seekless(&["check", &aged]));
            let tally = &said["tally"];
            let left_out = tally["links_left_out"].as_u64();
            assert_eq!(left_out > Some(0), *profile == "server", "{format} {profile}: {tally}");
            let last = said["samples"].as_array().and_then(|all| all.last()).expect("samples");
            let score = last["layout_score"].as_f64().expect("a score");
            assert!((0.05..=1.0).contains(&score), "{format} {profile}: {score}");
        }
    }
}

/// Aged images have hard links, and files with several names are intact.
#[test]
fn images_with_hard_links_are_aged() {
    if !ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("age-links");
    for format in ["ufs2", "ext2", "ext4"] {
        let image = scratch.join(format);
        match format {
            "ufs2" => drop(text(&seekless(&["mkfs", "--format", format, "-s", "48M", &image]))),
            _ => drop(run("mke2fs", &["-q", "-t", format, &image, "48M"])),
        }
        let said = json(&[&*image, "--profile", "server", "--ops", "4000", "--seed", "2"]);
        assert!(said["tally"]["linked"].as_u64() > Some(100), "{}", said["tally"]);
        text(&seekless(&["check", &image]));
        if format != "ufs2" {
            run("e2fsck", &["-fn", &image]);
        }
        let manifest = text(&seekless(&["manifest", &image]));
        assert!(manifest.lines().any(|line| line.contains("nlink=3")), "{format}");
    }
}

/// Ages in place, and sends a signal after some milliseconds; returns the output.
fn signalled(image: &str, signal: &str, millis: u64) -> std::process::Output {
    signalled_with(&[image], signal, millis)
}

fn signalled_with(more: &[&str], signal: &str, millis: u64) -> std::process::Output {
    let args = [&["age", "--profile", "build", "--ops", "100000000"], more].concat();
    let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("seekless");
    sleep(Duration::from_millis(millis));
    run("kill", &[signal, &child.id().to_string()]);
    child.wait_with_output().expect("seekless")
}

#[test]
fn a_killed_run_leaves_what_preening_repairs() {
    let scratch = Scratch::new("age-killed");
    for (millis, format) in [(300, "ufs1"), (500, "ufs2"), (900, "ufs2")] {
        let image = empty(&scratch, format, "64M");
        assert!(!signalled(&image, "-KILL", millis).status.success());
        let preened = seekless(&["check", "-p", &image]);
        let code = preened.status.code();
        assert_eq!(code, Some(1), "{format}: {}", String::from_utf8_lossy(&preened.stdout));
        text(&seekless(&["check", &image]));
        fs::remove_file(&image).expect("rm");
    }
}

#[test]
fn an_interrupted_run_ends_whole_and_tells() {
    let scratch = Scratch::new("age-interrupted");
    let image = empty(&scratch, "ufs2", "64M");
    let output = signalled(&image, "-INT", 4000);
    assert_eq!(output.status.code(), Some(6));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("interrupted") && said.contains("layout score"), "{said}");
    let curve = said.chars().filter(|c| ('\u{2581}'..='\u{2588}').contains(c)).count();
    assert!(curve > 1, "{said}");
    let (base, new) = (empty(&scratch, "ufs1", "64M"), scratch.join("new"));
    let output = signalled_with(&[&base, "-o", &new], "-INT", 700);
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("layout score") && told.contains("new is not written"), "{said}{told}");
    assert!(output.status.code() == Some(6) && fs::metadata(&new).is_err());
    text(&seekless(&["check", &image]));
}

#[test]
fn a_century_of_rest_takes_no_time() {
    let scratch = Scratch::new("age-rest");
    let image = empty(&scratch, "ufs2", "32M");
    let profile = scratch.join("slow.toml");
    let git = text(&seekless(&["age", "--show-profile", "git"]));
    fs::write(&profile, git.replace("rest = \"5min\"", "rest = \"100y\"")).expect("write");
    let began = Instant::now();
    let said = json(&[&image, "--profile", &profile, "--ops", "200"]);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let days = said["samples"][100]["days"].as_f64().expect("days");
    assert!(days > 10_000.0, "{days}");
    text(&seekless(&["check", &image]));
}

#[test]
fn a_picture_does_not_take_the_place_of_an_image() {
    let scratch = Scratch::new("age-same");
    let image = scratch.join("y.svg");
    fs::rename(empty(&scratch, "ufs2", "16M"), &image).expect("mv");
    let before = fs::read(&image).expect("image");
    let at = |name: &str| scratch.join(name);
    let (hard, soft, new) = (at("hard.svg"), at("soft.svg"), at("new.svg"));
    fs::hard_link(&image, &hard).expect("ln");
    std::os::unix::fs::symlink(&image, &soft).expect("ln -s");
    let roundabout = format!("{}/./new.svg", scratch.join("."));
    for args in [
        [&*image, "--plot", &image, "--ops", "9"].as_slice(),
        &[&image, "--plot", &hard, "--ops", "9"],
        &[&image, "--plot", &soft, "--ops", "9"],
        &[&soft, "--plot", &image, "--ops", "9"],
        &[&image, "-o", &new, "--plot", &new, "--ops", "9"],
        &[&image, "-o", &new, "--plot", &roundabout, "--ops", "9"],
        &[&image, "-o", &new, "--plot", &image, "--ops", "9"],
    ] {
        let (code, message) = failure(&seekless(&[&["age"], args].concat()));
        assert!(code == 2 && message.contains("overwrite the image"), "{args:?}: {code} {message}");
    }
    assert!(fs::read(&image).expect("image") == before && fs::metadata(&new).is_err());
    let (code, message) =
        failure(&seekless(&["age", &image, "--ops", "9", "--plot", &at("no/x.svg")]));
    assert!(code == 6 && message.contains("x.svg"), "{code} {message}");
    assert!(fs::read(&image).expect("image") == before, "aged without a place for the picture");
}

#[test]
fn the_figures_outlive_the_picture() {
    let scratch = Scratch::new("age-no-picture");
    let image = empty(&scratch, "ufs2", "64M");
    let dir = scratch.join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let plot = format!("{dir}/x.svg");
    let args = ["age", &image, "--profile", "build", "--ops", "100000000", "--plot", &plot];
    let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("seekless");
    sleep(Duration::from_millis(700));
    fs::remove_dir_all(&dir).expect("rm");
    run("kill", &["-INT", &child.id().to_string()]);
    let output = child.wait_with_output().expect("seekless");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(6) && told.contains("x.svg"), "{told}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("layout score") && said.contains("took"), "{said}");
}

#[test]
fn only_what_is_mounted_is_aged_as_mounted() {
    let scratch = Scratch::new("age-any");
    let dir = scratch.join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let (code, message) = failure(&seekless(&["age", "--mounted", &dir, "--ops", "9"]));
    assert!(code == 2 && message.contains("--any-directory"), "{code} {message}");
    assert_eq!(fs::read_dir(&dir).expect("dir").count(), 0);
}

#[test]
fn curves_are_drawn() {
    let scratch = Scratch::new("age-plot");
    let image = empty(&scratch, "ufs2", "32M");
    for name in ["age.svg", "age.html"] {
        let (new, plot) = (scratch.join("new"), scratch.join(name));
        let args = ["age", &image, "-o", &new, "--force", "--ops", "3000", "--plot", &plot];
        let said = text(&seekless(&args));
        assert!(said.contains("layout score") && said.contains('█'), "{said}");
        let drawn = fs::read_to_string(&plot).expect("plot");
        assert_eq!(drawn.matches("<polyline").count(), 6, "{name}");
        assert!(!drawn.contains("NaN") && !drawn.contains("http-equiv"), "{name}");
    }
}
