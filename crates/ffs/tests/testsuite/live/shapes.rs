//! Images of several shapes, and operations on them.

use super::replay::{Parts, Replay, WALL};
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_ffs::{Ffs, FfsImage, FfsLive, LiveOptions, MakeOptions, Version, make};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_units::ByteLen;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) version: Version,
    pub(crate) block: u32,
    pub(crate) fragment: u32,
    pub(crate) mebibytes: u64,
    pub(crate) big_endian: bool,
}

/// An empty image.
pub(crate) fn image(shape: &Shape) -> Arc<MemoryDevice> {
    let size = ByteLen::new(shape.mebibytes << 20);
    let device = Arc::new(MemoryDevice::new(vec![0; size.get() as usize]));
    let mut options = MakeOptions::new(shape.version, size);
    options.block_size = shape.block;
    options.fragment_size = shape.fragment;
    options.big_endian = shape.big_endian;
    options.bytes_per_inode = Some(4096);
    make(device.as_ref(), &options).unwrap();
    device
}

pub(crate) fn options() -> LiveOptions {
    LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        reallocblks: true,
        force: false,
        recover: false,
        ignore_checksums: false,
        wall: Box::new(|| WALL),
    }
}

/// Operations on an image of its own.
pub(crate) fn replay(shape: &Shape, discipline: Discipline) -> Replay<Ffs> {
    let device = image(shape);
    through(device.clone(), device, shape, discipline)
}

/// Operations on a device over `device`.
pub(crate) fn through(
    device: Arc<MemoryDevice>,
    over: Arc<dyn BlockDevice>,
    shape: &Shape,
    discipline: Discipline,
) -> Replay<Ffs> {
    let clock = Arc::new(VirtualClock::new());
    let mut config = Config::new(discipline);
    // Small enough for blocks to come and go.
    config.capacity = ByteLen::new(1 << 20);
    let live = FfsLive::open(over, clock.clone() as Arc<dyn Clock>, config, options()).unwrap();
    let attributes = shape.version != Version::Ufs1;
    Replay::of(Parts { device, clock, live, open, attributes })
}

fn open(device: Arc<dyn BlockDevice>) -> Arc<dyn Inspect> {
    let image = FfsImage::open(device, OpenOptions::default()).unwrap();
    assert!(image.geometry().features.contains(&"clean".to_string()));
    Arc::new(image)
}
