//! Groups full of garbage.

use super::freebsd;
use super::volume::{SHAPES, bytes_of, tree, volume};
use super::{Fs, Random};
use seekless_device::MemoryDevice;
use seekless_ffs::{Outcome, check, repair};
use std::sync::Arc;

/// Every word of a group's head is garbage, and a repair leaves one that FreeBSD takes; also
/// where the magic, or it and the group's number, are what they were.
#[test]
fn a_group_of_garbage_becomes_one_to_freebsd() {
    let mut random = Random(7);
    for shape in SHAPES {
        let sound = volume(shape);
        let files = tree(sound.clone());
        let fs = Fs::find(&MemoryDevice::new(sound.clone()));
        for (number, kept) in (0..fs.ncg()).flat_map(|number| [0, 8, 16].map(|kept| (number, kept)))
        {
            let mut bytes = sound.clone();
            let base = ((number * fs.fpg() + fs.cblkno()) * fs.fsize()) as usize;
            let head = &mut bytes[base + kept..base + fs.cgsize() as usize];
            head.iter_mut().for_each(|byte| *byte = random.next() as u8);
            let what = format!("{shape:?} group {number}, {kept} bytes kept");
            let device = Arc::new(MemoryDevice::new(bytes));
            let repaired = repair(device.clone()).expect(&what);
            assert_eq!(repaired.outcome, Outcome::Corrected, "{what}: {repaired:#?}");
            assert!(check(device.clone()).expect(&what).is_clean(), "{what}");
            let verdict = freebsd::judge(device.as_ref(), false);
            assert!(verdict.wrong.is_empty(), "{what}: {:#?}", verdict.wrong);
            let now = tree(bytes_of(&device));
            assert_eq!(now.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>(), "{what}");
            assert!(files.iter().all(|(path, file)| file.is(&now[path])), "{what}");
        }
    }
}

/// FreeBSD writes inodes when they are first needed. What lies behind them is no inode, and a
/// repair of a lost head takes none of it for one.
#[test]
fn inodes_that_were_never_written_stay_none_when_the_head_is_lost() {
    let mut random = Random(3);
    for shape in SHAPES.into_iter().filter(|shape| shape.version == seekless_ffs::Version::Ufs2) {
        let mut sound = volume(shape);
        let files = tree(sound.clone());
        let fs = Fs::find(&MemoryDevice::new(sound.clone()));
        let written = 2 * fs.inopb();
        assert!(fs.ipg() >= written + 2 * fs.inopb(), "{} inodes a group", fs.ipg());
        for number in 0..fs.ncg() {
            let table = ((number * fs.fpg() + fs.iblkno()) * fs.fsize()) as usize;
            let from = table + (written * 256) as usize;
            let end = table + (fs.ipg() * 256) as usize;
            sound[from..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
            // Files of old stand in it, with blocks that are others' now.
            let file = sound[table + 3 * 256..table + 4 * 256].to_vec();
            sound[from + 512..from + 768].copy_from_slice(&file);
            let base = ((number * fs.fpg() + fs.cblkno()) * fs.fsize()) as usize;
            let count = (written as u32).to_ne_bytes();
            let count = if shape.big_endian == cfg!(target_endian = "big") {
                count
            } else {
                (written as u32).swap_bytes().to_ne_bytes()
            };
            sound[base + 120..base + 124].copy_from_slice(&count);
        }
        let device = Arc::new(MemoryDevice::new(sound));
        // Renews the hashes of the groups.
        repair(device.clone()).unwrap();
        assert!(check(device.clone()).unwrap().is_clean());
        let sound = bytes_of(&device);
        for (number, word) in [(0, 4), (1, 4), (2, 12), (1, 0), (0, 0)] {
            let mut bytes = sound.clone();
            let base = ((number * fs.fpg() + fs.cblkno()) * fs.fsize()) as usize;
            match word {
                0 => bytes[base..base + fs.cgsize() as usize].fill(0xA5),
                at => bytes[base + at..base + at + 4].fill(0xA5),
            }
            let what = format!("{shape:?} group {number}, word {word}");
            let device = Arc::new(MemoryDevice::new(bytes));
            let repaired = repair(device.clone()).expect(&what);
            assert_eq!(repaired.outcome, Outcome::Corrected, "{what}: {repaired:#?}");
            assert!(check(device.clone()).expect(&what).is_clean(), "{what}");
            let now = tree(bytes_of(&device));
            assert_eq!(now.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>(), "{what}");
            assert!(files.iter().all(|(path, file)| file.is(&now[path])), "{what}");
        }
    }
}
