//! A cylinder group being filled: its fragments and inodes in use.

use super::geometry::Geometry;
use crate::ondisk::ROOT;

/// The use of a group.
pub(crate) struct GroupBuilder {
    pub(crate) number: u32,
    /// By fragment of the group; its metadata are not free.
    free: Vec<bool>,
    /// By inode of the group.
    used: Vec<bool>,
    pub(crate) directories: u32,
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
    pub(crate) fn new(geometry: &Geometry, number: u32) -> Self {
        let len = geometry.group_frags(number) as usize;
        let mut free = vec![true; len];
        let first = if number == 0 { 0 } else { geometry.sblkno as usize };
        for slot in free.iter_mut().take(geometry.dblkno as usize).skip(first) {
            *slot = false;
        }
        Self { number, free, used: vec![false; geometry.ipg as usize], directories: 0 }
    }

    /// Takes a run of free fragments.
    pub(crate) fn take_frags(&mut self, from: u64, count: u64) {
        for slot in &mut self.free[from as usize..(from + count) as usize] {
            assert!(*slot, "fragment taken twice");
            *slot = false;
        }
    }

    /// Frees fragments of a taken block that are not needed.
    pub(crate) fn release_frags(&mut self, from: u64, count: u64) {
        let slots = &mut self.free[from as usize..(from + count) as usize];
        debug_assert!(slots.iter().all(|&free| !free), "a fragment is freed once");
        slots.fill(true);
    }

    /// Takes the first inodes.
    pub(crate) fn take_inodes(&mut self, count: u32) {
        self.used[..count as usize].fill(true);
    }

    /// Takes an inode by its place in the group.
    pub(crate) fn take_inode(&mut self, slot: u32) {
        // The root is one of the first inodes.
        let is_root = (self.number, slot) == (0, ROOT);
        debug_assert!(is_root || !self.used[slot as usize], "inode {slot} is taken once");
        self.used[slot as usize] = true;
    }

    /// Runs of free whole blocks, in blocks from the group's start.
    pub(crate) fn free_blocks(&self, frag: u32) -> Vec<std::ops::Range<u64>> {
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for (at, _) in (0u64..).zip(blocks(&self.free, frag)).filter(|&(_, free)| free) {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    /// Whether a fragment of the group is free.
    pub(crate) fn is_free(&self, at: u32) -> bool {
        self.free[at as usize]
    }

    /// Whether an inode of the group is in use.
    pub(crate) fn uses_inode(&self, slot: u32) -> bool {
        self.used[slot as usize]
    }

    pub(crate) fn counts(&self, geometry: &Geometry) -> Counts {
        Counts {
            directories: self.directories,
            free_inodes: self.used.iter().filter(|&&used| !used).count() as u32,
            ..count(&self.free, geometry.frag, geometry.contigsumsize)
        }
    }

    /// The bitmap of free fragments.
    pub(crate) fn frag_bits(&self) -> Vec<u8> {
        bits(self.free.iter().copied())
    }

    /// The bitmap of free blocks.
    pub(crate) fn cluster_bits(&self, geometry: &Geometry) -> Vec<u8> {
        bits(blocks(&self.free, geometry.frag))
    }

    /// The bitmap of inodes in use.
    pub(crate) fn inode_bits(&self) -> Vec<u8> {
        bits(self.used.iter().copied())
    }
}

/// Whether each block is wholly free.
fn blocks(free: &[bool], frag: u32) -> impl Iterator<Item = bool> + '_ {
    let frag = frag as usize;
    free.chunks(frag).map(move |block| block.len() == frag && block.iter().all(|&free| free))
}

/// The counts of a map of free fragments.
pub(crate) fn count(free: &[bool], frag: u32, contigsumsize: u32) -> Counts {
    let mut counts = Counts { clusters: vec![0; contigsumsize as usize + 1], ..Counts::default() };
    for block in free.chunks(frag as usize) {
        if block.len() == frag as usize && block.iter().all(|&free| free) {
            counts.free_blocks += 1;
            continue;
        }
        for run in block.split(|&free| !free).filter(|run| !run.is_empty()) {
            debug_assert!(run.len() < frag as usize, "a free block is no loose run");
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
