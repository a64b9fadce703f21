//! Images that are mounted at once after a crash and checked meanwhile.

use super::{Scratch, dissect, failure, listing, make, ready, run, seekless, text};
use crate::judges::{command, same, unmount};
use crate::recovery::{Server, WORK, kept, kill_and_use, result, work_until_killed};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Servers that are killed; the campaign kills more.
const KILLS: u64 = 8;
const MANY_KILLS: u64 = 500;

fn kill_and_recover(kills: u64) {
    if !ready() {
        return;
    }
    let mut released = 0;
    for seed in 0..kills {
        let scratch = Scratch::new("ufs-recover");
        let image = scratch.join("image");
        let format = ["ufs2", "ufs1"][seed as usize % 2];
        make(&image, format, "64M", &[]);
        let what = format!("{format}, kill {seed}");
        released += kill_and_use(&image, &scratch, seed, &what);
        text(&seekless(&["check", &image]));
        if dissect::ready() {
            dissect::agrees(&what, &dissect::of_manifest(&listing(&image)), &image);
        }
        // Nothing that a repair would find.
        let preened = text(&seekless(&["check", "-p", &image]));
        assert!(!preened.contains("repaired"), "{what}: {preened}");
    }
    assert!(released > 0, "nothing was lost in {kills} kills");
}

#[test]
fn killed_and_used_at_once() {
    kill_and_recover(KILLS);
}

/// Half an hour.
#[test]
#[ignore = "a campaign"]
fn killed_many_times_and_used_at_once() {
    kill_and_recover(MANY_KILLS);
}

/// A volume so large that its check takes seconds, with `dir/empty` and `other/file`.
fn large_and_crashed(scratch: &Scratch, at: &Path) -> String {
    let image = scratch.join("image");
    make(&image, "ufs2", "100G", &[]);
    let server = Server::start(&image, at, "rw,softdep", &scratch.join("messages"));
    fs::create_dir_all(at.join("dir/empty")).expect("mkdir");
    fs::create_dir(at.join("other")).expect("mkdir");
    fs::write(at.join("other/file"), b"kept").expect("write");
    for name in ["dir/empty", "dir", "other/file"] {
        File::open(at.join(name)).and_then(|file| file.sync_all()).expect("fsync");
    }
    server.kill(at);
    image
}

/// Reads and changes in another directory.
fn use_other(at: &Path) {
    let other = at.join("other");
    assert_eq!(fs::read(other.join("file")).expect("read"), b"kept");
    fs::write(other.join("new"), b"new").expect("write");
    fs::rename(other.join("new"), other.join("file")).expect("rename");
    fs::create_dir(other.join("made")).expect("mkdir");
    fs::remove_file(other.join("file")).expect("unlink");
}

#[test]
fn directories_keep_their_names_until_it_is_checked() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-recover-wait");
    let (at, messages) = (scratch.path().join("at"), scratch.join("messages"));
    fs::create_dir(&at).expect("mount point");
    let image = large_and_crashed(&scratch, &at);
    let server = Server::start(&image, &at, "rw,recover=background", &messages);
    let mut removal = Command::new("rmdir").arg(at.join("dir/empty")).spawn().expect("rmdir");
    use_other(&at);
    let ended = removal.try_wait().expect("rmdir").is_some();
    let checked = fs::read_to_string(&messages).expect("messages").contains("background_check");
    assert!(checked || !ended, "a directory was removed before the end of the check");
    assert_eq!(result(&messages)["sound"], true);
    assert!(removal.wait().expect("rmdir").success());
    // Free blocks are discarded from now on.
    fs::write(at.join("large"), vec![7; 9 << 20]).expect("write");
    File::open(at.join("large")).and_then(|file| file.sync_all()).expect("fsync");
    let full = fs::metadata(&image).expect("image").blocks();
    fs::remove_file(at.join("large")).expect("rm");
    run("fstrim", &[&at]);
    let kept = fs::metadata(&image).expect("image").blocks();
    assert!(kept < full - (8 << 20) / 512, "{kept} of {full} sectors");
    // And snapshots are taken.
    let mnt = at.to_str().expect("path");
    for how in [&["check", "--background", mnt][..], &["check", "--background", "-p", mnt]] {
        assert!(text(&seekless(how)).contains("in order"), "{how:?}");
    }
    server.end(&at);
    text(&seekless(&["check", &image]));
}

#[test]
fn a_signal_ends_it_and_those_who_wait() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-recover-signal");
    let (at, messages) = (scratch.path().join("at"), scratch.join("messages"));
    fs::create_dir(&at).expect("mount point");
    let image = large_and_crashed(&scratch, &at);
    let mut server = Server::start(&image, &at, "rw,recover=background", &messages);
    let mut removal = Command::new("rmdir").arg(at.join("dir/empty")).spawn().expect("rmdir");
    use_other(&at);
    run("kill", &["-TERM", &server.0.id().to_string()]);
    let ended = server.0.wait().expect("server");
    assert!(ended.success(), "{ended}");
    let removed = removal.wait().expect("rmdir").success();
    let found = result(&messages);
    if found["sound"] == true {
        // The check was faster than the signal.
        assert!(removed, "{found}");
    } else {
        assert!(!removed && found["error"].is_string(), "{found}");
        // The next mount starts the check again.
        let server = Server::start(&image, &at, "rw,recover=background", &messages);
        assert_eq!(result(&messages)["sound"], true);
        server.end(&at);
    }
    text(&seekless(&["check", &image]));
}

#[test]
fn where_it_is_not_possible_it_says_why() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-recover-not");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let messages = scratch.join("messages");
    fs::create_dir(&at).expect("mount point");
    let elsewhere = scratch.join("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");
    let refused = |options: &str, expected: &str| {
        let (code, message) = failure(&seekless(&["mount", &image, &elsewhere, "-o", options]));
        assert!(code != 0 && message.contains(expected), "{options}: {message}");
    };
    let repair = |how: &str| {
        let code = seekless(&["check", how, &image]).status.code();
        assert_eq!(code, Some(1), "check {how}");
    };
    make(&image, "ufs2", "16M", &["--check-hashes", "groups"]);
    // There is nothing to be recovered.
    Server::start(&image, &at, "rw,recover=background", &messages).end(&at);
    assert_eq!(fs::read_to_string(&messages).expect("messages"), "");
    // It was in use without soft updates.
    let server = Server::start(&image, &at, "rw,sync", &messages);
    fs::write(at.join("file"), b"x").expect("write");
    server.kill(&at);
    refused("rw,recover=background", "was in use with soft updates");
    repair("-p");
    Server::start(&image, &at, "rw,softdep", &messages).kill(&at);
    refused("rw,sync,recover=background", "only with soft updates");
    refused("rw,recover=later", "background");

    // Damage is found, and the next mount is refused until the image has been checked.
    let before = listing(&image);
    damage_root_links(&image);
    let server = Server::start(&image, &at, "rw,recover=background", &messages);
    let found = result(&messages);
    assert_eq!(found["sound"], false, "{found}");
    assert_eq!(found["left"][0]["code"], "inode.links-low", "{found}");
    server.end(&at);
    refused("rw,recover=background", "must be checked before it is used");
    repair("-y");
    same("repaired", &before, &listing(&image));
    Server::start(&image, &at, "rw", &messages).end(&at);

    // Formats without it.
    text(&seekless(&["mkfs", "--force", "--format", "fat16", "--size", "16M", &image]));
    refused("rw,recover=background", "a check of a FAT image while it is in use");
}

/// Sets the link count of the root, inode 2, to 1.
fn damage_root_links(image: &str) {
    let file = File::options().read(true).write(true).open(image).expect("image");
    let word = |at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, (64 << 10) + at).expect("superblock");
        u64::from(u32::from_le_bytes(bytes))
    };
    // `fs_iblkno`, `fs_fsize`; an inode of UFS2 has 256 bytes, and its second field is `di_nlink`.
    let at = word(16) * word(52) + 2 * 256 + 2;
    file.write_all_at(&1u16.to_le_bytes(), at).expect("write");
}

/// Makes and removes files and names for ever, in directories that are durable soon.
const FILES: &str = r#"
mkdir d1 d2 d3; n=0
while :; do
    n=$((n + 1)); old=$((n - 1))
    for i in 1 2 3; do
        head -c $((i * 41000)) /dev/zero > d$i/new$n; echo $n > d$i/small$n; ln d$i/new$n d$i/link$n
    done
    rm -f d?/new$old d?/small$old d?/link$((n - 2))
done"#;

/// The numbers of names and of links of all files, by inode.
fn names_and_links(root: &Path) -> HashMap<u64, (u64, u64)> {
    let (mut found, mut dirs) = (HashMap::new(), vec![root.to_path_buf()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("list") {
            let entry = entry.expect("entry");
            // Another thread removes files.
            let Ok(stat) = fs::symlink_metadata(entry.path()) else { continue };
            if stat.is_dir() {
                dirs.push(entry.path());
            } else {
                found.entry(stat.ino()).or_insert((0, stat.nlink())).0 += 1;
            }
        }
    }
    found
}

/// A volume that is used by force after a crash, and corrected while programs write. Returns the
/// exit code of that check.
fn kill_and_correct(scratch: &Scratch, image: &str, (seed, work): (u64, &str)) -> Option<i32> {
    let what = format!("kill {seed}");
    let (at, messages) = (scratch.path().join("at"), scratch.join("messages"));
    fs::create_dir(&at).expect("mount point");
    let durable = work_until_killed(image, &at, scratch, (seed, work));
    let server = Server::start(image, &at, "rw,softdep,force", &messages);
    let mnt = at.to_str().expect("path");
    let ends = AtomicBool::new(false);
    let code = std::thread::scope(|threads| {
        threads.spawn(|| {
            let dir = at.join("meanwhile");
            fs::create_dir(&dir).expect("mkdir");
            let new = File::options().read(true).write(true).create_new(true).clone();
            let held = new.open(dir.join("held")).expect("create");
            held.write_all_at(&[7; 300_000], 0).expect("write");
            fs::remove_file(dir.join("held")).expect("rm");
            for n in (0..100_000).take_while(|_| !ends.load(Ordering::SeqCst)) {
                let file = dir.join(n.to_string());
                fs::write(&file, vec![n as u8; 1000 + n * 977 % 90_000]).expect("write");
                if n >= 5 {
                    fs::remove_file(dir.join((n - 5).to_string())).expect("rm");
                }
            }
            let mut bytes = vec![0; 300_000];
            held.read_exact_at(&mut bytes, 0).expect("read");
            assert!(bytes.iter().all(|&byte| byte == 7), "{what}: an open file without a name");
        });
        // The kernel has the counts of links in its cache then.
        names_and_links(&at);
        // A check that is killed is begun again.
        let mut killed = command(&["check", "--background", "-p", mnt]).spawn().expect("seekless");
        std::thread::sleep(Duration::from_millis(seed * 37 % 120));
        killed.kill().expect("kill");
        killed.wait().expect("wait");
        // Its last request is served to its end.
        let start = Instant::now();
        let checked = loop {
            let checked = seekless(&["--json", "check", "--background", "-p", mnt]);
            let busy = checked.status.code() == Some(8);
            let is_marked = String::from_utf8_lossy(&checked.stderr).contains("must be checked");
            if busy && is_marked {
                // By the one that was killed.
                ends.store(true, Ordering::SeqCst);
                return Some(4);
            }
            if !busy || start.elapsed() > Duration::from_secs(20) {
                break checked;
            }
        };
        ends.store(true, Ordering::SeqCst);
        let said: serde_json::Value = serde_json::from_slice(&checked.stdout)
            .unwrap_or_else(|_| panic!("{what}: {checked:?}"));
        assert_eq!((&said["mode"], &said["image"]), (&"preen".into(), &mnt.into()), "{what}");
        checked.status.code()
    });
    kept(&at, &durable, &what);
    // Nothing is left that it can correct.
    if code != Some(4) {
        for (ino, (names, links)) in names_and_links(&at) {
            assert_eq!(names, links, "{what}: names and links of inode {ino}");
        }
        assert!(text(&seekless(&["check", "--background", mnt])).contains("in order"), "{what}");
    }
    server.end(&at);
    code
}

#[test]
fn corrected_in_use_on_request() {
    if !ready() {
        return;
    }
    let mut corrected = 0;
    for seed in 0..KILLS {
        let scratch = Scratch::new("ufs-correct");
        let image = scratch.join("image");
        make(&image, ["ufs2", "ufs1"][seed as usize % 2], "64M", &[]);
        let code = kill_and_correct(&scratch, &image, (seed, FILES));
        assert!(matches!(code, Some(0 | 1)), "kill {seed}: {code:?}");
        corrected += u32::from(code == Some(1));
        // It was marked clean, and is.
        text(&seekless(&["check", &image]));
        if dissect::ready() {
            let what = format!("kill {seed}");
            dissect::agrees(&what, &dissect::of_manifest(&listing(&image)), &image);
        }
        let server =
            Server::start(&image, &scratch.path().join("at"), "rw", &scratch.join("messages"));
        server.end(&scratch.path().join("at"));
    }
    assert!(corrected > 0, "nothing was lost in {KILLS} kills");
}

/// Takes the name `lost` of a directory off the disk (`struct direct`: the inode's number, two bytes of
/// length, kind, length of the name).
fn take_name(image: &str) {
    let mut bytes = fs::read(image).expect("image");
    let name = b"\x04\x04lost\0";
    let at: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name)).collect();
    let [at] = at[..] else { panic!("the name is at {at:?}") };
    bytes[at - 6..at - 2].fill(0);
    fs::write(image, bytes).expect("image");
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("name")).collect();
    names.sort();
    names
}

/// The names in an open directory, from its beginning on. The attributes are not read, with which the
/// kernel would learn that it has changed.
fn raw_names(dir: &File) -> Vec<String> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0)).expect("seek");
    let (mut buf, mut names) = (Vec::with_capacity(1 << 15), Vec::new());
    let mut entries = rustix::fs::RawDir::new(dir, buf.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        names.push(entry.expect("entry").file_name().to_str().expect("name").to_string());
    }
    names.retain(|name| name != "." && name != "..");
    names
}

/// The kernel keeps listings, and that there is no `lost+found`.
#[test]
fn a_directory_that_gets_a_name_is_shown() {
    if !ready() {
        return;
    }
    for has_home in [false, true] {
        let scratch = Scratch::new("ufs-correct-name");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        let messages = scratch.join("messages");
        fs::create_dir(&at).expect("mount point");
        make(&image, "ufs2", "16M", &[]);
        let server = Server::start(&image, &at, "rw,softdep", &messages);
        fs::create_dir_all(at.join("dir/lost")).expect("mkdir");
        fs::write(at.join("dir/lost/file"), b"kept").expect("write");
        let home = at.join("lost+found");
        if has_home {
            fs::create_dir(&home).expect("mkdir");
        }
        server.end(&at);
        take_name(&image);
        let server = Server::start(&image, &at, "rw,softdep", &messages);
        for _ in 0..2 {
            assert!(names(&at.join("dir")).is_empty());
            assert_eq!(home.exists(), has_home);
            assert!(!has_home || names(&home).is_empty());
            assert_eq!(names(&at).contains(&"lost+found".to_string()), has_home);
        }
        let links = fs::metadata(at.join("dir")).expect("dir").nlink();
        let open = has_home.then(|| File::open(&home).expect("open"));
        assert_eq!(open.as_ref().map(raw_names).unwrap_or_default(), [""; 0]);
        let mnt = at.to_str().expect("path");
        let done = seekless(&["check", "--background", "-p", mnt]);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        if let Some(open) = &open {
            assert_eq!(raw_names(open).len(), 1, "a kept listing");
        }
        drop(open);
        assert!(names(&at).contains(&"lost+found".to_string()), "{:?}", names(&at));
        let [name] = &names(&home)[..] else { panic!("{:?}", names(&home)) };
        assert_eq!(fs::read(home.join(name).join("file")).expect("read"), b"kept");
        assert_eq!(fs::metadata(at.join("dir")).expect("dir").nlink(), links - 1);
        server.end(&at);
        text(&seekless(&["check", &image]));
    }
}

/// Directories that were being moved have two names: these are not corrected on request.
#[test]
fn what_is_not_corrected_in_use_marks_the_volume() {
    if !ready() {
        return;
    }
    let mut left = 0;
    for seed in 0..KILLS {
        let scratch = Scratch::new("ufs-correct-left");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        make(&image, "ufs2", "64M", &[]);
        let code = kill_and_correct(&scratch, &image, (seed, WORK));
        let mounted = seekless(&["mount", &image, at.to_str().expect("path"), "-o", "rw"]);
        match code {
            Some(4) => {
                left += 1;
                assert!(!mounted.status.success(), "kill {seed}: it is marked");
                let by_recovery = "rw,recover=background";
                let (code, why) = failure(&seekless(&[
                    "mount",
                    &image,
                    at.to_str().expect("path"),
                    "-o",
                    by_recovery,
                ]));
                assert!(code != 0 && why.contains("must be checked"), "kill {seed}: {why}");
                assert_eq!(seekless(&["check", "-p", &image]).status.code(), Some(1));
            }
            _ => {
                assert!(mounted.status.success(), "kill {seed}: {mounted:?}");
                unmount(&at).expect("umount");
                run("flock", &[&image, "true"]);
            }
        }
        text(&seekless(&["check", &image]));
    }
    println!("{left} of {KILLS} were left");
}
