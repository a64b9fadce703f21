//! Ways to damage a volume, structure by structure.

use std::fmt;

const SUPERBLOCK: usize = 1024;
const BLOCK: usize = 1024;

fn le16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn le32(bytes: &[u8], at: usize) -> usize {
    le16(bytes, at) | le16(bytes, at + 2) << 16
}

/// What is done to a byte or a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Zero,
    Ones,
    /// One bit the other way round.
    Bit(u8),
    /// Four bytes of ones.
    Word,
}

/// One way to damage a volume.
#[derive(Clone)]
pub(super) struct Damage {
    what: String,
    at: usize,
    change: Change,
    /// The superblock's checksum is made right afterwards.
    sealed: bool,
}

impl fmt::Debug for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sealed = if self.sealed { ", sealed" } else { "" };
        write!(f, "{} (byte {}): {:?}{sealed}", self.what, self.at, self.change)
    }
}

impl Damage {
    fn new(what: String, at: usize, change: Change) -> Self {
        Self { what, at, change, sealed: false }
    }

    /// The part and the byte in it, as `inode 12 +0x38`.
    pub(super) fn place(&self) -> &str {
        &self.what
    }

    /// The damaged volume; `None` where that changes nothing.
    pub(super) fn apply(&self, sound: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = sound.to_vec();
        match self.change {
            Change::Zero => bytes[self.at] = 0,
            Change::Ones => bytes[self.at] = 0xFF,
            Change::Bit(bit) => bytes[self.at] ^= 1 << bit,
            Change::Word => bytes[self.at..self.at + 4].fill(0xFF),
        }
        if bytes == sound {
            return None;
        }
        if self.sealed {
            let sum = !crc32c::crc32c(&bytes[SUPERBLOCK..SUPERBLOCK + 1020]);
            bytes[SUPERBLOCK + 1020..SUPERBLOCK + 1024].copy_from_slice(&sum.to_le_bytes());
        }
        Some(bytes)
    }
}

/// All bits of the superblock's three words of features.
pub(super) fn features() -> impl Iterator<Item = Damage> {
    (0..96).map(|bit: usize| {
        let word = ["compat", "incompat", "ro_compat"][bit / 32];
        let what = format!("feature {word} {:#x}", 1u32 << (bit % 32));
        let change = Change::Bit((bit % 8) as u8);
        Damage { sealed: true, ..Damage::new(what, SUPERBLOCK + 92 + bit / 8, change) }
    })
}

/// The parts of a volume.
pub(super) struct Target {
    /// A structure's name, where it begins, how many of its bytes are damaged.
    parts: Vec<(String, usize, usize)>,
}

impl Target {
    /// Finds the parts of a sound volume with blocks of 1 KiB.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let sb = &bytes[SUPERBLOCK..2 * SUPERBLOCK];
        let mut parts = vec![("superblock".into(), SUPERBLOCK, 1020)];
        let is_64 = le32(sb, 0x60) & 0x80 != 0;
        let desc = if is_64 { le16(sb, 0xFE) } else { 32 };
        let per_group = le32(sb, 0x20);
        let groups = (le32(sb, 4) - 1).div_ceil(per_group);
        let (inodes, size) = (le32(sb, 0x28), le16(sb, 0x58));
        for group in 0..groups.min(3) {
            parts.push((format!("descriptor {group}"), 2 * BLOCK + group * desc, desc));
        }
        for group in 0..groups {
            let table = le32(bytes, 2 * BLOCK + group * desc + 8) * BLOCK;
            for slot in 0..inodes {
                let at = table + slot * size;
                let ino = group * inodes + slot + 1;
                // Any block may be on the list of bad blocks, inode 1, and e2fsck asks of the
                // superblock's alone.
                if ino == 1 || bytes[at..at + 128].iter().all(|&byte| byte == 0) {
                    continue;
                }
                parts.push((format!("inode {ino}"), at, size.min(160)));
                Self::blocks(bytes, ino, at, &mut parts);
            }
        }
        Self { parts }
    }

    /// Blocks that an inode leads to: those of extents or numbers, and the first of each
    /// directory and of the journal.
    fn blocks(bytes: &[u8], ino: usize, at: usize, parts: &mut Vec<(String, usize, usize)>) {
        let map = at + 40;
        let mut add = |what: &str, block: usize, len: usize| {
            if block > 0 && (block + 1) * BLOCK <= bytes.len() {
                parts.push((format!("{what} of inode {ino}"), block * BLOCK, len));
            }
        };
        let is_dir = le16(bytes, at) & 0xF000 == 0x4000;
        if le32(bytes, at + 32) & 0x1000_0000 != 0 {
            return;
        }
        let mut data = Vec::new();
        if le32(bytes, at + 32) & 0x8_0000 != 0 {
            let depth = le16(bytes, map + 6);
            let entries = le16(bytes, map + 2).min(4);
            for n in 0..entries {
                let entry = map + 12 + n * 12;
                if depth == 0 {
                    let start = le32(bytes, entry + 8);
                    data.extend(start..start + le16(bytes, entry + 4).min(3));
                } else {
                    add("extent block", le32(bytes, entry + 4), 72);
                }
            }
        } else if is_dir || le16(bytes, at) & 0xF000 == 0x8000 {
            data.extend((0..3).map(|n| le32(bytes, map + n * 4)));
            for n in 12..15 {
                add("indirect block", le32(bytes, map + n * 4), 40);
            }
        }
        if is_dir {
            for &block in &data {
                add("directory block", block, 140);
            }
        }
        if let (8, Some(&block)) = (ino, data.first()) {
            add("journal", block, 96);
        }
        add("attribute block", le32(bytes, at + 104), 80);
    }

    /// All damage of all parts.
    pub(super) fn damage(&self) -> Vec<Damage> {
        let mut all = Vec::new();
        for (what, start, len) in &self.parts {
            for at in *start..start + len {
                let what = format!("{what} +{:#x}", at - start);
                // Which bit goes round is another from byte to byte.
                let bit = Change::Bit((at * 5 % 8) as u8);
                // e2fsck takes that number for an inode in use, without the feature too.
                if what.starts_with("superblock") && (0x26C..0x270).contains(&(at - start)) {
                    continue;
                }
                for change in [Change::Zero, Change::Ones, bit] {
                    all.push(Damage::new(what.clone(), at, change));
                }
                if at % 4 == 0 {
                    all.push(Damage::new(what, at, Change::Word));
                }
            }
        }
        all
    }
}
