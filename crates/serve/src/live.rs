//! A read-write FUSE file system over any implementation of [`Operate`].
//!
//! Only this mount changes the image, so the kernel may cache names, attributes and pages for any
//! time: all changes come through it. Files are opened and closed without a message; the contents
//! of an unlinked file are kept until the kernel has forgotten its inode.

mod calls;
mod flags;
mod listing;
mod trim;

use super::kernel::{
    NAME_MAX, TTL, answer_empty, answer_entry, errno, file_attr, generation, name_of,
};
use crate::volume::{Locked, Recovered, Volume, number};
use fuser::{Errno, FileAttr, Generation, INodeNo, ReplyEmpty, ReplyEntry, Request};
use listing::Listings;
use seekless_cache::{Config, Counters};
use seekless_fs::Attr;
use seekless_fs::operate::{FsyncParts, NewFile, Operate, Ownership};
use seekless_units::Ino;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A file system in use, served by FUSE.
pub struct LiveMount {
    volume: Volume,
    root: Ino,
    block_size: u32,
    /// Maximum length of a name in bytes.
    name_max: usize,
    /// Time for which the kernel may cache the inode of a name.
    keep: Duration,
    /// Lookup counts of inodes that the kernel has not forgotten.
    known: Mutex<HashMap<u64, u64>>,
    listings: Listings,
    statistics: Statistics,
}

/// How settings and counters are shown, as text or as JSON, to those that ask a mounted volume for
/// them ([`seekless_host::tuning_request`]).
pub type Statistics = fn(&Config, &Counters, json: bool) -> String;

impl LiveMount {
    /// Serves a volume, whose owner must tick and unmount it.
    #[must_use]
    pub fn new(volume: Volume, statistics: Statistics) -> Self {
        let (root, space, ignores_case) = {
            let mut live = volume.lock();
            (live.root(), live.space(), live.ignores_case())
        };
        Self {
            volume,
            root,
            block_size: space.block_size,
            name_max: (space.name_max as usize).max(NAME_MAX),
            // The kernel caches each spelling of a name separately.
            keep: if ignores_case { Duration::ZERO } else { TTL },
            known: Mutex::default(),
            listings: Listings::default(),
            statistics,
        }
    }

    /// Checks the length of a name.
    fn name<'a>(&self, name: &'a OsStr) -> Result<&'a [u8], Errno> {
        name_of(name, self.name_max)
    }

    /// FUSE's number of the root is 1.
    fn ino(&self, ino: INodeNo) -> Result<Ino, Errno> {
        if ino == INodeNo::ROOT {
            return Ok(self.root);
        }
        u32::try_from(ino.0).map(Ino::new).map_err(|_| Errno::ENOENT)
    }

    fn number(&self, ino: Ino) -> INodeNo {
        number(self.root, ino)
    }

    fn shown(&self, attr: &Attr) -> (FileAttr, Generation) {
        (file_attr(attr, self.number(attr.ino), self.block_size), generation(attr))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a lookup of an inode by the kernel: it is held until it is forgotten.
    fn remember(&self, live: &mut dyn Operate, ino: Ino) -> Result<(), Errno> {
        if ino == self.root {
            return Ok(());
        }
        let mut known = self.known();
        let count = known.entry(u64::from(ino.get())).or_default();
        if *count == 0 {
            live.hold(ino).map_err(errno)?;
        }
        *count += 1;
        Ok(())
    }

    fn change<T>(
        &self,
        uid: u32,
        operation: impl FnOnce(&mut dyn Operate) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        change(&self.volume, uid, operation)
    }

    /// Makes a file durable. Others use the file system while it is committed.
    fn durable(&self, request: &Request, ino: Ino) -> Result<(), Errno> {
        let locked = || {
            let mut live = self.volume.lock();
            live.spend_reserve(request.uid() == 0);
            live
        };
        let begun = locked().start_fsync(ino).map_err(errno)?;
        while let Some(begun) = begun {
            let work = self.volume.lock().work_towards(begun).map_err(errno)?;
            let Some(work) = work else { break };
            work();
        }
        let (mut parts, mut rewritten) = (FsyncParts::default(), Vec::new());
        while let Some(work) = {
            let mut live = locked();
            let work = live.fsync_part(ino, &mut parts);
            rewritten.extend(live.take_rewritten());
            work.map_err(errno)?
        } {
            work();
        }
        self.volume.forget_rewritten(rewritten);
        self.volume.write_queued().map_err(errno)
    }

    fn forget_times(&self, ino: u64, times: u64) {
        let mut live = self.volume.lock();
        let mut known = self.known();
        let Some(count) = known.get_mut(&ino) else { return };
        *count = count.saturating_sub(times);
        if *count > 0 {
            return;
        }
        known.remove(&ino);
        drop(known);
        let Ok(ino) = u32::try_from(ino) else { return };
        let released = live.release(Ino::new(ino));
        drop(live);
        // A failure here is only logged; the next change fails.
        if let Err(error) = released.and_then(|()| self.volume.write_queued()) {
            errno(error);
        }
    }

    /// Performs an operation that returns an entry, and answers the kernel.
    fn entry(
        &self,
        request: &Request,
        reply: ReplyEntry,
        make: impl FnOnce(&mut dyn Operate) -> Result<Attr, Errno>,
    ) {
        let made = self.change(request.uid(), |live| {
            let attr = make(live)?;
            self.remember(live, attr.ino)?;
            Ok(self.shown(&attr))
        });
        answer_entry(reply, made, self.keep());
    }

    fn make(
        &self,
        request: &Request,
        place: (INodeNo, &OsStr),
        new: NewFile<'_>,
        (perm, umask): (u32, u32),
        reply: ReplyEntry,
    ) {
        let (perm, umask) = ((perm & 0o7777) as u16, (umask & 0o777) as u16);
        let owner = Ownership { uid: request.uid(), gid: request.gid(), perm };
        self.entry(request, reply, |live| {
            let dir = self.ino(place.0)?;
            live.make_masked(dir, place.1.as_bytes(), new, owner, umask).map_err(errno)
        });
    }

    /// Performs a removal or a renaming, and answers the kernel. While the volume is recovered,
    /// directories keep their names: `is_of_directory` tells whether it concerns one, which then
    /// waits, on a thread of its own, for others to be served meanwhile. Where the recovery has
    /// failed, a directory may have a second name, and nothing can be done to either.
    fn change_names(
        &self,
        request: &Request,
        reply: ReplyEmpty,
        is_of_directory: impl FnOnce(&mut dyn Operate) -> Result<bool, Errno>,
        operation: impl FnOnce(&mut dyn Operate) -> Result<(), Errno> + Send + 'static,
    ) {
        let uid = request.uid();
        if self.volume.recovered() == Recovered::Yes {
            return answer_empty(reply, change(&self.volume, uid, operation));
        }
        let waits = is_of_directory(&mut *self.volume.lock());
        match waits {
            Ok(false) => answer_empty(reply, change(&self.volume, uid, operation)),
            Ok(true) => {
                let volume = self.volume.clone();
                let wait = move || match volume.wait_for_recovery() {
                    Recovered::Yes => answer_empty(reply, change(&volume, uid, operation)),
                    Recovered::UnderWay | Recovered::Failed => reply.error(Errno::EBUSY),
                };
                // Without a thread, the reply is dropped with the closure: EIO.
                let _ = std::thread::Builder::new().spawn(wait);
            }
            Err(error) => reply.error(error),
        }
    }

    /// For how long the kernel may cache names and attributes: corrections change them without it.
    fn keep(&self) -> Duration {
        if self.volume.recovered() == Recovered::UnderWay { Duration::ZERO } else { self.keep }
    }

    /// The same for attributes alone.
    fn keep_attr(&self) -> Duration {
        if self.volume.recovered() == Recovered::UnderWay { Duration::ZERO } else { TTL }
    }

    fn done(
        &self,
        request: &Request,
        reply: ReplyEmpty,
        operation: impl FnOnce(&mut dyn Operate) -> Result<(), Errno>,
    ) {
        answer_empty(reply, self.change(request.uid(), operation));
    }
}

/// Performs an operation that changes the file system, for the user `uid`: only the superuser
/// may use reserved blocks. Returns once its queued writes have been performed; the file system
/// is not locked during those.
fn change<T>(
    volume: &Volume,
    uid: u32,
    operation: impl FnOnce(&mut dyn Operate) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut live = ready_to_change(volume);
    live.spend_reserve(uid == 0);
    let done = operation(&mut *live);
    drop(live);
    volume.write_queued().map_err(errno)?;
    done
}

/// The locked file system, once it need not wait for a commit: other operations can proceed
/// during that wait.
fn ready_to_change(volume: &Volume) -> Locked<'_> {
    loop {
        let mut live = volume.lock();
        // The change itself returns a failure.
        let Ok(Some(work)) = live.work_before_change() else { return live };
        drop(live);
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveMountOptions;
    use seekless_cache::Discipline;
    use seekless_device::{BlockDevice, DeviceError, MemoryDevice, RealClock};
    use seekless_fat::{FatWidth, MakeOptions};
    use seekless_units::{ByteLen, Lba};
    use std::sync::Arc;
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicBool, Ordering};

    const SIZE: usize = 4 << 20;

    /// Time limit after which a test has failed.
    const LONGEST: Duration = Duration::from_secs(60);

    /// A device whose flush ends when the gate is open, or fails.
    struct Gate {
        memory: MemoryDevice,
        is_open: Mutex<bool>,
        flushing: Mutex<bool>,
        changed: Condvar,
        fails: AtomicBool,
    }

    impl Gate {
        fn set(&self, which: &Mutex<bool>, value: bool) {
            *which.lock().unwrap() = value;
            self.changed.notify_all();
        }

        fn wait(&self, which: &Mutex<bool>) {
            let value = which.lock().unwrap();
            let waits = |value: &mut bool| !*value;
            let waited = self.changed.wait_timeout_while(value, LONGEST, waits).unwrap();
            assert!(!waited.1.timed_out(), "nobody came");
        }
    }

    impl BlockDevice for Gate {
        fn len(&self) -> ByteLen {
            self.memory.len()
        }

        fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
            self.memory.read(at, buf)
        }

        fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
            self.memory.write(at, buf)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            if self.fails.load(Ordering::Relaxed) {
                let source = std::io::ErrorKind::StorageFull.into();
                return Err(DeviceError::Io { at: Lba::ZERO, source });
            }
            self.set(&self.flushing, true);
            self.wait(&self.is_open);
            Ok(())
        }
    }

    fn mounted(discipline: Discipline) -> (Arc<Gate>, LiveMount) {
        let memory = MemoryDevice::new(vec![0; SIZE]);
        seekless_fat::make(&memory, &MakeOptions::new(Some(FatWidth::Fat12), memory.len()))
            .unwrap();
        let gate = Arc::new(Gate {
            memory,
            is_open: Mutex::new(true),
            flushing: Mutex::new(false),
            changed: Condvar::new(),
            fails: AtomicBool::new(false),
        });
        let options = LiveMountOptions::parse(&[format!("rw,{}", discipline.name())]).unwrap();
        let device: Arc<dyn BlockDevice> = gate.clone();
        let clock = Arc::new(RealClock::new());
        let wall = Box::new(crate::now);
        let volume = Volume::open(device, clock, &options, false, wall).unwrap();
        (gate, LiveMount::new(volume, |_, _, _| String::new()))
    }

    fn make(mount: &LiveMount, name: &[u8]) -> Result<Ino, Errno> {
        let owner = Ownership { uid: 0, gid: 0, perm: 0o644 };
        mount.change(0, |live| {
            let root = live.root();
            Ok(live.make(root, name, NewFile::Regular, owner).map_err(errno)?.ino)
        })
    }

    #[test]
    fn others_read_while_an_operation_waits_for_the_device() {
        for discipline in [Discipline::Sync, Discipline::Normal] {
            let (gate, mount) = mounted(discipline);
            make(&mount, b"first").unwrap();
            gate.set(&gate.flushing, false);
            gate.set(&gate.is_open, false);
            std::thread::scope(|scope| {
                let second = scope.spawn(|| make(&mount, b"second"));
                gate.wait(&gate.flushing);
                // Lookups find both the old file and the one that is not on the disk yet.
                let found = mount.volume.try_lock().map(|mut live| {
                    let root = live.root();
                    [&b"first"[..], b"second"].map(|name| live.lookup(root, name).unwrap())
                });
                let waits = !second.is_finished();
                gate.set(&gate.is_open, true);
                second.join().unwrap().unwrap();
                assert!(waits, "{discipline:?}: it did not wait for the disk");
                let found = found.expect("the file system is locked while the device is flushed");
                assert!(found.iter().all(Option::is_some), "{discipline:?}: {found:?}");
            });
        }
    }

    #[test]
    fn a_flush_that_fails_is_the_failure_of_the_operation_and_of_those_that_follow() {
        for discipline in [Discipline::Sync, Discipline::Normal] {
            let (gate, mount) = mounted(discipline);
            make(&mount, b"first").unwrap();
            gate.fails.store(true, Ordering::Relaxed);
            assert!(make(&mount, b"second").is_err(), "{discipline:?}");
            gate.fails.store(false, Ordering::Relaxed);
            assert!(make(&mount, b"third").is_err(), "{discipline:?}");
            assert!(mount.volume.unmount().is_err(), "{discipline:?}");
        }
    }
}
