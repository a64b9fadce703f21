//! Snapshots of images: read, taken, removed.

use crate::by_hand::Raw;
use crate::judges::{
    Scratch, can_mount, failure, manifest, ready, run, same, seekless, text, timeless,
};
use crate::mounted::Mounted;
use crate::populate;
use std::fs;
use std::path::Path;

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
        let device = crate::judges::attach(&now, false);
        let before = fs::read(&now).expect("read");
        for source in [format!("{now}@daily"), format!("{device}@daily")] {
            let build = ["build", &source, "-o", &device, "--force", "--exclude", "/.snap"];
            refused(&build, 2, "would be written over an input");
        }
        crate::judges::detach(&device);
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
