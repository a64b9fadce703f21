//! An image that is being tampered with: its FAT and its entries by what they are,
//! found from the description of the format alone.

use super::images;
use seekless_device::MemoryDevice;
use seekless_fat::FatImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{FsError, Inspect, Mapping};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

pub(crate) struct Patient {
    pub(crate) bytes: Vec<u8>,
    pub(crate) bits: u32,
}

impl Patient {
    pub(crate) fn new(name: &str) -> Self {
        let (_, packed) = images::IMAGES.iter().find(|(known, _)| *known == name).expect(name);
        Self { bytes: images::unpack(packed), bits: name[3..].parse().expect("bits") }
    }

    pub(crate) fn copy(&self) -> Self {
        Self { bytes: self.bytes.clone(), bits: self.bits }
    }

    /// One of each kind.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        images::IMAGES.iter().map(|(name, _)| Self::new(name))
    }

    pub(crate) fn le16(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes(self.bytes[at..at + 2].try_into().expect("two")))
    }

    pub(crate) fn le32(&self, at: usize) -> usize {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four")) as usize
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn fat_len(&self) -> usize {
        512 * if self.bits == 32 { self.le32(36) } else { self.le16(22) }
    }

    /// The byte where an entry of a FAT begins.
    pub(crate) fn entry(&self, fat: usize, cluster: usize) -> usize {
        self.le16(14) * 512 + fat * self.fat_len() + cluster * self.bits as usize / 8
    }

    /// Sets an entry of both FATs.
    pub(crate) fn link(&mut self, cluster: usize, value: u32) -> &mut Self {
        for fat in 0..2 {
            self.link_in(fat, cluster, value);
        }
        self
    }

    /// Sets an entry of one FAT.
    pub(crate) fn link_in(&mut self, fat: usize, cluster: usize, value: u32) -> &mut Self {
        let at = self.entry(fat, cluster);
        match self.bits {
            12 => {
                let old = self.le16(at) as u32;
                let new = if cluster % 2 == 1 {
                    old & 0x000F | (value & 0xFFF) << 4
                } else {
                    old & 0xF000 | value & 0xFFF
                };
                self.put(at, &(new as u16).to_le_bytes());
            }
            16 => drop(self.put(at, &(value as u16).to_le_bytes())),
            _ => {
                let value = self.le32(at) as u32 & 0xF000_0000 | value & 0x0FFF_FFFF;
                self.put(at, &value.to_le_bytes());
            }
        }
        self
    }

    /// The first byte of a cluster.
    pub(crate) fn cluster(&self, number: usize) -> usize {
        let root = (self.le16(17) * 32).div_ceil(512) * 512;
        self.le16(14) * 512 + 2 * self.fat_len() + root + (number - 2) * 512
    }

    /// The byte where a file's short entry begins.
    pub(crate) fn short(&self, path: &str) -> usize {
        let image = self.opened();
        let at = image.inode_location(self.ino(path)).expect("location");
        at.block.get() as usize * 512 + at.offset as usize
    }

    /// The first cluster in a file's entry.
    pub(crate) fn first(&self, path: &str) -> usize {
        let at = self.short(path);
        self.le16(at + 20) << 16 | self.le16(at + 26)
    }

    /// A sound file's clusters.
    pub(crate) fn chain(&self, path: &str) -> Vec<usize> {
        let map = self.opened().block_map(self.ino(path)).expect("map");
        let base = self.cluster(2) / 512;
        let sectors = |run: &Mapping| run.extent.start.get()..run.extent.end().get();
        map.runs.iter().flat_map(sectors).map(|sector| sector as usize - base + 2).collect()
    }

    pub(crate) fn set_first(&mut self, path: &str, cluster: usize) -> &mut Self {
        let at = self.short(path);
        self.put(at + 20, &((cluster >> 16) as u16).to_le_bytes());
        self.put(at + 26, &(cluster as u16).to_le_bytes())
    }

    pub(crate) fn set_size(&mut self, path: &str, size: u32) -> &mut Self {
        let at = self.short(path);
        self.put(at + 28, &size.to_le_bytes())
    }

    pub(crate) fn open(&self) -> Result<FatImage, FsError> {
        FatImage::open(Arc::new(MemoryDevice::new(self.bytes.clone())), OpenOptions::default())
    }

    /// Opens what must still open.
    pub(crate) fn opened(&self) -> FatImage {
        self.open().expect("open")
    }

    pub(crate) fn ino(&self, path: &str) -> Ino {
        resolve(&self.opened(), path.as_bytes()).expect(path)
    }

    /// Reads a whole file.
    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, FsError> {
        let image = self.opened();
        let ino = self.ino(path);
        let mut bytes = vec![0; image.attr(ino)?.size as usize];
        let got = image.read(ino, ByteLen::ZERO, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Reads a whole file, if it is there.
    pub(crate) fn try_read(&self, path: &str) -> Result<Vec<u8>, FsError> {
        resolve(&self.open()?, path.as_bytes())?;
        self.read(path)
    }

    /// The names in a directory.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, FsError> {
        let image = self.opened();
        let mut names = Vec::new();
        image.read_dir(self.ino(path), 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(names.split_off(2))
    }
}
