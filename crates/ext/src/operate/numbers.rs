//! Inodes taken and given back: the policy chooses the place, the bitmap whether it is free; where
//! the policy has windows, inodes are reserved for the children of directories.

use super::descriptor::Bitmap;
use super::groups::BlockGroups;
use super::layout::Layout;
use super::map::Core;
use super::orlov::{LastGroups, placement_hash};
use super::search::{first_free, full, has_bit};
use crate::ondisk::{INODE_CORE_SIZE, InodeCore, special};
use seekless_cache::ChangeId;
use seekless_fs::field::{index, parse};
use seekless_fs::{FileKind, FsError};
use seekless_placement::first_with;
use seekless_placement::inode::{InodePlace, NewInode, Parent, Slots};
use seekless_units::{GroupNo, Ino};
use std::ops::Range;
use std::sync::Arc;

/// `i_flags`: directories in this one are spread like those of the root.
const TOP_DIRECTORY: u32 = 0x2_0000;

/// A bitmap of inodes; none stands for one that was never written.
struct InodeBitmap<'a>(Option<&'a [u8]>);

impl Slots for InodeBitmap<'_> {
    fn next_free(&self, range: Range<u32>) -> Option<u32> {
        match self.0 {
            Some(bitmap) => first_free(bitmap, range.end, range.start),
            None => (!range.is_empty()).then_some(range.start),
        }
    }

    fn next_used(&self, mut range: Range<u32>) -> Option<u32> {
        self.0.and_then(|bitmap| range.find(|&slot| has_bit(bitmap, slot)))
    }
}

/// Allocates inodes.
pub(super) struct InodeAllocator {
    layout: Arc<Layout>,
    last_groups: LastGroups,
}

impl InodeAllocator {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self { layout, last_groups: LastGroups::default() }
    }

    /// Takes an inode for a file that gets its first name in a directory.
    pub(super) fn take(
        &mut self,
        groups: &mut BlockGroups,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(Ino, ChangeId), FsError> {
        let at = self.inode_at(dir)?;
        let node = core.node(dir)?;
        let parent = Parent {
            at,
            is_root: dir.get() == special::ROOT || node.flags & TOP_DIRECTORY != 0,
            depth: 0,
            subdirectories: u32::from(node.effective.saturating_sub(2)),
            last: self.last_groups.of(dir),
        };
        let hashed = groups.hashes(is_directory);
        let hash = if hashed { placement_hash(self.layout.sb(), name) } else { None };
        let new = NewInode { parent, name, hash, is_directory };
        let (goal, order) = groups.place_inode(&new);
        self.last_groups.note(dir, goal.group);
        let found = first_with(order, |number, preferred| {
            if groups.summaries().summary(number).is_none_or(|group| group.nifree == 0) {
                return Ok(None);
            }
            let goal = if preferred { goal.slot } else { 0 };
            match self.wanted_slot(groups, core, number, &new, preferred)? {
                Some(None) => Ok(None),
                Some(Some(slot)) => groups.take_inode(core, number, slot, is_directory),
                None => groups.take_inode(core, number, goal, is_directory),
            }
        });
        let at = match found {
            Ok(Some((ino, _))) => Some(self.inode_at(ino)?),
            _ => None,
        };
        groups.inode_placed(&new, goal, at);
        found?.ok_or_else(|| full("inodes"))
    }

    fn inode_at(&self, ino: Ino) -> Result<InodePlace, FsError> {
        let (group, slot) = self.layout.slot(ino)?;
        Ok(InodePlace { group, slot })
    }

    /// The slot that a policy with windows wants in a group that has a free inode: `None` without
    /// such a policy, and then any will do; `Some(None)` if it wants none in this group.
    fn wanted_slot(
        &self,
        groups: &mut BlockGroups,
        core: &mut Core,
        number: GroupNo,
        new: &NewInode<'_>,
        first: bool,
    ) -> Result<Option<Option<u32>>, FsError> {
        let Some(windows) = groups.windows() else { return Ok(None) };
        if let Some(distance) = windows.unknown(number) {
            let directories = self.directories_at(groups, core, number, distance)?;
            if let Some(windows) = groups.windows() {
                windows.learn(number, directories);
            }
        }
        let bitmap = InodeBitmap(groups.bitmap(core, number, Bitmap::Inodes)?);
        let windows = groups.windows();
        Ok(windows.map(|windows| windows.slot(new, number, first, &bitmap)))
    }

    /// The slots of a group, at the given distance, that contain directories. Parts of the table
    /// that were never used are not read.
    fn directories_at(
        &self,
        groups: &BlockGroups,
        core: &mut Core,
        number: GroupNo,
        distance: u32,
    ) -> Result<Vec<u32>, FsError> {
        let used = groups.used_part(number)?;
        let Some(bitmap) = groups.bitmap(core, number, Bitmap::Inodes)? else {
            return Ok(Vec::new());
        };
        let slots = (0..used).step_by(index(distance));
        let taken: Vec<u32> = slots.filter(|&slot| has_bit(bitmap, slot)).collect();
        let mut found = Vec::new();
        for slot in taken {
            if self.holds_directory(core, number, slot)? {
                found.push(slot);
            }
        }
        Ok(found)
    }

    /// Whether an inode that is in use is a directory. Nothing else is checked: a damaged one costs
    /// a window at most, and is reported to its users.
    fn holds_directory(
        &self,
        core: &mut Core,
        number: GroupNo,
        slot: u32,
    ) -> Result<bool, FsError> {
        let (at, skip) = self.layout.inode_place(self.layout.ino_at(number, slot))?;
        let raw = core.cache.blocks_mut().read(at, skip, INODE_CORE_SIZE)?;
        let inode: Option<InodeCore> = parse(raw, 0);
        debug_assert!(inode.is_some(), "as many bytes were read");
        Ok(inode.is_some_and(|inode| {
            let is_directory = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory);
            is_directory && inode.i_links_count.get() > 0
        }))
    }

    /// Gives an inode back.
    pub(super) fn give(
        &mut self,
        groups: &mut BlockGroups,
        core: &mut Core,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError> {
        groups.give_inode(core, self.inode_at(ino)?, ino, is_directory)?;
        self.last_groups.forget(ino);
        Ok(())
    }
}
