//! Features that are missing in the superblock or set wrongly, by the evidence of the rest.
//!
//! A feature is one bit, and many bytes contradict a wrong one: descriptors that lead
//! nowhere, a copy of the superblock, inodes with a map or contents of that kind (e2fsck,
//! `PR_1_EXTENT_FEATURE` and `PR_1_INLINE_DATA_FEATURE`). Then the bit is wrong, not the
//! files.

use super::fix::{Fix, Stage};
use super::inodes::InodePass;
use super::problems;
use crate::backup;
use crate::extent;
use crate::features::Features;
use crate::inode::Inode;
use crate::ondisk::{
    ENCODING_UTF8_12_1, Superblock, XATTR_MAGIC, compat, flags, incompat, ro_compat,
};
use crate::part::Part;
use crate::superblock::Super;
use crate::volume::Volume;
use crate::xattr::inline_value;
use seekless_fs::field::le32;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, GroupNo};
use std::collections::BTreeMap;

/// Features that determine where metadata lie and how descriptors are encoded.
const LAYOUT: Features = Features {
    compat: compat::SPARSE_SUPER2 | compat::RESIZE_INODE,
    incompat: incompat::META_BG | incompat::BIT64 | incompat::FLEX_BG,
    ro_compat: ro_compat::SPARSE_SUPER
        | ro_compat::GDT_CSUM
        | ro_compat::METADATA_CSUM
        | ro_compat::BIGALLOC,
};

/// Features with which e2fsck checks a volume. A volume with other `incompat` ones is not opened.
const SUPPORTED: Features = Features {
    compat: compat::DIR_PREALLOC
        | compat::IMAGIC_INODES
        | compat::HAS_JOURNAL
        | compat::EXT_ATTR
        | compat::RESIZE_INODE
        | compat::DIR_INDEX
        | compat::SPARSE_SUPER2
        | compat::FAST_COMMIT
        | compat::STABLE_INODES
        | compat::ORPHAN_FILE,
    incompat: u32::MAX,
    ro_compat: ro_compat::SPARSE_SUPER
        | ro_compat::LARGE_FILE
        | ro_compat::HUGE_FILE
        | ro_compat::GDT_CSUM
        | ro_compat::DIR_NLINK
        | ro_compat::EXTRA_ISIZE
        | ro_compat::QUOTA
        | ro_compat::BIGALLOC
        | ro_compat::METADATA_CSUM
        | ro_compat::READONLY
        | ro_compat::PROJECT
        | ro_compat::SHARED_BLOCKS
        | ro_compat::VERITY
        | ro_compat::ORPHAN_PRESENT,
};

/// Features for which e2fsck refuses a volume.
pub(super) fn unsupported(raw: &Superblock) -> Features {
    let has = Features::of(raw);
    // That of casefold, without an encoding that is known.
    let is_bare = raw.s_encoding.get() != ENCODING_UTF8_12_1;
    let casefold = if is_bare { has.incompat & incompat::CASEFOLD } else { 0 };
    has.without(SUPPORTED).with(Features { incompat: casefold, ..Features::NONE })
}

/// The features for which e2fsck refuses a volume and that its first copy of the superblock lacks,
/// with the block of the copy. The checksum of a superblock vouches for its features. Those without
/// a name may be of a newer kernel, which does not set them in the copies.
pub(super) fn contradicted(volume: &Volume) -> Option<(Features, BlockNo)> {
    let unsupported = unsupported(&volume.sb.raw).named();
    if unsupported == Features::NONE || volume.sb.has_metadata_csum() {
        return None;
    }
    let (copy, block) = backup::superblock(volume.device().as_ref())?;
    let lacking = unsupported.without(Features::of(&copy.raw));
    (lacking != Features::NONE).then_some((lacking, block))
}

/// A feature that may not be set beside others.
pub(super) struct Contradiction {
    pub(super) what: &'static str,
    /// The features that the repair clears.
    pub(super) cleared: Features,
}

/// Features that e2fsck does not leave set beside the others, or without them
/// (`check_super_block`, `check_resize_inode`, `release_orphan_inodes`).
pub(super) fn contradictions(raw: &Superblock) -> impl Iterator<Item = Contradiction> + use<> {
    let has = Features::of(raw);
    let compat = |bit| has.compat & bit != 0;
    let incompat = |bit| has.incompat & bit != 0;
    let ro_compat = |bit| has.ro_compat & bit != 0;
    let rules = [
        (
            "metadata_csum_seed without metadata_csum",
            incompat(incompat::CSUM_SEED) && !ro_compat(ro_compat::METADATA_CSUM),
            Features { incompat: incompat::CSUM_SEED, ..Features::NONE },
        ),
        (
            "orphan_present without orphan_file",
            ro_compat(ro_compat::ORPHAN_PRESENT) && !compat(compat::ORPHAN_FILE),
            Features { ro_compat: ro_compat::ORPHAN_PRESENT, ..Features::NONE },
        ),
        (
            "orphan_file without has_journal",
            compat(compat::ORPHAN_FILE) && !compat(compat::HAS_JOURNAL),
            Features {
                compat: compat::ORPHAN_FILE,
                ro_compat: ro_compat::ORPHAN_PRESENT,
                ..Features::NONE
            },
        ),
        (
            "bigalloc without extent",
            ro_compat(ro_compat::BIGALLOC) && !incompat(incompat::EXTENTS),
            Features { ro_compat: ro_compat::BIGALLOC, ..Features::NONE },
        ),
        (
            "both resize_inode and meta_bg",
            compat(compat::RESIZE_INODE) && incompat(incompat::META_BG),
            Features { compat: compat::RESIZE_INODE, ..Features::NONE },
        ),
        (
            "both uninit_bg and metadata_csum",
            ro_compat(ro_compat::GDT_CSUM) && ro_compat(ro_compat::METADATA_CSUM),
            Features { ro_compat: ro_compat::GDT_CSUM, ..Features::NONE },
        ),
    ];
    rules
        .into_iter()
        .filter(|(_, is_wrong, _)| *is_wrong)
        .map(|(what, _, cleared)| Contradiction { what, cleared })
}

/// Clears the features that contradict others.
pub(super) fn clear_contradictions(raw: &mut Superblock) {
    for Contradiction { cleared, .. } in contradictions(raw) {
        clear(raw, cleared);
    }
}

/// Clears features.
pub(super) fn clear(raw: &mut Superblock, cleared: Features) {
    raw.s_feature_compat = (raw.s_feature_compat.get() & !cleared.compat).into();
    raw.s_feature_incompat = (raw.s_feature_incompat.get() & !cleared.incompat).into();
    raw.s_feature_ro_compat = (raw.s_feature_ro_compat.get() & !cleared.ro_compat).into();
}

/// A superblock with the features of a copy, under which its descriptors make sense.
pub(super) struct Corrected {
    pub(super) sb: Super,
    /// The block of the copy.
    pub(super) copy: BlockNo,
    /// Names of the features that only one of the primary superblock and the copy has.
    pub(super) names: Vec<String>,
}

/// Compares the layout of a volume with that of the first copy of its superblock, where the primary
/// one's features make no sense of the group descriptors.
///
/// # Errors
/// Errors of the device.
pub(super) fn correct(volume: &Volume) -> Result<Option<Corrected>, FsError> {
    if contradictions(&volume.sb.raw).next().is_none() && descriptors_fit(volume)? {
        return Ok(None);
    }
    let Some((copy, block)) = backup::superblock(volume.device().as_ref()) else {
        return Ok(None);
    };
    let (ours, theirs) = (Features::of(&volume.sb.raw), Features::of(&copy.raw));
    let differing = Features {
        compat: (ours.compat ^ theirs.compat) & LAYOUT.compat,
        incompat: (ours.incompat ^ theirs.incompat) & LAYOUT.incompat,
        ro_compat: (ours.ro_compat ^ theirs.ro_compat) & LAYOUT.ro_compat,
    };
    let names = differing.names();
    if names.is_empty() {
        return Ok(None);
    }
    let mut raw = volume.sb.raw.clone();
    raw.s_feature_compat = (ours.compat ^ differing.compat).into();
    raw.s_feature_incompat = (ours.incompat ^ differing.incompat).into();
    raw.s_feature_ro_compat = (ours.ro_compat ^ differing.ro_compat).into();
    let device = volume.device();
    let Ok(sb) = Super::check(raw, device.len()) else { return Ok(None) };
    let other = match Volume::with_superblock(device.clone(), sb, true) {
        Ok(other) => other,
        Err(FsError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let fits = descriptors_fit(&other)?;
    Ok(fits.then_some(Corrected { sb: other.sb, copy: block, names }))
}

/// Whether all group descriptors point to places in the volume that nothing else uses, in their own
/// group where that is required, and have the checksums of the features (`ext2fs_check_desc`).
fn descriptors_fit(volume: &Volume) -> Result<bool, FsError> {
    let sb = &volume.sb;
    let mut taken: BTreeMap<BlockNo, BlockNo> = BTreeMap::new();
    let mut take = |run: seekless_units::Extent| {
        let before = taken.range(..run.end()).next_back();
        let is_free = before.is_none_or(|(_, &end)| end <= run.start);
        taken.insert(run.start, run.end());
        is_free
    };
    for number in (0..sb.groups).map(GroupNo::new) {
        for run in volume.descriptors().copies(number) {
            if !take(run) {
                return Ok(false);
            }
        }
    }
    let place = Location::of("group descriptor");
    for number in (0..sb.groups).map(GroupNo::new) {
        let bytes = volume.descriptors().bytes(number)?;
        let stored = bytes.get(crate::group::CHECKSUM_AT..crate::group::OLD_SIZE);
        let stored = stored.and_then(<[u8]>::first_chunk).map_or(0, |it| u16::from_le_bytes(*it));
        let sum = volume.descriptors().sum(number, bytes);
        if sum.is_some_and(|sum| u32::from(stored) != sum) {
            return Ok(false);
        }
        let group = volume.descriptors().parse(number, bytes)?;
        if volume.descriptors().has_needless_marks(&group) {
            return Ok(false);
        }
        let own = sb.group_blocks(number);
        for part in Part::ALL {
            let run = part.of(&group, sb.itable_blocks());
            let is_near = sb.has_incompat(incompat::FLEX_BG)
                || (run.start >= own.start && run.end() <= own.end());
            if volume.check_extent(run, place).is_err() || !is_near || !take(run) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl InodePass<'_> {
    /// Adds a feature that an inode in use needs, for the rest of the check and in the
    /// superblock.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn needed_features(&mut self, inode: &Inode, kind: FileKind) -> Result<(), FsError> {
        let has_map = matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        let lacks = |bit| !self.checker.sb().has_incompat(bit);
        let mut missing = 0;
        if lacks(incompat::EXTENTS)
            && has_map
            && inode.has_flag(flags::EXTENTS)
            && extent::is_root(&inode.core.i_block.0)
        {
            missing |= incompat::EXTENTS;
        }
        if lacks(incompat::INLINE_DATA)
            && has_map
            && inode.has_flag(flags::INLINE_DATA)
            && matches!(inline_value(inode), Ok(Some(_)))
        {
            missing |= incompat::INLINE_DATA;
        }
        let mut needed = Features { incompat: missing, ..Features::NONE };
        if !self.checker.sb().has_compat(compat::EXT_ATTR) && self.has_attribute_block(inode)? {
            needed.compat = compat::EXT_ATTR;
        }
        if needed == Features::NONE {
            return Ok(());
        }
        let names = needed.names().join(", ");
        let what = format!("lacks the feature {names}, which inode {} uses", inode.ino);
        self.checker.found(problems::SUPERBLOCK_FEATURES, what, Location::of("superblock"));
        self.checker.fix(Stage::Superblock, Fix::Superblock);
        for volume in [&mut self.checker.volume, &mut self.checker.strict] {
            let raw = &mut volume.sb.raw;
            raw.s_feature_incompat = (raw.s_feature_incompat.get() | needed.incompat).into();
            raw.s_feature_compat = (raw.s_feature_compat.get() | needed.compat).into();
        }
        Ok(())
    }

    /// Whether an inode points to a block with the magic number of attributes.
    fn has_attribute_block(&self, inode: &Inode) -> Result<bool, FsError> {
        let Some(block) = self.checker.volume.inodes().xattr_block_of(inode) else {
            return Ok(false);
        };
        match self.checker.volume.block(block, Location::of("attribute block").in_inode(inode.ino))
        {
            Ok(bytes) => Ok(le32(&bytes, 0) == Some(XATTR_MAGIC)),
            Err(FsError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
