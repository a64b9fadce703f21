//! Output files that appear whole or not at all.
//!
//! The bytes go to a file without a name in the target's directory, which is given its name when
//! everything is written. A process that is killed leaves nothing behind, except in the moment in
//! which a file replaces another one: the file left then under a hidden name is removed by the next
//! output of that name. If the file system does not support nameless files, a hidden temporary file
//! is used, and removed on failure.

use crate::error::Error;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use seekless_fs::term::{Term, Text};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A file being written.
pub struct Output {
    file: File,
    target: PathBuf,
    /// The temporary name, if it has one.
    temporary: Option<PathBuf>,
    force: bool,
}

impl Output {
    /// Begins writing `target`; without `force` it must not exist.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind) if the file exists,
    /// [`ErrorKind::Usage`](crate::ErrorKind) if it is no regular file; I/O errors.
    pub fn create(target: &Path, force: bool) -> Result<Self, Error> {
        let exists = target.symlink_metadata().is_ok();
        if exists && !target.is_file() {
            return Err(Error::usage(format!("{}: not a regular file", target.display())));
        }
        if exists && !force {
            return Err(in_the_way(target, to_replace()));
        }
        // The target of a link is replaced, not the link: it may be /dev/stdout.
        let resolved = if target.is_symlink() { target.canonicalize().ok() } else { None };
        let target = resolved.as_deref().unwrap_or(target);
        remove_left_behind(target);
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let (file, temporary) = match rustix::fs::open(directory_of(target), flags, mode) {
            // Without /proc it could not be given its name.
            Ok(fd) if Path::new("/proc/self/fd").exists() => (File::from(fd), None),
            _ => {
                let path = hidden_name(target);
                let file = File::options()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .open(&path)
                    .map_err(|error| Error::io(target.display(), &error))?;
                (file, Some(path))
            }
        };
        Ok(Self { file, target: target.into(), temporary, force })
    }

    /// Another handle on the file.
    ///
    /// # Errors
    /// I/O errors.
    pub fn file(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(|error| Error::io(self.target.display(), &error))
    }

    /// The present path of the file for other programs.
    pub fn path_now(&self) -> PathBuf {
        self.temporary.clone().unwrap_or_else(|| name_of(&self.file))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind) if a file of that name was created in the meantime; I/O
    /// errors.
    pub fn finish(mut self) -> Result<(), Error> {
        let failed = |error| match error {
            // Created by another process in the meantime.
            Errno::EXIST => in_the_way(&self.target, to_replace()),
            error => Error::io(self.target.display(), &error.into()),
        };
        let named = match &self.temporary {
            Some(path) => path.clone(),
            None => {
                let handle = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let link = |to: &Path| {
                    rustix::fs::linkat(CWD, handle.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW)
                };
                if !self.force {
                    return link(&self.target).map_err(failed);
                }
                // A name cannot be linked over: link beside, then rename.
                let path = hidden_name(&self.target);
                link(&path).map_err(failed)?;
                path
            }
        };
        let flags = if self.force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let moved = rustix::fs::renameat_with(CWD, &named, CWD, &self.target, flags);
        self.temporary = if moved.is_ok() { None } else { Some(named) };
        moved.map_err(failed)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes a file that replaces an existing one of its name when it is complete. A device or a pipe
/// of that name is written to; a reader that has gone is no failure.
///
/// # Errors
/// I/O errors, including those of `write`.
pub fn replace(
    target: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let failed = |error| Error::io(target.display(), &error);
    let to = |file| {
        let mut out = BufWriter::new(file);
        write(&mut out).and_then(|()| out.flush())
    };
    if target.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) || is_open(target) {
        let file = File::options().write(true).open(target).map_err(failed)?;
        return match to(file) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
            _ => Ok(()),
        };
    }
    let output = Output::create(target, true)?;
    to(output.file()?).map_err(failed)?;
    output.finish()
}

/// Whether a path is that of a file which this process has open, such as /dev/stdout.
fn is_open(path: &Path) -> bool {
    let link = path.read_link();
    path.starts_with("/proc") || link.is_ok_and(|to| to.starts_with("/proc"))
}

/// The error for a file that must not exist yet, with a hint.
pub fn in_the_way(path: &Path, hint: impl Into<Text>) -> Error {
    Error::exists(path.display()).hint(hint)
}

/// The hint that a file in the way can be replaced.
pub fn to_replace() -> Text {
    Text::from("use ").then(Term::Force).then(" to replace it")
}

/// The path under which other programs find an open file while this process lives.
pub fn name_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// The directory of a path.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn hidden_name(target: &Path) -> PathBuf {
    directory_of(target).join(format!("{}{}", hidden_prefix(target), std::process::id()))
}

fn hidden_prefix(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.seekless-")
}

/// Removes hidden files for `target` whose processes are gone.
fn remove_left_behind(target: &Path) {
    if !Path::new("/proc/self").exists() {
        return;
    }
    let prefix = hidden_prefix(target);
    let Ok(entries) = std::fs::read_dir(directory_of(target)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        let Some(owner) = owner.and_then(|id| id.parse::<u32>().ok()) else { continue };
        if !Path::new("/proc").join(owner.to_string()).exists() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
