//! Damaged and hostile images: typed errors, no panics, bounded work.

mod check;
mod hostile;
pub(crate) mod images;
mod numbers;
mod patient;
mod recipes;
mod sweep;

use crate::exercise;
use crate::skip;
use patient::Patient;
use seekless_fat::FORMAT;
use seekless_fs::format::Probe;
use seekless_fs::inspect::resolve;
use seekless_fs::{FsError, Inspect, Timestamp};
use seekless_units::{Extent, GroupNo};

fn exercise(bytes: Vec<u8>) -> exercise::Outcome {
    exercise::exercise(&FORMAT, bytes, false)
}

/// A small generator, so that every run meets the same damage.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

#[test]
fn all_widths_say_the_same() {
    for patient in Patient::all() {
        let image = patient.opened();
        assert_eq!(image.geometry().format, format!("fat{}", patient.bits));
        assert_eq!(image.geometry().label, b"SMALL IMAGE");
        assert_eq!(patient.read("/dir/SMALL.TXT").expect("read"), b"small");
        assert_eq!(patient.read("/dir/empty").expect("read"), b"");
        assert_eq!(patient.read("/dir/snow ☃ Ünïcode.txt").expect("read"), b"snow");
        // Without regard to case, and by the short name.
        for other in ["/DIR/small.txt", "/dir/SNOW ☃ ünÏCODE.TXT", "/dir/BELOW/ATEXTW~1.TEX"] {
            assert!(resolve(&image, other.as_bytes()).is_ok(), "{other}");
        }
        assert_eq!(patient.names("/many").expect("names").len(), 41);
        let moment = image.attr(patient.ino("/dir/below/a text with a long name.text"));
        assert_eq!(moment.expect("attr").mtime, Timestamp { secs: 1_700_000_000, nanos: 0 });
        let pieces = patient.read("/pieces").expect("read");
        for n in 0..12 {
            assert_eq!(pieces[n * 512..][..8], *format!("piece {n:02}").as_bytes());
        }
        let map = image.block_map(patient.ino("/pieces")).expect("map");
        let lens: Vec<u64> = map.runs.iter().map(|run| run.extent.len).collect();
        assert_eq!(lens, [2, 10]);
        let group = image.group(GroupNo::ZERO).expect("group");
        let free: u64 = group.free.iter().map(|run| run.len).sum();
        assert_eq!((free, group.free_blocks), (image.geometry().free_blocks, free));
    }
}

#[test]
fn the_blocks_of_files_and_free_space_are_apart() {
    for patient in Patient::all() {
        let image = patient.opened();
        let group = image.group(GroupNo::ZERO).expect("group");
        let fixed = group.metadata.into_iter().map(|it| it.extent);
        let mut runs: Vec<Extent> = fixed.chain(group.free).collect();
        for ino in 1..=image.geometry().inodes {
            let map = image.block_map(seekless_units::Ino::new(ino)).expect("map");
            runs.extend(map.runs.iter().map(|run| run.extent));
        }
        runs.sort_unstable();
        for pair in runs.windows(2) {
            assert_eq!(pair[0].end(), pair[1].start, "fat{}", patient.bits);
        }
        assert_eq!(runs.last().expect("runs").end().get(), image.geometry().blocks);
    }
}

#[test]
fn sound_images_give_no_errors_where_none_belong() {
    for patient in Patient::all() {
        let outcome = exercise(patient.bytes);
        assert!(outcome.opened && outcome.answers > 500, "{outcome:?}");
    }
}

#[test]
fn truncated_images() {
    for patient in Patient::all() {
        let whole = patient.bytes;
        let lengths = (0..whole.len()).step_by(whole.len() / 60).chain([1, 511, 512, 1024]);
        for len in lengths {
            let outcome = exercise(whole[..len].to_vec());
            assert!(!outcome.opened, "opened with {len} of {} bytes", whole.len());
        }
    }
}

#[test]
fn flipped_bits() {
    for (seed, patient) in (1..).zip(Patient::all()) {
        let base = patient.bytes;
        let places: Vec<usize> = (0..base.len()).filter(|&at| base[at] != 0).collect();
        let mut random = Random(seed);
        let (mut opened, mut errors) = (0, 0);
        for _ in 0..600 {
            let mut bytes = base.clone();
            for _ in 0..=random.below(4) {
                let at = places[random.below(places.len())];
                match random.below(4) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => bytes[at] = 0xFF,
                    _ => bytes[at] ^= 1 << random.below(8),
                }
            }
            let outcome = exercise(bytes);
            opened += usize::from(outcome.opened);
            errors += outcome.errors;
        }
        assert!(opened > 300, "only {opened} opened");
        assert!(errors > 0, "no damage was found");
    }
}

/// The corpus of the fuzz target, so that what it has found stays found.
#[test]
fn the_corpus_is_read_or_refused() {
    let bases: Vec<Vec<u8>> = Patient::all().map(|patient| patient.bytes).collect();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/fat");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).expect("corpus") {
        let input = std::fs::read(entry.expect("entry").path()).expect("input");
        let Some((&choice, rest)) = input.split_first() else { continue };
        let base = bases[usize::from(choice) % bases.len()].clone();
        let bytes = images::patched(base, 0, rest);
        exercise(bytes.clone());
        // What is repaired is clean.
        let device = std::sync::Arc::new(seekless_device::MemoryDevice::new(bytes));
        let kept = seekless_fat::LostChains::Kept;
        if let Ok(repaired) = seekless_fat::repair(device.clone(), kept)
            && repaired.outcome != seekless_fs::check::Outcome::Left
        {
            let again = seekless_fat::repair(device, kept).expect("repaired once");
            assert_eq!(again.outcome, seekless_fs::check::Outcome::Clean, "{:#?}", again.report);
        }
        inputs += 1;
    }
    assert!(inputs > 40, "only {inputs} inputs");
}

#[test]
fn what_is_something_else_is_not_claimed() {
    use seekless_device::MemoryDevice;
    let probe = |bytes: &[u8]| (FORMAT.probe)(&MemoryDevice::new(bytes.to_vec()));
    let whole = Patient::new("fat16").bytes;
    assert_eq!(probe(&whole), Probe::Yes);
    // A disk with a partition table, NTFS and exFAT have the same signature.
    let mut disk = vec![0; 8192];
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    assert_eq!(probe(&disk), Probe::No);
    let mut ntfs = whole.clone();
    ntfs[3..11].copy_from_slice(b"NTFS    ");
    ntfs[14..24].fill(0);
    ntfs[54..62].fill(0);
    assert_eq!(probe(&ntfs), Probe::No);
    // Marks of FAT with a field that makes no sense: damaged, and said why.
    let mut damaged = whole.clone();
    damaged[13] = 3;
    match probe(&damaged) {
        Probe::Damaged(why) => assert!(why.contains("BPB_SecPerClus"), "{why}"),
        other => panic!("{other:?}"),
    }
    match (FORMAT.open)(std::sync::Arc::new(MemoryDevice::new(damaged)), Default::default()) {
        Err(FsError::Corrupt { location, .. }) => assert_eq!(location.structure, "boot sector"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}
