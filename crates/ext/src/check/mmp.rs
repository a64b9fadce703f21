//! Pass 0, the block of multiple mount protection (e2fsck, `ext2fs_mmp_start` and
//! `check_mmp`).

use super::checker::Checker;
use super::problems;
use crate::checksum::crc32c;
use crate::ondisk::{MMP_MAGIC, MmpBlock};
use seekless_fs::field::parse;
use seekless_fs::{FsError, Location};
use seekless_units::BlockNo;
use std::mem::offset_of;
use zerocopy::IntoBytes;

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
        self.found(problems::SUPERBLOCK_MMP, what, Location::of("multiple mount protection"));
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
}
