//! Opens and accesses of a whole file system (fanotify(7)).

use crate::HostError;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::FileType;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

const RIGHTS: &str = "watching a file system needs root or CAP_SYS_ADMIN: run it with sudo";

/// The kind of access to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Opened.
    Open,
    /// Opened to be run.
    Exec,
    /// Read, or listed.
    Access,
}

/// An access to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Time of arrival, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// Thread number.
    pub tid: u32,
    /// Kind of access.
    pub did: AccessKind,
    /// Inode number.
    pub ino: u64,
    /// Whether it is a directory.
    pub directory: bool,
    /// The thread's name, if paths were asked for.
    pub comm: Option<String>,
    /// The file's path, as this process sees it, if paths were asked for.
    pub path: Option<Vec<u8>>,
}

/// The scope of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Accesses through this mount. In a private mount namespace these are the accesses of the
    /// processes in it.
    Mount,
    /// Accesses by any process.
    FileSystem,
}

/// A watch on all opens and accesses of a file system.
#[derive(Debug)]
pub struct Watch {
    group: Fanotify,
    paths: bool,
    /// Whether the kernel's queue overflowed and events were lost.
    pub overflowed: bool,
}

impl Watch {
    /// Watches the mount that contains `path`, or all mounts of its file system. With `paths`,
    /// events carry the file's path and include accesses; without, only opens are reported, so
    /// reads cost nothing.
    ///
    /// # Errors
    /// Without the right to, with advice; of the kind [`Unsupported`](std::io::ErrorKind::Unsupported)
    /// where the kernel has no fanotify.
    pub fn new(path: &Path, scope: Scope, paths: bool) -> Result<Self, HostError> {
        let failed = |error: nix::Error| {
            let what = format!("fanotify on {}", path.display());
            HostError::new(what, std::io::Error::from(error)).advise_rights(RIGHTS)
        };
        let flags = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::FAN_UNLIMITED_QUEUE
            | InitFlags::FAN_REPORT_TID;
        let event_flags = EventFFlags::O_RDONLY
            | EventFFlags::O_LARGEFILE
            | EventFFlags::O_CLOEXEC
            | EventFFlags::O_NOATIME;
        let group = Fanotify::init(flags, event_flags).map_err(failed)?;
        let mut mask = MaskFlags::FAN_OPEN | MaskFlags::FAN_OPEN_EXEC | MaskFlags::FAN_ONDIR;
        if paths {
            mask |= MaskFlags::FAN_ACCESS;
        }
        let scope = match scope {
            Scope::Mount => MarkFlags::FAN_MARK_MOUNT,
            Scope::FileSystem => MarkFlags::FAN_MARK_FILESYSTEM,
        };
        let marks = MarkFlags::FAN_MARK_ADD | scope;
        let here = rustix::fs::CWD;
        group.mark(marks, mask, here, Some(path)).map_err(failed)?;
        Ok(Self { group, paths, overflowed: false })
    }

    /// Appends pending events, without waiting. Returns whether there were any.
    ///
    /// # Errors
    /// The system call's error.
    pub fn read(&mut self, noticed: &mut Vec<Noticed>) -> Result<bool, HostError> {
        let events = match self.group.read_events() {
            Ok(events) => events,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(false),
            // The file of an event can no longer be opened: the event is lost.
            Err(
                nix::Error::ETXTBSY | nix::Error::ENOENT | nix::Error::ESTALE | nix::Error::EACCES,
            ) => {
                return Ok(true);
            }
            Err(error) => return Err(HostError::new("fanotify", std::io::Error::from(error))),
        };
        let any = !events.is_empty();
        for event in events {
            let mask = event.mask();
            self.overflowed |= mask.contains(MaskFlags::FAN_Q_OVERFLOW);
            let Some(fd) = event.fd() else { continue };
            let tid = u32::try_from(event.pid()).unwrap_or(0);
            self.push(fd, mask, tid, noticed);
        }
        Ok(any)
    }

    fn push(&self, fd: BorrowedFd<'_>, mask: MaskFlags, tid: u32, noticed: &mut Vec<Noticed>) {
        // Uses the descriptor: while the root is switched, /proc is not mounted.
        let Ok(stat) = rustix::fs::fstat(fd) else { return };
        let link = || Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string());
        let path = self.paths.then(|| std::fs::read_link(link()).ok()).flatten();
        let path = path.map(|path| path.into_os_string().into_vec());
        let comm = self.paths.then(|| crate::program::name_of(tid)).flatten();
        let time = crate::now();
        // The kernel merges events; this is the order of their causes.
        let kinds = [
            (MaskFlags::FAN_OPEN_EXEC, AccessKind::Exec),
            (MaskFlags::FAN_OPEN, AccessKind::Open),
            (MaskFlags::FAN_ACCESS, AccessKind::Access),
        ];
        for (_, did) in kinds.into_iter().filter(|(flag, _)| mask.contains(*flag)) {
            let ino = stat.st_ino;
            let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let (path, comm) = (path.clone(), comm.clone());
            noticed.push(Noticed { time, tid, did, ino, directory, comm, path });
        }
    }

    /// Waits for events, at most `millis` milliseconds.
    pub fn wait(&self, millis: u16) {
        use nix::poll::{PollFd, PollFlags, poll};
        let fd = std::os::fd::AsFd::as_fd(&self.group);
        let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], millis);
    }
}
