//! Mounted volumes that grow while programs write to them.

use super::judges::{Scratch, dissect, failure, manifest, run, same, seekless, text};
use super::mounted::Mounted;
use super::{judged_by_others, listing, make, populate, ready};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// The bytes of all blocks and of free ones, as `statfs(2)` has them.
fn space(at: &Path) -> (u64, u64) {
    let told = run("stat", &["-f", "-c", "%b %S %f", at.to_str().expect("path")]);
    let numbers: Vec<u64> = told.split_whitespace().map(|it| it.parse().expect("number")).collect();
    (numbers[0] * numbers[1], numbers[2] * numbers[1])
}

#[test]
fn a_mounted_volume_grows_while_it_is_written_to() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-mounted-grow");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    let at = scratch.path().join("at");
    let mount = at.to_str().expect("path");
    populate(Path::new(&tree));
    let cases = [
        ("ufs2", "softdep", &["-b", "4096", "-f", "512"][..]),
        ("ufs1", "sync", &["-b", "8192", "-f", "1024", "--big-endian"][..]),
    ];
    for (format, options, shape) in cases {
        let what = format!("{format} {options}");
        make(&image, format, "24M", shape);
        let mounted = Mounted::new(&image, &at, &format!("rw,{options}"));
        let (before, _) = space(&at);
        run("cp", &["-a", &tree, at.join("first").to_str().expect("path")]);
        // It has no name while the volume grows.
        let nameless = at.join("nameless");
        let create = || {
            File::create_new(&nameless).and(File::options().read(true).write(true).open(&nameless))
        };
        let mut open = create().expect("open");
        open.write_all(&[7; 300_000]).expect("write");
        fs::remove_file(&nameless).expect("unlink");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) || rounds < 2 {
                    let name = at.join(format!("round-{rounds}"));
                    fs::write(&name, vec![rounds as u8; 200_000]).expect("write");
                    if rounds > 4 {
                        fs::remove_file(at.join(format!("round-{}", rounds - 4))).expect("rm");
                    }
                    rounds += 1;
                }
                rounds
            });
            for size in ["48M", "49M", "160M"] {
                let planned = text(&seekless(&["growfs", mount, "-s", size, "-N", "--json"]));
                let grown = text(&seekless(&["growfs", mount, "-s", size, "--json"]));
                let number = |told: &str, name: &str| {
                    let told: serde_json::Value = serde_json::from_str(told).expect("JSON");
                    told[name].as_u64().unwrap_or_else(|| panic!("{told}: {name}"))
                };
                for name in ["bytes_before", "bytes", "groups"] {
                    assert_eq!(number(&planned, name), number(&grown, name), "{what} {name}");
                }
                assert!(number(&grown, "bytes") > number(&grown, "bytes_before"), "{what}");
            }
            done.store(true, Ordering::Relaxed);
            let rounds = writer.join().expect("writer");
            for round in (rounds - 4).max(0)..rounds {
                let bytes = fs::read(at.join(format!("round-{round}"))).expect("read");
                assert!(bytes == vec![round as u8; 200_000], "{what}: round {round}");
                fs::remove_file(at.join(format!("round-{round}"))).expect("rm");
            }
        });
        let (after, free) = space(&at);
        assert!(after > before * 5 && free > before * 4, "{what}: {before} {after} {free}");
        assert_eq!(fs::metadata(&image).expect("image").len(), 160 << 20);
        let mut bytes = Vec::new();
        open.seek(SeekFrom::Start(0)).expect("seek");
        open.read_to_end(&mut bytes).expect("read");
        assert!(bytes == [7; 300_000], "{what}: the file without a name");
        drop(open);
        // More than the volume had room for.
        for copy in ["second", "third", "fourth"] {
            run("cp", &["-a", &tree, at.join(copy).to_str().expect("path")]);
        }
        for copy in ["first", "second", "third", "fourth"] {
            let source = format!("{tree}/");
            let copy = at.join(copy);
            let difference =
                run("rsync", &["-acnHi", "--delete", &source, copy.to_str().expect("path")]);
            assert_eq!(difference, "", "{what}");
        }
        mounted.end();
        text(&seekless(&["check", &image]));
        let big_endian = shape.contains(&"--big-endian");
        if !big_endian && dissect::ready() {
            dissect::agrees(&what, &dissect::of_manifest(&manifest(&image, &[])), &image);
        }
        run("fsstat", &[&image]);
    }
}

fn refused(args: &[&str], code: i32, why: &str) {
    let (found, message) = failure(&seekless(args));
    assert!(found == code && message.contains(why), "{args:?}: {found}, {message}");
}

#[test]
fn what_a_mounted_volume_refuses() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-mounted-grow-refused");
    let image = scratch.join("image");
    let at = scratch.path().join("at");
    let mount = at.to_str().expect("path");
    make(&image, "ufs2", "24M", &[]);
    // Nothing is mounted there.
    fs::create_dir_all(&at).expect("mkdir");
    refused(&["growfs", mount, "-s", "48M"], 2, "mounted");
    let mounted = Mounted::new(&image, &at, "rw,softdep");
    refused(&["growfs", mount, "-s", "8M"], 2, "cannot become smaller");
    refused(&["growfs", mount], 5, "no room for a further");
    refused(&["growfs", mount, "-s", "48M", "--offset", "1M"], 2, "--offset");
    // The image itself is in use, and one process alone may ask its server.
    refused(&["growfs", &image, "-s", "48M"], 6, "in use");
    let nobody = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_seekless"))
        .args(["growfs", mount, "-s", "48M"])
        .output()
        .expect("setpriv");
    assert_eq!(nobody.status.code(), Some(6), "{}", String::from_utf8_lossy(&nobody.stderr));
    // A file that became longer without its server.
    run("truncate", &["-s", "60M", &image]);
    text(&seekless(&["growfs", mount]));
    assert!(space(&at).0 > 50 << 20);
    text(&seekless(&["snapshot", "take", mount, "then"]));
    refused(&["growfs", mount, "-s", "90M"], 4, "snapshots");
    mounted.end();
    text(&seekless(&["check", &image]));
    assert_eq!(fs::metadata(&image).expect("image").len(), 60 << 20);

    // Others are no volumes of ours, or do not grow while they are in use.
    refused(&["growfs", "/proc", "-s", "48M"], 4, "mounted with rw");
    text(&seekless(&["mkfs", "--force", "--format", "fat16", "--size", "24M", &image]));
    let mounted = Mounted::new(&image, &at, "rw");
    refused(&["growfs", mount, "-s", "48M"], 4, "growth of a volume in use");
    mounted.end();
}

#[test]
fn a_server_that_is_killed_while_it_grows_leaves_all_files() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-mounted-grow-killed");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    let at = scratch.path().join("at");
    let mount = at.to_str().expect("path");
    populate(Path::new(&tree));
    let wanted = listing(&tree);
    for (n, wait) in [0, 2, 5, 9, 14, 20].into_iter().enumerate() {
        let what = format!("killed after {wait} ms");
        make(&image, ["ufs1", "ufs2"][n % 2], "24M", &["-b", "4096", "-f", "512"]);
        let mounted = Mounted::new(&image, &at, "rw,softdep");
        run("cp", &["-a", &format!("{tree}/."), mount]);
        run("touch", &["-r", &tree, mount]);
        mounted.end();
        let mut mounted = Mounted::new(&image, &at, "rw,softdep");
        let mut growing = Command::new(env!("CARGO_BIN_EXE_seekless"))
            .args(["growfs", mount, "-s", "700M", "-q"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("growfs");
        std::thread::sleep(std::time::Duration::from_millis(wait));
        mounted.server.kill().expect("kill");
        mounted.server.wait().expect("server");
        growing.wait().expect("growfs");
        drop(mounted);
        let _ = Command::new("umount").arg("-l").arg(&at).status();
        let code = seekless(&["check", "-y", &image]).status.code();
        assert_eq!(code, Some(1), "{what}");
        text(&seekless(&["check", &image]));
        same(&what, &wanted, &listing(&image));
        judged_by_others(&what, &image, &tree, false);
    }
}
