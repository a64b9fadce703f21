//! Damaged images in use: answers or typed errors, no panic, bounded work.

use super::images::{IMAGES, unpack};
use super::in_use;
use super::shapes::{open_with, options};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::Discipline;
use seekless_device::MemoryDevice;
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::ByteLen;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn bases() -> Vec<Vec<u8>> {
    IMAGES.iter().map(|(_, compressed)| unpack(compressed)).collect()
}

/// Inputs of the fuzz target, made from seeds: a third of them of sound images, a third of
/// damaged ones with a boot sector that is in order.
#[test]
fn images_in_use_give_answers_or_errors() {
    let bases = bases();
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    let (mut opened, mut sound, mut done, mut failed) = (0, 0, 0, 0);
    for n in 0..900u32 {
        let patches = [0, 1 + rng.next_u32() as u8 % 8, 0x81 + rng.next_u32() as u8 % 12];
        let patches = patches[n as usize % 3];
        let mut input = vec![rng.next_u32() as u8, patches];
        for _ in 0..patches & 15 {
            let len = rng.next_u32() as u8 % 16;
            input.extend([rng.next_u32() as u8, rng.next_u32() as u8, len]);
            input.extend((0..=len).map(|_| rng.next_u32() as u8));
        }
        input.extend((0..240).map(|_| rng.next_u32() as u8));
        let outcome = in_use::run(&input, &bases);
        opened += u32::from(outcome.opened);
        sound += u32::from(outcome.opened && outcome.sound);
        (done, failed) = (done + outcome.done, failed + outcome.failed);
    }
    assert!(opened > 500 && sound >= 300, "{opened} of 900 were opened, {sound} were sound");
    assert!(failed > done / 50 && failed < done * 19 / 20, "{failed} of {done} calls failed");
}

/// What the fuzz target starts from, and what it has found.
#[test]
fn the_corpus_of_images_in_use() {
    let bases = bases();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/live_fat");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("corpus") {
        let input = std::fs::read(entry.expect("input").path()).expect("input");
        in_use::run(&input, &bases);
        count += 1;
    }
    assert!(count > 20, "{count} inputs");
}

/// Two entries that lead to one chain, and chains into each other: whoever came first has it,
/// and nothing of either is changed by what is done to the other.
#[test]
fn chains_of_two_files_are_not_changed() {
    let (_, compressed) = IMAGES[1];
    let device = Arc::new(MemoryDevice::new(unpack(compressed)));
    let mut live = open_with(&device, Discipline::Async, options());
    let root = live.root();
    let one = live.make(root, b"ONE", NewFile::Regular, OWNER).unwrap().ino;
    live.write(one, ByteLen::ZERO, &[1; 4000]).unwrap();
    live.make(root, b"TWO", NewFile::Regular, OWNER).unwrap();
    live.unmount().unwrap();
    let mut bytes = vec![0; seekless_device::BlockDevice::len(device.as_ref()).get() as usize];
    seekless_device::BlockDevice::read(device.as_ref(), seekless_units::Lba::ZERO, &mut bytes)
        .unwrap();
    let at = |name: &[u8]| bytes.windows(11).position(|bytes| bytes == name).unwrap();
    let (one, two) = (at(b"ONE        "), at(b"TWO        "));
    bytes.copy_within(one + 26..one + 32, two + 26);
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut live = open_with(&device, Discipline::SoftUpdates, options());
    let one = live.lookup(root, b"one").unwrap().unwrap();
    let two = live.lookup(root, b"two").unwrap().unwrap();
    let mut buffer = [0; 8];
    live.read(one, ByteLen::ZERO, &mut buffer).unwrap();
    let is_refused = |done: Result<(), FsError>| matches!(done, Err(FsError::Corrupt { .. }));
    assert!(is_refused(live.write(two, ByteLen::ZERO, b"x").map(drop)));
    assert!(is_refused(live.read(two, ByteLen::ZERO, &mut buffer).map(drop)));
    assert!(is_refused(live.unlink(root, b"two")));
    live.write(one, ByteLen::ZERO, b"mine").unwrap();
    live.unmount().unwrap();
}
