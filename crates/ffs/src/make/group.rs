//! A cylinder group being filled: which of its fragments and inodes are taken.

use super::geometry::Geometry;

/// What a group holds.
pub(super) struct GroupBuilder {
    pub(super) number: u32,
    /// By fragment of the group; what its metadata take is not free.
    free: Vec<bool>,
    /// Inodes taken, all at the start.
    pub(super) inodes: u32,
    pub(super) directories: u32,
}

/// A group's counts: `struct csum`, the runs of free fragments by length
/// (`cg_frsum`), and the runs of free blocks by length (`cg_clustersum`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) directories: u32,
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) free_frags: u32,
    pub(crate) runs: [u32; 8],
    pub(crate) clusters: Vec<u32>,
}

impl GroupBuilder {
    pub(super) fn new(geometry: &Geometry, number: u32) -> Self {
        let len = geometry.group_frags(number) as usize;
        let mut free = vec![true; len];
        let first = if number == 0 { 0 } else { geometry.sblkno as usize };
        for slot in free.iter_mut().take(geometry.dblkno as usize).skip(first) {
            *slot = false;
        }
        Self { number, free, inodes: 0, directories: 0 }
    }

    /// Takes a run of free fragments.
    pub(super) fn take_frags(&mut self, from: u64, count: u64) {
        for slot in &mut self.free[from as usize..(from + count) as usize] {
            assert!(*slot, "fragment taken twice");
            *slot = false;
        }
    }

    /// Takes the first inodes.
    pub(super) fn take_inodes(&mut self, count: u32) {
        self.inodes = count;
    }

    pub(super) fn counts(&self, geometry: &Geometry) -> Counts {
        Counts {
            directories: self.directories,
            free_inodes: geometry.ipg - self.inodes,
            ..count(&self.free, geometry.frag, geometry.contigsumsize)
        }
    }

    /// The bitmap of free fragments.
    pub(super) fn frag_bits(&self) -> Vec<u8> {
        bits(self.free.iter().copied())
    }

    /// The bitmap of free blocks.
    pub(super) fn cluster_bits(&self, geometry: &Geometry) -> Vec<u8> {
        bits(blocks(&self.free, geometry.frag))
    }

    /// The bitmap of inodes in use.
    pub(super) fn inode_bits(&self, geometry: &Geometry) -> Vec<u8> {
        bits((0..geometry.ipg).map(|at| at < self.inodes))
    }
}

/// Whether each block is wholly free.
fn blocks(free: &[bool], frag: u32) -> impl Iterator<Item = bool> + '_ {
    let frag = frag as usize;
    free.chunks(frag).map(move |block| block.len() == frag && block.iter().all(|&free| free))
}

/// What follows from which fragments are free.
pub(crate) fn count(free: &[bool], frag: u32, contigsumsize: u32) -> Counts {
    let mut counts = Counts { clusters: vec![0; contigsumsize as usize + 1], ..Counts::default() };
    for block in free.chunks(frag as usize) {
        if block.len() == frag as usize && block.iter().all(|&free| free) {
            counts.free_blocks += 1;
            continue;
        }
        for run in block.split(|&free| !free).filter(|run| !run.is_empty()) {
            counts.free_frags += run.len() as u32;
            counts.runs[run.len()] += 1;
        }
    }
    if contigsumsize > 0 {
        let blocks: Vec<bool> = blocks(free, frag).collect();
        for run in blocks.split(|&free| !free).filter(|run| !run.is_empty()) {
            counts.clusters[run.len().min(contigsumsize as usize)] += 1;
        }
    }
    counts
}

/// Bits, the lowest of a byte first.
fn bits(values: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, value) in values.enumerate() {
        if at % 8 == 0 {
            bytes.push(0);
        }
        bytes[at / 8] |= u8::from(value) << (at % 8);
    }
    bytes
}
