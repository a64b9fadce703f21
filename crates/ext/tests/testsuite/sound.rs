//! What e2fsck calls clean, the check calls in order; and one damaged pointer is
//! one or two findings, not one for each thing that it leads to. Needs
//! e2fsprogs; says so and passes without.

#![allow(missing_docs)]

use crate::holes;
use crate::skip;
use seekless_device::FileDevice;
use seekless_ext::ExtImage;
use seekless_fs::Inspect;
use seekless_fs::check::{Repaired, Report};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().expect(program)
}

fn there() -> bool {
    let there = Command::new("debugfs").arg("-V").output().is_ok();
    if !there {
        skip::skip("e2fsprogs are not installed");
    }
    there
}

/// A directory with a tree, in which images are made.
struct Scene {
    dir: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("sound-{name}-{}", std::process::id()));
        let tree = dir.join("tree");
        fs::create_dir_all(tree.join("a/below")).expect("mkdir");
        fs::create_dir_all(tree.join("many")).expect("mkdir");
        let noise: Vec<u8> = (0..40_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        fs::write(tree.join("a/file"), &noise).expect("write");
        fs::write(tree.join("a/other"), &noise[..5000]).expect("write");
        for n in 0..120 {
            fs::write(tree.join(format!("many/a name of some length {n}")), b"").expect("write");
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().expect("path").to_string()
    }

    fn make(&self, name: &str, options: &[&str], size: &str) -> String {
        let (image, tree) = (self.path(name), self.path("tree"));
        let args = [&["-q", "-F", "-b", "1024", "-d", &tree], options, &[&image, size]].concat();
        let made = run("mke2fs", &args);
        assert!(made.status.success(), "{made:?}");
        image
    }

    fn debugfs(&self, image: &str, commands: &str) -> String {
        let script = self.path("script");
        fs::write(&script, commands.replace("; ", "\n")).expect("script");
        let done = run("debugfs", &["-w", "-f", &script, image]);
        assert!(done.status.success(), "{commands}: {done:?}");
        String::from_utf8(done.stdout).expect("text")
    }

    /// The n-th block of a file.
    fn block(&self, image: &str, path: &str, n: usize) -> u64 {
        let said = self.debugfs(image, &format!("blocks {path}"));
        let numbers = said.lines().last().expect("blocks");
        numbers.split_whitespace().nth(n).expect("block").parse().expect("number")
    }
}

fn check(image: &str) -> Report {
    seekless_ext::check(Arc::new(FileDevice::open(Path::new(image)).expect("open"))).expect("check")
}

fn repair(image: &str) -> Repaired {
    let device = FileDevice::open_locked(Path::new(image)).expect("open");
    seekless_ext::repair(Arc::new(device)).expect("repair")
}

/// Both call it clean.
fn clean(what: &str, image: &str) {
    let said = run("e2fsck", &["-fn", image]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success() && !text.contains("? no"), "{what}: {text}");
    let report = check(image);
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

#[test]
fn files_may_end_where_their_last_block_begins() {
    if !there() {
        return;
    }
    let scene = Scene::new("length");
    for options in [&["-t", "ext4"][..], &["-t", "ext2"]] {
        let image = scene.make("image", options, "9000");
        scene.debugfs(&image, &format!("sif /a/file size {}", 39 * 1024));
        clean("at the last block", &image);
        scene.debugfs(&image, &format!("sif /a/file size {}", 39 * 1024 - 1));
        let codes: Vec<&str> = check(&image).findings.iter().map(|found| found.code()).collect();
        assert_eq!(codes, ["inode.length"]);
        assert!(!run("e2fsck", &["-fn", &image]).status.success());
    }
}

#[test]
fn files_may_share_blocks_where_the_volume_says_so() {
    if !there() {
        return;
    }
    let scene = Scene::new("shared");
    let image = scene.make("image", &["-t", "ext2"], "9000");
    let block = scene.block(&image, "/a/file", 5);
    let own = scene.block(&image, "/a/other", 2);
    let share = format!("sif /a/other block[2] {block}; freeb {own}; feature shared_blocks");
    scene.debugfs(&image, &share);
    // The counts follow from the block that became free.
    run("e2fsck", &["-fy", &image]);
    assert_eq!(scene.block(&image, "/a/other", 2), block, "repaired away");
    clean("shared", &image);
    scene.debugfs(&image, "feature ^shared_blocks");
    assert!(check(&image).findings.iter().any(|found| found.code() == "inode.duplicate-blocks"));
}

#[test]
fn lists_of_bad_blocks() {
    if !there() {
        return;
    }
    let scene = Scene::new("bad");
    let list = scene.path("bad");
    // More than fit in the inode, and among them copies of superblock and descriptors.
    let bad: String = (9000..11_000).step_by(5).map(|n| format!("{n}\n")).collect();
    fs::write(&list, format!("8193\n8194\n{bad}")).expect("write");
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "bigalloc", "-C", "4096"],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    ] {
        let options = [options, &["-l", &list]].concat();
        clean("bad blocks", &scene.make("image", &options, "30000"));
    }
}

/// Inodes in a bad block of an inode table count as used, and none may be.
#[test]
fn lists_of_bad_blocks_in_an_inode_table() {
    if !there() {
        return;
    }
    let scene = Scene::new("bad-table");
    let image = scene.make("image", &["-t", "ext2", "-N", "512"], "9000");
    let said = run("dumpe2fs", &[&image]);
    let text = String::from_utf8(said.stdout).expect("text");
    let at = text.split("Inode table at ").nth(1).and_then(|rest| rest.split('-').next());
    let table: u64 = at.expect("table").parse().expect("number");
    scene.debugfs(&image, &format!("sif <1> block[0] {}; sif <1> blocks 2", table + 50));
    let codes = || check(&image).findings.iter().map(|found| found.code()).collect::<Vec<_>>();
    assert_eq!(codes(), ["bitmap.inodes-free", "group.counts", "superblock.totals"]);
    run("e2fsck", &["-fy", &image]);
    assert!(scene.debugfs(&image, "stat <1>").contains(&format!("{}", table + 50)), "repaired");
    clean("bad block", &image);
    // Where somebody is.
    scene.debugfs(&image, &format!("sif <1> block[0] {}", table + 5));
    assert!(!run("e2fsck", &["-fn", &image]).status.success());
    assert!(codes().contains(&"entry.unallocated"), "{:?}", codes());
}

/// The list may have extents, as files have.
#[test]
fn lists_of_bad_blocks_in_extents() {
    if !there() {
        return;
    }
    let scene = Scene::new("bad-extents");
    let image = scene.make("image", &["-t", "ext4"], "20000");
    // A header (magic number, one entry of four), and two blocks from 9000 on.
    let words = [0x0001_F30A, 4, 0, 0, 2, 9000];
    let mut commands = String::from("setb 9000 2; sif <1> flags 0x80000");
    for (slot, word) in words.iter().enumerate() {
        commands.push_str(&format!("; sif <1> block[{slot}] {word}"));
    }
    scene.debugfs(&image, &commands);
    run("e2fsck", &["-fy", &image]);
    assert!(scene.debugfs(&image, "stat <1>").contains("9000-9001"), "repaired away");
    clean("extents", &image);
}

/// What e2fsck asks of no inode that is the volume's own: the size of its extra
/// fields, a time of deletion, where its attributes are; nor anything of one that
/// is kept for a journal or quotas the volume does not have.
#[test]
fn fields_of_reserved_inodes_that_say_nothing() {
    if !there() {
        return;
    }
    let scene = Scene::new("reserved");
    let with_journal = ["-t", "ext4"];
    let without = ["-t", "ext4", "-O", "^has_journal"];
    for (options, fields) in [
        (
            &with_journal[..],
            &[
                "<7> extra_isize 65535",
                "<8> extra_isize 65535",
                "<8> extra_isize 3",
                "<7> dtime 33188",
                "<8> dtime 4294967295",
                "<7> file_acl 65535",
                "<8> file_acl_hi 1",
                "<1> flags 524288",
                "<3> mode 1",
                "<3> mode 0100644",
                "<4> mode 040755",
                "<5> mode 0170000",
            ][..],
        ),
        // e2fsck goes by the copy in the superblock.
        (&["-t", "ext3"][..], &["<8> links_count 0"]),
        (&without[..], &["<8> mode 040755", "<8> block[1] 77", "<3> extra_isize 5"]),
    ] {
        let base = scene.make("base", options, "9000");
        let image = scene.path("image");
        for field in fields {
            fs::copy(&base, &image).expect("copy");
            scene.debugfs(&image, &format!("sif {field}"));
            assert_ne!(fs::read(&base).expect("read"), holes::take(&image), "{field}");
            clean(field, &image);
        }
    }
}

/// And what it does ask of them: one finding each.
#[test]
fn fields_of_reserved_inodes_that_are_wrong() {
    if !there() {
        return;
    }
    let scene = Scene::new("reserved-wrong");
    let image = scene.path("image");
    let bare = ["-t", "ext4", "-O", "^has_journal"];
    let rich = ["-t", "ext4", "-O", "quota,orphan_file", "-I", "256"];
    for (options, fields) in [
        (
            &bare[..],
            &[
                "<9> mode 0100644",
                "<5> mode 040755",
                "<8> block[0] 7",
                "<3> links_count 1",
                "<7> links_count 0",
                "<7> mode 0120777",
            ][..],
        ),
        (
            &rich[..],
            &[
                "<8> links_count 0",
                "<8> mode 040600",
                "<3> mode 040600",
                "<4> mode 0",
                "<12> mode 040600",
            ],
        ),
    ] {
        let base = scene.make("base", options, "9000");
        run("e2fsck", &["-fy", &base]);
        clean("base", &base);
        for field in fields {
            fs::copy(&base, &image).expect("copy");
            scene.debugfs(&image, &format!("sif {field}"));
            let said = run("e2fsck", &["-fn", &image]);
            let text = String::from_utf8_lossy(&said.stdout);
            assert!(!said.status.success() || text.contains("? no"), "{field}: {text}");
            let report = check(&image);
            // A quota file that is no file has no usage either.
            let codes = report.findings.iter().map(|found| found.code());
            let codes: Vec<&str> = codes.filter(|code| !code.starts_with("quota.")).collect();
            assert_eq!(codes, ["inode.reserved"], "{field}");
        }
    }
}

/// The head of a journal is looked at also where nothing waits in it.
#[test]
fn the_head_of_an_empty_journal() {
    if !there() {
        return;
    }
    let scene = Scene::new("journal-head");
    let image = scene.make("image", &["-t", "ext4"], "9000");
    clean("image", &image);
    let at = scene.block(&image, "<8>", 0) * 1024;
    let file = fs::File::options().read(true).write(true).open(&image).expect("open");
    // Magic number, kind, block size, length, start: what e2fsck would replay.
    for (offset, value) in [(0, 9u32), (4, 9), (12, 9), (16, 99_999), (28, 9)] {
        let mut word = [0; 4];
        file.read_exact_at(&mut word, at + offset).expect("read");
        file.write_all_at(&value.to_be_bytes(), at + offset).expect("write");
        let said = run("e2fsck", &["-fn", &image]);
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(!said.status.success() || text.contains("? no"), "{offset}: {said:?}");
        let codes: Vec<&str> = check(&image).findings.iter().map(|found| found.code()).collect();
        let code = if offset == 28 { "journal.pending" } else { "journal.corrupt" };
        assert_eq!(codes, [code], "{offset}");
        file.write_all_at(&word, at + offset).expect("write");
    }
    clean("image", &image);
}

/// An inode with a value that says in its time of modification whose value it
/// holds, as Lustre made them: it has no hash, and its blocks are not the owner's.
#[test]
fn values_that_name_their_owner() {
    if !there() {
        return;
    }
    let scene = Scene::new("lustre");
    let image = scene.make("image", &["-t", "ext4", "-O", "ea_inode,^metadata_csum"], "9000");
    let value = scene.path("value");
    fs::write(&value, "v".repeat(1000)).expect("write");
    scene.debugfs(&image, &format!("ea_set -f {value} /a/other user.long"));
    // The entry: bytes 4 to 8 are the number of the inode with the value, 12 to 16
    // its hash, then the name.
    let bytes = holes::take(&image);
    let name = bytes.windows(4).position(|bytes| bytes == b"long").expect("entry");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("word"));
    let holder = word(name - 12);
    let stat = scene.debugfs(&image, "stat /a/other");
    let (_, rest) = stat.split_once("Inode: ").expect("stat");
    let owner = rest.split_whitespace().next().expect("number");
    scene.debugfs(&image, &format!("sif <{holder}> mtime @{owner}; sif <{holder}> generation 0"));
    let file = fs::File::options().write(true).open(&image).expect("open");
    file.write_all_at(&[0x5A; 4], name as u64 - 4).expect("write");
    clean("Lustre", &image);
}

#[test]
fn descriptors_of_128_bytes() {
    if !there() {
        return;
    }
    let scene = Scene::new("descriptors");
    clean("desc_size", &scene.make("image", &["-t", "ext4", "-E", "desc_size=128"], "20000"));
}

#[test]
fn one_damaged_descriptor_is_few_findings() {
    if !there() {
        return;
    }
    let scene = Scene::new("cascade");
    for options in [
        &["-t", "ext4", "-g", "2048", "-J", "size=1"][..],
        &["-t", "ext2", "-g", "2048"],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-g", "2048", "-J", "size=1"],
        &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-g", "1024", "-J", "size=1"],
    ] {
        let base = scene.make("base", options, "12000");
        for group in [0, 1] {
            for field in ["block_bitmap", "inode_bitmap", "inode_table"] {
                for value in [0, 1, 3, 500, 1500, 99_999_999] {
                    let image = scene.path("image");
                    fs::copy(&base, &image).expect("copy");
                    scene.debugfs(&image, &format!("set_bg {group} {field} {value}"));
                    let found = check(&image);
                    let codes: Vec<&str> = found.findings.iter().map(|f| f.code()).collect();
                    let about = format!("{options:?}: group {group}, {field} {value}: {codes:?}");
                    if codes.is_empty() {
                        // It was there already.
                        clean(&about, &image);
                        continue;
                    }
                    assert!(codes.len() <= 2, "{about}");
                    assert!(codes.iter().all(|code| code.starts_with("group.")), "{about}");
                    // With meta_bg, debugfs writes the copies of the descriptor as well.
                    let has_copy = !options.contains(&"meta_bg,^resize_inode");
                    assert!(!has_copy || found.tally.inodes > 120, "{about}");
                }
            }
        }
    }
}

/// Descriptors overwritten with noise: each is named, with the pointers that lead
/// astray, and nothing that follows from them.
#[test]
fn descriptors_of_noise_are_named_and_no_more() {
    if !there() {
        return;
    }
    let scene = Scene::new("noise");
    for options in
        [&["-t", "ext4", "-g", "4096", "-J", "size=1"][..], &["-t", "ext2", "-g", "4096"]]
    {
        // Checksums start from the UUID: with another one, noise is right once in a while.
        let options = &[options, &["-U", "5ee61e55-b007-4000-8000-000000000001"]].concat();
        let base = fs::read(scene.make("base", options, "12000")).expect("read");
        let size = if options.contains(&"ext4") { 64 } else { 32 };
        for seed in 1..=40u64 {
            // All descriptors, or one of them.
            let (first, count) = if seed % 2 == 0 { (0, 3) } else { (seed as usize / 2 % 3, 1) };
            let mut damaged = base.clone();
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            for byte in &mut damaged[2048 + first * size..][..count * size] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            let image = scene.path("image");
            holes::put(&image, &damaged);
            let found = check(&image);
            let codes: Vec<&str> = found.findings.iter().map(|finding| finding.code()).collect();
            let about = format!("{options:?}, seed {seed}: {:#?}", found.findings);
            assert!(codes.iter().all(|code| code.starts_with("group.")), "{about}");
            assert!(codes.len() <= 4 * count && codes.len() >= count, "{about}");
            assert!(!codes.contains(&"group.counts"), "{about}");
            assert!(found.tally.inodes > 120, "{about}");
        }
    }
}

/// Without any copy to go by, what cannot be found is passed over.
#[test]
fn a_lost_table_hides_what_it_holds_and_no_more() {
    if !there() {
        return;
    }
    let scene = Scene::new("lost");
    let image = scene.make("image", &["-t", "ext2"], "6000");
    for (field, most) in [("block_bitmap", 1), ("inode_bitmap", 1), ("inode_table", 1)] {
        let damaged = scene.path("damaged");
        fs::copy(&image, &damaged).expect("copy");
        scene.debugfs(&damaged, &format!("set_bg 0 {field} 99999999"));
        let found = check(&damaged);
        assert_eq!(found.findings[0].code(), "group.head");
        assert!(found.findings.len() <= most, "{field}: {:#?}", found.findings);
    }
}

#[test]
fn copies_of_the_superblock_are_tried() {
    if !there() {
        return;
    }
    let scene = Scene::new("superblock");
    for options in
        [&["-t", "ext4"][..], &["-t", "ext2"], &["-t", "ext4", "-g", "2048", "-J", "size=1"]]
    {
        let image = scene.make("image", options, "12000");
        let whole = holes::take(&image);
        // The magic number, the size of blocks, inodes of a group, all of it.
        for (at, bytes) in
            [(1080, vec![0, 0]), (1048, vec![99]), (1064, vec![0; 4]), (1024, vec![0x5A; 1024])]
        {
            // Groups of an unusual size are found by what is left of the superblock.
            if bytes.len() > 4 && options.contains(&"-g") {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[at..at + bytes.len()].copy_from_slice(&bytes);
            holes::put(&image, &damaged);
            let found = check(&image);
            let codes: Vec<&str> = found.findings.iter().map(|found| found.code()).collect();
            assert_eq!(codes, ["superblock.corrupt"], "{options:?}, byte {at}");
            assert!(found.tally.inodes > 120, "{:?}", found.tally);
        }
    }
    // With no copy anywhere there is nothing to go by.
    let image = scene.make("image", &["-t", "ext2"], "6000");
    let file = fs::File::options().write(true).open(&image).expect("open");
    file.write_all_at(&[0, 0], 1080).expect("write");
    let device = Arc::new(FileDevice::open(Path::new(&image)).expect("open"));
    assert!(seekless_ext::check(device).is_err());
}

/// A journal that is a file with a name, and inodes that need none.
#[test]
fn inodes_of_an_unusual_kind() {
    if !there() {
        return;
    }
    let scene = Scene::new("unusual");
    let image = scene.make("image", &["-t", "ext3", "-O", "^resize_inode"], "9000");
    let journal = scene.path("journal");
    scene.debugfs(&image, &format!("dump <8> {journal}; write {journal} log"));
    // Without the holes of a file of zeros.
    scene.debugfs(&image, "fallocate log 0 1023");
    let said = scene.debugfs(&image, "stat log");
    let (_, rest) = said.split_once("Inode: ").expect("stat");
    let number = rest.split_whitespace().next().expect("number");
    scene.debugfs(&image, &format!("ssv journal_inum {number}; ssv jnl_backup_type 0; clri <8>"));
    run("e2fsck", &["-fy", &image]);
    let said = String::from_utf8(run("dumpe2fs", &["-h", &image]).stdout).expect("text");
    let (_, rest) = said.split_once("Journal inode:").expect("dumpe2fs");
    assert_eq!(rest.split_whitespace().next(), Some(number), "moved");
    clean("a journal with a name", &image);

    let image = scene.make("image", &["-t", "ext2"], "9000");
    scene.debugfs(&image, "feature imagic_inodes; sif /a/other flags 0x2000; unlink /a/other");
    run("e2fsck", &["-fy", &image]);
    clean("an inode without a name", &image);
}

#[test]
fn fields_that_nobody_reads_may_have_any_value() {
    if !there() {
        return;
    }
    let scene = Scene::new("unread");
    let image =
        scene.make("image", &["-t", "ext4", "-O", "quota,^metadata_csum", "-I", "256"], "9000");
    // mke2fs does not count files of a tree.
    run("e2fsck", &["-fy", &image]);
    clean("as made", &image);
    for commands in ["sif <8> faddr 5", "sif <3> faddr 5", "sif <7> faddr 5", "sif <7> flags 0x30"]
    {
        let copy = scene.path("copy");
        fs::copy(&image, &copy).expect("copy");
        scene.debugfs(&copy, commands);
        clean(commands, &copy);
    }
}

/// The kernel and e2fsck read blocks of symlinks and directories whatever their extents' marks are.
#[test]
fn what_is_marked_as_never_written_is_read() {
    if !there() {
        return;
    }
    let scene = Scene::new("marked");
    std::os::unix::fs::symlink("t".repeat(200), scene.dir.join("tree/slow")).expect("symlink");
    let image = scene.make("image", &["-t", "ext4", "-O", "^metadata_csum"], "9000");
    scene.debugfs(&image, "sif /slow block[4] 0x8001");
    clean("a symlink", &image);
    scene.debugfs(&image, "sif /a block[4] 0x8001");
    let device = Arc::new(FileDevice::open(Path::new(&image)).expect("open"));
    let read = ExtImage::open(device, OpenOptions::default()).expect("open");
    let link = resolve(&read, b"/slow").expect("a symlink");
    assert_eq!(read.read_link(link).expect("target"), "t".repeat(200).as_bytes());
    resolve(&read, b"/a/below").expect("an entry");
}

/// A directory that had more subdirectories than can be counted.
#[test]
fn a_directory_with_an_index_may_have_one_link() {
    if !there() {
        return;
    }
    let scene = Scene::new("one-link");
    let image = scene.make("image", &["-t", "ext4", "-O", "^metadata_csum"], "9000");
    run("e2fsck", &["-fyD", &image]);
    scene.debugfs(&image, "sif /many links_count 1");
    clean("with an index", &image);
    scene.debugfs(&image, "sif /a links_count 1");
    let codes: Vec<&str> = check(&image).findings.iter().map(|found| found.code()).collect();
    assert_eq!(codes, ["inode.links-low"]);
    assert!(!run("e2fsck", &["-fn", &image]).status.success());
}

/// A bit of the name space is wrong: kernel and e2fsck pass over the attribute, and the others stay.
#[test]
fn attributes_in_an_inode_may_be_of_no_name_space() {
    if !there() {
        return;
    }
    let scene = Scene::new("namespace");
    let image = scene.make("image", &["-t", "ext4", "-O", "^metadata_csum", "-I", "256"], "9000");
    scene.debugfs(&image, "ea_set /a/file user.one 1111; ea_set /a/file user.two 2222");
    let bytes = fs::read(&image).expect("read");
    let at = bytes.windows(3).position(|name| name == b"one").expect("an attribute");
    let index = at - 15;
    assert_eq!(bytes[index], 1, "the index of user");
    let file = fs::File::options().write(true).open(&image).expect("open");
    file.write_all_at(&[0], index as u64).expect("write");
    clean("index 0", &image);
    assert!(repair(&image).report.findings.is_empty());
    let left = scene.debugfs(&image, "ea_list /a/file");
    assert!(left.contains("one (4) = \"1111\"") && left.contains("user.two"), "{left}");
}

/// e2fsck leaves out the inodes of symlinks with inline data when it counts for quotas; the kernel
/// counts them.
#[test]
fn quotas_may_leave_out_symlinks_with_inline_data() {
    if !there() {
        return;
    }
    let scene = Scene::new("symlinks");
    let target = "t".repeat(100);
    std::os::unix::fs::symlink(target, scene.dir.join("tree/long")).expect("symlink");
    let image = scene.make("image", &["-t", "ext4", "-O", "quota,inline_data"], "9000");
    run("e2fsck", &["-fy", &image]);
    clean("as e2fsck counts", &image);
    // One less for the group alone is wrong in any case.
    scene.debugfs(&image, "sif /a/file uid 1000");
    let codes: Vec<&str> = check(&image).findings.iter().map(|found| found.code()).collect();
    assert_eq!(codes, ["quota.usage"]);
}

/// e2fsck reads no quota file of more than 2 GiB.
#[test]
fn a_quota_file_that_is_too_long_is_written_again() {
    if !there() {
        return;
    }
    let scene = Scene::new("quota");
    let image = scene.make("image", &["-t", "ext4", "-O", "quota,^metadata_csum"], "9000");
    // mke2fs does not count files of a tree.
    run("e2fsck", &["-fy", &image]);
    clean("as made", &image);
    scene.debugfs(&image, "sif <3> size 0x80001800");
    assert!(!run("e2fsck", &["-fn", &image]).status.success());
    let codes: Vec<&str> = check(&image).findings.iter().map(|found| found.code()).collect();
    assert_eq!(codes, ["quota.unreadable"]);
    repair(&image);
    clean("written again", &image);
}
