//! Inodes that are reserved for the children of directories: which slot is taken where a policy has
//! windows, and the policy's input on a group before its first slot is.

use super::descriptor::Bitmap;
use super::search::first_free;
use super::search::has_bit;
use super::{Core, Ext};
use crate::ondisk::{INODE_CORE_SIZE, InodeCore};
use seekless_fs::field::index;
use seekless_fs::field::parse;
use seekless_fs::{FileKind, FsError};
use seekless_live::Table;
use seekless_placement::inode::{NewInode, Slots};
use seekless_units::GroupNo;
use std::ops::Range;

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

impl Ext {
    /// The slot that a policy with windows wants in a group that has a free inode: `None` without
    /// such a policy, and then any will do; `Some(None)` if it wants none in this group.
    pub(super) fn wanted_slot(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        new: &NewInode<'_>,
        first: bool,
    ) -> Result<Option<Option<u32>>, FsError> {
        let Some(windows) = self.inodes.windows() else { return Ok(None) };
        if let Some(distance) = windows.unknown(number) {
            let directories = self.directories_at(core, number, distance)?;
            if let Some(windows) = self.inodes.windows() {
                windows.learn(number, directories);
            }
        }
        let bitmap = InodeBitmap(self.bitmap(core, number, Bitmap::Inodes)?);
        let windows = self.inodes.windows();
        Ok(windows.map(|windows| windows.slot(new, number, first, &bitmap)))
    }

    /// The slots of a group, at the given distance, that contain directories. Parts of the table
    /// that were never used are not read.
    fn directories_at(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        distance: u32,
    ) -> Result<Vec<u32>, FsError> {
        let used = self.used_part(number)?;
        let Some(bitmap) = self.bitmap(core, number, Bitmap::Inodes)? else {
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
        let (at, skip) = self.inode_place(self.ino_at(number, slot))?;
        let raw = core.cache.blocks_mut().read(at, skip, INODE_CORE_SIZE)?;
        let inode: Option<InodeCore> = parse(raw, 0);
        debug_assert!(inode.is_some(), "as many bytes were read");
        Ok(inode.is_some_and(|inode| {
            let is_directory = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory);
            is_directory && inode.i_links_count.get() > 0
        }))
    }
}
