//! Fast commits: copies of mounted images whose last changes are logged as
//! operations, against what a mount of such a copy shows.

use super::kernel::{self, Image, Mounted};
use super::{compare, populate, ready, walk};
use crate::holes;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

fn fsync(path: &Path) {
    File::open(path).and_then(|file| file.sync_all()).expect("fsync");
}

/// Fast commits that the kernel has made on a mount, and those it could not.
fn commits(mounted: &Path) -> (u64, u64) {
    let path = mounted.to_str().expect("path");
    let device = kernel::run("findmnt", &["-n", "-o", "SOURCE", path]);
    let name = device.trim().rsplit('/').next().expect("device").to_string();
    let text = fs::read_to_string(format!("/proc/fs/ext4/{name}/fc_info")).expect("fc_info");
    let number = |line: &str| line.split(' ').next().and_then(|n| n.parse().ok());
    let mut numbers = text.lines().skip(1).map_while(number);
    (numbers.next().expect("commits"), numbers.next().expect("ineligible"))
}

/// Lets the kernel log `change` as fast commits on top of a filled volume and
/// compares.
fn judge(name: &str, options: &[&str], change: impl Fn(&Path)) {
    if !ready() {
        return;
    }
    let all = [&["-t", "ext4", "-O", "fast_commit"], options].concat();
    let image = Image::make(name, 128 << 20, &all);
    let live = Image::empty(&format!("{name}-live"));
    let twin = Image::empty(&format!("{name}-twin"));
    {
        let mounted = Mounted::read_write(&image);
        let root = mounted.path();
        populate::fill(root, &populate::Load::default());
        fs::create_dir(root.join("dir-of-ours")).expect("mkdir");
        for n in 0..30usize {
            let path = root.join(format!("dir-of-ours/file-{n}"));
            fs::write(path, vec![b'a' + n as u8 % 26; n * 3000]).expect("write");
        }
        kernel::commit(root);
        let before = commits(root);
        change(&root.join("dir-of-ours"));
        let after = commits(root);
        assert!(after.0 > before.0, "{name}: no fast commit was made");
        assert_eq!(after.1, before.1, "{name}: a whole commit was made instead");
        kernel::copy_sparse(image.path(), live.path());
    }
    kernel::copy_sparse(live.path(), twin.path());
    let mut theirs = {
        let mounted = Mounted::read_write(&twin);
        walk::mounted(mounted.path())
    };
    let mut ours = walk::image(&live.open());
    // A replay leaves the times of the moment in directories, their sizes and
    // links as it happens to, and counts no whole clusters; ours are the
    // recorded times and the right counts, which e2fsck confirms.
    theirs.values_mut().chain(ours.values_mut()).for_each(walk::Record::forget_replay);
    compare(name, &theirs, &ours);
    check(name, &live);
}

/// What a replay leaves is a sound file system: the overlay, written out
/// without its journal, passes e2fsck.
fn check(name: &str, live: &Image) {
    let reader = live.open();
    let whole = Image::empty(&format!("{name}-whole"));
    let out = File::create(whole.path()).expect("create");
    let geometry = seekless_fs::Inspect::geometry(&reader).clone();
    let size = u64::from(geometry.block_size);
    out.set_len(geometry.blocks * size).expect("size");
    for n in u64::from(size == 1024)..geometry.blocks {
        let bytes = reader.read_block(seekless_units::BlockNo::new(n)).expect("block");
        if !holes::is_zero(&bytes) {
            out.write_all_at(&bytes, n * size).expect("write");
        }
    }
    let path = whole.path().to_str().expect("path");
    // The ring and the fast commits were replayed: take the journal away.
    kernel::run(
        "debugfs",
        &["-w", "-R", "feature -needs_recovery -has_journal -fast_commit", path],
    );
    let output = Command::new("e2fsck").args(["-fn", path]).output().expect("e2fsck");
    let text = String::from_utf8_lossy(&output.stdout);
    // Before the first pass it only remarks that the journal's inode is left.
    let passes = text.split_once("Pass 1").map_or("", |(_, passes)| passes);
    assert!(!passes.is_empty() && !passes.contains('?'), "{name}: {text}");
}

macro_rules! judged {
    ($($name:ident: [$($option:expr),*], $change:expr;)*) => {
        $(#[test]
        fn $name() {
            judge(stringify!($name), &[$($option),*], $change);
        })*
    };
}

judged! {
    fast_new_files: [], |dir| {
        for n in 0..40 {
            fs::write(dir.join(format!("a rather long name of a new file {n}")), b"new").expect("write");
        }
        fsync(&dir.join("a rather long name of a new file 39"));
    };
    fast_appends_and_truncations: ["-b", "1024"], |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file-9")).expect("open");
        file.write_all_at(&[7; 50_000], 40_000).expect("write");
        file.sync_all().expect("fsync");
        file.set_len(10_000).expect("truncate");
        file.sync_all().expect("fsync");
        file.write_all_at(&[8; 5_000], 70_000).expect("write");
        file.sync_all().expect("fsync");
    };
    fast_names: [], |dir| {
        fs::rename(dir.join("file-1"), dir.join("renamed")).expect("rename");
        fsync(&dir.join("renamed"));
        fs::rename(dir.join("file-2"), dir.join("file-3")).expect("rename over");
        fs::hard_link(dir.join("file-4"), dir.join("second name")).expect("link");
        fs::remove_file(dir.join("file-4")).expect("unlink");
        fs::remove_file(dir.join("file-5")).expect("unlink");
        fsync(&dir.join("second name"));
    };
    fast_inode_used_again: [], |dir| {
        fs::remove_file(dir.join("file-20")).expect("unlink");
        fsync(&dir.join("file-21"));
        for n in 0..5 {
            fs::write(dir.join(format!("again-{n}")), vec![b'z'; 9000 * n]).expect("write");
        }
        fsync(&dir.join("again-4"));
    };
    fast_directories: [], |dir| {
        fs::create_dir(dir.join("new")).expect("mkdir");
        fs::create_dir(dir.join("new/below")).expect("mkdir");
        fs::write(dir.join("new/below/file"), b"deep").expect("write");
        fsync(&dir.join("new/below/file"));
        fs::rename(dir.join("file-7"), dir.join("new/file-7")).expect("rename");
        fsync(&dir.join("new/file-7"));
    };
    fast_many_extents: ["-b", "1024"], |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file-29")).expect("open");
        for n in 0..600u64 {
            file.write_all_at(&[n as u8 | 1; 1024], 100_000 + n * 2048).expect("write");
            if n % 150 == 149 {
                file.sync_all().expect("fsync");
            }
        }
    };
    fast_on_clusters: ["-O", "bigalloc", "-C", "16384"], |dir| {
        fs::write(dir.join("in clusters"), vec![3; 100_000]).expect("write");
        fsync(&dir.join("in clusters"));
        fs::remove_file(dir.join("file-28")).expect("unlink");
        fsync(&dir.join("file-27"));
    };
    fast_directory_grows_in_clusters: ["-b", "1024", "-O", "bigalloc", "-C", "4096"], |dir| {
        for n in 0..12 {
            fs::write(dir.join(format!("{n:0>200}")), b"new").expect("write");
        }
        fsync(&dir.join(format!("{:0>200}", 11)));
    };
    fast_without_checksums: ["-O", "^metadata_csum,uninit_bg"], |dir| {
        fs::write(dir.join("unsummed"), vec![3; 100_000]).expect("write");
        fs::remove_file(dir.join("file-26")).expect("unlink");
        fsync(&dir.join("unsummed"));
    };
}

#[test]
fn a_torn_fast_commit_ends_the_log() {
    if !ready() {
        return;
    }
    let image = Image::make("torn", 128 << 20, &["-t", "ext4", "-O", "fast_commit"]);
    let live = Image::empty("torn-live");
    {
        let mounted = Mounted::read_write(&image);
        populate::fill(mounted.path(), &populate::Load::default());
        kernel::commit(mounted.path());
        for name in ["first", "second"] {
            fs::write(mounted.path().join(name), b"quick").expect("write");
            fsync(&mounted.path().join(name));
        }
        kernel::copy_sparse(image.path(), live.path());
    }
    let names = |what: &str| -> Vec<bool> {
        let reader = live.try_open().unwrap_or_else(|error| panic!("{what}: {error}"));
        ["/first", "/second"]
            .map(|name| seekless_fs::inspect::resolve(&reader, name.as_bytes()).is_ok())
            .to_vec()
    };
    assert_eq!(names("whole"), [true, true]);
    // Break a byte of the second commit's record of its name.
    let mut bytes = fs::read(live.path()).expect("read");
    let at = bytes.windows(6).rposition(|window| window == b"second").expect("name in the log");
    bytes[at] ^= 1;
    fs::write(live.path(), &bytes).expect("write");
    assert_eq!(names("torn"), [true, false]);
}
