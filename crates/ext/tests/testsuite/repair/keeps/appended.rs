//! An append whose blocks are in the map of a file, and whose length and count of blocks were not
//! written: no damage, and `e2fsck -p` makes the file longer where more than one block is behind
//! its end.

use super::named::debugfs;
use crate::holes;
use crate::repair::judge::{Scratch, bytes_of, e2fsck, findings, is_there};
use seekless_device::MemoryDevice;
use seekless_ext::{FORMAT, preen};
use seekless_fs::format::OpenOptions;
use seekless_units::ByteLen;
use std::fs;
use std::process::Command;
use std::sync::Arc;

const BLOCK: usize = 1024;

/// Options of mke2fs, blocks of the file before the append, of a hole behind them, and of the
/// append.
const APPENDS: [(&str, usize, usize, usize); 16] = [
    ("ext2", 5, 0, 1),
    ("ext2", 5, 0, 4),
    ("ext2", 5, 1, 2),
    ("ext2", 12, 0, 1),
    ("ext2", 12, 0, 3),
    ("ext2", 40, 0, 1),
    ("ext2", 40, 0, 6),
    ("ext2", 40, 1, 2),
    ("ext2", 40, 300, 3),
    ("ext2", 267, 0, 5),
    ("ext4", 5, 0, 1),
    ("ext4", 5, 0, 2),
    ("ext4", 5, 1, 2),
    ("ext4", 12, 0, 3),
    ("ext4", 40, 300, 1),
    ("ext4", 267, 0, 5),
];

/// A volume in the state of such an append.
fn appended(kind: &str, before: usize, hole: usize, more: usize) -> Vec<u8> {
    let (image, source) = (Scratch::new("appended-image"), Scratch::new("appended-source"));
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-b", "1024", "-t", kind, "-O", "^has_journal"])
        .arg(image.path())
        .arg("4M")
        .output()
        .expect("mke2fs");
    assert!(made.status.success(), "{made:?}");
    let all = before + hole + more;
    let byte = |block: usize| match (before..before + hole).contains(&block) {
        true => 0,
        false => 1 + (block % 250) as u8,
    };
    let bytes: Vec<u8> = (0..all * BLOCK).map(|at| byte(at / BLOCK)).collect();
    fs::write(source.path(), bytes).expect("file");
    // Of blocks of zeros it makes a hole.
    debugfs(image.path(), &format!("write {} f\n", source.path().display()));
    assert_eq!(findings(image.path()), None);
    // Blocks of the map come after the direct ones, and after those of the first indirect block.
    let indirect = |blocks: usize| usize::from(blocks > 12) + 2 * usize::from(blocks > 268);
    let counted = before + if kind == "ext2" { indirect(before) } else { 0 };
    let shorter = format!("sif f size {}\nsif f blocks {}\n", before * BLOCK, counted * 2);
    debugfs(image.path(), &shorter);
    holes::take(image.path())
}

/// The length of the file, and its contents.
fn contents(bytes: &[u8]) -> (u64, Vec<u8>) {
    let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
    let image = (FORMAT.open)(device, OpenOptions::default()).expect("a volume");
    let ino = seekless_fs::inspect::resolve(image.as_ref(), b"f").expect("the file");
    let len = image.attr(ino).expect("an inode").size;
    let mut found = vec![0; len as usize];
    image.read(ino, ByteLen::ZERO, &mut found).expect("contents");
    (len, found)
}

#[test]
fn an_append_whose_inode_was_not_written_is_no_damage() {
    if !is_there() {
        return;
    }
    for (kind, before, hole, more) in APPENDS {
        let place = format!("{kind}, {more} blocks behind {before} and {hole} of a hole");
        let bytes = appended(kind, before, hole, more);
        let scratch = Scratch::new("appended");
        holes::put(scratch.path(), &bytes);
        let (code, said) = e2fsck("-fp", scratch.path());
        assert_eq!(code, 1, "{place}: {said}");
        let theirs = contents(&holes::take(scratch.path()));
        let kept = if hole + more > 1 { before + hole + more } else { before };
        assert_eq!(theirs.0, (kept * BLOCK) as u64, "{place}: {said}");

        let device = Arc::new(MemoryDevice::new(bytes));
        let done = preen(device.clone()).expect("preen");
        assert_eq!(done.report.unexpected, 0, "{place}: {:?}", done.report.findings);
        let ours = bytes_of(device.as_ref());
        assert!(contents(&ours) == theirs, "{place}: the file differs from that of e2fsck");
        holes::put(scratch.path(), &ours);
        assert_eq!(findings(scratch.path()), None, "{place}");
    }
}
