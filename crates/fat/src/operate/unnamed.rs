//! The number of chains without a name that a crash may leave: those of files whose names are not
//! on the disk yet, or are gone from it while their clusters are not free. `fsck.fat` turns each of
//! them into a file in the root directory, and the root directory of FAT12 and FAT16 does not grow.

use super::chain::Chain;
use super::map::Core;
use crate::boot::Boot;
use crate::table::entry_byte;
use hashbrown::HashMap;
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_live::Ids;
use seekless_units::{BlockNo, Extent};
use std::sync::Arc;

/// Most chains that may be without a name at once.
const MOST: u32 = 64;
/// Sectors of a FAT that are changed for one file with no order between them: a crash may
/// leave a chain for each of them.
pub(super) const AT_ONCE: u32 = 16;

/// Chains that a crash now would leave without a name.
pub(super) struct Unnamed {
    boot: Arc<Boot>,
    /// Changes after which chains have a name or are free, each with the number of these chains.
    ends: Vec<(ChangeId, u32)>,
    /// The same of files that go, by the first sector that will be freed: first the changes that
    /// remove their names.
    going: HashMap<BlockNo, (Ids, u32)>,
    /// Chains of all of them.
    count: u32,
}

impl Unnamed {
    pub(super) fn new(boot: Arc<Boot>) -> Self {
        Self { boot, ends: Vec::new(), going: HashMap::new(), count: 0 }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Counts new clusters, which have no name until a change is on the disk.
    pub(super) fn note(&mut self, core: &Core, until: ChangeId, chain: &Chain) {
        if bounds_unnamed(core) && !core.cache.is_committed(until) {
            let chains = self.chains_of(chain.runs());
            self.ends.push((until, chains));
            self.count += chains;
        }
    }

    /// Counts runs of sectors that will be freed once some changes are on the disk, and have no
    /// name from then on.
    pub(super) fn note_going(&mut self, core: &Core, after: &[ChangeId], runs: &[Extent]) {
        let Some(first) = runs.first().filter(|_| bounds_unnamed(core)) else { return };
        let clusters = runs.iter().filter_map(|&run| self.boot.clusters_of(run).ok());
        let chains = self.chains_of(clusters);
        self.count += chains;
        let noted = (Ids::from_slice(after), chains);
        let before = self.going.insert(first.start, noted);
        debug_assert!(before.is_none(), "a run goes once");
    }

    /// Notes that they are free as soon as some changes are on the disk.
    pub(super) fn note_freed(&mut self, core: &mut Core, runs: &[Extent], by: &[ChangeId]) {
        let Some(first) = runs.first() else { return };
        let Some((_, chains)) = self.going.remove(&first.start) else { return };
        match core.cache.changes().join(by).last() {
            Some(&id) => self.ends.push((id, chains)),
            None => self.count -= chains,
        }
    }

    /// The number of pieces into which a crash may tear a chain: at most the sectors of the FAT
    /// with a part of it, and at most as many as are changed at once.
    fn chains_of(&self, runs: impl Iterator<Item = Extent>) -> u32 {
        let (mut chains, mut before) = (0u32, None);
        for run in runs {
            let sector = |cluster: BlockNo| {
                let cluster = u32::try_from(cluster.get()).unwrap_or(u32::MAX);
                entry_byte(self.boot.width, cluster) / u64::from(self.boot.sector)
            };
            debug_assert!(run.len > 0, "a run has clusters");
            let last = BlockNo::new(run.end().get() - 1);
            let (first, last) = (sector(run.start), sector(last));
            let more = last - first + 1 - u64::from(before == Some(first));
            chains += u32::try_from(more).unwrap_or(u32::MAX);
            before = Some(last);
        }
        chains.clamp(1, AT_ONCE)
    }

    /// Writes names to the disk, and frees clusters, where too many chains would be without a name
    /// after a crash. Returns whether something may be freed now, after which this is to be called
    /// again. `room`: free slots of a root directory that does not grow, where a check would put
    /// the chains.
    pub(super) fn name_some(
        &mut self,
        core: &mut Core,
        room: Option<u32>,
    ) -> Result<bool, FsError> {
        // Names that left the root directory may still be on the disk.
        let most = room.map_or(MOST, |free| (free / 2).min(MOST));
        if self.count <= most {
            return Ok(false);
        }
        self.drop_ended(core);
        if self.count <= most {
            return Ok(false);
        }
        let ends = self.ends.iter().map(|&(id, _)| id);
        let mut ids: Vec<ChangeId> = ends.collect();
        let mut all = self.going.values().flat_map(|(ids, _)| ids);
        // Files that need not wait any more were freed before this.
        let frees = all.any(|&id| !core.cache.is_committed(id));
        let mut going: Vec<_> = self.going.iter().collect();
        going.sort_unstable_by_key(|(at, _)| **at);
        ids.extend(going.iter().flat_map(|(_, (ids, _))| ids.iter().copied()));
        core.cache.settle_together(&ids)?;
        self.drop_ended(core);
        Ok(frees)
    }

    /// Leaves out chains whose changes are on the disk.
    fn drop_ended(&mut self, core: &Core) {
        debug_assert_eq!(self.count, self.counted(), "the count is that of the chains");
        let mut ended = 0u32;
        self.ends.retain(|&(id, chains)| {
            let stays = !core.cache.is_committed(id);
            ended += if stays { 0 } else { chains };
            stays
        });
        self.count -= ended;
    }

    /// The chains of all that is noted.
    fn counted(&self) -> u32 {
        let ends = self.ends.iter().map(|(_, chains)| chains);
        ends.chain(self.going.values().map(|(_, chains)| chains)).sum()
    }
}

/// Whether chains without names are counted: under other disciplines their number is unlimited.
fn bounds_unnamed(core: &Core) -> bool {
    core.cache.blocks().config().discipline.keeps_graph()
}
