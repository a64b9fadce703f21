//! Inodes reserved for the children of directories: a model of the description predicts
//! every inode, on volumes that are filled to the last one and opened again with
//! windows of other sizes.

use super::shapes::{Shape, fsck, image, options, scratch};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Inspect};
use seekless_units::{GroupNo, Ino};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

pub(crate) const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };
const SEED: &str = "6b3a1cf0-52d1-4e0c-9a3e-0d7c5a9e41b2";
const SEEDED: &str = "hash_seed=6b3a1cf0-52d1-4e0c-9a3e-0d7c5a9e41b2";

/// No group runs out of blocks.
pub(crate) const VOLUMES: [(Shape, Discipline); 3] = [
    (shape("ext2", &["-g", "1024", "-i", "8192", "-I", "128", "-E", SEEDED]), Discipline::Async),
    (shape("ext2", &["-g", "2048", "-i", "8192", "-E", SEEDED]), Discipline::SoftUpdates),
    // With tables that were never written, and room for the journal in a group.
    (
        Shape {
            mebibytes: 32,
            ..shape("ext4", &["-J", "size=1", "-g", "2048", "-G", "4", "-i", "16384", "-E", SEEDED])
        },
        Discipline::Journal(JournalMode::Ordered),
    ),
];

const fn shape(kind: &'static str, how: &'static [&'static str]) -> Shape {
    Shape { kind, block: 1024, mebibytes: 16, how }
}

pub(crate) fn open(
    device: &Arc<MemoryDevice>,
    discipline: Discipline,
    dirs: &str,
    inodes: &str,
) -> ExtLive {
    let inodes = Some(inodes.to_string());
    let how = LiveOptions { directories: dirs.into(), inodes, ..options() };
    let clock = Arc::new(VirtualClock::new());
    ExtLive::open(device.clone(), clock, Config::new(discipline), how).unwrap()
}

/// The hashes of names as debugfs has them.
fn hashes(names: &[String]) -> Vec<u64> {
    let script = scratch();
    let line = |name: &String| format!("dx_hash -h half_md4 -s {SEED} {name}\n");
    std::fs::write(&script, names.iter().map(line).collect::<String>()).unwrap();
    let said = Command::new("debugfs").arg("-f").arg(&script).output().unwrap();
    std::fs::remove_file(&script).unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let hash = |line: &str| {
        let hash = line.split_once(" is 0x")?.1.split_once(' ')?.0;
        u64::from_str_radix(hash, 16).ok()
    };
    let found: Vec<u64> = said.lines().filter_map(hash).collect();
    assert_eq!(found.len(), names.len(), "{said}");
    found
}

/// A group and a slot in it.
type Place = (usize, usize);

/// The volume as the description has it.
struct Model {
    per_group: usize,
    /// Slots of each group: free, in use, or in use by a directory.
    slots: Vec<Vec<Option<bool>>>,
    size: usize,
    hashed: bool,
    /// Second areas of directories, where they begin.
    seconds: BTreeMap<Place, usize>,
}

impl Model {
    fn of(device: &Arc<MemoryDevice>) -> Self {
        let image = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
        let geometry = image.geometry();
        let per_group = geometry.inodes_per_group as usize;
        let groups = (geometry.inodes as usize).div_ceil(per_group);
        let mut slots = vec![vec![None; per_group]; groups];
        for (group, slots) in slots.iter_mut().enumerate() {
            for ino in image.allocated_inodes(GroupNo::new(group as u32)).unwrap() {
                let raw = image.raw_inode(ino).unwrap();
                let slot = (ino.get() as usize - 1) % per_group;
                slots[slot] = Some(raw[1] >> 4 == 4);
            }
        }
        Self { per_group, slots, size: 0, hashed: false, seconds: BTreeMap::new() }
    }

    fn free(&self, group: usize) -> usize {
        self.slots[group].iter().filter(|slot| slot.is_none()).count()
    }

    fn is_full(&self) -> bool {
        (0..self.slots.len()).all(|group| self.free(group) == 0)
    }

    fn is_free(&self, group: usize, slot: usize) -> bool {
        self.slots[group][slot].is_none()
    }

    fn has_window(&self, at: Place) -> bool {
        at.1.is_multiple_of(self.size) && at.1 + self.size <= self.per_group
    }

    /// Whether a slot lies in a window or in a second area.
    fn is_reserved(&self, group: usize, slot: usize) -> bool {
        let first = slot / self.size * self.size;
        let window = self.has_window((group, first)) && self.slots[group][first] == Some(true);
        let second = |(at, start): (&Place, &usize)| {
            at.0 == group && (*start..start + 2 * self.size).contains(&slot)
        };
        window || self.seconds.iter().any(second)
    }

    /// Where so many slots begin that are free and not reserved.
    fn fresh(&self, group: usize, len: usize) -> Option<usize> {
        let mut starts = (0..self.per_group).step_by(self.size);
        starts.find(|&start| {
            let is_good = |slot| self.is_free(group, slot) && !self.is_reserved(group, slot);
            start + len <= self.per_group && (start..start + len).all(is_good)
        })
    }

    fn plain(&self, group: usize) -> Option<usize> {
        let free: Vec<usize> =
            (0..self.per_group).filter(|&slot| self.is_free(group, slot)).collect();
        let outside = free.iter().copied().find(|&slot| !self.is_reserved(group, slot));
        outside.or_else(|| free.first().copied())
    }

    fn by_hash(&self, group: usize, start: usize, len: usize, hash: u64) -> Option<usize> {
        let first = (hash * len as u64 / (1 << 32)) as usize;
        let mut all = (0..len).map(|i| start + (first + i) % len);
        all.find(|&slot| self.is_free(group, slot))
    }

    /// The slot in what is reserved for a directory.
    fn inside(&mut self, (group, slot): Place, hash: u64) -> Option<usize> {
        if !self.hashed {
            return (slot..slot + self.size).find(|&slot| self.is_free(group, slot));
        }
        let found = self.by_hash(group, slot, self.size, hash);
        if found.is_some() {
            return found;
        }
        let len = 2 * self.size;
        let start = match self.seconds.get(&(group, slot)) {
            Some(&start) => start,
            None => {
                let start = self.fresh(group, len)?;
                self.seconds.insert((group, slot), start);
                start
            }
        };
        self.by_hash(group, start, len, hash)
    }

    /// `old-dirpref`, and the order of FFS from there; or the first group with a free
    /// inode.
    fn group_for_directory(&self, linear: bool) -> usize {
        let n = self.slots.len();
        let has = |group: &usize| self.free(*group) > 0;
        if linear {
            return (0..n).find(has).unwrap();
        }
        let average = (0..n).map(|group| self.free(group)).sum::<usize>() / n;
        let dirs = |group: usize| self.slots[group].iter().filter(|s| **s == Some(true)).count();
        let good = (0..n).filter(|&group| self.free(group) >= average);
        let mut at = good.min_by_key(|&group| dirs(group)).unwrap();
        let first = at;
        let mut order = vec![at];
        let mut by = 1;
        while by < n {
            at = (at + by) % n;
            order.push(at);
            by *= 2;
        }
        order.extend((0..n).map(|by| (first + by) % n));
        order.into_iter().find(has).unwrap()
    }

    /// `find_group_other`.
    fn group_for_other(&self, (group, slot): Place) -> usize {
        let n = self.slots.len();
        let has = |group: &usize| self.free(*group) > 0;
        if has(&group) {
            return group;
        }
        let mut at = (group + group * self.per_group + slot + 1) % n;
        let mut by = 1;
        while by < n {
            at = (at + by) % n;
            if has(&at) {
                return at;
            }
            by *= 2;
        }
        (1..=n).map(|by| (group + by) % n).find(has).unwrap()
    }

    fn make(&mut self, parent: Place, is_directory: bool, hash: u64, linear: bool) -> Place {
        let at = if is_directory {
            let group = self.group_for_directory(linear);
            (group, self.fresh(group, self.size).or_else(|| self.plain(group)).unwrap())
        } else {
            let own = if self.has_window(parent) { self.inside(parent, hash) } else { None };
            match own {
                Some(slot) => (parent.0, slot),
                None => {
                    let group = self.group_for_other(parent);
                    (group, self.plain(group).unwrap())
                }
            }
        };
        self.slots[at.0][at.1] = Some(is_directory);
        at
    }

    fn remove(&mut self, at: Place) {
        self.slots[at.0][at.1] = None;
        self.seconds.remove(&at);
    }
}

/// Counts of the cases that a run covers: a test that covers none of a kind fails.
#[derive(Default, Debug)]
struct Coverage {
    made: usize,
    inside: usize,
    spilled: usize,
    windowless: usize,
    seconds: usize,
    full: usize,
    remounts: usize,
}

/// A directory: its inode, its place, and the names in it by number, with whether they
/// are of directories.
type Dir = (Ino, Place, Vec<(usize, bool)>);

/// A volume in use and its model.
struct Run {
    model: Model,
    live: ExtLive,
    linear: bool,
    dirs: Vec<Dir>,
    seen: Coverage,
}

impl Run {
    fn place(&self, ino: Ino) -> Place {
        let number = ino.get() as usize - 1;
        (number / self.model.per_group, number % self.model.per_group)
    }

    fn make(&mut self, which: usize, n: usize, name: &str, hash: u64, is_directory: bool) {
        let (dir, parent, _) = self.dirs[which];
        let kind = if is_directory { NewFile::Directory } else { NewFile::Regular };
        let made = self.live.make(dir, name.as_bytes(), kind, OWNER);
        if self.model.is_full() {
            assert!(matches!(made, Err(FsError::NoSpace(_))), "{made:?}");
            self.seen.full += 1;
            return;
        }
        let before = self.model.seconds.len();
        let expected = self.model.make(parent, is_directory, hash, self.linear);
        let ino = made.unwrap().ino;
        assert_eq!(self.place(ino), expected, "{name} in {parent:?}, {:?}", self.seen);
        let size = self.model.size;
        self.seen.made += 1;
        self.seen.seconds += self.model.seconds.len() - before;
        let has = self.model.has_window(parent);
        let is_near = expected.0 == parent.0 && expected.1 / size == parent.1 / size;
        match is_directory {
            true => self.seen.windowless += usize::from(!self.model.has_window(expected)),
            false if has => {
                self.seen.inside += usize::from(is_near);
                self.seen.spilled += usize::from(!is_near);
            }
            false => {}
        }
        self.dirs[which].2.push((n, is_directory));
        if is_directory {
            self.dirs.push((ino, expected, Vec::new()));
        }
    }

    /// Removes a name of a directory that is no directory, or is empty.
    fn remove(&mut self, which: usize, at: usize, names: &[String]) {
        let (dir, _, held) = &self.dirs[which];
        let (dir, (n, is_directory)) = (*dir, held[at]);
        let name = names[n].as_bytes();
        let ino = self.live.lookup(dir, name).unwrap().unwrap();
        let place = self.place(ino);
        if is_directory {
            let child = self.dirs.iter().position(|(_, at, _)| *at == place).unwrap();
            if !self.dirs[child].2.is_empty() {
                return;
            }
            self.live.rmdir(dir, name).unwrap();
            self.dirs[which].2.swap_remove(at);
            self.dirs.swap_remove(child);
        } else {
            self.live.unlink(dir, name).unwrap();
            self.dirs[which].2.swap_remove(at);
        }
        // It is free once that is on its way to the disk.
        self.live.sync().unwrap();
        self.model.remove(place);
    }
}

fn run(volume: &(Shape, Discipline), seed: u64, linear: bool) -> Coverage {
    let (shape, discipline) = volume;
    let device = image(shape);
    let names: Vec<String> = (0..7000).map(|n| format!("n{n}")).collect();
    let hashes = hashes(&names);
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |limit: usize| chance.next_u64() as usize % limit;
    let dirs = if linear { "linear" } else { "old-dirpref" };
    let ways = [(16, false), (8, true), (5, false), (32, true), (16, true), (64, false)];
    let way = |round: usize| {
        let (size, hashed) = ways[(round + seed as usize) % ways.len()];
        let name = if hashed { "dir-reserve-hashed" } else { "dir-reserve" };
        let asked = if size == 16 { name.to_string() } else { format!("{name}={size}") };
        (size, hashed, asked)
    };
    let mut model = Model::of(&device);
    let (size, hashed, asked) = way(0);
    (model.size, model.hashed) = (size, hashed);
    let mut live = open(&device, *discipline, dirs, &asked);
    let root = (live.root(), (0, 1), Vec::new());
    // A directory that is there from the beginning.
    let lost = live.lookup(root.0, b"lost+found").unwrap().unwrap();
    let lost = (lost, (0, lost.get() as usize - 1), Vec::new());
    let mut run = Run { model, live, linear, dirs: vec![root, lost], seen: Coverage::default() };
    let mut full = 0;
    for (n, name) in names.iter().enumerate() {
        if n % 900 == 899 {
            run.live.unmount().unwrap();
            fsck(&device, &format!("{asked} {discipline} {shape:?}"));
            run.seen.remounts += 1;
            let (size, hashed, asked) = way(run.seen.remounts);
            (run.model.size, run.model.hashed) = (size, hashed);
            run.model.seconds.clear();
            run.live = open(&device, *discipline, dirs, &asked);
        }
        // It fills to the last inode, is emptied in part, and fills again.
        let is_full = run.seen.full > full + 20;
        full = if is_full { run.seen.full } else { full };
        let removals = if is_full { 1500 } else { usize::from(below(6) == 0) };
        for _ in 0..removals {
            let which = below(run.dirs.len());
            let held = run.dirs[which].2.len();
            if held > 0 {
                run.remove(which, below(held), &names);
            }
        }
        // Some directories have many more names than others.
        let which =
            if below(4) == 0 { below(run.dirs.len().min(12)) } else { below(run.dirs.len()) };
        run.make(which, n, name, hashes[n], below(50) == 0);
    }
    run.live.unmount().unwrap();
    fsck(&device, &format!("{discipline} {shape:?}"));
    run.seen
}

#[test]
fn every_inode_is_the_one_that_the_description_has() {
    for (n, volume) in VOLUMES.iter().enumerate() {
        for linear in [true, false] {
            let seen = run(volume, n as u64 + 1, linear);
            let what = format!("{volume:?} {linear}: {seen:?}");
            eprintln!("{what}");
            assert!(seen.made > 1500 && seen.remounts > 5, "{what}");
            assert!(seen.inside > 200 && seen.spilled > 50, "{what}");
            // One group after the other has no room for second areas, as a rule.
            assert!(seen.windowless > 5 && seen.full > 40, "{what}");
            assert!(linear || seen.seconds > 5, "{what}");
        }
    }
}
