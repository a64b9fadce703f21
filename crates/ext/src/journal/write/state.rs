//! The two superblocks with the state of a journal: its own, and the volume's.

use super::super::form::{CHECKSUM_CRC32C, Form, WITH_SUM, place};
use crate::checksum::crc32c;
use crate::encode::sums::seal_superblock;
use crate::ondisk::{
    JournalSuperblock, SUPERBLOCK_OFFSET, incompat, journal_block, journal_feature,
};
use crate::superblock::Super;
use seekless_cache::{Stable, Stage, StageWrite};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::field::truncated;
use seekless_units::{ByteLen, Lba};
use zerocopy::IntoBytes;

/// The journal features that a volume requires.
#[derive(Clone, Copy)]
pub(super) struct JournalFeatures {
    /// Its blocks are counted in 64 bits.
    wide: bool,
    /// Its metadata have checksums.
    sums: bool,
}

impl JournalFeatures {
    pub(super) fn of(sb: &Super) -> Self {
        Self { wide: sb.has_incompat(incompat::BIT64), sums: sb.has_metadata_csum() }
    }
}

/// Refuses a journal that cannot be written to.
pub(super) fn check(sb: &JournalSuperblock) -> Result<(), FsError> {
    if sb.s_header.h_blocktype.get() != journal_block::SUPERBLOCK_V2 {
        let what = "writing to a journal of the first version, which has no revoke records";
        return Err(FsError::Unsupported(what.into()));
    }
    let errno = sb.s_errno.get();
    if errno != 0 {
        let what = format!("writing to a journal that was left after error {errno}: check it");
        return Err(FsError::Unsupported(what));
    }
    Ok(())
}

/// Gives an empty journal the features for its transactions: those that it has, and, as a mount by
/// the kernel does, revoke records, numbers as wide as the volume's, and checksums of each block if
/// the volume has these (`ext4_load_and_init_journal`).
pub(super) fn want(sb: &mut JournalSuperblock, form: &mut Form, wanted: JournalFeatures) {
    debug_assert_eq!(sb.s_start.get(), 0, "features change while the journal is empty");
    form.incompat |= journal_feature::INCOMPAT_REVOKE;
    if wanted.wide {
        form.incompat |= journal_feature::INCOMPAT_64BIT;
    }
    if wanted.sums && !form.has_block_checksums() {
        form.incompat |= journal_feature::INCOMPAT_CSUM_V3;
        form.compat &= !journal_feature::COMPAT_CHECKSUM;
    }
    sb.s_feature_incompat = form.incompat.into();
    sb.s_feature_compat = form.compat.into();
}

/// Sets the checksum of a journal's superblock, if it has one.
pub(super) fn seal(sb: &mut JournalSuperblock, form: &Form) {
    if form.incompat & WITH_SUM == 0 {
        return;
    }
    sb.s_checksum_type = CHECKSUM_CRC32C;
    sb.s_checksum = 0.into();
    sb.s_checksum = crc32c(!0, sb.as_bytes()).into();
}

/// The write of the volume's superblock on the device with its flag for recovery set or cleared.
pub(super) fn mark(device: &dyn BlockDevice, recovers: bool) -> Result<Stage, FsError> {
    let mut sb = Super::read(device, false)?.raw;
    let features = sb.s_feature_incompat.get() & !incompat::RECOVER;
    sb.s_feature_incompat = (features | if recovers { incompat::RECOVER } else { 0 }).into();
    seal_superblock(&mut sb, 0);
    let at = Lba::containing(ByteLen::new(SUPERBLOCK_OFFSET));
    let write = StageWrite { at, bytes: sb.as_bytes().to_vec() };
    Ok(Stage { writes: vec![write], stable: Stable::All })
}

/// The first block of a journal.
pub(super) fn parse(block: &[u8]) -> Result<JournalSuperblock, FsError> {
    seekless_fs::field::parse(block, 0).ok_or_else(|| truncated(place()))
}
