//! Images of several shapes, made by mke2fs, and operations on them.

use super::replay::{Parts, Replay, WALL, ops};
use crate::holes;
use crate::property::for_all;
use proptest::prelude::Just;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_ext::{Ext, ExtImage, ExtLive, LiveOptions};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_units::ByteLen;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Shape {
    /// What mke2fs is to make; `ext4-wide` has descriptors of 64 bytes.
    pub(crate) kind: &'static str,
    pub(crate) block: u32,
    pub(crate) mebibytes: u64,
    /// What else mke2fs is told.
    pub(crate) how: &'static [&'static str],
}

pub(crate) const SHAPES: [Shape; 10] = [
    Shape { kind: "ext2", block: 1024, mebibytes: 24, how: &["-I", "128"] },
    Shape { kind: "ext2", block: 4096, mebibytes: 24, how: &["-I", "256"] },
    Shape {
        kind: "ext2",
        block: 1024,
        mebibytes: 24,
        how: &["-I", "256", "-g", "1024", "-O", "^resize_inode"],
    },
    Shape {
        kind: "ext2",
        block: 2048,
        mebibytes: 32,
        how: &["-O", "^filetype,^dir_index", "-g", "4096"],
    },
    Shape {
        kind: "ext2",
        block: 4096,
        mebibytes: 64,
        how: &["-O", "meta_bg,^resize_inode,flex_bg", "-g", "2048"],
    },
    // Checksums of metadata; bitmaps and tables that were never written.
    Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 24,
        how: &["-O", "^has_journal,^extent,^huge_file,^64bit", "-g", "1024", "-G", "4"],
    },
    Shape {
        kind: "ext4-wide",
        block: 4096,
        mebibytes: 48,
        how: &[
            "-O",
            "^has_journal,^extent,^huge_file,^64bit,metadata_csum_seed",
            "-g",
            "2048",
            "-G",
            "2",
        ],
    },
    Shape {
        kind: "ext4",
        block: 4096,
        mebibytes: 48,
        how: &["-O", "^has_journal,^extent,^huge_file,^64bit,^flex_bg", "-g", "1024", "-I", "128"],
    },
    // Of descriptors alone.
    Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 24,
        how: &[
            "-O",
            "^has_journal,^extent,^huge_file,^64bit,^metadata_csum,uninit_bg",
            "-G",
            "2",
            "-g",
            "2048",
        ],
    },
    Shape {
        kind: "ext4-wide",
        block: 2048,
        mebibytes: 32,
        how: &[
            "-O",
            "^has_journal,^extent,^huge_file,^metadata_csum,uninit_bg,^64bit,^resize_inode,sparse_super2",
            "-g",
            "4096",
        ],
    },
];

impl Shape {
    /// The disciplines under which it can be used.
    pub(crate) fn disciplines(&self) -> impl Iterator<Item = Discipline> + use<> {
        let journalled = self.how.contains(&"-J");
        let ordered = self.kind == "ext2" && !self.how.iter().any(|how| how.starts_with("extent"));
        let inline = self.how.iter().any(|how| how.contains("inline_data"));
        let journals = JournalMode::ALL.map(Discipline::Journal);
        Discipline::ALL.into_iter().chain(journals).filter(move |discipline| match discipline {
            Discipline::Journal(_) => journalled,
            Discipline::SoftUpdates => ordered,
            Discipline::Sync | Discipline::Normal if inline => false,
            _ => !journalled,
        })
    }
}

/// With a journal.
pub(crate) const JOURNALLED: [Shape; 9] = [
    Shape { kind: "ext3", block: 1024, mebibytes: 24, how: &["-J", "size=1", "-I", "128"] },
    Shape { kind: "ext3", block: 4096, mebibytes: 32, how: &["-J", "size=4", "-I", "256"] },
    Shape {
        kind: "ext3",
        block: 1024,
        mebibytes: 24,
        how: &["-J", "size=2", "-g", "512", "-O", "^resize_inode"],
    },
    Shape {
        kind: "ext3",
        block: 2048,
        mebibytes: 32,
        how: &["-J", "size=8", "-O", "meta_bg,flex_bg,^resize_inode", "-g", "2048"],
    },
    Shape { kind: "ext4", block: 4096, mebibytes: 32, how: &["-J", "size=4", "-O", UNSEALED] },
    Shape { kind: "ext4", block: 1024, mebibytes: 24, how: &["-J", "size=1", "-O", UNSEALED] },
    // As mke2fs makes ext4 by default.
    Shape { kind: "ext4", block: 4096, mebibytes: 32, how: &["-J", "size=4"] },
    Shape { kind: "ext4", block: 1024, mebibytes: 24, how: &["-J", "size=1", "-g", "1024"] },
    Shape { kind: "ext4", block: 2048, mebibytes: 24, how: &["-J", "size=2", "-O", "orphan_file"] },
];

/// Without checksums of metadata.
const UNSEALED: &str = "^metadata_csum";

/// With extents: as mke2fs makes ext4 but for its journal and checksums, and ext2 with
/// nothing else new.
pub(crate) const WITH_EXTENTS: [Shape; 6] = [
    Shape { kind: "ext4", block: 4096, mebibytes: 24, how: &["-O", PLAIN] },
    Shape { kind: "ext4", block: 1024, mebibytes: 24, how: &["-O", PLAIN] },
    Shape {
        kind: "ext2",
        block: 1024,
        mebibytes: 24,
        how: &["-O", "extent", "-I", "128", "-g", "1024"],
    },
    Shape {
        kind: "ext2",
        block: 2048,
        mebibytes: 32,
        how: &["-O", "extent,64bit,^huge_file", "-g", "4096"],
    },
    Shape { kind: "ext4", block: 4096, mebibytes: 24, how: &["-O", SUMMED] },
    Shape { kind: "ext4", block: 1024, mebibytes: 24, how: &["-O", SUMMED] },
];

/// With contents in inodes: over a journal with and without checksums and extents, and
/// without a journal.
pub(crate) const INLINE: [Shape; 6] = [
    Shape {
        kind: "ext4",
        block: 4096,
        mebibytes: 32,
        how: &["-J", "size=4", "-I", "256", "-O", "inline_data"],
    },
    Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 24,
        how: &["-J", "size=1", "-I", "256", "-O", "inline_data", "-g", "1024"],
    },
    Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 24,
        how: &["-J", "size=1", "-I", "512", "-O", "inline_data,^metadata_csum,^dir_index"],
    },
    Shape {
        kind: "ext4",
        block: 2048,
        mebibytes: 24,
        how: &["-J", "size=2", "-I", "1024", "-O", "inline_data,^extent,^64bit,^filetype"],
    },
    Shape {
        kind: "ext4",
        block: 4096,
        mebibytes: 24,
        how: &["-I", "256", "-O", "inline_data,^has_journal,^orphan_file"],
    },
    Shape {
        kind: "ext4",
        block: 1024,
        mebibytes: 24,
        how: &["-I", "1024", "-O", "inline_data,^has_journal,^metadata_csum,^orphan_file"],
    },
];

/// Without a journal, and without checksums.
const SUMMED: &str = "^has_journal,^orphan_file";
const PLAIN: &str = "^has_journal,^metadata_csum,^orphan_file";

/// A path of its own.
pub(crate) fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("seekless-ext-live-{}-{next}", std::process::id()))
}

pub(crate) fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// An empty image.
pub(crate) fn image(shape: &Shape) -> Arc<MemoryDevice> {
    /// Each is made once: most tests begin with several of them.
    static MADE: Mutex<BTreeMap<Shape, Arc<OnceLock<Vec<u8>>>>> = Mutex::new(BTreeMap::new());
    if shape.mebibytes > 32 {
        return image_with(shape, |_| ());
    }
    let made = MADE.lock().unwrap().entry(*shape).or_default().clone();
    let bytes = made.get_or_init(|| make(shape, |_| ()));
    Arc::new(MemoryDevice::new(holes::copy(bytes)))
}

/// An empty image, with something done to its file.
pub(crate) fn image_with(shape: &Shape, then: impl FnOnce(&str)) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(make(shape, then)))
}

fn make(shape: &Shape, then: impl FnOnce(&str)) -> Vec<u8> {
    let path = scratch();
    let size = format!("{}M", shape.mebibytes);
    let block = shape.block.to_string();
    let mut make = vec!["-q", "-F", "-t", &shape.kind[..4], "-i", "4096", "-b", &block];
    // What was never written is not zero.
    make.extend(["-E", "lazy_itable_init=1,nodiscard"]);
    make.extend(shape.how);
    holes::put(&path, &garbage((shape.mebibytes << 20) as usize));
    let file = path.to_str().unwrap();
    make.extend([file, &size]);
    run("mke2fs", &make);
    if shape.kind.ends_with("wide") {
        // Neither tool makes such a volume without extents in one step.
        run("tune2fs", &["-O", "extents", file]);
        run("resize2fs", &["-b", file]);
        run("debugfs", &["-w", "-R", "feature -extents", file]);
    }
    then(file);
    let bytes = holes::take(&path);
    std::fs::remove_file(&path).unwrap();
    bytes
}

/// The contents of a device before a file system is made on it: garbage at the start, where most
/// blocks are allocated, and at the starts of groups. Elsewhere are zeros, which no test and no judge
/// has to copy.
fn garbage(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (n, piece) in bytes.chunks_mut(512 << 10).enumerate() {
        if n < 6 || n % 8 == 0 {
            piece.fill(0xA5);
        }
    }
    bytes
}

pub(crate) fn options() -> LiveOptions {
    LiveOptions {
        directories: "ext2-orlov".into(),
        inodes: None,
        areas: None,
        blocks: None,
        seed: 1,
        force: false,
        delays: None,
        moves_dirs: true,
        recover: false,
        wall: Box::new(|| WALL),
    }
}

/// Does so many operations on a new volume of that kind, and compares. Returns how often it was
/// full.
pub(crate) fn replayed(
    kind: usize,
    (shape, discipline): (&Shape, Discipline),
    how: impl Fn() -> LiveOptions,
    count: usize,
) -> u32 {
    let full = Cell::new(0);
    let input = (Just((*shape, discipline)), ops(count, false));
    for_all((1, kind), input, |((shape, discipline), ops)| {
        let device = image(&shape);
        let mut replay = opened(device.clone(), device, discipline, how());
        replay.run(&ops);
        full.update(|full| full.max(replay.full));
        fsck(&replay.finish(), "replayed");
    });
    full.get()
}

/// Operations on an image of its own.
pub(crate) fn replay(shape: &Shape, discipline: Discipline) -> Replay<Ext> {
    let device = image(shape);
    through(device.clone(), device, discipline)
}

/// Operations on a device over `device`.
pub(crate) fn through(
    device: Arc<MemoryDevice>,
    over: Arc<dyn BlockDevice>,
    discipline: Discipline,
) -> Replay<Ext> {
    opened(device, over, discipline, options())
}

fn opened(
    device: Arc<MemoryDevice>,
    over: Arc<dyn BlockDevice>,
    discipline: Discipline,
    how: LiveOptions,
) -> Replay<Ext> {
    let clock = Arc::new(VirtualClock::new());
    let mut config = Config::new(discipline);
    // Small enough for blocks to come and go.
    config.capacity = ByteLen::new(1 << 20);
    let live = ExtLive::open(over, clock.clone() as Arc<dyn Clock>, config, how).unwrap();
    Replay::of(Parts { device, clock, live, open, attributes: true })
}

fn open(device: Arc<dyn BlockDevice>) -> Arc<dyn Inspect> {
    Arc::new(ExtImage::open(device, OpenOptions::default()).unwrap())
}

/// What an image holds, in a file.
pub(crate) fn written(device: &MemoryDevice) -> PathBuf {
    let path = scratch();
    holes::put(&path, &holes::of(device));
    path
}

/// e2fsck must find nothing.
pub(crate) fn fsck(device: &MemoryDevice, what: &str) {
    let path = written(device);
    let checked = Command::new("e2fsck").args(["-fn"]).arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{what}: {said}");
}
