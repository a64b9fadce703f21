//! Calls every function of a reader on an image that may be damaged.
//!
//! Shared by the formats and the fuzz targets. Errors are expected; panics and endless work are
//! failures.

use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::{BlockMap, FileKind, FsError, Inspect};
use seekless_units::{ByteLen, GroupNo, Ino, Lba};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of bytes that one run may read from the device: far more than any sound image of this size
/// needs, far less than an endless loop would read.
const READ_LIMIT: u64 = 1 << 30;
/// Maximum number of files examined.
const FILES: usize = 300;
/// Bytes read at each offset of a file.
const CHUNK: usize = 1 << 16;

/// A device that counts the bytes read and fails above the limit.
struct Metered {
    inner: MemoryDevice,
    read: AtomicU64,
}

impl BlockDevice for Metered {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let so_far = self.read.fetch_add(buf.len() as u64 + 512, Ordering::Relaxed);
        assert!(so_far < READ_LIMIT, "the reader does not come to an end");
        self.inner.read(at, buf)
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        panic!("the reader writes to its image");
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Counts of a run.
#[derive(Default, Debug)]
pub(crate) struct Outcome {
    /// Whether the image could be opened.
    pub(crate) opened: bool,
    /// Calls that succeeded.
    pub(crate) answers: u32,
    /// Calls that returned an error.
    pub(crate) errors: u32,
}

impl Outcome {
    pub(crate) fn note<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.answers += 1;
                Some(value)
            }
            Err(error) => {
                // Every error must have a message.
                assert!(!error.to_string().is_empty());
                self.errors += 1;
                None
            }
        }
    }
}

/// Opens an image and calls every function of the reader.
pub(crate) fn exercise(format: &Format, bytes: Vec<u8>, ignore_checksums: bool) -> Outcome {
    let mut outcome = Outcome::default();
    let device = Metered { inner: MemoryDevice::new(bytes), read: AtomicU64::new(0) };
    let options = OpenOptions { ignore_checksums, skip_journal: false };
    let device = Arc::new(device);
    let _ = (format.probe)(device.as_ref());
    let Some(image) = outcome.note((format.open)(device, options)) else { return outcome };
    outcome.opened = true;
    let image = image.as_ref();
    let mut pending: Vec<Ino> = vec![image.root()];
    // Also inodes without names: damage may hide any of them.
    pending.extend((1..=32).map(Ino::new));
    let mut seen = BTreeSet::new();
    while let Some(ino) = pending.pop() {
        if seen.len() < FILES && seen.insert(ino) {
            file(image, ino, &mut outcome, &mut pending);
        }
    }
    for number in 0..image.geometry().groups.min(16) {
        outcome.note(image.group(GroupNo::new(number)));
    }
    outcome.note(image.group(GroupNo::new(image.geometry().groups)));
    outcome
}

fn file(image: &dyn Inspect, ino: Ino, outcome: &mut Outcome, pending: &mut Vec<Ino>) {
    outcome.note(image.inode_location(ino));
    if let Some(map) = outcome.note(image.block_map(ino)) {
        inside(image, ino, &map);
    }
    outcome.note(image.xattrs(ino));
    outcome.note(image.read_link(ino));
    let Some(attr) = outcome.note(image.attr(ino)) else { return };
    match attr.kind {
        FileKind::Directory => directory(image, ino, outcome, pending),
        _ => contents(image, ino, attr.size, outcome),
    }
}

/// Callers calculate with the numbers of a map: none is beyond the volume.
fn inside(image: &dyn Inspect, ino: Ino, map: &BlockMap) {
    let runs = map.runs.iter().map(|run| (run.extent.start, run.extent.len));
    let index = map.index.iter().map(|node| (node.block, node.len));
    let attributes = map.xattr_block.map(|block| (block, 1));
    for (start, len) in runs.chain(index).chain(attributes) {
        let end = start.get().checked_add(len);
        let blocks = image.geometry().blocks;
        assert!(end.is_some_and(|end| end <= blocks), "inode {ino}: {len} blocks at {start}");
    }
}

fn contents(image: &dyn Inspect, ino: Ino, size: u64, outcome: &mut Outcome) {
    let mut buf = vec![0; CHUNK];
    for at in [0, 1, 1000, size / 2, size.saturating_sub(100), size, u64::MAX] {
        outcome.note(image.read(ino, ByteLen::new(at), &mut buf));
    }
}

fn directory(image: &dyn Inspect, dir: Ino, outcome: &mut Outcome, pending: &mut Vec<Ino>) {
    let mut names = Vec::new();
    let mut middle = 0;
    let listed = image.read_dir(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        pending.push(entry.ino);
        if names.len() == 5 {
            middle = entry.cookie;
        }
        if names.len() < 1000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    outcome.note(listed);
    outcome.note(image.read_dir(dir, middle, &mut |_| ControlFlow::Continue(())));
    outcome.note(image.listing_blocks(dir));
    outcome.note(image.unindexed_blocks(dir));
    for name in names.iter().step_by(10).map(Vec::as_slice).chain([&b"absent"[..], b".", b""]) {
        outcome.note(image.lookup(dir, name));
        outcome.note(image.lookup_blocks(dir, name));
    }
}
