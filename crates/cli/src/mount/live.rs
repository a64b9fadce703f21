//! A read-write FUSE file system over anything that can [`Operate`].
//!
//! Nobody but us changes the image, so the kernel may keep names, attributes
//! and pages for as long as it likes: whatever changes them comes through it.
//! Files are opened and closed without a message; what an unlinked file holds
//! is kept until the kernel has forgotten its inode.

mod caller;
mod calls;
mod listing;

use super::kernel::{
    NAME_MAX, TTL, answer_empty, answer_entry, errno, file_attr, generation, name_of,
};
use fuser::{Errno, FileAttr, Generation, INodeNo, ReplyEmpty, ReplyEntry, Request};
use listing::Listings;
use seekless_formats::InUse;
use seekless_fs::operate::{FsyncParts, NewFile, Operate, Ownership};
use seekless_fs::{Attr, FsError};
use seekless_units::Ino;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A file system in use, shared with whoever ticks and closes it.
pub(crate) type Shared = Arc<Mutex<Box<dyn InUse>>>;

/// Locks it. A panic elsewhere has been reported there.
pub(crate) fn lock(live: &Shared) -> Locked<'_> {
    Locked(live.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A file system in use, locked.
pub(crate) struct Locked<'a>(MutexGuard<'a, Box<dyn InUse>>);

impl Deref for Locked<'_> {
    type Target = dyn Operate;

    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut **self.0
    }
}

/// A file system in use as FUSE sees it.
pub(crate) struct LiveMount {
    live: Shared,
    root: Ino,
    block_size: u32,
    /// Longest name, in bytes.
    name_max: usize,
    /// How long the kernel may keep what a name leads to.
    keep: Duration,
    /// How often the kernel was told of an inode that it has not forgotten.
    known: Mutex<HashMap<u64, u64>>,
    listings: Listings,
}

impl LiveMount {
    pub(crate) fn new(live: Shared) -> Self {
        let (root, space, ignores_case) = {
            let mut live = lock(&live);
            (live.root(), live.space(), live.ignores_case())
        };
        Self {
            live,
            root,
            block_size: space.block_size,
            name_max: (space.name_max as usize).max(NAME_MAX),
            // The kernel knows each spelling of a name by itself.
            keep: if ignores_case { Duration::ZERO } else { TTL },
            known: Mutex::default(),
            listings: Listings::default(),
        }
    }

    /// A name that is not too long.
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
        if ino == self.root { INodeNo::ROOT } else { INodeNo(u64::from(ino.get())) }
    }

    fn shown(&self, attr: &Attr) -> (FileAttr, Generation) {
        (file_attr(attr, self.number(attr.ino), self.block_size), generation(attr))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is told of an inode once more: it is held until it forgets.
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

    /// The file system, for whoever asks: only the superuser may take what is
    /// kept from the others.
    fn changing(&self, request: &Request) -> Locked<'_> {
        let mut live = self.ready_to_change();
        live.spend_reserve(request.uid() == 0);
        live
    }

    /// The file system, once it need not wait for a commit: that is waited for without
    /// keeping it from the others.
    fn ready_to_change(&self) -> Locked<'_> {
        loop {
            let mut live = lock(&self.live);
            // What has failed is told to the change itself.
            let Ok(Some(work)) = live.work_before_change() else { return live };
            drop(live);
            work();
        }
    }

    /// Has a file on the disk. Others use the file system while it is committed.
    fn durable(&self, request: &Request, ino: Ino) -> Result<(), Errno> {
        let locked = || {
            let mut live = lock(&self.live);
            live.spend_reserve(request.uid() == 0);
            live
        };
        let begun = locked().start_fsync(ino).map_err(errno)?;
        while let Some(begun) = begun {
            let work = lock(&self.live).work_towards(begun).map_err(errno)?;
            let Some(work) = work else { break };
            work();
        }
        let mut parts = FsyncParts::default();
        while let Some(work) = {
            let work = locked().fsync_part(ino, &mut parts);
            work.map_err(errno)?
        } {
            work();
        }
        Ok(())
    }

    fn forget_times(&self, ino: u64, times: u64) {
        let mut live = lock(&self.live);
        let mut known = self.known();
        let Some(count) = known.get_mut(&ino) else { return };
        *count = count.saturating_sub(times);
        if *count > 0 {
            return;
        }
        known.remove(&ino);
        drop(known);
        let Ok(ino) = u32::try_from(ino) else { return };
        // Nobody hears of a failure here but the log; the next change fails.
        if let Err(error) = live.release(Ino::new(ino)) {
            errno(error);
        }
    }

    /// Does something that gives an entry, and tells the kernel.
    fn entry(
        &self,
        request: &Request,
        reply: ReplyEntry,
        make: impl FnOnce(&mut dyn Operate) -> Result<Attr, Errno>,
    ) {
        let mut live = self.changing(request);
        let made = make(&mut *live).and_then(|attr| {
            self.remember(&mut *live, attr.ino)?;
            Ok(self.shown(&attr))
        });
        drop(live);
        answer_entry(reply, made, self.keep);
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

    fn done(
        &self,
        request: &Request,
        reply: ReplyEmpty,
        operation: impl FnOnce(&mut dyn Operate) -> Result<(), Errno>,
    ) {
        let done = operation(&mut *self.changing(request));
        answer_empty(reply, done);
    }
}

/// Does each second what is due, until the file system is closed.
pub(crate) fn tick(live: &Shared, stopped: &std::sync::mpsc::Receiver<()>) {
    let second = std::time::Duration::from_secs(1);
    lock(live).leave_work();
    while stopped.recv_timeout(second) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let ticked = lock(live).tick();
        match ticked.and_then(|()| work(live)) {
            Ok(()) | Err(FsError::ReadOnly(_)) => {}
            Err(error) => crate::say::warning!("mount: {error}"),
        }
    }
}

/// Does what waits for the device, while others use the file system.
fn work(live: &Shared) -> Result<(), FsError> {
    loop {
        let work = lock(live).work()?;
        match work {
            Some(work) => work(),
            None => return Ok(()),
        }
    }
}
