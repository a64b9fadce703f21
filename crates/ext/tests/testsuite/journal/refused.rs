//! Journals that are not written to, each refused by name, with nothing changed.

use super::volume::{SHAPES, Volume, make};
use crate::repair::judge::{Random, bytes_of, is_there};
use seekless_cache::{Log, LogCopy, LogTransaction};
use seekless_device::MemoryDevice;
use seekless_ext::LogWriter;
use seekless_fs::{FsError, Timestamp};
use seekless_units::BlockNo;
use std::sync::Arc;

fn open(bytes: Vec<u8>) -> (Arc<MemoryDevice>, Result<LogWriter, FsError>) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let wall = Box::new(|| Timestamp { secs: 0, nanos: 0 });
    (device.clone(), LogWriter::open(device, wall))
}

/// Where the journal's superblock begins.
fn journal_at(bytes: &[u8]) -> usize {
    let header = [0xC03B_3998u32.to_be_bytes(), 4u32.to_be_bytes()].concat();
    let found = bytes.chunks(1024).position(|block| block.starts_with(&header));
    found.expect("a journal") * 1024
}

/// Bytes put at some place of a volume without checksums.
type Change = fn(&mut [u8], usize);

const REFUSED: [(&str, &str, Change); 9] = [
    ("no journal", "has none", |bytes, _| bytes[1024 + 0x5C] &= !4),
    ("external", "external journal", |bytes, _| bytes[1024 + 0xE0..1024 + 0xE4].fill(0)),
    ("elsewhere", "external journal", |bytes, _| bytes[1024 + 0xE4] = 7),
    ("marked", "recovered first", |bytes, _| bytes[1024 + 0x60] |= 4),
    ("not empty", "recovered first", |bytes, at| bytes[at + 31] = 1),
    ("aborted", "left after error", |bytes, at| bytes[at + 35] = 5),
    ("first version", "first version", |bytes, at| bytes[at + 7] = 3),
    ("unknown", "journal feature 0x400", |bytes, at| bytes[at + 42] |= 4),
    ("short", "s_maxlen", |bytes, at| bytes[at + 16..at + 20].copy_from_slice(&[0, 0, 3, 0])),
];

#[test]
fn what_cannot_be_written_is_refused_by_name() {
    if !is_there() {
        return;
    }
    let (bytes, _) = make(&SHAPES[0]);
    assert!(open(bytes.clone()).1.is_ok());
    let at = journal_at(&bytes);
    for (name, said, change) in REFUSED {
        let mut bytes = bytes.clone();
        change(&mut bytes, at);
        let before = bytes.clone();
        let (device, opened) = open(bytes);
        let why = opened.err().unwrap_or_else(|| panic!("{name} is not refused")).to_string();
        assert!(why.contains(said), "{name}: {why}");
        assert!(bytes_of(device.as_ref()) == before, "{name}: something was written");
    }
}

/// A journal that lies over the volume's descriptors, by way of its first block number.
#[test]
fn a_journal_over_what_is_read_before_it_is_refused() {
    if !is_there() {
        return;
    }
    let (mut bytes, _) = make(&SHAPES[0]);
    let inode = {
        let table = u32::from_le_bytes(bytes[2048 + 8..2048 + 12].try_into().expect("table"));
        let size = u16::from_le_bytes(bytes[1024 + 88..1024 + 90].try_into().expect("size"));
        table as usize * 1024 + 7 * usize::from(size)
    };
    // The second block; the first one has to be a superblock of a journal.
    bytes[inode + 44..inode + 48].copy_from_slice(&2u32.to_le_bytes());
    let (_, opened) = open(bytes);
    assert!(matches!(opened.err(), Some(FsError::Corrupt { .. })));
}

/// Any byte of the journal's superblock or inode changed: an error or a log, never a
/// panic, and a log that opens takes a transaction.
#[test]
fn damage_is_met_with_an_error() {
    if !is_there() {
        return;
    }
    let (sound, homes) = make(&SHAPES[4]);
    let at = journal_at(&sound);
    let table = u32::from_le_bytes(sound[2048 + 8..2048 + 12].try_into().expect("table"));
    let size = u16::from_le_bytes(sound[1024 + 88..1024 + 90].try_into().expect("size"));
    let inode = table as usize * 1024 + 7 * usize::from(size);
    let mut random = Random(9);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..400 {
        let mut bytes = sound.clone();
        let place =
            if random.below(2) == 0 { at + random.below(256) } else { inode + random.below(160) };
        bytes[place] ^= 1 << random.below(8);
        let (device, opened) = open(bytes);
        let Ok(mut log) = opened else {
            refused += 1;
            continue;
        };
        let contents = vec![7; 1024];
        let copies = [LogCopy { home: homes[0], bytes: &contents }];
        let perform = |stages: Vec<seekless_cache::Stage>| {
            for stage in stages {
                stage.perform(device.as_ref(), true).expect("memory");
            }
        };
        perform(log.start().expect("start"));
        let transaction = LogTransaction { revokes: &[], copies: &copies };
        perform(log.encode(&transaction).expect("transaction"));
        taken += 1;
    }
    assert!(refused > 200, "{refused} refused, {taken} taken: all of it has checksums");
}

#[test]
fn a_transaction_longer_than_a_quarter_is_refused() {
    if !is_there() {
        return;
    }
    for shape in &SHAPES {
        let (bytes, homes) = make(shape);
        let mut volume = Volume::open(shape, Arc::new(MemoryDevice::new(bytes)), homes, 1);
        let contents = vec![7; shape.block];
        let copies: Vec<LogCopy<'_>> =
            volume.homes.iter().map(|&home| LogCopy { home, bytes: &contents }).collect();
        let before = (volume.bytes(), volume.log.next_tid(), volume.log.free());
        let fits = (1..=copies.len() as u64).rev().find(|&n| volume.log.cost(n, 0) <= 255);
        let fits = fits.expect("some") as usize;
        let long = LogTransaction { revokes: &[], copies: &copies[..=fits] };
        let refused = volume.log.encode(&long).expect_err(shape.name);
        assert!(matches!(refused, FsError::NoSpace(_)), "{refused}");
        assert!(before == (volume.bytes(), volume.log.next_tid(), volume.log.free()));
        let most = LogTransaction { revokes: &[], copies: &copies[..fits] };
        volume.log.encode(&most).expect("a quarter");
        assert!(volume.log.capacity() - volume.log.free() > 240);
    }
}

/// A map that leads into the journal, or out of the volume: nothing is committed.
#[test]
fn what_a_recovery_would_read_is_never_logged() {
    if !is_there() {
        return;
    }
    let (bytes, homes) = make(&SHAPES[4]);
    let journal = BlockNo::new(journal_at(&bytes) as u64 / 1024);
    let mut volume = Volume::open(&SHAPES[4], Arc::new(MemoryDevice::new(bytes)), homes, 1);
    let contents = vec![7; 1024];
    let before = (volume.bytes(), volume.log.next_tid());
    for home in [journal, BlockNo::new(journal.get() + 500), BlockNo::new(4096)] {
        let copies = [LogCopy { home, bytes: &contents }];
        let refused = volume.log.encode(&LogTransaction { revokes: &[], copies: &copies });
        assert!(matches!(refused, Err(FsError::Corrupt { .. })), "{home}");
        assert!(before == (volume.bytes(), volume.log.next_tid()), "{home}");
    }
    let copies = [LogCopy { home: BlockNo::new(4095), bytes: &contents }];
    assert!(volume.log.encode(&LogTransaction { revokes: &[], copies: &copies }).is_ok());
}
