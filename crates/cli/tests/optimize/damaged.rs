//! Damage by debugfs, in seeded sequences, on images of every kind: either the image is refused, or
//! e2fsck finds no error in the new image that the old one did not have; and an image that e2fsck
//! calls clean is not refused.

use crate::hostile::{images, relay};
use crate::judges::{Scratch, ready, run, skip};
use seekless_fs::FsError;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// A small generator, so that every run has the same damage.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<'a>(&mut self, these: &[&'a str]) -> &'a str {
        these[usize::try_from(self.below(these.len() as u64)).expect("index")]
    }
}

/// Names, arguments of `mke2fs` besides the tree, and sizes in blocks of 1024 bytes.
const MADE: &[(&str, &[&str], &str)] = &[
    ("ext2", &["-t", "ext2"], "9000"),
    ("ext3", &["-t", "ext3", "-I", "128"], "12000"),
    ("ext4", &["-t", "ext4"], "20000"),
    ("small groups", &["-t", "ext4", "-g", "1024", "-J", "size=1"], "12000"),
    ("no flex_bg", &["-t", "ext4", "-O", "^flex_bg,^metadata_csum", "-g", "2048"], "12000"),
    ("uninit_bg", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"], "20000"),
    ("bigalloc", &["-t", "ext4", "-O", "bigalloc", "-C", "4096"], "30000"),
    ("meta_bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-g", "256", "-N", "600"], "9000"),
    ("sparse_super2", &["-t", "ext4", "-O", "sparse_super2,^resize_inode"], "20000"),
    ("large descriptors", &["-t", "ext4", "-O", "64bit", "-E", "desc_size=128"], "20000"),
    ("inline_data", &["-t", "ext4", "-O", "inline_data", "-I", "256"], "12000"),
    ("ea_inode", &["-t", "ext4", "-O", "ea_inode"], "12000"),
    ("quota", &["-t", "ext4", "-O", "quota,project", "-I", "256"], "12000"),
    ("mmp", &["-t", "ext4", "-O", "mmp"], "12000"),
    ("orphan_file", &["-t", "ext4", "-O", "orphan_file"], "12000"),
    ("shared_blocks", &["-t", "ext4", "-O", "^has_journal"], "9000"),
    ("values that name their owner", &["-t", "ext4", "-O", "ea_inode,^metadata_csum"], "12000"),
    ("bad blocks", &["-t", "ext4", "-l"], "20000"),
];

/// With multiple mount protection every writer waits for seconds: these images are damaged only
/// byte by byte.
const WAITS: &[&str] = &["mmp"];

fn make(scratch: &Scratch, name: &str, options: &[&str], blocks: &str) -> Option<Vec<u8>> {
    let (tree, image) = (scratch.path().join("tree"), scratch.join("base"));
    if !tree.exists() {
        for sub in ["dir/below", "many", "empty"] {
            fs::create_dir_all(tree.join(sub)).expect("mkdir");
        }
        let noise: Vec<u8> = (0..60_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        fs::write(tree.join("pieces"), &noise).expect("write");
        fs::write(tree.join("dir/small"), b"small").expect("write");
        fs::write(tree.join("dir/below/text"), &noise[..5000]).expect("write");
        fs::hard_link(tree.join("pieces"), tree.join("dir/link")).expect("link");
        for n in 0..90 {
            fs::write(tree.join(format!("many/a name of some length {n}")), b"").expect("write");
        }
        std::os::unix::fs::symlink("t".repeat(200), tree.join("dir/slow")).expect("symlink");
        let bad: String = (9000..9300).step_by(7).map(|n| format!("{n}\n")).collect();
        fs::write(scratch.join("bad"), format!("8193\n{bad}")).expect("write");
        fs::write(scratch.join("value"), "v".repeat(1000)).expect("write");
    }
    let bad = scratch.join("bad");
    let from = tree.to_str().expect("path");
    let mut args = vec!["-q", "-F", "-b", "1024", "-d", from];
    args.extend(options);
    if options.last() == Some(&"-l") {
        args.push(&bad);
    }
    args.extend([image.as_str(), blocks]);
    let made = Command::new("mke2fs").args(&args).output().expect("mke2fs");
    if !made.status.success() {
        skip(&format!("mke2fs makes no {name}: {}", String::from_utf8_lossy(&made.stderr)));
        return None;
    }
    if WAITS.contains(&name) {
        return Some(fs::read(&image).expect("image"));
    }
    let mut script = format!("ea_set -f {} /dir/small user.long\n", scratch.join("value"));
    if name == "shared_blocks" {
        // Two files that share blocks, as after deduplication.
        script += "feature shared_blocks\nblocks /pieces\n";
    }
    debugfs(scratch, &image, &script);
    if name == "shared_blocks" {
        share(scratch, &image);
    }
    if name == "values that name their owner" {
        name_owner(scratch, &image);
    }
    let _ = Command::new("e2fsck").args(["-fyD", &image]).output();
    run("e2fsck", &["-fn", &image]);
    Some(fs::read(&image).expect("image"))
}

/// Gives `/dir/below/text` blocks of `/pieces`.
fn share(scratch: &Scratch, image: &str) {
    let said = Command::new("debugfs").args(["-R", "blocks /pieces", image]).output();
    let said = String::from_utf8(said.expect("debugfs").stdout).expect("text");
    let blocks: Vec<&str> = said.split_whitespace().collect();
    // Its extent of five blocks is to begin in the middle of the other file's.
    debugfs(scratch, image, &format!("sif /dir/below/text block[5] {}\n", blocks[20]));
}

/// Converts the inode with the value of `/dir/small` to Lustre's form: its modification time names
/// the owner of the value, and the entry has no hash.
fn name_owner(scratch: &Scratch, image: &str) {
    let bytes = fs::read(image).expect("read");
    let name = bytes.windows(4).position(|bytes| bytes == b"long").expect("entry");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("word"));
    let holder = word(name - 12);
    let owner = number_of(image, "/dir/small");
    debugfs(
        scratch,
        image,
        &format!("sif <{holder}> mtime @{owner}\nsif <{holder}> generation 0\n"),
    );
    let file = fs::File::options().write(true).open(image).expect("open");
    file.write_all_at(&[0x5A; 4], name as u64 - 4).expect("write");
}

/// Inode number of a path, according to debugfs.
fn number_of(image: &str, path: &str) -> u64 {
    let stat = run("debugfs", &["-R", &format!("stat {path}"), image]);
    let (_, rest) = stat.split_once("Inode: ").expect("stat");
    rest.split_whitespace().next().expect("number").parse().expect("number")
}

fn debugfs(scratch: &Scratch, image: &str, commands: &str) {
    let script = scratch.join("script");
    fs::write(&script, commands).expect("script");
    // Some commands fail on some images, which are then not damaged.
    let _ = Command::new("debugfs").args(["-w", "-f", &script, image]).output().expect("debugfs");
}

/// Output of e2fsck without numbers and progress; empty if it calls the image clean.
fn said(image: &str) -> BTreeSet<String> {
    // On some damage e2fsck loops, with endless output.
    let bounded = "timeout 30 e2fsck -fn \"$1\" 2>&1 | head -c 1000000; exit ${PIPESTATUS[0]}";
    let output = Command::new("bash").args(["-c", bounded, "bash", image]).output();
    let output = output.expect("e2fsck");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // e2fsck without journal recovery ignores the transactions in the journal, and so checks
    // another state.
    let skipped = text.contains("skipping journal recovery");
    let copied =
        skipped || text.contains("trying backup blocks") || text.contains("despite errors");
    if output.status.success() && !text.contains("? no") && !copied {
        return BTreeSet::new();
    }
    let numberless = |line: &str| -> String {
        let mut out = String::new();
        for part in line.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()) {
            out.push_str(part);
            out.push('#');
        }
        out
    };
    let own = |line: &&str| !line.is_empty() && !line.starts_with("Pass ") && !line.contains(image);
    // Lists of blocks and inodes vary in length.
    let cut = |line: &str| line.split("differences:").next().unwrap_or_default().to_string();
    let mut lines: BTreeSet<String> =
        text.lines().filter(own).map(cut).map(|l| numberless(&l)).collect();
    lines.insert(format!(
        "not clean{}",
        if output.status.code() > Some(99) { ": no end" } else { "" }
    ));
    lines
}

/// Fields of an inode that debugfs sets.
const INODE_FIELDS: &[&str] = &[
    "mode",
    "uid",
    "gid",
    "size",
    "size_high",
    "atime",
    "ctime",
    "mtime",
    "dtime",
    "links_count",
    "blocks",
    "blocks_hi",
    "flags",
    "version",
    "block[0]",
    "block[1]",
    "block[2]",
    "block[3]",
    "block[4]",
    "block[5]",
    "block[IND]",
    "block[DIND]",
    "block[TIND]",
    "generation",
    "file_acl",
    "file_acl_hi",
    "faddr",
    "frag",
    "fsize",
    "extra_isize",
    "crtime",
    "projid",
];

/// A random command.
fn command(random: &mut Random, blocks: u64) -> String {
    // Most of the metadata is at the front.
    let block = |random: &mut Random| match random.below(3) {
        0 => random.below(blocks),
        1 => random.below(2000),
        _ => random.below(300),
    };
    let ino = |random: &mut Random| match random.below(3) {
        0 => 1 + random.below(11),
        1 => 11 + random.below(20),
        _ => 11 + random.below(110),
    };
    let number = |random: &mut Random| match random.below(7) {
        5 => 1 << random.below(32),
        6 => (1 << (8 << random.below(3))) - 1,
        0 => 0,
        1 => 1,
        2 => random.below(blocks),
        3 => random.below(100_000),
        _ => random.below(16),
    };
    match random.below(14) {
        0 | 1 => format!("freeb {} {}", block(random), 1 + random.below(24)),
        2 => format!("setb {} {}", block(random), 1 + random.below(24)),
        3 => format!("freei <{}>", ino(random)),
        4 => format!("seti <{}>", ino(random)),
        5 => format!("clri <{}>", ino(random)),
        6 | 7 => {
            let field = random.of(INODE_FIELDS);
            format!("sif <{}> {field} {}", ino(random), number(random))
        }
        8 | 9 => {
            let field = random.of(&[
                "block_bitmap",
                "inode_bitmap",
                "inode_table",
                "free_blocks_count",
                "free_inodes_count",
                "used_dirs_count",
                "flags",
                "itable_unused",
                "checksum",
            ]);
            format!("set_bg {} {field} {}", random.below(3), number(random))
        }
        10 => {
            let field = random.of(&[
                "free_blocks_count",
                "free_inodes_count",
                "state",
                "first_ino",
                "reserved_gdt_blocks",
                "journal_inum",
                "last_orphan",
                "usr_quota_inum",
                "grp_quota_inum",
                "orphan_file_inum",
                "mmp_block",
                "backup_bgs[0]",
                "backup_bgs[1]",
                "log_groups_per_flex",
                "first_meta_bg",
                "feature_compat",
                "feature_ro_compat",
                "r_blocks_count",
                "hash_seed",
                "errors",
                "inode_size",
                "min_extra_isize",
                "want_extra_isize",
                "desc_size",
                "jnl_blocks[0]",
            ]);
            format!("ssv {field} {}", number(random))
        }
        11 => {
            let path =
                random.of(&["/pieces", "/dir/link", "/dir", "/empty", "/dir/slow", "/lost+found"]);
            format!("unlink {path}")
        }
        12 => {
            let path = random.of(&["/pieces", "/many", "/dir/below/text", "/dir", "/"]);
            let from = random.below(6);
            format!("punch {path} {from} {}", from + random.below(4))
        }
        _ => {
            let path = random.of(&["/pieces", "/dir", "/empty", "/dir/slow", "/many"]);
            format!("link {path} /empty/again{}", random.below(9))
        }
    }
}

/// Damages an image in `cases` ways; returns how many were optimized, and how many refused.
fn judge(
    scratch: &Scratch,
    name: &str,
    base: &[u8],
    seed: u64,
    cases: u64,
    wrong: &mut Vec<String>,
) -> (u64, u64) {
    let (image, new) = (scratch.join("case"), scratch.join("new"));
    let mut random = Random(seed);
    let (mut done, mut refused) = (0, 0);
    // Zeros are rarely read as metadata.
    let places: Vec<usize> = (1024..base.len()).filter(|&at| base[at] != 0).collect();
    for case in 0..cases {
        let mut script = String::new();
        let flips = case % 3 == 2 || WAITS.contains(&name);
        // With checksums ignored, the values behind them matter.
        let ignore = flips && random.below(2) == 0;
        // Not in the superblock: e2fsck then uses a backup, and checks another image.
        let first = if ignore { places.partition_point(|&at| at < 2048) } else { 0 };
        let places = &places[first..];
        if flips {
            let mut bytes = base.to_vec();
            for _ in 0..=random.below(3) {
                let at = places[usize::try_from(random.below(places.len() as u64)).expect("place")];
                bytes[at] ^= 1 << random.below(8);
                script += &format!("byte {at} is {}, ignoring checksums: {ignore}\n", bytes[at]);
            }
            fs::write(&image, bytes).expect("write");
        } else {
            for _ in 0..=random.below(3) {
                script += &command(&mut random, base.len() as u64 / 1024);
                script.push('\n');
            }
            fs::write(&image, base).expect("write");
            debugfs(scratch, &image, &script);
        }
        let before = said(&image);
        let about = format!("{name}, seed {seed}, case {case}:\n{script}");
        match relay(&fs::read(&image).expect("image"), ignore) {
            Ok(bytes) => {
                done += 1;
                fs::write(&new, bytes).expect("write");
                let after = said(&new);
                let fresh: Vec<&String> = after.difference(&before).collect();
                if !fresh.is_empty() {
                    wrong.push(format!("{about}the old one had not: {fresh:#?}"));
                }
            }
            Err(error) => {
                refused += 1;
                let asked = matches!(&error, FsError::Unsupported(_) | FsError::NoSpace(_));
                if before.is_empty() && !asked {
                    wrong.push(format!("{about}clean, but: {error}"));
                }
            }
        }
    }
    (done, refused)
}

fn all(cases: u64, first_seed: u64) {
    if !ready("mke2fs") || !ready("debugfs") || !ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("damaged");
    let (mut done, mut refused) = (0, 0);
    let mut count = |(more, fewer): (u64, u64)| {
        done += more;
        refused += fewer;
    };
    let mut wrong = Vec::new();
    for (seed, (name, options, blocks)) in (first_seed + 1..).zip(MADE) {
        if let Some(base) = make(&scratch, name, options, blocks) {
            let new = relay(&base, false).unwrap_or_else(|error| panic!("{name}: {error}"));
            let path = scratch.join("sound");
            fs::write(&path, &new).expect("write");
            assert_eq!(said(&path), BTreeSet::new(), "{name}");
            let small = number_of(&path, "/dir/small");
            assert_ne!(small, number_of(&scratch.join("base"), "/dir/small"), "{name}: not moved");
            count(judge(&scratch, name, &base, seed, cases, &mut wrong));
        }
    }
    for (seed, (name, compressed)) in (first_seed + 100..).zip(images::IMAGES) {
        count(judge(&scratch, name, &images::unpack(compressed), seed, cases, &mut wrong));
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    eprintln!("{done} laid out, {refused} refused");
    assert!(done > cases && refused > cases, "{done} laid out, {refused} refused");
}

#[test]
fn damage_is_refused_or_does_not_spread() {
    all(2, 0);
}

/// The long form. `SEEKLESS_CASES` is the number of cases for each image (300: a quarter of an
/// hour), `SEEKLESS_SEED` the first seed.
#[test]
#[ignore = "takes minutes"]
fn much_damage_is_refused_or_does_not_spread() {
    let told = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    all(told("SEEKLESS_CASES").unwrap_or(300), told("SEEKLESS_SEED").unwrap_or(0));
}
