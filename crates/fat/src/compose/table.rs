//! A FAT in memory.

use crate::boot::Width;
use crate::table::entry_byte;

/// The entries of a FAT, as they are written.
pub(crate) struct Entries {
    width: Width,
    pub(crate) bytes: Vec<u8>,
}

impl Entries {
    /// A FAT for `clusters` clusters, all free.
    pub(crate) fn new(width: Width, clusters: u32) -> Self {
        Self { width, bytes: vec![0; width.bytes(u64::from(clusters) + 2) as usize] }
    }

    /// The mark of a chain's end.
    pub(crate) fn end(&self) -> u32 {
        self.width.end()
    }

    /// The value of a cluster's entry.
    pub(crate) fn get(&self, cluster: u32) -> u32 {
        let at = entry_byte(self.width, cluster) as usize;
        let byte = |n: usize| u32::from(self.bytes[at + n]);
        match self.width {
            Width::Fat12 if cluster & 1 == 1 => byte(0) >> 4 | byte(1) << 4,
            Width::Fat12 => (byte(0) | byte(1) << 8) & 0xFFF,
            Width::Fat16 => byte(0) | byte(1) << 8,
            Width::Fat32 => (byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24) & 0x0FFF_FFFF,
        }
    }

    /// Sets a cluster's entry; on FAT32 the upper four bits stay.
    pub(crate) fn set(&mut self, cluster: u32, value: u32) {
        let fits = self.width == Width::Fat32 || value <= self.width.mask();
        debug_assert!(fits, "{value:#x} in an entry of {}", self.width.shown());
        let at = entry_byte(self.width, cluster) as usize;
        let bytes = &mut self.bytes[at..];
        match self.width {
            Width::Fat12 if cluster & 1 == 1 => {
                bytes[0] = bytes[0] & 0x0F | (value << 4) as u8;
                bytes[1] = (value >> 4) as u8;
            }
            Width::Fat12 => {
                bytes[0] = value as u8;
                bytes[1] = bytes[1] & 0xF0 | (value >> 8 & 0x0F) as u8;
            }
            Width::Fat16 => bytes[..2].copy_from_slice(&(value as u16).to_le_bytes()),
            Width::Fat32 => {
                let top = bytes[3] & 0xF0;
                bytes[..4].copy_from_slice(&(value & 0x0FFF_FFFF).to_le_bytes());
                bytes[3] |= top;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_do_not_touch_their_neighbours() {
        for width in [Width::Fat12, Width::Fat16, Width::Fat32] {
            let mut entries = Entries::new(width, 100);
            let value = |n: u32| (n * 0x0123_4567 + n) & width.mask();
            for n in [1, 0].into_iter().chain((2..102).rev()) {
                entries.set(n, value(n));
            }
            entries.set(50, 0);
            entries.set(50, value(50));
            assert!((0..102).all(|n| entries.get(n) == value(n)), "{width:?}");
        }
    }
}
