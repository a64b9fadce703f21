//! UFS images: those of makefs are read completely, those of `seekless mkfs` satisfy The Sleuth Kit
//! and GRUB. Needs these programs; reports and passes without.

#[path = "../../../ffs/tests/testsuite/snapshot/by_hand.rs"]
#[allow(dead_code, reason = "tests of the library harm snapshots, too")]
mod by_hand;
#[path = "../ufs_grow/mod.rs"]
mod grow;
#[path = "../judges/mod.rs"]
mod judges;
#[path = "../judges/mounted.rs"]
mod mounted;
mod snapshots;
mod snapshots_in_use;

use judges::{Scratch, manifest, ready, run, same, seekless, text};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Sizes of blocks and fragments.
const SHAPES: [(&str, &str); 5] =
    [("4096", "512"), ("8192", "1024"), ("16384", "2048"), ("32768", "4096"), ("65536", "8192")];

/// Files of every kind that makefs supports.
fn populate(root: &Path) {
    for dir in ["dir/below", "many", "empty"] {
        fs::create_dir_all(root.join(dir)).expect("mkdir");
    }
    let noise = |len: usize, seed: u32| -> Vec<u8> {
        let mut state = seed;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect()
    };
    // Every number of fragments, then indirect blocks of one and two levels.
    for n in 0..20 {
        fs::write(root.join(format!("dir/{n}")), noise(n * 1000 + n, n as u32)).expect("write");
    }
    fs::write(root.join("single"), noise(300_000, 77)).expect("write");
    fs::write(root.join("double"), noise(12 << 20, 78)).expect("write");
    for n in 0..1500 {
        fs::write(root.join(format!("many/a name of some length {n}")), b"x").expect("write");
    }
    fs::write(root.join("dir/below").join("n".repeat(255)), b"long name").expect("write");
    fs::hard_link(root.join("single"), root.join("dir/hard")).expect("link");
    symlink("short", root.join("dir/fast")).expect("symlink");
    symlink("l".repeat(500), root.join("dir/slow")).expect("symlink");
    fs::set_permissions(root.join("dir/3"), fs::Permissions::from_mode(0o4751)).expect("chmod");
    run("mkfifo", &[root.join("fifo").to_str().expect("path")]);
}

/// Removes fractions of seconds, which makefs does not store.
fn in_seconds(listing: &str) -> String {
    let cut = |word: &str| match word.strip_prefix("time=").and_then(|time| time.split_once('.')) {
        Some((seconds, _)) => format!("time={seconds}"),
        None => word.to_string(),
    };
    let line = |line: &str| line.split(' ').map(cut).collect::<Vec<_>>().join(" ") + "\n";
    listing.lines().map(line).collect()
}

#[test]
fn images_of_makefs_are_read_whole() {
    if !ready("makefs") {
        return;
    }
    let scratch = Scratch::new("ufs");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    let wanted = in_seconds(&manifest(&tree, &[]));
    assert!(wanted.lines().count() > 1500);
    for version in ["1", "2"] {
        for order in ["le", "be"] {
            for (block, fragment) in SHAPES {
                let what = format!("version={version},bsize={block},fsize={fragment}");
                let make = [
                    "-t", "ffs", "-B", order, "-s", "64m", "-f", "100", "-o", &what, &image, &tree,
                ];
                run("makefs", &make);
                same(&format!("{order} {what}"), &wanted, &in_seconds(&manifest(&image, &[])));
                // The check finds no errors in an image of another program.
                text(&seekless(&["check", &image]));
            }
        }
    }
    let info = text(&seekless(&["info", &image, "--json"]));
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["format"], "ufs2", "{info}");
    // A copy out of the image has the same listing.
    let copy = scratch.join("copy");
    text(&seekless(&["cp", "-r", &image, "/", &copy]));
    same("copied out", &wanted, &in_seconds(&manifest(&copy, &[])));
    // A UFS image is a valid source for an ext4 image.
    let ext4 = scratch.join("ext4");
    text(&seekless(&["build", &image, "-o", &ext4]));
    same("as ext4", &wanted, &in_seconds(&manifest(&ext4, &[])));
}

/// The value after a label in the output of `fsstat`.
fn stated<'a>(report: &'a str, label: &str) -> &'a str {
    let line = report.lines().find_map(|line| line.trim().strip_prefix(label));
    line.unwrap_or_else(|| panic!("no {label:?} in {report}")).trim()
}

#[test]
fn new_file_systems_satisfy_the_sleuth_kit_and_grub() {
    if !ready("fsstat") || !ready("grub-fstest") {
        return;
    }
    let scratch = Scratch::new("mkfs");
    let image = scratch.join("image");
    for (block, fragment) in SHAPES {
        for format in ["ufs1", "ufs2"] {
            for order in [None, Some("--big-endian")] {
                let what = format!("{format} {block}/{fragment} {order:?}");
                let mut args = vec!["mkfs", "--format", format, "-s", "80M", "--force", &image];
                args.extend(["-b", block, "-f", fragment, "-L", "made here", "-U"]);
                args.extend(order);
                text(&seekless(&args));
                let info = text(&seekless(&["info", &image, "--json"]));
                let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
                assert_eq!(info["format"], *format, "{what}");
                // The Sleuth Kit reads UFS2 in little-endian order only.
                if format == "ufs2" && order.is_some() {
                    continue;
                }
                let report = run("fsstat", &[&image]);
                assert_eq!(stated(&report, "Fragment Size:"), fragment, "{what}");
                assert_eq!(stated(&report, "Block Size:"), block, "{what}");
                let groups = info["groups"].to_string();
                assert_eq!(stated(&report, "Number of Cylinder Groups:"), groups, "{what}");
                let names = run("fls", &["-r", "-p", &image]);
                // The Sleuth Kit shows a virtual folder for files without a name.
                let own = |line: &str| line.ends_with("$OrphanFiles");
                assert!(names.lines().all(own), "{what}: {names}");
                if order.is_none() {
                    run("grub-fstest", &[&image, "ls", "(loop0)/"]);
                }
            }
        }
    }
}

#[test]
fn new_file_systems_are_the_same_twice() {
    let scratch = Scratch::new("mkfs-twice");
    let images = [scratch.join("a"), scratch.join("b")];
    for image in &images {
        let args = ["mkfs", "--format", "ufs2", "--size", "64M", image];
        let output = judges::command(&args).env("SOURCE_DATE_EPOCH", "1700000000").output();
        text(&output.expect("seekless"));
    }
    run("cmp", &[&images[0], &images[1]]);
    // An existing image is replaced only with --force, and then with its own size by default.
    let (code, message) = judges::failure(&seekless(&["mkfs", "--format", "ufs1", &images[0]]));
    assert!(code == 6 && message.contains("--force"), "{message}");
    text(&seekless(&["mkfs", "--format", "ufs1", &images[0], "--force"]));
    assert_eq!(fs::metadata(&images[0]).expect("stat").len(), 64 << 20);
    for wrong in [
        &["-b", "5000"][..],
        &["-f", "256"],
        &["-f", "64K"],
        &["-m", "100"],
        &["--avgfpdir", "0"],
        &["-L", "a label of more than thirty-one bytes"],
    ] {
        let args =
            [&["mkfs", "--format", "ufs2", "-s", "64M", "--force", &images[1]], wrong].concat();
        let (code, message) = judges::failure(&seekless(&args));
        assert!(code == 2, "{wrong:?}: {code} {message}");
    }
    let args = ["mkfs", "--format", "ufs2", "-s", "200K", "--force", &images[1]];
    let (code, message) = judges::failure(&seekless(&args));
    assert!(code == 5 && message.contains("too few"), "{code} {message}");
}

/// Tools that do not support check hashes leave them wrong. The message names the repair, and
/// volumes can be made without hashes.
#[test]
fn a_wrong_superblock_hash_is_mended_by_a_check_and_hashes_can_be_left_out() {
    let scratch = Scratch::new("ufs-hashes");
    let image = scratch.join("image");
    let make = |format: &str, which: &str| {
        seekless(&[
            "mkfs",
            "--force",
            "--format",
            format,
            "-s",
            "8M",
            "--check-hashes",
            which,
            &image,
        ])
    };
    let change = || {
        let mut bytes = fs::read(&image).expect("image");
        // Changes `fs_time`.
        bytes[65536 + 1072] ^= 1;
        fs::write(&image, bytes).expect("image");
    };
    for (which, shown) in [("all", "check-hashes"), ("groups", "check-hashes=groups"), ("none", "")]
    {
        text(&make("ufs2", which));
        let features = text(&seekless(&["info", &image]));
        let has = |word: &str| features.split_whitespace().any(|feature| feature == word);
        assert!(if shown.is_empty() { !features.contains("check-hashes") } else { has(shown) });
        text(&seekless(&["check", &image]));
        change();
        let opened = seekless(&["ls", &image, "/"]);
        if which != "all" {
            text(&opened);
            text(&seekless(&["check", &image]));
            continue;
        }
        let (code, message) = judges::failure(&opened);
        assert_eq!(code, 3, "{message}");
        assert!(message.contains("seekless check -y"), "{message}");
        let repaired = seekless(&["check", "-y", &image]);
        assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
        text(&seekless(&["ls", &image, "/"]));
    }
    assert_eq!(judges::failure(&make("ufs1", "groups")).0, 2);
    text(&make("ufs1", "none"));
    assert_eq!(judges::failure(&make("fat16", "none")).0, 2);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    fs::write(Path::new(&tree).join("file"), b"contents").expect("write");
    let built = ["build", &tree, "-o", &image, "--force", "--format", "ufs2", "--check-hashes"];
    text(&seekless(&[&built[..], &["groups"]].concat()));
    assert!(text(&seekless(&["info", &image])).contains("check-hashes=groups"));
    text(&seekless(&["check", &image]));
}
