//! Images that are mounted at once after a crash and checked meanwhile.

use super::{Scratch, dissect, failure, listing, make, ready, run, seekless, text};
use crate::judges::{same, unmount};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Servers that are killed; the campaign kills more.
const KILLS: u64 = 8;
const MANY_KILLS: u64 = 500;

/// Makes, moves and removes files and directories for ever.
const WORK: &str = r#"
n=0
while :; do
    n=$((n + 1)); old=$((n - 1)); older=$((n - 2))
    mkdir -p a$n/sub b$n d/e/f$n
    for i in 1 2 3 4 5 6 7 8 9; do
        head -c $((i * 3000)) /dev/zero > a$n/$i; echo $i > a$n/sub/$i; echo $i > d/e/f$n/$i
    done
    mv a$n/sub b$n/; mv a$n/[1-5] b$n/
    rm -rf a$old b$older
    ln d/e/f$n/1 h$n; truncate -s 70000 d/e/f$n/2; head -c 590000 /dev/zero > big$n; : > big$old
    rm -f h$older big$older
    rm -rf d/e/f$older d/f$old
    mv d/e/f$n d/
done"#;

/// Work of users while the image is checked.
const USE: &str = "
set -e
mkdir new; for i in 1 2 3 4 5 6 7 8 9; do head -c $((i * 9000)) /dev/zero > new/$i; done
find . -type f -exec cat {} + > /dev/null
rm -rf a[1-3]* b[1-3]*; mv d moved; rm -rf moved/e new";

/// The server of a mount.
struct Server(Child);

impl Server {
    /// Mounts an image; messages go to a file.
    fn start(image: &str, at: &Path, options: &str, messages: &str) -> Self {
        let outside = fs::metadata(at).expect("mount point").dev();
        let server = Command::new(env!("CARGO_BIN_EXE_seekless"))
            .args(["--json", "mount", "-f", image])
            .arg(at)
            .args(["-o", options])
            .stdout(Stdio::null())
            .stderr(File::create(messages).expect("messages"))
            .spawn()
            .expect("seekless mount");
        let mut server = Self(server);
        let start = Instant::now();
        while fs::metadata(at).is_ok_and(|seen| seen.dev() == outside) {
            let ended = server.0.try_wait().expect("server");
            assert!(ended.is_none(), "{}", fs::read_to_string(messages).unwrap_or_default());
            assert!(start.elapsed() < Duration::from_secs(20), "not mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn kill(mut self, at: &Path) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
        let detached = Command::new("umount").arg("-l").arg(at).status().expect("umount");
        assert!(detached.success());
    }

    fn end(mut self, at: &Path) {
        unmount(at).expect("umount");
        assert!(self.0.wait().expect("server").success(), "the mount ended with an error");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Works until the server has been killed; returns the files that were durable before.
fn work_until_killed(image: &str, at: &Path, scratch: &Scratch, seed: u64) -> Vec<u64> {
    let limits = "rw,softdep,cache=2M,max_softdeps=400";
    let server = Server::start(image, at, limits, &scratch.join("messages"));
    let mut work = Command::new("sh")
        .args(["-c", WORK])
        .current_dir(at)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh");
    let dir = at.to_path_buf();
    let durable = std::thread::spawn(move || {
        let mut durable = Vec::new();
        for number in 0.. {
            let kept = File::create(dir.join(format!("kept{number}"))).and_then(|mut file| {
                file.write_all(&number.to_string().into_bytes().repeat(500))?;
                file.sync_all()
            });
            match kept {
                Ok(()) => durable.push(number),
                Err(_) => return durable,
            }
        }
        unreachable!("there is room for one file less than there are numbers")
    });
    std::thread::sleep(Duration::from_millis(400 + seed * 7919 % 2600));
    server.kill(at);
    let group = format!("-{}", work.id());
    let _ = Command::new("kill").args(["-9", "--", &group]).status();
    work.wait().expect("wait");
    durable.join().expect("writer")
}

/// Waits for the result of the check in the background.
fn result(messages: &str) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let said = fs::read_to_string(messages).unwrap_or_default();
        let line = said.lines().find(|line| line.contains("background_check"));
        if let Some(found) = line.and_then(|line| serde_json::from_str(line).ok()) {
            let found: serde_json::Value = found;
            return found["background_check"].clone();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no result: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill_and_recover(kills: u64) {
    if !ready() {
        return;
    }
    let mut released = 0;
    for seed in 0..kills {
        let scratch = Scratch::new("ufs-recover");
        let (image, at) = (scratch.join("image"), scratch.path().join("at"));
        let messages = scratch.join("messages");
        fs::create_dir(&at).expect("mount point");
        let format = ["ufs2", "ufs1"][seed as usize % 2];
        make(&image, format, "64M", &[]);
        let durable = work_until_killed(&image, &at, &scratch, seed);
        let what = format!("{format}, kill {seed}");

        let server = Server::start(&image, &at, "rw,recover=background", &messages);
        let used = Command::new("sh").args(["-c", USE]).current_dir(&at).output().expect("sh");
        let said = String::from_utf8_lossy(&used.stderr).into_owned();
        let found = result(&messages);
        assert_eq!(found["sound"], true, "{what}: {found}");
        assert!(used.status.success(), "{what}: {said}");
        for number in &durable {
            let bytes = fs::read(at.join(format!("kept{number}"))).expect("a durable file");
            assert_eq!(bytes, number.to_string().into_bytes().repeat(500), "{what}");
        }
        server.end(&at);
        text(&seekless(&["check", &image]));
        if dissect::ready() {
            dissect::agrees(&what, &dissect::of_manifest(&listing(&image)), &image);
        }
        // Nothing that a repair would find.
        let preened = text(&seekless(&["check", "-p", &image]));
        assert!(!preened.contains("repaired"), "{what}: {preened}");
        released += found["files"].as_u64().unwrap_or(0) + found["inodes"].as_u64().unwrap_or(0);
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
