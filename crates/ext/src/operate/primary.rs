//! The primary superblock of a volume in use: states, counts, features that are set as they are
//! needed, and errors.

use super::errors::ErrorRecord;
use super::layout::Layout;
use super::map::Core;
use crate::encode::sums::seal_superblock;
use crate::journal::note_abort;
use crate::ondisk::{
    STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, compat, incompat, ro_compat,
};
use crate::superblock::{read_primary, write_primary};
use seekless_cache::Role;
use seekless_fs::field::{index, low32, parse, truncated};
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_placement::Groups;
use seekless_units::BlockNo;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Bytes from which on a file needs the feature `large_file`.
pub(super) const LARGE: u64 = 1 << 31;

/// The primary superblock.
pub(super) struct PrimarySuperblock {
    layout: Arc<Layout>,
    /// The features of the volume, with those that were set since it was opened.
    compat: u32,
    ro_compat: u32,
}

impl PrimarySuperblock {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        let raw = &layout.sb().raw;
        let (compat, ro_compat) = (raw.s_feature_compat.get(), raw.s_feature_ro_compat.get());
        Self { layout, compat, ro_compat }
    }

    /// Changes the primary superblock: on the disk, or, where there is a journal, with
    /// the operation that is under way.
    pub(super) fn edit(
        &self,
        core: &mut Core,
        edit: impl FnOnce(&mut Superblock),
    ) -> Result<(), FsError> {
        let lost = || truncated(Location::of("superblock"));
        if core.cache.is_journalled() {
            let bsize = u64::from(self.layout.sb().block_size).max(1);
            let at = BlockNo::new(SUPERBLOCK_OFFSET / bsize);
            let skip = index(SUPERBLOCK_OFFSET % bsize);
            debug_assert!(
                skip + SUPERBLOCK_SIZE <= self.layout.block_len(),
                "the superblock lies in one block"
            );
            core.cache.changes().edit(at, skip, SUPERBLOCK_SIZE, Role::Summary, |bytes| {
                let mut raw: Superblock = parse(bytes, 0).ok_or_else(lost)?;
                edit(&mut raw);
                seal_superblock(&mut raw, 0);
                bytes.copy_from_slice(raw.as_bytes());
                Ok(())
            })?;
            return Ok(());
        }
        let mut disk = Patches::new(self.layout.volume().device().clone());
        let mut raw = read_primary(&disk)?;
        edit(&mut raw);
        write_primary(&mut disk, raw)
    }

    /// Writes the superblock: in use, or as clean as it was found. `features` are those that a
    /// mount notes, by the features there.
    pub(super) fn mark(
        &self,
        core: &mut Core,
        groups: &Groups,
        features: impl FnOnce(u32) -> u32,
        close: bool,
    ) -> Result<(), FsError> {
        let now = low32(core.now().secs.cast_unsigned());
        let found = self.layout.sb().raw.s_state.get();
        let (blocks, inodes) = (groups.free_frags(), groups.totals().nifree);
        // With a journal it is clean as soon as it has been recovered.
        let used = if core.cache.is_journalled() { found } else { found & !STATE_VALID };
        self.edit(core, |raw| {
            let state = if close { found } else { used };
            raw.s_state = state.into();
            raw.s_wtime = now.into();
            if !close {
                raw.s_mtime = now.into();
                raw.s_mnt_count = raw.s_mnt_count.get().saturating_add(1).into();
            }
            raw.s_free_blocks_count_lo = low32(blocks).into();
            if raw.s_feature_incompat.get() & incompat::BIT64 != 0 {
                raw.s_free_blocks_count_hi = low32(blocks >> 32).into();
            }
            raw.s_free_inodes_count = low32(inodes).into();
            raw.s_feature_ro_compat = features(raw.s_feature_ro_compat.get()).into();
        })
    }

    /// Sets the feature for large files before a file becomes so long (`large_file`).
    pub(super) fn allow_length(&mut self, core: &mut Core, len: u64) -> Result<(), FsError> {
        if len < LARGE || self.ro_compat & ro_compat::LARGE_FILE != 0 {
            return Ok(());
        }
        debug_assert_ne!(self.layout.sb().raw.s_rev_level.get(), 0, "no file gets so long there");
        self.edit(core, |raw| {
            // Other features change while it is in use.
            let features = raw.s_feature_ro_compat.get();
            raw.s_feature_ro_compat = (features | ro_compat::LARGE_FILE).into();
        })?;
        self.ro_compat |= ro_compat::LARGE_FILE;
        Ok(())
    }

    /// Sets the feature for attributes before the first one is there (`ext_attr`).
    pub(super) fn allow_attributes(&mut self, core: &mut Core) -> Result<(), FsError> {
        if self.compat & compat::EXT_ATTR != 0 {
            return Ok(());
        }
        let more = self.compat | compat::EXT_ATTR;
        self.edit(core, |raw| raw.s_feature_compat = more.into())?;
        self.compat = more;
        Ok(())
    }

    /// Records an error in the journal and in the primary superblock on the device, past the cache
    /// and the log: neither writes any more.
    pub(super) fn note_error(&self, core: &mut Core, error: &FsError) -> Result<(), FsError> {
        let secs = core.now().secs.max(1).cast_unsigned();
        let mut disk = Patches::new(self.layout.volume().device().clone());
        let mut raw = read_primary(&disk)?;
        // Without pending transactions, no older superblock is written home.
        if raw.s_feature_incompat.get() & incompat::RECOVER != 0 {
            note_abort(&mut disk)?;
        }
        ErrorRecord::of(error, secs).put(&mut raw);
        write_primary(&mut disk, raw)
    }
}
