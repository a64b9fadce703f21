//! Errors of a format, and of a cache for it.

use super::{MOST_BYTES, MOST_COUNT, counted, power};
use crate::experiment::place::Fault;
use crate::experiment::{CacheSpec, Format};
use crate::machine;
use crate::quantity::{BlockPolicyName, Size, both_policies};
use seekless_placement::block::{self, ExtBlocks, Zones};
use seekless_placement::cluster::ClusterPlacement;
use seekless_placement::directory::{self, Expected};
use seekless_placement::inode::{self, ExtVolume};

/// As `mkfs.fat`.
const MOST_FATS: u64 = 4;

impl Format {
    /// Why the format has no policy of that name.
    pub(super) fn fault_of_policy(&self, name: &str) -> Option<String> {
        if self.kind.is_fat() {
            let found = ClusterPlacement::by_name(name, u32::MAX, None, 0);
            return found.err().map(|error| error.to_string());
        }
        let (directories, others) = both_policies(name);
        let found = if self.kind.is_ext() {
            // The maker's own errors have been reported already.
            let made = machine::maker(self).ok().and_then(|maker| maker.inodes_per_group());
            let inodes_per_group = made.unwrap_or(u32::MAX);
            let volume = ExtVolume { groups: 1, groups_per_flex: 1, inodes_per_group };
            inode::ext_by_name(directories, others, &volume, 0)
        } else {
            let directories = directory::by_name(directories, 1, Expected::default(), 0);
            directories.and_then(|directories| inode::by_name(directories, others))
        };
        found.err().map(|error| error.to_string())
    }

    /// Why it has no policy for blocks of the name given.
    fn fault_of_blocks(&self) -> Option<Fault> {
        if self.kind.is_fat() {
            let blocks = self.blocks.as_ref();
            let message = "is not an option of FAT, of which policies are for clusters";
            return blocks.map(|_| Fault::of("blocks", message));
        }
        let Some(BlockPolicyName(name)) = &self.blocks else {
            return Some(Fault::of("blocks", format!("{} needs it", self.kind.name())));
        };
        let error = if self.kind.is_ext() {
            let volume = ExtBlocks {
                groups: 1,
                groups_per_flex: 1,
                block_size: self
                    .block
                    .map_or(u32::MAX, |block| u32::try_from(block.0.get()).unwrap_or(u32::MAX)),
                blocks_per_group: u32::MAX,
            };
            block::ext_by_name(name, &volume, 0).err()
        } else {
            block::by_name(name, Zones::default(), 0).err()
        };
        Some(Fault::of("blocks", error?.to_string()))
    }

    fn fault_of_fats(&self) -> Option<Fault> {
        let fats = self.fats?;
        if !self.kind.is_fat() {
            return Some(Fault::of("fats", format!("is not an option of {}", self.kind.name())));
        }
        counted("fats", fats.into(), MOST_FATS)
    }

    /// Errors of blocks or clusters, of which one is given.
    fn fault_of_unit(&self) -> Option<Fault> {
        let (kind, fat) = (self.kind.name(), self.kind.is_fat());
        let units = [("block", self.block, !fat), ("cluster", self.cluster, fat)];
        units.into_iter().find_map(|(key, size, has)| match (size, has) {
            (Some(size), true) => power(key, size),
            (Some(_), false) => Some(Fault::of(key, format!("is not an option of {kind}"))),
            (None, true) => Some(Fault::of(key, format!("{kind} needs it"))),
            (None, false) => None,
        })
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        let size = |key, size: Option<Size>| counted(key, size?.0.get(), MOST_COUNT);
        let count = |key, count: Option<u32>| counted(key, count?.into(), MOST_COUNT);
        counted("size", self.size.0.get(), MOST_BYTES)
            .or_else(|| self.fault_of_unit())
            .or_else(|| power("fragment", self.fragment?))
            .or_else(|| power("inode_size", self.inode_size?))
            .or_else(|| power("sector", self.sector?))
            .or_else(|| count("blocks_per_group", self.blocks_per_group))
            .or_else(|| size("bytes_per_inode", self.bytes_per_inode))
            .or_else(|| size("avgfilesize", self.avgfilesize))
            .or_else(|| count("avgfpdir", self.avgfpdir))
            .or_else(|| self.fault_of_fats())
            .or_else(|| self.fault_of_blocks())
    }
}

impl CacheSpec {
    /// Blocks are the unit of cache and writes.
    pub(super) fn fault(&self, format: &Format) -> Option<Fault> {
        let (name, unit) = match format.kind.is_fat() {
            true => ("cluster", format.cluster?.0),
            false => ("block", format.block?.0),
        };
        let small = |key, size: Size| {
            (size.0 < unit).then(|| Fault::of(key, format!("less than the {name} size of {unit}")))
        };
        let stray = format!("is not an option of {}: its cache holds sectors", format.kind.name());
        let page = self.page.filter(|_| format.kind.is_fat());
        small("size", self.size)
            .or_else(|| small("cluster", self.cluster))
            .or_else(|| counted("dirty", self.dirty?.into(), MOST_COUNT))
            .or_else(|| power("page", self.page?))
            .or_else(|| page.map(|_| Fault::of("page", stray)))
    }
}
