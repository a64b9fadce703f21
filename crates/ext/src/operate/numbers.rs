//! Inodes taken and given back: the policy chooses the place, the bitmap whether it is free.

use super::descriptor::Bitmap;
use super::orlov::placement_hash;
use super::search::first_free;
use super::search::{flip, full, has_bit};
use super::space::Delta;
use super::{Core, Ext};
use crate::ondisk::special;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::invalid;
use seekless_fs::{FsError, Location};
use seekless_placement::first_with;
use seekless_placement::inode::{InodePlace, NewInode, Parent};
use seekless_units::{GroupNo, Ino};

/// `i_flags`: directories in this one are spread like those of the root.
const TOP_DIRECTORY: u32 = 0x2_0000;

impl Ext {
    /// Takes an inode for a file that gets its first name in a directory.
    pub(super) fn take_number(
        &mut self,
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
        let hashed = self.inodes.hashes(is_directory);
        let hash = if hashed { placement_hash(&self.volume.sb, name) } else { None };
        let new = NewInode { parent, name, hash, is_directory };
        let goal = self.inodes.goal(&self.groups, &new);
        self.last_groups.note(dir, goal.group);
        let order = self.inodes.order(&self.groups, goal);
        let found = first_with(order, |number, preferred| {
            if self.groups.summary(number).is_none_or(|group| group.nifree == 0) {
                return Ok(None);
            }
            let goal = if preferred { goal.slot } else { 0 };
            match self.wanted_slot(core, number, &new, preferred)? {
                Some(None) => Ok(None),
                Some(Some(slot)) => self.take_number_in(core, number, slot, is_directory),
                None => self.take_number_in(core, number, goal, is_directory),
            }
        });
        let at = match found {
            Ok(Some((ino, _))) => Some(self.inode_at(ino)?),
            _ => None,
        };
        self.inodes.taken(&new, goal, at);
        found?.ok_or_else(|| full("inodes"))
    }

    fn inode_at(&self, ino: Ino) -> Result<InodePlace, FsError> {
        let (group, slot) = self.volume.inode_slot(ino)?;
        Ok(InodePlace { group, slot })
    }

    /// The number of an inode of a group.
    pub(super) fn ino_at(&self, number: GroupNo, slot: u32) -> Ino {
        debug_assert!(slot < self.volume.sb.inodes_per_group, "slot {slot} of a group");
        debug_assert!(number.get() < self.volume.sb.groups, "group {number}");
        let per_group = u64::from(self.volume.sb.inodes_per_group);
        let before = u64::from(number.get()) * per_group;
        let ino = before + u64::from(slot) + 1;
        Ino::new(u32::try_from(ino).unwrap_or(u32::MAX))
    }

    fn take_number_in(
        &mut self,
        core: &mut Core,
        number: GroupNo,
        from: u32,
        is_directory: bool,
    ) -> Result<Option<(Ino, ChangeId)>, FsError> {
        let per_group = self.volume.sb.inodes_per_group;
        let which = (number, Bitmap::Inodes);
        let taken = self.change_bitmap(core, which, Role::InodeBitmapSet, |bitmap| {
            let found =
                first_free(bitmap, per_group, from).or_else(|| first_free(bitmap, per_group, 0));
            debug_assert!(
                found.is_none_or(|slot| slot < per_group && !has_bit(bitmap, slot)),
                "an inode is free before it is taken"
            );
            Ok(found.inspect(|&slot| flip(bitmap, slot)))
        })?;
        let Some((slot, id)) = taken else { return Ok(None) };
        let ino = self.ino_at(number, slot);
        if self.volume.is_own(ino) {
            let place = Location::of("inode bitmap").in_group(number);
            return Err(invalid("free inode", u64::from(ino.get()), place));
        }
        self.note_used(core, number, slot)?;
        let directories = i32::from(is_directory);
        self.account(number, Delta { inodes: -1, directories, ..Delta::default() })?;
        Ok(Some((ino, id)))
    }

    /// Gives an inode back.
    pub(super) fn give_number(
        &mut self,
        core: &mut Core,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), FsError> {
        let at = self.inode_at(ino)?;
        let place = Location::of("inode bitmap").in_group(at.group);
        let which = (at.group, Bitmap::Inodes);
        let given = self.change_bitmap(core, which, Role::InodeBitmapClear, |bitmap| {
            if !has_bit(bitmap, at.slot) {
                return Err(invalid("free inode", u64::from(ino.get()), place));
            }
            flip(bitmap, at.slot);
            Ok(Some(()))
        })?;
        debug_assert!(given.is_some(), "there is nothing to be found");
        let directories = if is_directory { -1 } else { 0 };
        self.account(at.group, Delta { inodes: 1, directories, ..Delta::default() })?;
        self.inodes.given_back(at, is_directory);
        self.last_groups.forget(ino);
        self.forget_kept(ino);
        Ok(())
    }
}
