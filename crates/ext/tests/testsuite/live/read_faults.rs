//! A disk that fails to read once, in the middle of an operation over a journal:
//! whatever was done by halves is not committed.

use super::errors::{ERRORS, STATE};
use super::interrupted::{bytes_of, e2fsck};
use super::shapes::{Shape, image, options};
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, VirtualClock};
use seekless_ext::ExtLive;
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_units::{ByteLen, Ino, Lba};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o700 };

/// A device of which one read fails: the last of so many, or none.
struct Faulty {
    inner: MemoryDevice,
    left: AtomicU64,
}

const NONE: u64 = u64::MAX;

impl BlockDevice for Faulty {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let left = self.left.load(Ordering::Relaxed);
        if left != NONE {
            self.left.store(left.checked_sub(1).unwrap_or(NONE), Ordering::Relaxed);
        }
        if left == 0 {
            return Err(DeviceError::Io { at, source: std::io::Error::other("read fault") });
        }
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn open(device: Arc<dyn BlockDevice>) -> ExtLive {
    let config = Config::new(Discipline::Journal(JournalMode::Ordered));
    ExtLive::open(device, Arc::new(VirtualClock::new()), config, options()).unwrap()
}

type Op = fn(&mut ExtLive) -> Result<(), FsError>;

fn at(l: &mut ExtLive, path: &str) -> Result<Ino, FsError> {
    let mut ino = l.root();
    for part in path.split('/') {
        ino = l.lookup(ino, part.as_bytes())?.ok_or(FsError::NotFound(part.into()))?;
    }
    Ok(ino)
}

/// A name of which few go into a block.
fn big(n: u32) -> Vec<u8> {
    format!("{n:0>180}").into_bytes()
}

const OPS: [(&str, Op); 22] = [
    ("create", |l| {
        let d = at(l, "a")?;
        l.make(d, b"newfile", NewFile::Regular, OWNER).map(drop)
    }),
    ("mkdir", |l| {
        let d = at(l, "a")?;
        l.make(d, b"newdir", NewFile::Directory, OWNER).map(drop)
    }),
    ("mkdir-idx", |l| {
        let d = at(l, "idx")?;
        l.make(d, &big(1000), NewFile::Directory, OWNER).map(drop)
    }),
    ("symlink", |l| {
        let d = at(l, "a")?;
        l.make(d, b"sl", NewFile::Symlink(&[b'x'; 200]), OWNER).map(drop)
    }),
    ("link-idx", |l| {
        let d = at(l, "idx")?;
        let f = at(l, "a/small")?;
        for n in 2000..2020 {
            l.link(f, d, &big(n))?;
        }
        Ok(())
    }),
    ("unlink-scattered", |l| {
        let d = at(l, "a")?;
        l.unlink(d, b"scattered")
    }),
    ("unlink-small", |l| {
        let d = at(l, "a")?;
        l.unlink(d, b"small")
    }),
    ("unlink-linked", |l| {
        let d = at(l, "a")?;
        l.unlink(d, b"linked")
    }),
    ("rmdir", |l| {
        let d = at(l, "b")?;
        l.rmdir(d, b"empty")
    }),
    ("rename", |l| {
        let (a, b) = (at(l, "a")?, at(l, "b")?);
        l.rename((a, b"small"), (b, b"moved"), RenameMode::Replace)
    }),
    ("rename-idx", |l| {
        let (a, b) = (at(l, "a")?, at(l, "idx")?);
        l.rename((a, b"small"), (b, &big(3000)), RenameMode::Replace)
    }),
    ("rename-over", |l| {
        let (a, b) = (at(l, "a")?, at(l, "b")?);
        l.rename((a, b"small"), (b, b"victim"), RenameMode::Replace)
    }),
    ("rename-dir", |l| {
        let (a, b) = (at(l, "a")?, at(l, "b")?);
        l.rename((a, b"sub"), (b, b"sub2"), RenameMode::Replace)
    }),
    ("rename-dir-over", |l| {
        let (a, b) = (at(l, "a")?, at(l, "b")?);
        l.rename((a, b"sub"), (b, b"empty"), RenameMode::Replace)
    }),
    ("exchange", |l| {
        let (a, b) = (at(l, "a")?, at(l, "b")?);
        l.rename((a, b"sub"), (b, b"victim"), RenameMode::Exchange)
    }),
    ("truncate", |l| {
        let f = at(l, "a/scattered")?;
        l.set_attr(f, &SetAttr { size: Some(50_001), ..SetAttr::default() }).map(drop)
    }),
    ("truncate0", |l| {
        let f = at(l, "a/scattered")?;
        l.set_attr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).map(drop)
    }),
    ("write-mid", |l| {
        let f = at(l, "a/scattered")?;
        l.write(f, ByteLen::new(101_000), &[7; 9000]).map(drop)
    }),
    ("append", |l| {
        let f = at(l, "a/scattered")?;
        l.write(f, ByteLen::new(900_000), &[7; 90_000]).map(drop)
    }),
    ("fallocate", |l| {
        let f = at(l, "a/scattered")?;
        l.allocate(f, ByteLen::new(0), ByteLen::new(900_000), false)
    }),
    ("xattr", |l| {
        let f = at(l, "a/small")?;
        l.set_xattr(f, b"user.big", &[3; 700], XattrMode::Any)
    }),
    ("xattr-rm", |l| {
        let f = at(l, "a/linked")?;
        l.remove_xattr(f, b"user.big")
    }),
];

/// A volume with what the operations need: an indexed directory, a file of many
/// extents, one with a block of attributes and several names.
fn prepared(shape: &Shape) -> Vec<u8> {
    let device = image(shape);
    let mut live = open(device.clone());
    let root = live.root();
    let mut dir = |at, name: &[u8]| live.make(at, name, NewFile::Directory, OWNER).unwrap().ino;
    let (a, b, idx) = (dir(root, b"a"), dir(root, b"b"), dir(root, b"idx"));
    dir(a, b"sub");
    dir(b, b"empty");
    let mut file = |at, name: &[u8]| live.make(at, name, NewFile::Regular, OWNER).unwrap().ino;
    let small = [file(a, b"small"), file(b, b"victim"), file(a, b"linked")];
    let scattered = file(a, b"scattered");
    for ino in small {
        live.write(ino, ByteLen::ZERO, &[1; 30_000]).unwrap();
    }
    live.link(small[2], b, b"linked2").unwrap();
    live.set_xattr(small[2], b"user.big", &[3; 700], XattrMode::Any).unwrap();
    for n in 0..300 {
        live.link(small[2], idx, &big(n)).unwrap();
    }
    for n in 0..400 {
        live.write(scattered, ByteLen::new(n * 2048), &[9; 1024]).unwrap();
    }
    live.unmount().unwrap();
    bytes_of(device.as_ref())
}

#[test]
fn what_a_failed_read_stops_is_not_committed() {
    for kind in ["ext4", "ext3"] {
        let how = &["-J", "size=1", "-g", "1024", "-O", "^resize_inode"];
        let before = prepared(&Shape { kind, block: 1024, mebibytes: 16, how });
        assert_eq!(e2fsck(&before, "-fn").0, Some(0));
        for (first, (name, op)) in (0u64..).zip(&OPS) {
            // One read of twenty, of each operation another.
            for n in (first % 20..400).step_by(20) {
                let inner = MemoryDevice::new(crate::holes::copy(&before));
                let device = Arc::new(Faulty { inner, left: AtomicU64::new(NONE) });
                let mut live = open(device.clone());
                device.left.store(n, Ordering::Relaxed);
                let done = op(&mut live);
                let was_hit = device.left.swap(NONE, Ordering::Relaxed) == NONE;
                // Either may fail, and both end.
                let ended = (live.sync().is_ok(), live.unmount().is_ok());
                drop(live);
                let left = bytes_of(&device.inner);
                let (code, said, after) = e2fsck(&left, "-p");
                let what = format!("{kind}, {name}, read {n}: {done:?}, {ended:?}");
                assert!(code.is_some_and(|code| code <= 1), "{what}: {said}");
                // Whatever could not be ended was noted, and then the whole is checked.
                let noted = left[STATE] & ERRORS != 0;
                assert_eq!(noted, !ended.1, "{what}: {said}");
                assert_eq!(said.contains("with errors, check forced"), noted, "{what}: {said}");
                let (code, said, _) = e2fsck(&after, "-fn");
                assert_eq!(code, Some(0), "{what}: {said}");
                if !was_hit {
                    break;
                }
            }
        }
    }
}
