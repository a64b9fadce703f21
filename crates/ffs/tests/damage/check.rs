//! What the check says of damage made by recipe.

use crate::images;
use seekless_device::MemoryDevice;
use seekless_ffs::{FfsImage, check};
use seekless_fs::Inspect;
use seekless_fs::check::Report;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_units::{BlockNo, Ino};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An image to be damaged. Offsets are those of UFS2, little-endian.
pub(crate) struct Patient {
    pub(crate) bytes: Vec<u8>,
    image: FfsImage,
}

const MODE: usize = 0;
const LINKS: usize = 2;
const SIZE: usize = 16;
const BLOCKS: usize = 24;
const DIRECT: usize = 112;
const INDIRECT: usize = 208;

impl Patient {
    pub(crate) fn new() -> Self {
        let found = images::IMAGES.iter().find(|(name, _)| *name == "ufs2-le");
        let bytes = images::unpack(found.expect("there").1);
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let image = FfsImage::open(device, OpenOptions::default()).expect("sound");
        Self { bytes, image }
    }

    fn find(&self, path: &str) -> Ino {
        resolve(&self.image, path.as_bytes()).expect(path)
    }

    fn fragment(&self) -> usize {
        self.image.geometry().block_size as usize
    }

    fn at(&self, block: BlockNo) -> usize {
        block.get() as usize * self.fragment()
    }

    /// Byte `field` of an inode.
    fn inode(&self, ino: Ino, field: usize) -> usize {
        let place = self.image.inode_location(ino).expect("inode");
        self.at(place.block) + place.offset as usize + field
    }

    /// The first byte of a file or directory.
    fn data(&self, ino: Ino) -> usize {
        self.at(self.image.block_map(ino).expect("map").runs[0].extent.start)
    }

    fn put64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn get64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    /// Where an entry of a directory begins, by its name.
    fn entry(&self, dir: Ino, name: &str) -> usize {
        let start = self.data(dir);
        let named = |at: &usize| {
            self.bytes[at + 7] as usize == name.len()
                && &self.bytes[at + 8..at + 8 + name.len()] == name.as_bytes()
        };
        (start..start + 512).step_by(4).find(named).expect(name)
    }

    /// The head of the first group.
    fn group(&self) -> usize {
        let magic = 0x0009_0255u32.to_le_bytes();
        let is_head = |at: &usize| self.bytes[at + 4..at + 8] == magic;
        (0..self.bytes.len() - 8).step_by(512).find(is_head).expect("a group")
    }

    fn word(&self, at: usize) -> usize {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap()) as usize
    }

    fn superblock(&self) -> usize {
        let magic = 0x1954_0119u32.to_le_bytes();
        let is_one = |at: &usize| self.bytes[at + 1372..at + 1376] == magic;
        [65536, 8192].into_iter().find(is_one).expect("a superblock")
    }
}

fn checked(bytes: Vec<u8>) -> Report {
    check(Arc::new(MemoryDevice::new(bytes))).expect("checked")
}

fn codes(report: &Report) -> BTreeSet<&'static str> {
    report.findings.iter().map(|finding| finding.code).collect()
}

pub(crate) type Recipe = fn(&mut Patient);

/// What is done, what is to be found, and whether a crash may have done it.
pub(crate) const GOLDEN: &[(&str, Recipe, &[&str], bool)] = &[
    (
        "not clean",
        |p| {
            let at = p.superblock() + 209;
            p.bytes[at] = 0;
        },
        &["superblock.not-clean"],
        true,
    ),
    (
        "totals",
        |p| {
            let at = p.superblock() + 1008;
            p.put64(at, 77);
        },
        &["superblock.totals"],
        true,
    ),
    (
        "a link too many",
        |p| {
            let at = p.inode(p.find("/dir/small"), LINKS);
            p.put16(at, 3);
        },
        &["inode.links-high"],
        true,
    ),
    (
        "a link too few",
        |p| {
            let at = p.inode(p.find("/dir/small"), LINKS);
            p.put16(at, 1);
        },
        &["inode.links-low"],
        false,
    ),
    (
        "no links",
        |p| {
            let at = p.inode(p.find("/dir/small"), LINKS);
            p.put16(at, 0);
        },
        &["inode.links-low"],
        false,
    ),
    (
        "a directory's links",
        |p| {
            let at = p.inode(p.find("/dir"), LINKS);
            p.put16(at, 9);
        },
        &["inode.links-high"],
        true,
    ),
    (
        "no kind of file",
        |p| {
            let at = p.inode(p.find("/pieces"), MODE);
            p.put16(at, 0o001_644);
        },
        &[
            "inode.unknown-kind",
            "entry.unallocated",
            "bitmap.inodes-leaked",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "another kind",
        |p| {
            let at = p.inode(p.find("/dir/fifo"), MODE);
            p.put16(at, 0o140_644);
        },
        &["entry.kind"],
        false,
    ),
    (
        "cleared in part",
        |p| {
            let at = p.inode(p.find("/pieces"), MODE);
            p.put16(at, 0);
        },
        &[
            "inode.partly-cleared",
            "entry.unallocated",
            "bitmap.inodes-leaked",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "blocks counted wrong",
        |p| {
            let at = p.inode(p.find("/pieces"), BLOCKS);
            p.put64(at, 4);
        },
        &["inode.block-count"],
        true,
    ),
    (
        "a block outside",
        |p| {
            let at = p.inode(p.find("/dir/small"), DIRECT);
            p.put64(at, 1 << 40);
        },
        &[
            "inode.block-range",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "two owners",
        |p| {
            let of = p.inode(p.find("/dir/small"), DIRECT);
            let number = p.get64(of);
            let at = p.inode(p.find("/dir/slow"), DIRECT);
            p.put64(at, number);
        },
        &[
            "inode.duplicate-blocks",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "a group's own block",
        |p| {
            let at = p.inode(p.find("/dir/small"), DIRECT);
            let group = p.group() / p.fragment();
            p.put64(at, group as u64);
        },
        &[
            "inode.duplicate-blocks",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "a block past the end",
        |p| {
            let ino = p.find("/dir/small");
            let at = p.inode(ino, DIRECT);
            let number = p.get64(at);
            p.put64(at + 8, number);
        },
        &["inode.block-past-end"],
        false,
    ),
    (
        "an indirect block in itself",
        |p| {
            let at = p.inode(p.find("/pieces"), INDIRECT);
            let block = p.get64(at) as usize;
            let first = block * p.fragment();
            p.put64(first, block as u64);
        },
        &[
            "inode.duplicate-blocks",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "an endless file",
        |p| {
            let at = p.inode(p.find("/dir/small"), SIZE);
            p.put64(at, u64::MAX);
        },
        &[
            "inode.length",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "a directory of odd length",
        |p| {
            let at = p.inode(p.find("/dir"), SIZE);
            p.put64(at, 511);
        },
        &[
            "inode.length",
            "directory.unconnected",
            "inode.links-high",
            "inode.unreferenced",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        false,
    ),
    (
        "a name of nothing",
        |p| {
            let at = p.entry(p.find("/dir"), "fifo");
            p.bytes[at..at + 4].copy_from_slice(&900u32.to_le_bytes());
        },
        &["entry.unallocated", "inode.unreferenced"],
        false,
    ),
    (
        "a lost name",
        |p| {
            let at = p.entry(p.find("/dir"), "fifo");
            p.bytes[at..at + 4].fill(0);
        },
        &["inode.unreferenced"],
        true,
    ),
    (
        "one name fewer",
        |p| {
            let at = p.entry(p.find("/dir"), "hard");
            p.bytes[at..at + 4].fill(0);
        },
        &["inode.links-high"],
        true,
    ),
    (
        "a slash in a name",
        |p| {
            let at = p.entry(p.find("/dir"), "fifo");
            p.bytes[at + 9] = b'/';
        },
        &["entry.name"],
        false,
    ),
    (
        "an entry across the unit",
        |p| {
            let at = p.entry(p.find("/dir"), "fifo");
            p.put16(at + 4, 1024);
        },
        &["directory.corrupt", "inode.unreferenced", "inode.links-high"],
        false,
    ),
    (
        "`.` elsewhere",
        |p| {
            let at = p.data(p.find("/dir"));
            p.bytes[at..at + 4].copy_from_slice(&2u32.to_le_bytes());
        },
        &["directory.dot", "inode.links-high"],
        false,
    ),
    (
        "`..` elsewhere",
        |p| {
            let dir = p.find("/dir");
            let at = p.data(dir) + 12;
            p.bytes[at..at + 4].copy_from_slice(&dir.get().to_le_bytes());
        },
        &["directory.dot-dot", "inode.links-low", "inode.links-high"],
        false,
    ),
    (
        "a directory adrift",
        |p| {
            let at = p.entry(p.find("/"), "dir");
            p.bytes[at..at + 4].fill(0);
        },
        &["directory.unconnected", "inode.links-high"],
        true,
    ),
    (
        "an inode said to be free",
        |p| {
            let ino = p.find("/dir/small");
            let map = p.group() + p.word(p.group() + 92);
            p.bytes[map + ino.get() as usize / 8] &= !(1 << (ino.get() % 8));
        },
        &["bitmap.inodes-free"],
        false,
    ),
    (
        "an inode that leaked",
        |p| {
            let ino = p.image.geometry().inodes_per_group as usize - 1;
            let map = p.group() + p.word(p.group() + 92);
            p.bytes[map + ino / 8] |= 1 << (ino % 8);
        },
        &["bitmap.inodes-leaked"],
        true,
    ),
    (
        "a block said to be free",
        |p| {
            let block = p.data(p.find("/dir/small")) / p.fragment();
            let map = p.group() + p.word(p.group() + 96);
            p.bytes[map + block / 8] |= 1 << (block % 8);
        },
        &["bitmap.blocks-free"],
        false,
    ),
    (
        "a block that leaked",
        |p| {
            let last = p.image.geometry().blocks as usize - 3;
            let map = p.group() + p.word(p.group() + 96);
            p.bytes[map + last / 8] &= !(1 << (last % 8));
        },
        &["bitmap.blocks-leaked", "group.clusters"],
        true,
    ),
    (
        "a group's counts",
        |p| {
            let at = p.group() + 24;
            p.bytes[at] ^= 1;
        },
        &["group.summary"],
        true,
    ),
    (
        "a group's runs",
        |p| {
            let at = p.group() + 52 + 4;
            p.bytes[at] ^= 1;
        },
        &["group.counts"],
        true,
    ),
    (
        "no group",
        |p| {
            let at = p.group() + 4;
            p.bytes[at] = 0;
        },
        &["group.head"],
        false,
    ),
];

#[test]
fn sound_images_are_clean() {
    for (name, compressed) in images::IMAGES {
        let report = checked(images::unpack(compressed));
        assert!(report.is_clean(), "{name}: {:#?}", report.findings);
        assert!(report.tally.inodes > 5 && report.tally.directories >= 2, "{name}");
    }
}

#[test]
fn every_recipe_is_found_and_nothing_else() {
    let mut failures = Vec::new();
    for (what, recipe, wanted, after_a_crash) in GOLDEN {
        let mut patient = Patient::new();
        recipe(&mut patient);
        let report = checked(patient.bytes);
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        if codes(&report) != wanted || (report.unexpected == 0) != *after_a_crash {
            let found: Vec<_> =
                report.findings.iter().map(|finding| (finding.code, &finding.what)).collect();
            failures.push(format!("{what}: wanted {wanted:?}, found {found:#?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn hostile_bytes_are_looked_at_in_bounded_time() {
    let mut random = crate::Random(3);
    for (name, compressed) in images::IMAGES {
        let sound = images::unpack(compressed);
        for _ in 0..150 {
            let mut bytes = sound.clone();
            for _ in 0..=random.below(6) {
                let at = random.below(bytes.len().min(400_000));
                bytes[at] = random.below(256) as u8;
            }
            // Any answer but a panic will do.
            let _ = check(Arc::new(MemoryDevice::new(bytes))).map(drop);
        }
        let _ = name;
    }
}
