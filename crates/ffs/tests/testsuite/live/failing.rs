//! A disk that takes no more writes: the call that meets it says so, nothing
//! can be changed from then on, and what was durable before still is.

use super::crash::in_order;
use super::shapes::{image, options};
use super::{SHAPES, shapes::Shape};
use crate::slice::some_or_all;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, DeviceError, Durable, MemoryDevice, Ticket, VirtualClock};
use seekless_ffs::{FfsImage, FfsLive};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A device with a number of writes that are left before all fail.
pub(crate) struct Failing {
    memory: Arc<MemoryDevice>,
    left: AtomicI64,
    /// A write that nobody waits for fails after it was taken.
    late: bool,
}

impl Failing {
    /// One on which no write fails yet.
    pub(crate) fn of(memory: Arc<MemoryDevice>, late: bool) -> Arc<Self> {
        Arc::new(Self { memory, left: AtomicI64::new(i64::MAX), late })
    }

    /// Lets so many writes more succeed.
    pub(crate) fn leave(&self, writes: i64) {
        self.left.store(writes, Ordering::Relaxed);
    }
}

/// The tickets of writes that will complete, and of those that will fail.
const GOOD: Ticket = Ticket::new(0);
const BAD: Ticket = Ticket::new(1);

impl BlockDevice for Failing {
    fn len(&self) -> ByteLen {
        self.memory.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(DeviceError::Io { at, source: std::io::Error::other("worn out") });
        }
        self.memory.write(at, buf)
    }

    fn submit(&self, at: Lba, buf: &[u8], _: Durable) -> Result<Option<Ticket>, DeviceError> {
        match (self.late, self.write(at, buf)) {
            (false, done) => done.map(|()| None),
            (true, Ok(())) => Ok(Some(GOOD)),
            (true, Err(_)) => Ok(Some(BAD)),
        }
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.wait(ticket).map(|()| true)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        if ticket == BAD {
            let source = std::io::Error::other("worn out after all");
            return Err(DeviceError::Io { at: Lba::ZERO, source });
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn contents(n: u64) -> Vec<u8> {
    (0..n * 700 % 20_000 + 1).map(|at| (at * 31 + n) as u8).collect()
}

/// Makes and removes files until something fails; how many are durable.
fn work(live: &mut FfsLive) -> (u64, FsError) {
    let root = live.root();
    for n in 0.. {
        let name = |n: u64| format!("f{n}").into_bytes();
        let mut step = || -> Result<(), FsError> {
            let ino = live.make(root, &name(n), NewFile::Regular, OWNER)?.ino;
            live.write(ino, ByteLen::ZERO, &contents(n))?;
            live.make(root, format!("d{n}").as_bytes(), NewFile::Directory, OWNER)?;
            if n >= 20 {
                live.unlink(root, &name(n - 20))?;
            }
            live.fsync(ino)
        };
        if let Err(error) = step() {
            return (n, error);
        }
    }
    unreachable!("the disk lasted for ever")
}

fn fails_after(writes: i64, shape: &Shape, discipline: Discipline, late: bool) {
    let memory = image(shape);
    let failing = Failing::of(memory.clone(), late);
    let clock = Arc::new(VirtualClock::new());
    let device: Arc<dyn BlockDevice> = failing.clone();
    let mut config = Config::new(discipline);
    if late {
        // Little room, so that much is written that nobody waits for.
        config.capacity = ByteLen::new(64 << 10);
    }
    let mut live = FfsLive::open(device, clock, config, options()).unwrap();
    failing.leave(writes);
    let (durable, error) = work(&mut live);
    let what = format!("{discipline} after {writes} writes, late: {late}");
    let is_io = matches!(error, FsError::Device(_) | FsError::Io { .. });
    assert!(is_io, "{what}: {error}");
    let root = live.root();
    let refused = live.make(root, b"more", NewFile::Regular, OWNER);
    assert!(matches!(refused, Err(FsError::ReadOnly(_))), "{what}: {refused:?}");
    assert!(live.lookup(root, b"absent").is_ok(), "{what}: it can still be read");
    assert!(live.unmount().is_err(), "{what}: not said at the end");
    drop(live);
    if in_order(discipline) {
        let report = seekless_ffs::check(memory.clone()).unwrap();
        assert_eq!(report.unexpected, 0, "{what}: {:#?}", report.findings);
    }
    let image = FfsImage::open(memory, OpenOptions::default()).unwrap();
    for n in durable.saturating_sub(19)..durable {
        let name = format!("f{n}").into_bytes();
        let ino = image.lookup(image.root(), &name).unwrap();
        let ino = ino.unwrap_or_else(|| panic!("{what}: f{n} of {durable} is lost"));
        let wanted = contents(n);
        let mut held = vec![0; wanted.len()];
        assert_eq!(image.read(ino, ByteLen::ZERO, &mut held).unwrap(), wanted.len(), "{what}");
        assert!(held == wanted, "{what}: contents of f{n}");
    }
}

#[test]
fn a_failing_disk_loses_nothing_that_was_durable() {
    // `normal` leaves bitmaps behind, which a repair would have to make good first.
    for discipline in [Discipline::SoftUpdates, Discipline::Sync] {
        for shape in &SHAPES[..2] {
            for writes in
                (0..60).step_by(some_or_all(3, 1)).chain((60..900).step_by(some_or_all(120, 41)))
            {
                fails_after(writes, shape, discipline, false);
            }
        }
    }
}

#[test]
fn a_write_that_fails_late_loses_nothing_that_was_durable() {
    for shape in &SHAPES[..2] {
        for writes in (0..900).step_by(some_or_all(21, 7)) {
            fails_after(writes, shape, Discipline::SoftUpdates, true);
        }
    }
}
