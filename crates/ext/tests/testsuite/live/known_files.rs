//! Files that are changed in many places, beside plain bytes.

use super::shapes::{Shape, fsck, image, options, written};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_fs::{FsError, Inspect, Mapping};
use seekless_units::{ByteLen, Ino};
use std::process::Command;
use std::sync::Arc;

pub(crate) const OWNER: Ownership = Ownership { uid: 1, gid: 2, perm: 0o644 };

/// A volume in use with files of known contents.
pub(crate) struct FilledVolume {
    pub(crate) live: ExtLive,
    pub(crate) device: Arc<MemoryDevice>,
    rng: Pcg64Mcg,
    block: usize,
    pub(crate) files: Vec<(Ino, Vec<u8>)>,
    /// How often the volume was full.
    pub(crate) full: u32,
}

pub(crate) fn open(device: Arc<MemoryDevice>, discipline: Discipline) -> ExtLive {
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new());
    let mut config = Config::new(discipline);
    config.capacity = ByteLen::new(1 << 20);
    ExtLive::open(device, clock, config, options()).unwrap()
}

impl FilledVolume {
    pub(crate) fn new(shape: &Shape, discipline: Discipline, files: u32, seed: u64) -> Self {
        let device = image(shape);
        let mut live = open(device.clone(), discipline);
        let root = live.root();
        let make = |n| {
            let name = format!("file{n}").into_bytes();
            (live.make(root, &name, NewFile::Regular, OWNER).unwrap().ino, Vec::new())
        };
        let files = (0..files).map(make).collect();
        let rng = Pcg64Mcg::seed_from_u64(seed);
        Self { live, device, rng, block: shape.block as usize, files, full: 0 }
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.rng.next_u64() % limit.max(1) as u64) as usize
    }

    /// What was done, unless the volume was full.
    fn noted<T>(&mut self, done: Result<T, FsError>) -> Option<T> {
        match done {
            Err(FsError::NoSpace(_)) => self.full += 1,
            done => return Some(done.unwrap()),
        }
        None
    }

    pub(crate) fn write(&mut self, file: usize, at: usize, len: usize) {
        let bytes = vec![self.rng.next_u64() as u8 | 1; len];
        let done = self.live.write(self.files[file].0, ByteLen::new(at as u64), &bytes);
        let Some(done) = self.noted(done) else { return };
        let held = &mut self.files[file].1;
        held.resize(held.len().max(at + done), 0);
        held[at..at + done].copy_from_slice(&bytes[..done]);
    }

    pub(crate) fn allocate(&mut self, file: usize, at: usize, len: usize, keep: bool) {
        let (ino, held) = &self.files[file];
        let (from, count) = (ByteLen::new(at as u64), ByteLen::new(len as u64));
        let (ino, size) = (*ino, held.len());
        let done = self.live.allocate(ino, from, count, keep);
        if keep && matches!(done, Err(FsError::Unsupported(_))) {
            let by_extents = self.live.attr(ino).unwrap().flags & 0x8_0000 != 0;
            assert!(!by_extents, "inode {ino}");
        } else if self.noted(done).is_some() && !keep {
            self.files[file].1.resize(size.max(at + len), 0);
        }
    }

    pub(crate) fn truncate(&mut self, file: usize, len: usize) {
        let set = SetAttr { size: Some(len as u64), ..SetAttr::default() };
        let (ino, held) = &mut self.files[file];
        held.resize(len, 0);
        self.live.set_attr(*ino, &set).unwrap();
    }

    /// One operation within so many blocks of some file.
    pub(crate) fn one(&mut self, blocks: usize) {
        let file = self.below(self.files.len());
        let (at, some) = (self.below(blocks) * self.block, self.below(self.block));
        match self.below(200) {
            0..150 => self.write(file, at, self.block),
            150..170 => {
                let len = self.below(3 * self.block) + 1;
                self.write(file, at + some, len);
            }
            170..192 => {
                let (len, keep) = (self.below(40 * self.block) + 1, self.below(3) == 0);
                self.allocate(file, at + some, len, keep);
            }
            192..196 => {
                let size = self.files[file].1.len();
                let len = size - self.below(size.min(60 * self.block) + 1);
                self.truncate(file, len);
            }
            196 if self.below(4) == 0 => self.truncate(file, at + some),
            197 => self.live.fsync(self.files[file].0).unwrap(),
            198 if self.below(4) == 0 => self.live.sync().unwrap(),
            _ => self.compare(file),
        }
    }

    fn compare(&mut self, file: usize) {
        let (ino, held) = &self.files[file];
        assert_eq!(self.live.attr(*ino).unwrap().size, held.len() as u64);
        let mut bytes = vec![0xEE; held.len()];
        let read = self.live.read(*ino, ByteLen::ZERO, &mut bytes).unwrap();
        assert_eq!(read, held.len());
        let differs = bytes.iter().zip(held).position(|(one, other)| one != other);
        assert_eq!(differs, None, "byte of file {file}");
    }

    /// The greatest depth of the trees.
    pub(crate) fn finish(mut self, what: &str) -> u8 {
        (0..self.files.len()).for_each(|file| self.compare(file));
        self.live.unmount().unwrap();
        let device: Arc<dyn BlockDevice> = self.device.clone();
        let image = ExtImage::open(device, OpenOptions::default()).unwrap();
        let path = written(&self.device);
        let mut depth = 0;
        for (ino, held) in &self.files {
            let mut bytes = vec![0; held.len()];
            let mut done = 0;
            while done < held.len() {
                done += image.read(*ino, ByteLen::new(done as u64), &mut bytes[done..]).unwrap();
            }
            assert!(bytes == *held, "{what}: inode {ino}");
            let map = image.block_map(*ino).unwrap();
            assert_eq!(self.live.data_runs(*ino).unwrap(), map.runs);
            assert_eq!(shown_by_debugfs(path.to_str().unwrap(), *ino), apart(&map.runs));
            depth = map.index.iter().map(|node| node.depth).max().unwrap_or(0).max(depth);
        }
        std::fs::remove_file(&path).unwrap();
        fsck(&self.device, what);
        depth
    }
}

/// Runs as debugfs shows them: each extent, where that it cuts a run is joined.
fn shown_by_debugfs(image: &str, ino: Ino) -> Vec<(u64, u64, u64, bool)> {
    let ask = format!("ex -l <{}>", ino.get());
    let said = Command::new("debugfs").args(["-R", &ask, image]).output().unwrap();
    let mut runs: Vec<(u64, u64, u64, bool)> = Vec::new();
    for line in String::from_utf8_lossy(&said.stdout).lines().skip(1) {
        let unwritten = line.contains("Uninit");
        let numbers = line.replace("Uninit", "").replace(['/', '-'], " ");
        let numbers: Vec<u64> =
            numbers.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let &[_, _, _, _, first, _, start, _, len] = numbers.as_slice() else {
            panic!("{line}");
        };
        match runs.last_mut() {
            Some((lbn, at, count, kind))
                if *lbn + *count == first && *at + *count == start && *kind == unwritten =>
            {
                *count += len;
            }
            _ => runs.push((first, start, len, unwritten)),
        }
    }
    runs
}

fn apart(runs: &[Mapping]) -> Vec<(u64, u64, u64, bool)> {
    let apart =
        |run: &Mapping| (run.lbn.get(), run.extent.start.get(), run.extent.len, run.unwritten);
    runs.iter().map(apart).collect()
}

/// Adds files of many extents to an image.
pub(crate) fn scatter(device: Arc<MemoryDevice>) {
    let mut live = open(device, Discipline::Async);
    let root = live.root();
    for name in ["n0", "n1", "n2", "n3"] {
        let made = live.make(root, name.as_bytes(), NewFile::Regular, OWNER);
        let Ok(made) = made else { continue };
        for at in 0..400 {
            let at = ByteLen::new(at * 8192);
            live.write(made.ino, at, &[7]).unwrap();
            live.allocate(made.ino, at, ByteLen::new(6000), false).unwrap();
        }
    }
    live.unmount().unwrap();
}

/// Disciplines that files with extents may have.
pub(crate) const WITHOUT_GRAPH: [Discipline; 3] =
    [Discipline::Sync, Discipline::Normal, Discipline::Async];
