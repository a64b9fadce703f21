//! Files of a copy. A file gets its name when it is complete; if the copy fails, an older file of that
//! name stays.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;

/// Number of hidden names that are tried. Files of the image may have the first ones.
const NAMES: u32 = 1000;

/// A file that does not have its name yet.
pub(super) struct Incoming<'a> {
    dir: BorrowedFd<'a>,
    name: &'a OsStr,
    /// Only of a regular file.
    file: Option<File>,
    /// The name until then; a regular file has none where the file system can do without.
    hidden: Option<OsString>,
}

impl<'a> Incoming<'a> {
    /// An empty regular file for the name `name` in `dir`, and a handle on it.
    pub(super) fn regular(dir: BorrowedFd<'a>, name: &'a OsStr) -> Result<(File, Self)> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from(0o600);
        let mut incoming = Self { dir, name, file: None, hidden: None };
        let nameless = rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, mode);
        let fd = match nameless {
            // Without /proc it could not be given its name.
            Ok(fd) if Path::new("/proc/self/fd").exists() => fd,
            _ => {
                let new = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                incoming.hide(|hidden| rustix::fs::openat(dir, hidden, new, mode))?
            }
        };
        let file = File::from(fd);
        let handle = OwnedFd::from(file.try_clone().map_err(|error| errno(&error))?);
        incoming.file = Some(file);
        Ok((File::from(handle), incoming))
    }

    /// A file that `make` creates, under a name that it is given, for the name `name` in `dir`.
    pub(super) fn other(
        dir: BorrowedFd<'a>,
        name: &'a OsStr,
        make: impl FnMut(&OsStr) -> Result<()>,
    ) -> Result<Self> {
        let mut incoming = Self { dir, name, file: None, hidden: None };
        incoming.hide(make)?;
        Ok(incoming)
    }

    /// The present name of a file that [`other`](Self::other) made.
    pub(super) fn name_now(&self) -> &OsStr {
        self.hidden.as_deref().unwrap_or(self.name)
    }

    /// Gives the file its name, and replaces an older file of that name. A directory is an error.
    pub(super) fn finish(mut self) -> Result<()> {
        if let (Some(file), None) = (self.file.take(), &self.hidden) {
            let handle = format!("/proc/self/fd/{}", file.as_raw_fd());
            let dir = self.dir;
            let link = |name: &OsStr| {
                rustix::fs::linkat(CWD, handle.as_str(), dir, name, AtFlags::SYMLINK_FOLLOW)
            };
            match link(self.name) {
                Err(Errno::EXIST) => self.hide(link)?,
                done => return done,
            }
        }
        // Two names of one file are left as they are, so the hidden one is removed in any case.
        rustix::fs::renameat(self.dir, self.name_now(), self.dir, self.name)
    }

    /// Makes a file under a hidden name that is free.
    fn hide<T>(&mut self, mut make: impl FnMut(&OsStr) -> Result<T>) -> Result<T> {
        for number in 0..NAMES {
            let hidden = OsString::from(format!(".seekless-{}-{number}", std::process::id()));
            match make(&hidden) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
                Ok(made) => {
                    self.hidden = Some(hidden);
                    return Ok(made);
                }
            }
        }
        Err(Errno::EXIST)
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = rustix::fs::unlinkat(self.dir, hidden, AtFlags::empty());
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
