//! Quotas through the mount: the usage of several users and groups, as the walked tree and
//! dissect.ffs show it, is compared with the records in the quota files, which are read here.

use super::{Scratch, dissect, failure, make, ready, run, seekless, text};
use crate::judges::python;
use crate::mounted::Mounted;
use crate::recovery::{Server, result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

const NAMES: [&str; 2] = ["quota.user", "quota.group"];

/// By id: sectors and inodes.
type Counted = BTreeMap<u32, [u64; 2]>;

/// Usage of users and groups in a tree. Each file counts once, quota files and snapshots do not.
fn walk(at: &Path) -> [Counted; 2] {
    let mut counted = [Counted::new(), Counted::new()];
    let (mut seen, mut left) = (BTreeSet::new(), vec![at.to_path_buf()]);
    while let Some(path) = left.pop() {
        let is_exempt =
            path.parent() == Some(at) && (NAMES.iter().any(|name| path.ends_with(name)));
        let found = fs::symlink_metadata(&path).expect("stat");
        if is_exempt || path.ends_with("snapshot") || !seen.insert(found.ino()) {
            continue;
        }
        if found.is_dir() {
            left.extend(fs::read_dir(&path).expect("readdir").map(|entry| entry.unwrap().path()));
        }
        for (counted, id) in counted.iter_mut().zip([found.uid(), found.gid()]) {
            let [sectors, inodes] = counted.entry(id).or_default();
            (*sectors, *inodes) = (*sectors + found.blocks(), *inodes + 1);
        }
    }
    counted
}

/// The same by dissect.ffs: kind, id, sectors and inodes.
const DISSECT: &str = r#"
import collections, sys
from dissect.ffs import ffs
with open(sys.argv[1], "rb") as image:
    stack, seen = [ffs.FFS(image).root], set()
    sums = collections.defaultdict(lambda: [0, 0])
    while stack:
        node = stack.pop()
        if node.inum in seen:
            continue
        seen.add(node.inum)
        inode = node.inode
        if node.name not in ("quota.user", "quota.group", "snapshot"):
            for kind, owner in ((0, inode.di_uid), (1, inode.di_gid)):
                sums[kind, owner][0] += inode.di_blocks
                sums[kind, owner][1] += 1
        if node.is_dir():
            children = node.listdir().items()
            stack += [child for name, child in children if name not in (".", "..") and child.inum]
    for (kind, owner), (sectors, inodes) in sums.items():
        print(kind, owner, sectors, inodes)
"#;

fn by_dissect(image: &str) -> [Counted; 2] {
    let mut counted = [Counted::new(), Counted::new()];
    for line in python::run(DISSECT, &[image]).lines() {
        let mut words = line.split(' ').map(|word| word.parse::<u64>().expect("number"));
        let [kind, id, sectors, inodes] = std::array::from_fn(|_| words.next().expect("word"));
        counted[kind as usize].insert(id as u32, [sectors, inodes]);
    }
    counted
}

/// Usage in the records of a quota file: of 32 bits, or of 64 behind a header.
fn used(bytes: &[u8], big_endian: bool) -> Counted {
    let long = bytes.starts_with(b"QUOTA64\0");
    let (skip, len) = if long { (64, 64) } else { (0, 32) };
    let word = |raw: &[u8], at: usize| {
        let raw = &raw[at * len / 8..(at + 1) * len / 8];
        let mut bytes: Vec<u8> = raw.to_vec();
        if !long && !big_endian {
            bytes.reverse();
        }
        bytes.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let records = (0..).zip(bytes[skip..].chunks_exact(len));
    let used = records.map(|(id, raw)| (id, [word(raw, 2), word(raw, 5)]));
    used.filter(|(_, used)| *used != [0, 0]).collect()
}

/// Usage in the quota files of an image, as The Sleuth Kit reads these.
fn in_files(image: &str, big_endian: bool) -> [Counted; 2] {
    let listing = run("fls", &["-F", image]);
    NAMES.map(|name| {
        let line = listing.lines().find(|line| line.ends_with(name)).expect(name);
        let ino = line.split([' ', ':']).nth(1).expect("inode");
        let mut child =
            Command::new("icat").args([image, ino]).stdout(Stdio::piped()).spawn().expect("icat");
        let mut bytes = Vec::new();
        child.stdout.take().expect("output").read_to_end(&mut bytes).expect("icat");
        assert!(child.wait().expect("icat").success());
        used(&bytes, big_endian)
    })
}

/// Numbers of a linear congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

const USERS: [u32; 4] = [0, 7, 1000, 70_000];

/// A line of shell as a user and a group; whether it succeeded, and its messages.
fn as_user(at: &Path, (uid, gid): (u32, u32), line: &str) -> (bool, String) {
    let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={gid}"));
    let done = Command::new("setpriv")
        .args([&uid, &gid, "--clear-groups", "sh", "-c", line])
        .current_dir(at)
        .output()
        .expect("setpriv");
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Seeded operations by several users, in directories that all may write to.
fn work(at: &Path, draw: &mut Draw, count: u32) -> u32 {
    let mut refused = 0;
    for n in 0..count {
        let mut one = || USERS[draw.below(4) as usize];
        let (uid, gid, other, group) = (one(), one(), one(), one());
        let mut name = || format!("d{}/{}", draw.below(5), draw.below(40));
        let (file, to) = (name(), name());
        let size = [700, 9000, 60_000, 900_000][draw.below(4) as usize];
        let (len, place) = (draw.below(size) + 1, draw.below(4 << 20));
        let line = match draw.below(16) {
            0..=4 => format!("head -c {len} /dev/zero > {file}"),
            5 => format!("head -c {len} /dev/zero >> {file}"),
            6 => format!(
                "head -c {len} /dev/zero | dd of={file} bs=64k conv=notrunc oflag=seek_bytes \
                 seek={place} status=none"
            ),
            7 => format!("truncate -s {place} {file}"),
            8 => format!("mkdir {file}.d && echo x > {file}.d/in"),
            9 => format!("ln {file} {to}.l"),
            10 => format!("mv -f {file} {to}"),
            11 => format!("ln -s {} {file}.s", "t".repeat(1 + len as usize % 900)),
            12 => format!("chown {other}:{group} {file}"),
            13 => format!("exec 3<> {file}; rm -f {file}; head -c {len} /dev/zero >&3"),
            14 => format!("rm -rf {file} {to}.d {to}.s {file}.l"),
            _ => format!("setfattr -n user.n{} -v $(printf %0{}d 1) {file}", n % 3, len % 3000),
        };
        let (_, why) = as_user(at, (uid, gid), &line);
        if why.contains("quota exceeded") {
            assert_ne!(uid, 0, "{line}: {why}");
            refused += 1;
        }
    }
    refused
}

/// A file of 64 or 32 bits with a hard limit of sectors and of inodes for some ids.
fn limits(draw: &mut Draw, long: bool, big_endian: bool) -> Vec<u8> {
    let (skip, len) = if long { (64, 64) } else { (0, 32) };
    let mut bytes = vec![0; skip + len * 1001];
    if long {
        bytes[..20].copy_from_slice(b"QUOTA64\0\x20\x08\x11\x04\0\0\0\x40\0\0\0\x40");
    }
    for id in [7, 1000] {
        for (at, limit) in [(0, 3000 + draw.below(3000)), (3, 15 + draw.below(20))] {
            let at = skip + id * len + at * len / 8;
            match (long, big_endian) {
                (true, _) => bytes[at..at + 8].copy_from_slice(&limit.to_be_bytes()),
                (_, true) => bytes[at..at + 4].copy_from_slice(&(limit as u32).to_be_bytes()),
                _ => bytes[at..at + 4].copy_from_slice(&(limit as u32).to_le_bytes()),
            }
        }
    }
    bytes
}

fn prepare(image: &str, at: &Path, files: impl FnMut() -> Vec<u8>) {
    let mounted = Mounted::new(image, at, "rw,async");
    let mut files = files;
    for name in NAMES {
        fs::write(at.join(name), files()).expect("limits");
    }
    for n in 0..5 {
        let dir = at.join(format!("d{n}"));
        fs::create_dir(&dir).expect("mkdir");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    mounted.end();
}

#[test]
fn usage_is_what_the_tree_has() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-quota");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let small = ["-b", "4096", "-f", "512"];
    let cases = [
        ("ufs2", "softdep", &small[..], true),
        ("ufs1", "normal", &["-b", "8192", "-f", "1024"], false),
        ("ufs1", "softdep", &["-b", "8192", "-f", "1024", "--big-endian"], false),
        ("ufs2", "async", &[], true),
    ];
    let mut refused = 0;
    for (seed, (format, discipline, shape, long)) in (1..).zip(cases) {
        let what = format!("{format} {discipline} {shape:?}");
        let big_endian = shape.contains(&"--big-endian");
        let mut draw = Draw(seed);
        make(&image, format, "64M", shape);
        prepare(&image, &at, || limits(&mut draw, long, big_endian));
        for phase in 0..2 {
            let mounted =
                Mounted::new(&image, &at, &format!("rw,{discipline},userquota,groupquota"));
            // The kernel keeps their pages.
            let through = |name| fs::read(at.join(name)).expect("quota file");
            let before = NAMES.map(through);
            refused += work(&at, &mut draw, 150);
            if phase == 0 && format == "ufs2" && discipline == "softdep" {
                let path = at.to_str().expect("path");
                text(&seekless(&["snapshot", "take", path, "/snapshot"]));
            }
            let counted = walk(&at);
            // A quota file is brought up to date when it is synchronized.
            for name in NAMES {
                fs::File::open(at.join(name)).and_then(|file| file.sync_all()).expect("fsync");
            }
            assert_eq!(in_files(&image, big_endian), counted, "{what}, mounted, phase {phase}");
            let now = NAMES.map(through);
            assert_ne!(before, now);
            let now = now.map(|bytes| used(&bytes, big_endian));
            assert_eq!(now, counted, "{what}, through the mount, phase {phase}");
            mounted.end();
            assert_eq!(in_files(&image, big_endian), counted, "{what}, phase {phase}");
            if !big_endian && dissect::ready() {
                assert_eq!(by_dissect(&image), counted, "{what}, phase {phase}");
            }
            text(&seekless(&["check", &image]));
        }
    }
    assert!(refused > 10, "{refused} operations were refused");
}

/// After a kill, usage is right again: of a volume that was checked, and of one that is recovered
/// while it is in use.
#[test]
fn usage_is_counted_after_a_kill() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-quota-kill");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let messages = scratch.join("messages");
    fs::create_dir_all(&at).expect("mount point");
    for seed in 0..4 {
        let format = ["ufs2", "ufs1"][seed as usize % 2];
        make(&image, format, "64M", &["-b", "8192", "-f", "1024"]);
        prepare(&image, &at, Vec::new);
        let mut draw = Draw(seed);
        let options = "rw,softdep,cache=2M,userquota,groupquota";
        let server = Server::start(&image, &at, options, &messages);
        work(&at, &mut draw, 120);
        run("find", &[at.to_str().expect("path"), "-type", "f", "-exec", "sync", "{}", "+"]);
        work(&at, &mut draw, 60);
        server.kill(&at);
        let recovers = seed >= 2;
        let options = match recovers {
            true => "rw,recover=background,userquota,groupquota",
            false => {
                let refused = seekless(&[
                    "mount",
                    "-f",
                    &image,
                    at.to_str().expect("path"),
                    "-o",
                    "rw,userquota",
                ]);
                assert!(failure(&refused).1.contains("not clean"));
                let preened = seekless(&["check", "-p", &image]).status.code();
                assert!(matches!(preened, Some(0 | 1)), "{preened:?}");
                "rw,userquota,groupquota"
            }
        };
        let server = Server::start(&image, &at, options, &messages);
        if recovers {
            assert_eq!(result(&messages)["sound"], true);
        }
        let counted = walk(&at);
        assert!(counted[0].len() > 2, "{counted:?}");
        server.end(&at);
        assert_eq!(in_files(&image, false), counted, "{format}, recovers: {recovers}");
        if dissect::ready() {
            assert_eq!(by_dissect(&image), counted);
        }
        text(&seekless(&["check", &image]));
    }
}

#[test]
fn files_of_quotas_that_are_not_kept() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-quota-stale");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let messages = scratch.join("messages");
    fs::create_dir_all(&at).expect("mount point");
    make(&image, "ufs2", "16M", &[]);
    let warnings = |options: &str| {
        let server = Server::start(&image, &at, options, &messages);
        server.end(&at);
        fs::read_to_string(&messages).expect("messages")
    };
    assert_eq!(warnings("rw"), "");
    assert!(!warnings("rw,groupquota=/other").contains("usage"));
    assert_eq!(warnings("rw"), "", "only the usual names are looked for");
    assert!(!warnings("rw,userquota,groupquota").contains("usage"));
    let mut stale = warnings("rw").lines().map(str::to_string).collect::<Vec<_>>();
    let stale = stale.pop().filter(|_| stale.is_empty()).expect("one line");
    assert!(stale.contains("quota.user and quota.group: usage is not kept up"), "{stale}");
    assert!(warnings("rw,userquota").contains("quota.group: usage is not kept up"));
    // A quota file of another version: the image stays clean, and the file as it is.
    let mounted = Mounted::new(&image, &at, "rw");
    let mut bytes = b"QUOTA64\0\x20\x08\x11\x05\0\0\0\x40\0\0\0\x40".to_vec();
    bytes.resize(64, 0);
    fs::write(at.join("quota.user"), bytes).expect("write");
    mounted.end();
    let path = at.to_str().expect("path");
    let refused = seekless(&["mount", "-f", &image, path, "-o", "rw,userquota"]);
    let (code, why) = failure(&refused);
    assert!(code == 3 && why.contains("dqh_version"), "{code}: {why}");
    text(&seekless(&["check", &image]));
    for (option, wanted) in [
        ("userquota", "needs -o rw"),
        ("rw,userquota=", "-o userquota=: expected userquota[=FILE]"),
        ("rw,userquota=none/file", "no such file or directory"),
        ("rw,userquota=quota.group,groupquota", "one file cannot have the quotas"),
    ] {
        let refused = seekless(&["mount", "-f", &image, path, "-o", option]);
        let (_, why) = failure(&refused);
        assert!(why.contains(wanted), "{option}: {why}");
    }
    text(&seekless(&["check", &image]));
}
