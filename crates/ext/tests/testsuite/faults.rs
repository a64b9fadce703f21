//! Damage by recipe: what our check says of it, and whether e2fsck agrees that
//! there is some, and that its repair leaves none. Needs e2fsprogs; says so and
//! passes without.

#![allow(missing_docs)]

use crate::holes;
use crate::repair::keeps::judge_image;
use crate::skip;
use seekless_device::FileDevice;
use seekless_fs::check::{Outcome, Report};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// What is done to an image.
enum Damage {
    /// Commands of debugfs.
    Debugfs(&'static str),
    /// Bytes changed in a block: of a file, or one that is found otherwise.
    Bytes(Place, u64, &'static [u8]),
    /// The same bytes at two offsets of the volume: in a structure and in its copy.
    Copies([u64; 2], &'static [u8]),
}

/// A block.
enum Place {
    /// The n-th block of a file.
    File(&'static str, usize),
    /// The block with a file's inode, from where that begins.
    Inode(&'static str),
    /// A file's block of attributes.
    Attributes(&'static str),
    /// Bytes from the volume's start.
    Volume,
    /// A group's block bitmap.
    BlockBitmap,
    /// A group's inode bitmap.
    InodeBitmap,
}

use Damage::{Bytes, Copies, Debugfs};

/// A sound image that things are done to.
struct Base {
    dir: PathBuf,
    path: PathBuf,
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().expect(program)
}

fn text(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn there() -> bool {
    let there = Command::new("debugfs").arg("-V").output().is_ok();
    if !there {
        skip::skip("e2fsprogs are not installed");
    }
    there
}

fn check(path: &Path) -> Report {
    seekless_ext::check(Arc::new(FileDevice::open(path).expect("open"))).expect("check")
}

impl Base {
    fn new(name: &str, options: &[&str]) -> Self {
        Self::sized(name, options, "9000")
    }

    /// An image of so many blocks.
    fn sized(name: &str, options: &[&str], size: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("faults-{name}-{}", std::process::id()));
        let tree = dir.join("tree");
        for sub in ["a", "many", "sub/below"] {
            fs::create_dir_all(tree.join(sub)).expect("mkdir");
        }
        let noise: Vec<u8> = (0..40_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        fs::write(tree.join("a/file"), &noise).expect("write");
        fs::hard_link(tree.join("a/file"), tree.join("a/link")).expect("link");
        fs::write(tree.join("a/other"), &noise[..3000]).expect("write");
        for n in 0..400 {
            fs::write(tree.join(format!("many/a name of some length {n}")), b"").expect("write");
        }
        std::os::unix::fs::symlink("t".repeat(300), tree.join("slow")).expect("symlink");
        let path = dir.join("image");
        let (image, from) = (path.to_str().expect("path"), tree.to_str().expect("path"));
        // Sums are seeded with the UUID: of one drawn anew, a byte of a sum would now and
        // then be the one it is damaged to.
        let uuid = "6d1c7c0e-5a4f-4a3b-9f0e-2b7d1f3c8a95";
        let common = ["-q", "-F", "-b", "1024", "-N", "800", "-U", uuid, "-d", from];
        let args = [&common[..], options, &[image, size]];
        let made = run("mke2fs", &args.concat());
        assert!(made.status.success(), "{made:?}");
        // Attributes too long for the inode, in a block that two files share.
        let value = dir.join("value");
        fs::write(&value, "v".repeat(600)).expect("write");
        let value = value.to_str().expect("path");
        run("debugfs", &["-w", "-R", &format!("ea_set -f {value} /a/other user.long"), image]);
        // Holes in nothing: every extent on its own, so that the map has blocks.
        let script = dir.join("script");
        let mut commands = String::from("write /dev/null tall\n");
        for n in (0..40).step_by(2) {
            commands.push_str(&format!("fallocate /tall {n} {n}\n"));
        }
        fs::write(&script, commands).expect("script");
        run("debugfs", &["-w", "-f", script.to_str().expect("path"), image]);
        run("e2fsck", &["-fyD", image]);
        let base = Self { dir, path };
        assert_eq!(run("e2fsck", &["-fn", base.text()]).status.code(), Some(0), "{name}");
        let report = check(&base.path);
        assert!(report.is_clean(), "{name}: {:#?}", report.findings);
        base
    }

    fn text(&self) -> &str {
        self.path.to_str().expect("path")
    }

    /// Where a place begins in the image, in bytes.
    fn find(&self, place: &Place) -> u64 {
        let ask = |command: String| text("debugfs", &["-R", &command, self.text()]);
        let number = |text: &str| -> u64 { text.trim().parse().expect("a number") };
        match place {
            Place::File(path, n) => {
                let blocks = ask(format!("blocks {path}"));
                number(blocks.split_whitespace().nth(*n).expect("block")) * 1024
            }
            Place::Inode(path) => {
                // "Inode 13 is part of block group 0 \n located at block 40, offset 0x0400"
                let said = ask(format!("imap {path}"));
                let (_, rest) = said.split_once("block ").expect("imap");
                let (_, rest) = rest.split_once("located at block ").expect("imap");
                let (block, offset) = rest.split_once(", offset 0x").expect("imap");
                let offset = u64::from_str_radix(offset.trim(), 16).expect("offset");
                number(block) * 1024 + offset
            }
            Place::Attributes(path) => {
                let said = ask(format!("stat {path}"));
                let (_, rest) = said.split_once("File ACL: ").expect("stat");
                let block = rest.split_whitespace().next().expect("block");
                number(block) * 1024
            }
            Place::Volume => 0,
            Place::BlockBitmap => self.bitmap("Block bitmap at "),
            Place::InodeBitmap => self.bitmap("Inode bitmap at "),
        }
    }

    fn bitmap(&self, label: &str) -> u64 {
        let said = text("dumpe2fs", &[self.text()]);
        let (_, rest) = said.split_once(label).expect("dumpe2fs");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("a number") * 1024
    }

    fn damaged(&self, damage: &Damage) -> PathBuf {
        let path = self.dir.join("damaged");
        fs::copy(&self.path, &path).expect("copy");
        match damage {
            Debugfs(commands) => {
                let script = self.dir.join("script");
                fs::write(&script, commands.replace("; ", "\n")).expect("script");
                let script = script.to_str().expect("path");
                let done = run("debugfs", &["-w", "-f", script, path.to_str().expect("path")]);
                assert!(done.status.success(), "{commands}: {done:?}");
            }
            Bytes(place, skip, bytes) => {
                let file = fs::File::options().write(true).open(&path).expect("open");
                file.write_all_at(bytes, self.find(place) + skip).expect("write");
            }
            Copies(places, bytes) => {
                let file = fs::File::options().write(true).open(&path).expect("open");
                for at in places {
                    file.write_all_at(bytes, *at).expect("write");
                }
            }
        }
        path
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Each recipe is found under its code, e2fsck finds something as well, and
/// what e2fsck has repaired has nothing left.
fn judge(base: &Base, recipes: &[(&str, Damage)]) {
    let mut wrong = Vec::new();
    for (n, (code, damage)) in recipes.iter().enumerate() {
        let path = base.damaged(damage);
        let report = check(&path);
        let codes: Vec<&str> = report.findings.iter().map(|finding| finding.code()).collect();
        assert!(codes.contains(code), "{n}: no {code} in {:#?}", report.findings);
        let image = path.to_str().expect("path");
        let said = run("e2fsck", &["-fn", image]);
        // It answers its own questions with "no", and may still end with 0.
        let asked = [said.stdout, said.stderr].concat();
        let known = said.status.code() != Some(0) || asked.windows(4).any(|at| at == b"? no");
        // What a mount does away with by itself, e2fsck calls no error; nor where it
        // takes a copy of the superblock.
        let silent = [
            "superblock.not-clean",
            "superblock.fields",
            "journal.fields",
            "inode.orphan",
            "orphan.list",
        ]
        .contains(code);
        assert!(known || silent, "{n} {code}: e2fsck finds nothing");
        wrong.extend(preens_alike(base, &path).map(|what| format!("{n} {code}: {what}\n")));
        wrong.extend(repairs(base, &path).map(|what| format!("{n} {code}: {what}\n")));
        run("e2fsck", &["-fy", image]);
        run("e2fsck", &["-fy", image]);
        let repaired = check(&path);
        assert!(repaired.is_clean(), "{n} {code}: repaired, but {:#?}", repaired.findings);
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

/// What `-p` does with an image, and what `e2fsck -p` does with it: both repair it,
/// or both stop. What differs, if anything does.
fn preens_alike(base: &Base, path: &Path) -> Option<String> {
    let copy = base.dir.join("preened");
    fs::copy(path, &copy).expect("copy");
    let said = run("e2fsck", &["-fp", copy.to_str().expect("path")]);
    let theirs = matches!(said.status.code(), Some(0 | 1));
    fs::copy(path, &copy).expect("copy");
    let device = Arc::new(FileDevice::open_locked(&copy).expect("open"));
    let ours = seekless_ext::preen(device).expect("preen");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let is_same = theirs == (ours.outcome != Outcome::Left);
    (!is_same).then(|| format!("{:#?}, but e2fsck -p: {said}", ours.report.findings))
}

/// Repairs an image: then nothing is found, by us or by e2fsck, and at least the names and contents
/// are there that e2fsck keeps.
fn repairs(base: &Base, path: &Path) -> Option<String> {
    let copy = base.dir.join("repaired");
    fs::copy(path, &copy).expect("copy");
    let device = Arc::new(FileDevice::open_locked(&copy).expect("open"));
    let repaired = seekless_ext::repair(device).expect("repair");
    // e2fsck may not end on an image whose inode table is lost.
    let limited = ["-s", "KILL", "60", "e2fsck", "-fn", copy.to_str().expect("path")];
    let said = run("timeout", &limited);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    if repaired.outcome == Outcome::Left {
        return Some(format!("left {:#?}", repaired.report.findings));
    }
    let is_clean = said.status.code() == Some(0) && !text.contains("? no");
    if !is_clean {
        return Some(format!("repaired {:#?}, but {text}", repaired.report.findings));
    }
    let read = |path: &Path| fs::read(path).expect("image");
    judge_image(&read(&base.path), &read(path))
}

#[test]
fn damage_without_checksums_is_named() {
    if !there() {
        return;
    }
    let base = Base::new("ext2", &["-t", "ext2", "-O", "^resize_inode"]);
    judge(
        &base,
        &[
            ("inode.links-high", Debugfs("sif /a/file links_count 5")),
            ("inode.links-low", Debugfs("sif /a/file links_count 1")),
            ("inode.links-high", Debugfs("sif /sub links_count 9")),
            ("inode.unknown-kind", Debugfs("sif /a/file mode 0170777")),
            ("entry.kind", Debugfs("sif /a/file mode 0010644")),
            ("entry.unallocated", Debugfs("clri /a/other")),
            // A symlink in a block, marked as encrypted on a volume without that.
            ("inode.flags", Debugfs("sif /slow flags 0x800")),
            // No file is lost with its attributes.
            ("inode.block-range", Debugfs("mknod tty c 4 1; sif /tty file_acl 0x80000000")),
            ("inode.unreferenced", Debugfs("unlink /a/other")),
            ("directory.unconnected", Debugfs("unlink /sub")),
            ("directory.unconnected", Debugfs("clri /sub")),
            ("directory.two-names", Debugfs("link /sub/below /a/second")),
            ("inode.length", Debugfs("sif /a/file size 10")),
            ("inode.length", Debugfs("sif /a size 4096")),
            ("inode.block-count", Debugfs("sif /a/file blocks 2")),
            ("inode.block-map", Debugfs("sif /a/file block[3] 99999999")),
            ("inode.block-map", Debugfs("sif /a/file block[IND] 99999999")),
            ("inode.block-range", Debugfs("sif /a/file block[3] 2")),
            (
                "inode.duplicate-blocks",
                Debugfs(
                    "bmap -a /a/other 7; sif /a/other block[1] 1000; sif /a/file block[3] 1000",
                ),
            ),
            ("inode.reserved", Debugfs("sif <5> mode 0040755")),
            ("inode.reserved", Debugfs("sif <9> mode 0100600")),
            ("inode.deletion-time", Debugfs("sif /a/file dtime 77777")),
            ("bitmap.blocks-free", Debugfs("freeb 20")),
            ("bitmap.blocks-leaked", Debugfs("setb 8900")),
            ("bitmap.inodes-free", Debugfs("freei /a/file")),
            ("bitmap.inodes-leaked", Debugfs("seti <799>")),
            ("group.counts", Debugfs("set_bg 0 free_blocks_count 1")),
            ("group.counts", Debugfs("set_bg 0 free_inodes_count 1")),
            ("group.counts", Debugfs("set_bg 0 used_dirs_count 99")),
            ("group.head", Debugfs("set_bg 1 block_bitmap 99999999")),
            // The pointers of the second group's descriptor, here and in its copy.
            ("group.head", Copies([2048 + 32, 8194 * 1024 + 32], &[9, 0, 0, 0])),
            ("group.head", Copies([2048 + 36, 8194 * 1024 + 36], &[0, 0, 0, 1])),
            ("superblock.totals", Debugfs("ssv free_blocks_count 7")),
            ("superblock.totals", Debugfs("ssv free_inodes_count 7")),
            ("superblock.not-clean", Debugfs("ssv state 0")),
            // Alone it is none.
            ("superblock.errors", Debugfs("ssv state 3; ssv free_blocks_count 7")),
            ("superblock.fields", Debugfs("ssv log_groups_per_flex 100")),
            ("superblock.fields", Debugfs("ssv clusters_per_group 77")),
            ("superblock.reserved", Debugfs("ssv reserved_gdt_blocks 3")),
            ("orphan.list", Debugfs("ssv last_orphan 8")),
            ("orphan.list", Debugfs("ssv last_orphan 99999999")),
            ("orphan.list", Debugfs("sif /a/other dtime 700; ssv last_orphan 14")),
            ("root.missing", Debugfs("clri <2>")),
            ("root.not-directory", Debugfs("sif <2> mode 0100644")),
            (
                "inode.orphan",
                Debugfs("unlink /a/other; sif <14> links_count 0; ssv last_orphan 14"),
            ),
            ("directory.dot", Bytes(Place::File("/a", 0), 0, &[99, 0])),
            ("directory.dot-dot", Bytes(Place::File("/sub/below", 0), 12, &[2, 0])),
            ("directory.dot", Bytes(Place::File("/a", 0), 8, b"x")),
            ("entry.kind", Bytes(Place::File("/a", 0), 31, &[2])),
            ("entry.kind", Bytes(Place::File("/a", 0), 7, &[1])),
            ("entry.kind", Bytes(Place::File("/a", 0), 19, &[1])),
            ("entry.name", Bytes(Place::File("/a", 0), 32, b"/")),
            ("directory.corrupt", Bytes(Place::File("/a", 0), 28, &[3])),
            ("entry.unallocated", Bytes(Place::File("/a", 0), 24, &[0x20, 3])),
            ("entry.unallocated", Bytes(Place::File("/a", 0), 24, &[8, 0])),
            ("attributes.count", Bytes(Place::Attributes("/a/other"), 4, &[9])),
            ("inode.attributes", Bytes(Place::Attributes("/a/other"), 0, &[0, 0, 0, 0])),
            ("inode.block-range", Debugfs("sif /a/other file_acl 99999999")),
            // Flags of a descriptor, without checksums of descriptors.
            ("group.head", Bytes(Place::Volume, 2048 + 18, &[2])),
            ("inode.flags", Debugfs("sif /a/file file_acl_hi 2")),
            // The flag of an inode with a value, on a volume without such inodes.
            ("inode.flags", Debugfs("sif /a/file flags 0x280000; sif /a/file faddr 5")),
            // A bad block in the descriptors, one that is a bitmap, and one of its own inode.
            ("inode.reserved", Debugfs("sif <1> block[0] 2; sif <1> blocks 2")),
            ("group.head", Debugfs("sif <1> block[0] 3; sif <1> blocks 2")),
            ("inode.reserved", Debugfs("sif <1> block[0] 5; sif <1> blocks 2")),
            // A directory that has no blocks but that of its map.
            (
                "inode.length",
                Debugfs("sif /a block[0] 0; sif /a block[IND] 8900; setb 8900; sif /a blocks 2"),
            ),
            // An unused entry of 8 bytes in front of the names.
            ("directory.corrupt", Bytes(Place::File("/a", 0), 24, &[0, 0, 0, 0, 8, 0, 0, 0])),
            ("directory.index", Bytes(Place::File("/many", 0), 24 + 24, &[0xFF, 0xFF, 0xFF, 0xFF])),
            ("directory.index", Bytes(Place::File("/many", 0), 28, &[9])),
            ("bitmap.padding", Bytes(Place::InodeBitmap, 1000, &[0])),
        ],
    );
}

#[test]
fn damage_under_checksums_is_named() {
    if !there() {
        return;
    }
    let base = Base::new("ext4", &["-t", "ext4", "-O", "metadata_csum,orphan_file"]);
    judge(
        &base,
        &[
            ("superblock.checksum", Bytes(Place::Volume, 1024 + 120, b"label")),
            ("group.checksum", Bytes(Place::Volume, 2048 + 30, &[1])),
            ("bitmap.checksum", Bytes(Place::BlockBitmap, 900, &[0x10])),
            ("bitmap.checksum", Bytes(Place::InodeBitmap, 46, &[0x10])),
            ("inode.checksum", Bytes(Place::Inode("/a/file"), 8, &[1, 2, 3])),
            ("directory.checksum", Bytes(Place::File("/a", 0), 1020, &[1, 2, 3, 4])),
            ("directory.checksum", Bytes(Place::File("/many", 0), 1020, &[1, 2, 3, 4])),
            ("inode.attributes-checksum", Bytes(Place::Attributes("/a/other"), 16, &[1, 2, 3])),
            ("inode.block-map", Debugfs("sif /a/file block[0] 0")),
            ("inode.block-map", Debugfs("sif /a/file block[5] 99999999")),
            ("directory.hole", Debugfs("punch /many 2 2")),
            ("orphan.file", Debugfs("zap_block -f <12> -p 0x11 0")),
            ("orphan.file", Debugfs("zap_block -f <12> -p 0 -o 1016 -l 4 0")),
            ("orphan.file", Bytes(Place::File("<12>", 0), 0, &[13, 0, 0, 0])),
            (
                "orphan.file",
                Debugfs("feature orphan_present; zap_block -f <12> -p 0 -o 1016 -l 4 0"),
            ),
            ("inode.links-high", Debugfs("sif /a/file links_count 5")),
            ("inode.partly-cleared", Debugfs("unlink /a/other; sif <14> links_count 0")),
            ("group.head", Debugfs("set_bg 1 flags 2; set_bg 1 checksum calc")),
            ("inode.flags", Debugfs("mknod pipe p; sif /pipe flags 0x80000")),
        ],
    );
}

#[test]
fn damage_of_some_features_is_named() {
    if !there() {
        return;
    }
    let common = "^has_journal,^metadata_csum,^resize_inode";
    for (name, features, recipes) in [
        ("meta", "meta_bg", &[("superblock.fields", Debugfs("ssv first_meta_bg 20"))][..]),
        (
            "inline",
            "inline_data",
            &[
                // Contents, and a map beside them.
                (
                    "inode.flags",
                    Debugfs("sif /a/file flags 0x10000000; sif /a/file flags 0x10080000"),
                ),
                // Four bytes behind the last entry of the first piece.
                ("directory.corrupt", Bytes(Place::Inode("/sub"), 40 + 4 + 4, &[52, 0])),
                // Eight: the head of an entry has room there, the shortest entry has not.
                ("directory.corrupt", Bytes(Place::Inode("/sub"), 40 + 4 + 4, &[48, 0])),
            ],
        ),
    ] {
        let features = format!("{features},{common}");
        let base = Base::new(name, &["-t", "ext4", "-I", "256", "-O", &features]);
        judge(&base, recipes);
    }
}

/// A damaged block of multiple mount protection is found.
#[test]
fn damage_of_multiple_mount_protection_is_named() {
    if !there() {
        return;
    }
    let base = Base::new("mmp", &["-t", "ext4", "-O", "^has_journal,metadata_csum"]);
    // e2fsck waits for seconds each time that it opens such a volume for changes.
    let made = run("tune2fs", &["-O", "mmp", base.text()]);
    assert!(made.status.success(), "{made:?}");
    assert!(check(&base.path).is_clean());
    let said = text("dumpe2fs", &["-h", base.text()]);
    let (_, rest) = said.split_once("MMP block number:").expect("dumpe2fs");
    let block: u64 = rest.split_whitespace().next().expect("block").parse().expect("number");
    let path = base.dir.join("damaged");
    for (at, bytes) in [(0, &[1, 2, 3, 4][..]), (1020, &[9, 9, 9, 9])] {
        fs::copy(&base.path, &path).expect("copy");
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.write_all_at(bytes, block * 1024 + at).expect("write");
        let codes: Vec<&str> = check(&path).findings.iter().map(|it| it.code()).collect();
        assert_eq!(codes, ["superblock.mmp"]);
    }
}

/// e2fsck gives up at it, and takes no copy of the superblock by itself.
#[test]
fn an_unused_size_of_descriptors_is_cleared() {
    if !there() {
        return;
    }
    let base = Base::new("size", &["-t", "ext3", "-O", "^has_journal"]);
    for size in ["ssv desc_size 2048", "ssv desc_size 0x4000", "ssv desc_size 48"] {
        let path = base.damaged(&Debugfs(size));
        let image = path.to_str().expect("path");
        assert_eq!(run("e2fsck", &["-fn", image]).status.code(), Some(8), "{size}");
        let codes: Vec<&str> = check(&path).findings.iter().map(|it| it.code()).collect();
        assert_eq!(codes, ["superblock.fields"], "{size}");
        let device = Arc::new(FileDevice::open_locked(&path).expect("open"));
        seekless_ext::repair(device).expect("repair");
        assert_eq!(run("e2fsck", &["-fn", image]).status.code(), Some(0), "{size}");
    }
}

/// The resize inode is longer than 2 GiB where blocks have 4 KiB.
#[test]
fn the_resize_inode_is_a_large_file() {
    if !there() {
        return;
    }
    let base =
        Base::new("large", &["-b", "4096", "-t", "ext4", "-O", "^has_journal,^metadata_csum"]);
    judge(
        &base,
        &[
            ("superblock.large-file", Debugfs("feature -large_file")),
            // The extent of a directory is marked as never written.
            ("inode.block-map", Debugfs("sif /sub block[4] 0x8001")),
        ],
    );
}

/// Copies of a superblock of revision 0 have no number of a group.
#[test]
fn a_copy_of_the_first_revision_is_found() {
    if !there() {
        return;
    }
    let base = Base::new("old", &["-t", "ext2", "-r", "0", "-O", "none"]);
    judge(&base, &[("superblock.corrupt", Bytes(Place::Volume, 1024 + 56, &[0, 0]))]);
}

/// An inode table that nothing leads to is not made again, and one into which a bitmap's pointer leads
/// is not overwritten: both may be found by other means.
#[test]
fn inode_tables_are_left_as_they_are() {
    if !there() {
        return;
    }
    let table_of = |image: &str, group: usize| -> u64 {
        let said = text("dumpe2fs", &[image]);
        let found = said.split("Inode table at ").nth(group + 1).expect("a table");
        let digits: String = found.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    let table = |path: &Path, first: u64| {
        let bytes = fs::read(path).expect("read");
        bytes[first as usize * 1024..][..8 * 1024].to_vec()
    };
    let ends = |path: &Path, outcome: Outcome| {
        let device = Arc::new(FileDevice::open_locked(path).expect("open"));
        let repaired = seekless_ext::repair(device).expect("repair");
        assert_eq!(repaired.outcome, outcome, "{:?}", repaired.report.findings);
    };
    for options in
        [&["-t", "ext2", "-O", "^resize_inode"][..], &["-t", "ext4", "-O", "^has_journal"]]
    {
        let base = Base::new("table", options);
        let first = table_of(base.text(), 1);
        let size = if options[1] == "ext2" { 32 } else { 64 };
        let place = [2048 + size + 8, 8194 * 1024 + size + 8];
        let path = base.damaged(&Copies(place, &[0, 0, 0, 0]));
        let codes: Vec<&str> = check(&path).findings.iter().map(|it| it.code()).collect();
        assert!(codes.contains(&"group.head"), "{codes:?}");
        let before = table(&path, first);
        ends(&path, Outcome::Left);
        assert!(table(&path, first) == before, "{options:?}");
    }
    for options in [&["-t", "ext2", "-O", "none"][..], &["-t", "ext3", "-O", "has_journal"]] {
        let base = Base::sized("lone", options, "8000");
        let first = table_of(base.text(), 0);
        for at in [first, first + 1, first + 7] {
            let path = base.damaged(&Debugfs(format!("set_bg 0 block_bitmap {at}").leak()));
            let before = table(&path, first);
            // The bitmap is put elsewhere.
            ends(&path, Outcome::Corrected);
            assert!(table(&path, first) == before, "{options:?}: {at}");
        }
    }
}

/// Behind the mark of an inode table that was never written there may be anything.
#[test]
fn a_never_written_table_stays_one() {
    if !there() {
        return;
    }
    let options = ["-t", "ext4", "-O", "^has_journal,uninit_bg,^metadata_csum"];
    let base = Base::sized("unwritten", &options, "24000");
    let said = text("dumpe2fs", &[base.text()]);
    assert!(
        said.split("Group 2:").nth(1).expect("a last group").contains("INODE_UNINIT"),
        "{said}"
    );
    let table = said.split("Inode table at ").nth(3).expect("of the last group");
    let digits: String = table.chars().take_while(char::is_ascii_digit).collect();
    let first: u64 = digits.parse().expect("a number");
    let recipe = "set_bg 2 flags 3; set_bg 2 checksum calc";
    let path = base.damaged(&Debugfs(recipe));
    let file = fs::File::options().write(true).open(&path).expect("open");
    let noise: Vec<u8> = (0..8192u32).map(|at| (at * 7 % 251) as u8).collect();
    file.write_all_at(&noise, first * 1024).expect("write");
    let found = check(&path);
    let codes: Vec<&str> = found.findings.iter().map(|it| it.code()).collect();
    assert!(codes.contains(&"group.head"), "{codes:?}");
    assert!(!codes.iter().any(|code| code.starts_with("inode.")), "{codes:?}");
    assert_eq!(repairs(&base, &path), None);
    let table = holes::take(&path)[first as usize * 1024..][..noise.len()].to_vec();
    assert!(table == noise);
    let said = text("dumpe2fs", &[path.to_str().expect("path")]);
    assert!(said.split("Group 2:").nth(1).expect("group").contains("INODE_UNINIT"), "{said}");
}

/// An image of one group has no copy of a descriptor, and its journal no other journal.
#[test]
fn what_is_lost_is_made_again() {
    if !there() {
        return;
    }
    for (name, options) in [
        ("ext3", &["-t", "ext3", "-O", "^resize_inode"][..]),
        ("lone", &["-t", "ext4", "-O", "metadata_csum"]),
    ] {
        let base = Base::sized(name, options, "8000");
        judge(
            &base,
            &[
                ("group.head", Debugfs("set_bg 0 block_bitmap 99999999; set_bg 0 checksum calc")),
                ("group.head", Debugfs("set_bg 0 inode_bitmap 0; set_bg 0 checksum calc")),
                ("group.head", Debugfs("set_bg 0 inode_bitmap 2; set_bg 0 checksum calc")),
                ("journal.corrupt", Bytes(Place::File("<8>", 0), 0, &[0; 4])),
                ("journal.corrupt", Bytes(Place::File("<8>", 0), 4, &[0, 0, 0, 2])),
                ("journal.corrupt", Bytes(Place::File("<8>", 0), 16, &[9, 9, 9, 9])),
                ("journal.corrupt", Debugfs("ssv jnl_backup_type 0; sif <8> size 524288")),
                ("journal.fields", Bytes(Place::File("<8>", 0), 4, &[0, 0, 0, 3])),
                ("journal.fields", Bytes(Place::File("<8>", 0), 64, &[0, 0, 0, 2])),
                ("inode.reserved", Debugfs("ssv jnl_backup_type 0; clri <8>")),
                ("inode.reserved", Debugfs("ssv jnl_backup_type 0; sif <8> mode 0040755")),
                ("inode.reserved", Debugfs("ssv jnl_backup_type 0; sif <8> flags 0x80800")),
                ("superblock.fields", Debugfs("ssv jnl_backup_type 0; ssv journal_inum 3000")),
            ],
        );
        let journal = |image: &str| text("debugfs", &["-R", "stat <8>", image]);
        let damaged = base.damaged(&Debugfs("ssv jnl_backup_type 0; clri <8>"));
        let device = Arc::new(FileDevice::open_locked(&damaged).expect("open"));
        seekless_ext::repair(device).expect("repair");
        let said = journal(damaged.to_str().expect("path"));
        assert!(said.contains("Size: 1048576"), "no journal: {said}");
    }
}

/// Without a strict encoding, a name in a directory that ignores case need not be text: it stays when
/// the directory is written again.
#[test]
fn names_that_are_no_text_stay() {
    if !there() {
        return;
    }
    // With another seed the name may lie where its hash belongs, so that nothing is written again but
    // the checksum. The kernel hashes a name that is no text as it is; e2fsck 1.47.0 takes another hash,
    // and finds a fault there.
    let seeded = "encoding=utf8,hash_seed=6d1c7c0e-5a4f-4a3b-9f0e-2b7d1f3c8a95";
    let options = ["-t", "ext4", "-O", "casefold,^has_journal", "-E", seeded];
    let base = Base::new("casefold", &options);
    let set = run("debugfs", &["-w", "-R", "sif /many flags 0x40081000", base.text()]);
    assert!(set.status.success(), "{set:?}");
    run("e2fsck", &["-fy", base.text()]);
    assert!(check(&base.path).is_clean());
    // The hash of the name is another one now.
    let path = base.damaged(&Bytes(Place::File("/many", 1), 8, &[0xFF]));
    let codes: Vec<&str> = check(&path).findings.iter().map(|it| it.code()).collect();
    assert!(codes.contains(&"directory.index"), "{codes:?}");
    assert_eq!(repairs(&base, &path), None);
    let copy = base.dir.join("repaired");
    let listed = run("debugfs", &["-R", "ls -p /many", copy.to_str().expect("path")]).stdout;
    assert!(listed.contains(&0xFF), "{}", String::from_utf8_lossy(&listed));
}

/// debugfs writes no encryption contexts: they are written as `user.c`, and get the index of
/// contexts (9) for that of the name space of users.
#[test]
fn damage_of_encryption_is_named() {
    if !there() {
        return;
    }
    let options = ["-t", "ext4", "-I", "256", "-O", "^metadata_csum,^has_journal,encrypt"];
    let base = Base::new("encrypt", &options);
    const FILE: &str = "/secret/a-name-of-sixteen";
    const INDEX: u64 = 128 + 32 + 4 + 1;
    // The value of 28 bytes ends with the inode.
    const VALUE: u64 = 256 - 28;
    let context = base.dir.join("context");
    fs::write(&context, [&[1, 1, 4, 0][..], &[7; 8], &[9; 16]].concat()).expect("write");
    let context = context.display();
    let commands = format!(
        "mkdir /secret\ncd /secret\nwrite /dev/null {}\ncd /\nea_set -f {context} /secret user.c\n\
         ea_set -f {context} {FILE} user.c\nsif /secret flags 0x80800\nsif {FILE} flags 0x80800\n\
         link {FILE} /secret/b-name-of-sixteen\nsif {FILE} links_count 2\n",
        FILE.trim_start_matches("/secret/")
    );
    let script = base.dir.join("script");
    fs::write(&script, commands).expect("script");
    run("debugfs", &["-w", "-f", script.to_str().expect("path"), base.text()]);
    for path in ["/secret", FILE] {
        let file = fs::File::options().write(true).open(&base.path).expect("open");
        file.write_all_at(&[9], base.find(&Place::Inode(path)) + INDEX).expect("write");
    }
    assert_eq!(run("e2fsck", &["-fn", base.text()]).status.code(), Some(0));
    let report = check(&base.path);
    assert!(report.is_clean(), "{:#?}", report.findings);
    judge(
        &base,
        &[
            ("inode.encryption", Debugfs("sif /slow flags 0x80800")),
            ("inode.encryption", Bytes(Place::Inode(FILE), INDEX, &[1])),
            ("inode.encryption", Bytes(Place::Inode("/secret"), INDEX, &[1])),
            ("inode.encryption", Bytes(Place::Inode(FILE), VALUE, &[0])),
            ("entry.encryption", Bytes(Place::Inode(FILE), VALUE, &[3])),
            ("entry.encryption", Bytes(Place::Inode(FILE), VALUE + 4, &[8])),
            ("entry.encryption", Bytes(Place::File("/secret", 0), 24 + 6, &[5])),
            ("entry.encryption", Debugfs("sif /secret/a-name-of-sixteen flags 0x80000")),
            ("entry.duplicate", Bytes(Place::File("/secret", 0), 52 + 8, b"a")),
        ],
    );
}

/// Names of a directory that ignores case are text, and differ in more than case.
#[test]
fn damage_of_folded_names_is_named() {
    if !there() {
        return;
    }
    let features = "^metadata_csum,^has_journal,casefold";
    let options = ["-t", "ext4", "-O", features, "-E", "encoding_flags=strict"];
    let base = Base::new("casefold", &options);
    let script = base.dir.join("script");
    let commands = "mkdir /fold\nsif /fold flags 0x40080000\ncd /fold\nwrite /dev/null one\n\
                    write /dev/null two\n";
    fs::write(&script, commands).expect("script");
    run("debugfs", &["-w", "-f", script.to_str().expect("path"), base.text()]);
    assert_eq!(run("e2fsck", &["-fn", base.text()]).status.code(), Some(0));
    judge(
        &base,
        &[
            ("entry.name", Bytes(Place::File("/fold", 0), 24 + 8, &[0xFF])),
            ("entry.duplicate", Bytes(Place::File("/fold", 0), 36 + 8, b"ONE")),
            ("inode.links-high", Debugfs("sif /fold/one links_count 5")),
        ],
    );
}
