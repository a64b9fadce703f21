//! One wrong number in the map of a file: a repair keeps at least as many of its blocks, at their
//! offsets, as `e2fsck -fy` does, and its length.

use super::named::debugfs;
use super::reference;
use super::tree::Tree;
use crate::holes;
use crate::repair::judge::{Random, Scratch, bytes_of, e2fsck, findings, is_there};
use crate::slice::some_or_all;
use seekless_device::MemoryDevice;
use seekless_ext::{FORMAT, repair};
use seekless_fs::check::Outcome;
use seekless_fs::format::OpenOptions;
use seekless_units::ByteLen;
use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::sync::Arc;

const BLOCK: usize = 1024;
const ENTRY: usize = 12;

/// Options of mke2fs.
const OPTIONS: [&[&str]; 4] = [
    &["-t", "ext4", "-O", "metadata_csum,64bit"],
    &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
    &["-t", "ext4", "-O", "metadata_csum,^has_journal"],
    &["-t", "ext3"],
];

/// Files by their numbers of extents: in the inode, in a leaf, in leaves, and in leaves below two
/// levels of index. Those of dense ones follow each other; the others have holes.
const FILES: [(&str, usize, bool); 8] = [
    ("leaf", 60, false),
    ("leaf-dense", 60, true),
    ("leaves", 200, false),
    ("leaves-dense", 200, true),
    ("deep", 400, false),
    ("deep-dense", 400, true),
    ("four", 4, false),
    ("four-dense", 4, true),
];

/// The blocks of a file's contents: `None` for holes.
fn layout(name: &str, extents: usize, is_dense: bool) -> Vec<Option<Vec<u8>>> {
    let seed: usize = name.bytes().map(usize::from).sum();
    let mut random = Random(seed as u64);
    let mut blocks = Vec::new();
    for _ in 0..extents {
        for _ in 0..if is_dense { 1 } else { 1 + random.below(3) } {
            let number = blocks.len() * 1_000_003 + seed;
            let line = format!("{name} {number:016} ");
            blocks.push(Some(line.bytes().cycle().take(BLOCK).collect()));
        }
        let holes = if is_dense { 0 } else { 1 + random.below(3) };
        blocks.extend((0..holes).map(|_| None));
    }
    while blocks.last().is_some_and(Option::is_none) {
        blocks.pop();
    }
    blocks
}

fn le16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn le32(bytes: &[u8], at: usize) -> usize {
    le16(bytes, at) | le16(bytes, at + 2) << 16
}

/// A number in the map of a file.
struct Word {
    at: usize,
    len: usize,
    /// Bytes from one of its kind to the next.
    stride: usize,
    what: String,
}

/// A volume with the files.
struct Sound {
    bytes: Vec<u8>,
    /// The numbers in the map of each file.
    words: Vec<Vec<Word>>,
}

/// Makes a volume whose dense files have no two blocks beside each other.
fn sound(options: &[&str]) -> Sound {
    let image = Scratch::new("extents-image");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-b", "1024", "-N", "64"])
        .args(options)
        .arg(image.path())
        .arg("8M")
        .output()
        .expect("mke2fs");
    assert!(made.status.success(), "{made:?}");
    let (mut dense, mut sparse) = (String::new(), String::new());
    let mut sources = Vec::new();
    for (name, extents, is_dense) in FILES {
        let source = Scratch::new("extents-source");
        let hole = vec![0; BLOCK];
        let blocks = layout(name, extents, is_dense);
        let whole: Vec<u8> = blocks.into_iter().flat_map(|it| it.unwrap_or(hole.clone())).collect();
        fs::write(source.path(), whole).expect("file");
        let to = if is_dense { &mut dense } else { &mut sparse };
        let _ = writeln!(to, "write {} {name}", source.path().display());
        sources.push(source);
    }
    debugfs(image.path(), &sparse);
    let bytes = holes::take(image.path());
    // The only group's bitmap: its bits are the blocks from 1 on.
    let bitmap = le32(&bytes, 2 * BLOCK) * BLOCK;
    let is_free = |block: &usize| bytes[bitmap + (block - 1) / 8] >> ((block - 1) % 8) & 1 == 0;
    let apart: Vec<usize> = (1..8000).filter(is_free).step_by(2).collect();
    let each = |verb: &str| {
        apart.iter().fold(String::new(), |mut text, block| {
            let _ = writeln!(text, "{verb} {block}");
            text
        })
    };
    debugfs(image.path(), &[each("setb"), dense, each("freeb")].concat());
    e2fsck("-fy", image.path());
    assert_eq!(findings(image.path()), None);
    let bytes = holes::take(image.path());
    let words = FILES.map(|(name, extents, _)| words_of(&bytes, name, extents)).into();
    Sound { bytes, words }
}

/// The numbers in a file's map.
fn words_of(bytes: &[u8], name: &str, extents: usize) -> Vec<Word> {
    let size = le16(bytes, BLOCK + 88);
    let ino = Tree::ino(bytes, &format!("/{name}")) as usize;
    let root = le32(bytes, 2 * BLOCK + 8) * BLOCK + (ino - 1) * size + 40;
    let mut words = Vec::new();
    let mut add = |at: usize, len: usize, stride: usize, what: &str| {
        let what = format!("{name}, byte {at}, {what}");
        words.push(Word { at, len, stride, what });
    };
    if le32(bytes, root - 8) & 0x8_0000 == 0 {
        let numbers = (0..15).map(|n| (root + n * 4, usize::from(n > 11) * (n - n.min(11))));
        let mut next: Vec<(usize, usize)> = numbers.collect();
        while let Some((at, levels)) = next.pop() {
            add(at, 4, 4, &format!("number above {levels} levels"));
            let block = le32(bytes, at) * BLOCK;
            if levels > 0 && block > 0 {
                next.extend((0..BLOCK / 4).map(|n| (block + n * 4, levels - 1)));
            }
        }
        return words;
    }
    let mut found = 0;
    let mut next = vec![(root, le16(bytes, root + 6))];
    while let Some((node, level)) = next.pop() {
        let count = le16(bytes, node + 2);
        add(node + 6, 2, 0, "depth");
        for n in 1..=count {
            let at = node + n * ENTRY;
            let what = |field: &str| format!("level {level}, entry {n} of {count}, {field}");
            add(at, 4, ENTRY, &what("block"));
            if level == 0 {
                add(at + 4, 2, ENTRY, &what("len"));
                add(at + 8, 4, ENTRY, &what("start"));
                found += 1;
            } else {
                add(at + 4, 4, ENTRY, &what("leaf"));
                next.push((le32(bytes, at + 4) * BLOCK, level - 1));
            }
        }
    }
    // Where a block of the tree lies between two blocks of contents, these are two extents.
    assert!((extents..extents + 8).contains(&found), "{name}: {found} extents");
    let depth = usize::from(extents > 4) + usize::from(extents > 4 * 84);
    assert_eq!(le16(bytes, root + 6), depth, "{name}: {found} extents");
    words
}

/// Sets a number in a file's map; says which.
fn damage(sound: &Sound, file: usize, random: &mut Random) -> Option<(Vec<u8>, String)> {
    let words = &sound.words[file];
    // Of the few numbers of an index as many as of the many in leaves.
    let is_rare = |word: &&Word| word.stride != 4 && !word.what.contains("level 0");
    let rare: Vec<&Word> = words.iter().filter(is_rare).collect();
    let word = match random.below(3) {
        0 if !rare.is_empty() => rare[random.below(rare.len())],
        _ => &words[random.below(words.len())],
    };
    let mut bytes = sound.bytes.clone();
    let read =
        |at: usize| if word.len == 2 { le16(&sound.bytes, at) } else { le32(&sound.bytes, at) };
    let old = read(word.at);
    let value = match random.below(10) {
        0 => 0,
        1 => 1,
        2 => read(word.at + word.stride),
        3 => read(word.at - word.stride),
        4 => 0xFFFF_FFFF,
        5 => 0xFFFF_FFFE,
        6 => old ^ 0x8000_8080 >> random.below(24),
        7 => old + 1 + random.below(40),
        8 => random.below(1 << 14),
        _ => random.below(1 << 31) * 2 + 1,
    };
    bytes[word.at..word.at + word.len].copy_from_slice(&(value as u32).to_le_bytes()[..word.len]);
    let text = format!("{}: {old:#x} -> {value:#x}", word.what);
    (bytes != sound.bytes).then_some((bytes, text))
}

/// How many blocks of a file are right, and its length.
fn kept(bytes: &[u8], file: usize) -> (usize, u64) {
    let (name, extents, is_dense) = FILES[file];
    let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
    let image = (FORMAT.open)(device, OpenOptions::default()).expect("a volume");
    let Ok(ino) = seekless_fs::inspect::resolve(image.as_ref(), name.as_bytes()) else {
        return (0, 0);
    };
    let len = image.attr(ino).expect("an inode").size;
    let mut found = vec![0; BLOCK];
    let is_right = |(n, block): &(usize, Option<Vec<u8>>)| {
        let at = ByteLen::new((n * BLOCK) as u64);
        block.as_ref().is_some_and(|block| {
            (at.get() < len) && image.read(ino, at, &mut found).is_ok() && found == *block
        })
    };
    (layout(name, extents, is_dense).into_iter().enumerate().filter(is_right).count(), len)
}

/// Repairs a volume with a wrong number in the map of a file; returns the loss, if there is one.
fn case(sound: &Sound, seed: u64) -> Option<String> {
    let mut random = Random(seed);
    let file = random.below(FILES.len());
    let (bytes, what) = damage(sound, file, &mut random)?;
    let scratch = Scratch::new("extents");
    let fail = |text: &str| Some(format!("seed {seed}: {what}: {text}"));
    let theirs = reference(scratch.path(), &bytes);
    let device = Arc::new(MemoryDevice::new(bytes));
    let repaired = repair(device.clone()).expect("repair");
    let ours = bytes_of(device.as_ref());
    holes::put(scratch.path(), &ours);
    if let Some(said) = findings(scratch.path()) {
        return fail(&format!("e2fsck still finds\n{said}"));
    }
    // Some numbers fit as well as the right one.
    if repaired.outcome == Outcome::Left {
        return fail(&format!("{:?}", repaired.outcome));
    }
    let theirs = theirs?;
    for (other, (name, ..)) in FILES.iter().enumerate() {
        let whole = kept(&sound.bytes, other);
        let (ours, theirs) = (kept(&ours, other), kept(&theirs, other));
        let is_longer = ours.1 > theirs.1.max(2 * whole.1);
        if ours.0 < theirs.0 || ours.1 < theirs.1.min(whole.1) || is_longer {
            return fail(&format!("{name} of {whole:?} has {ours:?}, and {theirs:?} by e2fsck"));
        }
    }
    None
}

fn run(seeds: std::ops::Range<u64>) {
    if !is_there() {
        return;
    }
    let sound = OPTIONS.map(sound);
    let wrong: Vec<String> = seeds
        .filter_map(|seed| {
            let which = seed as usize % OPTIONS.len();
            Some(format!("{:?}, {}", OPTIONS[which], case(&sound[which], seed)?))
        })
        .collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_wrong_number_in_a_map() {
    run(1..some_or_all(13, 31));
}

/// `MAPS_SEED` is the first seed, `MAPS_CASES` their number.
#[test]
#[ignore = "minutes"]
fn many_wrong_numbers_in_maps() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("MAPS_SEED").unwrap_or(1);
    run(first..first + number("MAPS_CASES").unwrap_or(3000));
}
