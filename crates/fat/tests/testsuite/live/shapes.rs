//! Volumes of several shapes, made by mkfs.fat, and judged by fsck.fat.

use super::skip::skip;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_fat::{FatLive, LiveOptions};
use seekless_fs::Timestamp;
use seekless_units::Lba;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The time of day, always the same.
pub(crate) const WALL: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// What mkfs.fat is told, and the size of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) how: &'static [&'static str],
    pub(crate) kibibytes: u64,
}

pub(crate) const SHAPES: [Shape; 10] = [
    Shape { how: &["-F", "12", "-s", "1"], kibibytes: 1440 },
    Shape { how: &["-F", "12", "-s", "4", "-f", "1"], kibibytes: 2880 },
    Shape { how: &["-F", "12", "-S", "4096", "-s", "1"], kibibytes: 4096 },
    Shape { how: &["-F", "16", "-s", "1"], kibibytes: 4096 },
    Shape { how: &["-F", "16", "-s", "4", "-f", "2"], kibibytes: 16384 },
    Shape { how: &["-F", "16", "-S", "2048", "-s", "1", "-a"], kibibytes: 10240 },
    Shape { how: &["-F", "32", "-s", "1"], kibibytes: 34816 },
    Shape { how: &["-F", "32", "-s", "2", "-f", "1"], kibibytes: 67584 },
    Shape { how: &["-F", "32", "-S", "1024", "-s", "8", "-R", "40"], kibibytes: 8192 },
    Shape { how: &["-F", "32", "-s", "8"], kibibytes: 8192 },
];

pub(crate) fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("seekless-fat-live-{}-{next}", std::process::id()))
}

/// A file with the bytes of a device.
pub(crate) fn written(device: &MemoryDevice) -> PathBuf {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::new(0), &mut bytes).unwrap();
    let path = scratch();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The output of a program, if it is there, and whether it succeeded.
pub(crate) fn ran(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(arguments).env("MTOOLS_SKIP_CHECK", "1").env("LC_ALL", "C.UTF-8");
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    match command.output() {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            Some((output.status.success(), text))
        }
        Err(error) => {
            skip(&format!("{program}: {error}"));
            None
        }
    }
}

/// A new volume; `None` without mkfs.fat.
pub(crate) fn image(shape: &Shape) -> Option<Arc<MemoryDevice>> {
    let path = scratch();
    std::fs::write(&path, vec![0; (shape.kibibytes << 10) as usize]).unwrap();
    let mut arguments = shape.how.to_vec();
    arguments.extend(["--invariant", path.to_str().unwrap()]);
    let (made, said) = ran("mkfs.fat", &arguments)?;
    assert!(made, "{said}");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    Some(Arc::new(MemoryDevice::new(bytes)))
}

pub(crate) fn options() -> LiveOptions {
    LiveOptions { clusters: None, seed: 1, zone: 0, force: false, wall: Box::new(|| WALL) }
}

pub(crate) fn open(device: &Arc<MemoryDevice>, discipline: Discipline) -> FatLive {
    open_with(device, discipline, options())
}

pub(crate) fn open_with(
    device: &Arc<MemoryDevice>,
    discipline: Discipline,
    options: LiveOptions,
) -> FatLive {
    let clock = Arc::new(VirtualClock::new());
    FatLive::open(device.clone(), clock, Config::new(discipline), options).unwrap()
}

/// fsck.fat finds nothing.
pub(crate) fn fsck(device: &MemoryDevice, what: &str) {
    let path = written(device);
    if let Some((clean, said)) = ran("fsck.fat", &["-n", path.to_str().unwrap()]) {
        assert!(clean, "{what}: {said}");
    }
    std::fs::remove_file(path).unwrap();
}
