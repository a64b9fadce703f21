//! Files that are changed in many places, beside plain bytes.

use super::shapes::{Shape, fsck, image, options, written};
use proptest::bool::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
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

/// An operation on one of the files, by a number that is taken modulo theirs.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    file: u8,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Write(usize, usize),
    Allocate {
        at: usize,
        len: usize,
        keep: bool,
    },
    Truncate(usize),
    /// Shorter by less than so many bytes, modulo its length.
    Shorten(usize),
    Fsync,
    Sync,
    Compare,
}

/// Operations within the first blocks of files.
pub(crate) fn op(block: usize, blocks: usize) -> impl Strategy<Value = Op> {
    let start = move || (0..blocks).prop_map(move |at| at * block);
    let anywhere = move || 0..blocks * block;
    let kind = prop_oneof![
        600 => start().prop_map(move |at| Kind::Write(at, block)),
        80 => (anywhere(), 1..=3 * block).prop_map(|(at, len)| Kind::Write(at, len)),
        88 => (anywhere(), 1..=40 * block, weighted(1.0 / 3.0))
            .prop_map(|(at, len, keep)| Kind::Allocate { at, len, keep }),
        16 => (0..60 * block).prop_map(Kind::Shorten),
        1 => anywhere().prop_map(Kind::Truncate),
        4 => Just(Kind::Fsync),
        1 => Just(Kind::Sync),
        10 => Just(Kind::Compare),
    ];
    (any::<u8>(), kind).prop_map(|(file, kind)| Op { file, kind })
}

/// A volume in use with files of known contents.
pub(crate) struct FilledVolume {
    pub(crate) live: ExtLive,
    pub(crate) device: Arc<MemoryDevice>,
    /// Number of writes.
    writes: usize,
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
    pub(crate) fn new(shape: &Shape, discipline: Discipline, files: u32) -> Self {
        let device = image(shape);
        let mut live = open(device.clone(), discipline);
        let root = live.root();
        let make = |n| {
            let name = format!("file{n}").into_bytes();
            (live.make(root, &name, NewFile::Regular, OWNER).unwrap().ino, Vec::new())
        };
        let files = (0..files).map(make).collect();
        Self { live, device, writes: 0, files, full: 0 }
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
        // Others than those of the last writes, and than zeros.
        self.writes += 1;
        let bytes = vec![(self.writes % 255) as u8 + 1; len];
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

    pub(crate) fn one(&mut self, op: &Op) {
        let file = usize::from(op.file) % self.files.len();
        match op.kind {
            Kind::Write(at, len) => self.write(file, at, len),
            Kind::Allocate { at, len, keep } => self.allocate(file, at, len, keep),
            Kind::Truncate(len) => self.truncate(file, len),
            Kind::Shorten(by) => {
                let size = self.files[file].1.len();
                self.truncate(file, size - by % (size + 1));
            }
            Kind::Fsync => self.live.fsync(self.files[file].0).unwrap(),
            Kind::Sync => self.live.sync().unwrap(),
            Kind::Compare => self.compare(file),
        }
    }

    fn compare(&mut self, file: usize) {
        let (ino, held) = &self.files[file];
        assert_eq!(self.live.attr(*ino).unwrap().size, held.len() as u64);
        let mut bytes = vec![0xEE; held.len()];
        let read = self.live.read(*ino, ByteLen::ZERO, &mut bytes).unwrap();
        assert_eq!(read, held.len());
        let differs = || bytes.iter().zip(held).position(|(one, other)| one != other);
        assert!(bytes == *held, "byte {:?} of file {file}", differs());
    }

    /// The greatest depth of the trees.
    pub(crate) fn finish(mut self, what: &str) -> u8 {
        (0..self.files.len()).for_each(|file| self.compare(file));
        self.live.unmount().unwrap();
        let device: Arc<dyn BlockDevice> = self.device.clone();
        let image = ExtImage::open(device, OpenOptions::default()).unwrap();
        let path = written(&self.device);
        let shown = |(ino, _): &(Ino, _)| shown_by_debugfs(path.to_str().unwrap(), *ino);
        let shown: Vec<_> = self.files.iter().map(shown).collect();
        std::fs::remove_file(&path).unwrap();
        let mut depth = 0;
        for ((ino, held), shown) in self.files.iter().zip(shown) {
            let mut bytes = vec![0; held.len()];
            let mut done = 0;
            while done < held.len() {
                done += image.read(*ino, ByteLen::new(done as u64), &mut bytes[done..]).unwrap();
            }
            assert!(bytes == *held, "{what}: inode {ino}");
            let map = image.block_map(*ino).unwrap();
            assert_eq!(self.live.data_runs(*ino).unwrap(), map.runs);
            assert_eq!(shown, apart(&map.runs));
            depth = map.index.iter().map(|node| node.depth).max().unwrap_or(0).max(depth);
        }
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
