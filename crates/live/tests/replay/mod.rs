//! Operations, done by the engine and by a plain model of a file system alike.

mod model;
pub(crate) mod op;

use model::{Body, Model, No};
use op::{Name, New, Place};
pub(crate) use op::{Op, ops};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError, Inspect, Timestamp};
use seekless_live::{Live, Named};
use seekless_units::{ByteLen, Ino, Nanos};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The time of day, always the same.
pub(crate) const WALL: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// What a format has to say of an image for its operations to be compared.
pub(crate) struct Parts<F: Named> {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) live: Live<F>,
    /// Opens the image to read it.
    pub(crate) open: fn(Arc<dyn BlockDevice>) -> Arc<dyn Inspect>,
    /// Whether files have extended attributes.
    pub(crate) attributes: bool,
}

pub(crate) struct Replay<F: Named> {
    device: Arc<MemoryDevice>,
    clock: Arc<VirtualClock>,
    /// The engine. Names that begin with a dot are not the model's.
    pub(crate) live: Live<F>,
    open: fn(Arc<dyn BlockDevice>) -> Arc<dyn Inspect>,
    attributes: bool,
    model: Model,
    /// The engine's inode of each of the model's files.
    inos: BTreeMap<usize, Ino>,
    /// How often the volume was full.
    pub(crate) full: u32,
    step: usize,
}

fn no(error: &FsError) -> No {
    match error {
        FsError::Exists(_) => No::Exists,
        FsError::NotFound(_) => No::NotFound,
        FsError::NotEmpty(_) => No::NotEmpty,
        FsError::IsDirectory(_) => No::IsDirectory,
        FsError::NotDirectory(_) => No::NotDirectory,
        FsError::Invalid(_) => No::Invalid,
        FsError::NotPermitted(_) => No::NotPermitted,
        other => panic!("unexpected: {other}"),
    }
}

const OWNER: Ownership = Ownership { uid: 3, gid: 4, perm: 0o644 };

fn named(number: u8) -> Vec<u8> {
    let long = if number.is_multiple_of(7) { 120 } else { usize::from(number) % 30 };
    format!("n{number}{}", "x".repeat(long)).into_bytes()
}

fn attribute(number: u8) -> Vec<u8> {
    format!("user.a{number}").into_bytes()
}

fn bytes(len: usize, fill: u64) -> Vec<u8> {
    (0..len as u64).map(|n| (fill.wrapping_mul(n | 1) >> 24) as u8).collect()
}

impl<F: Named> Replay<F> {
    pub(crate) fn of(parts: Parts<F>) -> Self {
        let Parts { device, clock, live, open, attributes } = parts;
        let inos = BTreeMap::from([(0, live.root())]);
        let mut replay = Self {
            device,
            clock,
            live,
            open,
            attributes,
            model: Model::new(),
            inos,
            full: 0,
            step: 0,
        };
        replay.adopt();
        replay
    }

    /// Enters what the root holds from the start: a directory for what is found.
    fn adopt(&mut self) {
        let mut found = Vec::new();
        let root = self.live.root();
        let mut note = |entry: seekless_fs::DirEntry<'_>| {
            if !entry.name.starts_with(b".") {
                found.push((entry.name.to_vec(), entry.ino));
            }
            ControlFlow::Continue(())
        };
        self.live.read_dir(root, 0, &mut note).unwrap();
        for (name, ino) in found {
            let body = Body::Dir(BTreeMap::new());
            let file = self.model.make(0, &name, body).unwrap_or_else(|_| panic!("{name:?}"));
            self.inos.insert(file, ino);
        }
    }

    fn some_dir(&self, pick: u16) -> usize {
        let dirs = self.model.dirs();
        dirs[usize::from(pick) % dirs.len()]
    }

    fn some_name(&self, dir: usize, name: &Name) -> Vec<u8> {
        match *name {
            Name::New(number) => named(number),
            Name::There(pick, number) => {
                let names = self.model.dir(dir);
                let there = names.keys().nth(usize::from(pick) % names.len().max(1));
                there.map_or_else(|| named(number), Vec::clone)
            }
        }
    }

    fn some_file(&self, pick: u16) -> Option<usize> {
        let is_file = |file: &&usize| matches!(self.model.files[file].body, Body::File(_));
        let files: Vec<usize> = self.model.files.keys().filter(is_file).copied().collect();
        files.get(usize::from(pick) % files.len().max(1)).copied()
    }

    /// A place in one of the regular files, whose length is `size`.
    fn place(&self, file: usize, place: &Place) -> usize {
        let Body::File(held) = &self.model.files[&file].body else { return 0 };
        match *place {
            Place::Start => 0,
            Place::End => held.len(),
            Place::Within(at) => at as usize % (held.len() + 1),
            Place::Behind(at, far) => at as usize % (held.len() + far),
        }
    }

    /// What both say must be the same, unless the volume is full.
    fn agree<T, U>(
        &mut self,
        live: Result<T, FsError>,
        model: impl FnOnce(&mut Model) -> Result<U, No>,
    ) -> Option<(T, U)> {
        match live {
            Err(FsError::NoSpace(_)) => {
                self.full += 1;
                None
            }
            Ok(given) => match model(&mut self.model) {
                Ok(expected) => Some((given, expected)),
                Err(why) => panic!("step {}: done, but the model says {why:?}", self.step),
            },
            Err(error) => match model(&mut self.model) {
                Err(why) if why == no(&error) => None,
                Err(why) => panic!("step {}: {error}, the model says {why:?}", self.step),
                Ok(_) => panic!("step {}: {error}, the model says it can be done", self.step),
            },
        }
    }

    pub(crate) fn run(&mut self, ops: &[Op]) {
        for (step, op) in ops.iter().enumerate() {
            self.step = step;
            self.one(op);
            if step % 500 == 499 {
                self.compare();
            }
        }
    }

    fn one(&mut self, op: &Op) {
        match op {
            Op::Make { dir, name, new } => self.make(*dir, *name, new),
            Op::Link { file, dir, name } => self.link(*file, *dir, *name),
            Op::Unlink { dir, name, held } => self.unlink(*dir, name, *held),
            Op::Rmdir { dir, name } => {
                let dir = self.some_dir(*dir);
                let name = self.some_name(dir, name);
                let done = self.live.rmdir(self.inos[&dir], &name);
                self.agree(done, |model| model.rmdir(dir, &name));
            }
            Op::Rename { from, name, to, new, exchange } => {
                let (from, to) = (self.some_dir(*from), self.some_dir(*to));
                let names = (self.some_name(from, name), self.some_name(to, new));
                self.rename((from, &names.0), (to, &names.1), *exchange);
            }
            Op::Sync => self.live.sync().unwrap(),
            Op::Sleep => {
                self.clock.sleep(Nanos::new(3_000_000_000));
                self.live.tick().unwrap();
            }
            Op::Write { file, .. }
            | Op::Truncate { file, .. }
            | Op::Read { file }
            | Op::SetXattr { file, .. }
            | Op::RemoveXattr { file, .. }
            | Op::Allocate { file, .. }
            | Op::Chmod { file }
            | Op::Fsync { file } => {
                if let Some(file) = self.some_file(*file) {
                    self.change(file, op);
                }
            }
        }
    }

    /// An operation on a regular file.
    fn change(&mut self, file: usize, op: &Op) {
        match op {
            Op::Write { at, len, fill, .. } => {
                self.write(file, self.place(file, at), &bytes(*len, *fill));
            }
            Op::Truncate { to, .. } => self.truncate(file, self.place(file, to)),
            Op::SetXattr { name, len, fill, .. } => {
                self.set_xattr(file, &attribute(*name), bytes(*len, *fill));
            }
            Op::RemoveXattr { name, .. } => self.remove_xattr(file, &attribute(*name)),
            Op::Allocate { at, len, .. } => self.allocate(file, self.place(file, at), *len),
            Op::Chmod { .. } => self.chmod(file),
            Op::Fsync { .. } => self.live.fsync(self.inos[&file]).unwrap(),
            _ => {
                let bytes = self.contents(self.inos[&file]);
                assert!(self.model.files[&file].body == Body::File(bytes), "step {}", self.step);
            }
        }
    }

    fn make(&mut self, dir: u16, name: u8, new: &New) {
        let (dir, name) = (self.some_dir(dir), named(name));
        let at = self.inos[&dir];
        let target = vec![b't'; if let New::Symlink(len) = new { *len } else { 0 }];
        let (new, body) = match new {
            New::Regular => (NewFile::Regular, Body::File(Vec::new())),
            New::Directory => (NewFile::Directory, Body::Dir(BTreeMap::new())),
            New::Symlink(_) => (NewFile::Symlink(&target), Body::Link(target.clone())),
            New::Special(kind) => (NewFile::Special(*kind), Body::Other),
        };
        let made = self.live.make(at, &name, new, OWNER);
        if let Some((attr, file)) = self.agree(made, |model| model.make(dir, &name, body)) {
            self.inos.insert(file, attr.ino);
        }
    }

    fn link(&mut self, file: u16, dir: u16, name: u8) {
        let files = &self.model.files;
        let file = *files.keys().nth(usize::from(file) % files.len()).unwrap();
        let (dir, name) = (self.some_dir(dir), named(name));
        let done = self.live.link(self.inos[&file], self.inos[&dir], &name);
        self.agree(done, |model| model.link(file, dir, &name));
    }

    fn unlink(&mut self, dir: u16, name: &Name, held: bool) {
        let dir = self.some_dir(dir);
        let name = self.some_name(dir, name);
        // Somebody may have it open: then it can be read until closed.
        let held = self.model.dir(dir).get(&name).copied().filter(|_| held);
        let held = held.map(|file| (self.inos[&file], self.model.files[&file].clone()));
        if let Some((ino, _)) = &held {
            self.live.hold(*ino).unwrap();
        }
        let done = self.live.unlink(self.inos[&dir], &name);
        self.agree(done, |model| model.unlink(dir, &name));
        if let Some((ino, file)) = held {
            if let Body::File(bytes) = file.body {
                assert_eq!(self.contents(ino), bytes, "step {}: of an open file", self.step);
            }
            self.live.release(ino).unwrap();
        }
    }

    fn rename(&mut self, from: (usize, &[u8]), to: (usize, &[u8]), exchange: bool) {
        let mode = if exchange { RenameMode::Exchange } else { RenameMode::Replace };
        let (a, b) = (self.inos[&from.0], self.inos[&to.0]);
        let done = self.live.rename((a, from.1), (b, to.1), mode);
        if exchange && matches!(done, Err(FsError::Unsupported(_))) {
            // Of a directory whose name lies in another sector: no order of writes serves it.
            return;
        }
        self.agree(done, |model| model.rename(from, to, exchange));
    }

    fn write(&mut self, file: usize, at: usize, bytes: &[u8]) {
        let done = self.live.write(self.inos[&file], ByteLen::new(at as u64), bytes);
        self.agree(done, |_| Ok(())).inspect(|&(done, ())| {
            let Body::File(held) = &mut self.model.files.get_mut(&file).unwrap().body else {
                return;
            };
            if held.len() < at + done {
                held.resize(at + done, 0);
            }
            held[at..at + done].copy_from_slice(&bytes[..done]);
        });
    }

    fn truncate(&mut self, file: usize, new: usize) {
        let set = SetAttr { size: Some(new as u64), ..SetAttr::default() };
        let done = self.live.set_attr(self.inos[&file], &set);
        if self.agree(done, |_| Ok(())).is_some()
            && let Body::File(held) = &mut self.model.files.get_mut(&file).unwrap().body
        {
            held.resize(new, 0);
        }
    }

    fn allocate(&mut self, file: usize, from: usize, len: usize) {
        let (start, count) = (ByteLen::new(from as u64), ByteLen::new(len as u64));
        let done = self.live.allocate(self.inos[&file], start, count, false);
        if self.agree(done, |_| Ok(())).is_some()
            && let Body::File(held) = &mut self.model.files.get_mut(&file).unwrap().body
            && held.len() < from + len
        {
            held.resize(from + len, 0);
        }
    }

    fn contents(&mut self, ino: Ino) -> Vec<u8> {
        let size = self.live.attr(ino).unwrap().size as usize;
        let mut bytes = vec![0xEE; size + 100];
        let read = self.live.read(ino, ByteLen::ZERO, &mut bytes).unwrap();
        bytes.truncate(read);
        bytes
    }

    fn chmod(&mut self, file: usize) {
        let set = SetAttr { perm: Some(0o4711), ..SetAttr::default() };
        self.live.set_attr(self.inos[&file], &set).unwrap();
        self.model.files.get_mut(&file).unwrap().perm = 0o4711;
    }

    fn set_xattr(&mut self, file: usize, name: &[u8], value: Vec<u8>) {
        let done = self.live.set_xattr(self.inos[&file], name, &value, XattrMode::Any);
        if !self.attributes {
            assert!(matches!(done, Err(FsError::Unsupported(_) | FsError::NoSpace(_))));
        } else if self.agree(done, |_| Ok(())).is_some() {
            self.model.files.get_mut(&file).unwrap().xattrs.insert(name.to_vec(), value);
        }
    }

    fn remove_xattr(&mut self, file: usize, name: &[u8]) {
        if !self.attributes {
            return;
        }
        let there = self.model.files.get_mut(&file).unwrap().xattrs.remove(name);
        match self.live.remove_xattr(self.inos[&file], name) {
            Ok(()) => assert!(there.is_some()),
            Err(FsError::NoAttribute(_)) => assert!(there.is_none()),
            Err(FsError::NoSpace(_)) => {
                self.full += 1;
                let value = there.unwrap();
                self.model.files.get_mut(&file).unwrap().xattrs.insert(name.to_vec(), value);
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Makes directories within each other with a file in each, and removes
    /// them again; so many seconds pass in between.
    pub(crate) fn nest_and_remove(&mut self, depth: usize, seconds: u64) {
        let mut dirs = vec![self.live.root()];
        for _ in 0..depth {
            let at = dirs[dirs.len() - 1];
            let file = self.live.make(at, b"file", NewFile::Regular, OWNER).unwrap();
            self.live.write(file.ino, ByteLen::ZERO, &[7; 6000]).unwrap();
            dirs.push(self.live.make(at, b"dir", NewFile::Directory, OWNER).unwrap().ino);
        }
        for _ in 0..seconds {
            self.clock.sleep(Nanos::new(1_000_000_000));
            self.live.tick().unwrap();
        }
        while dirs.len() > 1 {
            dirs.pop();
            let at = dirs[dirs.len() - 1];
            self.live.rmdir(at, b"dir").unwrap();
            self.live.unlink(at, b"file").unwrap();
        }
    }

    /// Compares the whole tree as the engine shows it.
    fn compare(&mut self) {
        let files: Vec<usize> = self.model.files.keys().copied().collect();
        for file in files {
            let ino = self.inos[&file];
            let attr = self.live.attr(ino).unwrap();
            assert_eq!(attr.nlink, self.model.links(file), "step {}: links", self.step);
            if self.model.is_dir(file) {
                let mut shown = BTreeMap::new();
                self.live
                    .read_dir(ino, 0, &mut |entry| {
                        shown.insert(entry.name.to_vec(), entry.ino);
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                assert_eq!(shown.remove(&b"."[..]), Some(ino));
                assert_eq!(
                    shown.remove(&b".."[..]),
                    Some(self.inos[&self.model.files[&file].parent])
                );
                shown.retain(|name, _| !name.starts_with(b"."));
                let names = self.model.dir(file);
                let wanted: BTreeMap<Vec<u8>, Ino> =
                    names.iter().map(|(name, child)| (name.clone(), self.inos[child])).collect();
                assert_eq!(shown, wanted, "step {}: names", self.step);
            } else if let Body::File(bytes) = self.model.files[&file].body.clone() {
                assert!(self.contents(ino) == bytes, "step {}: contents", self.step);
            }
        }
    }

    /// Unmounts, and compares the tree as the reader shows it.
    pub(crate) fn finish(mut self) -> Arc<MemoryDevice> {
        self.compare();
        self.live.unmount().unwrap();
        assert_eq!(self.live.parts().1.cache.blocks().softdeps(), 0);
        let space = self.live.space();
        let device: Arc<dyn BlockDevice> = self.device.clone();
        let image = (self.open)(device);
        assert_eq!(image.geometry().free_blocks, space.free);
        for (file, entry) in &self.model.files {
            let ino = self.inos[file];
            let attr = image.attr(ino).unwrap();
            assert_eq!(attr.nlink, self.model.links(*file));
            match &entry.body {
                Body::File(bytes) => {
                    assert_eq!(attr.perm, entry.perm);
                    let mut held = vec![0; bytes.len() + 1];
                    let mut done = 0;
                    while done < bytes.len() {
                        let at = ByteLen::new(done as u64);
                        done += image.read(ino, at, &mut held[done..]).unwrap();
                    }
                    held.truncate(attr.size as usize);
                    assert!(held == *bytes, "contents of inode {ino}");
                    let runs = image.block_map(ino).unwrap().runs;
                    assert_eq!(self.live.data_runs(ino).unwrap(), runs, "runs of inode {ino}");
                    let xattrs: BTreeMap<Vec<u8>, Vec<u8>> =
                        image.xattrs(ino).unwrap().into_iter().map(|x| (x.name, x.value)).collect();
                    assert_eq!(xattrs, entry.xattrs);
                }
                Body::Link(target) => assert_eq!(image.read_link(ino).unwrap(), *target),
                Body::Dir(names) => {
                    for (name, child) in names {
                        assert_eq!(image.lookup(ino, name).unwrap(), Some(self.inos[child]));
                    }
                }
                Body::Other => assert_eq!(attr.kind, FileKind::Fifo),
            }
        }
        self.device
    }
}
