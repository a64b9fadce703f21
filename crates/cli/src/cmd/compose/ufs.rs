//! `seekless build` for UFS images.

use super::{BuildArgs, Family, Room, small};
use crate::failure::Failure;
use crate::source::source_date_epoch;
use seekless_compose::formats::UfsBases;
use seekless_ffs::{self as ufs, Version};
use seekless_fs::Timestamp;

impl BuildArgs {
    /// The options of a UFS image.
    pub(super) fn ufs_options(
        &self,
        version: Version,
        room: Room,
        bases: Option<&UfsBases>,
    ) -> Result<ufs::BuildOptions, Failure> {
        if self.uuid.is_some() {
            return Err(Failure::usage("--uuid is not supported for UFS images"));
        }
        let mut options = match bases {
            Some(bases) => bases.volume().options(),
            None => ufs::BuildOptions::new(version),
        };
        options.make.version = version;
        let own_block = options.make.block_size;
        self.ufs.apply(&mut options)?;
        options.make.bytes_per_inode = self.bytes_per_inode.map(small).transpose()?;
        let make = &mut options.make;
        if let Some(size) = self.block_size {
            make.block_size = small(size)?;
            // As newfs does: an eighth of a block, unless `--fragment-size` is given.
            let is_own = bases.is_some() && make.block_size == own_block;
            if self.ufs.fragment_size.is_none() && !is_own {
                make.fragment_size = (make.block_size / 8).max(512);
            }
        }
        if let Some(reserved) = self.reserved {
            if !reserved.is_multiple_of(100) {
                return Err(Failure::usage("UFS images take whole percentages only"));
            }
            make.minfree = reserved / 100;
        }
        if let Some(label) = &self.label {
            make.label = label.clone().into_bytes();
        }
        make.size = room.whole().unwrap_or_default();
        options.is_fitted = room.whole().is_none();
        options.spare = room.spare();
        options.made = source_date_epoch()?.map(|secs| Timestamp { secs, nanos: 0 });
        Ok(options)
    }

    pub(super) fn ufs_version(&self) -> Option<Version> {
        match self.format {
            Family::Ufs1 => Some(Version::Ufs1),
            Family::Ufs2 => Some(Version::Ufs2),
            _ => None,
        }
    }
}
