//! Number of flushes of the device per `fsync`, under each discipline and format; and an `fsync` in
//! parts, during whose flushes the file system is available to others.

#![allow(missing_docs)]

#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, DeviceError, Durable, MemoryDevice, Ticket, VirtualClock};
use seekless_fat::FatWidth;
use seekless_ffs::Version;
use seekless_formats::{InUse, Mounting, claim};
use seekless_fs::Timestamp;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{FsyncParts, NewFile, Ownership};
use seekless_units::{ByteLen, Ino, Lba};
use skip::skip;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Room for the minimum number of clusters of FAT32.
const FAT32_SIZE: u64 = 40 << 20;
const SIZE: u64 = 12 << 20;
const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

/// A device that counts flushes, and models the contents after a loss of power.
struct Counting {
    now: MemoryDevice,
    flushes: AtomicU64,
    /// Writes with force unit access: a device without it flushes for each.
    forced: AtomicU64,
    fails: AtomicBool,
    stable: Mutex<Vec<u8>>,
    /// Writes since the last flush.
    unflushed: Mutex<Vec<(usize, Vec<u8>)>>,
}

impl Counting {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        let stable = Mutex::new(bytes.clone());
        let (flushes, forced) = (AtomicU64::new(0), AtomicU64::new(0));
        let fails = AtomicBool::new(false);
        Arc::new(Self {
            now: MemoryDevice::new(bytes),
            flushes,
            forced,
            fails,
            stable,
            unflushed: Mutex::default(),
        })
    }

    fn count(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst) + self.forced.load(Ordering::SeqCst)
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> ByteLen {
        self.now.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.now.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.unflushed.lock().unwrap().push((at.to_bytes().get() as usize, buf.to_vec()));
        self.now.write(at, buf)
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        self.write(at, buf)?;
        if durable == Durable::OnCompletion {
            self.forced.fetch_add(1, Ordering::SeqCst);
            let from = at.to_bytes().get() as usize;
            self.stable.lock().unwrap()[from..from + buf.len()].copy_from_slice(buf);
        }
        Ok(None)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.fails.load(Ordering::SeqCst) {
            let source = std::io::Error::other("no flush");
            return Err(DeviceError::Io { at: Lba::ZERO, source });
        }
        self.flushes.fetch_add(1, Ordering::SeqCst);
        let mut stable = self.stable.lock().unwrap();
        for (from, bytes) in self.unflushed.lock().unwrap().drain(..) {
            stable[from..from + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

/// An empty volume; `None` if its maker is not installed.
fn make(format: &str, test: &str) -> Option<Vec<u8>> {
    let size = if format == "fat32" { FAT32_SIZE } else { SIZE };
    let device = MemoryDevice::new(vec![0; size as usize]);
    match format {
        "ufs1" | "ufs2" => {
            let version = if format == "ufs1" { Version::Ufs1 } else { Version::Ufs2 };
            let options = seekless_ffs::MakeOptions::new(version, ByteLen::new(size));
            seekless_ffs::make(&device, &options).unwrap();
        }
        "fat16" | "fat32" => {
            let width = if format == "fat16" { FatWidth::Fat16 } else { FatWidth::Fat32 };
            let options = seekless_fat::MakeOptions::new(Some(width), ByteLen::new(size));
            seekless_fat::make(&device, &options).unwrap();
        }
        _ => {
            let name = format!("fsync-{test}-{format}-{}", std::process::id());
            let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::write(&path, vec![0; size as usize]).unwrap();
            let arguments = ["-q", "-F", "-b", "4096", "-t", format];
            let made = Command::new("mke2fs").args(arguments).arg(&path).status();
            let bytes = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let Ok(made) = made else {
                skip("mke2fs is not installed");
                return None;
            };
            assert!(made.success(), "mke2fs");
            return Some(bytes);
        }
    }
    let mut bytes = vec![0; size as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    Some(bytes)
}

fn open(device: &Arc<Counting>, discipline: Discipline) -> Box<dyn InUse> {
    open_with(device, discipline, Config::new(discipline))
}

fn open_with(device: &Arc<Counting>, discipline: Discipline, config: Config) -> Box<dyn InUse> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let known = claim(device.as_ref()).unwrap();
    let mut mounting = Mounting::new(config);
    mounting.discipline = Some(discipline);
    let wall = Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 });
    (known.open_live)(device, Arc::new(VirtualClock::new()), &mounting, wall).unwrap()
}

fn append(live: &mut dyn InUse, ino: Ino, at: u64, len: usize) {
    assert_eq!(live.write(ino, ByteLen::new(at), &vec![7; len]).unwrap(), len);
}

/// Performs each part of an `fsync`, calling `between` while the device flushes.
fn in_parts(live: &mut dyn InUse, ino: Ino, mut between: impl FnMut(&mut dyn InUse)) {
    if let Some(begun) = live.start_fsync(ino).unwrap() {
        while let Some(work) = live.work_towards(begun).unwrap() {
            between(live);
            work();
        }
    }
    let mut parts = FsyncParts::default();
    while let Some(work) = live.fsync_part(ino, &mut parts).unwrap() {
        between(live);
        work();
    }
}

/// Whether the contents after a loss of power have the first `len` bytes of a file.
fn is_kept(device: &Counting, discipline: Discipline, name: &[u8], len: usize) -> bool {
    // Without an order of changes nothing is known of the names that lead to a file.
    if discipline == Discipline::Async {
        return true;
    }
    let is_read_by_others = others_read(device, name, len);
    let left = Counting::new(device.stable.lock().unwrap().clone());
    let device: Arc<dyn BlockDevice> = left.clone();
    let known = claim(device.as_ref()).unwrap();
    let mut mounting = Mounting::new(Config::new(discipline));
    (mounting.discipline, mounting.force) = (Some(discipline), true);
    let wall = Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 });
    let mut live =
        (known.open_live)(device, Arc::new(VirtualClock::new()), &mounting, wall).unwrap();
    let mut ino = live.root();
    for part in name.split(|&byte| byte == b'/') {
        let Some(below) = live.lookup(ino, part).unwrap() else { return false };
        ino = below;
    }
    let mut bytes = vec![0; len];
    let is_read = live.read(ino, ByteLen::ZERO, &mut bytes).unwrap() == len;
    is_read && bytes == vec![7; len] && is_read_by_others
}

/// The same by other programs: e2fsck's preen and debugfs, fsck.fat, The Sleuth Kit.
fn others_read(device: &Counting, name: &[u8], len: usize) -> bool {
    let kind = claim(&device.now).unwrap().reader.name;
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (name, at) = (String::from_utf8_lossy(name), dir.join(format!("judged-{}", unique())));
    std::fs::write(&at, &*device.stable.lock().unwrap()).unwrap();
    let image = at.to_str().unwrap();
    let path = format!("/{name}");
    let mended = |program: &str, how: &str| {
        let done = Command::new(program).args([how, image]).output();
        let code = done.ok().and_then(|output| output.status.code());
        assert!(code.is_none_or(|code| code <= 1), "{program} {how}: {code:?}");
    };
    let read = match kind {
        "ext" => {
            mended("e2fsck", "-p");
            Command::new("debugfs").args(["-R", &format!("cat {path}"), image]).output()
        }
        "fat" => {
            // mtools would not read it: the FAT is still marked as in use.
            mended("fsck.fat", "-a");
            Command::new("fcat").args([&path, image]).output()
        }
        _ => Command::new("fcat").args([&path, image]).output(),
    };
    std::fs::remove_file(&at).unwrap();
    let Ok(read) = read else {
        skip("a judge of what was read is not installed");
        return true;
    };
    let is_whole = read.stdout == vec![7; len];
    if !is_whole {
        eprintln!("{} bytes: {}", read.stdout.len(), String::from_utf8_lossy(&read.stderr));
    }
    is_whole
}

fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}

const CASES: [(&str, Discipline, u64); 12] = [
    ("ext2", Discipline::SoftUpdates, 2),
    ("ext2", Discipline::Async, 1),
    ("ext3", Discipline::Journal(JournalMode::Ordered), 2),
    ("ext4", Discipline::Journal(JournalMode::Ordered), 2),
    ("ext4", Discipline::Journal(JournalMode::Data), 2),
    ("ext4", Discipline::Journal(JournalMode::Writeback), 2),
    ("ufs1", Discipline::SoftUpdates, 2),
    ("ufs2", Discipline::SoftUpdates, 2),
    ("ufs2", Discipline::Async, 1),
    ("fat16", Discipline::SoftUpdates, 3),
    ("fat32", Discipline::SoftUpdates, 3),
    ("fat32", Discipline::Async, 1),
];

#[test]
fn an_append_costs_few_flushes_and_is_kept() {
    let mut most = Vec::new();
    for (format, discipline, bound) in CASES {
        let Some(bytes) = make(format, "append") else { continue };
        for apart in [false, true] {
            let device = Counting::new(bytes.clone());
            let mut live = open(&device, discipline);
            if apart {
                live.leave_work();
            }
            let root = live.root();
            let ino = live.make(root, b"log", NewFile::Regular, OWNER).unwrap().ino;
            append(&mut *live, ino, 0, 4096);
            live.fsync(ino).unwrap();
            let (mut size, mut highest) = (4096, 0);
            // Across the ends of clusters, and into indirect blocks.
            for _ in 0..60 {
                let before = device.count();
                append(&mut *live, ino, size, 3000);
                size += 3000;
                if apart {
                    in_parts(&mut *live, ino, |_| {});
                } else {
                    live.fsync(ino).unwrap();
                }
                highest = highest.max(device.count() - before);
            }
            assert!(is_kept(&device, discipline, b"log", size as usize), "{format} {discipline}");
            most.push((format, discipline.to_string(), apart, highest, bound));
        }
    }
    let above: Vec<_> = most.iter().filter(|(.., highest, bound)| highest > bound).collect();
    assert!(above.is_empty(), "{above:?} of {most:?}");
}

#[test]
fn others_change_files_while_an_fsync_flushes() {
    for (format, discipline, _) in CASES {
        let Some(bytes) = make(format, "others") else { continue };
        let device = Counting::new(bytes);
        let mut live = open(&device, discipline);
        live.leave_work();
        let root = live.root();
        let ino = live.make(root, b"log", NewFile::Regular, OWNER).unwrap().ino;
        let other = live.make(root, b"other", NewFile::Regular, OWNER).unwrap().ino;
        let (mut turn, mut asked) = (0, FsyncParts::default());
        for n in 0..4u64 {
            append(&mut *live, ino, n * 5000, 5000);
            in_parts(&mut *live, ino, |live| {
                turn += 1;
                append(live, other, turn * 3000, 3000);
                let name = format!("n{turn}");
                live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
                // Another fsync waits for the flush in progress, or for the commit.
                asked = FsyncParts::default();
                match live.start_fsync(other).unwrap() {
                    Some(begun) => drop(live.work_towards(begun).unwrap()),
                    None => drop(live.fsync_part(other, &mut asked).unwrap()),
                }
            });
            let len = (n as usize + 1) * 5000;
            assert!(is_kept(&device, discipline, b"log", len), "{format} {discipline}, {n}");
        }
        assert!(turn > 0, "{format} {discipline}: nothing was flushed apart");
        live.unmount().unwrap();
        let clean = Counting::new(device.stable.lock().unwrap().clone());
        let mut again = open(&clean, discipline);
        let found = again.lookup(again.root(), b"other").unwrap().expect("it is there");
        assert_eq!(again.attr(found).unwrap().size, turn * 3000 + 3000);
        again.unmount().unwrap();
    }
}

/// Directories and a file in them, all new, in a cache so small that it is emptied while they are
/// made durable.
#[test]
fn new_directories_are_kept_where_the_cache_is_small() {
    for (format, discipline, _) in CASES {
        let Some(bytes) = make(format, "small") else { continue };
        for (seed, capacity) in [(1u64, 64 << 10), (2, 128 << 10), (3, 256 << 10), (4, 1 << 20)] {
            let device = Counting::new(bytes.clone());
            let mut config = Config::new(discipline);
            config.capacity = ByteLen::new(capacity);
            let mut live = open_with(&device, discipline, config);
            live.leave_work();
            let (mut dir, mut path) = (live.root(), String::new());
            let new = Ownership { perm: 0o755, ..OWNER };
            for depth in 0..6u64 {
                for n in 0..seed * 3 {
                    let name = format!("beside{n}");
                    let beside = live.make(dir, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
                    append(&mut *live, beside.ino, 0, 9000);
                }
                let name = format!("d{depth}");
                dir = live.make(dir, name.as_bytes(), NewFile::Directory, new).unwrap().ino;
                path += &format!("{name}/");
            }
            let ino = live.make(dir, b"log", NewFile::Regular, OWNER).unwrap().ino;
            append(&mut *live, ino, 0, 150_000);
            in_parts(&mut *live, ino, |_| {});
            let name = format!("{path}log");
            let kept = is_kept(&device, discipline, name.as_bytes(), 150_000);
            assert!(kept, "{format} {discipline} {capacity}");
        }
    }
}

#[test]
fn a_flush_that_fails_fails_the_fsync() {
    for (format, discipline, _) in CASES {
        let Some(bytes) = make(format, "fails") else { continue };
        let device = Counting::new(bytes);
        let mut live = open(&device, discipline);
        live.leave_work();
        let root = live.root();
        let ino = live.make(root, b"log", NewFile::Regular, OWNER).unwrap().ino;
        append(&mut *live, ino, 0, 5000);
        device.fails.store(true, Ordering::SeqCst);
        let begun = live.start_fsync(ino);
        let mut failed = begun.is_err();
        if let Ok(Some(begun)) = begun {
            loop {
                match live.work_towards(begun) {
                    Ok(Some(work)) => work(),
                    Ok(None) => break,
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
            }
        }
        let mut parts = FsyncParts::default();
        while !failed {
            match live.fsync_part(ino, &mut parts) {
                Ok(Some(work)) => work(),
                Ok(None) => break,
                Err(_) => failed = true,
            }
        }
        assert!(failed, "{format} {discipline}");
        device.fails.store(false, Ordering::SeqCst);
        assert!(live.fsync(ino).is_err(), "{format} {discipline}");
    }
}

/// `statvfs` of an image is that of the same image in use. (A mount of FAT12 withholds the clusters
/// whose entries lie in two sectors.)
#[test]
fn an_image_has_the_space_of_a_mount() {
    for format in ["ufs1", "ufs2", "fat16", "fat32", "ext2", "ext4"] {
        let Some(bytes) = make(format, "space") else { continue };
        let device = Counting::new(bytes);
        let shared: Arc<dyn BlockDevice> = device.clone();
        let reader = claim(shared.as_ref()).unwrap().reader;
        let image = (reader.open)(shared, OpenOptions::default()).unwrap();
        let read_only = image.space().unwrap();
        let discipline = match format {
            "ext4" => Discipline::Journal(JournalMode::Ordered),
            _ => Discipline::Sync,
        };
        assert_eq!(read_only, open(&device, discipline).space(), "{format}");
        assert!(read_only.blocks < image.geometry().blocks, "{format}: metadata take room");
    }
}
