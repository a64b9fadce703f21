//! The primary superblock of a volume in use: states, counts, features that are set as they are
//! needed, and errors.

use super::errors::ErrorRecord;
use super::layout::Layout;
use super::map::Core;
use crate::encode::sums::seal_superblock;
use crate::journal::note_abort;
use crate::ondisk::{
    OrderedMark, STATE_ERRORS, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, compat,
    incompat, ro_compat,
};
use crate::superblock::{read_primary, write_primary};
use seekless_cache::{Discipline, Role};
use seekless_fs::field::{index, low32, parse, truncated};
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_live::Progress;
use seekless_placement::Groups;
use seekless_units::BlockNo;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Bytes from which on a file needs the feature `large_file`.
pub(super) const LARGE: u64 = 1 << 31;

impl OrderedMark {
    /// The mark of a volume that is in use under soft updates, by its superblock.
    pub(crate) fn of(raw: &Superblock) -> Self {
        Self {
            magic: Self::MAGIC,
            mtime: raw.s_mtime,
            wtime: raw.s_wtime,
            mounts: u32::from(raw.s_mnt_count.get()).into(),
        }
    }

    /// Whether a volume was last in use under soft updates. Another system that changes it counts a
    /// mount, or sets one of the times.
    pub(crate) fn is_valid(raw: &Superblock) -> bool {
        raw.s_ordered == Self::of(raw)
    }
}

/// The primary superblock.
pub(super) struct PrimarySuperblock {
    layout: Arc<Layout>,
    /// The features of the volume, with those that were set since it was opened.
    compat: u32,
    ro_compat: u32,
    /// Only what soft updates allow for is lost in a crash.
    is_ordered: bool,
}

impl PrimarySuperblock {
    pub(super) fn new(layout: Arc<Layout>, discipline: Discipline) -> Self {
        let raw = &layout.sb().raw;
        let (compat, ro_compat) = (raw.s_feature_compat.get(), raw.s_feature_ro_compat.get());
        Self { layout, compat, ro_compat, is_ordered: discipline == Discipline::SoftUpdates }
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

    /// Writes the superblock: in use, or closed, as clean as it was found or as its recovery has
    /// left it. `features` are those that a mount notes, by the features there.
    pub(super) fn mark(
        &self,
        core: &mut Core,
        groups: &Groups,
        features: impl FnOnce(u32) -> u32,
        (progress, close): (Progress, bool),
    ) -> Result<(), FsError> {
        let now = low32(core.now().secs.cast_unsigned());
        let found = self.layout.sb().raw.s_state.get();
        let (blocks, inodes) = (groups.free_frags(), groups.totals().nifree);
        // With a journal it is clean as soon as it has been recovered.
        let used = if core.cache.is_journalled() { found } else { found & !STATE_VALID };
        let closed = match progress {
            Progress::None | Progress::UnderWay => found,
            Progress::Sound => found | STATE_VALID,
            Progress::NeedsCheck => found | STATE_ERRORS,
        };
        // An earlier crash may have left any damage in a volume that was opened by force.
        let in_order = match (progress, close) {
            (Progress::None, false) => self.layout.sb().is_clean(),
            (Progress::UnderWay, _) | (Progress::Sound, false) => true,
            (Progress::None | Progress::Sound, true) | (Progress::NeedsCheck, _) => false,
        };
        let is_ordered = self.is_ordered && in_order;
        self.edit(core, |raw| {
            let state = match (close, progress) {
                (true, _) => closed,
                (false, Progress::NeedsCheck) => used | STATE_ERRORS,
                (false, _) => used,
            };
            raw.s_state = state.into();
            raw.s_wtime = now.into();
            if !close && progress != Progress::NeedsCheck {
                raw.s_mtime = now.into();
                raw.s_mnt_count = raw.s_mnt_count.get().saturating_add(1).into();
            }
            raw.s_free_blocks_count_lo = low32(blocks).into();
            if raw.s_feature_incompat.get() & incompat::BIT64 != 0 {
                raw.s_free_blocks_count_hi = low32(blocks >> 32).into();
            }
            raw.s_free_inodes_count = low32(inodes).into();
            raw.s_feature_ro_compat = features(raw.s_feature_ro_compat.get()).into();
            if is_ordered {
                raw.s_ordered = OrderedMark::of(raw);
            } else {
                OrderedMark::clear(raw);
            }
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
