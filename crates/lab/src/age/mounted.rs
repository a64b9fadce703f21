//! A file system of the kernel's that is aged through system calls, with real data. Nothing sleeps:
//! virtual time only decides the order of operations.

use super::ledger::Room;
use super::op::{Contents, DirId, FileId, Op, Place};
use super::score::{ByteRun, FileLayout};
use super::subject::{Applied, Subject, put};
use seekless_fs::FsError;
use seekless_units::{ByteLen, Nanos};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Most bytes of one write, as copying programs have it.
const PIECE: u64 = 128 << 10;

/// Queries to the running kernel.
pub trait Kernel {
    /// How much room there is (statvfs).
    ///
    /// # Errors
    /// Errors of the system call.
    fn room(&mut self) -> Result<Room, FsError>;

    /// Writes everything back, so that all blocks are allocated.
    ///
    /// # Errors
    /// Errors of the system call.
    fn settle(&mut self) -> Result<(), FsError>;

    /// A file's extents, in order; `None` where the file system cannot report them.
    ///
    /// # Errors
    /// Errors of the system call.
    fn runs(&mut self, path: &Path) -> Result<Option<Vec<ByteRun>>, FsError>;
}

/// A directory of a mounted file system.
pub struct MountedSubject<K> {
    kernel: K,
    block: ByteLen,
    /// Paths by the stream's numbers.
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    buffer: Vec<u8>,
}

impl<K: Kernel> MountedSubject<K> {
    /// Ages the file system that a directory lies on, in that directory, which
    /// is made if it is not there.
    ///
    /// # Errors
    /// [`FsError::NotEmpty`] when something is in it; [`FsError::Io`].
    pub fn new(dir: PathBuf, mut kernel: K) -> Result<Self, FsError> {
        let block = kernel.room()?.unit;
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(&dir).map_err(|error| failed(&dir, error))?;
                if entries.next().is_some() {
                    return Err(FsError::NotEmpty(dir.display().to_string()));
                }
            }
            made => made.map_err(|error| failed(&dir, error))?,
        }
        let buffer = vec![0; PIECE as usize];
        Ok(Self { kernel, block, dirs: vec![dir], files: Vec::new(), buffer })
    }

    fn path(&self, place: &Place) -> PathBuf {
        let DirId(dir) = place.dir;
        self.dirs.get(dir).cloned().unwrap_or_default().join(&place.name)
    }

    fn create(&mut self, path: &Path, len: ByteLen, contents: Contents) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        self.write(&mut file, ByteLen::ZERO, len, contents).inspect_err(|_| {
            // A partly written file is removed. Should this fail too, the next operation reports
            // why.
            let _ = fs::remove_file(path);
        })
    }

    fn append(
        &mut self,
        path: &Path,
        at: ByteLen,
        len: ByteLen,
        contents: Contents,
    ) -> io::Result<()> {
        let mut file = File::options().write(true).open(path)?;
        file.seek(SeekFrom::Start(at.get()))?;
        self.write(&mut file, at, len, contents).or_else(|error| {
            file.set_len(at.get())?;
            Err(error)
        })
    }

    fn write(
        &mut self,
        file: &mut File,
        from: ByteLen,
        len: ByteLen,
        contents: Contents,
    ) -> io::Result<()> {
        let end = from.get() + len.get();
        let mut at = from.get();
        while at < end {
            let part = &mut self.buffer[..(end - at).min(PIECE) as usize];
            contents.fill(ByteLen::new(at), part);
            file.write_all(part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn perform(&mut self, op: &Op, path: &Path) -> io::Result<()> {
        match op {
            Op::MakeDir { dir, .. } => {
                fs::create_dir(path)?;
                put(&mut self.dirs, dir.0, path.to_path_buf());
                Ok(())
            }
            Op::RemoveDir { .. } => fs::remove_dir(path),
            Op::Create { file, len, contents, .. } => {
                self.create(path, *len, *contents)?;
                put(&mut self.files, file.0, path.to_path_buf());
                Ok(())
            }
            Op::Append { at, len, contents, .. } => self.append(path, *at, *len, *contents),
            Op::Rename { file, to, .. } => {
                let to = self.path(to);
                fs::rename(path, &to)?;
                put(&mut self.files, file.0, to);
                Ok(())
            }
            Op::Truncate { len, .. } => File::options().write(true).open(path)?.set_len(len.get()),
            Op::Link { to, .. } => fs::hard_link(path, self.path(to)),
            Op::Delete { .. } | Op::Unlink { .. } => fs::remove_file(path),
        }
    }
}

fn failed(path: &Path, error: io::Error) -> FsError {
    FsError::io(path.display().to_string(), error)
}

fn place_of(op: &Op) -> &Place {
    match op {
        Op::MakeDir { place, .. }
        | Op::RemoveDir { place, .. }
        | Op::Create { place, .. }
        | Op::Append { place, .. }
        | Op::Truncate { place, .. }
        | Op::Unlink { place, .. }
        | Op::Link { from: place, .. }
        | Op::Rename { from: place, .. }
        | Op::Delete { place, .. } => place,
    }
}

impl<K: Kernel> Subject for MountedSubject<K> {
    fn apply(&mut self, op: &Op) -> Result<Applied, FsError> {
        let path = self.path(place_of(op));
        match self.perform(op, &path) {
            Ok(()) => Ok(Applied::Done),
            Err(error) => match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Ok(Applied::Full),
                // The errors of Linux for a file system without hard links (link(2)).
                ErrorKind::PermissionDenied | ErrorKind::Unsupported
                    if matches!(op, Op::Link { .. }) =>
                {
                    Ok(Applied::LeftOut)
                }
                _ => Err(failed(&path, error)),
            },
        }
    }

    fn advance(&mut self, _to: Nanos) -> Result<(), FsError> {
        Ok(())
    }

    fn room(&mut self) -> Result<Room, FsError> {
        self.kernel.room()
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn settle(&mut self) -> Result<(), FsError> {
        self.kernel.settle()
    }

    fn layout(&mut self, file: FileId) -> Result<Option<FileLayout>, FsError> {
        let Some(path) = self.files.get(file.0) else { return Ok(None) };
        let runs = self.kernel.runs(path)?;
        Ok(runs.and_then(|runs| FileLayout::of(&runs, self.block)))
    }
}
