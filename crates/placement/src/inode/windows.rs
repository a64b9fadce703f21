//! Inodes reserved for the children of directories.

use super::{InodePlace, NewInode};
use seekless_units::GroupNo;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The slots of a group as a policy may look at them.
pub trait Slots {
    /// The first free slot of a range.
    fn next_free(&self, range: Range<u32>) -> Option<u32>;

    /// The first slot of a range that is in use.
    fn next_used(&self, range: Range<u32>) -> Option<u32>;
}

/// Inodes reserved for the children of directories (C. Li, *ext4 directory inode
/// reservation*, 2007).
///
/// The slots of a group are divided into windows of one size, and a window is that of the
/// directory in its first slot. A new directory takes the first slot of a window that is
/// wholly free; its children follow it. All that have no window, or a full one, take the
/// other slots of the group, and those in windows only when there is no other. A
/// directory that ends up in the first slot of a window in this way has that window, as
/// far as it is free.
///
/// What is a window follows from what the disk holds, so nothing is stored: of a
/// group that has not been seen yet, [`Windows::unknown`] asks for its directories.
///
/// By hashes, the hash of a child's name decides where in its window the search for a free
/// slot begins; and a directory whose window is full gets an area of two windows in its
/// group, if there are two in a row that are wholly free. Which those are is not known
/// any more after the next mount.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Slots in a window.
    size: u32,
    /// Slots in a group.
    per_group: u32,
    by_hash: bool,
    /// Of groups that have been seen, what is reserved: where it begins, and its slots.
    held: BTreeMap<GroupNo, BTreeSet<(u32, u32)>>,
    /// Where the second areas of directories begin.
    seconds: BTreeMap<InodePlace, u32>,
}

impl Windows {
    /// The policy with children in order.
    pub const NAME: &'static str = "dir-reserve";
    /// The policy with children by the hashes of their names.
    pub const HASHED_NAME: &'static str = "dir-reserve-hashed";
    /// Slots in a window by default: what Li measured, and as many as a block of 4 KiB
    /// has inodes of 256 bytes.
    pub const DEFAULT: u32 = 16;

    /// Windows of so many slots, from 2 to those of a group.
    pub(super) fn new(size: u32, per_group: u32, by_hash: bool) -> Option<Self> {
        let (held, seconds) = (BTreeMap::new(), BTreeMap::new());
        let windows = Self { size, per_group, by_hash, held, seconds };
        (2..=per_group).contains(&size).then_some(windows)
    }

    pub(super) fn is_hashed(&self) -> bool {
        self.by_hash
    }

    /// The distance of the slots of a group of which must be known, before one is taken
    /// there, whether they hold directories; none once that is known.
    #[must_use]
    pub fn unknown(&self, group: GroupNo) -> Option<u32> {
        (!self.held.contains_key(&group)).then_some(self.size)
    }

    /// Notes which of the slots that were asked for hold directories.
    pub fn learn(&mut self, group: GroupNo, directories: impl IntoIterator<Item = u32>) {
        let windows = directories.into_iter().filter(|&slot| self.begins(slot));
        let windows = windows.map(|slot| (slot, self.size)).collect();
        let known = self.held.insert(group, windows);
        debug_assert!(known.is_none(), "group {group} was known");
    }

    /// The slot to take in a group that has been seen, if it has one. On the `first` try,
    /// a child of a directory with a window is looked for in that alone.
    pub fn slot(
        &mut self,
        new: &NewInode<'_>,
        group: GroupNo,
        first: bool,
        slots: &dyn Slots,
    ) -> Option<u32> {
        debug_assert!(self.held.contains_key(&group), "group {group} has not been seen");
        if new.is_directory {
            if let Some(slot) = self.fresh(group, self.size, slots) {
                return Some(slot);
            }
        } else if first && self.has(new.parent.at) {
            debug_assert_eq!(new.parent.at.group, group, "windows lie with their directories");
            return self.inside(new, slots);
        }
        self.outside(group, slots).or_else(|| slots.next_free(0..self.per_group))
    }

    /// Whether a directory has a window.
    pub(super) fn has(&self, at: InodePlace) -> bool {
        self.begins(at.slot)
    }

    /// Notes a new directory.
    pub(super) fn made(&mut self, at: InodePlace) {
        if self.begins(at.slot)
            && let Some(held) = self.held.get_mut(&at.group)
        {
            held.insert((at.slot, self.size));
        }
    }

    /// Notes a directory that is gone, with what was reserved for it.
    pub(super) fn gone(&mut self, at: InodePlace) {
        let second = self.seconds.remove(&at);
        if let Some(held) = self.held.get_mut(&at.group) {
            held.remove(&(at.slot, self.size));
            if let Some(start) = second {
                held.remove(&(start, self.size.saturating_mul(2)));
            }
        }
    }

    /// Whether a whole window begins at a slot.
    fn begins(&self, slot: u32) -> bool {
        let is_first = slot.checked_rem(self.size) == Some(0);
        is_first && slot.saturating_add(self.size) <= self.per_group
    }

    /// The first slots of so many that are wholly free and not reserved, beginning where
    /// a window does.
    fn fresh(&self, group: GroupNo, len: u32, slots: &dyn Slots) -> Option<u32> {
        let held = self.held.get(&group);
        let mut start = 0u32;
        loop {
            let end = start.checked_add(len).filter(|&end| end <= self.per_group)?;
            // Nothing reserved is longer than two windows.
            let near = start.saturating_sub(self.size.saturating_mul(2));
            let reserved = held.into_iter().flat_map(|held| held.range((near, 0)..(end, 0)));
            let reserved = reserved.map(|&(from, len)| from.saturating_add(len)).max();
            let behind = reserved.filter(|&behind| behind > start);
            let Some(behind) =
                slots.next_used(start..end).map(|used| used.saturating_add(1)).max(behind)
            else {
                return Some(start);
            };
            debug_assert!(behind > start, "each round goes on");
            start = behind.checked_next_multiple_of(self.size)?;
        }
    }

    /// A free slot of what is reserved for a directory.
    fn inside(&mut self, new: &NewInode<'_>, slots: &dyn Slots) -> Option<u32> {
        let at = new.parent.at;
        let window = at.slot..at.slot.saturating_add(self.size);
        if !self.by_hash {
            return slots.next_free(window);
        }
        if let Some(slot) = by_hash(new.hash, &window, slots) {
            return Some(slot);
        }
        let len = self.size.saturating_mul(2);
        let start = match self.seconds.get(&at) {
            Some(&start) => start,
            None => {
                let start = self.fresh(at.group, len, slots)?;
                self.seconds.insert(at, start);
                self.held.entry(at.group).or_default().insert((start, len));
                start
            }
        };
        by_hash(new.hash, &(start..start.saturating_add(len)), slots)
    }

    /// The first free slot that is not reserved.
    fn outside(&self, group: GroupNo, slots: &dyn Slots) -> Option<u32> {
        let mut from = 0;
        for &(start, len) in self.held.get(&group).into_iter().flatten() {
            if let Some(slot) = slots.next_free(from..start.max(from)) {
                return Some(slot);
            }
            from = from.max(start.saturating_add(len));
        }
        slots.next_free(from..self.per_group.max(from))
    }
}

/// The free slot of an area for a name: that share of the area which the hash is of 2^32,
/// or the next free one behind it, which goes on at the beginning of the area.
fn by_hash(hash: Option<u32>, area: &Range<u32>, slots: &dyn Slots) -> Option<u32> {
    let len = u64::from(area.end.saturating_sub(area.start));
    // Volumes without hashes have none of this.
    let within = u64::from(hash.unwrap_or(0)).saturating_mul(len) >> 32;
    let from = area.start.saturating_add(u32::try_from(within).unwrap_or(0));
    slots.next_free(from..area.end).or_else(|| slots.next_free(area.start..from))
}
