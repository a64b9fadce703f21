//! A tree with one of everything, written through a mount.

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags, chownat,
    fallocate, lsetxattr, makedev, mknodat, utimensat,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// How much of some things.
pub(crate) struct Load {
    /// Names in one directory.
    pub(crate) names: u32,
    /// Names of some 200 bytes instead of some 10.
    pub(crate) long_names: bool,
    /// Length of a file that is nearly all hole.
    pub(crate) hole: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self { names: 1500, long_names: false, hole: 5 << 30 }
    }
}

/// Fills an empty file system.
pub(crate) fn fill(root: &Path, load: &Load) {
    many_names(&root.join("many"), load);
    sizes(&root.join("sizes"));
    holes(&root.join("holes"), load.hole);
    links(&root.join("links"));
    specials(&root.join("specials"));
    attributes(&root.join("attributes"));
    times_and_owners(&root.join("times"));
    small_dirs(&root.join("small"));
    deep(root);
}

/// Bytes that do not repeat.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .collect()
}

fn many_names(dir: &Path, load: &Load) {
    fs::create_dir(dir).expect("mkdir");
    let first = dir.join("first");
    File::create(&first).expect("create");
    let mut target = first;
    for n in 0..load.names {
        let name = if load.long_names { format!("{n:0>200}") } else { format!("name-{n}") };
        let path = dir.join(name);
        // Links are cheap in inodes; one inode takes 65,000 of them at most.
        if n % 1000 == 0 {
            target = path;
            File::create(&target).expect("create");
        } else {
            fs::hard_link(&target, path).expect("link");
        }
    }
    // Gaps among the entries.
    for n in (3..load.names).step_by(11) {
        let name = if load.long_names { format!("{n:0>200}") } else { format!("name-{n}") };
        if n % 1000 != 0 {
            fs::remove_file(dir.join(name)).expect("unlink");
        }
    }
    for name in [&b"\xFF\xFE not utf-8 \x01"[..], &[b'x'; 255], "größe".as_bytes(), b" ", b"\\"] {
        File::create(dir.join(OsStr::from_bytes(name))).expect("create");
    }
}

fn sizes(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    let sizes = [
        0, 1, 59, 60, 61, 90, 120, 150, 156, 160, 200, 500, 800, 1023, 1024, 1025, 4095, 4096,
        4097, 12_288, 12_289, 100_000, 274_432, 3_000_001,
    ];
    for size in sizes {
        fs::write(dir.join(format!("of-{size}")), pattern(size, size as u64)).expect("write");
    }
}

fn holes(dir: &Path, hole: u64) {
    fs::create_dir(dir).expect("mkdir");
    let sparse = File::create(dir.join("sparse")).expect("create");
    for at in [0, 100_000, 5_000_000, 70 << 20, 300 << 20, hole - 1000] {
        sparse.write_all_at(&pattern(1000, at), at).expect("write");
    }
    let empty = File::create(dir.join("nothing")).expect("create");
    empty.set_len(hole).expect("truncate");
    let punched = File::create(dir.join("punched")).expect("create");
    punched.write_all_at(&pattern(4 << 20, 7), 0).expect("write");
    punched.sync_all().expect("sync");
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for at in (0..4u64 << 20).step_by(32 << 10) {
        let _ = fallocate(&punched, flags, at, 16 << 10);
    }
    // Allocated but never written, in part written, and past the end.
    let unwritten = File::create(dir.join("unwritten")).expect("create");
    let _ = fallocate(&unwritten, FallocateFlags::empty(), 0, 1 << 20);
    unwritten.write_all_at(&pattern(10_000, 8), 300_000).expect("write");
    let _ = fallocate(&unwritten, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20);
}

fn links(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    fs::write(dir.join("file"), b"linked").expect("write");
    fs::hard_link(dir.join("file"), dir.join("again")).expect("link");
    for len in [1, 10, 58, 59, 60, 61, 100, 160, 200, 1000] {
        symlink("t".repeat(len), dir.join(format!("to-{len}"))).expect("symlink");
    }
    symlink(OsStr::from_bytes(b"\xFF/../../etc"), dir.join("odd")).expect("symlink");
}

fn specials(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    let nodes = [
        ("fifo", FileType::Fifo, (0, 0)),
        ("socket", FileType::Socket, (0, 0)),
        ("null", FileType::CharacterDevice, (1, 3)),
        ("old", FileType::BlockDevice, (8, 255)),
        ("new", FileType::BlockDevice, (300, 70_000)),
    ];
    for (name, kind, (major, minor)) in nodes {
        mknodat(CWD, dir.join(name), kind, Mode::from(0o640), makedev(major, minor)).expect(name);
    }
}

fn attributes(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    let set = |path: &Path, name: &str, value: &[u8]| {
        // Some values do not fit on every file system; then neither reader sees them.
        lsetxattr(path, name, value, XattrFlags::empty()).is_ok()
    };
    let small = dir.join("small");
    fs::write(&small, b"x").expect("write");
    assert!(set(&small, "user.a", b"1"));
    assert!(set(&small, "user.empty", b""));
    assert!(set(&small, "trusted.b", b"two"));
    assert!(set(&small, "security.c", &[0, 1, 2]));
    let many = dir.join("many");
    fs::create_dir(&many).expect("mkdir");
    for n in 0..12 {
        set(&many, &format!("user.number-{n}"), &pattern(20 + n, n as u64));
    }
    for (n, len) in [400, 900, 3000, 5000, 40_000, 65_536].into_iter().enumerate() {
        let big = dir.join(format!("big-{len}"));
        fs::write(&big, b"x").expect("write");
        set(&big, "user.small", b"beside");
        set(&big, "user.big", &pattern(len, n as u64));
    }
    // Two files with equal attributes share a block, or a large value.
    for name in ["twin-1", "twin-2"] {
        fs::write(dir.join(name), b"x").expect("write");
        set(&dir.join(name), "user.equal", &pattern(700, 99));
        set(&dir.join(name), "user.equal-large", &pattern(20_000, 98));
    }
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [
        2u32.to_le_bytes().to_vec(),
        entry(1, 6, u32::MAX),
        entry(2, 7, 1234),
        entry(4, 4, u32::MAX),
        entry(8, 5, 70_000),
        entry(0x10, 7, u32::MAX),
        entry(0x20, 0, u32::MAX),
    ]
    .concat();
    assert!(set(&small, "system.posix_acl_access", &acl));
    assert!(set(&many, "system.posix_acl_default", &acl));
    fs::write(many.join("inherits"), b"x").expect("write");
}

fn times_and_owners(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    let moments: [i64; 9] = [
        -2_147_483_648,
        -1,
        0,
        1_700_000_000,
        2_147_483_647,
        2_147_483_648,
        4_294_967_301,
        9_000_000_000,
        13_569_465_600,
    ];
    for (n, secs) in (0u32..).zip(moments) {
        let path = dir.join(format!("at-{secs}"));
        fs::write(&path, b"x").expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o7000 | n)).expect("chmod");
        let (uid, gid) =
            (rustix::fs::Uid::from_raw(70_000 * n), rustix::fs::Gid::from_raw(4_000_000_000 + n));
        chownat(CWD, &path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).expect("chown");
        let time = Timespec { tv_sec: secs, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("utimens");
    }
}

/// Directories of few names, which may lie in their inodes.
fn small_dirs(dir: &Path) {
    fs::create_dir(dir).expect("mkdir");
    for count in 0..14 {
        let below = dir.join(format!("with-{count}"));
        fs::create_dir(&below).expect("mkdir");
        for n in 0..count {
            File::create(below.join(format!("entry{n}"))).expect("create");
        }
        if count == 9 {
            fs::remove_file(below.join("entry4")).expect("unlink");
        }
    }
}

fn deep(root: &Path) {
    let mut path = root.join("deep");
    fs::create_dir(&path).expect("mkdir");
    for n in 0..40 {
        path = path.join(format!("d{n}"));
        fs::create_dir(&path).expect("mkdir");
    }
    fs::write(path.join("bottom"), b"here").expect("write");
}
