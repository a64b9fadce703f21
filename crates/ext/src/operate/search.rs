//! Bits of bitmaps, and which of them is taken: the rules of ext2 before it had reservation
//! windows (`ext2_new_block` of Linux 1.x and of FreeBSD's ext2fs of 2005).

use super::map::Core;
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_units::{BlockNo, Extent};
use std::ops::Range;

/// Whether a bit of a bitmap is set; those past its end count as set.
pub(super) fn has_bit(bitmap: &[u8], bit: u32) -> bool {
    bitmap.get(index(bit / 8)).is_none_or(|byte| byte & (1 << (bit % 8)) != 0)
}

pub(super) fn flip(bitmap: &mut [u8], bit: u32) {
    let byte = bitmap.get_mut(index(bit / 8));
    debug_assert!(byte.is_some(), "the bit was looked at");
    if let Some(byte) = byte {
        *byte ^= 1 << (bit % 8);
    }
}

/// The bits of a group's blocks that are free, but not to be used again yet.
pub(super) fn barred(core: &Core, group: Extent) -> Vec<Range<u32>> {
    if core.cache.may_reuse(group) {
        return Vec::new();
    }
    let bit = |at: BlockNo| {
        let within = at.clamp(group.start, group.end()) - group.start;
        u32::try_from(within).unwrap_or(u32::MAX)
    };
    let runs = core.cache.quarantined().into_iter();
    runs.filter(|run| run.overlaps(group)).map(|run| bit(run.start)..bit(run.end())).collect()
}

/// The error of a full volume.
pub(super) fn full(what: &str) -> FsError {
    FsError::NoSpace(format!("no free {what} left"))
}

/// The free bit to be taken of the first `bits`, looked for from `goal` on: the goal itself; a free
/// one up to the next multiple of 64; the start of a wholly free byte in the rest, or of the free
/// bits in front of it; any in the rest. Bits before the goal are not looked at: groups are tried
/// all around, this one last once more from its start.
pub(super) fn free_bit(bitmap: &[u8], bits: u32, goal: u32) -> Option<u32> {
    let is_free = |bit: &u32| !has_bit(bitmap, *bit);
    let near = (goal + 1).next_multiple_of(64).min(bits);
    if let Some(found) = (goal..near).find(is_free) {
        return Some(found);
    }
    free_byte(bitmap, bits, goal).or_else(|| first_free(bitmap, bits, near))
}

/// The first free bit of a wholly free byte behind `from`, or of up to seven free
/// ones in front of that.
fn free_byte(bitmap: &[u8], bits: u32, from: u32) -> Option<u32> {
    let first = from.div_ceil(8);
    let bytes = bitmap.get(index(first)..index(bits / 8))?;
    let at = bytes.iter().position(|&byte| byte == 0)?;
    let start = (first + u32::try_from(at).ok()?) * 8;
    let back = (1..8).take_while(|&back| {
        start.checked_sub(back).is_some_and(|bit| bit >= from && !has_bit(bitmap, bit))
    });
    Some(start - back.last().unwrap_or(0))
}

/// The first free bit from `from` on.
pub(super) fn first_free(bitmap: &[u8], bits: u32, from: u32) -> Option<u32> {
    let skip = from / 8;
    let bytes = bitmap.get(index(skip)..index(bits.div_ceil(8)))?;
    let full = bytes.iter().skip(1).take_while(|&&byte| byte == 0xFF).count();
    // The first byte may have its free bits in front of `from`.
    let start = |byte: u32| (byte + skip) * 8;
    let next = start(u32::try_from(full).ok()? + 1);
    let mut candidates = (from..start(1)).chain(next..next + 8);
    candidates.find(|&bit| bit < bits && !has_bit(bitmap, bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitmap(free: &[u32], bits: u32) -> Vec<u8> {
        let mut map = vec![0xFF; bits as usize / 8];
        for &bit in free {
            map[bit as usize / 8] &= !(1 << (bit % 8));
        }
        map
    }

    #[test]
    fn near_the_goal_then_a_free_byte_then_any() {
        let byte: Vec<u32> = (197..208).collect();
        let mut free = vec![3, 40, 130, 140];
        free.extend(&byte);
        let map = bitmap(&free, 256);
        assert_eq!(free_bit(&map, 256, 40), Some(40));
        assert_eq!(free_bit(&map, 256, 41), Some(197), "the byte at 200, and back");
        assert_eq!(free_bit(&map, 256, 129), Some(130), "before 192");
        assert_eq!(free_bit(&map, 256, 204), Some(204));
        assert_eq!(free_bit(&map, 256, 208), None);
        let map = bitmap(&[3, 40, 130, 140], 256);
        assert_eq!(free_bit(&map, 256, 41), Some(130));
        assert_eq!(free_bit(&map, 140, 131), None, "behind the end");
        assert_eq!(free_bit(&bitmap(&[], 64), 64, 0), None);
    }

    #[test]
    fn the_first_free_one_is_that_of_a_search_bit_by_bit() {
        let mut state = 7u64;
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let free: Vec<u32> = (0..4).map(|n| (state >> (n * 8)) as u32 % 96).collect();
            let map = bitmap(&free, 96);
            let (from, bits) = ((state >> 40) as u32 % 97, 96 - (state >> 50) as u32 % 9);
            let slow = (from..bits).find(|&bit| !has_bit(&map, bit));
            assert_eq!(first_free(&map, bits, from), slow, "{free:?} from {from} of {bits}");
        }
    }
}
