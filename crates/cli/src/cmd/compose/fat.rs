//! `seekless build` for FAT images.

use super::{BuildArgs, Family, Room};
use crate::failure::Failure;
use crate::source::source_date_epoch;
use crate::uuid::{WantedUuid, random};
use seekless_compose::formats::FatBases;
use seekless_fat::{self as fat, FatWidth, MakeOptions};
use seekless_fs::Timestamp;

impl BuildArgs {
    /// The FAT width, `Some(None)` if mkfs.fat's rule chooses it; `None` for other formats.
    pub(super) fn fat_width(&self) -> Option<Option<FatWidth>> {
        match self.format {
            Family::Fat => Some(None),
            Family::Fat12 => Some(Some(FatWidth::Fat12)),
            Family::Fat16 => Some(Some(FatWidth::Fat16)),
            Family::Fat32 => Some(Some(FatWidth::Fat32)),
            _ => None,
        }
    }

    /// The options of a FAT image.
    pub(super) fn fat_options(
        &self,
        width: Option<FatWidth>,
        room: Room,
        bases: Option<&FatBases>,
    ) -> Result<fat::BuildOptions, Failure> {
        for (given, option) in [
            (self.block_size.is_some(), "--block-size (--sectors-per-cluster is that of FAT)"),
            (self.bytes_per_inode.is_some(), "--bytes-per-inode"),
            (self.reserved.is_some(), "--reserved"),
        ] {
            if given {
                return Err(Failure::usage(format!("{option} is not supported for FAT images")));
            }
        }
        let size = room.whole().unwrap_or_default();
        let plain = MakeOptions::new(None, size);
        let mut options = match bases {
            Some(bases) => bases.volume().options(),
            None => fat::BuildOptions::new(plain),
        };
        options.make.size = size;
        let label = self.label.as_deref().unwrap_or_default().as_bytes();
        self.fat.apply(&mut options.make, width, label, [&None, &None, &None])?;
        options.has_label = self.label.is_some();
        let id = match (self.uuid, self.fat.id(None)?) {
            (None, id) => id,
            (Some(WantedUuid::Random), None) => Some(u32::from_ne_bytes(random()?)),
            (Some(_), _) => {
                let why = "FAT images take --uuid random or --volume-id, one of them";
                return Err(Failure::usage(why));
            }
        };
        options.has_id = id.is_some();
        options.make.id = id.unwrap_or(0);
        options.is_fitted = room.whole().is_none();
        options.spare = room.spare();
        options.made = source_date_epoch()?.map(|secs| Timestamp { secs, nanos: 0 });
        options.losses = self.fat_tree.losses();
        Ok(options)
    }
}
