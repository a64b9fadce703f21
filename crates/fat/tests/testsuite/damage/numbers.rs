//! Fields set to the numbers at which sums and products overflow: reading, checking, repairing and
//! changing such an image give answers or typed errors, and no panic.

use super::patient::Patient;
use super::{Random, exercise};
use crate::slice::some_or_all;
use seekless_cache::{Config, Discipline};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_fat::{FatLive, LiveOptions, LostChains, check, repair};
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
/// Damaged images of each width.
const ROUNDS: usize = 400;
/// Bytes of the boot sector with the fields of the volume.
const FIELDS: usize = 90;
/// The fields of a slot, with their lengths: attributes, times, first cluster, length, and the
/// number and checksum of a piece of a long name.
const SLOT: [(usize, usize); 10] =
    [(0, 1), (11, 1), (13, 1), (14, 4), (16, 2), (18, 2), (20, 2), (24, 4), (26, 2), (28, 4)];

/// A number near the end of a type, a small one, or any.
fn value(random: &mut Random) -> u32 {
    const NUMBERS: [u32; 10] =
        [0, 1, 2, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x0FFF_FFF6, 0xFFFF_FFF8, 0x0FFF_FFFF, u32::MAX];
    match random.below(12) {
        at @ 0..10 => NUMBERS[at],
        10 => random.below(1 << 10) as u32,
        _ => (random.below(1 << 16) << 16 | random.below(1 << 16)) as u32,
    }
}

/// Sets a field of the boot sector, an entry of the FATs of a sound image, a slot of a directory, or
/// any word that is not zero.
fn hit(
    patient: &mut Patient,
    sound: &Patient,
    slots: &[usize],
    busy: &[usize],
    random: &mut Random,
) {
    let value = value(random);
    match random.below(6) {
        0 => {
            let len = [1, 2, 4][random.below(3)];
            let at = 11 + random.below(FIELDS - 11 - len);
            patient.put(at, &value.to_le_bytes()[..len]);
        }
        1 | 2 => {
            let cluster = random.below(60);
            let len = if sound.bits == 32 { 4 } else { 2 };
            for fat in 0..2 {
                patient.put(sound.entry(fat, cluster), &value.to_le_bytes()[..len]);
            }
        }
        3 | 4 => {
            let (field, len) = SLOT[random.below(SLOT.len())];
            let at = slots[random.below(slots.len())] + field;
            patient.put(at, &value.to_le_bytes()[..len]);
        }
        _ => {
            let at = busy[random.below(busy.len())];
            patient.put(at, &value.to_le_bytes());
        }
    }
}

/// Counts of calls on images in use.
#[derive(Default, Debug)]
struct Calls {
    opened: usize,
    done: usize,
    failed: usize,
}

impl Calls {
    fn note<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.done += 1;
                Some(value)
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                self.failed += 1;
                None
            }
        }
    }

    /// Opens an image whatever its state, and changes each of its files.
    fn change(&mut self, bytes: Vec<u8>) {
        let options = LiveOptions {
            clusters: None,
            seed: 1,
            zone: 0,
            force: true,
            wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
        };
        let device = Arc::new(MemoryDevice::new(bytes));
        let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
        let Ok(mut live) = FatLive::open(device, clock, config, options) else { return };
        self.opened += 1;
        let mut files: Vec<(Ino, Vec<u8>, Ino)> = Vec::new();
        let mut pending = vec![live.root()];
        while let Some(dir) = pending.pop().filter(|_| files.len() < 60) {
            let mut met = Vec::new();
            let listed = live.read_dir(dir, 2, &mut |entry| {
                met.push((dir, entry.name.to_vec(), entry.ino));
                ControlFlow::Continue(())
            });
            self.note(listed);
            pending.extend(met.iter().map(|(.., ino)| *ino));
            files.extend(met);
        }
        live.space();
        for (n, (dir, name, ino)) in files.into_iter().enumerate() {
            self.note(live.attr(ino));
            self.note(live.data_runs(ino));
            self.note(live.read(ino, ByteLen::ZERO, &mut [0; 3000]));
            self.note(live.write(ino, ByteLen::new(n as u64 * 700), &[7; 900]));
            let set = SetAttr { size: Some(n as u64 * 100), ..SetAttr::default() };
            self.note(live.set_attr(ino, &set));
            self.note(live.make(dir, format!("new {n}").as_bytes(), NewFile::Directory, OWNER));
            if n % 3 == 0 {
                self.note(live.unlink(dir, &name));
            }
        }
        self.note(live.sync());
        let closed = live.unmount();
        self.note(closed);
    }
}

fn numbers(rounds: usize, first: u64) {
    let mut calls = Calls::default();
    let (mut opened, mut errors) = (0, 0);
    for (seed, sound) in (first..).zip(Patient::all()) {
        let paths = ["/STAYS", "/pieces", "/dir", "/many", "/dir/SMALL.TXT", "/dir/below"];
        let long = "/dir/below/a text with a long name.text";
        let mut slots: Vec<usize> = paths.iter().map(|path| sound.short(path)).collect();
        let short = sound.short(long);
        slots.extend([short, short - 32, short - 96]);
        let is_busy = |at: &usize| sound.bytes[*at..*at + 4] != [0; 4];
        let busy: Vec<usize> = (0..sound.bytes.len()).step_by(4).filter(is_busy).collect();
        let mut random = Random(seed);
        for _ in 0..rounds {
            let mut patient = sound.copy();
            for _ in 0..=random.below(3) {
                hit(&mut patient, &sound, &slots, &busy, &mut random);
            }
            let outcome = exercise(patient.bytes.clone());
            opened += usize::from(outcome.opened);
            errors += outcome.errors;
            let device = Arc::new(MemoryDevice::new(patient.bytes.clone()));
            calls.note(check(device.clone()));
            calls.note(repair(device, LostChains::Kept));
            calls.change(patient.bytes);
        }
    }
    let asked = u32::try_from(rounds).expect("few");
    assert!(opened > rounds && errors > 2 * asked, "{opened} opened, {errors} errors");
    assert!(calls.opened > rounds / 2 && calls.done > calls.failed, "{calls:?}");
}

#[test]
fn no_number_makes_a_sum_overflow() {
    numbers(some_or_all(ROUNDS / 2, ROUNDS), 1);
}

/// `cargo test -p seekless-fat --release damage::numbers -- --ignored`
#[test]
#[ignore = "minutes"]
fn no_number_of_many_makes_a_sum_overflow() {
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(10);
    numbers(20_000, seed);
}
