//! Blocks and runs of fragments.

use super::group::{GroupMut, at};
use super::{Allocation, Delta};
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent};
use std::ops::Range;

/// For 1, 2, 4 and 8 fragments in a block, and for each byte of the map: bit
/// `n - 1` is set when a block in that byte has a run of exactly `n` free
/// fragments (`fragtbl`).
#[allow(clippy::indexing_slicing, reason = "by the compiler")]
const RUNS: [[u8; 256]; 4] = {
    let mut table = [[0; 256]; 4];
    let mut shift = 0;
    while shift < 4 {
        let mut byte = 0;
        while byte < 256 {
            table[shift][byte] = runs_in_byte(byte, 1 << shift);
            byte += 1;
        }
        shift += 1;
    }
    table
};

const fn runs_in_byte(byte: usize, frag: usize) -> u8 {
    let mut found = 0;
    let mut run = 0;
    let mut at = 0;
    while at < 8 {
        if byte >> at & 1 == 1 {
            run += 1;
        }
        // A run ends at a taken fragment and at the end of its block.
        if (byte >> at & 1 == 0 || (at + 1) % frag == 0) && run > 0 {
            found |= 1 << (run - 1);
            run = 0;
        }
        at += 1;
    }
    found
}

/// How many runs of each length a block's free fragments make; none of a block
/// that is wholly free.
fn loose_runs(bits: u8, frag: u32) -> [u32; 8] {
    let mut runs = [0u32; 8];
    if bits == whole(frag) {
        return runs;
    }
    let mut rest = u32::from(bits);
    while rest != 0 {
        rest >>= rest.trailing_zeros();
        let len = rest.trailing_ones();
        if let Some(count) = runs.get_mut(index(len)) {
            *count += 1;
        }
        rest >>= len;
    }
    runs
}

/// The bits of a block whose fragments are all free.
fn whole(frag: u32) -> u8 {
    debug_assert!(frag <= 8, "a block has 8 fragments at most");
    u8::MAX.checked_shr(8 - frag).unwrap_or(0)
}

/// `count` bits from `from` on.
fn mask(from: u32, count: u32) -> u8 {
    debug_assert!(from + count <= 8, "bits {from} and {count} more lie in a byte");
    whole(count).checked_shl(from).unwrap_or(0)
}

/// Counts of a block's free bits: free blocks and loose fragments.
fn counted(bits: u8, frag: u32) -> (i32, i32) {
    if bits == whole(frag) {
        return (1, 0);
    }
    (0, i32::try_from(bits.count_ones()).unwrap_or(0))
}

impl GroupMut<'_> {
    /// Takes a block: the preferred one, or the next free one behind it, or, without a preferred
    /// one, behind the last block found so. A block of another group stands for its zone. `None`
    /// when no block is free.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the group's maps and counts contradict.
    pub(crate) fn alloc_block(
        &mut self,
        preference: Option<BlockNo>,
    ) -> Result<Option<Allocation>, FsError> {
        let frag = self.sb.frag;
        self.alloc_in_block(frag, preference)
    }

    /// Takes `count` fragments out of a whole free block; the others of it stay
    /// free, for the run to grow into.
    ///
    /// # Errors
    /// As [`GroupMut::alloc_block`].
    pub(crate) fn alloc_in_block(
        &mut self,
        count: u32,
        preference: Option<BlockNo>,
    ) -> Result<Option<Allocation>, FsError> {
        if self.summary().nbfree == 0 {
            return Ok(None);
        }
        let (frag, zone) = (self.sb.frag, self.data_zone());
        debug_assert!((1..=frag).contains(&count), "{count} fragments of a block");
        let start = self.start_of_search(preference);
        let wanted = start / frag;
        let block = if self.block_bits(wanted) == whole(frag) {
            wanted
        } else {
            let found = self.search(start, frag)?;
            if found >= zone {
                self.set_word(at!(cg_rotor), found);
            }
            found / frag
        };
        debug_assert_eq!(self.block_bits(block), whole(frag), "the block is free");
        let rest = whole(frag) & !mask(0, count);
        let delta = self.set_block(block, rest)?;
        Ok(Some(self.taken(block * frag, count, delta)))
    }

    /// Takes a run of `count` fragments within a block: the shortest run that is
    /// long enough, or else part of a whole free block. `None` when there is
    /// neither.
    ///
    /// # Errors
    /// As [`GroupMut::alloc_block`].
    pub(crate) fn alloc_frags(
        &mut self,
        count: u32,
        preference: Option<BlockNo>,
    ) -> Result<Option<Allocation>, FsError> {
        let frag = self.sb.frag;
        let fits = (count..frag).find(|&len| self.loose(len) > 0);
        let Some(len) = fits.filter(|_| count > 0) else {
            return self.alloc_in_block(count.clamp(1, frag), preference);
        };
        let rotor = self.word(at!(cg_frotor));
        let start = preference.and_then(|block| self.within(block)).unwrap_or(rotor);
        let found = self.search(start, len)?;
        let (block, from) = (found / frag, found % frag);
        debug_assert_eq!(self.block_bits(block) | mask(from, count), self.block_bits(block));
        let delta = self.set_block(block, self.block_bits(block) & !mask(from, count))?;
        Ok(Some(self.taken(found, count, delta)))
    }

    /// Takes just this run, if all of it is free.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a run that is not one of this group's data.
    pub(crate) fn take(&mut self, run: Extent) -> Result<Option<Delta>, FsError> {
        let (block, bits) = self.block_and_mask(&self.piece(run)?);
        let old = self.block_bits(block);
        if old & bits != bits {
            return Ok(None);
        }
        self.set_block(block, old & !bits).map(Some)
    }

    /// Lets a run of `old` fragments grow to `new` in place. `None` when the fragments behind it
    /// are taken, or it would cross its block's end.
    ///
    /// # Errors
    /// As [`GroupMut::take`].
    pub(crate) fn extend(
        &mut self,
        start: BlockNo,
        old: u32,
        new: u32,
    ) -> Result<Option<Delta>, FsError> {
        let grows = new.checked_sub(old).filter(|&more| more > 0);
        let at = start.get() % u64::from(self.sb.frag);
        match grows {
            Some(more) if at + u64::from(new) <= u64::from(self.sb.frag) => {
                let behind = start + u64::from(old);
                if self.within(behind).is_none_or(|at| at + more > self.maps.ndblk) {
                    return Ok(None);
                }
                self.take(Extent::new(behind, u64::from(more)))
            }
            _ => Ok(None),
        }
    }

    /// Frees a run, a block or a part of one; it joins the free fragments around it in its block.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a run that is not one of this group's data, or partly free already.
    pub(crate) fn free(&mut self, run: Extent) -> Result<Delta, FsError> {
        let (block, bits) = self.block_and_mask(&self.piece(run)?);
        let old = self.block_bits(block);
        if old & bits != 0 {
            return Err(self.contradiction("cg_blksfree", block));
        }
        self.set_block(block, old | bits)
    }

    /// The only place that changes the map of fragments: sets the bits of a block and brings every
    /// count up to date. Changes nothing when a count would leave its range.
    pub(super) fn set_block(&mut self, block: u32, new: u8) -> Result<Delta, FsError> {
        let frag = self.sb.frag;
        let old = self.block_bits(block);
        debug_assert_ne!(old, new, "a change takes or frees fragments");
        debug_assert_eq!(new & !whole(frag), 0, "a block has {frag} fragments");
        let ((old_blocks, old_frags), (blocks, frags)) = (counted(old, frag), counted(new, frag));
        let delta =
            Delta { nbfree: blocks - old_blocks, nffree: frags - old_frags, ..Delta::default() };
        let summary = self.changed(delta)?;
        let loose = self.changed_runs(&loose_runs(old, frag), &loose_runs(new, frag))?;
        if delta.nbfree != 0 {
            self.set_cluster(block, delta.nbfree > 0)?;
        }
        for (len, count) in (0..).zip(loose) {
            self.set_word(place_of_loose(len), count);
        }
        self.set_summary(summary);
        self.set_block_bits(block, new);
        debug_assert_eq!(self.block_bits(block), new, "fragments past the end stay taken");
        Ok(delta)
    }

    /// `cg_frsum` with some runs removed and others added.
    fn changed_runs(&self, gone: &[u32; 8], come: &[u32; 8]) -> Result<[u32; 8], FsError> {
        let mut all = [0; 8];
        for (((count, len), gone), come) in all.iter_mut().zip(0..).zip(gone).zip(come) {
            let old = self.loose(len);
            let new = old.checked_sub(*gone).and_then(|left| left.checked_add(*come));
            *count = new.ok_or_else(|| self.contradiction("cg_frsum", old))?;
        }
        Ok(all)
    }

    /// The number of loose runs of a length.
    fn loose(&self, len: u32) -> u32 {
        self.word(place_of_loose(len))
    }

    fn taken(&self, at: u32, count: u32, delta: Delta) -> Allocation {
        debug_assert!(at + count <= self.maps.ndblk, "the run ends in the group");
        debug_assert!(at % self.sb.frag + count <= self.sb.frag, "the run lies in one block");
        Allocation { run: Extent::new(self.on_volume(at), u64::from(count)), delta }
    }

    /// The start of the group's zone for data.
    pub(super) fn data_zone(&self) -> u32 {
        self.within(self.sb.data_zone(self.number)).unwrap_or(0)
    }

    /// The start of the search for a block, in fragments of the group.
    fn start_of_search(&self, preference: Option<BlockNo>) -> u32 {
        let Some(block) = preference else {
            let next = self.word(at!(cg_rotor)).checked_add(self.sb.frag);
            return next.filter(|&next| next < self.maps.ndblk).unwrap_or(0);
        };
        if let Some(at) = self.within(block) {
            return at;
        }
        let there = self.sb.shape().group_of(block);
        if block < self.sb.data_zone(there) {
            return self.within(self.sb.meta_zone(self.number)).unwrap_or(0);
        }
        self.data_zone()
    }

    /// The first run of exactly `len` free fragments within a block, from the
    /// byte of the map that `start` is in (`ffs_mapsearch`). The counts say that
    /// there is one.
    fn search(&mut self, start: u32, len: u32) -> Result<u32, FsError> {
        let frag = self.sb.frag;
        let table = RUNS.get(index(frag.trailing_zeros()));
        debug_assert!((1..=frag).contains(&len), "a run of {len} in a block");
        let wanted = 1u8 << (len - 1);
        let end = self.maps.ndblk.div_ceil(8);
        let start = (start >> 3).min(end);
        let has = |&at: &u32| {
            let runs = table.and_then(|table| table.get(usize::from(self.map_byte(at))));
            runs.is_some_and(|runs| runs & wanted != 0)
        };
        let byte = (start..end).chain(0..start).find(has);
        let byte = byte.ok_or_else(|| self.contradiction("cg_frsum", len))?;
        let first = byte * 8;
        self.set_word(at!(cg_frotor), first);
        let mut blocks = (first..first + 8).step_by(index(frag));
        blocks
            .find_map(|at| Some(at + run_of(self.block_bits(at / frag), len)?))
            .ok_or_else(|| self.contradiction("cg_blksfree", byte))
    }

    /// A byte of the map of fragments, without the bits past its end.
    fn map_byte(&self, at: u32) -> u8 {
        debug_assert!(at * 8 < self.maps.ndblk, "byte {at} of the map has fragments");
        let byte = self.bytes.get(self.maps.frags + index(at)).copied().unwrap_or(0);
        byte & whole((self.maps.ndblk - at * 8).min(8))
    }

    /// The bits of a block's fragments, the first one lowest.
    pub(super) fn block_bits(&self, block: u32) -> u8 {
        let at = block * self.sb.frag;
        self.map_byte(at >> 3).checked_shr(at & 7).unwrap_or(0) & whole(self.sb.frag)
    }

    fn set_block_bits(&mut self, block: u32, bits: u8) {
        let at = block * self.sb.frag;
        debug_assert!(at < self.maps.ndblk, "block {block} is one of the group");
        let place = mask(at & 7, self.sb.frag);
        if let Some(byte) = self.bytes.get_mut(self.maps.frags + index(at >> 3)) {
            *byte = *byte & !place | bits.checked_shl(at & 7).unwrap_or(0) & place;
        }
    }

    fn block_and_mask(&self, piece: &Range<u32>) -> (u32, u8) {
        let frag = self.sb.frag;
        let count = piece.end - piece.start;
        debug_assert!(piece.start % frag + count <= frag, "{piece:?} lies in one block");
        (piece.start / frag, mask(piece.start % frag, count))
    }
}

fn place_of_loose(len: u32) -> usize {
    at!(cg_frsum) + index(len) * 4
}

/// The start of a run of exactly `len` set bits.
fn run_of(bits: u8, len: u32) -> Option<u32> {
    let mut at = 0u32;
    while let Some(rest) = bits.checked_shr(at).filter(|&rest| rest != 0) {
        at += rest.trailing_zeros();
        let run = bits.checked_shr(at)?.trailing_ones();
        if run == len {
            return Some(at);
        }
        at += run;
    }
    None
}
