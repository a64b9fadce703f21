//! Damaged images in use: whatever their bytes say, operations end with an answer
//! or an error.

use super::replay::ops;
use super::shapes::{JOURNALLED, SHAPES, Shape, WITH_EXTENTS, image, options};
use crate::slice::some_or_all;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_ext::{ExtLive, LiveOptions};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError};
use seekless_units::{ByteLen, Ino, Lba, Nanos};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 1, gid: 2, perm: 0o644 };

/// Calls, one after the other, on an image of which nothing is known.
struct Storm {
    live: ExtLive,
    clock: Arc<VirtualClock>,
    rng: Pcg64Mcg,
    /// Files met so far.
    known: Vec<Ino>,
    done: u32,
    failed: u32,
}

impl Storm {
    fn below(&mut self, limit: u64) -> u64 {
        self.rng.next_u64() % limit.max(1)
    }

    fn some(&mut self) -> Ino {
        // Any number, sometimes.
        if self.below(20) == 0 {
            return Ino::new(self.below(9000) as u32);
        }
        let at = self.below(self.known.len() as u64) as usize;
        self.known[at]
    }

    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.below(12)).into_bytes()
    }

    fn note<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        self.done += 1;
        self.failed += u32::from(result.is_err());
        result.ok()
    }

    fn list(&mut self, dir: Ino) {
        let mut met = Vec::new();
        let listed = self.live.read_dir(dir, 0, &mut |entry| {
            met.push(entry.ino);
            if met.len() < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.note(listed);
        self.known.extend(met);
        self.known.truncate(300);
    }

    fn one(&mut self) {
        let (one, other) = (self.some(), self.some());
        let (name, new) = (self.name(), self.name());
        let at = ByteLen::new([0, 900, 20_000, 400_000, 80 << 20][self.below(5) as usize]);
        match self.below(16) {
            0..3 => {
                let what = [
                    NewFile::Regular,
                    NewFile::Directory,
                    NewFile::Symlink(&[b's'; 100]),
                    NewFile::Special(FileKind::Fifo),
                ][self.below(4) as usize];
                let made = self.live.make(one, &name, what, OWNER);
                if let Some(made) = self.note(made) {
                    self.known.push(made.ino);
                }
            }
            3 => {
                let done = self.live.unlink(one, &name);
                self.note(done);
            }
            4 => {
                let done = self.live.rmdir(one, &name);
                self.note(done);
            }
            5 => {
                let mode = [RenameMode::Replace, RenameMode::Exchange][self.below(2) as usize];
                let done = self.live.rename((one, &name), (other, &new), mode);
                self.note(done);
            }
            6 => {
                let done = self.live.link(one, other, &name);
                self.note(done);
            }
            7 | 8 => {
                let done = self.live.write(one, at, &[7; 3000]);
                self.note(done);
                let keep = self.below(2) == 0;
                let done = self.live.allocate(other, at, ByteLen::new(70_000), keep);
                self.note(done);
                let done = self.live.data_runs(other);
                self.note(done);
            }
            9 => {
                let set = SetAttr { size: Some(at.get()), ..SetAttr::default() };
                let done = self.live.set_attr(one, &set);
                self.note(done);
            }
            10 => {
                let done = self.live.set_xattr(one, b"user.x", &[3; 90], XattrMode::Any);
                self.note(done);
                let done = self.live.xattrs(one);
                self.note(done);
            }
            11 => {
                let done = self.live.read(one, at, &mut [0; 5000]);
                self.note(done);
                let done = self.live.read_link(one);
                self.note(done);
            }
            12 => {
                let done = self.live.fsync(one);
                self.note(done);
            }
            13 => {
                self.clock.sleep(Nanos::new(20_000_000_000));
                let done = self.live.tick();
                self.note(done);
            }
            14 => {
                let found = self.live.lookup(one, &name);
                if let Some(Some(found)) = self.note(found) {
                    self.known.push(found);
                }
            }
            _ => self.list(one),
        }
    }
}

/// An image with files in it, of many extents where there are such.
fn patient(shape: &Shape) -> Vec<u8> {
    let device = image(shape);
    let discipline = match JOURNALLED.contains(shape) {
        true => Discipline::Journal(JournalMode::Ordered),
        false => Discipline::Async,
    };
    let mut replay = super::shapes::through(device.clone(), device, discipline);
    let operations = ops(250, false).new_tree(&mut TestRunner::deterministic());
    replay.run(&operations.unwrap().current());
    let device = replay.finish();
    if WITH_EXTENTS.contains(shape) {
        super::known_files::scatter(device.clone());
    }
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    bytes
}

/// Damages blocks of extent trees, which begin with their magic number.
fn damage_trees(bytes: &mut [u8], rng: &mut Pcg64Mcg) {
    let is_tree = |at: &usize| bytes[*at..].starts_with(&[0x0A, 0xF3]);
    let trees: Vec<usize> = (0..bytes.len()).step_by(1024).filter(is_tree).collect();
    for _ in 0..1 + rng.next_u64() % 12 {
        let at = trees[rng.next_u64() as usize % trees.len()];
        let at = at
            + (rng.next_u64() % if rng.next_u64().is_multiple_of(3) { 12 } else { 300 }) as usize;
        bytes[at] ^= 1 << (rng.next_u64() % 8);
    }
}

/// Where metadata is: the first blocks of the groups, roughly, and what files hold.
fn damage(bytes: &mut [u8], rng: &mut Pcg64Mcg) {
    let count = 1 + rng.next_u64() % 12;
    for _ in 0..count {
        let within = if rng.next_u64().is_multiple_of(4) { bytes.len() as u64 } else { 700 << 10 };
        let at = (1024 + rng.next_u64() % (within - 1100)) as usize;
        match rng.next_u64() % 3 {
            0 => bytes[at] ^= 1 << (rng.next_u64() % 8),
            1 => bytes[at..at + 4].copy_from_slice(&(rng.next_u64() as u32).to_le_bytes()),
            _ => {
                let from = at / 64 * 64;
                let noise = rng.next_u64().to_le_bytes();
                bytes[from..from + 64]
                    .iter_mut()
                    .zip(noise.iter().cycle())
                    .for_each(|(to, n)| *to = *n);
            }
        }
    }
}

fn storms(
    images: u64,
    shapes: &[Shape],
    damage: impl Fn(&mut [u8], &mut Pcg64Mcg),
) -> (u32, u32, u32) {
    let patients: Vec<Vec<u8>> = shapes.iter().map(patient).collect();
    let (mut opened, mut done, mut failed) = (0, 0, 0);
    for seed in 0..images {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut bytes = patients[seed as usize % patients.len()].clone();
        damage(&mut bytes, &mut rng);
        let device = Arc::new(MemoryDevice::new(bytes));
        let clock = Arc::new(VirtualClock::new());
        let disciplines: Vec<Discipline> =
            shapes[seed as usize % shapes.len()].disciplines().collect();
        let discipline = disciplines[(seed / 7) as usize % disciplines.len()];
        let mut config = Config::new(discipline);
        config.capacity = ByteLen::new(1 << 20);
        let how = LiveOptions { force: true, ..options() };
        let Ok(live) = ExtLive::open(device, clock.clone() as Arc<dyn Clock>, config, how) else {
            continue;
        };
        let root = live.root();
        let mut storm = Storm { live, clock, rng, known: vec![root], done: 0, failed: 0 };
        storm.list(root);
        for _ in 0..250 {
            storm.one();
        }
        let _ = storm.live.unmount();
        opened += 1;
        done += storm.done;
        failed += storm.failed;
    }
    (opened, done, failed)
}

#[test]
fn damaged_images_give_answers_or_errors() {
    let cases = some_or_all(60, 120);
    let (opened, done, failed) = storms(u64::from(cases), &SHAPES, damage);
    assert!(opened > cases / 2, "{opened} of {cases} could be opened");
    assert!(failed > done / 50 && failed < done, "{failed} of {done} calls failed");
}

#[test]
fn damaged_extents_give_answers_or_errors() {
    let cases = some_or_all(30, 90);
    for damage in [damage, damage_trees] {
        let (opened, done, failed) = storms(u64::from(cases), &WITH_EXTENTS, damage);
        assert!(opened > cases / 2, "{opened} of {cases} could be opened");
        assert!(failed > done / 50 && failed < done, "{failed} of {done} calls failed");
    }
}

#[test]
fn damaged_images_with_a_journal_give_answers_or_errors() {
    let (opened, done, failed) = storms(64, &JOURNALLED, damage);
    assert!(opened > 20, "{opened} of 64 could be opened");
    assert!(failed > done / 50 && failed < done, "{failed} of {done} calls failed");
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ext live -- --ignored"]
fn very_many_damaged_images_give_answers_or_errors() {
    println!("{:?}", storms(5000, &SHAPES, damage));
    println!("{:?}", storms(5000, &WITH_EXTENTS, damage));
    println!("{:?}", storms(5000, &JOURNALLED, damage));
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ext live -- --ignored"]
fn very_many_damaged_trees_give_answers_or_errors() {
    println!("{:?}", storms(5000, &WITH_EXTENTS, damage_trees));
}
