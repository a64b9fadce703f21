//! Inodes reserved for the children of directories.

use super::{InodePlace, NewInode};
use seekless_units::GroupNo;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slots of a group, for queries of a policy.
pub trait Slots {
    /// The first free slot of a range.
    fn next_free(&self, range: Range<u32>) -> Option<u32>;

    /// The first slot of a range that is in use.
    fn next_used(&self, range: Range<u32>) -> Option<u32>;
}

/// First slot and number of slots of the second area of each directory.
type Areas = BTreeMap<InodePlace, (u32, u32)>;

/// The second areas of directories, in memory. Clones share them: a mount that gets those of an
/// earlier mount of the same volume continues to use its areas, as if the format had a link to the
/// second area of each directory. Nothing is written to the disk.
#[derive(Clone, Debug, Default)]
pub struct LinkedAreas(Arc<Mutex<Areas>>);

impl LinkedAreas {
    fn all(&self) -> MutexGuard<'_, Areas> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of directories with a second area.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all().len()
    }
}

/// Inodes reserved for the children of directories (C. Li, *ext4 directory inode reservation*,
/// 2007).
///
/// The slots of a group are divided into windows of one size, and a window belongs to the directory
/// in its first slot. A new directory takes the first slot of a window that is wholly free; its
/// children follow it. Files whose parent has no window, or a full one, take the other slots of the
/// group, and slots in windows only if there is no other. A directory that gets the first slot of a
/// window in this way owns that window, as far as it is free.
///
/// The windows follow from the directories on the disk, so nothing is stored: [`Windows::unknown`]
/// asks for the directories of a group that has not been seen yet.
///
/// With hashes, the hash of a child's name determines the start of the search in its window; and a
/// directory whose window is full gets an area of two windows in its group, if two consecutive ones
/// are wholly free. These second areas are forgotten at the next mount, unless it gets them
/// ([`Windows::link`]).
#[derive(Clone, Debug)]
pub struct Windows {
    /// Slots in a window.
    size: u32,
    /// Slots in a group.
    per_group: u32,
    by_hash: bool,
    /// The reserved areas of groups that have been seen: first slot and number of slots.
    held: BTreeMap<GroupNo, BTreeSet<(u32, u32)>>,
    /// The second areas of directories.
    seconds: LinkedAreas,
}

impl Windows {
    /// The policy with children in order.
    pub const NAME: &'static str = "dir-reserve";
    /// The policy with children by the hashes of their names.
    pub const HASHED_NAME: &'static str = "dir-reserve-hashed";
    /// Default number of slots in a window: Li's choice, and the number of inodes of 256 bytes in a
    /// block of 4 KiB.
    pub const DEFAULT: u32 = 16;

    /// Creates windows of `size` slots, from 2 to the slots of a group.
    pub(super) fn new(size: u32, per_group: u32, by_hash: bool) -> Option<Self> {
        let (held, seconds) = (BTreeMap::new(), LinkedAreas::default());
        let windows = Self { size, per_group, by_hash, held, seconds };
        (2..=per_group).contains(&size).then_some(windows)
    }

    /// Uses and updates the second areas of earlier mounts of the same volume. Areas of windows of
    /// another size, or of an inode that is no directory any more, are dropped when their group is
    /// first used. No inode may have been placed yet.
    pub fn link(&mut self, areas: LinkedAreas) {
        debug_assert!(self.held.is_empty(), "no group has been seen");
        self.seconds = areas;
    }

    pub(super) fn is_hashed(&self) -> bool {
        self.by_hash
    }

    /// The spacing of the slots of which the policy must learn, before it takes one in the group,
    /// whether they contain directories; `None` once it knows.
    #[must_use]
    pub fn unknown(&self, group: GroupNo) -> Option<u32> {
        (!self.held.contains_key(&group)).then_some(self.size)
    }

    /// Records which of those slots contain directories.
    pub fn learn(&mut self, group: GroupNo, directories: impl IntoIterator<Item = u32>) {
        let windows = directories.into_iter().filter(|&slot| self.begins(slot));
        let mut windows: BTreeSet<_> = windows.map(|slot| (slot, self.size)).collect();
        if self.by_hash {
            let len = self.size * 2;
            let mut seconds = Vec::new();
            self.seconds.all().retain(|at, second| {
                let is_here = at.group == group;
                let is_valid = second.1 == len && windows.contains(&(at.slot, self.size));
                seconds.extend((is_here && is_valid).then_some(*second));
                !is_here || is_valid
            });
            windows.extend(seconds);
        }
        let known = self.held.insert(group, windows);
        debug_assert!(known.is_none(), "group {group} was known");
    }

    /// The slot to take in a group that has been seen, if there is one. On the `first` try, only
    /// the window of the parent is searched if it has one.
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

    /// Records a new directory.
    pub(super) fn made(&mut self, at: InodePlace) {
        if self.begins(at.slot)
            && let Some(held) = self.held.get_mut(&at.group)
        {
            held.insert((at.slot, self.size));
        }
    }

    /// Removes a directory and its reservations.
    pub(super) fn gone(&mut self, at: InodePlace) {
        let second = self.seconds.all().remove(&at);
        if let Some(held) = self.held.get_mut(&at.group) {
            held.remove(&(at.slot, self.size));
            if let Some(second) = second {
                held.remove(&second);
            }
        }
    }

    /// Whether a whole window begins at a slot.
    fn begins(&self, slot: u32) -> bool {
        let is_first = slot.checked_rem(self.size) == Some(0);
        is_first && slot + self.size <= self.per_group
    }

    /// The first `len` slots that are wholly free and not reserved, starting at the start of a
    /// window.
    fn fresh(&self, group: GroupNo, len: u32, slots: &dyn Slots) -> Option<u32> {
        let held = self.held.get(&group);
        let mut start = 0u32;
        loop {
            let end = start.checked_add(len).filter(|&end| end <= self.per_group)?;
            // Nothing reserved is longer than two windows.
            let near = start.saturating_sub(self.size * 2);
            let reserved = held.into_iter().flat_map(|held| held.range((near, 0)..(end, 0)));
            let reserved = reserved.map(|&(from, len)| from + len).max();
            let behind = reserved.filter(|&behind| behind > start);
            let Some(behind) = slots.next_used(start..end).map(|used| used + 1).max(behind) else {
                return Some(start);
            };
            debug_assert!(behind > start, "each round goes on");
            start = behind.checked_next_multiple_of(self.size)?;
        }
    }

    /// A free slot in the areas reserved for a directory.
    fn inside(&mut self, new: &NewInode<'_>, slots: &dyn Slots) -> Option<u32> {
        let at = new.parent.at;
        let window = at.slot..at.slot + self.size;
        if !self.by_hash {
            return slots.next_free(window);
        }
        if let Some(slot) = by_hash(new.hash, &window, slots) {
            return Some(slot);
        }
        let len = self.size * 2;
        let known = self.seconds.all().get(&at).copied();
        let (start, len) = match known {
            Some(second) => second,
            None => {
                let second = (self.fresh(at.group, len, slots)?, len);
                self.seconds.all().insert(at, second);
                self.held.entry(at.group).or_default().insert(second);
                second
            }
        };
        by_hash(new.hash, &(start..start + len), slots)
    }

    /// The first free slot that is not reserved.
    fn outside(&self, group: GroupNo, slots: &dyn Slots) -> Option<u32> {
        let mut from = 0;
        for &(start, len) in self.held.get(&group).into_iter().flatten() {
            if let Some(slot) = slots.next_free(from..start.max(from)) {
                return Some(slot);
            }
            from = from.max(start + len);
        }
        slots.next_free(from..self.per_group.max(from))
    }
}

/// A free slot of an area for a name: the hash as a fraction of 2^32 selects the position in the
/// area, from which the next free one is taken, wrapping around at the end of the area.
fn by_hash(hash: Option<u32>, area: &Range<u32>, slots: &dyn Slots) -> Option<u32> {
    let len = u64::from(area.end - area.start);
    // On volumes without hashes it is 0.
    let within = (u64::from(hash.unwrap_or(0)) * len) >> 32;
    let from = area.start + u32::try_from(within).unwrap_or(0);
    slots.next_free(from..area.end).or_else(|| slots.next_free(area.start..from))
}
