//! Images without a journal that are mounted at once after a crash and checked meanwhile.

use super::{Scratch, failure, make, ready, run, seekless, sound};
use crate::judges::text;
use crate::recovery::{Server, kill_and_use, result};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Servers that are killed; the campaign kills more.
const KILLS: u64 = 6;
const MANY_KILLS: u64 = 300;

/// Shapes whose block maps soft updates can change.
const SHAPES: [&[&str]; 3] = [
    &["-b", "1024", "-I", "128"],
    &["-b", "4096", "-I", "256"],
    &["-t", "ext4", "-O", "^has_journal,^metadata_csum,^orphan_file,^extent,^64bit,^uninit_bg"],
];

fn kill_and_recover(kills: u64) {
    if !ready() {
        return;
    }
    let mut released = 0;
    for seed in 0..kills {
        let scratch = Scratch::new("ext-recover");
        let image = scratch.join("image");
        let shape = SHAPES[seed as usize % SHAPES.len()];
        make(&image, shape);
        let what = format!("{shape:?}, kill {seed}");
        released += kill_and_use(&image, &scratch, seed, &what);
        sound(&image);
        text(&seekless(&["check", &image]));
    }
    assert!(released > 0, "nothing was lost in {kills} kills");
}

#[test]
fn killed_and_used_at_once() {
    kill_and_recover(KILLS);
}

/// Ten minutes.
#[test]
#[ignore = "a campaign"]
fn killed_many_times_and_used_at_once() {
    kill_and_recover(MANY_KILLS);
}

/// Sets the link count of an inode to 1, past everybody who would note that.
fn damage_links(image: &str, ino: u64) {
    let said = run("debugfs", &["-R", &format!("imap <{ino}>"), image]);
    let number = |name: &str| {
        let rest = said.split(name).nth(1).expect("a place");
        let digits: String = rest
            .trim()
            .trim_start_matches("0x")
            .chars()
            .take_while(char::is_ascii_hexdigit)
            .collect();
        digits
    };
    let block: u64 = number("located at block").parse().expect("a block");
    let offset = u64::from_str_radix(&number("offset"), 16).expect("an offset");
    let file = File::options().write(true).open(image).expect("image");
    file.write_all_at(&1u16.to_le_bytes(), block * 1024 + offset + 26).expect("write");
}

#[test]
fn where_it_is_not_possible_it_says_why() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ext-recover-not");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let messages = scratch.join("messages");
    let elsewhere = scratch.join("elsewhere");
    for dir in [at.as_path(), elsewhere.as_ref()] {
        fs::create_dir(dir).expect("mkdir");
    }
    let refused = |options: &str, expected: &str| {
        let (code, message) = failure(&seekless(&["mount", &image, &elsewhere, "-o", options]));
        assert!(code != 0 && message.contains(expected), "{options}: {message}");
    };
    make(&image, SHAPES[0]);
    // There is nothing to be recovered.
    Server::start(&image, &at, "rw,recover=background", &messages).end(&at);
    assert_eq!(fs::read_to_string(&messages).expect("messages"), "");
    // It was in use without soft updates.
    let server = Server::start(&image, &at, "rw,sync", &messages);
    fs::write(at.join("file"), b"x").expect("write");
    server.kill(&at);
    refused("rw,recover=background", "was in use with soft updates");
    assert_eq!(seekless(&["check", "-p", &image]).status.code(), Some(1));
    // Somebody else has changed it since.
    Server::start(&image, &at, "rw,softdep", &messages).kill(&at);
    run("debugfs", &["-w", "-R", "set_super_value mnt_count 77", &image]);
    refused("rw,recover=background", "was in use with soft updates");
    make(&image, SHAPES[0]);

    let server = Server::start(&image, &at, "rw,softdep", &messages);
    fs::write(at.join("file"), b"kept").expect("write");
    fs::hard_link(at.join("file"), at.join("other")).expect("link");
    File::open(at.join("file")).and_then(|file| file.sync_all()).expect("fsync");
    let ino = fs::metadata(at.join("file")).expect("stat").ino();
    server.kill(&at);
    refused("rw,sync,recover=background", "only with soft updates");
    refused("rw,softdep", "is not clean");

    // A file of which one name could take the other's contents away.
    damage_links(&image, ino);
    let server = Server::start(&image, &at, "rw,recover=background", &messages);
    let found = result(&messages);
    assert_eq!(found["sound"], false, "{found}");
    assert_eq!(found["left"][0]["code"], "inode.links-low", "{found}");
    server.end(&at);
    refused("rw,recover=background", "must be checked before it is used");
    assert_eq!(seekless(&["check", "-p", &image]).status.code(), Some(1));
    sound(&image);
    let server = Server::start(&image, &at, "rw", &messages);
    assert_eq!(fs::metadata(at.join("other")).expect("stat").nlink(), 2);
    server.end(&at);

    make(&image, &["-j"]);
    refused("rw,recover=background", "with a journal");
}
