//! Journals that are not used: the whole volume is checked. None makes a recovery fail, or is used
//! for a volume that was changed since.

use super::volume::{Fields, JOURNAL, Journaled, get, manifest, put};
use super::writer::{self, Style, one_segment, put_journal, reference};
use super::{contents, findings, findings_of, journal, preened, with_files, with_files_of};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline};
use seekless_crash::Target;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, VirtualClock};
use seekless_ffs::Version;
use seekless_fs::check::Outcome;
use seekless_fs::operate::{NewFile, Ownership};
use seekless_units::{ByteLen, Lba};
use std::ops::Range;
use std::sync::Arc;

/// The byte of the first segment's header that counts.
fn first_segment(bytes: &[u8]) -> usize {
    let fields = Fields::of(bytes);
    let (time, (_, places)) = (fields.mount_time(bytes), fields.journal(bytes));
    let is_first = |&&at: &&usize| get(bytes, at, 8) == 9 && get(bytes, at + 24, 8) == time;
    *places.iter().find(is_first).expect("a segment")
}

fn flags(bytes: &[u8]) -> u64 {
    get(bytes, Fields::of(bytes).at + 1312, 4)
}

fn is_journaled(bytes: &[u8]) -> bool {
    flags(bytes) & 8 != 0
}

/// Checks a volume whose journal is not used, and returns it repaired.
pub(super) fn not_used(bytes: &[u8], code: &str) -> Vec<u8> {
    let found = findings(bytes);
    assert!(found.iter().any(|finding| finding.starts_with(code)), "{found:?}");
    let (repaired, after) = preened(bytes.to_vec());
    if code == "journal.damaged" {
        assert_eq!((repaired.outcome, repaired.writes), (Outcome::Left, 0), "{found:?}");
        assert!(after == bytes);
        let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
        let repaired = seekless_ffs::repair(device.clone()).unwrap();
        assert_eq!(repaired.outcome, Outcome::Corrected);
        let after = contents(device.as_ref());
        assert_eq!(findings(&after), Vec::<String>::new());
        return after;
    }
    assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
    assert_eq!(findings(&after), Vec::<String>::new());
    after
}

/// A device with bytes that cannot be read.
struct Damaged {
    device: MemoryDevice,
    lost: Range<u64>,
}

impl BlockDevice for Damaged {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = at.to_bytes().get();
        if start < self.lost.end && start + buf.len() as u64 > self.lost.start {
            return Err(DeviceError::Io { at, source: std::io::Error::other("bad sectors") });
        }
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }
}

/// The whole volume is checked where a block of the journal cannot be read, and the finding names
/// that block.
#[test]
fn journals_that_cannot_be_read_lead_to_a_full_check() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let bytes = with_files(version);
        let fields = Fields::of(&bytes);
        let (_, places) = fields.journal(&bytes);
        for at in [0, 1000, places.len() - 1] {
            let start = places[at] as u64;
            let lost = start..start + fields.fsize as u64;
            let device = Arc::new(Damaged { device: MemoryDevice::new(bytes.clone()), lost });
            let found = findings_of(device.clone());
            let block = start / fields.fsize as u64;
            let expected = format!("journal.unusable journal, block {block}: it cannot be read: ");
            assert!(found[0].starts_with(&expected) && found.len() == 2, "{found:?}");
            let repaired = seekless_ffs::preen(device.clone()).unwrap();
            assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
            assert_eq!(findings_of(device), Vec::<String>::new());
        }
    }
}

/// A header with fewer records than the segment has would have changes passed over.
#[test]
fn segments_have_the_records_that_their_headers_say() {
    for version in [Version::Ufs2, Version::Ufs1] {
        for count in [3u64, 15, 16, 40] {
            let mut sound = with_files(version);
            let root = Fields::of(&sound).parse(&sound).nodes[&2].clone();
            let add = reference(writer::ADD, 2, (2, 508), root.links, root.mode);
            one_segment(&mut sound, &vec![add; count as usize]);
            let found = findings(&sound);
            let expected = format!("1 segments with {count} records");
            assert!(found[0].contains(&expected), "{found:?}");
            let segment = first_segment(&sound);
            let sectors = count.div_ceil(15) as usize;
            // All headers say the same, or one differs.
            for (wrong, headers) in
                [(count - 1, sectors), (count - 3, sectors), (count + 1, sectors), (count + 1, 1)]
            {
                let mut bytes = sound.clone();
                for n in 0..headers {
                    put(&mut bytes, segment + n * 512 + 16, 2, wrong);
                }
                not_used(&bytes, "journal.damaged");
            }
        }
    }
}

/// The mount that the journal of a volume belongs to.
pub(super) fn revision(bytes: &[u8]) -> u64 {
    let fields = Fields::of(bytes);
    let (ino, _) = fields.journal(bytes);
    get(bytes, fields.inode_at(ino) + if fields.is_ufs2 { 232 } else { 120 }, 8)
}

#[test]
fn journals_of_no_mount_lead_to_a_full_check() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let sound = with_files(version);
        let fields = Fields::of(&sound);
        let (ino, _) = fields.journal(&sound);
        let inode = fields.inode_at(ino);
        let files = manifest(&sound);
        assert!(findings(&sound)[0].starts_with("journal.pending"), "{:?}", findings(&sound));
        let revision_at = if fields.is_ufs2 { 232 } else { 120 };
        // Time, mode and flags.
        let flags_at = if fields.is_ufs2 { 88 } else { 100 };
        for at in [inode + revision_at, inode, inode + flags_at + 2] {
            let mut bytes = sound.clone();
            bytes[at] ^= 2;
            let after = not_used(&bytes, "journal.unusable");
            assert!(is_journaled(&after));
            assert_ne!(fields.mount_time(&after), fields.mount_time(&sound));
        }
        // Without its name.
        let mut bytes = sound.clone();
        let parsed = fields.parse(&bytes);
        let ((dir, at), _) = parsed.names.iter().find(|(_, (is, ..))| *is == ino).unwrap();
        let (start, _) = parsed.nodes[dir].blocks[&0];
        bytes[start as usize * fields.fsize + *at as usize + 8] = b'x';
        let after = not_used(&bytes, "journal.unusable");
        assert!(!is_journaled(&after));
        // Marked for a check.
        let mut bytes = sound.clone();
        bytes[fields.at + 1312] |= 4;
        let found = findings(&bytes);
        assert!(found.len() == 1 && found[0].starts_with("superblock.not-clean"), "{found:?}");
        let (_, after) = preened(bytes);
        assert_eq!((manifest(&after), flags(&after) & 4), (files, 0));
    }
}

#[test]
fn damaged_journals_stop_a_preen() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let mut sound = with_files(version);
        let fields = Fields::of(&sound);
        let root = fields.parse(&sound).nodes[&2].clone();
        // A name of the root that is not there.
        let record = reference(writer::ADD, 2, (2, 508), root.links, root.mode);
        journal(&mut sound, &[record]);
        assert!(findings(&sound)[0].starts_with("journal.pending"), "{:?}", findings(&sound));
        let segment = first_segment(&sound);
        // Number, oldest, records; operation, inode, directory, kind, place.
        let wrong: [(usize, usize, u64); 8] = [
            (segment, 8, 20),
            (segment + 8, 8, 10),
            (segment + 16, 2, 99),
            (segment + 32, 4, 8),
            (segment + 36, 4, 1),
            (segment + 40, 4, 0xFFFF_FFFF),
            (segment + 46, 2, 0),
            (segment + 48, 8, u64::MAX),
        ];
        for (at, len, value) in wrong {
            let mut bytes = sound.clone();
            put(&mut bytes, at, len, value);
            let after = not_used(&bytes, "journal.damaged");
            assert_ne!(fields.mount_time(&after), revision(&after), "byte {at}");
        }
        // Blocks of the volume's own, and none.
        for (start, frags, part) in [(16, 8, 0), (u64::MAX, 1, 0), (5000, 9, 0), (5000, 8, -13)] {
            let mut bytes = sound.clone();
            journal(&mut bytes, &[writer::block(writer::FREE, 2, part, (start, frags), 0)]);
            not_used(&bytes, "journal.damaged");
        }
        // More names removed than there are.
        let mut bytes = sound.clone();
        let ino = fields.parse(&bytes).names.values().find(|name| name.1 == 8).unwrap().0;
        let gone = reference(writer::REMOVE, ino, (2, 400), 0, 0o100_644);
        journal(&mut bytes, &[gone]);
        not_used(&bytes, "journal.damaged");
    }
}

#[test]
fn a_mount_retires_the_journal() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let target = Journaled::of(version);
        let device = Arc::new(MemoryDevice::new(with_files(version)));
        let config = Config::new(Discipline::SoftUpdates);
        let clock = Arc::new(VirtualClock::new());
        let mut live = target.mount(device.clone(), clock, config).unwrap();
        let owner = Ownership { uid: 0, gid: 0, perm: 0o644 };
        let operate = live.operate();
        operate.make(operate.root(), b"new", NewFile::Regular, owner).unwrap();
        operate.sync().unwrap();
        // As a crash leaves it.
        let crashed = contents(device.as_ref());
        assert!(!Fields::of(&crashed).is_clean(&crashed) && is_journaled(&crashed));
        assert_ne!(Fields::of(&crashed).mount_time(&crashed), revision(&crashed));
        not_used(&crashed, "journal.unusable");
        live.operate().unmount().unwrap();
        let closed = contents(device.as_ref());
        assert_eq!(findings(&closed), Vec::<String>::new());
        assert!(is_journaled(&closed));
        // A repair of a sound volume with some damage.
        let mut damaged = closed;
        let at = Fields::of(&damaged).at;
        let free = get(&damaged, at + 1008 + 24, 8);
        put(&mut damaged, at + 1008 + 24, 8, free + 1);
        let before = Fields::of(&damaged).mount_time(&damaged);
        let (repaired, after) = preened(damaged);
        assert_eq!(repaired.outcome, Outcome::Corrected);
        assert_ne!(Fields::of(&after).mount_time(&after), before);
    }
}

#[test]
fn segments_of_sectors_of_all_sizes_are_found() {
    for sector in [512, 1024, 4096] {
        let mut bytes = with_files_of(&Journaled::with_fragments(Version::Ufs2, 4096));
        let fields = Fields::of(&bytes);
        let poison = [reference(writer::REMOVE, 2, (2, 0), 1, 0o40_755)];
        for seed in 0..8 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let node = fields.parse(&bytes).nodes[&2].clone();
            let add = reference(writer::ADD, 2, (2, 508), node.links, node.mode);
            let records = vec![add; 10 + seed as usize * 60];
            let start = JOURNAL / sector - 1 - seed as usize % 3;
            let first = 1000 * (seed + 1);
            let style = Style { sector, first, start, random: &mut random, poison: &poison };
            put_journal(&mut bytes, &records, style);
            let found = findings(&bytes);
            let expected = format!("with {} records", records.len());
            assert!(found[0].contains(&expected), "{sector} {seed}: {found:?}");
        }
    }
}

/// Changes at random to a journal and to the inodes and names of its volume.
fn storm(seed: u64, count: u64) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for version in [Version::Ufs2, Version::Ufs1] {
        let mut sound = with_files(version);
        let fields = Fields::of(&sound);
        let parsed = fields.parse(&sound);
        let mut records = Vec::new();
        let (journal_ino, _) = fields.journal(&sound);
        let names = parsed.names.iter().filter(|(_, (ino, ..))| *ino != journal_ino);
        for ((dir, at), (ino, ..)) in names {
            let node = &parsed.nodes[ino];
            for op in [writer::ADD, writer::REMOVE] {
                records.push(reference(op, *ino, (*dir, *at), node.links, node.mode));
            }
        }
        for (ino, node) in parsed.nodes.iter().filter(|(ino, _)| **ino != journal_ino) {
            for (part, run) in &node.blocks {
                records.push(writer::block(writer::FREE, *ino, *part, *run, 0));
            }
        }
        records.truncate(300);
        journal(&mut sound, &records);
        let segment = first_segment(&sound);
        let mut used = 0;
        for _ in 0..count {
            let mut bytes = sound.clone();
            for _ in 0..1 + random.next_u64() % 4 {
                let at = match random.next_u64() % 4 {
                    0 => fields.inode_at(2 + random.next_u64() as u32 % 8),
                    _ => segment,
                };
                let at = at + random.next_u64() as usize % 2048;
                bytes[at] = [0, 1, 7, 0x80, 0xFF][random.next_u64() as usize % 5];
            }
            let device = Arc::new(MemoryDevice::new(bytes));
            let Ok(repaired) = seekless_ffs::preen(device.clone()) else { continue };
            used += u64::from(repaired.outcome == Outcome::Corrected);
            if repaired.outcome == Outcome::Left {
                assert_eq!(repaired.writes, 0, "a preen that stops changes nothing");
            }
        }
        assert!(used > 0, "some journals are used");
    }
}

#[test]
fn damage_never_makes_a_recovery_panic() {
    storm(1, 40);
}

#[test]
#[ignore = "minutes"]
fn much_damage() {
    storm(2, 4000);
}
