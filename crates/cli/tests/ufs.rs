//! UFS images made by makefs, read whole. Needs makefs; says so and passes
//! without it.

mod judges;

use judges::{Scratch, manifest, run, same, seekless, text};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn ready() -> bool {
    let found = std::process::Command::new("sh").args(["-c", "command -v makefs"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    eprintln!("skipped: makefs is not installed");
    false
}

/// Something of every kind that makefs can carry over.
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

/// makefs keeps whole seconds.
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
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    let wanted = in_seconds(&manifest(&tree, &[]));
    assert!(wanted.lines().count() > 1500);
    let shapes = [
        "4096,fsize=512",
        "8192,fsize=1024",
        "16384,fsize=2048",
        "32768,fsize=4096",
        "65536,fsize=8192",
    ];
    for version in ["1", "2"] {
        for order in ["le", "be"] {
            for shape in shapes {
                let what = format!("version={version},bsize={shape}");
                let make = [
                    "-t", "ffs", "-B", order, "-s", "64m", "-f", "100", "-o", &what, &image, &tree,
                ];
                run("makefs", &make);
                same(&format!("{order} {what}"), &wanted, &in_seconds(&manifest(&image, &[])));
            }
        }
    }
    let info = text(&seekless(&["info", &image, "--json"]));
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["format"], "ufs2", "{info}");
    // Copying out keeps what it can, and what was copied is the same again.
    let copy = scratch.join("copy");
    text(&seekless(&["cp", "-r", &image, "/", &copy]));
    same("copied out", &wanted, &in_seconds(&manifest(&copy, &[])));
    // A tree is a tree: an ext4 image is made from a UFS image.
    let ext4 = scratch.join("ext4");
    text(&seekless(&["build", &image, "-o", &ext4]));
    same("as ext4", &wanted, &in_seconds(&manifest(&ext4, &[])));
}
