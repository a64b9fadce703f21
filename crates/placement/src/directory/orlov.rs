use super::contiguous::{ContigDirs, Limits, nearest};
use super::old_dirpref::fewest;
use super::{DirectoryPlacement, Parent};
use crate::View;
use crate::chance::Chance;
use seekless_units::GroupNo;

/// Orlov's (FreeBSD 4.4 to 13, NetBSD, OpenBSD): directories below the root are
/// spread over the volume, from a random group on; all others lie with their
/// parent, as long as the group has room for the files expected in them.
///
/// Source: G. Orlov, *dirpref* (2000), `ffs_dirpref`.
#[derive(Clone, Debug)]
pub struct Orlov {
    contigdirs: ContigDirs,
    chance: Chance,
}

impl Orlov {
    /// What it is called.
    pub const NAME: &'static str = "orlov";

    /// For a volume of so many groups, just mounted.
    #[must_use]
    pub fn new(ncg: u32, seed: u64) -> Self {
        Self { contigdirs: ContigDirs::new(ncg), chance: Chance::new(seed) }
    }

    /// A directory below the root: the fewest directories, from anywhere on.
    fn spread(&mut self, view: &View<'_>) -> GroupNo {
        let start = self.chance.below(u64::from(view.volume.ncg));
        let start = GroupNo::new(u32::try_from(start).unwrap_or(0));
        let inodes = view.average(view.totals.nifree);
        let blocks = view.average(view.totals.nbfree);
        fewest(view, start, |nifree, nbfree| nifree >= inodes && nbfree >= blocks)
    }
}

impl DirectoryPlacement for Orlov {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, view: &View<'_>, parent: &Parent) -> GroupNo {
        if parent.is_root {
            return self.spread(view);
        }
        let limits = Limits::new(view, u64::from(view.volume.ipg) / 16);
        nearest(view, &self.contigdirs, parent.group, &limits)
    }

    fn allocating(&mut self, preferred: GroupNo, is_directory: bool) {
        self.contigdirs.allocating(preferred, is_directory);
    }
}
