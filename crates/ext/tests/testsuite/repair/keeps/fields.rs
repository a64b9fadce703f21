//! Fields of inodes set at random, on random volumes: maps of files that lead into other files, into
//! metadata and out of the volume; lengths, flags and modes of anything.

use super::named::after;
use super::tree::Tree;
use super::{Sound, judge, make};
use crate::holes;
use crate::repair::judge::{Random, Scratch, is_there};
use crate::slice::some_or_all;
use seekless_device::MemoryDevice;
use seekless_ext::FORMAT;
use seekless_fs::format::OpenOptions;
use seekless_units::{Ino, Lbn};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Options of mke2fs.
const OPTIONS: [&[&str]; 6] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
    &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    &["-t", "ext4", "-O", "^has_journal"],
    &["-t", "ext3"],
    &["-t", "ext2"],
];

/// Lengths of files: the larger ones have more blocks than a group of pointers, or an extent.
const LENGTHS: [usize; 5] = [3_000, 40_000, 900_000, 2_500_000, 4_000_000];

const FIELDS: [&str; 14] = [
    "block[0]",
    "block[1]",
    "block[3]",
    "block[4]",
    "block[5]",
    "block[8]",
    "block[12]",
    "block[IND]",
    "block[DIND]",
    "file_acl",
    "size",
    "flags",
    "mode",
    "links_count",
];

fn pick<'a, T: ?Sized>(random: &mut Random, from: &[&'a T]) -> &'a T {
    from[random.below(from.len())]
}

/// Makes large files and a directory of small ones; the paths of the large ones.
fn populate(at: &Path, random: &mut Random) -> Vec<String> {
    fs::create_dir_all(at.join("sub/deep")).expect("directory");
    let write = |path: &str, len: usize, random: &mut Random| {
        let first = random.below(1 << 20);
        let bytes: Vec<u8> = (0..len).map(|n| ((first + n / 5) * 31 + n % 253) as u8).collect();
        fs::write(at.join(path), bytes).expect("file");
    };
    for n in 0..60 {
        write(&format!("sub/n{n}"), n * 50, random);
    }
    let paths: Vec<String> = (0..3 + random.below(4))
        .map(|n| format!("/{}f{n}", pick(random, &["", "sub/", "sub/deep/"])))
        .collect();
    for path in &paths {
        let len = LENGTHS[random.below(LENGTHS.len())];
        write(&path[1..], len, random);
    }
    paths
}

/// One of the first blocks of a file.
fn block_of(sound: &Sound, path: &str, random: &mut Random) -> Option<u64> {
    let device = Arc::new(MemoryDevice::new(holes::copy(&sound.bytes)));
    let image = (FORMAT.open)(device, OpenOptions::default()).expect("a volume");
    let map = image.block_map(Ino::new(Tree::ino(&sound.bytes, path))).expect("a map");
    map.find(Lbn::new(random.below(60) as u64)).map(|run| run.extent.start.get())
}

/// A command of debugfs that sets a field of an inode.
fn command(sound: &Sound, paths: &[String], random: &mut Random) -> String {
    let other = &paths[random.below(paths.len())];
    let owned: Vec<&str> = paths.iter().map(String::as_str).collect();
    let special = ["/sub", "/sub/deep", "<2>", "<7>", "<8>"];
    let target = pick(random, &[&owned[..], &special[..]].concat());
    let field = pick(random, &FIELDS);
    let value = if field.starts_with("block") || field == "file_acl" {
        block_of(sound, other, random).unwrap_or(1 + random.below(20_000) as u64)
    } else {
        let (bits, large) = (random.below(1 << 16), random.below(1 << 30));
        [0, 1, 0x80000, bits as u64, large as u64][random.below(5)]
    };
    format!("sif {target} {field} {value}\n")
}

/// Repairs a random volume with one or two fields changed; returns the loss, if there is one.
fn case(seed: u64) -> Option<String> {
    let mut random = Random(seed);
    let source = Scratch::new("fields-source");
    let paths = populate(source.path(), &mut random);
    let options = OPTIONS[random.below(OPTIONS.len())];
    let size = pick(&mut random, &["20M", "24M", "40M"]);
    let sound = make(options, source.path(), size)?;
    let commands: String =
        (0..1 + random.below(3) / 2).map(|_| command(&sound, &paths, &mut random)).collect();
    let bytes = after(&sound, &commands)?;
    let scratch = Scratch::new("fields");
    let wrong = judge(&sound, &bytes, scratch.path())?;
    Some(format!("seed {seed}, {options:?}, {size}: {commands}{wrong}"))
}

fn run(seeds: impl Iterator<Item = u64>) {
    if !is_there() {
        return;
    }
    let wrong: Vec<String> = seeds.filter_map(case).collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn random_fields_of_inodes() {
    run(1..some_or_all(6, 13));
}

/// `FIELDS_SEED` is the first seed, `FIELDS_CASES` their number.
#[test]
#[ignore = "minutes"]
fn many_random_fields_of_inodes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("FIELDS_SEED").unwrap_or(1);
    run(first..first + number("FIELDS_CASES").unwrap_or(500));
}
