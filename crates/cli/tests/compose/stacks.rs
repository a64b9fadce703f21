//! Random stacks of layers, compared with umoci's unpacking. `SEEKLESS_STACKS` sets their number.
//!
//! Whiteouts come first in each layer, as all writers put them: if they do not, umoci applies them
//! in the order of the entries, but we apply them first (docs/limits.md).

use crate::archives::entry;
use crate::judges::slice::some_or_all;
use crate::judges::{check, manifest, seekless, skip, text};
use crate::workshop::Workshop;
use std::fs;
use std::process::Command;

const STACKS: u64 = 150;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    pub(crate) fn path(&mut self, most: u64) -> String {
        let len = 1 + self.next(most);
        let names: Vec<&str> =
            (0..len).map(|_| ["a", "b", "c", "d"][self.next(4) as usize]).collect();
        names.join("/")
    }
}

fn layer(random: &mut Random, is_lowest: bool) -> Vec<u8> {
    let (mut whiteouts, mut entries, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=random.next(8) {
        let path = random.path(3);
        match random.next(20) {
            0..6 => entries.push(entry(&path, b'5', "", 0o755 - 0o55 * random.next(2) as u32, b"")),
            6..10 => {
                entries.push(entry(&path, b'0', "", 0o644, &b"12345"[..random.next(6) as usize]));
                files.push(path);
            }
            10..13 => {
                let target =
                    ["", "/", "../"][random.next(3) as usize].to_string() + &random.path(2);
                entries.push(entry(&path, b'2', &target, 0o777, b""));
            }
            13 if !files.is_empty() => {
                let target = &files[random.next(files.len() as u64) as usize];
                entries.push(entry(&path, b'1', target, 0o644, b""));
            }
            13..16 => entries.push(entry(&path, b'6', "", 0o600, b"")),
            _ if is_lowest => {}
            _ => {
                let (dir, name) = path.rsplit_once('/').unwrap_or(("", &path));
                let name = if random.next(3) == 0 { ".wh..opq" } else { name };
                let path = format!("{dir}/.wh.{name}");
                whiteouts.push(entry(path.trim_start_matches('/'), b'0', "", 0o600, b""));
            }
        }
    }
    whiteouts.append(&mut entries);
    [&whiteouts.concat()[..], &[0; 1024]].concat()
}

/// Listing of a tree, without the times of directories: umoci leaves them to chance if the layers
/// have no entry for them.
pub(crate) fn listing(tree: &str) -> String {
    let all = manifest(tree, &[]);
    let kept = |line: &&str| !line.starts_with("./lost+found") && !line.starts_with(". ");
    let without_time = |line: &str| match line.split_once(" time=") {
        Some((start, _)) if line.contains("type=dir") => format!("{start}\n"),
        _ => format!("{line}\n"),
    };
    all.lines().filter(kept).map(without_time).collect()
}

#[test]
fn random_stacks_as_umoci_unpacks_them() {
    if Command::new("umoci").arg("--version").output().is_err() {
        return skip("umoci is not installed");
    }
    let count = std::env::var("SEEKLESS_STACKS").ok().and_then(|text| text.parse().ok());
    let (mut agreed, count) = (0, count.unwrap_or(some_or_all(STACKS / 2, STACKS)));
    for seed in 0..count {
        let shop = Workshop::new(&format!("stacks-{seed}"));
        let mut random = Random(seed);
        let layers: Vec<Vec<u8>> =
            (0..2 + random.next(2)).map(|nth| layer(&mut random, nth == 0)).collect();
        shop.layout(&[shop.image("t", &layers)]);
        let layout = shop.dir.to_str().expect("path");
        let (image, bundle) = (shop.scratch.join("image"), shop.scratch.join("bundle"));
        let unpacked = Command::new("umoci")
            .args(["unpack", "--image", &format!("{layout}:t"), &bundle])
            .output()
            .expect("umoci");
        let built = seekless(&["build", layout, "-o", &image]);
        if unpacked.status.success() {
            assert!(built.status.success(), "seed {seed}: {built:?}");
            let (ours, theirs) = (listing(&image), listing(&format!("{bundle}/rootfs")));
            assert_eq!(ours, theirs, "seed {seed}: ours is the left one");
            // Each layer laid out for itself gives the same tree.
            if seed % 4 == 0 {
                let share = ["build", layout, "-o", &image, "--share", "--force", "-q"];
                text(&seekless(&share));
                check(&image);
                assert_eq!(listing(&image), theirs, "seed {seed}: --share");
            }
            agreed += 1;
        }
        fs::remove_dir_all(shop.scratch.path()).expect("remove");
    }
    assert!(agreed >= count / 4, "{agreed} of {count} stacks were compared");
}
