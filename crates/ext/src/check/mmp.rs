//! Pass 0, the block of multiple mount protection (e2fsck, `ext2fs_mmp_start` and
//! `check_mmp`).

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use crate::checksum::crc32c;
use crate::ondisk::{MMP_MAGIC, MMP_SEQ_CLEAN, MmpBlock, incompat};
use seekless_fs::field::parse;
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Location};
use seekless_units::BlockNo;
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

impl Checker {
    /// Looks at the block, which lies in the volume.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn mmp_block(&mut self) -> Result<(), FsError> {
        let mmp = self.read_mmp()?;
        let what = match mmp {
            Some(mmp) if mmp.mmp_magic.get() != MMP_MAGIC => {
                format!("its block has the magic number {:#x}", mmp.mmp_magic.get())
            }
            Some(mmp) if self.mmp_sum(&mmp).is_some_and(|sum| sum != mmp.mmp_checksum.get()) => {
                "the checksum of its block is wrong".to_string()
            }
            _ => return Ok(()),
        };
        self.expected(problems::SUPERBLOCK_MMP, what, Location::of("multiple mount protection"));
        self.fix(Stage::Superblock, Fix::Mmp);
        Ok(())
    }

    fn read_mmp(&self) -> Result<Option<MmpBlock>, FsError> {
        let at = BlockNo::new(self.sb().raw.s_mmp_block.get());
        let place = Location::of("multiple mount protection");
        match self.volume.block(at, place) {
            Err(FsError::Corrupt { .. }) => Ok(None),
            block => Ok(parse(&block?, 0)),
        }
    }

    /// The checksum that the block should have, if it has one.
    fn mmp_sum(&self, mmp: &MmpBlock) -> Option<u32> {
        let summed = mmp.as_bytes().get(..offset_of!(MmpBlock, mmp_checksum))?;
        self.sb().has_metadata_csum().then(|| crc32c(self.sb().checksum_seed, summed))
    }

    /// Whether the block says that something uses the volume, or cannot tell: then nothing may be
    /// written.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn is_used_elsewhere(&self) -> Result<bool, FsError> {
        if !self.sb().has_incompat(incompat::MMP) {
            return Ok(false);
        }
        let mmp = self.read_mmp()?;
        Ok(mmp.is_none_or(|mmp| {
            mmp.mmp_magic.get() == MMP_MAGIC && mmp.mmp_seq.get() != MMP_SEQ_CLEAN
        }))
    }

    /// Writes the block again, as that of a volume that is not in use.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn put_mmp(&self, disk: &mut Patches) -> Result<(), FsError> {
        let at = self.sb().raw.s_mmp_block.get() * u64::from(self.sb().block_size);
        let mut block = disk.read(at, self.volume.block_len())?;
        let Some((head, _)) = block.split_at_mut_checked(size_of::<MmpBlock>()) else {
            return Ok(());
        };
        let Ok(mmp) = MmpBlock::mut_from_bytes(head) else { return Ok(()) };
        if mmp.mmp_magic.get() != MMP_MAGIC {
            *mmp = MmpBlock::new_zeroed();
            mmp.mmp_magic = MMP_MAGIC.into();
            mmp.mmp_check_interval = self.sb().raw.s_mmp_update_interval;
        }
        mmp.mmp_seq = MMP_SEQ_CLEAN.into();
        mmp.mmp_checksum = self.mmp_sum(mmp).unwrap_or(0).into();
        disk.put(at, &block)
    }
}
