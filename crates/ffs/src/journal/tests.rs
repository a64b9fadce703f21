//! No bytes of a journal make its parser panic, and records name nothing outside of the volume.

use super::records::{JournalRecord, Reference, Slot};
use super::segments::{self, Walk};
use super::tables::Pass;
use crate::superblock::Super;
use crate::volume::Volume;
use crate::{MakeOptions, Version, make};
use proptest::prelude::*;
use seekless_device::MemoryDevice;
use seekless_fs::FileKind;
use seekless_units::{BlockNo, ByteLen, Ino};
use std::sync::Arc;

fn volume(version: Version, big_endian: bool) -> Super {
    let device = MemoryDevice::new(vec![0; 8 << 20]);
    let mut options = MakeOptions::new(version, ByteLen::new(8 << 20));
    options.big_endian = big_endian;
    make(&device, &options).unwrap();
    Super::read(&device, false).unwrap()
}

/// Two names of a file, of which the second moves to where the first one was.
#[test]
fn names_that_follow_each_other_are_both_removed() {
    let (ino, dir) = (Ino::new(9), Ino::new(2));
    let at = |at| Slot { dir, at };
    let removed = |at_byte| {
        let kind = FileKind::Regular;
        JournalRecord::Remove(Reference { ino, slot: at(at_byte), links: 2, kind })
    };
    let records = [
        JournalRecord::Move { ino, from: at(40), to: 60 },
        JournalRecord::Move { ino, from: at(20), to: 40 },
        removed(60),
        removed(40),
    ];
    let device = Arc::new(MemoryDevice::new(vec![0; 8 << 20]));
    let pass = Pass::new(Volume::with(device, volume(Version::Ufs2, false), false), &records);
    let names = pass.names.get(&ino).unwrap();
    assert_eq!(names.removed, 2);
    let places: Vec<u64> = names.places.keys().map(|slot| slot.at).collect();
    assert_eq!(places, [20, 40, 60]);
}

proptest! {
    #[test]
    fn records_name_places_of_the_volume(
        bytes in prop::array::uniform32(any::<u8>()),
        op in 0u8..9,
        small in any::<[bool; 32]>(),
        is_big in any::<bool>(),
    ) {
        for version in [Version::Ufs1, Version::Ufs2] {
            let sb = volume(version, is_big);
            let mut bytes = bytes;
            bytes.iter_mut().zip(small).filter(|(_, small)| *small).for_each(|(byte, _)| *byte = 0);
            (bytes[0], bytes[3]) = if is_big { (0, op) } else { (op, 0) };
            (bytes[1], bytes[2]) = (0, 0);
            let Ok(record) = JournalRecord::decode(&sb, &bytes) else { continue };
            match record {
                JournalRecord::Allocate(run) | JournalRecord::Free(run) => {
                    prop_assert!(run.extent.end().get() <= sb.size);
                    prop_assert!(run.owner.ino.get() < sb.inodes());
                }
                JournalRecord::Add(name) | JournalRecord::Remove(name) => {
                    prop_assert!(name.slot.dir.get() < sb.inodes());
                }
                JournalRecord::Move { .. } | JournalRecord::Cut { .. } | JournalRecord::Synced(_) => {}
            }
        }
    }

    #[test]
    fn a_walk_over_any_bytes_ends(
        heads in prop::collection::vec((0u64..4, 0u64..4, 0u16..40, 0u16..9, any::<bool>()), 1..40),
        is_last in any::<bool>(),
    ) {
        let sb = volume(Version::Ufs2, false);
        let mut bytes = Vec::new();
        for (number, oldest, records, sectors, is_ours) in heads {
            let mut sector = vec![0u8; 512];
            sector[..8].copy_from_slice(&number.to_le_bytes());
            sector[8..16].copy_from_slice(&oldest.to_le_bytes());
            sector[16..18].copy_from_slice(&records.to_le_bytes());
            sector[18..20].copy_from_slice(&sectors.to_le_bytes());
            let time = sb.tuning.mtime + i64::from(!is_ours);
            sector[24..32].copy_from_slice(&time.to_le_bytes());
            bytes.extend(sector);
        }
        let mut found = Walk::default();
        let place = (BlockNo::new(100), 0);
        let done = segments::walk_piece(&sb, place, &bytes, (512, is_last), &mut found);
        prop_assert!(done > 0 && done <= bytes.len() as u64);
        // Errors are allowed.
        let _ = segments::select(found.segments);
    }
}
