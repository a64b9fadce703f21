//! Directories that have their names in their inode, where a format has such: the
//! names are those of one unit, which the format takes from the inode and puts back.

use crate::Linked;
use crate::directories::Directories;
use crate::features::InlineData;
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_fs::field::wide;
use seekless_units::{BlockNo, Ino};
use smallvec::SmallVec;

/// Where the bytes of a directory are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryPlace {
    /// In a block, from a byte of it on.
    At(BlockNo, usize),
    /// In its inode, which is all there is: from a byte of its only unit on.
    Inside(usize),
}

/// The bytes of a unit.
pub(crate) type Unit = SmallVec<[u8; 512]>;

/// Puts bytes into a unit.
pub(crate) fn put(unit: &mut [u8], at: usize, bytes: &[u8]) {
    let to = unit.get_mut(at..at + bytes.len());
    debug_assert!(to.is_some(), "the entry lies in the unit");
    if let Some(to) = to {
        to.copy_from_slice(bytes);
    }
}

impl<F: Linked> Directories<'_, F> {
    /// Whether a directory has its names in its inode.
    pub(crate) fn has_names_inside(&mut self, dir: Ino) -> Result<bool, FsError> {
        match self.volume.format.inline_data() {
            Some(format) => format.has_names_inside(&mut self.volume.core, dir),
            None => Ok(false),
        }
    }

    /// Where a byte of a directory is.
    pub(crate) fn entry_place(&mut self, dir: Ino, at: u64) -> Result<EntryPlace, FsError> {
        if self.has_names_inside(dir)? {
            return Ok(EntryPlace::Inside(seekless_fs::field::index(at)));
        }
        let (block, skip) = self.dir_place(dir, at)?;
        Ok(EntryPlace::At(block, skip))
    }

    /// The bytes of a directory's unit, and where they are.
    pub(crate) fn unit_bytes(
        &mut self,
        dir: Ino,
        unit: u64,
    ) -> Result<(EntryPlace, Unit), FsError> {
        let len = self.volume.format.limits().dir_unit;
        let stored = self.entry_place(dir, unit * wide(len))?;
        let bytes = match stored {
            EntryPlace::At(block, skip) => {
                Unit::from_slice(self.volume.core.cache.blocks_mut().read(block, skip, len)?)
            }
            EntryPlace::Inside(_) => Unit::from_vec(self.names_inside(dir)?),
        };
        Ok((stored, bytes))
    }

    /// The names of a directory that has them in its inode.
    pub(crate) fn names_inside(&mut self, dir: Ino) -> Result<Vec<u8>, FsError> {
        let format = self.volume.format.inline_data().ok_or_else(|| crate::gone(dir))?;
        format.names_inside(&mut self.volume.core, dir)
    }

    /// Changes bytes of a directory's names in its inode.
    pub(crate) fn edit_inside(
        &mut self,
        dir: Ino,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<ChangeId, FsError> {
        let mut unit = self.names_inside(dir)?;
        edit(&mut unit);
        let format = self.volume.format.inline_data().ok_or_else(|| crate::gone(dir))?;
        format.put_names_inside(&mut self.volume.core, dir, &unit)?;
        // They are as durable as the inode.
        Ok(ChangeId::COMMITTED)
    }
}
