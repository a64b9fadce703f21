//! `linux-orlov` beside the kernel: the same operations through its mount and through
//! the engine, on two copies of an image; inodes go to the same groups. Only root
//! mounts images; says so and passes otherwise.

use super::kernel::mounted;
use super::shapes::{Shape, fsck, image, options, run};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{Ino, Lba};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

/// Flexible groups of 1, 4 and 16 groups, each once with so few inodes that most groups
/// become full.
const FLEXIBLE: [(Shape, Discipline); 6] = [
    (
        shape(&["-O", "^has_journal,^flex_bg,^orphan_file", "-g", "1024", "-E", SEED]),
        Discipline::Async,
    ),
    (shape(&["-O", "^flex_bg", "-J", "size=1", "-g", "512", "-i", "16384", "-E", SEED]), ORDERED),
    (
        shape(&["-O", "^has_journal,^orphan_file", "-G", "4", "-g", "1024", "-E", SEED]),
        Discipline::Async,
    ),
    (shape(&["-J", "size=1", "-G", "4", "-g", "512", "-i", "16384", "-E", SEED]), ORDERED),
    (shape(&["-J", "size=1", "-G", "16", "-g", "512", "-E", SEED]), ORDERED),
    (shape(&["-J", "size=1", "-G", "16", "-g", "256", "-i", "16384", "-E", SEED]), ORDERED),
];

const ORDERED: Discipline = Discipline::Journal(JournalMode::Ordered);
/// Fixed, so that the directories of the root are the same in every run.
const SEED: &str = "hash_seed=6b3a1cf0-52d1-4e0c-9a3e-0d7c5a9e41b2";

const fn shape(how: &'static [&'static str]) -> Shape {
    Shape { kind: "ext4", block: 1024, mebibytes: 40, how }
}

/// What is done, with paths from the root.
enum Step {
    Make(String, bool),
    Remove(String, bool),
}

/// So many steps below the root and the directories of `tops`.
fn steps(seed: u64, count: usize, tops: &[&str]) -> Vec<Step> {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |limit: usize| chance.next_u64() as usize % limit;
    // Directories, and how many names are in each.
    let mut dirs = BTreeMap::from([(String::new(), 1)]);
    dirs.extend(tops.iter().map(|top| (format!("/{top}"), 1)));
    let (mut files, mut steps) = (Vec::new(), Vec::new());
    for n in 0..count {
        let what = below(100);
        let empty = dirs.iter().filter(|(_, names)| **names == 0).map(|(dir, _)| dir.clone());
        let parent_of = |path: &str| path.rsplit_once('/').unwrap().0.to_string();
        if what < 6
            && let Some(gone) = empty.collect::<Vec<_>>().first()
        {
            dirs.remove(gone);
            *dirs.get_mut(&parent_of(gone)).unwrap() -= 1;
            steps.push(Step::Remove(gone.clone(), true));
            continue;
        }
        if what < 12 && !files.is_empty() {
            let gone: String = files.swap_remove(below(files.len()));
            *dirs.get_mut(&parent_of(&gone)).unwrap() -= 1;
            steps.push(Step::Remove(gone, false));
            continue;
        }
        let parent = match what {
            ..25 => String::new(),
            25..32 if !tops.is_empty() => format!("/{}", tops[below(tops.len())]),
            _ => dirs.keys().nth(below(dirs.len())).unwrap().clone(),
        };
        *dirs.get_mut(&parent).unwrap() += 1;
        let is_directory = what.is_multiple_of(4);
        // Bytes above 127 are signed for this hash.
        let path = format!("{parent}/{}{n}", ["d", "a longer name ", "é", "ñü"][below(4)]);
        if is_directory {
            dirs.insert(path.clone(), 0);
        } else {
            files.push(path.clone());
        }
        steps.push(Step::Make(path, is_directory));
    }
    steps
}

/// The kernel keeps counts by processor.
pub(crate) fn stay_on_one_processor() {
    let thread = fs::read_link("/proc/thread-self").unwrap();
    run("taskset", &["-p", "-c", "0", thread.file_name().unwrap().to_str().unwrap()]);
}

/// The numbers of what is made, by the kernel.
fn by_the_kernel(at: &Path, steps: &[Step]) -> Vec<u64> {
    let path = |path: &str| at.join(path.strip_prefix('/').unwrap());
    stay_on_one_processor();
    let mut made = Vec::new();
    for step in steps {
        match step {
            Step::Make(name, true) => fs::create_dir(path(name)).unwrap(),
            Step::Make(name, false) => drop(fs::File::create_new(path(name)).unwrap()),
            Step::Remove(name, true) => fs::remove_dir(path(name)).unwrap(),
            Step::Remove(name, false) => fs::remove_file(path(name)).unwrap(),
        }
        if let Step::Make(name, _) = step {
            made.push(fs::metadata(path(name)).unwrap().ino());
        }
    }
    made
}

/// The same through the engine.
fn by_the_engine(live: &mut ExtLive, steps: &[Step]) -> Vec<u64> {
    let mut inodes: BTreeMap<String, Ino> = BTreeMap::from([(String::new(), live.root())]);
    let mut made = Vec::new();
    for step in steps {
        let (Step::Make(path, is_directory) | Step::Remove(path, is_directory)) = step;
        let (parent, name) = path.rsplit_once('/').unwrap();
        if !inodes.contains_key(parent) {
            let found = live.lookup(live.root(), &parent.as_bytes()[1..]).unwrap().unwrap();
            inodes.insert(parent.to_string(), found);
        }
        let (dir, name) = (inodes[parent], name.as_bytes());
        match (step, is_directory) {
            (Step::Remove(..), true) => live.rmdir(dir, name).unwrap(),
            (Step::Remove(..), false) => live.unlink(dir, name).unwrap(),
            (Step::Make(..), _) => {
                let kind = if *is_directory { NewFile::Directory } else { NewFile::Regular };
                let ino = live.make(dir, name, kind, OWNER).unwrap().ino;
                inodes.insert(path.clone(), ino);
                made.push(u64::from(ino.get()));
            }
        }
        if matches!(step, Step::Remove(..)) {
            // An inode is free again when that is on its way to the disk; under the
            // kernel it is at once.
            live.sync().unwrap();
        }
    }
    made
}

/// What is found beside the kernel: the first of three times that is good, or the last. The
/// kernel's averages are of counts that it keeps by processor and adds up now and then; what it
/// does on others meanwhile (writing back) makes it choose otherwise now and then.
pub(crate) fn nearest<T>(mut once: impl FnMut() -> (T, bool)) -> (T, bool) {
    let mut found = once();
    for _ in 0..2 {
        if !found.1 {
            found = once();
        }
    }
    found
}

pub(crate) fn copy(device: &MemoryDevice) -> Arc<MemoryDevice> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    Arc::new(MemoryDevice::new(bytes))
}

/// Files and directories of `count` steps that went to the same group, and all of them.
fn beside(shape: &Shape, discipline: Discipline, seed: u64, count: usize) -> [(usize, usize); 2] {
    let tops = ["top of some", "another"];
    // No unit is full, or the kernel would look elsewhere for blocks of directories than
    // the engine does, which places blocks by other rules: some groups have
    // few blocks left. Two directories are spread like the root's.
    let start = mounted(&image(shape), |at| {
        for top in tops {
            fs::create_dir(at.join(top)).unwrap();
            run("chattr", &["+T", at.join(top).to_str().unwrap()]);
        }
        fs::write(at.join(tops[0]).join("large"), vec![1; 900 << 10]).unwrap();
        fs::write(at.join(tops[1]).join("small"), vec![1; 300 << 10]).unwrap();
    });
    let steps = steps(seed, count, &tops);
    let mut theirs = Vec::new();
    let theirs_at_end = mounted(&copy(&start), |at| theirs = by_the_kernel(at, &steps));
    let options = LiveOptions { directories: "linux-orlov".into(), ..options() };
    let clock = Arc::new(VirtualClock::new());
    let mut live = ExtLive::open(start.clone(), clock, Config::new(discipline), options).unwrap();
    let ours = by_the_engine(&mut live, &steps);
    live.unmount().unwrap();
    let what = format!("{discipline} {shape:?}");
    fsck(&start, &what);
    fsck(&theirs_at_end, &what);
    let reader = ExtImage::open(start, OpenOptions::default()).unwrap();
    let per_group = u64::from(reader.geometry().inodes_per_group);
    let mut equal = [(0, 0); 2];
    let mut used = BTreeMap::new();
    let made = steps.iter().filter_map(|step| match step {
        Step::Make(path, is_directory) => Some((path, *is_directory)),
        Step::Remove(..) => None,
    });
    for (((path, is_directory), ours), theirs) in made.zip(ours).zip(theirs) {
        let (ours, theirs) = ((ours - 1) / per_group, (theirs - 1) / per_group);
        if ours != theirs {
            eprintln!("{path}: in group {ours}, the kernel's in {theirs}");
        }
        let sum = &mut equal[usize::from(is_directory)];
        *sum = (sum.0 + usize::from(ours == theirs), sum.1 + 1);
        *used.entry(theirs).or_insert(0) += 1;
    }
    assert!(used.len() > 8, "{what}: they are spread: {used:?}");
    equal
}

#[test]
fn inodes_go_to_the_groups_that_the_kernel_chooses() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    for (n, (shape, discipline)) in FLEXIBLE.iter().enumerate() {
        let found = nearest(|| {
            let found = beside(shape, *discipline, n as u64 + 1, 2900);
            let good = found.iter().all(|(equal, all)| equal * 100 >= all * 99);
            (found, good)
        });
        assert!(found.1, "{shape:?}: {:?} of files and directories in the same group", found.0);
    }
}
