//! Seeded operations, done by the engine and by a plain model of a file system alike.

mod model;

use model::{Body, Model, No};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
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
    live: Live<F>,
    open: fn(Arc<dyn BlockDevice>) -> Arc<dyn Inspect>,
    attributes: bool,
    model: Model,
    /// The engine's inode of each of the model's files.
    inos: BTreeMap<usize, Ino>,
    rng: Pcg64Mcg,
    /// How often the volume was full.
    pub(crate) full: u32,
    /// Files have some hundred bytes at most, mostly.
    pub(crate) small: bool,
    step: u32,
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

impl<F: Named> Replay<F> {
    pub(crate) fn of(parts: Parts<F>, seed: u64) -> Self {
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
            rng: Pcg64Mcg::seed_from_u64(seed),
            full: 0,
            small: false,
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
            if !matches!(entry.name, b"." | b"..") {
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

    fn below(&mut self, limit: usize) -> usize {
        (self.rng.next_u64() % limit.max(1) as u64) as usize
    }

    fn some_dir(&mut self) -> usize {
        let dirs = self.model.dirs();
        let at = self.below(dirs.len());
        dirs[at]
    }

    fn name(&mut self) -> Vec<u8> {
        let number = self.below(60);
        let long = if number.is_multiple_of(7) { 120 } else { number % 30 };
        format!("n{number}{}", "x".repeat(long)).into_bytes()
    }

    /// A name there is, mostly.
    fn some_name(&mut self, dir: usize) -> Vec<u8> {
        let names: Vec<Vec<u8>> = self.model.dir(dir).keys().cloned().collect();
        if names.is_empty() || self.below(10) == 0 {
            return self.name();
        }
        let at = self.below(names.len());
        names[at].clone()
    }

    fn some_file(&mut self) -> Option<usize> {
        let is_file = |file: &&usize| matches!(self.model.files[file].body, Body::File(_));
        let files: Vec<usize> = self.model.files.keys().filter(is_file).copied().collect();
        let at = self.below(files.len());
        files.get(at).copied()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let seed = self.rng.next_u64();
        (0..len as u64).map(|n| (seed.wrapping_mul(n | 1) >> 24) as u8).collect()
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

    pub(crate) fn run(&mut self, steps: u32) {
        for step in 0..steps {
            self.step = step;
            self.one();
            if step % 500 == 499 {
                self.compare();
            }
        }
    }

    fn one(&mut self) {
        match self.below(100) {
            0..20 => self.make(),
            20..24 => self.link(),
            24..38 => self.unlink(),
            38..42 => self.rmdir(),
            42..52 => self.rename(),
            52..78 => self.write(),
            78..84 => self.truncate(),
            84..90 => self.read(),
            90..93 => self.xattr(),
            93..95 => self.allocate(),
            95 => self.chmod(),
            96 => {
                if let Some(file) = self.some_file() {
                    let ino = self.inos[&file];
                    self.live.fsync(ino).unwrap();
                }
            }
            97 => self.live.sync().unwrap(),
            _ => {
                self.clock.sleep(Nanos::new(3_000_000_000));
                self.live.tick().unwrap();
            }
        }
    }

    fn make(&mut self) {
        let (dir, name) = (self.some_dir(), self.name());
        let at = self.inos[&dir];
        let target = vec![b't'; [5, 59, 60, 119, 120, 700][self.below(6)]];
        let (new, body) = match self.below(10) {
            0..6 => (NewFile::Regular, Body::File(Vec::new())),
            6..8 => (NewFile::Directory, Body::Dir(BTreeMap::new())),
            8 => (NewFile::Symlink(&target), Body::Link(target.clone())),
            _ => (NewFile::Special(FileKind::Fifo), Body::Other),
        };
        let made = self.live.make(at, &name, new, OWNER);
        if let Some((attr, file)) = self.agree(made, |model| model.make(dir, &name, body)) {
            self.inos.insert(file, attr.ino);
        }
    }

    fn link(&mut self) {
        let files: Vec<usize> = self.model.files.keys().copied().collect();
        let file = files[self.below(files.len())];
        let (dir, name) = (self.some_dir(), self.name());
        let done = self.live.link(self.inos[&file], self.inos[&dir], &name);
        self.agree(done, |model| model.link(file, dir, &name));
    }

    fn unlink(&mut self) {
        let dir = self.some_dir();
        let name = self.some_name(dir);
        // Somebody may have it open: then it can be read until closed.
        let held = self.model.dir(dir).get(&name).copied().filter(|_| self.step.is_multiple_of(3));
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

    fn rmdir(&mut self) {
        let dir = self.some_dir();
        let name = self.some_name(dir);
        let done = self.live.rmdir(self.inos[&dir], &name);
        self.agree(done, |model| model.rmdir(dir, &name));
    }

    fn rename(&mut self) {
        let from = self.some_dir();
        let name = self.some_name(from);
        let to = self.some_dir();
        let new = if self.below(2) == 0 { self.name() } else { self.some_name(to) };
        let exchange = self.below(5) == 0;
        let mode = if exchange { RenameMode::Exchange } else { RenameMode::Replace };
        let (a, b) = (self.inos[&from], self.inos[&to]);
        let done = self.live.rename((a, &name), (b, &new), mode);
        if exchange && matches!(done, Err(FsError::Unsupported(_))) {
            // Of a directory whose name lies in another sector: no order of writes serves it.
            return;
        }
        self.agree(done, |model| model.rename((from, &name), (to, &new), exchange));
    }

    fn write(&mut self) {
        let Some(file) = self.some_file() else { return };
        let Body::File(held) = &self.model.files[&file].body else { return };
        let size = held.len();
        let (rare, often) = if self.small { (2000, 60) } else { (300_000, 5000) };
        let far = if self.below(12) == 0 { rare } else { often };
        let at = match self.below(4) {
            0 | 1 => size,
            2 => self.below(size + 1),
            _ => self.below(size + far),
        };
        let all = [1, 300, 1024, 5000, 40_000, 150_000];
        let len = if self.small { [1, 20, 40, 60, 90, 300] } else { all }[self.below(6)];
        let len = self.below(len) + 1;
        let bytes = self.bytes(len);
        let done = self.live.write(self.inos[&file], ByteLen::new(at as u64), &bytes);
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

    fn truncate(&mut self) {
        let Some(file) = self.some_file() else { return };
        let Body::File(held) = &self.model.files[&file].body else { return };
        let size = held.len();
        let new = match self.below(3) {
            0 => 0,
            1 => self.below(size + 1),
            _ => self.below(size + if self.small { 50 } else { 80_000 }),
        };
        let set = SetAttr { size: Some(new as u64), ..SetAttr::default() };
        let done = self.live.set_attr(self.inos[&file], &set);
        if self.agree(done, |_| Ok(())).is_some()
            && let Body::File(held) = &mut self.model.files.get_mut(&file).unwrap().body
        {
            held.resize(new, 0);
        }
    }

    fn allocate(&mut self) {
        let Some(file) = self.some_file() else { return };
        let Body::File(held) = &self.model.files[&file].body else { return };
        let size = held.len();
        let from = self.below(size + 20_000);
        let len = self.below(50_000) + 1;
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

    fn read(&mut self) {
        let Some(file) = self.some_file() else { return };
        let ino = self.inos[&file];
        let bytes = self.contents(ino);
        assert!(self.model.files[&file].body == Body::File(bytes), "step {}", self.step);
    }

    fn chmod(&mut self) {
        let Some(file) = self.some_file() else { return };
        let set = SetAttr { perm: Some(0o4711), ..SetAttr::default() };
        self.live.set_attr(self.inos[&file], &set).unwrap();
        self.model.files.get_mut(&file).unwrap().perm = 0o4711;
    }

    fn xattr(&mut self) {
        let Some(file) = self.some_file() else { return };
        let name = format!("user.a{}", self.below(3)).into_bytes();
        let ino = self.inos[&file];
        if !self.attributes {
            let done = self.live.set_xattr(ino, &name, b"v", XattrMode::Any);
            assert!(matches!(done, Err(FsError::Unsupported(_))));
            return;
        }
        let len = self.below(if self.small { 60 } else { 900 });
        let value = self.bytes(len);
        if self.below(3) == 0 {
            let there = self.model.files.get_mut(&file).unwrap().xattrs.remove(&name);
            match self.live.remove_xattr(ino, &name) {
                Ok(()) => assert!(there.is_some()),
                Err(FsError::NoAttribute(_)) => assert!(there.is_none()),
                Err(FsError::NoSpace(_)) => {
                    self.full += 1;
                    let value = there.unwrap();
                    self.model.files.get_mut(&file).unwrap().xattrs.insert(name, value);
                }
                Err(other) => panic!("{other}"),
            }
            return;
        }
        let done = self.live.set_xattr(ino, &name, &value, XattrMode::Any);
        if self.agree(done, |_| Ok(())).is_some() {
            self.model.files.get_mut(&file).unwrap().xattrs.insert(name, value);
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
