//! Errors that end all changes are noted in the superblock, if the device still takes
//! writes, and a whole check follows.

use super::interrupted::{bytes_of, e2fsck};
use super::kernel::mounted_with;
use super::shapes::{Shape, image, image_with, options, run};
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, VirtualClock};
use seekless_ext::{ExtLive, LiveOptions, preen};
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Lba};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `s_state`, and that errors were met in it.
pub(crate) const STATE: usize = 1024 + 0x3A;
pub(crate) const ERRORS: u8 = 2;
/// `s_error_count`, behind which the first and the last error are.
const COUNT: usize = 1024 + 404;

/// A device of which some writes fail: so many, from one on.
struct Faulty {
    inner: MemoryDevice,
    done: AtomicU64,
    from: AtomicU64,
    fail: u64,
}

impl BlockDevice for Faulty {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let n = self.done.fetch_add(1, Ordering::Relaxed);
        let from = self.from.load(Ordering::Relaxed);
        if n >= from && n - from < self.fail {
            return Err(DeviceError::Io { at, source: std::io::Error::other("write fault") });
        }
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o600 };

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Files are made until a write fails; what is left.
fn stopped(shape: &Shape, discipline: Discipline, from: u64, fail: u64) -> (Vec<u8>, bool) {
    let inner = MemoryDevice::new(bytes_of(image(shape).as_ref()));
    let (done, never) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let device = Arc::new(Faulty { inner, done, from: never, fail });
    let clock = Arc::new(VirtualClock::new());
    let mut live =
        ExtLive::open(device.clone(), clock, Config::new(discipline), options()).unwrap();
    let root = live.root();
    let mut make = |name: &[u8]| -> Result<(), FsError> {
        let ino = live.make(root, name, NewFile::Regular, OWNER)?.ino;
        live.write(ino, ByteLen::ZERO, &[7; 5000])?;
        live.fsync(ino)
    };
    make(b"durable").unwrap();
    device.from.store(device.done.load(Ordering::Relaxed) + from, Ordering::Relaxed);
    let failed = (0..20).any(|n| make(format!("file{n}").as_bytes()).is_err());
    assert!(failed, "{discipline}: no write failed");
    // Nothing is changed any more, whatever is asked.
    assert!(live.make(root, b"later", NewFile::Regular, OWNER).is_err());
    assert!(live.sync().is_err() && live.unmount().is_err(), "{discipline}");
    drop(live);
    let left = bytes_of(&device.inner);
    let noted = left[STATE] & ERRORS != 0;
    (left, noted)
}

const SHAPES: [(Shape, Discipline); 3] = [
    (
        Shape { kind: "ext4", block: 1024, mebibytes: 16, how: &["-J", "size=1"] },
        Discipline::Journal(JournalMode::Ordered),
    ),
    (
        Shape { kind: "ext3", block: 4096, mebibytes: 24, how: &["-J", "size=4"] },
        Discipline::Journal(JournalMode::Data),
    ),
    (Shape { kind: "ext2", block: 1024, mebibytes: 16, how: &[] }, Discipline::Sync),
];

#[test]
fn a_write_that_fails_is_noted_and_the_whole_is_checked() {
    for (shape, discipline) in SHAPES {
        for from in [0, 1, 2, 3, 5, 8, 13] {
            let what = format!("{discipline}, write {from}");
            let (left, noted) = stopped(&shape, discipline, from, 1);
            assert!(noted, "{what}: it is not noted");
            assert_eq!(word(&left, COUNT), 1, "{what}: s_error_count");
            for (at, name) in [(COUNT + 4, "first"), (COUNT + 56, "last")] {
                assert_eq!(word(&left, at), 1_700_000_000, "{what}: time of the {name}");
            }
            let (code, said, after) = e2fsck(&left, "-p");
            assert_eq!(code, Some(1), "{what}: {said}");
            assert!(said.contains("with errors, check forced"), "{what}: {said}");
            let (code, said, _) = e2fsck(&after, "-fn");
            assert_eq!(code, Some(0), "{what}: {said}");
            // A recovery of ours keeps it until a check has been made.
            let device = Arc::new(MemoryDevice::new(left));
            let clock = Arc::new(VirtualClock::new());
            let again = ExtLive::open(device.clone(), clock, Config::new(discipline), options());
            assert!(again.is_err(), "{what}: opened without a check");
            assert_eq!(preen(device.clone()).unwrap().report.unexpected, 0, "{what}");
            let bytes = bytes_of(device.as_ref());
            assert_eq!(bytes[STATE] & ERRORS, 0, "{what}");
            let (code, said, _) = e2fsck(&bytes, "-fn");
            assert_eq!(code, Some(0), "{what}: {said}");
            let clock = Arc::new(VirtualClock::new());
            let mut live =
                ExtLive::open(device, clock, Config::new(discipline), options()).unwrap();
            let root = live.root();
            assert!(live.lookup(root, b"durable").unwrap().is_some(), "{what}");
            live.unmount().unwrap();
        }
    }
}

/// Where no write succeeds any more nothing can be noted, and nothing more goes wrong.
#[test]
fn a_device_that_takes_no_writes_is_left() {
    for (shape, discipline) in SHAPES {
        let (left, noted) = stopped(&shape, discipline, 2, u64::MAX);
        assert!(!noted, "{discipline}");
        let (code, said, after) = e2fsck(&left, "-p");
        assert!(code.is_some_and(|code| code <= 1), "{discipline}: {said}");
        assert_eq!(e2fsck(&after, "-fn").0, Some(0));
    }
}

/// With files on the list of orphans `e2fsck -p` mends one, and stops at several: of a volume
/// with errors it does not work the list off, and takes the number of the next file for a time
/// of deletion. It is so behind the kernel too.
#[test]
fn orphans_of_a_volume_with_errors_are_left_as_the_kernel_leaves_them() {
    let (shape, discipline) = SHAPES[0];
    for (files, expected) in [(1, 1), (3, 4)] {
        let left = held_at_an_error(&shape, discipline, files);
        let (code, said, _) = e2fsck(&left, "-p");
        assert_eq!(code, Some(expected), "{files} files: {said}");
        let (code, said, after) = e2fsck(&left, "-fy");
        assert_eq!(code, Some(1), "{files} files: {said}");
        assert_eq!(e2fsck(&after, "-fn").0, Some(0), "{files} files");
        if !rustix::process::geteuid().is_root() {
            continue;
        }
        let Some(left) = held_by_the_kernel(&shape, files) else { continue };
        assert_eq!(e2fsck(&left, "-p").0, Some(expected), "{files} files of the kernel's");
    }
}

/// What is left when a write fails while somebody holds so many files that have no name.
fn held_at_an_error(shape: &Shape, discipline: Discipline, files: u32) -> Vec<u8> {
    let inner = MemoryDevice::new(bytes_of(image(shape).as_ref()));
    let (done, never) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let device = Arc::new(Faulty { inner, done, from: never, fail: 1 });
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(discipline);
    let mut live = ExtLive::open(device.clone(), clock, config, options()).unwrap();
    let root = live.root();
    for n in 0..files {
        let name = format!("file{n}");
        let ino = live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
        live.write(ino, ByteLen::ZERO, &[7; 5000]).unwrap();
        live.hold(ino).unwrap();
        live.unlink(root, name.as_bytes()).unwrap();
    }
    live.sync().unwrap();
    device.from.store(device.done.load(Ordering::Relaxed), Ordering::Relaxed);
    live.make(root, b"more", NewFile::Regular, OWNER).unwrap();
    assert!(live.sync().is_err());
    drop(live);
    bytes_of(&device.inner)
}

/// The same of the kernel's, if it can be asked for an error.
fn held_by_the_kernel(shape: &Shape, files: u32) -> Option<Vec<u8>> {
    let mut left = None;
    mounted_with(&image(shape), "rw,errors=remount-ro", |at| {
        let held: Vec<std::fs::File> = (0..files)
            .map(|n| {
                let path = at.join(format!("file{n}"));
                std::fs::write(&path, [7; 5000]).unwrap();
                let file = std::fs::File::open(&path).unwrap();
                std::fs::remove_file(&path).unwrap();
                file
            })
            .collect();
        run("sync", &["-f", at.to_str().unwrap()]);
        let shown = Command::new("findmnt").args(["-no", "SOURCE"]).arg(at).output().unwrap();
        let device = String::from_utf8(shown.stdout).unwrap();
        let device = device.trim().trim_start_matches("/dev/");
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        if std::fs::write(trigger, "1").is_ok() {
            // What the loop device holds is what a crash would leave.
            let state = || bytes_of_loop(device);
            let noted = |bytes: &Vec<u8>| bytes[STATE] & ERRORS != 0;
            left = (0..100).map(|_| state()).find(noted);
            assert!(left.is_some(), "the error is not noted");
        }
        drop(held);
    });
    left
}

/// The bytes behind a loop device. The superblock is written some time after the error.
fn bytes_of_loop(device: &str) -> Vec<u8> {
    std::thread::sleep(std::time::Duration::from_millis(50));
    let image = std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).unwrap();
    std::fs::read(image.trim()).unwrap()
}

/// Contents that find no place when they are written back at last, because counts promised
/// more than the bitmaps have: the unmount fails, and the volume is marked for a whole check.
#[test]
fn contents_lost_at_the_unmount_are_noted() {
    let how = &["-O", "^metadata_csum,^flex_bg,^resize_inode,uninit_bg", "-J", "size=1", "-m", "0"];
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 8, how };
    let device = image_with(&shape, |file| {
        let fill = format!("{file}.fill");
        std::fs::write(&fill, vec![7; 8_000_000]).unwrap();
        run("debugfs", &["-w", "-R", &format!("write {fill} fill"), file]);
        std::fs::remove_file(&fill).unwrap();
        // All blocks are taken then; the counts say that 200 are free.
        for word in ["ssv free_blocks_count 200", "set_bg 0 free_blocks_count 200"] {
            run("debugfs", &["-w", "-R", word, file]);
        }
        run("debugfs", &["-w", "-R", "set_bg 0 checksum calc", file]);
    });
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(Discipline::Journal(JournalMode::Ordered));
    let how = LiveOptions { delays: Some(true), ..options() };
    let mut live = ExtLive::open(device.clone(), clock, config, how).unwrap();
    let root = live.root();
    let ino = live.make(root, b"late", NewFile::Regular, OWNER).unwrap().ino;
    assert_eq!(live.write(ino, ByteLen::ZERO, &vec![5; 150_000]).unwrap(), 150_000);
    let ended = live.unmount();
    assert!(ended.is_err(), "what was written has no place");
    let bytes = bytes_of(&*device);
    assert!(bytes[STATE] & ERRORS != 0, "{ended:?}: the state is {}", bytes[STATE]);
    assert!(word(&bytes, COUNT) > 0);
    let (code, said, _) = e2fsck(&bytes, "-p");
    assert!(said.contains("contains a file system with errors"), "{code:?}: {said}");
    assert!(live.make(root, b"more", NewFile::Regular, OWNER).is_err());
}
