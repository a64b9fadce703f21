//! Images that are mounted at once after a crash and checked meanwhile.

use super::{Scratch, dissect, failure, listing, make, ready, run, seekless, text};
use crate::judges::same;
use crate::recovery::{Server, kill_and_use, result};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

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
