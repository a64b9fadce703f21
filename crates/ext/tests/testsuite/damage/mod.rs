//! Damaged and hostile images: typed errors, no panics, bounded work.

mod exercise;
mod hostile;
pub(crate) mod images;
mod in_use;
pub(crate) mod quotas;
mod sums;
mod words;

use crate::holes;
use crate::slice::some_or_all;
use exercise::exercise;

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
fn sound_images_give_no_errors_where_none_belong() {
    for (name, compressed) in images::IMAGES {
        let outcome = exercise(images::unpack(compressed), false);
        assert!(outcome.opened, "{name}");
        assert!(outcome.answers > 500, "{name}: {outcome:?}");
    }
}

#[test]
fn the_journal_of_the_sample_is_replayed() {
    use seekless_device::MemoryDevice;
    use seekless_fs::Inspect;
    let bytes = images::named("journal");
    let read = |skip_journal| {
        let options = seekless_fs::format::OpenOptions { skip_journal, ..Default::default() };
        let device = std::sync::Arc::new(MemoryDevice::new(holes::copy(&bytes)));
        let image = seekless_ext::ExtImage::open(device, options).expect("open");
        let ino = seekless_fs::inspect::resolve(&image, b"/dir/below/text").expect("resolve");
        let mut buf = [0; 1024];
        image.read(ino, seekless_units::ByteLen::ZERO, &mut buf).expect("read");
        buf
    };
    assert_eq!(read(false), [b'J'; 1024]);
    assert_ne!(read(true), [b'J'; 1024]);
}

#[test]
fn truncated_images() {
    for (name, compressed) in images::IMAGES {
        let whole = images::unpack(compressed);
        let lengths = (0..whole.len()).step_by(whole.len() / 60).chain([1, 1023, 1024, 1500, 2047]);
        for len in lengths {
            let outcome = exercise(whole[..len].to_vec(), true);
            assert!(!outcome.opened, "{name}: opened with {len} of {} bytes", whole.len());
        }
    }
}

/// Where a sound image has something else than zeros: damage elsewhere is
/// rarely looked at.
fn interesting(bytes: &[u8]) -> Vec<usize> {
    (1024..bytes.len()).filter(|&at| bytes[at] != 0).collect()
}

fn flip(name: &str, seed: u64, cases: usize, ignore_checksums: bool) {
    let base = images::named(name);
    let places = interesting(&base);
    let mut random = Random(seed);
    let (mut opened, mut errors) = (0, 0);
    for _ in 0..cases {
        let mut bytes = base.clone();
        for _ in 0..=random.below(4) {
            let at = places[random.below(places.len())];
            match random.below(4) {
                0 => bytes[at] = random.below(256) as u8,
                1 => bytes[at] = 0xFF,
                _ => bytes[at] ^= 1 << random.below(8),
            }
        }
        let outcome = exercise(bytes, ignore_checksums);
        opened += usize::from(outcome.opened);
        errors += outcome.errors;
    }
    assert!(opened > cases / 3, "{name}: only {opened} of {cases} opened");
    assert!(errors > 0, "{name}: no damage was found");
}

#[test]
fn flipped_bits() {
    for (seed, (name, _)) in (1..).zip(images::IMAGES) {
        flip(name, seed, some_or_all(60, 150), false);
    }
}

#[test]
fn flipped_bits_behind_ignored_checksums() {
    for (seed, (name, _)) in (100..).zip(images::IMAGES) {
        flip(name, seed, some_or_all(60, 150), true);
    }
}

/// With checksums on, no flipped bit of the superblock goes unnoticed.
#[test]
fn metadata_checksums_notice() {
    let base = images::named("ext4");
    assert!(exercise(base.clone(), false).opened);
    let mut random = Random(7);
    let mut noticed = 0;
    for _ in 0..200 {
        let mut bytes = base.clone();
        bytes[1024 + random.below(1000)] ^= 1 << random.below(8);
        noticed += usize::from(!exercise(bytes, false).opened);
    }
    assert_eq!(noticed, 200, "damage to the superblock");
}

/// Inputs of the fuzz target, made from seeds: half of them of sound images.
#[test]
fn images_in_use_give_answers_or_errors() {
    let mut random = Random(4);
    let (mut opened, mut done, mut failed) = (0, 0, 0);
    for n in 0..600u32 {
        let patches = if n % 2 == 0 { 0 } else { 1 + random.below(6) };
        let mut input = vec![random.below(256) as u8, patches as u8];
        for _ in 0..patches {
            let len = random.below(16);
            input.extend([random.below(256) as u8, random.below(256) as u8, len as u8]);
            input.extend((0..=len).map(|_| random.below(256) as u8));
        }
        input.extend((0..240).map(|_| random.below(256) as u8));
        let outcome = in_use::run(&input);
        // Those that may not have a discipline, and what was damaged too much.
        opened += u32::from(outcome.opened);
        (done, failed) = (done + outcome.done, failed + outcome.failed);
    }
    assert!(opened > 200, "{opened} of 600 could be opened");
    assert!(failed > done / 50 && failed < done * 19 / 20, "{failed} of {done} calls failed");
}

/// What the fuzz target starts from, and what it has found.
#[test]
fn the_corpus_of_images_in_use() {
    let corpus =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/live_ext");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("corpus") {
        let input = std::fs::read(entry.expect("input").path()).expect("input");
        in_use::run(&input);
        count += 1;
    }
    assert!(count > 3, "{count} inputs");
}

/// Inputs of the fuzz target, made from seeds, and those it has found.
#[test]
fn damaged_quota_files_are_made_again() {
    let base = quotas::base();
    let mut random = Random(11);
    let mut inputs: Vec<Vec<u8>> = (0..some_or_all(100, 300))
        .map(|_| {
            let mut input = Vec::new();
            for _ in 0..=random.below(6) {
                // Whole numbers, for the most part small ones: references to blocks, and ids.
                let number = (random.below(1 << 16) >> random.below(16)) as u32;
                let place = random.below(1 << 16) as u16 & !3;
                input.extend(place.to_le_bytes());
                input.push(3);
                input.extend(number.to_le_bytes());
            }
            input
        })
        .collect();
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/quota");
    for entry in std::fs::read_dir(corpus).expect("corpus") {
        inputs.push(std::fs::read(entry.expect("input").path()).expect("input"));
    }
    let judge = crate::repair::judge::Scratch::new("quota");
    let is_judged = crate::repair::judge::is_there();
    let mut corrected = 0;
    for (n, input) in inputs.iter().enumerate() {
        let (outcome, bytes) = quotas::run(input, &base);
        corrected += usize::from(outcome == seekless_fs::check::Outcome::Corrected);
        if is_judged && n % 10 == 0 {
            crate::repair::judge::put(judge.path(), &bytes);
            assert_eq!(crate::repair::judge::findings(judge.path()), None, "{input:?}");
        }
    }
    assert!(corrected > some_or_all(50, 150), "{corrected} of {} were damaged", inputs.len());
}
