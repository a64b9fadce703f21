//! One walk over a mount and one over an image, in the same terms.

use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};
use seekless_ext::ExtImage;
use seekless_fs::{FileKind, Inspect};
use seekless_units::{ByteLen, Ino};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// What both readers say of a file.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Record {
    ino: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u64,
    size: u64,
    sectors: u64,
    times: [(i64, i64); 3],
    device: (u32, u32),
    target: Vec<u8>,
    xattrs: Vec<(String, String)>,
    content: String,
}

impl Record {
    /// Forgets what the kernel's replay of fast commits does not restore.
    pub(crate) fn forget_replay(&mut self) {
        self.sectors = 0;
        if self.mode >> 12 == 4 {
            (self.nlink, self.size) = (0, 0);
            self.times = Default::default();
        }
    }
}

/// A digest of a file's contents that holes do not enter: offset and bytes of
/// every piece that is not all zeros.
#[derive(Default)]
struct Content(Sha256);

/// The piece; no block is smaller.
const PIECE: usize = 1024;

impl Content {
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        for (piece, n) in bytes.chunks(PIECE).zip(0u64..) {
            if piece.iter().any(|&byte| byte != 0) {
                self.0.update((offset + n * PIECE as u64).to_le_bytes());
                self.0.update(piece);
            }
        }
    }

    fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn xattr(name: &[u8], value: &[u8]) -> (String, String) {
    let short = if value.len() > 64 { hex(&Sha256::digest(value)) } else { hex(value) };
    (String::from_utf8_lossy(name).into_owned(), format!("{}:{short}", value.len()))
}

/// Walks a mount.
pub(crate) fn mounted(root: &Path) -> BTreeMap<Vec<u8>, Record> {
    let mut found = BTreeMap::new();
    let mut pending = vec![(root.to_path_buf(), Vec::new())];
    while let Some((path, name)) = pending.pop() {
        let meta = std::fs::symlink_metadata(&path).expect("lstat");
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path).expect("readdir") {
                let entry = entry.expect("readdir").file_name().into_vec();
                let below = [&name[..], b"/", &entry].concat();
                pending.push((path.join(std::ffi::OsStr::from_bytes(&entry)), below));
            }
        }
        found.insert(name, mounted_record(&path, &meta));
    }
    found
}

fn mounted_record(path: &Path, meta: &std::fs::Metadata) -> Record {
    let device = meta.rdev();
    Record {
        ino: meta.ino(),
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink(),
        size: meta.size(),
        sectors: meta.blocks(),
        times: [
            (meta.atime(), meta.atime_nsec()),
            (meta.mtime(), meta.mtime_nsec()),
            (meta.ctime(), meta.ctime_nsec()),
        ],
        device: (rustix::fs::major(device), rustix::fs::minor(device)),
        target: if meta.is_symlink() {
            std::fs::read_link(path).expect("readlink").into_os_string().into_vec()
        } else {
            Vec::new()
        },
        xattrs: mounted_xattrs(path),
        content: if meta.is_file() { mounted_content(path, meta.size()) } else { String::new() },
    }
}

fn mounted_xattrs(path: &Path) -> Vec<(String, String)> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("path");
    let mut names = vec![0u8; 1 << 16];
    let len = llistxattr(&path, &mut names[..]).expect("listxattr");
    let mut value = vec![0u8; 1 << 16];
    let mut found: Vec<_> = names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let key = CString::new(name).expect("name");
            let len = lgetxattr(&path, &key, &mut value[..]).expect("getxattr");
            xattr(name, &value[..len])
        })
        .collect();
    found.sort();
    found
}

fn mounted_content(path: &Path, size: u64) -> String {
    let file = File::open(path).expect("open");
    let mut content = Content::default();
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        let end = seek(&file, SeekFrom::Hole(data)).expect("end of data").min(size);
        at = data;
        while at < end {
            let want = buf.len().min((end - at) as usize);
            file.read_exact_at(&mut buf[..want], at).expect("read");
            content.add(at, &buf[..want]);
            at += want as u64;
        }
    }
    content.finish()
}

/// Walks an image with the reader, and checks on the way that its different
/// views of a directory agree.
pub(crate) fn image(image: &ExtImage) -> BTreeMap<Vec<u8>, Record> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut pending = vec![(image.root(), Vec::new())];
    while let Some((ino, name)) = pending.pop() {
        let record = record(image, ino);
        if record.mode >> 12 == 4 {
            assert!(seen.insert(ino), "directory {ino} twice");
            for (entry, child) in entries(image, ino) {
                pending.push((child, [&name[..], b"/", &entry].concat()));
            }
            check_views(image, ino);
        }
        found.insert(name, record);
    }
    found
}

/// A directory's entries without `.` and `..`, listed in small steps to try
/// the cookies.
fn entries(image: &ExtImage, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let mut step = 0;
        image
            .read_dir(dir, after, &mut |entry| {
                after = entry.cookie;
                step += 1;
                if entry.name != b"." && entry.name != b".." {
                    found.push((entry.name.to_vec(), entry.ino));
                }
                if step < 500 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .expect("read_dir");
        if step == 0 {
            return found;
        }
    }
}

/// Every name is found again, in a block that a lookup reads; a listing reads
/// all blocks once.
fn check_views(image: &ExtImage, dir: Ino) {
    let map = image.block_map(dir).expect("block_map");
    let all: BTreeSet<u64> =
        map.runs.iter().flat_map(|run| run.lbn.get()..run.lbn.get() + run.extent.len).collect();
    let listed = image.listing_blocks(dir).expect("listing_blocks");
    assert_eq!(listed.len(), all.len(), "blocks of directory {dir}");
    assert!(listed.iter().all(|lbn| all.contains(&lbn.get())), "blocks of directory {dir}");
    for (name, ino) in entries(image, dir).into_iter().step_by(7) {
        assert_eq!(image.lookup(dir, &name).expect("lookup"), Some(ino), "{name:?}");
        let blocks = image.lookup_blocks(dir, &name).expect("lookup_blocks");
        assert!(blocks.iter().all(|lbn| all.contains(&lbn.get())), "{name:?}");
        assert_eq!(blocks.is_empty(), all.is_empty(), "{name:?}");
    }
    assert_eq!(image.lookup(dir, b"no such name").expect("lookup"), None);
}

fn record(image: &ExtImage, ino: Ino) -> Record {
    let attr = image.attr(ino).expect("attr");
    let time = |time: seekless_fs::Timestamp| (time.secs, i64::from(time.nanos));
    let xattrs = image.xattrs(ino).expect("xattrs");
    let mut xattrs: Vec<_> = xattrs.iter().map(|x| xattr(&x.name, &x.value)).collect();
    xattrs.sort();
    Record {
        ino: u64::from(ino.get()),
        mode: u32::from(attr.kind.mode_bits() | attr.perm),
        uid: attr.uid,
        gid: attr.gid,
        nlink: u64::from(attr.nlink),
        size: attr.size,
        sectors: attr.sectors,
        times: [time(attr.atime), time(attr.mtime), time(attr.ctime)],
        device: (attr.device.major, attr.device.minor),
        target: match attr.kind {
            FileKind::Symlink => image.read_link(ino).expect("read_link"),
            _ => Vec::new(),
        },
        xattrs,
        content: match attr.kind {
            FileKind::Regular => content(image, ino, attr.size),
            _ => String::new(),
        },
    }
}

fn content(image: &ExtImage, ino: Ino, size: u64) -> String {
    let block = u64::from(image.geometry().block_size);
    let map = image.block_map(ino).expect("block_map");
    let mut ranges: Vec<_> = map
        .runs
        .iter()
        .filter(|run| !run.unwritten)
        .map(|run| (run.lbn.get() * block, (run.lbn.get() + run.extent.len) * block))
        .collect();
    if map.runs.is_empty() && size < 1 << 16 {
        ranges.push((0, size));
    }
    let mut content = Content::default();
    let mut buf = vec![0; 1 << 20];
    for (start, end) in ranges {
        let mut at = start;
        while at < end.min(size) {
            let want = buf.len().min((end.min(size) - at) as usize);
            let got = image.read(ino, ByteLen::new(at), &mut buf[..want]).expect("read");
            assert_eq!(got, want, "short read of {ino} at {at}");
            content.add(at, &buf[..want]);
            at += want as u64;
        }
    }
    content.finish()
}
