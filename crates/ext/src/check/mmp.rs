//! Pass 0, the block of multiple mount protection (e2fsck, `ext2fs_mmp_start` and
//! `check_mmp`).

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use crate::mmp::Mmp;
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::BlockNo;

impl Checker {
    /// Looks at the block, which lies in the volume. A wrong magic number says that the block is
    /// another one, which is left alone.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn mmp_block(&mut self, at: BlockNo) -> Result<(), FsError> {
        let mmp = Mmp::in_block(self.sb(), at);
        let Some(block) = mmp.read(self.volume.device().as_ref())? else { return Ok(()) };
        match mmp.fault(&block) {
            None => {}
            Some(Corruption::Magic { found }) => {
                self.mmp_found(true, format!("its block has the magic number {found:#x}"), None);
            }
            Some(_) => {
                self.mmp_found(true, "the checksum of its block is wrong".into(), Some(at));
            }
        }
        Ok(())
    }

    /// Notes a fault, which a block repairs: one that is made there, or in free space.
    pub(super) fn mmp_found(&mut self, is_expected: bool, what: String, at: Option<BlockNo>) {
        let place = Location::of("multiple mount protection");
        self.graded(is_expected, problems::SUPERBLOCK_MMP, what, place);
        // Another block is taken once the owners of all are known.
        let stage = if at.is_some() { Stage::Superblock } else { Stage::Parts };
        self.fix(stage, Fix::Mmp(at));
    }
}
