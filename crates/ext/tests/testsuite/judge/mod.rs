//! The kernel as judge: trees written through a mount, read back by both.
//!
//! Needs root, loop devices and e2fsprogs; without them the tests are skipped.

mod fast;
mod kernel;
mod names;
mod populate;
mod walk;

use crate::skip;
use kernel::{Image, Mounted};
use std::collections::BTreeMap;
use walk::Record;

/// Whether the judge can sit at all.
fn ready() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip::skip("mounting needs root");
    false
}

/// Fails with the first few differences between two walks.
fn compare(what: &str, theirs: &BTreeMap<Vec<u8>, Record>, ours: &BTreeMap<Vec<u8>, Record>) {
    let mut wrong = Vec::new();
    for (path, record) in theirs {
        let shown = String::from_utf8_lossy(path);
        match ours.get(path) {
            None => wrong.push(format!("{shown}: missing")),
            Some(mine) if mine != record => {
                wrong.push(format!("{shown}:\n  kernel {record:?}\n  ours   {mine:?}"));
            }
            Some(_) => {}
        }
    }
    for path in ours.keys().filter(|path| !theirs.contains_key(*path)) {
        wrong.push(format!("{}: not there for the kernel", String::from_utf8_lossy(path)));
    }
    let count = wrong.len();
    wrong.truncate(5);
    assert!(count == 0, "{what}: {count} of {} differ\n{}", theirs.len(), wrong.join("\n"));
    assert!(theirs.len() > 10, "{what}: only {} files to compare", theirs.len());
}

/// Writes a tree through the kernel, then compares what both read.
fn judge(name: &str, size: u64, options: &[&str], load: &populate::Load) {
    if !ready() {
        return;
    }
    let image = Image::make(name, size, options);
    {
        let mounted = Mounted::read_write(&image);
        populate::fill(mounted.path(), load);
    }
    compare_image(name, &image);
}

/// Compares a whole image that is not mounted.
fn compare_image(name: &str, image: &Image) {
    let theirs = {
        let mounted = Mounted::read_only(image);
        walk::mounted(mounted.path())
    };
    let reader = image.open();
    compare(name, &theirs, &walk::image(&reader));
    kernel::compare_free_blocks(name, image, &reader);
    let path = image.path().to_str().expect("path");
    kernel::run("e2fsck", &["-fn", path]);
    let report = image.check();
    assert!(report.is_clean(), "{name}: {:#?}", &report.findings[..report.findings.len().min(8)]);
    assert!(report.tally.inodes > 10, "{name}: {:?}", report.tally);
}

macro_rules! judged {
    ($($name:ident: $size:expr, [$($option:expr),*];)*) => {
        $(#[test]
        fn $name() {
            judge(stringify!($name), $size << 20, &[$($option),*], &populate::Load::default());
        })*
    };
}

judged! {
    ext2_1k: 128, ["-t", "ext2", "-b", "1024"];
    ext2_4k_128_byte_inodes: 128, ["-t", "ext2", "-b", "4096", "-I", "128"];
    ext3_2k: 128, ["-t", "ext3", "-b", "2048"];
    ext4_1k: 128, ["-t", "ext4", "-b", "1024"];
    ext4_4k: 128, ["-t", "ext4", "-b", "4096"];
    no_extents: 128, ["-t", "ext4", "-O", "^extent,^64bit,^bigalloc"];
    bigalloc: 128, ["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"];
    bigalloc_1k: 128, ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"];
    inline_data: 128, ["-t", "ext4", "-O", "inline_data", "-I", "256"];
    inline_data_big_inodes: 128, ["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "1024"];
    meta_bg: 256, ["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"];
    no_flex_bg: 128, ["-t", "ext4", "-b", "1024", "-O", "^flex_bg"];
    no_64bit: 128, ["-t", "ext4", "-O", "^64bit"];
    uninit_bg: 256, ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"];
    no_checksums: 128, ["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"];
    sparse_super2: 128, ["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"];
    metadata_csum_seed: 128, ["-t", "ext4", "-O", "metadata_csum_seed"];
    orphan_file: 128, ["-t", "ext4", "-O", "orphan_file"];
    ea_inode: 128, ["-t", "ext4", "-O", "ea_inode"];
    mmp: 128, ["-t", "ext4", "-O", "mmp"];
    no_filetype: 128, ["-t", "ext4", "-O", "^filetype"];
    no_journal_no_index: 128, ["-t", "ext4", "-O", "^has_journal,^dir_index"];
    verity_and_stable_inodes: 128, ["-t", "ext4", "-O", "verity,stable_inodes,encrypt"];
}

/// Journals whose tags carry checksums of the second version: no kernel of
/// today makes them, debugfs does, and every kernel replays them.
#[test]
fn journal_v2() {
    if !ready() {
        return;
    }
    let image = Image::make("v2", 128 << 20, &["-t", "ext4"]);
    populate::fill(Mounted::read_write(&image).path(), &populate::Load::default());
    let path = image.path().to_str().expect("path");
    let blocks = kernel::run("debugfs", &["-R", "blocks /v2-target", path]);
    assert!(blocks.trim().is_empty(), "{blocks}");
    std::fs::write(Mounted::read_write(&image).path().join("v2-target"), vec![1; 16384])
        .expect("write");
    let blocks = kernel::run("debugfs", &["-R", "blocks /v2-target", path]);
    let blocks: Vec<&str> = blocks.split_whitespace().collect();
    let fill = image.path().with_extension("fill");
    // The second block begins like a block of the journal, which is escaped.
    let magic: Vec<u8> = [0xC0, 0x3B, 0x39, 0x98].repeat(1024);
    std::fs::write(&fill, [vec![b'J'; 4096], magic].concat()).expect("write");
    let commands = image.path().with_extension("commands");
    let script = format!(
        "jo -c -v 2\njw -b {},{} {}\njw -r {}\njc\n",
        blocks[0],
        blocks[1],
        fill.display(),
        blocks[3]
    );
    std::fs::write(&commands, script).expect("write");
    kernel::run("debugfs", &["-w", "-f", commands.to_str().expect("path"), path]);
    kernel::run("debugfs", &["-w", "-R", "feature needs_recovery", path]);
    let features = kernel::run("dumpe2fs", &["-h", path]);
    assert!(features.contains("journal_checksum_v2"), "{features}");
    let twin = Image::empty("v2-twin");
    kernel::copy_sparse(image.path(), twin.path());
    let theirs = walk::mounted(Mounted::read_write(&twin).path());
    let reader = image.open();
    compare("v2", &theirs, &walk::image(&reader));
    let ino = seekless_fs::inspect::resolve(&reader, b"/v2-target").expect("resolve");
    let mut head = [0; 16];
    seekless_fs::Inspect::read(&reader, ino, seekless_units::ByteLen::ZERO, &mut head)
        .expect("read");
    assert_eq!(head, [b'J'; 16], "the journal held nothing");
}

#[test]
fn quota_and_project() {
    if !ready() {
        return;
    }
    // The kernel may lack the quota format, which it needs only to write.
    let image = Image::make("quota", 128 << 20, &["-t", "ext4"]);
    populate::fill(Mounted::read_write(&image).path(), &populate::Load::default());
    let path = image.path().to_str().expect("path");
    kernel::run("tune2fs", &["-O", "quota,project", "-Q", "usrquota,grpquota,prjquota", path]);
    compare_image("quota", &image);
}

#[test]
fn thirty_thousand_names() {
    let load = populate::Load { names: 30_000, ..Default::default() };
    judge("names", 128 << 20, &["-t", "ext4", "-b", "1024", "-N", "40000"], &load);
}

#[test]
fn three_levels_of_index() {
    if !ready() {
        return;
    }
    // Long names in small blocks fill two levels at some 15,000 blocks.
    let load = populate::Load { names: 60_000, long_names: true, ..Default::default() };
    let options = ["-t", "ext4", "-b", "1024", "-N", "70000", "-O", "large_dir"];
    let image = Image::make("large_dir", 512 << 20, &options);
    populate::fill(Mounted::read_write(&image).path(), &load);
    let path = image.path().to_str().expect("path");
    let dump = kernel::run("debugfs", &["-R", "htree_dump /many", path]);
    assert!(dump.contains("Indirect levels: 2"), "{:?}", dump.lines().take(12).collect::<Vec<_>>());
    compare_image("large_dir", &image);
}

#[test]
fn ten_terabytes_of_hole() {
    let load = populate::Load { hole: 10 << 40, ..Default::default() };
    judge("hole", 128 << 20, &["-t", "ext4", "-b", "4096"], &load);
}

/// Copies an image while it is mounted and being written to, so that its
/// journal is live, and compares with a mount of another such copy.
fn judge_live(name: &str, options: &[&str], mount: &str) {
    if !ready() {
        return;
    }
    let image = Image::make(name, 128 << 20, options);
    let live = Image::empty(&format!("{name}-live"));
    let twin = Image::empty(&format!("{name}-twin"));
    {
        let mounted = Mounted::mount(&image, mount);
        populate::fill(mounted.path(), &populate::Load::default());
        kernel::commit(mounted.path());
        // Freed directory blocks become file data: these must be revoked.
        std::fs::remove_dir_all(mounted.path().join("many")).expect("rm");
        std::fs::remove_dir_all(mounted.path().join("small")).expect("rm");
        std::fs::write(mounted.path().join("after"), vec![0xC0; 200_000]).expect("write");
        // A block that begins with the journal's magic number.
        let magic: Vec<u8> = [0xC0, 0x3B, 0x39, 0x98].repeat(4096);
        std::fs::write(mounted.path().join("magic"), &magic).expect("write");
        kernel::commit(mounted.path());
        // An orphan: without a name, but held open while the copy is made.
        let path = mounted.path().join("orphan");
        std::fs::write(&path, vec![1; 100_000]).expect("write");
        let _held = std::fs::File::open(&path).expect("open");
        std::fs::remove_file(&path).expect("unlink");
        std::fs::create_dir(mounted.path().join("last")).expect("mkdir");
        kernel::commit(mounted.path());
        kernel::copy_live(image.path(), live.path());
        std::fs::write(mounted.path().join("not in the copy"), b"x").expect("write");
    }
    kernel::copy_sparse(live.path(), twin.path());
    let theirs = {
        let mounted = Mounted::read_write(&twin);
        walk::mounted(mounted.path())
    };
    let reader = live.open();
    let features = &seekless_fs::Inspect::geometry(&reader).features;
    assert!(features.iter().any(|name| name == "needs_recovery"), "{name}: journal is clean");
    let before = std::fs::read(live.path()).expect("image");
    compare(name, &theirs, &walk::image(&reader));
    assert!(before == std::fs::read(live.path()).expect("image"), "{name}: image was written");
    let report = live.check();
    assert_eq!(report.unexpected, 0, "{name}: {:#?}", report.findings);
    for code in ["journal.pending", "inode.orphan"] {
        assert!(report.findings.iter().any(|finding| finding.code() == code), "{name}: no {code}");
    }
    let bare = live.open_as_is().expect("open without the journal");
    let last = seekless_fs::inspect::resolve(&bare, b"/last");
    assert!(last.is_err(), "{name}: the journal held nothing");
}

macro_rules! judged_live {
    ($($name:ident: [$($option:expr),*], $mount:expr;)*) => {
        $(#[test]
        fn $name() {
            judge_live(stringify!($name), &[$($option),*], $mount);
        })*
    };
}

judged_live! {
    journal_v3: ["-t", "ext4"], "loop,noatime";
    journal_1k: ["-t", "ext4", "-b", "1024"], "loop,noatime";
    journal_of_ext3: ["-t", "ext3"], "loop,noatime";
    journal_without_64bit: ["-t", "ext4", "-O", "^64bit"], "loop,noatime";
    journal_with_transaction_checksums:
        ["-t", "ext4", "-O", "^metadata_csum"], "loop,noatime,journal_checksum";
    journal_with_async_commit: ["-t", "ext4"], "loop,noatime,data=writeback,journal_async_commit";
    journal_of_data: ["-t", "ext4", "-b", "1024"], "loop,noatime,data=journal";
    journal_that_wraps: ["-t", "ext4", "-b", "1024", "-J", "size=1"], "loop,noatime,data=journal";
    journal_with_orphan_file: ["-t", "ext4", "-O", "orphan_file"], "loop,noatime";
}
