//! A cylinder group's bytes, checked, and its words and bits.

use super::summary::{self, Delta};
use crate::checksum::crc32c;
use crate::ondisk::{CylinderGroup, MAGIC_GROUP, check_hash};
use crate::superblock::{Format, Super};
use seekless_fs::extents::append;
use seekless_fs::field::{index, invalid, range, truncated};
use seekless_fs::{Corruption, FsError, Location};
use seekless_placement::GroupSummary;
use seekless_units::{BlockNo, Extent, GroupNo};
use smallvec::SmallVec;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::byteorder::LE;

/// A place in a group's head.
macro_rules! at {
    ($field:ident) => {
        std::mem::offset_of!(crate::ondisk::CylinderGroup<zerocopy::byteorder::LE>, $field)
    };
}
pub(super) use at;

/// The places of a group's bitmaps and counts, in bytes, and their lengths.
#[derive(Clone, Debug)]
pub(super) struct Maps {
    /// Inodes in use.
    pub(super) inodes: usize,
    /// Free fragments.
    pub(super) frags: usize,
    /// Fragments of the group; the last group may have fewer than others.
    pub(super) ndblk: u32,
    pub(super) clusters: Option<Clusters>,
}

/// The map and the counts of free blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clusters {
    /// Free blocks.
    pub(super) map: usize,
    /// The number of clusters of each length; the first word is no count.
    pub(super) counts: usize,
    /// Blocks that are mapped.
    pub(super) blocks: u32,
    /// Longest cluster that is counted.
    pub(super) longest: u32,
}

/// The free fragments of a run that lies in a group, by the group's bytes.
///
/// # Errors
/// [`FsError::Corrupt`] when the map does not lie in the group.
pub(crate) fn free_fragments(
    sb: &Super,
    number: GroupNo,
    bytes: &[u8],
    run: Extent,
) -> Result<Vec<Extent>, FsError> {
    let map = sb.order.get_u32(bytes, at!(cg_freeoff)).unwrap_or(u32::MAX);
    let first = sb.group_blocks(number).start;
    let wrong = || range("cg_freeoff", u64::from(map), u64::from(sb.cgsize), place(number));
    let mut free = Vec::new();
    for block in (0..run.len).map(|within| run.start + within) {
        let at = index(u32::try_from(block - first).map_err(|_| wrong())?);
        let byte = bytes.get(index(map) + at / 8).ok_or_else(wrong)?;
        if byte >> (at % 8) & 1 == 1 {
            append(&mut free, block);
        }
    }
    Ok(free)
}

/// A cylinder group being changed in place.
pub(crate) struct GroupMut<'a> {
    pub(super) sb: &'a Super,
    pub(super) number: GroupNo,
    pub(super) bytes: &'a mut [u8],
    pub(super) maps: Maps,
}

impl<'a> GroupMut<'a> {
    /// Wraps the bytes of a group, at least `fs_cgsize`. The check hash was compared when they were
    /// read; they change from here on, and [`seal_group`] renews it.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the head is not this group's, or its maps overlap each other or
    /// the head.
    pub(crate) fn check(
        sb: &'a Super,
        number: GroupNo,
        bytes: &'a mut [u8],
    ) -> Result<Self, FsError> {
        let place = place(number);
        if number.get() >= sb.ncg {
            return Err(range("group", u64::from(number.get()), u64::from(sb.ncg), place));
        }
        let bytes = bytes.get_mut(..index(sb.cgsize)).ok_or_else(|| truncated(place))?;
        let word = |at: usize| sb.order.get_u32(bytes, at).ok_or_else(|| truncated(place));
        let magic = word(at!(cg_magic))?;
        if magic != MAGIC_GROUP {
            return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
        }
        if word(at!(cg_cgx))? != number.get() {
            return Err(invalid("cg_cgx", u64::from(word(at!(cg_cgx))?), place));
        }
        let maps = Maps::find(sb, number, &word)?;
        Ok(Self { sb, number, bytes, maps })
    }

    /// The word at byte `at`, which lies in the head or a map.
    pub(super) fn word(&self, at: usize) -> u32 {
        debug_assert!(at + 4 <= self.bytes.len(), "the word at {at} lies in the group");
        self.sb.order.get_u32(self.bytes, at).unwrap_or(0)
    }

    pub(super) fn set_word(&mut self, at: usize, value: u32) {
        debug_assert!(at + 4 <= self.bytes.len(), "the word at {at} lies in the group");
        self.sb.order.put_u32(self.bytes, at, value);
    }

    /// `cg_cs`: the group's counts.
    pub(crate) fn summary(&self) -> GroupSummary {
        summary::read(self.sb.order, self.bytes, at!(cg_cs)).unwrap_or_default()
    }

    /// `cg_cs` after a change.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when a count would leave its range, because it was wrong before.
    pub(crate) fn changed(&self, delta: Delta) -> Result<GroupSummary, FsError> {
        let wrong = || invalid("cg_cs", u64::from(self.summary().nbfree), place(self.number));
        delta.of_group(self.summary()).ok_or_else(wrong)
    }

    pub(crate) fn set_summary(&mut self, summary: GroupSummary) {
        summary::write(self.sb.order, self.bytes, at!(cg_cs), summary);
    }

    /// Notes when the group was changed, in seconds of the epoch.
    pub(crate) fn touch(&mut self, secs: i64) {
        let old = u32::try_from(secs.cast_unsigned() & 0xFFFF_FFFF).unwrap_or(0);
        self.set_word(at!(cg_old_time), old);
        self.sb.order.put_u64(self.bytes, at!(cg_time), secs.cast_unsigned());
    }

    /// A fragment of the group as one of the volume.
    pub(super) fn on_volume(&self, at: u32) -> BlockNo {
        debug_assert!(at < self.maps.ndblk, "fragment {at} of {}", self.maps.ndblk);
        self.sb.group_blocks(self.number).start + u64::from(at)
    }

    /// A fragment of the volume as one of the group, if it is.
    pub(super) fn within(&self, block: BlockNo) -> Option<u32> {
        let blocks = self.sb.group_blocks(self.number);
        let at = blocks.contains(block).then(|| block - blocks.start)?;
        u32::try_from(at).ok()
    }

    /// The fragments of a run within one block of the group.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a run that lies elsewhere, crosses a block's
    /// end, or is the group's own metadata or the summary area.
    pub(super) fn piece(&self, run: Extent) -> Result<Range<u32>, FsError> {
        let place = place(self.number).in_block(run.start);
        let outside = || range("block number", run.start.get(), self.sb.size, place);
        let start = self.within(run.start).ok_or_else(outside)?;
        let len = u32::try_from(run.len).map_err(|_| outside())?;
        let end = start.checked_add(len).filter(|&end| end <= self.maps.ndblk);
        let end = end.ok_or_else(outside)?;
        let within = start % self.sb.frag + len;
        if len == 0 || within > self.sb.frag {
            return Err(range("fragments", u64::from(len), u64::from(self.sb.frag), place));
        }
        let metadata = self.sb.group_metadata(self.number);
        if run.overlaps(metadata) || run.overlaps(self.sb.summaries) {
            return Err(invalid("block number", run.start.get(), place));
        }
        Ok(start..end)
    }

    pub(super) fn bit(&self, map: usize, at: u32) -> bool {
        debug_assert!(map + index(at >> 3) < self.bytes.len(), "bit {at} lies in its map");
        let byte = self.bytes.get(map + index(at >> 3)).copied().unwrap_or(0);
        byte >> (at & 7) & 1 == 1
    }

    pub(super) fn set_bit(&mut self, map: usize, at: u32, on: bool) {
        debug_assert!(map + index(at >> 3) < self.bytes.len(), "bit {at} lies in its map");
        if let Some(byte) = self.bytes.get_mut(map + index(at >> 3)) {
            let bit = 1u8 << (at & 7);
            *byte = if on { *byte | bit } else { *byte & !bit };
        }
    }

    /// A contradiction between the group's maps and counts.
    pub(super) fn contradiction(&self, field: &'static str, value: u32) -> FsError {
        invalid(field, u64::from(value), place(self.number))
    }
}

impl Maps {
    fn find(
        sb: &Super,
        number: GroupNo,
        word: &dyn Fn(usize) -> Result<u32, FsError>,
    ) -> Result<Self, FsError> {
        let place = place(number);
        let ndblk = u32::try_from(sb.group_blocks(number).len).unwrap_or(u32::MAX);
        if word(at!(cg_ndblk))? != ndblk {
            let found = u64::from(word(at!(cg_ndblk))?);
            return Err(range("cg_ndblk", found, u64::from(ndblk), place));
        }
        let head = 0..HEAD;
        let mut taken = SmallVec::<[Range<u64>; 5]>::from_elem(head, 1);
        let mut claim = |field, at: u64, bytes: u64| {
            let area = at..at + bytes;
            let apart = |other: &Range<u64>| area.end <= other.start || other.end <= area.start;
            if area.end > u64::from(sb.cgsize) || !taken.iter().all(apart) {
                return Err(range(field, area.end, u64::from(sb.cgsize), place));
            }
            taken.push(area);
            Ok(index(at))
        };
        let bytes_of = |bits: u32| u64::from(bits.div_ceil(8));
        let offset = |at: usize| word(at).map(u64::from);
        let inodes = claim("cg_iusedoff", offset(at!(cg_iusedoff))?, bytes_of(sb.ipg))?;
        let frags = claim("cg_freeoff", offset(at!(cg_freeoff))?, bytes_of(ndblk))?;
        let longest = sb.tuning.contigsumsize;
        if longest == 0 {
            return Ok(Self { inodes, frags, ndblk, clusters: None });
        }
        let blocks = word(at!(cg_nclusterblks))?;
        let expected = ndblk / sb.frag;
        if blocks != expected {
            return Err(range("cg_nclusterblks", u64::from(blocks), u64::from(expected), place));
        }
        let map = claim("cg_clusteroff", offset(at!(cg_clusteroff))?, bytes_of(blocks))?;
        // Counts are numbered from 1: the word in front of them is not one of them.
        let counts = offset(at!(cg_clustersumoff))?;
        claim("cg_clustersumoff", counts + 4, u64::from(longest) * 4)?;
        let clusters = Some(Clusters { map, counts: index(counts), blocks, longest });
        Ok(Self { inodes, frags, ndblk, clusters })
    }
}

/// Bytes of a group's head.
pub(super) const HEAD: u64 = {
    let size = size_of::<CylinderGroup<LE>>();
    assert!(size == 168);
    168
};

/// Renews the check hash of a group's bytes, if the volume has these. To be done before they are
/// written.
pub(crate) fn seal_group(sb: &Super, bytes: &mut [u8]) {
    let at = offset_of!(CylinderGroup<LE>, cg_ckhash);
    if !sb.has_check_hash(check_hash::GROUP) {
        return;
    }
    debug_assert!(bytes.len() >= index(sb.cgsize), "the hash covers a whole head");
    if let Some(covered) = bytes.get_mut(..index(sb.cgsize)) {
        sb.order.put_u32(covered, at, 0);
        let hash = crc32c(covered);
        sb.order.put_u32(covered, at, hash);
    }
}

pub(super) fn place(number: GroupNo) -> Location {
    Location::of("cylinder group").in_group(number)
}

/// Whether the volume initialises inodes when they are first needed.
pub(super) fn is_lazy(sb: &Super) -> bool {
    sb.format == Format::Ufs2
}
