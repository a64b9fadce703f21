//! The operations of a script: done on the file system, and recorded in the history with their
//! expected results.

use super::Driver;
use crate::history::{Contents, FileId, Passing, Renamed, Scope};
use crate::script::{Op, Path};
use crate::sparse::Sparse;
use seekless_device::Clock;
use seekless_fs::operate::{NewFile, Ownership, RenameMode, SetAttr, Trim, XattrMode};
use seekless_fs::{FileKind, FsError};
use seekless_units::{ByteLen, Nanos};
use std::collections::BTreeSet;

/// Owner and permissions of the files that workloads make.
const OWNER: Ownership = Ownership { uid: 7, gid: 8, perm: 0o644 };
const SECOND: Nanos = Nanos::new(1_000_000_000);

impl Driver {
    pub(super) fn operation(&mut self, op: &Op) -> Result<Passing, FsError> {
        let mut passing = Passing::default();
        match op {
            Op::Open(path) => self.open(path)?,
            Op::Close => self.close()?,
            Op::Mkdir(path) => {
                self.make(path, NewFile::Directory, 0o755, Contents::default())?;
            }
            Op::Symlink(target, path) => {
                let contents =
                    Contents { bytes: Sparse::from(target.as_bytes()), ..Contents::default() };
                self.make(path, NewFile::Symlink(target.as_bytes()), OWNER.perm, contents)?;
            }
            Op::Link(from, to) => self.link(from, to)?,
            Op::Unlink(path) => self.remove(path, false)?,
            Op::Rmdir(path) => self.remove(path, true)?,
            Op::Rename(from, to) => passing = self.rename(from, to)?,
            Op::Exchange(from, to) => passing = self.exchange(from, to)?,
            Op::Write(path, at, len) => {
                let file = self.file(path.as_ref())?;
                self.write(file, *at, *len)?;
            }
            Op::Append(path, len) => {
                let file = self.file(path.as_ref())?;
                let size = self.history.contents(file).bytes.len();
                self.write(file, size, *len)?;
            }
            Op::Truncate(path, len) => self.truncate(path.as_ref(), *len)?,
            Op::Fallocate(path, at, len) => self.fallocate(path.as_ref(), *at, *len)?,
            Op::SetXattr(path, name, len) => {
                let value = self.pattern(0, *len);
                self.set_xattr(path.as_ref(), name, Some(value))?;
            }
            Op::RemoveXattr(path, name) => self.set_xattr(path.as_ref(), name, None)?,
            Op::Fsync(path) => {
                let file = self.file(path.as_ref())?;
                self.live.operate().fsync(self.history.files[file].ino)?;
                self.promise(Scope::File(file));
            }
            Op::Sync => {
                self.live.operate().sync()?;
                self.promise(Scope::All);
            }
            Op::Trim => {
                let mut trim = Trim { next: 0, end: u64::MAX, least: 0, trimmed: 0 };
                while self.live.operate().trim_some(&mut trim)? {}
                self.promise(Scope::All);
            }
            Op::Pass(seconds) => {
                for _ in 0..*seconds {
                    self.clock.sleep(SECOND);
                    self.live.operate().tick()?;
                }
            }
            Op::Writeback(seed) => {
                self.write_some(*seed)?;
            }
            Op::Checkpoint(label) => {
                if let Some(recorder) = &self.recorder {
                    recorder.mark(label);
                }
            }
        }
        Ok(passing)
    }

    fn promise(&mut self, scope: Scope) {
        let since = self.position();
        self.history.promise(scope, since);
    }

    /// The file that a name in a directory leads to. The file system is asked too, as it is by
    /// every program: it learns a file's names from lookups.
    fn step(&mut self, dir: FileId, name: &[u8]) -> Result<Option<FileId>, FsError> {
        let found = self.history.lookup(dir, name);
        let held = self.live.operate().lookup(self.history.files[dir].ino, name)?;
        let known = found.map(|file| self.history.files[file].ino);
        if held != known {
            let shown = String::from_utf8_lossy(name);
            let what = format!("`{shown}` refers to {held:?}, should be {known:?}");
            return Err(FsError::Invalid(what));
        }
        Ok(found)
    }

    /// The directory a path lies in.
    fn parent(&mut self, path: &Path) -> Result<FileId, FsError> {
        let mut at = 0;
        for part in path.parents() {
            let next = self.step(at, part)?;
            at = next.ok_or_else(|| FsError::NotFound(path.to_string()))?;
        }
        Ok(at)
    }

    fn find(&mut self, path: &Path) -> Result<FileId, FsError> {
        let parent = self.parent(path)?;
        let found = self.step(parent, path.name())?;
        found.ok_or_else(|| FsError::NotFound(path.to_string()))
    }

    fn file(&mut self, path: Option<&Path>) -> Result<FileId, FsError> {
        match path {
            Some(path) => self.find(path),
            None => self.open.ok_or_else(|| FsError::Invalid("no file is open".into())),
        }
    }

    fn dir(&mut self, path: &Path) -> Result<(FileId, seekless_units::Ino), FsError> {
        let parent = self.parent(path)?;
        Ok((parent, self.history.files[parent].ino))
    }

    fn open(&mut self, path: &Path) -> Result<(), FsError> {
        self.close()?;
        let file = match self.find(path) {
            Ok(file) => file,
            Err(_) => self.make(path, NewFile::Regular, OWNER.perm, Contents::default())?,
        };
        self.live.operate().hold(self.history.files[file].ino)?;
        self.open = Some(file);
        Ok(())
    }

    fn close(&mut self) -> Result<(), FsError> {
        match self.open.take() {
            Some(file) => self.live.operate().release(self.history.files[file].ino),
            None => Ok(()),
        }
    }

    fn make(
        &mut self,
        path: &Path,
        new: NewFile<'_>,
        perm: u16,
        contents: Contents,
    ) -> Result<FileId, FsError> {
        let (dir, at) = self.dir(path)?;
        let made = self.live.operate().make(at, path.name(), new, Ownership { perm, ..OWNER })?;
        let file = self.history.add_file(made.ino, made.kind, perm, contents);
        self.history.set_name(dir, path.name(), Some(file));
        Ok(file)
    }

    fn link(&mut self, from: &Path, to: &Path) -> Result<(), FsError> {
        let file = self.find(from)?;
        let (dir, at) = self.dir(to)?;
        self.live.operate().link(self.history.files[file].ino, at, to.name())?;
        self.history.set_name(dir, to.name(), Some(file));
        Ok(())
    }

    fn remove(&mut self, path: &Path, directory: bool) -> Result<(), FsError> {
        let (dir, at) = self.dir(path)?;
        if directory {
            self.live.operate().rmdir(at, path.name())?;
        } else {
            self.live.operate().unlink(at, path.name())?;
        }
        if let Some(file) = self.history.lookup(dir, path.name()) {
            self.history.lose_name(file);
        }
        self.history.set_name(dir, path.name(), None);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<Passing, FsError> {
        let ((old, old_at), (new, new_at)) = (self.dir(from)?, self.dir(to)?);
        self.live.operate().rename(
            (old_at, from.name()),
            (new_at, to.name()),
            RenameMode::Replace,
        )?;
        let moved = self.history.lookup(old, from.name());
        let replaced = self.history.lookup(new, to.name());
        let mut passing = Passing::default();
        if moved == replaced {
            return Ok(passing);
        }
        let is_directory = |file: FileId| self.history.files[file].kind == FileKind::Directory;
        let moves_directory = moved.is_some_and(is_directory);
        if let Some(file) = replaced {
            self.history.lose_name(file);
            passing.third.insert(new);
            if self.swaps_names && old == new {
                passing.swapped = Some(((old, from.name().to_vec()), file));
            }
        }
        if !self.has_inodes {
            let name = |dir: FileId, path: &Path| (dir, path.name().to_vec());
            let names = [name(old, from), name(new, to)];
            let over = replaced.is_some() && !moves_directory;
            passing.renamed = moved.map(|file| Renamed { file, names, over });
        }
        let has_two = moves_directory || !self.has_inodes;
        passing.asks = has_two.then(|| (new, to.name().to_vec()));
        self.history.set_name(old, from.name(), None);
        self.history.set_name(new, to.name(), moved);
        Ok(passing)
    }

    fn exchange(&mut self, one: &Path, other: &Path) -> Result<Passing, FsError> {
        let ((first, first_at), (second, second_at)) = (self.dir(one)?, self.dir(other)?);
        let (from, to) = ((first_at, one.name()), (second_at, other.name()));
        match self.live.operate().rename(from, to, RenameMode::Exchange) {
            // A program that gets this error goes on without.
            Err(FsError::Unsupported(_)) => return Ok(Passing::default()),
            done => done?,
        }
        let held = self.history.lookup(first, one.name());
        let swapped = self.history.lookup(second, other.name());
        let is_dir = |file: Option<FileId>| {
            file.is_some_and(|file| self.history.files[file].kind == FileKind::Directory)
        };
        let moves_dir = is_dir(held) || is_dir(swapped);
        self.history.set_name(first, one.name(), swapped);
        self.history.set_name(second, other.name(), held);
        // Of a directory a check leaves no name but one of the two.
        let third = if moves_dir { BTreeSet::new() } else { BTreeSet::from([first, second]) };
        Ok(Passing { third, ..Passing::default() })
    }

    /// Bytes that tell this write from others, at a place in a file.
    fn pattern(&mut self, at: u64, len: u64) -> Vec<u8> {
        self.writes += 1;
        let seed = self.writes.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let byte = |n: u64| {
            let mixed = (seed ^ (n >> 2)).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29);
            // Neither zero nor poison.
            (mixed.wrapping_add(n) % 250 + 1) as u8
        };
        (at..at + len).map(byte).collect()
    }

    fn change_contents(&mut self, file: FileId, change: impl FnOnce(&mut Sparse)) {
        let mut held = self.history.contents(file).clone();
        change(&mut held.bytes);
        self.history.set_contents(file, held);
    }

    fn write(&mut self, file: FileId, at: u64, len: u64) -> Result<(), FsError> {
        let bytes = self.pattern(at, len);
        let done =
            self.live.operate().write(self.history.files[file].ino, ByteLen::new(at), &bytes)?;
        if done < bytes.len() {
            return Err(FsError::NoSpace(format!("{done} of {len} bytes were written")));
        }
        self.change_contents(file, |held| held.write(at, &bytes));
        Ok(())
    }

    fn truncate(&mut self, path: Option<&Path>, len: u64) -> Result<(), FsError> {
        let file = self.file(path)?;
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        self.live.operate().set_attr(self.history.files[file].ino, &set)?;
        self.change_contents(file, |held| held.resize(len));
        Ok(())
    }

    fn fallocate(&mut self, path: Option<&Path>, at: u64, len: u64) -> Result<(), FsError> {
        let file = self.file(path)?;
        let ino = self.history.files[file].ino;
        self.live.operate().allocate(ino, ByteLen::new(at), ByteLen::new(len), false)?;
        self.change_contents(file, |held| held.resize(held.len().max(at + len)));
        Ok(())
    }

    fn set_xattr(
        &mut self,
        path: Option<&Path>,
        name: &str,
        value: Option<Vec<u8>>,
    ) -> Result<(), FsError> {
        let file = self.file(path)?;
        let ino = self.history.files[file].ino;
        let mut contents = self.history.contents(file).clone();
        match value {
            Some(value) => {
                let set = self.live.operate();
                match set.set_xattr(ino, name.as_bytes(), &value, XattrMode::Any) {
                    // A value that is too large for the format changes nothing.
                    Err(FsError::NoSpace(_)) => return Ok(()),
                    done => done?,
                }
                contents.xattrs.insert(name.as_bytes().to_vec(), value);
            }
            None => {
                if contents.xattrs.contains_key(name.as_bytes()) {
                    self.live.operate().remove_xattr(ino, name.as_bytes())?;
                }
                contents.xattrs.remove(name.as_bytes());
            }
        }
        self.history.set_contents(file, contents);
        Ok(())
    }
}
