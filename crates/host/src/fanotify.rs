//! Opens and accesses of a whole file system (fanotify(7)).

use crate::HostError;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::FileType;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

const RIGHTS: &str = "watching a file system needs root or CAP_SYS_ADMIN: run it with sudo";
const LACKING: &str = "this kernel has no fanotify (CONFIG_FANOTIFY): use --source tracefs";

/// What was done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// Opened.
    Open,
    /// Opened to be run.
    Exec,
    /// Read, or listed.
    Access,
}

/// Something that was done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// When it was heard of, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// The thread.
    pub tid: u32,
    /// What.
    pub did: Did,
    /// Inode number.
    pub ino: u64,
    /// Whether it is a directory.
    pub directory: bool,
    /// The thread's name, when paths were asked for.
    pub comm: Option<String>,
    /// Where the file is, as this process sees it, when that was asked for.
    pub path: Option<Vec<u8>>,
}

/// How much is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// What is done through this mount: in a namespace of its own, by those in it.
    Mount,
    /// What anyone does.
    FileSystem,
}

/// Hears of all opens and accesses on a file system.
#[derive(Debug)]
pub struct Watch {
    group: Fanotify,
    paths: bool,
    /// Events did not fit in the kernel's queue.
    pub overflowed: bool,
}

impl Watch {
    /// Watches the mount that holds `path`, or all mounts of its file system;
    /// `paths` asks for where the files are, and for accesses; without it only opens
    /// are heard of, which costs those who read nothing.
    ///
    /// # Errors
    /// Without the right to, with what to do.
    pub fn new(path: &Path, scope: Scope, paths: bool) -> Result<Self, HostError> {
        let failed = |error: nix::Error| {
            let advice = if error == nix::Error::ENOSYS { LACKING } else { RIGHTS };
            let whole = HostError::new(
                format!("fanotify on {}", path.display()),
                std::io::Error::from(error),
            );
            match error {
                nix::Error::EPERM | nix::Error::EACCES | nix::Error::ENOSYS => whole.advise(advice),
                _ => whole,
            }
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

    /// Appends what was noticed, without waiting; whether there was anything.
    ///
    /// # Errors
    /// When the system fails to say.
    pub fn read(&mut self, noticed: &mut Vec<Noticed>) -> Result<bool, HostError> {
        let events = match self.group.read_events() {
            Ok(events) => events,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(false),
            // The file of an event cannot be opened any more: the event is gone.
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
        // By the descriptor: while the root is switched there is no /proc to ask.
        let Ok(stat) = rustix::fs::fstat(fd) else { return };
        let link = || Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string());
        let path = self.paths.then(|| std::fs::read_link(link()).ok()).flatten();
        let path = path.map(|path| path.into_os_string().into_vec());
        let comm = self.paths.then(|| crate::program::name_of(tid)).flatten();
        let time = crate::now();
        // One event may stand for several things done; that is their order.
        let kinds = [
            (MaskFlags::FAN_OPEN_EXEC, Did::Exec),
            (MaskFlags::FAN_OPEN, Did::Open),
            (MaskFlags::FAN_ACCESS, Did::Access),
        ];
        for (_, did) in kinds.into_iter().filter(|(flag, _)| mask.contains(*flag)) {
            let ino = stat.st_ino;
            let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let (path, comm) = (path.clone(), comm.clone());
            noticed.push(Noticed { time, tid, did, ino, directory, comm, path });
        }
    }

    /// Waits until there is something to read, at most `millis`.
    pub fn wait(&self, millis: u16) {
        use nix::poll::{PollFd, PollFlags, poll};
        let fd = std::os::fd::AsFd::as_fd(&self.group);
        let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], millis);
    }
}
