//! Journals of soft updates with any records, on volumes with any inodes: the input of the fuzz
//! target `soft_journal`, and its corpus.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | low bits: which volume; top bit: sectors, in place of records |
//! | 1 | number of patches, up to 7 |
//! | 2, 1, length | each patch: the place among the first inodes, the length (1..=16), the bytes |
//! | rest | records of 32 bytes, or sectors of 512 with their headers |

use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{
    CheckHashes, FfsImage, FfsLive, LiveOptions, MakeOptions, Outcome, Version, check, make, preen,
    repair,
};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{Inspect, Timestamp};
use seekless_units::{ByteLen, Ino, Lba};
use std::sync::Arc;

/// Bytes of the journal's file, the fewest of one.
const JOURNAL: usize = 4 << 20;
const IMAGE: usize = 5 << 20;
const FRAGMENT: u64 = 512;
/// Bytes of the block of the journal that is written.
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
const RECORD: usize = 32;
/// Bytes of inodes that patches reach.
const INODES: usize = 4096;
const MARK: &[u8] = b"the first block of the journal";
const TIME: u64 = 1_700_000_000;

/// A volume with a journal that was not unmounted.
pub(crate) struct Base {
    bytes: Vec<u8>,
    big_endian: bool,
    /// Where the journal and the first inode begin.
    journal: usize,
    inodes: usize,
}

/// The outcome of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Used {
    /// The volume was recovered by the journal.
    Recovered,
    /// The journal was damaged, or was not used.
    Refused,
    /// The volume could not be checked.
    Failed,
}

/// Both formats, in both byte orders.
pub(crate) fn bases() -> Vec<Base> {
    let all = [Version::Ufs1, Version::Ufs2].map(|version| [(version, false), (version, true)]);
    all.into_iter().flatten().map(|(version, big_endian)| base(version, big_endian)).collect()
}

fn base(version: Version, big_endian: bool) -> Base {
    let mut options = MakeOptions::new(version, ByteLen::new(IMAGE as u64));
    (options.block_size, options.fragment_size) = (BLOCK as u32, FRAGMENT as u32);
    options.bytes_per_inode = Some(32768);
    options.big_endian = big_endian;
    options.check_hashes = CheckHashes::None;
    let device = Arc::new(MemoryDevice::new(vec![0; IMAGE]));
    make(device.as_ref(), &options).expect("a volume");
    let live = LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        force: false,
        recover: false,
        ignore_checksums: false,
        reallocblks: false,
        wall: Box::new(|| Timestamp { secs: TIME as i64, nanos: 0 }),
    };
    let config = Config::new(Discipline::SoftUpdates);
    let clock = Arc::new(VirtualClock::new());
    let mut live = FfsLive::open(device.clone(), clock, config, live).expect("open");
    let journal = with_files(&mut live);
    live.unmount().expect("unmount");
    let mut bytes = vec![0; IMAGE];
    device.read(Lba::ZERO, &mut bytes).expect("memory");
    let image = FfsImage::open(device, OpenOptions::default()).expect("open");
    let at = |ino| {
        let place = image.inode_location(ino).expect("an inode");
        (place.block.get() * FRAGMENT + u64::from(place.offset)) as usize
    };
    let (inode, inodes) = (at(journal), at(Ino::new(2)));
    let first = bytes.windows(MARK.len()).position(|bytes| bytes == MARK).expect("the journal");
    let is_ufs1 = version == Version::Ufs1;
    let superblock = if is_ufs1 { 8192 } else { 65536 };
    let mut put =
        |at: usize, len: usize, value: u64| number(&mut bytes, big_endian, at, len, value);
    put(inode + if is_ufs1 { 100 } else { 88 }, 4, 0x12_0000);
    put(inode + if is_ufs1 { 120 } else { 232 }, 8, TIME);
    put(superblock + 1208, 8, TIME);
    put(superblock + 1312, 4, 2 | 8);
    put(superblock + 209, 1, 0);
    Base { bytes, big_endian, journal: first, inodes }
}

/// Makes a journal and other files, and returns the journal's inode.
fn with_files(live: &mut FfsLive) -> Ino {
    let (root, owner) = (live.root(), Ownership { uid: 0, gid: 0, perm: 0o400 });
    let journal = live.make(root, b".sujournal", NewFile::Regular, owner).expect("make").ino;
    for at in (0..JOURNAL).step_by(1 << 16) {
        live.write(journal, ByteLen::new(at as u64), &vec![0; 1 << 16]).expect("write");
    }
    live.write(journal, ByteLen::ZERO, MARK).expect("write");
    let dir = live.make(root, b"dir", NewFile::Directory, owner).expect("make").ino;
    let file = live.make(dir, b"file", NewFile::Regular, owner).expect("make").ino;
    live.write(file, ByteLen::ZERO, &[7; 60_000]).expect("write");
    live.link(file, root, b"link").expect("link");
    live.make(root, b"symlink", NewFile::Symlink(b"dir/file"), owner).expect("make");
    journal
}

/// Puts a number into an image.
fn number(bytes: &mut [u8], big_endian: bool, at: usize, len: usize, value: u64) {
    let (big, little) = (value.to_be_bytes(), value.to_le_bytes());
    let value = if big_endian { &big[8 - len..] } else { &little[..len] };
    bytes[at..at + len].copy_from_slice(value);
}

/// Runs one input.
pub(crate) fn run(data: &[u8], bases: &[Base]) -> Used {
    let [choice, patches, rest @ ..] = data else { return Used::Failed };
    let base = &bases[usize::from(*choice) % bases.len()];
    let mut bytes = base.bytes.clone();
    let mut rest = rest;
    for _ in 0..patches % 8 {
        let [low, high, len, more @ ..] = rest else { break };
        let len = (usize::from(*len) % 16 + 1).min(more.len());
        let (patch, after) = more.split_at(len);
        let at = base.inodes + usize::from(u16::from_le_bytes([*low, *high])) % INODES;
        bytes[at..at + len].copy_from_slice(patch);
        rest = after;
    }
    let is_raw = choice & 0x80 != 0;
    for (n, part) in rest.chunks(if is_raw { SECTOR } else { SECTOR - RECORD }).enumerate() {
        let sector = base.journal + n * SECTOR;
        if n * SECTOR >= BLOCK {
            break;
        }
        if is_raw {
            bytes[sector..sector + part.len()].copy_from_slice(part);
            continue;
        }
        let fields = [(0, 8, 5 + n as u64), (8, 8, 5), (16, 2, (part.len() / RECORD) as u64)];
        for (at, len, value) in fields.into_iter().chain([(18, 2, 1), (24, 8, TIME)]) {
            number(&mut bytes, base.big_endian, sector + at, len, value);
        }
        bytes[sector + RECORD..sector + RECORD + part.len()].copy_from_slice(part);
    }
    recovered(bytes)
}

/// Checks a volume, which changes nothing, and recovers it.
fn recovered(bytes: Vec<u8>) -> Used {
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    let all = |device: &MemoryDevice| {
        let mut bytes = vec![0; IMAGE];
        device.read(Lba::ZERO, &mut bytes).expect("memory");
        bytes
    };
    let Ok(report) = check(device.clone()) else { return Used::Failed };
    assert!(all(&device) == bytes, "a check changes nothing");
    let is_pending = report.findings.iter().any(|finding| finding.code() == "journal.pending");
    let Ok(preened) = preen(device.clone()) else { return Used::Failed };
    let is_damaged = report.findings.iter().any(|finding| finding.code() == "journal.damaged");
    assert!(!is_pending || preened.outcome != Outcome::Left, "a recovery does not stop");
    assert!(!is_damaged || preened.writes == 0, "a preen that stops changes nothing");
    if is_pending {
        let again = check(device.clone()).expect("checked before");
        let is_journal = |code: &str| code.starts_with("journal.");
        assert!(!again.findings.iter().any(|finding| is_journal(finding.code())), "used once");
    }
    // Errors are allowed.
    let _ = repair(device);
    if is_pending { Used::Recovered } else { Used::Refused }
}

/// The inputs that the fuzz target starts with, and those that it has found.
#[test]
fn the_corpus_of_journals() {
    let bases = bases();
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/soft_journal");
    let (mut recovered, mut refused) = (0, 0);
    for entry in std::fs::read_dir(corpus).expect("corpus") {
        let input = std::fs::read(entry.expect("input").path()).expect("input");
        match run(&input, &bases) {
            Used::Recovered => recovered += 1,
            Used::Refused => refused += 1,
            Used::Failed => {}
        }
    }
    assert!(recovered > 8 && refused > 4, "{recovered} were recovered, {refused} were not");
}
