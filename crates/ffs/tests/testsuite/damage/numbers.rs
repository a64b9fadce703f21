//! Words set to the numbers at which sums and products overflow: reading, checking, repairing and
//! changing such an image give answers or typed errors, and no panic.

use super::{Random, exercise};
use crate::slice::some_or_all;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{FORMAT, FfsLive, LiveOptions, MakeOptions, Version, check, make, repair};
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr, XattrMode};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, Ino, Lba};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
/// Damaged images of each version and order.
const ROUNDS: usize = 300;
/// Words of a superblock, and of a group's head in front of its maps.
const SUPERBLOCK_WORDS: usize = 1376 / 4;
const HEAD_WORDS: usize = 168 / 4;
/// Fields of a superblock, by their bytes.
mod field {
    pub(super) const CBLKNO: usize = 12;
    pub(super) const IBLKNO: usize = 16;
    pub(super) const DBLKNO: usize = 20;
    pub(super) const NCG: usize = 44;
    pub(super) const FSIZE: usize = 52;
    pub(super) const FPG: usize = 188;
    pub(super) const OLD_CGOFFSET: usize = 24;
    pub(super) const OLD_CGMASK: usize = 28;
    pub(super) const OLD_CPG: usize = 180;
    /// Eight numbers of 64 bits.
    pub(super) const CSTOTAL: usize = 1008;
    pub(super) const OLD_NRPOS: usize = 1360;
    pub(super) const MAGIC: usize = 1372;
}

/// A volume of several groups, and the places of its structures in bytes.
struct Places {
    sound: Vec<u8>,
    is_big: bool,
    superblocks: Vec<usize>,
    heads: Vec<usize>,
    /// Inodes in use, and their length.
    inodes: Vec<usize>,
    inode_len: usize,
    /// Words of anything else that are not zero.
    busy: Vec<usize>,
}

/// A small volume with directories, files with indirect blocks, symlinks and attributes.
fn volume(version: Version, big_endian: bool) -> Vec<u8> {
    const LEN: u64 = 1 << 20;
    let device = Arc::new(MemoryDevice::new(vec![0; LEN as usize]));
    let mut options = MakeOptions::new(version, ByteLen::new(LEN));
    (options.block_size, options.fragment_size) = (4096, 512);
    (options.big_endian, options.blocks_per_group) = (big_endian, Some(64));
    options.bytes_per_inode = Some(8192);
    make(device.as_ref(), &options).expect("made");
    let mut live = opened(device.clone()).expect("opened");
    for n in 0..4u64 {
        let dir = format!("directory {n}").into_bytes();
        let dir = live.make(live.root(), &dir, NewFile::Directory, OWNER).expect("dir").ino;
        for (name, len) in [("tail", 700), ("blocks", 9000), ("indirect", 52 << 10)] {
            let file = live.make(dir, name.as_bytes(), NewFile::Regular, OWNER).expect("file").ino;
            live.write(file, ByteLen::ZERO, &vec![n as u8; len]).expect("written");
            if version == Version::Ufs2 {
                live.set_xattr(file, b"user.name", b"value", XattrMode::Any).expect("attribute");
            }
        }
        for target in [20, 300] {
            let name = format!("link {target}").into_bytes();
            live.make(dir, &name, NewFile::Symlink(&vec![b'x'; target]), OWNER).expect("link");
        }
    }
    live.unmount().expect("unmounted");
    let mut bytes = vec![0; LEN as usize];
    device.read(Lba::ZERO, &mut bytes).expect("read");
    bytes
}

/// Opens an image whatever its state.
fn opened(device: Arc<MemoryDevice>) -> Result<FfsLive, FsError> {
    let options = LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        reallocblks: true,
        force: true,
        recover: false,
        ignore_checksums: true,
        wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
    };
    let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
    FfsLive::open(device, clock, config, options)
}

impl Places {
    fn all() -> impl Iterator<Item = Self> {
        let both = [Version::Ufs1, Version::Ufs2].into_iter();
        both.flat_map(|version| [false, true].map(|is_big| Self::of(version, is_big)))
    }

    fn of(version: Version, is_big: bool) -> Self {
        let sound = volume(version, is_big);
        let (first, inode_len) = match version {
            Version::Ufs1 => (8192, 128),
            Version::Ufs2 => (65536, 256),
        };
        let word = |at: usize| {
            let raw: [u8; 4] = sound[at..at + 4].try_into().expect("a word");
            if is_big { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
        };
        let magic = word(first + field::MAGIC);
        let at = |field: usize| word(first + field) as usize;
        let (fsize, fpg) = (at(field::FSIZE), at(field::FPG));
        let in_group = |group: usize, part: usize| (group * fpg + at(part)) * fsize;
        let superblocks: Vec<usize> = (0..sound.len() - 1376)
            .step_by(512)
            .filter(|&at| word(at + field::MAGIC) == magic)
            .collect();
        let groups = 0..at(field::NCG);
        assert!(groups.end > 2 && superblocks.len() == groups.end + 1, "{groups:?}");
        let heads = groups.clone().map(|group| in_group(group, field::CBLKNO)).collect();
        let tables =
            groups.map(|group| in_group(group, field::IBLKNO)..in_group(group, field::DBLKNO));
        let in_use = |at: &usize| sound[*at..*at + 2] != [0, 0];
        let inodes: Vec<usize> =
            tables.flat_map(|table| table.step_by(inode_len)).filter(in_use).collect();
        assert!(inodes.len() > 20, "{} inodes in use", inodes.len());
        let busy = (8192..sound.len() - 8).step_by(4).filter(|&at| word(at) != 0).collect();
        Self { sound, is_big, superblocks, heads, inodes, inode_len, busy }
    }

    fn put(&self, bytes: &mut [u8], at: usize, value: u32) {
        let raw = if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        bytes[at..at + 4].copy_from_slice(&raw);
    }

    /// Sets words of one structure; those of the superblock in all of its copies.
    fn hit(&self, bytes: &mut [u8], random: &mut Random) {
        let (places, words) = match random.below(8) {
            0 | 1 => (self.superblocks.clone(), SUPERBLOCK_WORDS),
            2 | 3 => (vec![self.heads[random.below(self.heads.len())]], HEAD_WORDS),
            4..=6 => (vec![self.inodes[random.below(self.inodes.len())]], self.inode_len / 4),
            _ => (vec![self.busy[random.below(self.busy.len())]], 1),
        };
        for _ in 0..=random.below(3) {
            let (word, value) = (random.below(words), value(random));
            // Numbers of 64 bits take two words.
            let both = random.below(3) == 0 && word + 1 < words;
            for place in &places {
                self.put(bytes, place + word * 4, value);
                if both {
                    self.put(bytes, place + word * 4 + 4, value);
                }
            }
        }
    }
}

/// A number near the end of a type, a small one, or any.
fn value(random: &mut Random) -> u32 {
    const NUMBERS: [u32; 10] =
        [0, 1, 2, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFF8, 0xFFFF_FFFE, u32::MAX];
    match random.below(12) {
        at @ 0..10 => NUMBERS[at],
        10 => random.below(1 << 12) as u32,
        _ => (random.below(1 << 16) << 16 | random.below(1 << 16)) as u32,
    }
}

/// Counts of calls on images in use.
#[derive(Default, Debug)]
struct Calls {
    opened: u32,
    done: u32,
    failed: u32,
}

impl Calls {
    fn note<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.done += 1;
                Some(value)
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                self.failed += 1;
                None
            }
        }
    }

    /// Changes each file of an image in use.
    fn change(&mut self, bytes: Vec<u8>) {
        let Ok(mut live) = opened(Arc::new(MemoryDevice::new(bytes))) else { return };
        self.opened += 1;
        let mut files: Vec<(Ino, Vec<u8>, Ino)> = Vec::new();
        let mut pending = vec![live.root()];
        while let Some(dir) = pending.pop().filter(|_| files.len() < 60) {
            let mut met = Vec::new();
            let listed = live.read_dir(dir, 0, &mut |entry| {
                met.push((dir, entry.name.to_vec(), entry.ino));
                ControlFlow::Continue(())
            });
            self.note(listed);
            met.retain(|(_, name, _)| !matches!(&name[..], b"." | b".."));
            pending.extend(met.iter().map(|(.., ino)| *ino));
            files.extend(met);
        }
        live.space();
        for (n, (dir, name, ino)) in files.into_iter().enumerate() {
            self.note(live.attr(ino));
            self.note(live.xattrs(ino));
            self.note(live.data_runs(ino));
            self.note(live.read(ino, ByteLen::ZERO, &mut [0; 3000]));
            self.note(live.write(ino, ByteLen::new(n as u64 * 7000), &[7; 5000]));
            self.note(live.set_xattr(ino, b"user.n", &[1; 300], XattrMode::Any));
            let set = SetAttr { size: Some(n as u64 * 1000), ..SetAttr::default() };
            self.note(live.set_attr(ino, &set));
            self.note(live.make(dir, format!("new {n}").as_bytes(), NewFile::Directory, OWNER));
            if n % 3 == 0 {
                self.note(live.unlink(dir, &name));
            }
        }
        self.note(live.sync());
        let closed = live.unmount();
        self.note(closed);
    }
}

fn everything(bytes: &[u8], calls: &mut Calls) -> exercise::Outcome {
    let outcome = exercise::exercise(&FORMAT, bytes.to_vec(), true);
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    calls.note(check(device.clone()));
    calls.note(repair(device));
    calls.change(bytes.to_vec());
    outcome
}

fn numbers(rounds: usize, first: u64) {
    let mut calls = Calls::default();
    let (mut opened, mut errors) = (0, 0);
    for (seed, places) in (first..).zip(Places::all()) {
        let mut random = Random(seed);
        for _ in 0..rounds {
            let mut bytes = places.sound.clone();
            for _ in 0..=random.below(2) {
                places.hit(&mut bytes, &mut random);
            }
            let outcome = everything(&bytes, &mut calls);
            opened += usize::from(outcome.opened);
            errors += outcome.errors;
        }
    }
    let asked = u32::try_from(rounds).expect("few");
    assert!(opened > rounds && errors > 3 * asked, "{opened} opened, {errors} errors");
    assert!(calls.opened > asked && calls.done > calls.failed, "{calls:?}");
}

#[test]
fn no_number_makes_a_sum_overflow() {
    numbers(some_or_all(ROUNDS / 2, ROUNDS), 1);
}

/// `cargo test -p seekless-ffs --release damage::numbers -- --ignored`
#[test]
#[ignore = "minutes"]
fn no_number_of_many_makes_a_sum_overflow() {
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(10);
    numbers(20_000, seed);
}

/// Every word of the superblock in turn, in all copies, and the pairs that are multiplied.
#[test]
fn no_word_of_a_superblock_makes_a_sum_overflow() {
    let mut calls = Calls::default();
    for places in Places::all() {
        let before = calls.opened;
        let single = (0..SUPERBLOCK_WORDS).map(|word| vec![(word * 4, u32::MAX)]);
        let pairs = [
            vec![(field::OLD_CPG, u32::MAX), (field::OLD_NRPOS, u32::MAX)],
            vec![(field::OLD_CGOFFSET, u32::MAX), (field::OLD_CGMASK, 0)],
            (0..8).map(|n| (field::CSTOTAL + n * 4, u32::MAX)).collect(),
        ];
        for words in single.step_by(some_or_all(3, 1)).chain(pairs) {
            let mut bytes = places.sound.clone();
            for &place in &places.superblocks {
                for &(at, value) in &words {
                    places.put(&mut bytes, place + at, value);
                }
            }
            everything(&bytes, &mut calls);
        }
        assert!(calls.opened > before + some_or_all(33, 100), "{calls:?}");
    }
}
