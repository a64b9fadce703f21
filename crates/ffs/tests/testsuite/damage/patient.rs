//! An image to be damaged, field by field, whatever its format and byte order.

use super::images;
use seekless_device::MemoryDevice;
use seekless_ffs::FfsImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_units::{BlockNo, Ino};
use std::sync::Arc;

/// A field of an inode.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Mode,
    Links,
    Size,
    Blocks,
    Flags,
    Direct(usize),
    Indirect(usize),
    /// Of UFS2.
    AttributeSize,
    /// Of UFS2.
    AttributeBlock,
}

/// A damaged image, and what it was.
pub(crate) struct Patient {
    pub(crate) bytes: Vec<u8>,
    pub(crate) image: FfsImage,
    pub(crate) is_ufs1: bool,
    big_endian: bool,
}

impl Patient {
    pub(crate) fn new(name: &str) -> Self {
        let (_, compressed) =
            images::IMAGES.iter().find(|(known, _)| *known == name).expect("there");
        let bytes = images::unpack(compressed);
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let image = FfsImage::open(device, OpenOptions::default()).expect("sound");
        Self { bytes, image, is_ufs1: name.starts_with("ufs1"), big_endian: name.ends_with("be") }
    }

    pub(crate) fn find(&self, path: &str) -> Ino {
        resolve(&self.image, path.as_bytes()).expect(path)
    }

    pub(crate) fn fragment(&self) -> usize {
        self.image.geometry().block_size as usize
    }

    fn at(&self, block: BlockNo) -> usize {
        block.get() as usize * self.fragment()
    }

    /// Where an inode begins.
    pub(crate) fn inode(&self, ino: Ino) -> usize {
        let place = self.image.inode_location(ino).expect("inode");
        self.at(place.block) + place.offset as usize
    }

    /// Where a field stands in an inode, and its width.
    fn field(&self, field: Field) -> (usize, usize) {
        let width = if self.is_ufs1 { 4 } else { 8 };
        match (field, self.is_ufs1) {
            (Field::Mode, _) => (0, 2),
            (Field::Links, _) => (2, 2),
            (Field::Size, true) => (8, 8),
            (Field::Size, false) => (16, 8),
            (Field::Blocks, true) => (104, 4),
            (Field::Blocks, false) => (24, 8),
            (Field::Flags, true) => (100, 4),
            (Field::Flags, false) => (88, 4),
            (Field::Direct(n), true) => (40 + n * width, width),
            (Field::Direct(n), false) => (112 + n * width, width),
            (Field::Indirect(n), true) => (88 + n * width, width),
            (Field::Indirect(n), false) => (208 + n * width, width),
            (Field::AttributeSize, _) => (92, 4),
            (Field::AttributeBlock, _) => (96, 8),
        }
    }

    pub(crate) fn set(&mut self, path: &str, field: Field, value: u64) {
        let (at, width) = self.field(field);
        let at = self.inode(self.find(path)) + at;
        self.put(at, width, value);
    }

    pub(crate) fn get(&self, path: &str, field: Field) -> u64 {
        let (at, width) = self.field(field);
        self.number(self.inode(self.find(path)) + at, width)
    }

    /// Writes a number of so many bytes.
    pub(crate) fn put(&mut self, at: usize, width: usize, value: u64) {
        let to = &mut self.bytes[at..at + width];
        to.copy_from_slice(&value.to_le_bytes()[..width]);
        if self.big_endian {
            to.reverse();
        }
    }

    /// Reads a number of so many bytes.
    pub(crate) fn number(&self, at: usize, width: usize) -> u64 {
        let mut raw = [0; 8];
        raw[..width].copy_from_slice(&self.bytes[at..at + width]);
        if self.big_endian {
            raw[..width].reverse();
        }
        u64::from_le_bytes(raw)
    }

    /// Writes the n-th number of an indirect block.
    pub(crate) fn put_pointer(&mut self, block: u64, n: usize, value: u64) {
        let width = if self.is_ufs1 { 4 } else { 8 };
        self.put(block as usize * self.fragment() + n * width, width, value);
    }

    /// The first byte of a file or directory.
    pub(crate) fn data(&self, path: &str) -> usize {
        self.at(self.image.block_map(self.find(path)).expect("map").runs[0].extent.start)
    }

    /// Where an entry of a directory begins, by its name.
    pub(crate) fn entry(&self, dir: &str, name: &str) -> usize {
        let start = self.data(dir);
        let len = self.image.attr(self.find(dir)).expect("directory").size as usize;
        let named = |at: &usize| {
            self.bytes[at + 7] as usize == name.len()
                && &self.bytes[at + 8..at + 8 + name.len()] == name.as_bytes()
        };
        (start..start + len).step_by(4).find(named).expect(name)
    }

    /// Adds an entry to the first unit of a directory.
    pub(crate) fn add_entry(&mut self, dir: &str, name: &str, ino: Ino, kind: u8) {
        let end = self.data(dir) + 512;
        let mut at = self.data(dir);
        while at + (self.number(at + 4, 2) as usize) < end {
            at += self.number(at + 4, 2) as usize;
        }
        let own = (8 + self.bytes[at + 7] as usize + 1).next_multiple_of(4);
        let len = end - at;
        assert!(len > own + 8 + name.len(), "no room in {dir}");
        self.put(at + 4, 2, own as u64);
        self.put(at + own, 4, u64::from(ino.get()));
        self.put(at + own + 4, 2, (len - own) as u64);
        self.bytes[at + own + 6] = kind;
        self.bytes[at + own + 7] = name.len() as u8;
        self.bytes[at + own + 8..][..name.len()].copy_from_slice(name.as_bytes());
    }

    /// The head of the first group.
    pub(crate) fn group(&self) -> usize {
        let is_head = |at: &usize| self.number(at + 4, 4) == 0x0009_0255;
        (0..self.bytes.len() - 8).step_by(512).find(is_head).expect("a group")
    }

    /// Where the map of inodes in use begins.
    pub(crate) fn inode_map(&self) -> usize {
        self.group() + self.number(self.group() + 92, 4) as usize
    }

    /// Where the map of free fragments begins.
    pub(crate) fn block_map(&self) -> usize {
        self.group() + self.number(self.group() + 96, 4) as usize
    }

    /// A byte in the maps of the first group that nothing is in.
    pub(crate) fn behind_the_maps(&self) -> usize {
        let head = self.group();
        let word = |at: usize| self.number(head + at, 4) as usize;
        let frags = word(96) + word(20).div_ceil(8);
        // What follows is aligned, or is the map of a whole group.
        let next = if word(104) == 0 { word(100) } else { word(104) + 4 };
        if frags < next {
            return head + frags;
        }
        let blocks = word(108) + word(112).div_ceil(8);
        assert!(blocks < word(100) || word(112) % 8 != 0, "no byte behind the maps");
        head + if blocks < word(100) { blocks } else { blocks - 1 }
    }

    /// Where the superblock and its copies begin.
    pub(crate) fn superblocks(&self) -> Vec<usize> {
        let magic = if self.is_ufs1 { 0x0001_1954 } else { 0x1954_0119 };
        let is_one = |at: &usize| self.number(at + 1372, 4) == magic;
        (0..self.bytes.len() - 1376).step_by(512).filter(is_one).collect()
    }

    /// Where the superblock begins.
    pub(crate) fn superblock(&self) -> usize {
        self.superblocks()[0]
    }

    /// The blocks that nothing is in, by their first fragments.
    pub(crate) fn free_blocks(&self) -> Vec<u64> {
        let map = self.block_map();
        let blocks = 0..self.image.geometry().blocks as usize / 8;
        blocks.filter(|byte| self.bytes[map + byte] == 0xFF).map(|byte| byte as u64 * 8).collect()
    }

    /// A fragment that nothing is in, at a block's start.
    pub(crate) fn free_block(&self) -> u64 {
        *self.free_blocks().last().expect("a free block")
    }

    /// Writes an indirect block.
    pub(crate) fn put_pointers(&mut self, block: u64, values: &[u64]) {
        for (n, &value) in values.iter().enumerate() {
            self.put_pointer(block, n, value);
        }
    }
}
