//! Quotas of users and groups: after each operation of a seeded sequence the limits hold, and an
//! operation is refused only where one is exceeded; the records in the quota files, which are read
//! here, equal the counts of a walk of the tree.

mod files;
mod limits;
mod unused;

use super::SHAPES;
use super::shapes::{Shape, image, options};
use crate::rules::freebsd;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline};
use seekless_device::{
    BlockDevice, Clock, DeviceError, MemoryDevice, SnapshotOrigin, VirtualClock,
};
use seekless_ffs::{FfsLive, LiveOptions, QuotaFiles, corrections, keep_quotas};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_live::QuotaKind;
use seekless_units::{ByteLen, Ino, Lba, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Users and groups: of both, 0 is the superuser's; one id would be negative.
const IDS: [u32; 5] = [0, 7, 1000, 70_000, 4_000_000_000];

/// The names of quota files, where none are given.
const NAMES: [&str; 2] = ["quota.user", "quota.group"];

/// Sectors and inodes.
type Counted = BTreeMap<u32, [u64; 2]>;

/// A record of a quota file: hard limit, soft limit and usage of space and of inodes; two times.
type Record = ([u64; 6], [i64; 2]);

/// The format of a quota file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Words {
    Little32,
    Big32,
    Big64,
}

impl Words {
    fn of(shape: &Shape, long: bool) -> Self {
        match (long, shape.big_endian) {
            (true, _) => Self::Big64,
            (false, true) => Self::Big32,
            (false, false) => Self::Little32,
        }
    }

    fn parse(self, bytes: &[u8]) -> BTreeMap<u32, Record> {
        let (skip, len) = if self == Self::Big64 { (64, 64) } else { (0, 32) };
        let record = |raw: &[u8]| -> [i64; 8] {
            let mut words = raw.chunks(len / 8).map(|word| match self {
                Self::Big64 => i64::from_be_bytes(word.try_into().unwrap()),
                Self::Little32 => i32::from_le_bytes(word.try_into().unwrap()).into(),
                Self::Big32 => i32::from_be_bytes(word.try_into().unwrap()).into(),
            });
            std::array::from_fn(|_| words.next().unwrap())
        };
        let records = bytes.get(skip..).unwrap_or_default().chunks_exact(len).map(record);
        let number = |word: i64| u64::try_from(word).unwrap();
        (0..)
            .zip(records)
            .filter(|(_, words)| words.iter().any(|&word| word != 0))
            .map(|(id, words)| {
                let numbers = std::array::from_fn(|at| number(words[at]));
                (id, (numbers, [words[6], words[7]]))
            })
            .collect()
    }

    fn file(self, records: &BTreeMap<u32, Record>) -> Vec<u8> {
        let (skip, len) = if self == Self::Big64 { (64, 64) } else { (0, 32) };
        let last = records.keys().last().map_or(0, |&id| id as usize + 1);
        let mut bytes = vec![0; skip + last * len];
        if self == Self::Big64 {
            bytes[..20].copy_from_slice(b"QUOTA64\0\x20\x08\x11\x04\0\0\0\x40\0\0\0\x40");
        }
        for (&id, (numbers, times)) in records {
            let at = skip + id as usize * len;
            let numbers = numbers.iter().map(|&number| number as i64);
            for (n, word) in numbers.chain(times.iter().copied()).enumerate() {
                let to = &mut bytes[at + n * len / 8..at + (n + 1) * len / 8];
                match self {
                    Self::Big64 => to.copy_from_slice(&word.to_be_bytes()),
                    Self::Little32 => to.copy_from_slice(&(word as i32).to_le_bytes()),
                    Self::Big32 => to.copy_from_slice(&(word as i32).to_be_bytes()),
                }
            }
        }
        bytes
    }
}

/// A time of day that a test moves.
#[derive(Clone)]
struct Time(Arc<AtomicI64>);

impl Time {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_600_000_000)))
    }

    fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }

    fn open(&self, device: Arc<dyn BlockDevice>, discipline: Discipline, recover: bool) -> FfsLive {
        self.open_with(device, discipline, recover, Arc::new(VirtualClock::new()))
    }

    fn open_with(
        &self,
        device: Arc<dyn BlockDevice>,
        discipline: Discipline,
        recover: bool,
        clock: Arc<VirtualClock>,
    ) -> FfsLive {
        let time = self.clone();
        let wall = Box::new(move || Timestamp { secs: time.now(), nanos: 0 });
        let how = LiveOptions { recover, wall, ..options() };
        let mut config = Config::new(discipline);
        config.capacity = ByteLen::new(1 << 20);
        FfsLive::open(device, clock, config, how).unwrap()
    }
}

fn both() -> QuotaFiles {
    let mut files = QuotaFiles::none();
    QuotaKind::ALL.iter().for_each(|&kind| files.keep(kind, None));
    files
}

fn whole(live: &mut FfsLive, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; live.attr(ino).unwrap().size as usize];
    let len = live.read(ino, ByteLen::ZERO, &mut bytes).unwrap();
    assert_eq!(len, bytes.len());
    bytes
}

fn records(live: &mut FfsLive, words: Words) -> [BTreeMap<u32, Record>; 2] {
    NAMES.map(|name| {
        let ino = live.lookup(live.root(), name.as_bytes()).unwrap().expect(name);
        words.parse(&whole(live, ino))
    })
}

/// Puts a file with these bytes in the root.
fn put(live: &mut FfsLive, name: &str, bytes: &[u8]) -> Ino {
    let owner = Ownership { uid: 0, gid: 5, perm: 0o640 };
    let root = live.root();
    let ino = live.make(root, name.as_bytes(), NewFile::Regular, owner).unwrap().ino;
    // Holes stay holes.
    for (n, part) in bytes.chunks(512).enumerate() {
        let at = ByteLen::new(n as u64 * 512);
        if part.iter().any(|&byte| byte != 0) {
            assert_eq!(live.write(ino, at, part).unwrap(), part.len());
        }
    }
    ino
}

/// Usage of users and groups, by the names and attributes of the tree.
fn walk(live: &mut FfsLive, held: &[Ino]) -> [Counted; 2] {
    let mut seen: BTreeSet<Ino> = BTreeSet::new();
    let mut left = vec![live.root()];
    left.extend(held);
    let not_counted: Vec<Ino> = {
        let root = live.root();
        let mut found: Vec<Ino> =
            NAMES.iter().filter_map(|name| live.lookup(root, name.as_bytes()).unwrap()).collect();
        found.extend(live.snapshots().unwrap().iter().map(|snapshot| snapshot.ino));
        found
    };
    let mut counted = [Counted::new(), Counted::new()];
    while let Some(ino) = left.pop() {
        if !seen.insert(ino) {
            continue;
        }
        let attr = live.attr(ino).unwrap();
        if attr.kind == FileKind::Directory && attr.nlink > 0 {
            live.read_dir(ino, 0, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    left.push(entry.ino);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        let is_counted = i32::try_from(attr.uid).is_ok() && i32::try_from(attr.gid).is_ok();
        if is_counted && !not_counted.contains(&ino) {
            for (counted, id) in counted.iter_mut().zip([attr.uid, attr.gid]) {
                let [sectors, inodes] = counted.entry(id).or_default();
                *sectors += attr.sectors;
                *inodes += 1;
            }
        }
    }
    counted
}

/// Usage in records.
fn usage(records: &[BTreeMap<u32, Record>; 2]) -> [Counted; 2] {
    records.each_ref().map(|records| {
        let used = |([_, _, sectors, _, _, inodes], _): &Record| [*sectors, *inodes];
        let all = records.iter().map(|(&id, record)| (id, used(record)));
        all.filter(|(_, used)| *used != [0, 0]).collect()
    })
}

type Operation = Box<dyn Fn(&mut FfsLive) -> Result<(), FsError>>;

/// Operations of several users.
struct Users {
    draw: Pcg64Mcg,
    dirs: Vec<Ino>,
    files: Vec<(Ino, Ino, Vec<u8>)>,
    held: Vec<Ino>,
    made: u32,
    snapshots: bool,
    attributes: bool,
}

impl Users {
    fn below(&mut self, limit: usize) -> usize {
        self.draw.next_u64() as usize % limit
    }

    fn id(&mut self) -> u32 {
        IDS[self.below(IDS.len())]
    }

    fn name(&mut self) -> Vec<u8> {
        self.made += 1;
        // Directories grow beyond their first block.
        format!("{:0>1$}", self.made, 5 + self.draw.next_u32() as usize % 200).into_bytes()
    }

    /// A place in a file: within fragments, in direct blocks, or behind one to two levels.
    fn place(&mut self) -> u64 {
        let most = [3000, 50_000, 400_000, 9 << 20][self.below(4)];
        self.below(most) as u64
    }

    /// The next operation, and the user whose it is.
    fn next(&mut self) -> (u32, Operation) {
        let uid = self.id();
        let owner = Ownership { uid, gid: self.id(), perm: 0o644 };
        let at = self.below(self.dirs.len());
        let dir = self.dirs[at];
        let kind = self.below(100);
        if kind < 30 || self.files.len() < 3 {
            let (name, what) = (self.name(), self.below(8));
            return (
                uid,
                Box::new(move |live| {
                    let new = match what {
                        0 | 1 => NewFile::Directory,
                        2 => NewFile::Symlink(&[b'l'; 40]),
                        3 => NewFile::Symlink(&[b'l'; 700]),
                        4 => NewFile::Special(FileKind::Fifo),
                        _ => NewFile::Regular,
                    };
                    live.make(dir, &name, new, owner).map(drop)
                }),
            );
        }
        let at = self.below(self.files.len());
        let (ino, parent, name) = self.files[at].clone();
        let (place, len) = (self.place(), self.below(60_000) + 1);
        let operation: Operation = match kind {
            30..55 => {
                Box::new(move |live| live.write(ino, ByteLen::new(place), &vec![3; len]).map(drop))
            }
            55..62 => Box::new(move |live| {
                let size = live.attr(ino)?.size;
                live.write(ino, ByteLen::new(size), &vec![4; len % 900 + 1]).map(drop)
            }),
            62..70 => {
                let set = SetAttr { size: Some(place), ..SetAttr::default() };
                Box::new(move |live| live.set_attr(ino, &set).map(drop))
            }
            70..77 => {
                let (uid, gid) = (self.id(), self.id());
                let uid = Some(uid).filter(|_| kind.is_multiple_of(2));
                let set = SetAttr { uid, gid: Some(gid), ..SetAttr::default() };
                Box::new(move |live| live.set_attr(ino, &set).map(drop))
            }
            77..82 if self.attributes => Box::new(move |live| match len % 3 {
                0 => live.remove_xattr(ino, b"user.a"),
                _ => live.set_xattr(ino, b"user.a", &vec![5; len % 3000], XattrMode::Any),
            }),
            82..84 => {
                let name = self.name();
                Box::new(move |live| live.link(ino, dir, &name).map(drop))
            }
            84..87 => {
                let other = (at + 1) % self.files.len();
                let (_, to, target) = self.files[other].clone();
                Box::new(move |live| {
                    live.rename((parent, &name), (to, &target), RenameMode::Replace)
                })
            }
            87..89 => Box::new(move |live| {
                let (from, len) = (ByteLen::new(place), ByteLen::new(len as u64));
                live.allocate(ino, from, len, false)
            }),
            89..91 if self.held.len() < 5 && !self.held.contains(&ino) => {
                self.held.push(ino);
                Box::new(move |live| live.hold(ino))
            }
            91..93 if !self.held.is_empty() => {
                let at = at % self.held.len();
                let last = self.held.swap_remove(at);
                Box::new(move |live| live.release(last))
            }
            _ => Box::new(move |live| match live.attr(ino)?.kind {
                FileKind::Directory => live.rmdir(parent, &name),
                _ => live.unlink(parent, &name),
            }),
        };
        (uid, operation)
    }

    /// Looks for the files again.
    fn look(&mut self, live: &mut FfsLive) {
        let exempt: Vec<Ino> = live.snapshots().unwrap().iter().map(|it| it.ino).collect();
        (self.dirs, self.files) = (vec![live.root()], Vec::new());
        let mut at = 0;
        while let Some(&dir) = self.dirs.get(at) {
            at += 1;
            let mut found = Vec::new();
            live.read_dir(dir, 0, &mut |entry| {
                found.push((entry.ino, entry.name.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
            for (ino, name) in found {
                let is_other = matches!(name.as_slice(), b"." | b".." | b"lost+found" | b"snap")
                    || NAMES.iter().any(|other| other.as_bytes() == name)
                    || exempt.contains(&ino);
                if is_other {
                    continue;
                }
                if live.attr(ino).unwrap().kind == FileKind::Directory {
                    self.dirs.push(ino);
                }
                self.files.push((ino, dir, name));
            }
        }
    }

    fn new(seed: u64, shape: &Shape, discipline: Discipline) -> Self {
        Self {
            draw: Pcg64Mcg::seed_from_u64(seed),
            dirs: Vec::new(),
            files: Vec::new(),
            held: Vec::new(),
            made: 0,
            snapshots: discipline == Discipline::SoftUpdates,
            attributes: shape.version == seekless_ffs::Version::Ufs2,
        }
    }

    fn work(&mut self, live: &mut FfsLive, count: usize) {
        for _ in 0..count {
            self.look(live);
            let (uid, operation) = self.next();
            live.spend_reserve(uid == 0);
            let _ = operation(live);
        }
        live.spend_reserve(true);
    }
}

/// Limits of sectors and inodes for a user and a group.
fn limits(draw: &mut impl FnMut(u64) -> u64) -> [BTreeMap<u32, Record>; 2] {
    [[7, 1000], [7, 70_000]].map(|ids| {
        let mut record = || ([300 + draw(3000), 0, 0, 5 + draw(30), 0, 0], [0, 0]);
        ids.into_iter().map(|id| (id, record())).collect()
    })
}

/// Checks that no limit is exceeded by an operation of an ordinary user.
fn within(limits: &[BTreeMap<u32, Record>; 2], before: &[Counted; 2], after: &[Counted; 2]) {
    for ((limits, before), after) in limits.iter().zip(before).zip(after) {
        for (id, ([space, _, _, inodes, ..], _)) in limits {
            let [before, after] =
                [before, after].map(|counted| counted.get(id).copied().unwrap_or_default());
            for (limit, n) in [(space, 0), (inodes, 1)] {
                let kept = after[n] < *limit || after[n] <= before[n];
                assert!(kept, "{id}: {after:?} after {before:?}, {limits:?}");
            }
        }
    }
}

/// Whether somebody has more than a limit allows.
fn exceeded(limits: &[BTreeMap<u32, Record>; 2], counted: &[Counted; 2]) -> bool {
    limits.iter().zip(counted).any(|(limits, counted)| {
        limits.iter().any(|(id, ([space, _, _, inodes, ..], _))| {
            counted.get(id).is_some_and(|[sectors, files]| sectors >= space || files >= inodes)
        })
    })
}

#[test]
fn usage_follows_the_files_and_limits_hold() {
    let disciplines = [Discipline::SoftUpdates, Discipline::Normal, Discipline::Async];
    let mut refused = 0;
    for (seed, discipline) in (0..8).zip(disciplines.into_iter().cycle()) {
        let shape = &SHAPES[seed as usize % SHAPES.len()];
        let words = Words::of(shape, seed >= 4);
        let (device, time) = (image(shape), Time::new());
        let mut users = Users::new(seed, shape, discipline);
        let limits = limits(&mut |most| users.draw.next_u64() % most);

        let mut live = time.open(device.clone(), discipline, false);
        for (name, limits) in NAMES.iter().zip(&limits) {
            put(&mut live, name, &words.file(limits));
        }
        users.work(&mut live, 60);
        users.held.clear();
        live.unmount().unwrap();

        let mut live = time.open(device.clone(), discipline, false);
        keep_quotas(&mut live, &both()).unwrap();
        let what = format!("{shape:?} {discipline} {words:?}");
        for phase in 0..4 {
            for _ in 0..120 {
                users.look(&mut live);
                let before = walk(&mut live, &users.held);
                let (uid, operation) = users.next();
                live.spend_reserve(uid == 0);
                let done = operation(&mut live);
                let after = walk(&mut live, &users.held);
                match done {
                    Err(FsError::OverQuota(_)) => {
                        assert_ne!(uid, 0);
                        refused += 1;
                        live.spend_reserve(true);
                        // Without limits it can be done, and exceeds one.
                        if operation(&mut live).is_ok() {
                            let then = walk(&mut live, &users.held);
                            assert!(exceeded(&limits, &then), "{what}: {then:?}");
                        }
                    }
                    Err(error @ (FsError::Corrupt { .. } | FsError::ReadOnly(_))) => {
                        panic!("{what}: {error}")
                    }
                    _ if uid != 0 => within(&limits, &before, &after),
                    _ => {}
                }
            }
            live.spend_reserve(true);
            if users.snapshots && phase == 1 {
                let root = live.root();
                let owner = Ownership { uid: 7, gid: 7, perm: 0o600 };
                let ino = live.make(root, b"snap", NewFile::Regular, owner).unwrap().ino;
                live.take_snapshot(ino).unwrap();
            }
            live.sync().unwrap();
            let found = records(&mut live, words);
            assert_eq!(usage(&found), walk(&mut live, &users.held), "{what}, phase {phase}");
            for (found, limits) in found.iter().zip(&limits) {
                for (id, (numbers, _)) in limits {
                    let ([space, _, _, inodes, ..], _) = found[id];
                    assert_eq!([space, inodes], [numbers[0], numbers[3]], "{what}: {id}");
                }
            }
        }
        live.unmount().unwrap();
        let mut live = time.open(device.clone(), discipline, false);
        assert_eq!(usage(&records(&mut live, words)), walk(&mut live, &[]), "{what}, unmounted");
        live.unmount().unwrap();
        let report = seekless_ffs::check(device.clone()).unwrap();
        assert!(report.is_clean(), "{what}: {:#?}", report.findings);
    }
    assert!(refused > 100, "{refused} operations were refused");
}

/// The sums are right again after a crash at any time, also for files that only the correction of
/// the volume deletes.
#[test]
fn usage_is_counted_after_a_crash() {
    let mut corrected = 0;
    for seed in 0..12 {
        let shape = &SHAPES[seed as usize % SHAPES.len()];
        let (device, time) = (image(shape), Time::new());
        let discipline = Discipline::SoftUpdates;
        let mut users = Users::new(seed, shape, discipline);
        let mut live = time.open(device.clone(), discipline, false);
        keep_quotas(&mut live, &both()).unwrap();
        users.work(&mut live, 120);
        live.sync().unwrap();
        users.work(&mut live, 60);
        let mut pick = Pcg64Mcg::seed_from_u64(seed);
        for _ in 0..2 {
            live.write_some(|_| pick.next_u32() % 3 > 0).unwrap();
        }
        let mut bytes = vec![0; device.len().get() as usize];
        device.read(Lba::ZERO, &mut bytes).unwrap();
        let device = Arc::new(MemoryDevice::new(bytes));

        let (origin, snapshot) = SnapshotOrigin::take(device.clone(), None);
        let found = corrections(Arc::new(snapshot)).unwrap();
        assert!(found.are_complete(), "{:#?}", found.left);
        let mut live = time.open(Arc::new(origin), discipline, true);
        keep_quotas(&mut live, &both()).unwrap();
        for correction in &found.all {
            live.correct(correction).unwrap();
        }
        live.end_recovery(true).unwrap();
        corrected += found.all.len();
        live.sync().unwrap();
        let counted = walk(&mut live, &[]);
        assert_eq!(usage(&records(&mut live, Words::Big64)), counted, "{shape:?}, seed {seed}");
        live.unmount().unwrap();
        let report = seekless_ffs::check(device.clone()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        let verdict = freebsd::judge(device.as_ref(), false);
        assert!(verdict.wrong.is_empty(), "{:#?}", verdict.wrong);
    }
    assert!(corrected > 20, "{corrected} corrections");
}
