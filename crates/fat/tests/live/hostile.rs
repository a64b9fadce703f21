//! Damaged images in use: answers or typed errors, no panic, bounded work.

use crate::images::{IMAGES, patched, unpack};
use crate::shapes::{open_with, options};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_fat::{FatLive, LiveOptions};
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

/// What a walk finds: directories, and names in them.
fn walk(live: &mut FatLive) -> Vec<(Ino, Vec<u8>, Ino)> {
    let mut found = Vec::new();
    let mut next = vec![live.root()];
    while let Some(dir) = next.pop() {
        if found.len() > 2000 {
            break;
        }
        let mut here = Vec::new();
        let listed = live.read_dir(dir, 2, &mut |entry| {
            here.push((dir, entry.name.to_vec(), entry.ino));
            if here.len() < 200 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if listed.is_ok() {
            let is_dir = |ino: Ino| ino != dir;
            next.extend(here.iter().map(|(_, _, ino)| *ino).filter(|&ino| is_dir(ino)));
        }
        found.extend(here);
    }
    found
}

/// Does whatever can be done; what came of it: how many operations went well.
fn abuse(live: &mut FatLive, seed: u64) -> u32 {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut done = 0;
    for round in 0..3 {
        let found = walk(live);
        for (n, (dir, name, ino)) in found.iter().enumerate() {
            let draw = rng.next_u64();
            let new = format!("new {seed} {round} {n}");
            let (at, len) = (ByteLen::new(draw >> 32 & 0x7FFF), (draw & 0xFFF) as usize + 1);
            let mut buffer = vec![0; 5000];
            let result: Result<(), FsError> = match draw >> 60 {
                0 | 1 => live.read(*ino, at, &mut buffer).map(drop),
                2..=4 => live.write(*ino, at, &vec![7; len]).map(drop),
                5 => {
                    let set = SetAttr { size: Some(at.get()), ..SetAttr::default() };
                    live.set_attr(*ino, &set).map(drop)
                }
                6 => live.unlink(*dir, name),
                7 => live.rmdir(*dir, name),
                8 => live.make(*dir, new.as_bytes(), NewFile::Regular, OWNER).map(drop),
                9 => live.make(*ino, new.as_bytes(), NewFile::Directory, OWNER).map(drop),
                10 | 11 => live.rename((*dir, name), (*dir, new.as_bytes()), RenameMode::Replace),
                12 => {
                    let to = &found[(draw & 0xFFFF) as usize % found.len()];
                    live.rename((*dir, name), (to.0, &to.1), RenameMode::Replace)
                }
                13 => live.fsync(*ino),
                14 => live.attr(*ino).map(drop),
                _ => live.data_runs(*ino).map(drop),
            };
            done += u32::from(result.is_ok());
        }
    }
    let _ = live.unmount();
    done
}

#[test]
fn damaged_images_give_answers_or_errors() {
    let (mut opened, mut done) = (0, 0);
    for (name, compressed) in IMAGES {
        let whole = unpack(compressed);
        for seed in 0..150u64 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut patches = vec![0; 6 * (1 + seed as usize % 12)];
            rng.fill_bytes(&mut patches);
            // Half of them with a boot sector that is in order.
            let from = if seed % 2 == 0 { 512 } else { 0 };
            let bytes = patched(whole.clone(), from, &patches);
            let device = Arc::new(MemoryDevice::new(bytes));
            let discipline = Discipline::ALL[seed as usize % 4];
            let how = LiveOptions { force: true, ..options() };
            let clock = Arc::new(VirtualClock::new());
            let live = FatLive::open(device, clock, Config::new(discipline), how);
            let Ok(mut live) = live else { continue };
            opened += 1;
            let well = abuse(&mut live, seed);
            done += well;
            let _ = (name, well);
        }
    }
    assert!(opened > 100 && done > 1000, "{opened} were opened, {done} operations done");
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
