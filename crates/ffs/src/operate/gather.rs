//! Clusters for blocks that a file was just given (`ffs_reallocblks`).

use super::{Core, Ffs};
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_placement::block::Wanted;
use seekless_placement::reallocblks::{Cluster, groups, permit};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

impl Ffs {
    /// The longest cluster, in blocks, if a new block does not lie behind the preceding one.
    pub(super) fn longest_cluster(&self, wanted: Wanted, at: BlockNo) -> u32 {
        let Wanted::Data { previous: Some(previous), .. } = wanted else { return 0 };
        let follows = previous + u64::from(self.sb.frag) == at;
        if !self.reallocblks || follows {
            return 0;
        }
        self.sb.tuning.maxcontig.min(self.sb.tuning.contigsumsize)
    }

    /// Takes a cluster as long as `blocks`, at the policy's preferred place for the first.
    pub(super) fn cluster(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        blocks: &[BlockNo],
    ) -> Result<Option<(Extent, ChangeId)>, FsError> {
        let (&[first, .., last], Ok(len)) = (blocks, u32::try_from(blocks.len())) else {
            return Ok(None);
        };
        let start = lbn + 1 - u64::from(len);
        let cluster = Cluster { start: Lbn::new(start), len, first, last };
        let tuning = &self.sb.tuning;
        if permit(&self.groups, tuning.contigsumsize, tuning.dsize, &cluster).is_err() {
            return Ok(None);
        }
        let wanted = self.wish(core, ino, start)?;
        let (group, preference) = self.preference(core, ino, start, wanted)?;
        let preference = preference.filter(|at| at.get() < self.sb.size);
        let from = preference.map_or(group, |at| self.groups.shape().group_of(at));
        for number in groups(self.sb.ncg, from) {
            let taken = self.change_group(core, number, Role::BitmapSet, |group| {
                Ok(group.alloc_cluster(len, preference)?.map(|taken| (taken.run, taken.delta)))
            })?;
            if let Some((run, bitmap)) = taken {
                let frag = u64::from(self.sb.frag);
                debug_assert_eq!(run.len, u64::from(len) * frag, "as long as what was there");
                self.blocks.allocated(BlockNo::new(run.end().get() - frag));
                return Ok(Some((run, bitmap)));
            }
        }
        Ok(None)
    }
}
