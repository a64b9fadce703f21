//! `blocks=ext4-goal` beside the kernel, with and without delayed allocation: the same
//! operations on two copies of an image; files begin in the same groups, and near
//! each other. Only root mounts images; says so and passes otherwise.

use super::kernel::mounted_with;
use super::placed::{copy, nearest, stay_on_one_processor};
use super::shapes::{Shape, fsck, image, options, run};
use crate::slice::some_or_all;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };
const ORDERED: Discipline = Discipline::Journal(JournalMode::Ordered);
const SEED: &str = "hash_seed=6b3a1cf0-52d1-4e0c-9a3e-0d7c5a9e41b2";

/// With flexible groups of 1, 4 and 16 groups, and with blocks of 1 and 4 KiB.
const VOLUMES: [(Shape, Discipline); 5] = [
    (
        shape(4096, 256, &["-O", "^has_journal,^flex_bg,^orphan_file", "-g", "4096", "-E", SEED]),
        Discipline::Async,
    ),
    (shape(4096, 256, &["-O", "^flex_bg", "-J", "size=4", "-g", "4096", "-E", SEED]), ORDERED),
    (shape(4096, 256, &["-J", "size=4", "-g", "4096", "-G", "4", "-E", SEED]), ORDERED),
    (shape(1024, 128, &["-J", "size=4", "-G", "4", "-E", SEED]), ORDERED),
    (shape(4096, 512, &["-J", "size=4", "-g", "4096", "-G", "16", "-E", SEED]), ORDERED),
];

const fn shape(block: u32, mebibytes: u64, how: &'static [&'static str]) -> Shape {
    Shape { kind: "ext4", block, mebibytes, how }
}

enum Step {
    Directory(String),
    /// With so many blocks.
    File(String, usize),
    Remove(String),
}

fn steps(seed: u64, most: usize, blocks_in_all: usize) -> Vec<Step> {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |limit: usize| chance.next_u64() as usize % limit;
    let mut dirs = vec![String::new()];
    let mut files: Vec<(String, usize)> = Vec::new();
    let (mut steps, mut total) = (Vec::new(), 0);
    for n in 0..most {
        let what = below(100);
        if what < 10 && !files.is_empty() {
            let (gone, blocks) = files.swap_remove(below(files.len()));
            total -= blocks;
            steps.push(Step::Remove(gone));
            continue;
        }
        let parent = if what < 16 { 0 } else { below(dirs.len()) };
        let path = format!("{}/{n}", dirs[parent]);
        if what < 24 {
            dirs.push(path.clone());
            steps.push(Step::Directory(path));
            continue;
        }
        // Mostly small ones.
        let blocks = [1 + below(4), 1 + below(16), 1 + below(4), 1 + below(60)][below(4)];
        if total + blocks > blocks_in_all {
            continue;
        }
        total += blocks;
        files.push((path.clone(), blocks));
        steps.push(Step::File(path, blocks));
    }
    steps
}

/// The processors that the kernel may come to have.
fn processors() -> u32 {
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = possible.trim().rsplit(['-', ',']).next().unwrap();
    last.parse::<u32>().unwrap() + 1
}

/// The kernel leaves out groups of which it has not read the bitmaps yet, as long as
/// others have room; to show what all groups have it reads them.
fn know_all_groups(at: &Path) {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let is_there = |line: &&str| line.split(' ').nth(1).is_some_and(|dir| Path::new(dir) == at);
    let device = mounts.lines().find(is_there).unwrap().split(' ').next().unwrap();
    let name = device.strip_prefix("/dev/").unwrap();
    let shown = fs::read_to_string(format!("/proc/fs/ext4/{name}/mb_groups")).unwrap();
    assert!(shown.lines().count() > 1, "{shown}");
}

fn by_the_kernel(at: &Path, steps: &[Step], block: usize, syncs: bool) {
    let path = |path: &str| at.join(path.strip_prefix('/').unwrap());
    stay_on_one_processor();
    know_all_groups(at);
    for step in steps {
        match step {
            Step::Directory(name) => fs::create_dir(path(name)).unwrap(),
            Step::Remove(name) => {
                fs::remove_file(path(name)).unwrap();
                // What was given back can be used again once that is committed; what waits
                // for its place gets one here and there at the same time.
                if syncs {
                    run("sync", &["-f", at.to_str().unwrap()]);
                }
            }
            Step::File(name, blocks) => {
                let mut file = fs::File::create_new(path(name)).unwrap();
                for _ in 0..*blocks {
                    file.write_all(&vec![7; block]).unwrap();
                }
            }
        }
    }
}

fn by_the_engine(live: &mut ExtLive, steps: &[Step], block: usize) {
    let mut dirs: BTreeMap<String, Ino> = BTreeMap::from([(String::new(), live.root())]);
    for step in steps {
        let (Step::Directory(path) | Step::File(path, _) | Step::Remove(path)) = step;
        let (parent, name) = path.rsplit_once('/').unwrap();
        let (dir, name) = (dirs[parent], name.as_bytes());
        match step {
            Step::Directory(_) => {
                let made = live.make(dir, name, NewFile::Directory, OWNER).unwrap();
                dirs.insert(path.clone(), made.ino);
            }
            Step::Remove(_) => {
                live.unlink(dir, name).unwrap();
                live.sync().unwrap();
            }
            Step::File(_, blocks) => {
                let ino = live.make(dir, name, NewFile::Regular, OWNER).unwrap().ino;
                live.hold(ino).unwrap();
                for n in 0..*blocks {
                    live.write(ino, ByteLen::new((n * block) as u64), &vec![7; block]).unwrap();
                }
                // As the kernel, which keeps nothing for files that are closed.
                live.release(ino).unwrap();
            }
        }
    }
}

/// The first blocks of files and the inodes of directories that are there at the end.
fn found(device: &Arc<MemoryDevice>, steps: &[Step]) -> BTreeMap<String, (bool, u64)> {
    let image = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
    let per_group = u64::from(image.geometry().inodes_per_group);
    let mut all = BTreeMap::new();
    for step in steps {
        match step {
            Step::Remove(path) => drop(all.remove(path)),
            Step::Directory(path) => {
                let ino = resolve(&image, path.as_bytes()).unwrap();
                all.insert(path.clone(), (true, (u64::from(ino.get()) - 1) / per_group));
            }
            Step::File(path, _) => {
                let Ok(ino) = resolve(&image, path.as_bytes()) else { continue };
                let first = image.block_map(ino).unwrap().runs[0].extent.start.get();
                all.insert(path.clone(), (false, first));
            }
        }
    }
    all
}

#[test]
fn files_begin_where_the_kernel_begins_them() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    for (n, (shape, discipline)) in VOLUMES.iter().enumerate().step_by(some_or_all(2, 1)) {
        let (sums, good) = nearest(|| beside(n, shape, *discipline, false));
        eprintln!("{sums}");
        assert!(good, "{sums}");
    }
}

/// The same under the kernel's default, delayed allocation: a file is written in many
/// requests and placed at once, when it is written back. What writes back is pinned
/// to a processor as the writers are.
#[test]
fn files_that_waited_begin_where_the_kernel_begins_them() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    let Some(_one) = WritesBackOnOne::new() else {
        eprintln!("skipped: {WRITEBACK} cannot be set");
        return;
    };
    for (n, (shape, discipline)) in VOLUMES.iter().enumerate().step_by(some_or_all(4, 2)) {
        let (sums, good) = nearest(|| beside(n, shape, *discipline, true));
        eprintln!("{sums}");
        assert!(good, "{sums}");
    }
}

/// The processors on which the kernel writes back, which keep chunks of their own: one, as
/// long as this lives.
struct WritesBackOnOne(String);

const WRITEBACK: &str = "/sys/devices/virtual/workqueue/writeback/cpumask";

impl WritesBackOnOne {
    fn new() -> Option<Self> {
        let before = fs::read_to_string(WRITEBACK).ok()?;
        fs::write(WRITEBACK, "1").ok().map(|()| Self(before))
    }
}

impl Drop for WritesBackOnOne {
    fn drop(&mut self) {
        fs::write(WRITEBACK, self.0.trim()).unwrap();
    }
}

/// How alike a volume becomes here and there, and whether that is enough.
fn beside(n: usize, shape: &Shape, discipline: Discipline, delays: bool) -> (String, bool) {
    let option = if delays { "delalloc" } else { "nodelalloc" };
    let what = format!("{option} {discipline} {shape:?}");
    let block = shape.block as usize;
    let blocks = (shape.mebibytes << 20) as usize / block;
    let steps = steps(n as u64 + 1, 2500, blocks / 2);
    let start = image(shape);
    let theirs = mounted_with(&copy(&start), option, |at| {
        by_the_kernel(at, &steps, block, delays || discipline == ORDERED);
    });
    let options = LiveOptions {
        directories: "linux-orlov".into(),
        inodes: None,
        blocks: Some(format!("ext4-goal={}", processors())),
        delays: Some(delays),
        ..options()
    };
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(discipline);
    let mut live = ExtLive::open(start.clone(), clock, config, options).unwrap();
    by_the_engine(&mut live, &steps, block);
    live.unmount().unwrap();
    fsck(&start, &what);
    let (ours, theirs) = (found(&start, &steps), found(&theirs, &steps));
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let per_group = match shape.how.iter().position(|how| *how == "-g") {
        Some(at) => shape.how[at + 1].parse().unwrap(),
        None => 8 * block as u64,
    };
    let (mut dirs, mut same_dirs, mut files, mut same, mut near, mut equal) = (0, 0, 0, 0, 0, 0);
    let first = u64::from(block == 1024);
    for (path, (is_directory, ours)) in &ours {
        let (_, theirs) = theirs[path];
        if *is_directory {
            (dirs, same_dirs) = (dirs + 1, same_dirs + u32::from(*ours == theirs));
            continue;
        }
        files += 1;
        same += u32::from((ours - first) / per_group == (theirs - first) / per_group);
        near += u32::from(ours.abs_diff(theirs) * block as u64 <= 8 << 20);
        equal += u32::from(*ours == theirs);
    }
    let sums = format!(
        "{what}: {same_dirs} of {dirs} directories; of {files} files {same} in the same \
         group, {near} near, {equal} in the same place"
    );
    assert!(files > 500 && dirs > 100, "{sums}");
    let good = same_dirs * 100 >= dirs * 99 && same * 100 >= files * 90 && near * 100 >= files * 80;
    (sums, good)
}
