//! Seeded operations, done by the engine and by maps in memory alike.

use super::shapes::open;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::Discipline;
use seekless_device::MemoryDevice;
use seekless_fat::{FatImage, FatLive};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

#[derive(Clone, Debug)]
enum Body {
    File(Vec<u8>),
    /// By names in upper case: the name that is shown, and the file.
    Dir(BTreeMap<String, (String, usize)>),
}

#[derive(Clone, Debug)]
struct File {
    body: Body,
    parent: usize,
    ino: Ino,
}

pub(crate) struct Replay {
    device: Arc<MemoryDevice>,
    pub(crate) live: FatLive,
    rng: Pcg64Mcg,
    files: BTreeMap<usize, File>,
    next: usize,
    /// Files without names that are held.
    held: Vec<(Ino, Vec<u8>)>,
    pub(crate) full: u32,
    step: u32,
}

fn key(name: &str) -> String {
    name.to_uppercase()
}

impl Replay {
    pub(crate) fn new(device: Arc<MemoryDevice>, discipline: Discipline, seed: u64) -> Self {
        let live = open(&device, discipline);
        let root = File { body: Body::Dir(BTreeMap::new()), parent: 0, ino: live.root() };
        Self {
            device,
            live,
            rng: Pcg64Mcg::seed_from_u64(seed),
            files: BTreeMap::from([(0, root)]),
            next: 1,
            held: Vec::new(),
            full: 0,
            step: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.rng.next_u64() % limit.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len());
        from.get(at).cloned()
    }

    fn dir(&self, file: usize) -> &BTreeMap<String, (String, usize)> {
        match &self.files[&file].body {
            Body::Dir(names) => names,
            Body::File(_) => panic!("{file} is no directory"),
        }
    }

    fn dir_mut(&mut self, file: usize) -> &mut BTreeMap<String, (String, usize)> {
        match &mut self.files.get_mut(&file).unwrap().body {
            Body::Dir(names) => names,
            Body::File(_) => panic!("{file} is no directory"),
        }
    }

    fn is_dir(&self, file: usize) -> bool {
        matches!(self.files[&file].body, Body::Dir(_))
    }

    fn some_dir(&mut self) -> usize {
        let dirs: Vec<usize> =
            self.files.keys().copied().filter(|&file| self.is_dir(file)).collect();
        self.pick(&dirs).unwrap()
    }

    fn some_file(&mut self) -> Option<usize> {
        let files: Vec<usize> =
            self.files.keys().copied().filter(|&file| !self.is_dir(file)).collect();
        self.pick(&files)
    }

    /// Names of all kinds: short ones, long ones, and the same ones in another case.
    fn name(&mut self) -> String {
        let number = self.below(40);
        let name = match number % 5 {
            0 => format!("N{number}.TXT"),
            1 => format!("n{number}.txt"),
            2 => format!("a long name with the number {number}.text"),
            3 => format!("é{number} + {}", "x".repeat(number * 3)),
            _ => format!("alongname{number}"),
        };
        if self.below(4) == 0 { name.to_uppercase() } else { name }
    }

    fn some_name(&mut self, dir: usize) -> String {
        let names: Vec<String> = self.dir(dir).values().map(|(name, _)| name.clone()).collect();
        match self.below(10) {
            0 => self.name(),
            1 => self.pick(&names).unwrap_or_else(|| "None".into()).to_uppercase(),
            _ => self.pick(&names).unwrap_or_else(|| "none".into()),
        }
    }

    /// What came of an operation of the engine: nothing where the volume was full.
    fn done<T>(&mut self, result: Result<T, FsError>, wanted: Option<&str>) -> Option<T> {
        let step = self.step;
        match (result, wanted) {
            (Ok(value), None) => Some(value),
            (Err(FsError::NoSpace(_)), _) => {
                self.full += 1;
                None
            }
            (Err(error), Some(wanted)) => {
                let kind = format!("{error:?}");
                assert!(kind.starts_with(wanted), "step {step}: {error:?}, not {wanted}");
                None
            }
            (Ok(_), Some(wanted)) => panic!("step {step}: done, not {wanted}"),
            (Err(error), None) => panic!("step {step}: {error}"),
        }
    }

    pub(crate) fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.step += 1;
            match self.below(100) {
                0..18 => self.create(false),
                18..26 => self.create(true),
                26..50 => self.write(),
                50..58 => self.truncate(),
                58..68 => self.unlink(),
                68..72 => self.rmdir(),
                72..88 => self.rename(),
                88..92 => self.sync_some(),
                92..96 => self.release(),
                _ => self.look(),
            }
            if self.step.is_multiple_of(50) {
                self.compare();
            }
        }
    }

    fn create(&mut self, is_dir: bool) {
        let (dir, name) = (self.some_dir(), self.name());
        let new = if is_dir { NewFile::Directory } else { NewFile::Regular };
        let made = self.live.make(self.files[&dir].ino, name.as_bytes(), new, OWNER);
        let taken = self.dir(dir).contains_key(&key(&name)).then_some("Exists");
        let Some(attr) = self.done(made, taken) else { return };
        let body = if is_dir { Body::Dir(BTreeMap::new()) } else { Body::File(Vec::new()) };
        let number = self.next;
        self.next += 1;
        self.files.insert(number, File { body, parent: dir, ino: attr.ino });
        self.dir_mut(dir).insert(key(&name), (name, number));
    }

    fn write(&mut self) {
        let Some(file) = self.some_file() else { return };
        let Body::File(mut bytes) = self.files[&file].body.clone() else { return };
        let most = if self.below(8) == 0 { 60_000 } else { 3000 };
        let beyond = if self.below(3) == 0 { 9000 } else { 1 };
        let offset = self.below(bytes.len() + beyond);
        let len = self.below(most) + 1;
        let fill = self.below(255) as u8 + 1;
        let ino = self.files[&file].ino;
        let written = self.live.write(ino, ByteLen::new(offset as u64), &vec![fill; len]);
        let Some(written) = self.done(written, None) else { return };
        if bytes.len() < offset + written {
            bytes.resize(offset + written, 0);
        }
        bytes[offset..offset + written].fill(fill);
        self.files.get_mut(&file).unwrap().body = Body::File(bytes);
    }

    fn truncate(&mut self) {
        let Some(file) = self.some_file() else { return };
        let Body::File(mut bytes) = self.files[&file].body.clone() else { return };
        let len = match self.below(4) {
            0 => 0,
            1 => bytes.len() + self.below(5000),
            _ => self.below(bytes.len() + 1),
        };
        let set = SetAttr { size: Some(len as u64), ..SetAttr::default() };
        let done = self.live.set_attr(self.files[&file].ino, &set);
        let Some(attr) = self.done(done, None) else { return };
        assert_eq!(attr.size, len as u64);
        bytes.resize(len, 0);
        self.files.get_mut(&file).unwrap().body = Body::File(bytes);
    }

    fn unlink(&mut self) {
        let dir = self.some_dir();
        let name = self.some_name(dir);
        let found = self.dir(dir).get(&key(&name)).map(|&(_, file)| file);
        let hold = found.filter(|&file| !self.is_dir(file)).filter(|_| self.below(3) == 0);
        if let Some(file) = hold {
            self.live.hold(self.files[&file].ino).unwrap();
        }
        let wanted = match found {
            None => Some("NotFound"),
            Some(file) if self.is_dir(file) => Some("IsDirectory"),
            Some(_) => None,
        };
        let done = self.live.unlink(self.files[&dir].ino, name.as_bytes());
        let Some(()) = self.done(done, wanted) else { return };
        self.dir_mut(dir).remove(&key(&name));
        let gone = self.files.remove(&found.unwrap()).unwrap();
        if let (Some(_), Body::File(bytes)) = (hold, gone.body) {
            self.held.push((gone.ino, bytes));
        }
    }

    fn rmdir(&mut self) {
        let dir = self.some_dir();
        let name = self.some_name(dir);
        let found = self.dir(dir).get(&key(&name)).map(|&(_, file)| file);
        let wanted = match found {
            None => Some("NotFound"),
            Some(file) if !self.is_dir(file) => Some("NotDirectory"),
            Some(file) if !self.dir(file).is_empty() => Some("NotEmpty"),
            Some(_) => None,
        };
        let done = self.live.rmdir(self.files[&dir].ino, name.as_bytes());
        let Some(()) = self.done(done, wanted) else { return };
        self.dir_mut(dir).remove(&key(&name));
        self.files.remove(&found.unwrap());
    }

    fn lies_below(&self, mut dir: usize, above: usize) -> bool {
        while dir != above && dir != 0 {
            dir = self.files[&dir].parent;
        }
        dir == above
    }

    fn rename(&mut self) {
        let (from, to) = (self.some_dir(), self.some_dir());
        let to = if self.below(2) == 0 { from } else { to };
        let name = self.some_name(from);
        let new = if self.below(3) == 0 { self.some_name(to) } else { self.name() };
        let found = self.dir(from).get(&key(&name)).map(|&(_, file)| file);
        let target = self.dir(to).get(&key(&new)).map(|&(_, file)| file);
        let wanted = match (found, target) {
            (None, _) => Some("NotFound"),
            (Some(file), Some(target)) if file == target => None,
            (Some(file), _) if self.is_dir(file) && self.lies_below(to, file) => Some("Invalid"),
            (Some(file), Some(target)) => match (self.is_dir(file), self.is_dir(target)) {
                (true, false) => Some("NotDirectory"),
                (false, true) => Some("IsDirectory"),
                (true, true) if !self.dir(target).is_empty() => Some("NotEmpty"),
                _ => None,
            },
            _ => None,
        };
        let ends =
            ((self.files[&from].ino, name.as_bytes()), (self.files[&to].ino, new.as_bytes()));
        let done = self.live.rename(ends.0, ends.1, RenameMode::Replace);
        let Some(()) = self.done(done, wanted) else { return };
        let (file, shown) = (found.unwrap(), key(&new));
        if let Some(target) = target.filter(|&target| target != file) {
            self.files.remove(&target);
            // The entry stays, with the name it has.
            self.dir_mut(from).remove(&key(&name));
            self.dir_mut(to).get_mut(&shown).unwrap().1 = file;
        } else {
            self.dir_mut(from).remove(&key(&name));
            self.dir_mut(to).insert(shown, (new, file));
        }
        self.files.get_mut(&file).unwrap().parent = to;
    }

    fn sync_some(&mut self) {
        match self.below(4) {
            0 => self.live.sync().unwrap(),
            1 => {
                let mut draw = self.rng.next_u64();
                self.live
                    .write_some(|_| {
                        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        draw >> 63 == 1
                    })
                    .unwrap();
            }
            _ => {
                let file = self.some_file().unwrap_or(0);
                self.live.fsync(self.files[&file].ino).unwrap();
            }
        }
        let (_, core) = self.live.parts();
        assert_eq!(core.cache.broken_invariant(), None, "step {}", self.step);
    }

    fn release(&mut self) {
        let Some((ino, bytes)) = self.held.pop() else { return };
        assert!(self.contents(ino, bytes.len()) == bytes, "step {}", self.step);
        self.live.release(ino).unwrap();
    }

    fn look(&mut self) {
        let dir = self.some_dir();
        let name = self.some_name(dir);
        let found = self.live.lookup(self.files[&dir].ino, name.as_bytes()).unwrap();
        let wanted = self.dir(dir).get(&key(&name)).map(|(_, file)| self.files[file].ino);
        assert_eq!(found, wanted, "step {}: {name}", self.step);
    }

    fn contents(&mut self, ino: Ino, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len + 1];
        let read = self.live.read(ino, ByteLen::ZERO, &mut bytes).unwrap();
        bytes.truncate(read);
        bytes
    }

    /// The tree as it is seen while it is in use.
    pub(crate) fn compare(&mut self) {
        for (number, file) in self.files.clone() {
            let attr = self.live.attr(file.ino).unwrap();
            match file.body {
                Body::File(bytes) => {
                    assert_eq!((attr.kind, attr.size), (FileKind::Regular, bytes.len() as u64));
                    let held = self.contents(file.ino, bytes.len());
                    assert!(held == bytes, "step {}: contents of {number}", self.step);
                }
                Body::Dir(names) => {
                    let inside = |file: &usize| usize::from(self.is_dir(*file));
                    let links = 2 + names.values().map(|(_, file)| inside(file)).sum::<usize>();
                    assert_eq!(attr.nlink as usize, links, "step {}", self.step);
                    let mut shown = BTreeMap::new();
                    let mut after = 0;
                    loop {
                        let (from, mut seen) = (after, 0);
                        let mut visit = |entry: seekless_fs::DirEntry<'_>| {
                            let name = String::from_utf8(entry.name.to_vec()).unwrap();
                            assert!(entry.cookie > from);
                            let other = shown.insert(name.clone(), entry.ino);
                            assert_eq!(other, None, "{name} is there twice, {}", entry.ino);
                            (after, seen) = (entry.cookie, seen + 1);
                            if seen == 7 {
                                ControlFlow::Break(())
                            } else {
                                ControlFlow::Continue(())
                            }
                        };
                        self.live.read_dir(file.ino, from, &mut visit).unwrap();
                        if seen < 7 {
                            break;
                        }
                    }
                    assert_eq!(shown.remove("."), Some(file.ino));
                    assert_eq!(shown.remove(".."), Some(self.files[&file.parent].ino));
                    let wanted: BTreeMap<String, Ino> = names
                        .values()
                        .map(|(name, file)| (name.clone(), self.files[file].ino))
                        .collect();
                    assert_eq!(shown, wanted, "step {}", self.step);
                }
            }
        }
    }

    fn path(&self, mut file: usize) -> String {
        let mut path = String::new();
        while file != 0 {
            let parent = self.files[&file].parent;
            let (name, _) = self.dir(parent).values().find(|(_, child)| *child == file).unwrap();
            path = format!("/{name}{path}");
            file = parent;
        }
        if path.is_empty() { "/".into() } else { path }
    }

    /// Unmounts, and compares the tree as the reader shows it.
    pub(crate) fn finish(mut self) -> Arc<MemoryDevice> {
        self.compare();
        self.live.unmount().unwrap();
        assert_eq!(self.live.parts().1.cache.blocks().softdeps(), 0);
        let free = self.live.space().free;
        let image = FatImage::open(self.device.clone(), OpenOptions::default()).unwrap();
        let spc = u64::from(self.live.space().file_block / self.live.space().block_size);
        let missing = (image.geometry().free_blocks - free) / spc;
        assert!(missing <= 8, "{missing} clusters are missing");
        for (number, file) in &self.files {
            let ino = resolve(&image, self.path(*number).as_bytes()).unwrap();
            let attr = image.attr(ino).unwrap();
            match &file.body {
                Body::File(bytes) => {
                    let mut held = vec![0; bytes.len() + 1];
                    let read = image.read(ino, ByteLen::ZERO, &mut held).unwrap();
                    assert!(held[..read] == *bytes, "contents of {}", self.path(*number));
                    let runs = image.block_map(ino).unwrap().runs;
                    assert_eq!(self.live.data_runs(file.ino).unwrap(), runs);
                    let live = self.live.attr(file.ino).unwrap();
                    assert_eq!((attr.mtime, attr.atime), (live.mtime, live.atime));
                }
                Body::Dir(names) => {
                    let mut count = 0;
                    let mut visit = |_: seekless_fs::DirEntry<'_>| {
                        count += 1;
                        ControlFlow::Continue(())
                    };
                    image.read_dir(ino, 0, &mut visit).unwrap();
                    assert_eq!(count, names.len() + 2);
                }
            }
        }
        self.device
    }
}
