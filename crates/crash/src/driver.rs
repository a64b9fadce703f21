//! Doing what a script says, on a file system whose device keeps a log.

use crate::history::{Contents, Deed, FileId, History, Scope};
use crate::log::Log;
use crate::recorder::Recorder;
use crate::script::{Line, Op, Path, Script};
use crate::target::{Live, Target};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Counters, Discipline};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_fs::operate::{NewFile, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError};
use seekless_units::{ByteLen, GroupNo, Lba, Nanos};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What every byte of a free block is when a workload begins. No write of a
/// workload has it, nor zeros: so what is read of a block that was never written
/// is known for that.
pub const POISON: u8 = 0xFD;

/// Owner and permissions of what workloads make.
const OWNER: Ownership = Ownership { uid: 7, gid: 8, perm: 0o644 };
const SECOND: Nanos = Nanos::new(1_000_000_000);
/// Random rounds of writing before everything is synced, where order was tampered
/// with.
const ROUNDS: u32 = 24;

/// Why a workload could not be done.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An operation failed.
    #[error("{script}: {}`{op}`: {source}", line_of(.line))]
    Operation {
        /// The script's name.
        script: String,
        /// Its line; 0 where nobody wrote it.
        line: u32,
        /// The operation.
        op: String,
        /// Why.
        source: Box<FsError>,
    },
    /// Making or opening the file system failed.
    #[error("making or opening the file system: {0}")]
    Volume(#[from] FsError),
}

fn line_of(line: &u32) -> String {
    if *line == 0 { String::new() } else { format!("line {line}: ") }
}

/// The image that a workload begins with, and what is on it.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its bytes.
    pub image: Arc<[u8]>,
    /// What they are: moment 0 of a workload's history.
    pub history: History,
}

/// How a workload is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    /// How the cache behaves.
    pub config: Config,
    /// Once an order was dropped ([`Config::drop_order`]), blocks are written so
    /// that the loss can show, in the way of this number.
    pub after_drop: Option<u64>,
}

impl How {
    /// A small cache with a discipline.
    #[must_use]
    pub fn new(discipline: Discipline) -> Self {
        let mut config = Config::new(discipline);
        config.capacity = ByteLen::new(1 << 20);
        Self { config, after_drop: None }
    }
}

/// What a workload wrote, did and was promised.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it began with.
    pub base: Arc<[u8]>,
    /// What the device was told.
    pub log: Log,
    /// What was done.
    pub history: History,
    /// What the cache counted.
    pub counters: Counters,
    /// Steps in the log when an order was dropped.
    pub dropped_at: Option<usize>,
}

/// Makes the image that a workload begins with: an empty file system and what
/// `setup` does to it, all on the disk.
///
/// # Errors
/// [`RunError`].
pub fn prepare(target: &dyn Target, name: &str, setup: &[Line]) -> Result<Base, RunError> {
    let len = usize::try_from(target.image_len().get()).unwrap_or(0);
    let device = Arc::new(MemoryDevice::new(vec![0; len]));
    target.make(device.as_ref())?;
    poison(target, &device)?;
    let mut driver = Driver::new(target, device.clone(), None, &How::new(Discipline::Async), None)?;
    for line in setup {
        driver.line(name, line)?;
    }
    driver.live.operate().unmount()?;
    let history = driver.history.settled();
    Ok(Base { image: bytes_of(device.as_ref())?.into(), history })
}

/// Fills all that is free with [`POISON`].
fn poison(target: &dyn Target, device: &Arc<MemoryDevice>) -> Result<(), FsError> {
    let image = target.open(Arc::clone(device) as Arc<dyn BlockDevice>)?;
    let size = u64::from(image.geometry().block_size);
    for group in (0..image.geometry().groups).map(GroupNo::new) {
        for run in image.group(group)?.free {
            let at = Lba::containing(ByteLen::new(run.start.get() * size));
            let len = usize::try_from(run.len * size).unwrap_or(0);
            device.write(at, &vec![POISON; len])?;
        }
    }
    Ok(())
}

fn bytes_of(device: &dyn BlockDevice) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; usize::try_from(device.len().get()).unwrap_or(0)];
    device.read(Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// Does the body of a script, from opening the file system to closing it.
///
/// # Errors
/// [`RunError`].
pub fn record(
    target: &dyn Target,
    base: &Base,
    script: &Script,
    how: &How,
) -> Result<Run, RunError> {
    let device = Arc::new(MemoryDevice::new(base.image.to_vec()));
    let recorder = Arc::new(Recorder::new(device));
    let mut driver = Driver::new(
        target,
        recorder.clone(),
        Some(recorder.clone()),
        how,
        Some(base.history.clone()),
    )?;
    for line in &script.body {
        driver.line(&script.name, line)?;
    }
    driver.finish(&script.name)?;
    let counters = *driver.live.counters();
    let dropped_at = driver.dropped_at;
    Ok(Run {
        base: base.image.clone(),
        log: recorder.take(),
        history: driver.history,
        counters,
        dropped_at,
    })
}

struct Driver {
    live: Box<dyn Live>,
    clock: Arc<VirtualClock>,
    recorder: Option<Arc<Recorder>>,
    history: History,
    open: Option<FileId>,
    /// Every call is durable once it returns.
    synchronous: bool,
    writes: u64,
    after_drop: Option<u64>,
    chaos: Pcg64Mcg,
    dropped_at: Option<usize>,
}

/// What an operation did that its deed records.
type Passing = BTreeSet<FileId>;

impl Driver {
    fn new(
        target: &dyn Target,
        device: Arc<dyn BlockDevice>,
        recorder: Option<Arc<Recorder>>,
        how: &How,
        history: Option<History>,
    ) -> Result<Self, RunError> {
        let clock = Arc::new(VirtualClock::new());
        let mut live = target.mount(device, clock.clone(), how.config)?;
        let root = live.operate().root();
        let history = history.unwrap_or_else(|| History::new(root));
        Ok(Self {
            live,
            clock,
            recorder,
            // Writes of the setup and of the body are told apart.
            writes: history.files.len() as u64 * 1000,
            history,
            open: None,
            synchronous: how.config.discipline == Discipline::Sync,
            after_drop: how.after_drop,
            chaos: Pcg64Mcg::seed_from_u64(how.after_drop.unwrap_or(0)),
            dropped_at: None,
        })
    }

    fn position(&self) -> usize {
        self.recorder.as_ref().map_or(0, |recorder| recorder.position())
    }

    fn line(&mut self, script: &str, line: &Line) -> Result<(), RunError> {
        let failed = |source| RunError::Operation {
            script: script.to_string(),
            line: line.number,
            op: line.op.to_string(),
            source: Box::new(source),
        };
        let began = self.position();
        self.history.begin();
        let passing = self.operation(&line.op).map_err(failed)?;
        self.end(began, line.number, line.op.to_string(), passing);
        self.disturb(began, ROUNDS / 2).map_err(failed)
    }

    fn end(&mut self, began: usize, line: u32, text: String, passing: Passing) {
        let ended = self.position();
        self.history.end(Deed { began, ended, line, text, passing });
        if self.synchronous {
            self.history.promise(Scope::All, ended);
        }
    }

    /// Once an order was dropped: what it kept from happening does happen, as
    /// one block is late, and others are written.
    fn disturb(&mut self, began: usize, rounds: u32) -> Result<(), FsError> {
        let (Some(dropped), Some(variant)) = (self.live.counters().dropped, self.after_drop) else {
            return Ok(());
        };
        self.dropped_at.get_or_insert(began);
        let late: Vec<u64> = dropped.late.into_iter().flatten().collect();
        let choices = late.len().max(1) as u64;
        let held = late.get((variant % choices) as usize).copied();
        // First all others, then any of them.
        let all = variant / choices == 0;
        for _ in 0..rounds {
            let seed = self.chaos.next_u64();
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut pick =
                |block: u64| Some(block) != held && (all || rng.next_u64().is_multiple_of(2));
            if !self.live.write_some(&mut pick)? && all {
                break;
            }
        }
        Ok(())
    }

    fn write_some(&mut self, seed: u64) -> Result<bool, FsError> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        // From one block in four to three in four.
        let odds = rng.next_u64() % 3 + 1;
        self.live.write_some(&mut |_| rng.next_u64() % 4 < odds)
    }

    /// Everything is written, and the file system closed.
    fn finish(&mut self, script: &str) -> Result<(), RunError> {
        let began = self.position();
        self.disturb(began, ROUNDS)?;
        self.line(script, &Line::made(Op::Sync))?;
        let began = self.position();
        self.history.begin();
        self.live.operate().unmount()?;
        self.end(began, 0, "unmount".into(), Passing::new());
        Ok(())
    }

    fn operation(&mut self, op: &Op) -> Result<Passing, FsError> {
        let mut passing = Passing::new();
        match op {
            Op::Open(path) => self.open(path)?,
            Op::Close => self.close()?,
            Op::Mkdir(path) => {
                self.make(path, NewFile::Directory, 0o755, Contents::default())?;
            }
            Op::Symlink(target, path) => {
                let contents = Contents { bytes: target.as_bytes().into(), ..Contents::default() };
                self.make(path, NewFile::Symlink(target.as_bytes()), OWNER.perm, contents)?;
            }
            Op::Link(from, to) => self.link(from, to)?,
            Op::Unlink(path) => self.remove(path, false)?,
            Op::Rmdir(path) => self.remove(path, true)?,
            Op::Rename(from, to) => self.rename(from, to)?,
            Op::Exchange(from, to) => passing = self.exchange(from, to)?,
            Op::Write(path, at, len) => {
                let file = self.file(path.as_ref())?;
                self.write(file, *at, *len)?;
            }
            Op::Append(path, len) => {
                let file = self.file(path.as_ref())?;
                let size = self.history.contents(file).bytes.len() as u64;
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

    /// The directory a path lies in.
    fn parent(&self, path: &Path) -> Result<FileId, FsError> {
        let mut at = 0;
        for part in path.parents() {
            let next = self.history.lookup(at, part);
            at = next.ok_or_else(|| FsError::NotFound(path.to_string()))?;
        }
        Ok(at)
    }

    fn find(&self, path: &Path) -> Result<FileId, FsError> {
        let parent = self.parent(path)?;
        let found = self.history.lookup(parent, path.name());
        found.ok_or_else(|| FsError::NotFound(path.to_string()))
    }

    fn file(&self, path: Option<&Path>) -> Result<FileId, FsError> {
        match path {
            Some(path) => self.find(path),
            None => self.open.ok_or_else(|| FsError::Invalid("no file is open".into())),
        }
    }

    fn dir(&self, path: &Path) -> Result<(FileId, seekless_units::Ino), FsError> {
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

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), FsError> {
        let ((old, old_at), (new, new_at)) = (self.dir(from)?, self.dir(to)?);
        self.live.operate().rename(
            (old_at, from.name()),
            (new_at, to.name()),
            RenameMode::Replace,
        )?;
        let moved = self.history.lookup(old, from.name());
        let replaced = self.history.lookup(new, to.name());
        if moved == replaced {
            return Ok(());
        }
        if let Some(file) = replaced {
            self.history.lose_name(file);
        }
        self.history.set_name(old, from.name(), None);
        self.history.set_name(new, to.name(), moved);
        Ok(())
    }

    fn exchange(&mut self, one: &Path, other: &Path) -> Result<Passing, FsError> {
        let ((first, first_at), (second, second_at)) = (self.dir(one)?, self.dir(other)?);
        let (from, to) = ((first_at, one.name()), (second_at, other.name()));
        self.live.operate().rename(from, to, RenameMode::Exchange)?;
        let held = self.history.lookup(first, one.name());
        let swapped = self.history.lookup(second, other.name());
        self.history.set_name(first, one.name(), swapped);
        self.history.set_name(second, other.name(), held);
        Ok(Passing::from([first, second]))
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

    fn change_contents(&mut self, file: FileId, change: impl FnOnce(&mut Vec<u8>)) {
        let held = self.history.contents(file).clone();
        let mut bytes = held.bytes.to_vec();
        change(&mut bytes);
        self.history.set_contents(file, Contents { bytes: bytes.into(), ..held });
    }

    fn write(&mut self, file: FileId, at: u64, len: u64) -> Result<(), FsError> {
        let bytes = self.pattern(at, len);
        let done =
            self.live.operate().write(self.history.files[file].ino, ByteLen::new(at), &bytes)?;
        if done < bytes.len() {
            return Err(FsError::NoSpace(format!("{done} of {len} bytes were written")));
        }
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        self.change_contents(file, |held| {
            if held.len() < start + bytes.len() {
                held.resize(start + bytes.len(), 0);
            }
            held[start..start + bytes.len()].copy_from_slice(&bytes);
        });
        Ok(())
    }

    fn truncate(&mut self, path: Option<&Path>, len: u64) -> Result<(), FsError> {
        let file = self.file(path)?;
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        self.live.operate().set_attr(self.history.files[file].ino, &set)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.change_contents(file, |held| held.resize(len, 0));
        Ok(())
    }

    fn fallocate(&mut self, path: Option<&Path>, at: u64, len: u64) -> Result<(), FsError> {
        let file = self.file(path)?;
        let ino = self.history.files[file].ino;
        self.live.operate().allocate(ino, ByteLen::new(at), ByteLen::new(len), false)?;
        let end = usize::try_from(at + len).unwrap_or(usize::MAX);
        self.change_contents(file, |held| {
            if held.len() < end {
                held.resize(end, 0);
            }
        });
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
                self.live.operate().set_xattr(ino, name.as_bytes(), &value, XattrMode::Any)?;
                contents.xattrs.insert(name.as_bytes().to_vec(), value);
            }
            None => {
                self.live.operate().remove_xattr(ino, name.as_bytes())?;
                contents.xattrs.remove(name.as_bytes());
            }
        }
        self.history.set_contents(file, contents);
        Ok(())
    }
}

/// What a kind is called in findings.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        _ => "special file",
    }
}
