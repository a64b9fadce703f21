//! The order in which the kernel lists a directory (`is_dx_dir` and `ext4_dx_readdir`
//! of `fs/ext4/dir.c`): by the hashes of an index, whether the directory has one, is a
//! single block or has its names in its inode.

use super::Htree;
use super::order::ListingOrder;
use crate::htree;
use crate::ondisk::compat;
use seekless_fs::FsError;

impl Htree<'_> {
    /// The order in which the kernel lists a directory; `None` where it lists names as
    /// they lie.
    pub(crate) fn listing_order(&mut self) -> Result<Option<ListingOrder>, FsError> {
        let seed = self.blocks.layout().sb().hash_seed();
        if self.is_indexed()? {
            let at = self.blocks.at(0)?;
            let place = self.blocks.place().in_block(at);
            let (volume, bytes) = self.blocks.read(at)?;
            let root = htree::head(volume, bytes, place)?;
            return Ok(root.map(|(version, _)| ListingOrder { version, seed }));
        }
        let has_order = self.blocks.is_inline()? || self.blocks.count()? == 1;
        if !self.blocks.layout().sb().has_compat(compat::DIR_INDEX) || !has_order {
            return Ok(None);
        }
        let version = self.blocks.layout().sb().default_hash_version();
        Ok(version.map(|version| ListingOrder { version, seed }))
    }
}
