//! The order in which the kernel lists a directory (`is_dx_dir` and `ext4_dx_readdir`
//! of `fs/ext4/dir.c`): by the hashes of an index, whether the directory has one, is a
//! single block or has its names in its inode.

use super::super::inline::is_inline;
use super::super::{Core, Ext};
use super::order::ListingOrder;
use crate::htree;
use crate::ondisk::compat;
use seekless_fs::FsError;
use seekless_units::Ino;

impl Ext {
    /// The order in which the kernel lists a directory; `None` where it lists names as
    /// they lie.
    ///
    /// # Errors
    /// [`FsError::Corrupt`]; [`FsError::Device`].
    pub fn listing_order(
        &mut self,
        core: &mut Core,
        dir: Ino,
    ) -> Result<Option<ListingOrder>, FsError> {
        let seed = self.volume.sb.hash_seed();
        if self.is_indexed(core, dir)? {
            let at = self.dir_block(core, dir, 0)?;
            let bytes = core.cache.blocks_mut().read(at, 0, self.volume.block_len())?;
            let place = Self::dir_place(dir).in_block(at);
            let root = htree::head(&self.volume, bytes, place)?;
            return Ok(root.map(|(version, _)| ListingOrder { version, seed }));
        }
        let has_order = is_inline(core, dir)? || self.dir_blocks(core, dir)? == 1;
        if !self.volume.sb.has_compat(compat::DIR_INDEX) || !has_order {
            return Ok(None);
        }
        let version = self.volume.sb.default_hash_version();
        Ok(version.map(|version| ListingOrder { version, seed }))
    }
}
