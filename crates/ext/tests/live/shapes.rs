//! Images of several shapes, made by mke2fs, and operations on them.

use crate::replay::{Parts, Replay, WALL};
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_ext::{Ext, ExtImage, ExtLive, LiveOptions};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_units::ByteLen;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) block: u32,
    pub(crate) mebibytes: u64,
    /// What else mke2fs is told.
    pub(crate) how: &'static [&'static str],
}

pub(crate) const SHAPES: [Shape; 5] = [
    Shape { block: 1024, mebibytes: 24, how: &["-I", "128"] },
    Shape { block: 4096, mebibytes: 24, how: &["-I", "256"] },
    Shape { block: 1024, mebibytes: 24, how: &["-I", "256", "-g", "1024", "-O", "^resize_inode"] },
    Shape { block: 2048, mebibytes: 32, how: &["-O", "^filetype,^dir_index", "-g", "4096"] },
    Shape {
        block: 4096,
        mebibytes: 64,
        how: &["-O", "meta_bg,^resize_inode,flex_bg", "-g", "2048"],
    },
];

/// A path of its own.
pub(crate) fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("seekless-ext-live-{}-{next}", std::process::id()))
}

/// An empty image.
pub(crate) fn image(shape: &Shape) -> Arc<MemoryDevice> {
    let path = scratch();
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext2", "-i", "4096", "-b", &shape.block.to_string()])
        .args(shape.how)
        .arg(&path)
        .arg(format!("{}M", shape.mebibytes))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    Arc::new(MemoryDevice::new(bytes))
}

pub(crate) fn options() -> LiveOptions {
    LiveOptions {
        directories: "ext2-orlov".into(),
        blocks: None,
        seed: 1,
        force: false,
        wall: Box::new(|| WALL),
    }
}

/// Operations on an image of its own.
pub(crate) fn replay(shape: &Shape, discipline: Discipline, seed: u64) -> Replay<Ext> {
    let device = image(shape);
    through(device.clone(), device, discipline, seed)
}

/// Operations on a device over `device`.
pub(crate) fn through(
    device: Arc<MemoryDevice>,
    over: Arc<dyn BlockDevice>,
    discipline: Discipline,
    seed: u64,
) -> Replay<Ext> {
    let clock = Arc::new(VirtualClock::new());
    let mut config = Config::new(discipline);
    // Small enough for blocks to come and go.
    config.capacity = ByteLen::new(1 << 20);
    let live = ExtLive::open(over, clock.clone() as Arc<dyn Clock>, config, options()).unwrap();
    Replay::of(Parts { device, clock, live, open, attributes: true }, seed)
}

fn open(device: Arc<dyn BlockDevice>) -> Arc<dyn Inspect> {
    Arc::new(ExtImage::open(device, OpenOptions::default()).unwrap())
}

/// What an image holds, in a file.
pub(crate) fn written(device: &MemoryDevice) -> PathBuf {
    let path = scratch();
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(seekless_units::Lba::ZERO, &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// e2fsck must find nothing.
pub(crate) fn fsck(device: &MemoryDevice, what: &str) {
    let path = written(device);
    let checked = Command::new("e2fsck").args(["-fn"]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{what}: {}\n{said}", path.display());
    std::fs::remove_file(&path).unwrap();
}
