//! Output files that appear whole or not at all.
//!
//! The bytes go to a file without a name in the target's directory, which is given its name when
//! everything is written. A process that is killed leaves nothing behind, except in the moment in
//! which a file replaces another one: the file left then under a hidden name is removed by the next
//! output of that name. If the file system does not support nameless files, a hidden temporary file
//! is used, and removed on failure.
//!
//! An output never replaces one of its inputs, nor an image that is in use.

use crate::error::Error;
use crate::{in_use, snapshot_path};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock};
use rustix::io::Errno;
use seekless_device::DeviceError;
use seekless_fs::FsError;
use seekless_fs::term::{Term, Text};
use seekless_host::block_device::{self, backing_file};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The inputs of an output that is made from no file.
pub const NO_INPUTS: [&Path; 0] = [];

/// A file being written.
pub struct Output {
    file: File,
    /// The file that will be replaced. Its lock keeps it from being mounted until then.
    _replaced: Option<File>,
    target: PathBuf,
    /// The temporary name, if it has one.
    temporary: Option<PathBuf>,
    force: bool,
}

impl Output {
    /// Begins writing `target`; without `force` it must not exist. It is made from `inputs`, files
    /// and directories of sources.
    ///
    /// # Errors
    /// As [`refuse_inputs`]; [`ErrorKind::System`](crate::ErrorKind) if the file exists, or is an
    /// image in use, [`ErrorKind::Usage`](crate::ErrorKind) if it is no regular file; I/O errors.
    pub fn create(
        target: &Path,
        force: bool,
        inputs: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> Result<Self, Error> {
        let exists = target.symlink_metadata().is_ok();
        if exists && !target.is_file() {
            return Err(Error::usage("not a regular file").about(target.display()));
        }
        if exists && !force {
            return Err(in_the_way(target, to_replace()));
        }
        refuse_inputs(target, inputs)?;
        let replaced = if exists { locked(target)? } else { None };
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
        Ok(Self { file, _replaced: replaced, target: target.into(), temporary, force })
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

/// Refuses to replace a file that is one of the inputs, also under another name (by a symlink or a
/// hard link) or behind a loop device, or that lies inside a directory that is one: the output would
/// find its predecessor there.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind) with the input.
pub fn refuse_inputs(
    output: &Path,
    inputs: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<(), Error> {
    let metadata = output.metadata().ok();
    // Devices, pipes and terminals only have their nodes in a directory.
    let place = match &metadata {
        Some(meta) if !meta.is_file() && !meta.is_dir() => None,
        Some(_) => output.canonicalize().ok(),
        None => directory_of(output).canonicalize().ok(),
    };
    for input in inputs {
        let input = input.as_ref();
        let file = input_file(input);
        let Ok(read) = file.metadata() else { continue };
        let is_same = |meta: &std::fs::Metadata| {
            metadata.as_ref().is_some_and(|own| (own.dev(), own.ino()) == (meta.dev(), meta.ino()))
        };
        let behind = || {
            let backing = backing_file(block_device::number(&file)?)?;
            backing.metadata().ok()
        };
        if is_same(&read) || behind().as_ref().is_some_and(is_same) {
            return Err(is_input(output, input));
        }
        let is_inside = || Some(place.as_ref()?.starts_with(file.canonicalize().ok()?));
        if read.is_dir() && is_inside() == Some(true) {
            let what = format!("would lie inside its source, {}", input.display());
            return Err(Error::usage(what).about(output.display()));
        }
    }
    Ok(())
}

/// The file that is read for an input: `-` is standard input, `IMAGE@SNAPSHOT` a part of an image.
pub fn input_file(input: &Path) -> Cow<'_, Path> {
    if input == Path::new("-") {
        return Cow::Borrowed(Path::new("/dev/stdin"));
    }
    snapshot_path::file_of(input)
}

/// The error for an output that is one of its inputs.
pub(crate) fn is_input(output: &Path, input: &Path) -> Error {
    let what = format!("would be written over an input, {}", input.display());
    Error::usage(what).about(output.display())
}

/// Opens a file that will be replaced, with a shared lock. Refuses one that is mounted, or that
/// another process changes. A file that cannot be read is not locked.
fn locked(target: &Path) -> Result<Option<File>, Error> {
    in_use::refuse_mounted(target)?;
    let Ok(file) = File::open(target) else { return Ok(None) };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {
            Err(Error::from(FsError::from(DeviceError::InUse)).about(target.display()))
        }
        // A file system without locks has none that could be held.
        _ => Ok(Some(file)),
    }
}

/// Writes a file that replaces an existing one of its name when it is complete. It is made from
/// `inputs`. A device or a pipe of that name is written to; a reader that has gone is no failure.
///
/// # Errors
/// As [`refuse_inputs`]; I/O errors, including those of `write`.
pub fn replace(
    target: &Path,
    inputs: impl IntoIterator<Item = impl AsRef<Path>>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let failed = |error| Error::io(target.display(), &error);
    let to = |file| {
        let mut out = BufWriter::new(file);
        write(&mut out).and_then(|()| out.flush())
    };
    if is_written_to(target) {
        refuse_inputs(target, inputs)?;
        let file = File::options().write(true).open(target).map_err(failed)?;
        return match to(file) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
            _ => Ok(()),
        };
    }
    let output = Output::create(target, true, inputs)?;
    to(output.file()?).map_err(failed)?;
    output.finish()
}

/// Whether [`replace`] writes to the file of this name, and does not replace it: a device, a pipe, or
/// a file which this process has open.
pub fn is_written_to(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) || is_open(path)
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
