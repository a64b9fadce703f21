//! Damage by the seed: whatever is hit, a repair comes to an end, and the image
//! is clean after it.

use super::repair::bytes_of;
use super::{Random, images};
use seekless_device::MemoryDevice;
use seekless_ffs::{Outcome, check, repair};
use seekless_fs::FsError;
use std::sync::Arc;

const SECTOR: usize = 512;
const MAGIC_UFS1: u32 = 0x0001_1954;
const MAGIC_UFS2: u32 = 0x1954_0119;

/// The sectors of an image that something is in.
fn busy_sectors(bytes: &[u8]) -> Vec<usize> {
    let is_busy = |at: &usize| bytes[*at..*at + SECTOR].iter().any(|&byte| byte != 0);
    (0..bytes.len()).step_by(SECTOR).filter(is_busy).collect()
}

/// One piece of damage: a byte, a bit, a word, a sector of zeros or of noise, or
/// a sector that was written elsewhere.
fn hit(bytes: &mut [u8], busy: &[usize], random: &mut Random) {
    let sector = busy[random.below(busy.len())];
    let at = sector + random.below(SECTOR);
    match random.below(16) {
        0..=5 => bytes[at] = random.below(256) as u8,
        6..=9 => bytes[at] ^= 1 << random.below(8),
        10 | 11 => bytes[at & !3..][..4].fill(random.below(256) as u8),
        12 => bytes[at & !3..][..4].copy_from_slice(&(random.below(1024) as u32).to_le_bytes()),
        13 => bytes[sector..sector + SECTOR].fill(0),
        14 => bytes[sector..sector + SECTOR]
            .iter_mut()
            .for_each(|byte| *byte = random.below(256) as u8),
        _ => {
            let from = busy[random.below(busy.len())];
            bytes.copy_within(from..from + SECTOR, sector);
        }
    }
}

/// What is done to an image in a round.
fn damaged(sound: &[u8], busy: &[usize], round: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(round as u64 + 1));
    let mut bytes = sound.to_vec();
    for _ in 0..=random.below(12) {
        hit(&mut bytes, busy, &mut random);
    }
    bytes
}

/// Whether a superblock or a copy has been spared.
fn has_superblock(sound: &[u8], bytes: &[u8]) -> bool {
    let is_one = |at: &usize| {
        [MAGIC_UFS1, MAGIC_UFS2].iter().any(|magic| {
            let word = &sound[at + 1372..at + 1376];
            word == magic.to_le_bytes() || word == magic.to_be_bytes()
        })
    };
    let mut places = (0..sound.len() - 1376).step_by(SECTOR).filter(is_one);
    places.any(|at| sound[at..at + 1376] == bytes[at..at + 1376])
}

fn storm(rounds: usize, seed: u64) {
    let mut failures = Vec::new();
    for (name, compressed) in images::IMAGES {
        let sound = images::unpack(compressed);
        let busy = busy_sectors(&sound);
        for round in 0..rounds {
            let bytes = damaged(&sound, &busy, round, seed);
            let device = Arc::new(MemoryDevice::new(bytes.clone()));
            let repaired = match repair(device.clone()) {
                Ok(repaired) => repaired,
                // Nothing is left that says how the volume is laid out.
                Err(FsError::Corrupt { location, .. })
                    if location.structure == "superblock" && !has_superblock(&sound, &bytes) =>
                {
                    assert!(bytes_of(&device) == bytes, "{name} {round}: something was written");
                    continue;
                }
                Err(error) => {
                    failures.push(format!("{name} {round}: {error}"));
                    continue;
                }
            };
            let left = check(device).expect("checked");
            if repaired.outcome == Outcome::Left || !left.is_clean() {
                let left: Vec<_> = left
                    .findings
                    .iter()
                    .map(|finding| {
                        format!("{} {} {}", finding.code(), finding.location, finding.what)
                    })
                    .take(8)
                    .collect();
                failures
                    .push(format!("{name} {round}: after {} rounds {left:#?}", repaired.rounds));
            }
        }
    }
    let shown: Vec<_> = failures.iter().take(12).collect();
    assert!(failures.is_empty(), "{} failures: {shown:#?}", failures.len());
}

#[test]
fn a_repair_leaves_a_clean_image_whatever_was_hit() {
    storm(120, 7);
}

/// `cargo test -p seekless-ffs --release damage::storm -- --ignored`
#[test]
#[ignore = "long"]
fn a_long_storm() {
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    storm(20_000, seed);
}
