//! Quotas of users and groups: after each operation of a seeded sequence the limits hold, and an
//! operation is refused only where one is exceeded; the records in the quota files, which are read
//! here, equal the counts of a walk of the tree.

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

/// A file system with a soft limit of 40 sectors and 3 inodes for user 7, and 60 and 600 seconds
/// above them.
fn with_soft_limits(time: &Time) -> FfsLive {
    let mut live = time.open(image(&SHAPES[0]), Discipline::SoftUpdates, false);
    let records = BTreeMap::from([(0, ([0; 6], [60, 600])), (7, ([106, 40, 0, 10, 3, 0], [0, 0]))]);
    put(&mut live, NAMES[0], &Words::Big64.file(&records));
    let mut files = QuotaFiles::none();
    files.keep(QuotaKind::User, Some("/quota.user"));
    keep_quotas(&mut live, &files).unwrap();
    live.spend_reserve(false);
    live
}

fn over_quota(done: Result<impl std::fmt::Debug, FsError>) {
    assert!(matches!(done, Err(FsError::OverQuota(_))), "{done:?}");
}

fn record_of(live: &mut FfsLive, id: u32) -> Record {
    live.sync().unwrap();
    let ino = live.lookup(live.root(), b"quota.user").unwrap().unwrap();
    Words::Big64.parse(&whole(live, ino))[&id]
}

#[test]
fn a_soft_limit_is_a_hard_one_after_its_time() {
    let time = Time::new();
    let mut live = with_soft_limits(&time);
    let (root, owner) = (live.root(), Ownership { uid: 7, gid: 9, perm: 0o644 });
    let ino = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
    // Fragments of a sector: 39 are below the limit.
    let put = |live: &mut FfsLive, at: u64| live.write(ino, ByteLen::new(at * 512), &[1; 512]);
    (0..40).for_each(|at| assert_eq!(put(&mut live, at).unwrap(), 512));
    let began = time.now();
    assert_eq!(live.attr(ino).unwrap().sectors, 40);
    time.pass(60);
    put(&mut live, 40).unwrap();
    assert_eq!(record_of(&mut live, 7), ([106, 40, 41, 10, 3, 1], [began + 60, began + 600]));
    time.pass(1);
    over_quota(put(&mut live, 41));
    // The superuser may, and below the limit anybody.
    live.spend_reserve(true);
    put(&mut live, 41).unwrap();
    live.spend_reserve(false);
    over_quota(put(&mut live, 42));
    let size = Some(39 * 512);
    live.set_attr(ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
    put(&mut live, 39).unwrap();
    assert_eq!(record_of(&mut live, 7).1, [time.now() + 60, began + 600]);

    // Inodes, whose time is another.
    let make = |live: &mut FfsLive, name: &str| {
        live.make(root, name.as_bytes(), NewFile::Special(FileKind::Fifo), owner).map(drop)
    };
    make(&mut live, "second").unwrap();
    make(&mut live, "third").unwrap();
    time.pass(600);
    make(&mut live, "fourth").unwrap();
    time.pass(1);
    over_quota(make(&mut live, "fifth"));
    assert_eq!(live.lookup(root, b"fifth").unwrap(), None);
    live.unlink(root, b"fourth").unwrap();
    live.unlink(root, b"third").unwrap();
    make(&mut live, "third").unwrap();
    // Times that have begun go on when the volume is mounted again.
    assert_eq!(record_of(&mut live, 7).1[1], time.now() + 600);
    live.unmount().unwrap();
}

#[test]
fn a_hard_limit_is_one_more_than_the_most() {
    let time = Time::new();
    let mut live = with_soft_limits(&time);
    let (root, owner) = (live.root(), Ownership { uid: 7, gid: 9, perm: 0o644 });
    let ino = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
    // Twelve blocks of eight sectors; a further one would do, if it did not need an indirect one.
    assert_eq!(live.write(ino, ByteLen::ZERO, &[1; 12 * 4096 + 1]).unwrap(), 12 * 4096);
    over_quota(live.write(ino, ByteLen::new(12 * 4096), &[1]));
    assert_eq!(live.attr(ino).unwrap().sectors, 96);
    let other = live.make(root, b"other", NewFile::Regular, owner).unwrap().ino;
    assert_eq!(live.write(other, ByteLen::ZERO, &[1; 9 * 512]).unwrap(), 9 * 512);
    over_quota(live.write(other, ByteLen::new(9 * 512), &[1]));
    // A file that somebody else gives away, and one of the group's alone.
    let foreign = Ownership { uid: 8, ..owner };
    let third = live.make(root, b"third", NewFile::Regular, foreign).unwrap().ino;
    live.write(third, ByteLen::ZERO, &[1]).unwrap();
    let give = |uid, gid| SetAttr { uid, gid, ..SetAttr::default() };
    over_quota(live.set_attr(third, &give(Some(7), None)));
    assert_eq!(live.attr(third).unwrap().uid, 8);
    live.set_attr(third, &give(None, Some(10))).unwrap();
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    live.set_attr(other, &size(1024)).unwrap();
    live.set_attr(third, &give(Some(7), None)).unwrap();
    // Ten inodes are one too many.
    for n in 3..9 {
        live.make(root, format!("{n}").as_bytes(), NewFile::Symlink(b"x"), owner).unwrap();
    }
    over_quota(live.make(root, b"9", NewFile::Symlink(b"x"), owner));
    assert_eq!(record_of(&mut live, 7).0, [106, 40, 99, 10, 3, 9]);
    // Deleted files count until nobody has them open.
    live.hold(ino).unwrap();
    live.unlink(root, b"file").unwrap();
    over_quota(live.write(other, ByteLen::new(4096), &[1]));
    live.release(ino).unwrap();
    live.write(other, ByteLen::new(1024), &[1]).unwrap();
    assert_eq!(record_of(&mut live, 7).0, [106, 40, 4, 10, 3, 8]);
    live.unmount().unwrap();
}

/// Quota files that are damaged, or are no such files.
#[test]
fn damaged_quota_files() {
    let time = Time::new();
    let header = b"QUOTA64\0\x20\x08\x11\x04\0\0\0\x40\0\0\0\x40";
    let mut draw = Pcg64Mcg::seed_from_u64(8);
    for shape in &SHAPES {
        for case in 0..60 {
            let device = image(shape);
            let mut live = time.open(device.clone(), Discipline::Normal, false);
            let mut bytes = vec![0; 64 * 40 + draw.next_u32() as usize % 64];
            draw.fill_bytes(&mut bytes);
            match case {
                0 => bytes.clear(),
                1 => bytes.truncate(40),
                2..10 => bytes[..20].copy_from_slice(header),
                // Another version, another length of records.
                10..13 => {
                    bytes[..20].copy_from_slice(header);
                    bytes[8 + 4 * (case - 10)] ^= 1;
                }
                _ => {}
            }
            put(&mut live, NAMES[0], &bytes);
            live.unmount().unwrap();
            let mut live = time.open(device.clone(), Discipline::Normal, false);
            let kept = keep_quotas(&mut live, &both());
            if (10..13).contains(&case) {
                assert!(matches!(kept, Err(FsError::Corrupt { .. })), "{kept:?}");
            } else {
                kept.unwrap();
                let root = live.root();
                let owner = Ownership { uid: 11, gid: 12, perm: 0o644 };
                live.spend_reserve(false);
                let _ = live.make(root, b"file", NewFile::Regular, owner);
                live.spend_reserve(true);
                live.sync().unwrap();
                let words = Words::of(shape, (2..10).contains(&case));
                let ino = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
                let after = whole(&mut live, ino);
                let (skip, len) = if words == Words::Big64 { (64, 64) } else { (0, 32) };
                let [counted, _] = walk(&mut live, &[]);
                for (id, raw) in (0u32..).zip(after[skip.min(after.len())..].chunks_exact(len)) {
                    let word = |at: usize| {
                        let raw = &raw[at * len / 8..(at + 1) * len / 8];
                        let is_big = words != Words::Little32;
                        let big = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
                        match is_big {
                            true => raw.iter().fold(0, big),
                            false => raw.iter().rev().fold(0, big),
                        }
                    };
                    let expected = counted.get(&id).copied().unwrap_or_default();
                    assert_eq!([word(2), word(5)], expected, "{shape:?}, case {case}: id {id}");
                }
            }
            live.unmount().unwrap();
            let report = seekless_ffs::check(device.clone()).unwrap();
            assert!(report.is_clean(), "{:#?}", report.findings);
        }
    }
    let mut live = time.open(image(&SHAPES[1]), Discipline::Normal, false);
    let mut files = QuotaFiles::none();
    for (path, is_there) in [("", true), ("none/quota", false)] {
        files.keep(QuotaKind::User, Some(path));
        match keep_quotas(&mut live, &files) {
            Err(FsError::Invalid(_)) => assert!(is_there),
            Err(FsError::NotFound(_)) => assert!(!is_there),
            other => panic!("{path}: {other:?}"),
        }
    }
    files.keep(QuotaKind::User, Some("one"));
    files.keep(QuotaKind::Group, Some("/one"));
    assert!(matches!(keep_quotas(&mut live, &files), Err(FsError::Invalid(_))));
    live.unmount().unwrap();
}

/// Nobody changes a quota file but the file system, and records far behind the end of one are
/// written where they belong.
#[test]
fn quota_files_in_use() {
    let time = Time::new();
    for shape in &SHAPES {
        let device = image(shape);
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        keep_quotas(&mut live, &both()).unwrap();
        let root = live.root();
        let [ino, _] = NAMES.map(|name| live.lookup(root, name.as_bytes()).unwrap().unwrap());
        let attr = live.attr(ino).unwrap();
        assert_eq!((attr.uid, attr.gid, attr.perm), (0, 5, 0o640));
        let not_permitted = |done: Result<(), FsError>| {
            assert!(matches!(done, Err(FsError::NotPermitted(_))), "{done:?}");
        };
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        let again = |live: &mut FfsLive| {
            not_permitted(live.write(ino, ByteLen::ZERO, b"x").map(drop));
            not_permitted(live.set_attr(ino, &size).map(drop));
            not_permitted(live.unlink(root, NAMES[0].as_bytes()));
        };
        again(&mut live);
        live.set_file_flags(ino, 0).unwrap();
        again(&mut live);
        let far = 30_000_000;
        let owner = Ownership { uid: far, gid: far - 1, perm: 0o644 };
        let file = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
        live.write(file, ByteLen::ZERO, &[1; 5000]).unwrap();
        live.fsync(ino).unwrap();
        for (name, id) in NAMES.into_iter().zip([far, far - 1]) {
            let ino = live.lookup(root, name.as_bytes()).unwrap().unwrap();
            let mut raw = [0; 64];
            let at = ByteLen::new(64 + 64 * u64::from(id));
            assert_eq!(live.read(ino, at, &mut raw).unwrap(), 64);
            let word = |at: usize| u64::from_be_bytes(raw[at..at + 8].try_into().unwrap());
            assert_eq!([word(16), word(40)], [live.attr(file).unwrap().sectors, 1], "{shape:?}");
        }
        live.unmount().unwrap();
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        assert_eq!(live.stale_quota_files().unwrap(), NAMES);
        let mut files = QuotaFiles::none();
        files.keep(QuotaKind::Group, None);
        keep_quotas(&mut live, &files).unwrap();
        assert_eq!(live.stale_quota_files().unwrap(), [NAMES[0]]);
        live.unmount().unwrap();
        let report = seekless_ffs::check(device).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
    }
}

/// One write may cross a soft limit and go on, also if a time above it was over once.
#[test]
fn a_write_that_crosses_a_soft_limit_is_whole() {
    let time = Time::new();
    let mut live = with_soft_limits(&time);
    let began = time.now();
    time.pass(1_000_000);
    let owner = Ownership { uid: 7, gid: 9, perm: 0o644 };
    let root = live.root();
    let ino = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
    let len = 10 * 4096;
    assert_eq!(live.write(ino, ByteLen::ZERO, &vec![1; len]).unwrap(), len);
    assert_eq!(record_of(&mut live, 7), ([106, 40, 80, 10, 3, 1], [time.now() + 60, began + 600]));
    // A block that reaches the limit, and the index block that leads to it, are of one operation.
    let cut = SetAttr { size: Some(4 * 4096), ..SetAttr::default() };
    live.set_attr(ino, &cut).unwrap();
    time.pass(1_000_000);
    let behind = ByteLen::new(12 * 4096);
    assert_eq!(live.write(ino, behind, &[1; 4096]).unwrap(), 4096);
    assert_eq!(record_of(&mut live, 7), ([106, 40, 48, 10, 3, 1], [time.now() + 60, began + 600]));
    live.unmount().unwrap();
}

/// Usage goes to the files at the intervals of FreeBSD's syncer, and the user of the volume is told
/// which files have changed.
#[test]
fn usage_is_written_at_intervals() {
    let (device, time, clock) = (image(&SHAPES[1]), Time::new(), Arc::new(VirtualClock::new()));
    let mut live = time.open_with(device.clone(), Discipline::SoftUpdates, false, clock.clone());
    assert_eq!(live.take_rewritten(), []);
    keep_quotas(&mut live, &both()).unwrap();
    let inos = NAMES.map(|name| live.lookup(live.root(), name.as_bytes()).unwrap().unwrap());
    assert_eq!(live.take_rewritten(), inos);
    assert_eq!(live.take_rewritten(), []);
    live.tick().unwrap();
    let (root, owner) = (live.root(), Ownership { uid: 7, gid: 9, perm: 0o644 });
    live.make(root, b"file", NewFile::Regular, owner).unwrap();
    let mut begun = 0;
    let seconds = (1..=60).find(|_| {
        clock.sleep(Nanos::new(1_000_000_000));
        live.tick().unwrap();
        begun += 1;
        !live.take_rewritten().is_empty()
    });
    assert_eq!((seconds, begun), (Some(30), 30));
    let [users, _] = records(&mut live, Words::Big64);
    assert_eq!(users[&7].0, [0, 0, 0, 0, 0, 1]);
    // Nothing has changed since.
    for _ in 0..100 {
        clock.sleep(Nanos::new(1_000_000_000));
        live.tick().unwrap();
    }
    assert_eq!(live.take_rewritten(), []);
    live.unmount().unwrap();
}

/// Records for which there is no room are left out, the others are written.
#[test]
fn records_on_a_full_volume() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let (device, time) = (image(shape), Time::new());
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        keep_quotas(&mut live, &both()).unwrap();
        let root = live.root();
        // Each of these ids needs a block of its own, and more of them than are written at once.
        let ids = (0..150u32).map(|n| 1_000_000 + n * 4096);
        let mut draw = Pcg64Mcg::seed_from_u64(n as u64);
        let big = live.make(root, b"big", NewFile::Regular, OWNER_OF_7).unwrap().ino;
        for id in ids.clone() {
            let owner = Ownership { uid: id, gid: 9, perm: 0o644 };
            live.make(root, format!("{id}").as_bytes(), NewFile::Regular, owner).unwrap();
        }
        let mut at = 0;
        loop {
            let len = 1 + draw.next_u32() as usize % 100_000;
            match live.write(big, ByteLen::new(at), &vec![1; len]) {
                Ok(written) if written > 0 => at += written as u64,
                Ok(_) => break,
                Err(FsError::NoSpace(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        live.sync().unwrap();
        let written = |live: &mut FfsLive| {
            let ino = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
            let has = |live: &mut FfsLive, id: u32| {
                let mut raw = [0; 64];
                live.read(ino, ByteLen::new(64 + 64 * u64::from(id)), &mut raw).unwrap();
                raw[47]
            };
            (has(live, 7), ids.clone().filter(|&id| has(live, id) == 1).count())
        };
        let (of_7, others) = written(&mut live);
        assert!(of_7 == 1 && others < 150, "{shape:?}: {of_7}, {others}");
        // Nothing is lost of what is in memory.
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        live.set_attr(big, &size).unwrap();
        live.sync().unwrap();
        assert_eq!(written(&mut live), (1, 150), "{shape:?}");
        live.unmount().unwrap();
        let report = seekless_ffs::check(device).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
    }
}

const OWNER_OF_7: Ownership = Ownership { uid: 7, gid: 9, perm: 0o644 };

/// A device of which a part cannot be read.
struct Unreadable {
    memory: Arc<MemoryDevice>,
    bad: Mutex<Range<u64>>,
}

impl BlockDevice for Unreadable {
    fn len(&self) -> ByteLen {
        self.memory.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let first = at.get() * 512;
        let bad = self.bad.lock().unwrap();
        if first < bad.end && first + buf.len() as u64 > bad.start {
            return Err(DeviceError::Io { at, source: std::io::Error::other("unreadable") });
        }
        self.memory.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A quota file that cannot be written keeps nothing else from the disk.
#[test]
fn an_unreadable_quota_file_loses_nothing_else() {
    for unmounts in [false, true] {
        let (memory, time) = (image(&SHAPES[0]), Time::new());
        let device = Arc::new(Unreadable { memory: memory.clone(), bad: Mutex::new(0..0) });
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        let far = Ownership { uid: 1_000_000, gid: 1_000_000, perm: 0o600 };
        let root = live.root();
        let file = live.make(root, b"file", NewFile::Regular, far).unwrap().ino;
        keep_quotas(&mut live, &both()).unwrap();
        let quotas = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
        let runs = live.data_runs(quotas).unwrap();
        let last = runs.last().unwrap().extent;
        // Its blocks leave the cache.
        let other = live.make(root, b"other", NewFile::Regular, far).unwrap().ino;
        for at in 0..64 {
            live.write(other, ByteLen::new(at << 16), &[at as u8; 1 << 16]).unwrap();
        }
        live.write(file, ByteLen::ZERO, b"contents").unwrap();
        *device.bad.lock().unwrap() = last.start.get() * 512..last.end().get() * 512;
        let done = if unmounts { live.unmount() } else { live.sync() };
        assert!(matches!(done, Err(FsError::Device(_) | FsError::Io { .. })), "{done:?}");
        if !unmounts {
            *device.bad.lock().unwrap() = 0..0;
            live.unmount().unwrap();
        }
        let report = seekless_ffs::check(memory.clone()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        let mut live = time.open(memory, Discipline::SoftUpdates, false);
        let file = live.lookup(root, b"file").unwrap().unwrap();
        assert_eq!(whole(&mut live, file), b"contents");
        live.unmount().unwrap();
    }
}

/// Files that cannot have quotas, and names that lead to one that does.
#[test]
fn other_files_as_quota_files() {
    let (device, time) = (image(&SHAPES[0]), Time::new());
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    let root = live.root();
    live.make(root, b"dir", NewFile::Directory, OWNER_OF_7).unwrap();
    live.make(root, b"link", NewFile::Symlink(b"file"), OWNER_OF_7).unwrap();
    live.make(root, b"pipe", NewFile::Special(FileKind::Fifo), OWNER_OF_7).unwrap();
    let file = live.make(root, b"file", NewFile::Regular, OWNER_OF_7).unwrap().ino;
    let keep = |live: &mut FfsLive, path: &str| {
        let mut files = QuotaFiles::none();
        files.keep(QuotaKind::User, Some(path));
        keep_quotas(live, &files)
    };
    for path in ["dir", "dir/", "link", "pipe", "dir/..", "/"] {
        let kept = keep(&mut live, path);
        assert!(matches!(kept, Err(FsError::Invalid(_))), "{path}: {kept:?}");
    }
    for path in ["link/file", "file/x"] {
        let kept = keep(&mut live, path);
        assert!(matches!(kept, Err(FsError::NotDirectory(_))), "{path}: {kept:?}");
    }
    // Neither file is made where the other one cannot be used, or where both would be one.
    for (user, group) in [("new", "dir"), ("dir", "new"), ("new", "/new")] {
        let mut files = QuotaFiles::none();
        files.keep(QuotaKind::User, Some(user));
        files.keep(QuotaKind::Group, Some(group));
        let kept = keep_quotas(&mut live, &files);
        assert!(matches!(kept, Err(FsError::Invalid(_))), "{user}, {group}: {kept:?}");
        assert_eq!(live.lookup(root, b"new").unwrap(), None, "{user}, {group}");
    }
    // A second name.
    live.link(file, root, b"second").unwrap();
    keep(&mut live, "second").unwrap();
    for name in [&b"file"[..], b"second"] {
        let removed = live.unlink(root, name);
        assert!(matches!(removed, Err(FsError::NotPermitted(_))), "{removed:?}");
        let moved = live.rename((root, name), (root, b"moved"), RenameMode::Replace);
        assert!(matches!(moved, Err(FsError::NotPermitted(_))), "{moved:?}");
        let replaced = live.rename((root, b"pipe"), (root, name), RenameMode::Replace);
        assert!(matches!(replaced, Err(FsError::NotPermitted(_))), "{replaced:?}");
    }
    live.unmount().unwrap();
    let report = seekless_ffs::check(device).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Records of the highest ids, and more of them than are kept.
#[test]
fn large_quota_files() {
    let time = Time::new();
    let header = Words::Big64.file(&BTreeMap::new());
    let sparse = |live: &mut FfsLive, ids: &[u32]| {
        let ino = put(live, NAMES[0], &header);
        for &id in ids {
            let at = ByteLen::new(64 + 64 * u64::from(id));
            assert_eq!(live.write(ino, at, &[1; 64]).unwrap(), 64);
        }
    };
    let mut live = time.open(image(&SHAPES[2]), Discipline::Async, false);
    let highest = i32::MAX as u32;
    sparse(&mut live, &[5, highest, highest + 1, u32::MAX]);
    keep_quotas(&mut live, &both()).unwrap();
    let root = live.root();
    let ino = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
    live.sync().unwrap();
    for (id, is_counted) in [(5, true), (highest, true), (highest + 1, false), (u32::MAX, false)] {
        let mut raw = [0; 64];
        live.read(ino, ByteLen::new(64 + 64 * u64::from(id)), &mut raw).unwrap();
        assert_eq!(raw[16..24] == [0; 8], is_counted, "{id}: {raw:?}");
    }
    live.unmount().unwrap();

    // Of 32 bits, as many records as fit in 33 MiB.
    let shape = Shape { mebibytes: 64, ..SHAPES[2] };
    let mut live = time.open(image(&shape), Discipline::Async, false);
    let ino = put(&mut live, NAMES[0], &[1; 512]);
    for at in 0..33 {
        live.write(ino, ByteLen::new(at << 20), &[1; 1 << 20]).unwrap();
    }
    let kept = keep_quotas(&mut live, &both());
    assert!(matches!(&kept, Err(FsError::Unsupported(why)) if why.contains("records")), "{kept:?}");
    live.unmount().unwrap();
}

/// Snapshots are not charged, and a file is again once it is none.
#[test]
fn snapshots_come_and_go() {
    let (device, time) = (image(&SHAPES[1]), Time::new());
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    keep_quotas(&mut live, &both()).unwrap();
    let root = live.root();
    let file = live.make(root, b"file", NewFile::Regular, OWNER_OF_7).unwrap().ino;
    live.write(file, ByteLen::ZERO, &[1; 70_000]).unwrap();
    for round in 0..3 {
        let snap = live.make(root, b"snap", NewFile::Regular, OWNER_OF_7).unwrap().ino;
        live.take_snapshot(snap).unwrap();
        live.write(file, ByteLen::ZERO, &[2; 70_000]).unwrap();
        live.sync().unwrap();
        assert_eq!(usage(&records(&mut live, Words::Big64)), walk(&mut live, &[]), "{round}");
        live.release_snapshot(snap).unwrap();
        live.sync().unwrap();
        let counted = walk(&mut live, &[]);
        assert_eq!(counted[0][&7][1], 2);
        assert_eq!(usage(&records(&mut live, Words::Big64)), counted, "{round}");
        live.unlink(root, b"snap").unwrap();
        live.sync().unwrap();
        let counted = walk(&mut live, &[]);
        assert_eq!(counted[0][&7][1], 1);
        assert_eq!(usage(&records(&mut live, Words::Big64)), counted, "{round}");
    }
    live.unmount().unwrap();
    let report = seekless_ffs::check(device).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}
