//! Errors of a format, and of a cache for it.

use super::{MOST_BYTES, MOST_COUNT, counted, power};
use crate::experiment::place::Fault;
use crate::experiment::{CacheSpec, Format};
use crate::machine;
use crate::quantity::{BlockPolicyName, Size};
use seekless_formats::PolicyVolume;

/// As `mkfs.fat`.
const MOST_FATS: u64 = 4;

impl Format {
    /// Why the format has no policy of that name.
    pub(super) fn fault_of_policy(&self, name: &str) -> Option<String> {
        (self.kind.known().experiment.check_policies)(name, &self.policy_volume()).err()
    }

    /// The volume for which names of policies are checked.
    fn policy_volume(&self) -> PolicyVolume {
        // The maker's own errors have been reported already.
        let made = machine::maker(self).ok().and_then(|maker| maker.inodes_per_group());
        let block = self.block.and_then(|block| u32::try_from(block.0.get()).ok());
        PolicyVolume {
            inodes_per_group: made.unwrap_or(u32::MAX),
            block_size: block.unwrap_or(u32::MAX),
        }
    }

    /// Why it has no policy for blocks of the name given.
    fn fault_of_blocks(&self) -> Option<Fault> {
        let known = self.kind.known();
        let names = self.blocks.as_ref();
        let Some(check) = known.experiment.check_blocks else {
            let (family, unit) = (known.family, known.experiment.contents_unit);
            let message =
                format!("is not an option of {family}, of which policies are for {unit}s");
            return names.map(|_| Fault::of("blocks", message));
        };
        let Some(BlockPolicyName(name)) = names else {
            return Some(Fault::of("blocks", format!("{} needs it", self.kind.name())));
        };
        Some(Fault::of("blocks", check(name, &self.policy_volume()).err()?))
    }

    fn fault_of_fats(&self) -> Option<Fault> {
        let fats = self.fats?;
        if !self.kind.known().make_parameters.iter().any(|parameter| parameter.name == "fats") {
            return Some(Fault::of("fats", format!("is not an option of {}", self.kind.name())));
        }
        counted("fats", fats.into(), MOST_FATS)
    }

    /// Errors of blocks or clusters, of which one is given.
    fn fault_of_unit(&self) -> Option<Fault> {
        let (kind, unit) = (self.kind.name(), self.kind.known().experiment.contents_unit);
        let units = [("block", self.block), ("cluster", self.cluster)];
        units.into_iter().find_map(|(key, size)| match (size, key == unit) {
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
        let traits = format.kind.known().experiment;
        let name = traits.contents_unit;
        let unit = format.block.or(format.cluster)?.0;
        let small = |key, size: Size| {
            (size.0 < unit).then(|| Fault::of(key, format!("less than the {name} size of {unit}")))
        };
        let stray = format!("is not an option of {}: its cache holds sectors", format.kind.name());
        let page = self.page.filter(|_| !traits.caches_units);
        small("size", self.size)
            .or_else(|| small("cluster", self.cluster))
            .or_else(|| counted("dirty", self.dirty?.into(), MOST_COUNT))
            .or_else(|| power("page", self.page?))
            .or_else(|| page.map(|_| Fault::of("page", stray)))
    }
}
