//! An image that is aged through its live engine, in virtual time.

use super::ledger::Room;
use super::op::{Contents, DirId, FileId, Op, Place};
use super::profile::Profile;
use super::score::{ByteRun, FileLayout};
use super::subject::{Applied, Subject, put};
use seekless_device::{Clock, VirtualClock};
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr};
use seekless_units::{ByteLen, Ino, Nanos};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Most bytes of one write, as copying programs have it.
const PIECE: u64 = 128 << 10;
const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
const DIR_OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

/// An image in use.
pub struct ImageSubject<'a> {
    live: &'a mut dyn Operate,
    clock: Arc<VirtualClock>,
    unit: u64,
    block: ByteLen,
    /// Inodes by the stream's numbers.
    dirs: Vec<Option<Ino>>,
    files: Vec<Option<Ino>>,
    buffer: Vec<u8>,
}

impl<'a> ImageSubject<'a> {
    /// Ages a file system in use, whose clock is given, in its root or in a
    /// directory there, which is made if it is not there. The blocks kept from
    /// ordinary users are left alone.
    ///
    /// # Errors
    /// [`FsError::Exists`] when something in the root has a name that the profile
    /// needs, [`FsError::NotEmpty`] when something is in the directory.
    pub fn new(
        live: &'a mut dyn Operate,
        clock: Arc<VirtualClock>,
        profile: &Profile,
        into: Option<&str>,
    ) -> Result<Self, FsError> {
        live.spend_reserve(false);
        let mut base = live.root();
        match into {
            Some(name) => base = working_dir(live, base, name)?,
            None => check_free(live, base, profile)?,
        }
        let space = live.space();
        Ok(Self {
            live,
            clock,
            unit: u64::from(space.block_size),
            block: ByteLen::new(u64::from(space.file_block)),
            dirs: vec![Some(base)],
            files: Vec::new(),
            buffer: vec![0; PIECE as usize],
        })
    }

    fn dir(&self, dir: DirId) -> Result<Ino, FsError> {
        let ino = self.dirs.get(dir.0).copied().flatten();
        ino.ok_or_else(|| FsError::NotFound(format!("directory {}", dir.0)))
    }

    fn file(&self, file: FileId) -> Result<Ino, FsError> {
        let ino = self.files.get(file.0).copied().flatten();
        ino.ok_or_else(|| FsError::NotFound(format!("file {}", file.0)))
    }

    fn create(
        &mut self,
        file: FileId,
        place: &Place,
        len: ByteLen,
        contents: Contents,
    ) -> Result<(), FsError> {
        let dir = self.dir(place.dir)?;
        let ino = self.live.make(dir, place.name.as_bytes(), NewFile::Regular, OWNER)?.ino;
        put(&mut self.files, file.0, Some(ino));
        self.write(ino, ByteLen::ZERO, len, contents).inspect_err(|_| {
            // A partly written file is removed. Should this fail too, the next operation reports
            // why.
            let _ = self.live.unlink(dir, place.name.as_bytes());
        })
    }

    fn append(
        &mut self,
        file: FileId,
        at: ByteLen,
        len: ByteLen,
        contents: Contents,
    ) -> Result<(), FsError> {
        let ino = self.file(file)?;
        self.write(ino, at, len, contents).or_else(|error| {
            let set = SetAttr { size: Some(at.get()), ..SetAttr::default() };
            self.live.set_attr(ino, &set)?;
            Err(error)
        })
    }

    fn write(
        &mut self,
        ino: Ino,
        from: ByteLen,
        len: ByteLen,
        contents: Contents,
    ) -> Result<(), FsError> {
        let end = from.get() + len.get();
        let mut at = from.get();
        while at < end {
            let part = &mut self.buffer[..(end - at).min(PIECE) as usize];
            contents.fill(ByteLen::new(at), part);
            // Blocks whose freeing is pending may suffice for the rest: the next call waits for
            // them, or returns an error if they do not.
            at += self.live.write(ino, ByteLen::new(at), part)? as u64;
        }
        Ok(())
    }

    fn perform(&mut self, op: &Op) -> Result<(), FsError> {
        match op {
            Op::MakeDir { dir, place } => {
                let parent = self.dir(place.dir)?;
                let name = place.name.as_bytes();
                let made = self.live.make(parent, name, NewFile::Directory, DIR_OWNER)?;
                put(&mut self.dirs, dir.0, Some(made.ino));
                Ok(())
            }
            Op::RemoveDir { place, .. } => {
                self.live.rmdir(self.dir(place.dir)?, place.name.as_bytes())
            }
            Op::Create { file, place, len, contents } => self.create(*file, place, *len, *contents),
            Op::Append { file, at, len, contents, .. } => self.append(*file, *at, *len, *contents),
            Op::Truncate { file, len, .. } => {
                let set = SetAttr { size: Some(len.get()), ..SetAttr::default() };
                self.live.set_attr(self.file(*file)?, &set).map(drop)
            }
            Op::Link { file, to, .. } => {
                let dir = self.dir(to.dir)?;
                self.live.link(self.file(*file)?, dir, to.name.as_bytes()).map(drop)
            }
            Op::Rename { from, to, .. } => {
                let from = (self.dir(from.dir)?, from.name.as_bytes());
                let to = (self.dir(to.dir)?, to.name.as_bytes());
                self.live.rename(from, to, RenameMode::Replace)
            }
            Op::Delete { place, .. } | Op::Unlink { place, .. } => {
                self.live.unlink(self.dir(place.dir)?, place.name.as_bytes())
            }
        }
    }
}

/// A directory that is made, or empty.
fn working_dir(live: &mut dyn Operate, root: Ino, name: &str) -> Result<Ino, FsError> {
    let Some(ino) = live.lookup(root, name.as_bytes())? else {
        return Ok(live.make(root, name.as_bytes(), NewFile::Directory, DIR_OWNER)?.ino);
    };
    let mut empty = true;
    live.read_dir(ino, 0, &mut |entry| {
        empty &= matches!(entry.name, b"." | b"..");
        if empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if empty { Ok(ino) } else { Err(FsError::NotEmpty(format!("/{name}"))) }
}

fn check_free(live: &mut dyn Operate, root: Ino, profile: &Profile) -> Result<(), FsError> {
    for class in &profile.classes {
        let top = &class.directory.top;
        if live.lookup(root, top.as_bytes())?.is_some() {
            return Err(FsError::Exists(format!("/{top}")));
        }
    }
    Ok(())
}

impl Subject for ImageSubject<'_> {
    fn apply(&mut self, op: &Op) -> Result<Applied, FsError> {
        match self.perform(op) {
            Ok(()) => Ok(Applied::Done),
            Err(FsError::NoSpace(_)) => Ok(Applied::Full),
            Err(FsError::NotPermitted(_) | FsError::Unsupported(_))
                if matches!(op, Op::Link { .. }) =>
            {
                Ok(Applied::LeftOut)
            }
            Err(error) => Err(error),
        }
    }

    fn advance(&mut self, to: Nanos) -> Result<(), FsError> {
        let behind = to.saturating_since(self.clock.now());
        if behind > 0 {
            self.clock.sleep(Nanos::new(behind));
            self.live.tick()?;
        }
        Ok(())
    }

    fn room(&mut self) -> Result<Room, FsError> {
        let space = self.live.space();
        let bytes = |blocks: u64| ByteLen::new(blocks * self.unit);
        Ok(Room {
            used: bytes(space.blocks - space.free),
            available: bytes(space.available),
            unit: ByteLen::new(self.unit),
            // FAT has none.
            free_inodes: (space.inodes > 0).then_some(space.free_inodes),
        })
    }

    fn is_exact(&self) -> bool {
        true
    }

    fn settle(&mut self) -> Result<(), FsError> {
        Ok(())
    }

    fn layout(&mut self, file: FileId) -> Result<Option<FileLayout>, FsError> {
        let ino = self.file(file)?;
        let runs = self.live.data_runs(ino)?;
        let bytes = |blocks: u64| ByteLen::new(blocks * self.unit);
        let run = |run: &seekless_fs::Mapping| ByteRun {
            at: bytes(run.extent.start.get()),
            len: bytes(run.extent.len),
        };
        let runs: Vec<ByteRun> = runs.iter().map(run).collect();
        Ok(FileLayout::of(&runs, self.block))
    }
}
