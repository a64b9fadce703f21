//! UFS images: those of makefs are read completely, those of `seekless mkfs` satisfy The Sleuth Kit
//! and GRUB. Needs these programs; reports and passes without.

#[path = "../../ffs/tests/testsuite/snapshot/by_hand.rs"]
#[allow(dead_code, reason = "tests of the library harm snapshots, too")]
mod by_hand;
#[path = "ufs_grow/mod.rs"]
mod grow;
mod judges;
#[path = "judges/mounted.rs"]
mod mounted;

use by_hand::Raw;
use judges::{Scratch, can_mount, failure, manifest, ready, run, same, seekless, text, timeless};
use mounted::Mounted;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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

/// Makes an image of a tree: with makefs, or, with an empty order, with `seekless build`.
fn make_image(version: &str, order: &str, tree: &str, image: &str) {
    if order.is_empty() {
        let format = format!("ufs{version}");
        let options = ["--format", &format, "--size", "64M", "-b", "8192", "-f", "1024"];
        let made = ["build", tree, "-o", image, "--force", "--check-hashes", "none"];
        text(&seekless(&[&made[..], &options].concat()));
    } else {
        let what = format!("version={version},bsize=8192,fsize=1024");
        let options = ["-t", "ffs", "-B", order, "-s", "64m", "-f", "100", "-o", &what];
        run("makefs", &[&options[..], &[image, tree]].concat());
    }
}

/// An image in which a file became a snapshot of another image, by hand. Both are of makefs, or, with
/// an empty order, of `seekless build`. Returns the two, the earlier state first.
fn with_snapshot(scratch: &Scratch, version: &str, order: &str) -> [String; 2] {
    let (tree, was, now) = (scratch.join("tree"), scratch.join("was"), scratch.join("now.ufs"));
    let _ = fs::remove_dir_all(&tree);
    populate(Path::new(&tree));
    make_image(version, order, &tree, &was);
    for gone in ["single", "dir/3", "dir/hard", "double"] {
        fs::remove_file(format!("{tree}/{gone}")).expect("remove");
    }
    fs::write(format!("{tree}/dir/7"), b"changed").expect("write");
    fs::write(format!("{tree}/added"), vec![7; 3 << 20]).expect("write");
    fs::create_dir(format!("{tree}/.snap")).expect("mkdir");
    fs::write(format!("{tree}/.snap/daily"), vec![0xA5; 20 << 20]).expect("write");
    make_image(version, order, &tree, &now);
    let listed = text(&seekless(&["ls", "-l", "--json", &now, "/.snap"]));
    let listed: serde_json::Value = serde_json::from_str(listed.trim()).expect("JSON");
    let ino = listed["ino"].as_u64().expect("an inode");
    let (mut before, mut bytes) = (fs::read(&was).expect("read"), fs::read(&now).expect("read"));
    let (taken, copied) = Raw::new(&mut bytes).keep(ino, &mut before, 1);
    assert!(taken > 100 && copied > 100, "{taken} blocks taken over, {copied} copied");
    fs::write(&now, bytes).expect("write");
    [was, now]
}

#[test]
fn snapshots_are_read_by_all_commands() {
    if !ready("makefs") || !ready("fls") {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot");
    for (version, order) in [("1", "le"), ("2", "le"), ("2", "be"), ("1", "be"), ("2", "")] {
        let [was, now] = with_snapshot(&scratch, version, order);
        let daily = format!("{now}@daily");
        for image in [&now, &daily] {
            text(&seekless(&["check", image]));
        }
        let wanted = manifest(&was, &[]);
        assert!(wanted != manifest(&now, &[]), "nothing changed");
        for name in [&daily, &format!("{now}@/.snap/daily")] {
            same(&format!("{version} {order} {name}"), &wanted, &manifest(name, &[]));
        }
        let copy = scratch.join("copy");
        let _ = fs::remove_dir_all(&copy);
        text(&seekless(&["cp", "-r", &daily, "/dir", &copy]));
        let shown = seekless(&["cat", &daily, "/dir/7"]).stdout;
        assert!(shown.len() == 7007 && shown == fs::read(format!("{copy}/7")).expect("read"));
        let built = scratch.join("built");
        text(&seekless(&["build", &daily, "-o", &built, "--force"]));
        same("built of it", &timeless(&wanted), &timeless(&manifest(&built, &[])));
        // The file has the image, for other programs.
        let image = scratch.join("image");
        text(&seekless(&["cp", &now, "/.snap/daily", &image]));
        // makefs places the superblock of UFS2 where The Sleuth Kit does not look.
        if version == "1" || order.is_empty() {
            let names = |image: &str| run("fls", &["-r", "-p", "-l", image]);
            same("fls", &names(&was), &names(&image));
        }
        if can_mount() {
            let at = scratch.path().join("mnt");
            let mounted = Mounted::new(&daily, &at, "ro");
            same(
                "mounted",
                &timeless(&wanted),
                &timeless(&manifest(at.to_str().expect("path"), &[])),
            );
            mounted.end();
        }
        let list = text(&seekless(&["snapshot", "list", "--json", &now]));
        let list: serde_json::Value = serde_json::from_str(list.trim()).expect("JSON");
        assert_eq!(list["path"], "/.snap/daily", "{list}");
        assert!(list["held_bytes"].as_u64().is_some_and(|held| held > 20 << 20), "{list}");
    }
}

#[test]
fn snapshots_are_removed() {
    if !ready("makefs") || !ready("fls") {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-rm");
    for (version, order, name) in
        [("1", "le", "daily"), ("2", "be", "/.snap/daily"), ("2", "", "--all")]
    {
        let [_, now] = with_snapshot(&scratch, version, order);
        let without = ["!/.snap", "/.snap/daily"];
        let wanted = timeless(&manifest(&now, &without));
        let (code, why) = failure(&seekless(&["snapshot", "rm", &now, "weekly"]));
        assert!(code == 2 && why.contains("no snapshot /.snap/weekly"), "{code} {why}");
        let told = text(&seekless(&["snapshot", "rm", "--json", &now, name]));
        let told: serde_json::Value = serde_json::from_str(told.trim()).expect("JSON");
        assert_eq!(told["removed"], 1, "{told}");
        assert_eq!(text(&seekless(&["snapshot", "list", &now])), "");
        same("the rest", &wanted, &timeless(&manifest(&now, &[])));
        text(&seekless(&["check", &now]));
        if version == "1" || order.is_empty() {
            let names = run("fls", &["-r", "-p", "-u", &now]);
            assert!(names.contains("added") && !names.contains("daily"), "{names}");
        }
        text(&seekless(&["tune", "-m", "7", &now]));
        text(&seekless(&["snapshot", "rm", &now, "--all"]));
    }
}

/// Changes a mounted volume: files are removed, written over and made.
fn change_mounted(at: &Path) {
    for gone in ["single", "dir/3", "dir/hard", "double"] {
        fs::remove_file(at.join(gone)).expect("remove");
    }
    fs::write(at.join("dir/7"), b"changed").expect("write");
    fs::write(at.join("added"), vec![7; 6 << 20]).expect("write");
    fs::rename(at.join("dir"), at.join("renamed")).expect("rename");
}

#[test]
fn snapshots_are_taken_and_kept() {
    if !ready("makefs") || !ready("fls") || !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-take");
    let (tree, image, file) = (scratch.join("tree"), scratch.join("a.ufs"), scratch.join("file"));
    populate(Path::new(&tree));
    for (version, order) in [("1", "le"), ("1", "be"), ("2", "le"), ("2", "")] {
        make_image(version, order, &tree, &image);
        // The directory is made by the first one, and is in all of them.
        let without = ["/.snap"];
        let wanted = timeless(&manifest(&image, &[]));
        let told = text(&seekless(&["snapshot", "take", "--json", &image, "daily"]));
        let told: serde_json::Value = serde_json::from_str(told.trim()).expect("JSON");
        assert!(told["inode"].as_u64().is_some_and(|ino| ino > 2), "{told}");
        let daily = format!("{image}@daily");
        let names = || {
            text(&seekless(&["cp", &image, "/.snap/daily", &file]));
            let names = run("fls", &["-r", "-p", "-l", &file]);
            fs::remove_file(&file).expect("remove");
            names
        };
        // makefs places the superblock of UFS2 where The Sleuth Kit does not look.
        let is_judged = version == "1" || order.is_empty();
        let listed = is_judged.then(names);
        let is_kept = |when: &str| {
            same(when, &wanted, &timeless(&manifest(&daily, &without)));
            text(&seekless(&["check", &daily]));
            text(&seekless(&["check", &image]));
            if let Some(listed) = &listed {
                assert!(listed.contains("dir/3") && listed.contains(".snap/daily"), "{listed}");
                same(when, listed, &names());
            }
        };
        is_kept("at once");
        let at = scratch.path().join("mnt");
        let mounted = Mounted::new(&image, &at, "rw");
        change_mounted(&at);
        let snapshot = at.join(".snap/daily");
        assert!(fs::remove_file(&snapshot).is_err() && fs::write(&snapshot, "x").is_err());
        // The file is an image, also while the volume changes.
        let in_use = snapshot.to_str().expect("path");
        same("in use", &wanted, &timeless(&manifest(in_use, &without)));
        text(&seekless(&["check", in_use]));
        if let Some(listed) = &listed {
            same("in use", listed, &run("fls", &["-r", "-p", "-l", in_use]));
        }
        let kept = fs::read(&snapshot).expect("read");
        let (code, why) = failure(&seekless(&["snapshot", "take", &image, "weekly"]));
        assert!(code == 6 && why.contains("in use"), "{code} {why}");
        mounted.end();
        text(&seekless(&["cp", &image, "/.snap/daily", &file]));
        assert!(fs::read(&file).expect("read") == kept, "other bytes while it was mounted");
        fs::remove_file(&file).expect("remove");
        is_kept("after changes");
        if is_judged {
            let now = run("fls", &["-r", "-p", "-l", &image]);
            assert!(now.contains("renamed/7") && now.contains("added"), "{now}");
        }
        text(&seekless(&["snapshot", "take", &image, "/weekly"]));
        is_kept("beside another");
        let weekly = timeless(&manifest(&format!("{image}@/weekly"), &["/.snap", "/weekly"]));
        assert!(weekly.contains("renamed") && weekly != wanted, "{weekly}");
        let list = text(&seekless(&["snapshot", "list", &image]));
        assert!(list.lines().count() == 2 && list.contains("/.snap/daily"), "{list}");
        for (name, says) in [("daily", "exists"), ("/none/x", "no directory"), ("/", "name")] {
            let (code, why) = failure(&seekless(&["snapshot", "take", &image, name]));
            assert!(code == 2 && why.contains(says), "{name}: {code} {why}");
        }
        // Each is removed without the other.
        let copy = scratch.join("copy");
        fs::copy(&image, &copy).expect("copy");
        text(&seekless(&["snapshot", "rm", &copy, "daily"]));
        let left = timeless(&manifest(&format!("{copy}@/weekly"), &["/.snap", "/weekly"]));
        same("without the older one", &weekly, &left);
        text(&seekless(&["check", &format!("{copy}@/weekly")]));
        text(&seekless(&["check", &copy]));
        if is_judged {
            let now = run("fls", &["-r", "-p", "-u", &copy]);
            assert!(now.contains("renamed/7") && !now.contains("daily"), "{now}");
        }
        fs::remove_file(&copy).expect("remove");
        text(&seekless(&["snapshot", "rm", &image, "/weekly"]));
        is_kept("without the newer one");
        let list = text(&seekless(&["snapshot", "list", &image]));
        assert!(list.lines().count() == 1 && list.contains("/.snap/daily"), "{list}");
        text(&seekless(&["snapshot", "rm", &image, "--all", "--keep-files"]));
        assert_eq!(text(&seekless(&["snapshot", "list", &image])), "");
        text(&seekless(&["check", &image]));
        let mounted = Mounted::new(&image, &at, "rw");
        fs::remove_file(at.join(".snap/daily")).expect("an ordinary file");
        mounted.end();
        text(&seekless(&["check", &image]));
    }
}

/// The contents of a writer's n-th file.
fn contents_of(writer: usize, n: usize) -> Vec<u8> {
    vec![(writer * 31 + n) as u8; 1000 + n * 37 % 40_000]
}

/// Each of several programs makes durable files while a snapshot is taken: it has all that were
/// durable before, and none that was begun later.
#[test]
fn a_snapshot_is_taken_while_others_write() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-live");
    let image = scratch.join("a.ufs");
    text(&seekless(&["mkfs", "--format", "ufs2", "-s", "512M", &image]));
    let at = scratch.path().join("mnt");
    let mounted = Mounted::new(&image, &at, "rw");
    const WRITERS: usize = 8;
    let (begun, durable) =
        ([const { AtomicUsize::new(0) }; WRITERS], [const { AtomicUsize::new(0) }; WRITERS]);
    let ends = AtomicBool::new(false);
    let seen = |counts: &[AtomicUsize]| -> Vec<usize> {
        counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    };
    let (before, after, longest, list) = std::thread::scope(|threads| {
        let (begun, durable, ends, at) = (&begun, &durable, &ends, &at);
        let write = |writer: usize| {
            let dir = at.join(format!("w{writer}"));
            fs::create_dir(&dir).expect("mkdir");
            let mut longest = Duration::ZERO;
            for n in 0.. {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                let start = Instant::now();
                begun[writer].store(n + 1, Ordering::SeqCst);
                let mut file = fs::File::create(dir.join(n.to_string())).expect("create");
                file.write_all(&contents_of(writer, n)).expect("write");
                file.sync_all().expect("fsync");
                if n % 3 == 2 {
                    fs::remove_file(dir.join((n - 2).to_string())).expect("remove");
                }
                durable[writer].store(n + 1, Ordering::SeqCst);
                longest = longest.max(start.elapsed());
            }
            longest
        };
        let writers: Vec<_> = (0..WRITERS).map(|n| threads.spawn(move || write(n))).collect();
        while seen(durable).iter().any(|&count| count < 4) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = seen(durable);
        let start = Instant::now();
        let mnt = at.to_str().expect("path");
        text(&seekless(&["snapshot", "take", "--json", mnt, "daily"]));
        let took = start.elapsed();
        let after = seen(begun);
        println!("taken in {took:?}");
        let list = text(&seekless(&["snapshot", "list", "--json", mnt]));
        std::os::unix::fs::symlink(".snap", at.join("link")).expect("symlink");
        for (name, says) in [
            ("daily", "exists"),
            ("a/b", "slash"),
            ("/..", "name"),
            ("/none/x", "no directory"),
            ("/link/x", "no directory"),
        ] {
            let (code, why) = failure(&seekless(&["snapshot", "take", mnt, name]));
            assert!(code == 2 && why.contains(says), "{name}: {code} {why}");
        }
        std::thread::sleep(Duration::from_millis(200));
        ends.store(true, Ordering::SeqCst);
        let longest = writers.into_iter().map(|writer| writer.join().expect("a writer")).max();
        (before, after, longest, list)
    });
    println!("the longest that a writer waited: {longest:?}");
    assert_eq!(fs::metadata(at.join(".snap/daily")).expect("stat").len() >> 29, 1, "its length");
    mounted.end();
    let [in_use, now] =
        [list, text(&seekless(&["snapshot", "list", "--json", &image]))].map(|list| {
            let mut found: serde_json::Value = serde_json::from_str(list.trim()).expect("one line");
            let held = found["held_bytes"].take().as_u64().expect("a number");
            (found, held)
        });
    assert_eq!(in_use.0, now.0);
    assert!(in_use.1 > 0 && in_use.1 <= now.1, "{in_use:?}, {now:?}");
    let daily = format!("{image}@daily");
    text(&seekless(&["check", &daily]));
    text(&seekless(&["check", &image]));
    let copy = scratch.join("copy");
    text(&seekless(&["cp", "-r", &daily, "/", &copy]));
    // The Sleuth Kit reads the snapshot as an image of its own.
    let alone = scratch.join("daily");
    text(&seekless(&["cp", &image, "/.snap/daily", &alone]));
    let listed = ready("fls").then(|| run("fls", &["-r", "-p", "-u", &alone]));
    let has = |writer: usize, n: usize| {
        let name = format!("\tw{writer}/{n}");
        listed.as_ref().map(|listed| listed.lines().any(|line| line.ends_with(&name)))
    };
    for writer in 0..WRITERS {
        let (low, high) = (before[writer], after[writer]);
        assert!(low > 3, "writer {writer} was durable {low} times before");
        let file = |n: usize| fs::read(format!("{copy}/w{writer}/{n}"));
        for n in (0..low).filter(|n| n % 3 != 0) {
            assert!(file(n).ok() == Some(contents_of(writer, n)), "writer {writer}: file {n}");
            assert_ne!(has(writer, n), Some(false), "writer {writer}: file {n}");
        }
        for n in high..high + 50 {
            assert!(file(n).is_err(), "writer {writer}: file {n} of {low} to {high}");
            assert_ne!(has(writer, n), Some(true), "writer {writer}: file {n} of {low} to {high}");
        }
    }
}

/// The snapshots of a mounted volume are listed with their paths, and removed.
#[test]
fn snapshots_of_a_mounted_volume_are_listed_and_removed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-list");
    for format in ["ufs1", "ufs2"] {
        let image = scratch.join(format);
        text(&seekless(&["mkfs", "--format", format, "--size", "64M", &image]));
        let at = scratch.path().join("mnt");
        let mounted = Mounted::new(&image, &at, "rw");
        let mnt = at.to_str().expect("path");
        let list = |of: &str| text(&seekless(&["snapshot", "list", of]));
        assert_eq!(list(mnt), "");
        fs::create_dir_all(at.join("a/b")).expect("mkdir");
        for name in ["daily", "/a/b/weekly", "/last"] {
            fs::write(at.join("file"), name).expect("write");
            text(&seekless(&["snapshot", "take", mnt, name]));
        }
        let listed = list(mnt);
        let paths: Vec<&str> =
            listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(paths, ["/.snap/daily", "/a/b/weekly", "/last"], "{listed}");
        fs::rename(at.join("a"), at.join("c")).expect("rename");
        assert!(list(mnt).contains(" /c/b/weekly"), "{}", list(mnt));
        let (code, why) = failure(&seekless(&["snapshot", "rm", mnt, "--all", "--keep-files"]));
        assert!(code == 4 && why.contains("unmount it"), "{code} {why}");
        for (name, says) in [
            ("none", "no snapshot none"),
            ("/file", "/file is not a snapshot"),
            ("/none/daily", "no directory"),
            ("a/b", "slash"),
        ] {
            let (code, why) = failure(&seekless(&["snapshot", "rm", mnt, name]));
            assert!(code == 2 && why.contains(says), "{name}: {code} {why}");
        }
        let reader = fs::File::open(at.join(".snap/daily")).expect("open");
        let (code, why) = failure(&seekless(&["snapshot", "rm", mnt, "/.snap/daily"]));
        assert!(code == 6 && why.contains("busy"), "{code} {why}");
        drop(reader);
        // Of several names, one that cannot be removed keeps all.
        for names in [["daily", "none"], ["/last", "/file"]] {
            let rm = [&["snapshot", "rm", mnt][..], &names].concat();
            assert_eq!(failure(&seekless(&rm)).0, 2, "{names:?}");
        }
        let in_use = list(mnt);
        assert_eq!(in_use.lines().count(), 3, "{in_use}");
        mounted.end();
        let without_sizes = |list: &str| -> Vec<String> {
            let words = list.lines().map(str::split_whitespace);
            words.map(|words| words.rev().take(2).collect()).collect()
        };
        assert_eq!(without_sizes(&in_use), without_sizes(&list(&image)));
        let manifest_of = |name: &str| manifest(&format!("{image}@{name}"), &[]);
        let last = manifest_of("/last");
        text(&seekless(&["snapshot", "rm", &image, "/c/b/weekly"]));
        assert_eq!(list(&image).lines().count(), 2);
        text(&seekless(&["check", &image]));
        let mounted = Mounted::new(&image, &at, "rw");
        fs::write(at.join("file"), [1; 9000]).expect("write");
        let told = text(&seekless(&["snapshot", "rm", "--json", mnt, "daily", "/.snap/daily"]));
        assert!(told.contains(r#""removed":1"#), "{told}");
        assert!(!at.join(".snap/daily").exists());
        fs::write(at.join("file"), [2; 9000]).expect("write");
        assert_eq!(list(mnt).lines().count(), 1);
        text(&seekless(&["snapshot", "take", mnt, "/next"]));
        mounted.end();
        text(&seekless(&["check", &image]));
        same("the other snapshot", &last, &manifest_of("/last"));
        let mounted = Mounted::new(&image, &at, "rw");
        let told = text(&seekless(&["snapshot", "rm", "--json", mnt, "--all"]));
        assert!(told.contains(r#""removed":2"#), "{told}");
        assert_eq!(list(mnt), "");
        mounted.end();
        assert_eq!(list(&image), "");
        text(&seekless(&["check", &image]));
    }
    let plain = scratch.path().join("dir");
    fs::create_dir(&plain).expect("mkdir");
    let (code, why) = failure(&seekless(&["snapshot", "list", plain.to_str().expect("path")]));
    assert!(code == 2 && why.contains("mounted"), "{code} {why}");
    let (code, why) = failure(&seekless(&["snapshot", "list", "/proc"]));
    assert!(code == 4 && why.contains("mounted with rw"), "{code} {why}");
}

/// A volume is checked while a program changes it; nothing of that is left.
#[test]
fn a_mounted_volume_is_checked() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-check-mounted");
    let image = scratch.join("a.ufs");
    text(&seekless(&["mkfs", "--format", "ufs2", "--size", "128M", &image]));
    let at = scratch.path().join("mnt");
    let mnt = at.to_str().expect("path");
    let check = ["check", "--background", mnt];
    let mounted = Mounted::new(&image, &at, "rw");
    let left = AtomicUsize::new(4);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // A failure of the other thread must not be waited for.
            for n in (0..20_000).take_while(|_| left.load(Ordering::SeqCst) > 0) {
                let dir = at.join(format!("dir-{n}"));
                fs::create_dir(&dir).expect("mkdir");
                fs::write(dir.join("name-of-a-file"), contents_of(1, n % 50)).expect("write");
                if n >= 3 {
                    fs::remove_dir_all(at.join(format!("dir-{}", n - 3))).expect("remove");
                }
            }
        });
        for _ in 0..3 {
            let said = text(&seekless(&[&["--json"], &check[..]].concat()));
            let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
            assert_eq!((&said["outcome"], &said["image"]), (&"clean".into(), &mnt.into()));
            assert!(said["directories"].as_u64() >= Some(2), "{said}");
            assert!(!at.join(".snap/fsck_snapshot").exists());
            left.fetch_sub(1, Ordering::SeqCst);
        }
        // As another check has it, and as one that was killed leaves it.
        text(&seekless(&["snapshot", "take", mnt, "fsck_snapshot"]));
        let open = fs::File::open(at.join(".snap/fsck_snapshot")).expect("open");
        let (code, why) = failure(&seekless(&check));
        assert!(code == 8 && why.contains("busy"), "{code} {why}");
        drop(open);
        assert!(text(&seekless(&check)).contains("in order"));
        fs::write(at.join(".snap/fsck_snapshot"), "").expect("write");
        assert!(text(&seekless(&check)).contains("in order"));
        assert_eq!(text(&seekless(&["snapshot", "list", mnt])), "");
        left.fetch_sub(1, Ordering::SeqCst);
    });
    fs::write(at.join("only-once"), "text").expect("write");
    mounted.end();
    text(&seekless(&["check", &image]));
    let mut bytes = fs::read(&image).expect("read");
    let name = b"only-once";
    let found = bytes.windows(name.len()).position(|part| part == name).expect("a name");
    // The kind of the file in its directory's entry: a symlink instead of a regular file.
    bytes[found - 2] = 10;
    fs::write(&image, bytes).expect("write");
    let mounted = Mounted::new(&image, &at, "rw");
    let found = seekless(&check);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(4), "{said}");
    assert!(said.contains("unmount it"), "{said}");
    mounted.end();
    let (code, why) = failure(&seekless(&["check", "--background", &image]));
    assert!(code == 8 && why.contains("Not a directory"), "{code} {why}");
    assert_eq!(seekless(&["check", "--background", "-y", &image]).status.code(), Some(16));
}

/// Only root and the user of the server may take a snapshot of a mounted volume.
#[test]
fn a_snapshot_is_refused_to_other_users() {
    if !can_mount() || !ready("setpriv") {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-eperm");
    let image = scratch.join("a.ufs");
    text(&seekless(&["mkfs", "--format", "ufs2", "--size", "64M", &image]));
    let at = scratch.path().join("mnt");
    let mounted = Mounted::new(&image, &at, "rw,allow_other");
    let open = at.join("open");
    fs::create_dir(&open).expect("mkdir");
    for dir in [&at, &open] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    let mnt = at.to_str().expect("path");
    for name in ["/open/mine", "mine"] {
        let user = ["--reuid", "1000", "--regid", "1000", "--clear-groups"];
        let taken = Command::new("setpriv")
            .args(user)
            .arg(env!("CARGO_BIN_EXE_seekless"))
            .args(["snapshot", "take", mnt, name])
            .output()
            .expect("setpriv");
        let (code, why) = failure(&taken);
        assert!(code == 6 && why.contains("not permitted"), "{name}: {code} {why}");
        assert!(!open.join("mine").exists() && !at.join(".snap").exists(), "{name}");
    }
    text(&seekless(&["snapshot", "take", mnt, "/open/mine"]));
    let user = ["--reuid", "1000", "--regid", "1000", "--clear-groups"];
    let removed = Command::new("setpriv")
        .args(user)
        .arg(env!("CARGO_BIN_EXE_seekless"))
        .args(["snapshot", "rm", mnt, "/open/mine"])
        .output()
        .expect("setpriv");
    let (code, why) = failure(&removed);
    assert!(code == 6 && why.contains("denied"), "{code} {why}");
    // Nor is the request granted of a file that is open already.
    let ask = "ioctl(STDIN, 0x7355, 0) or die \"$!\\n\"";
    let asked = Command::new("setpriv")
        .args(user)
        .args(["perl", "-e", ask])
        .stdin(fs::File::open(open.join("mine")).expect("open"))
        .output()
        .expect("setpriv");
    let why = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && why.contains("not permitted"), "{why}");
    assert!(text(&seekless(&["snapshot", "list", mnt])).contains("/open/mine"));
    text(&seekless(&["snapshot", "rm", mnt, "/open/mine"]));
    assert!(!open.join("mine").exists());
    mounted.end();
    text(&seekless(&["check", &image]));
}

/// Only a UFS volume with soft updates takes snapshots while it is mounted; nothing is left behind.
#[test]
fn snapshots_of_other_mounts_are_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-snapshot-other");
    let dir = scratch.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let take = |at: &Path, name: &str| {
        failure(&seekless(&["snapshot", "take", at.to_str().expect("path"), name]))
    };
    let refused = |at: &Path| {
        for name in ["/daily", "daily"] {
            let (code, why) = take(at, name);
            assert!(code == 4 && why.contains("takes no snapshots"), "{code} {why}");
            assert!(!at.join("daily").exists() && !at.join(".snap").exists(), "{name}");
        }
    };
    let (code, why) = take(&dir, "daily");
    assert!(code == 2 && why.contains("mounted"), "{code} {why}");
    for (format, options) in [("fat32", "rw"), ("ufs2", "rw,normal")] {
        let image = scratch.join(format);
        text(&seekless(&["mkfs", "--format", format, "--size", "64M", &image]));
        let at = scratch.path().join("mnt");
        let mounted = Mounted::new(&image, &at, options);
        refused(&at);
        mounted.end();
        text(&seekless(&["check", &image]));
    }
}

#[test]
fn snapshots_that_are_not_there_are_refused() {
    if !ready("makefs") {
        return;
    }
    let scratch = Scratch::new("ufs-no-snapshot");
    let [was, now] = with_snapshot(&scratch, "2", "le");
    let refused = |args: &[&str], code: i32, says: &str| {
        let output = seekless(args);
        assert!(!output.status.success(), "{args:?}: succeeded");
        let (found, message) = failure(&output);
        assert!(found == code && message.contains(says), "{args:?}: {found} {message}");
    };
    refused(&["ls", &format!("{now}@weekly")], 2, "no snapshot /.snap/weekly");
    refused(&["ls", &format!("{now}@/dir/5")], 2, "/dir/5 is not a snapshot");
    refused(&["ls", &format!("{was}@daily")], 2, "no snapshot");
    let mount = ["mount", &format!("{now}@daily"), &scratch.join("tree"), "-o", "rw"];
    refused(&mount, 4, "a snapshot is read-only");
    refused(&["ls", &format!("{was}.none@daily")], 6, "No such file");
    refused(&["check", "-y", &format!("{now}@daily")], 8, "a snapshot is read-only");
    refused(&["tune", "-m", "5", &now], 4, "snapshots");
    let both = ["build", &format!("{now}@daily"), &scratch.join("tree"), "-o", &scratch.join("no")];
    refused(&both, 2, "a snapshot is the only source");
    let ext = scratch.join("ext.img");
    text(&seekless(&["build", &scratch.join("tree"), "-o", &ext, "--format", "ext4"]));
    refused(&["snapshot", "list", &ext], 4, "ext images have no snapshots");
    refused(&["ls", &format!("{ext}@daily")], 4, "ext images have no snapshots");
    // An image is not written over through one of its snapshots, and the longest name is the
    // image's.
    if can_mount() {
        let device = judges::attach(&now, false);
        let before = fs::read(&now).expect("read");
        for source in [format!("{now}@daily"), format!("{device}@daily")] {
            let build = ["build", &source, "-o", &device, "--force", "--exclude", "/.snap"];
            refused(&build, 2, "would be written over its source");
        }
        judges::detach(&device);
        assert!(fs::read(&now).expect("read") == before, "the volume was written over");
    }
    let longer = format!("{now}@b.ufs");
    fs::copy(&now, &longer).expect("copy");
    text(&seekless(&["ls", &format!("{longer}@daily")]));
    // A file of that name goes before.
    let named = format!("{now}@daily");
    fs::copy(&was, &named).expect("copy");
    same("a file of the name", &manifest(&was, &[]), &manifest(&named, &[]));
    assert_eq!(text(&seekless(&["snapshot", "list", &was])), "");
    let next = scratch.join("next.img");
    let like = ["build", &scratch.join("tree"), "-o", &next, "--format", "ufs2", "--like", &now];
    refused(&like, 4, "snapshots");
}
