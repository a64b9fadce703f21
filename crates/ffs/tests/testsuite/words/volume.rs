//! Volumes with a file of each type on them, and what is on a volume.

use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{CheckHashes, FfsImage, FfsLive, LiveOptions, MakeOptions, Version, make};

use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, XattrMode};
use seekless_fs::{DeviceNumber, FileKind, Inspect, Timestamp};
use seekless_units::{ByteLen, Ino, Lba};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) version: Version,
    pub(crate) big_endian: bool,
    pub(crate) hashes: CheckHashes,
    /// Whether clusters are counted.
    pub(crate) clusters: bool,
}

pub(crate) const SHAPES: [Shape; 6] = [
    shape(Version::Ufs1, false, CheckHashes::All, true),
    shape(Version::Ufs1, true, CheckHashes::All, false),
    shape(Version::Ufs2, false, CheckHashes::All, true),
    shape(Version::Ufs2, true, CheckHashes::Groups, true),
    shape(Version::Ufs2, false, CheckHashes::None, true),
    shape(Version::Ufs2, true, CheckHashes::None, false),
];

const fn shape(version: Version, big_endian: bool, hashes: CheckHashes, clusters: bool) -> Shape {
    Shape { version, big_endian, hashes, clusters }
}

/// The files, of which each has its inode's words changed.
pub(crate) const FILES: [&str; 9] = [
    "/d",
    "/d/small",
    "/d/blocks",
    "/d/indirect",
    "/d/fast",
    "/d/slow",
    "/d/fifo",
    "/d/device",
    "/e/below",
];

const LEN: usize = 2 << 20;

pub(crate) fn volume(shape: Shape) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(vec![0; LEN]));
    let mut options = MakeOptions::new(shape.version, ByteLen::new(LEN as u64));
    (options.block_size, options.fragment_size) = (4096, 512);
    options.bytes_per_inode = Some(8192);
    options.blocks_per_group = Some(180);
    options.big_endian = shape.big_endian;
    options.check_hashes = shape.hashes;
    options.maxcontig = Some(if shape.clusters { 8 } else { 1 });
    options.time = Timestamp { secs: 1_700_000_000, nanos: 0 };
    make(device.as_ref(), &options).unwrap();
    let live = LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        reallocblks: true,
        force: false,
        recover: false,
        ignore_checksums: false,
        wall: Box::new(|| Timestamp { secs: 1_700_000_100, nanos: 0 }),
    };
    let config = Config::new(Discipline::Async);
    let clock = Arc::new(VirtualClock::new());
    let mut live = FfsLive::open(device.clone(), clock, config, live).unwrap();
    fill(&mut live, shape.version == Version::Ufs2);
    live.unmount().unwrap();
    bytes_of(&device)
}

fn fill(live: &mut FfsLive, attributes: bool) {
    let owner = Ownership { uid: 1, gid: 2, perm: 0o755 };
    let mut put = |dir: Ino, name: &str, new: NewFile<'_>, len: usize| {
        let ino = live.make(dir, name.as_bytes(), new, owner).unwrap().ino;
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7 + name.len()) as u8).collect();
        if len > 0 {
            live.write(ino, ByteLen::ZERO, &bytes).unwrap();
        }
        ino
    };
    let root = Ino::new(2);
    let d = put(root, "d", NewFile::Directory, 0);
    let e = put(root, "e", NewFile::Directory, 0);
    let below = put(e, "below", NewFile::Directory, 0);
    put(below, "deep", NewFile::Regular, 700);
    let small = put(d, "small", NewFile::Regular, 5);
    put(d, "blocks", NewFile::Regular, 20_000);
    put(d, "indirect", NewFile::Regular, 70_000);
    put(d, "fast", NewFile::Symlink(b"short"), 0);
    put(d, "slow", NewFile::Symlink(&[b'l'; 150]), 0);
    put(d, "fifo", NewFile::Special(FileKind::Fifo), 0);
    let number = DeviceNumber { major: 5, minor: 1 };
    put(d, "device", NewFile::Device(FileKind::CharDevice, number), 0);
    put(e, "other", NewFile::Regular, 9000);
    live.link(small, e, b"hard").unwrap();
    if attributes {
        live.set_xattr(small, b"user.word", b"value", XattrMode::Any).unwrap();
    }
}

pub(crate) fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    bytes
}

/// A file as it is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct File {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) len: u64,
    pub(crate) contents: Vec<u8>,
    /// Fragments, those of indirect blocks among them.
    pub(crate) frags: BTreeSet<u64>,
}

impl File {
    /// Whether another is the same file, wherever its name is.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.kind, &self.contents) == (other.kind, &other.contents)
    }
}

/// Every path of a sound image.
pub(crate) fn tree(bytes: Vec<u8>) -> BTreeMap<String, File> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let image = FfsImage::open(device, OpenOptions::default()).expect("a sound image");
    let mut found = BTreeMap::new();
    walk(&image, image.root(), "", &mut found);
    found
}

fn walk(image: &FfsImage, dir: Ino, path: &str, found: &mut BTreeMap<String, File>) {
    let mut names = Vec::new();
    image
        .read_dir(dir, 0, &mut |entry| {
            names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
            ControlFlow::Continue(())
        })
        .expect(path);
    for (name, ino) in names.into_iter().filter(|(name, _)| name != "." && name != "..") {
        let path = format!("{path}/{name}");
        let attr = image.attr(ino).expect(&path);
        let map = image.block_map(ino).expect(&path);
        let runs = map.runs.iter().map(|run| run.extent.start.get()..run.extent.end().get());
        let mut frags: BTreeSet<u64> = runs.flatten().collect();
        frags.extend(map.index.iter().flat_map(|index| index.block.get()..index.block.get() + 8));
        let contents = match attr.kind {
            FileKind::Regular => {
                let mut contents = vec![0; attr.size as usize];
                image.read(ino, ByteLen::ZERO, &mut contents).expect(&path);
                contents
            }
            FileKind::Symlink => image.read_link(ino).expect(&path),
            FileKind::Directory => {
                walk(image, ino, &path, found);
                Vec::new()
            }
            _ => format!("{:?}", attr.device).into_bytes(),
        };
        let file = File { ino, kind: attr.kind, len: attr.size, contents, frags };
        found.insert(path, file);
    }
}
