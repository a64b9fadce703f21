//! The number of chains without a name that a crash may leave: those of files whose names are not
//! on the disk yet, or are gone from it while their clusters are not free. `fsck.fat` turns each of
//! them into a file in the root directory, and the root directory of FAT12 and FAT16 does not grow.

use super::{Core, Fat};
use crate::files::ROOT;
use crate::table::entry_byte;
use hashbrown::HashMap;
use seekless_cache::ChangeId;
use seekless_fs::FsError;
use seekless_fs::field::index;
use seekless_live::Ids;
use seekless_units::{BlockNo, Extent};

/// Most chains that may be without a name at once.
const MOST: u32 = 64;
/// Sectors of a FAT that are changed for one file with no order between them: a crash may
/// leave a chain for each of them.
pub(super) const AT_ONCE: u32 = 16;

/// Chains that a crash now would leave without a name.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    /// Changes after which chains have a name or are free, each with the number of these chains.
    ends: Vec<(ChangeId, u32)>,
    /// The same of files that go, by the first sector that will be freed: first the changes that
    /// remove their names.
    going: HashMap<BlockNo, (Ids, u32)>,
    /// Chains of all of them.
    count: u32,
}

impl Unnamed {
    fn add(&mut self, chains: u32) {
        self.count += chains;
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

impl Fat {
    /// Whether chains without names are counted: under other disciplines their number is unlimited.
    fn bounds_unnamed(&self, core: &Core) -> bool {
        core.cache.blocks().config().discipline.keeps_graph()
    }

    /// Counts new clusters, which have no name until a change is on the disk.
    pub(super) fn note_unnamed(&mut self, core: &Core, until: ChangeId, runs: &[(u32, Extent)]) {
        if self.bounds_unnamed(core) && !core.cache.is_committed(until) {
            let chains = self.chains_of(runs.iter().map(|(_, run)| *run));
            self.unnamed.ends.push((until, chains));
            self.unnamed.add(chains);
        }
    }

    /// Counts runs of sectors that will be freed once some changes are on the disk, and have no
    /// name from then on.
    pub(super) fn note_going(&mut self, core: &Core, after: &[ChangeId], runs: &[Extent]) {
        let Some(first) = runs.first().filter(|_| self.bounds_unnamed(core)) else { return };
        let clusters = runs.iter().filter_map(|&run| self.clusters_of(run).ok());
        let chains = self.chains_of(clusters);
        self.unnamed.add(chains);
        let noted = (Ids::from_slice(after), chains);
        let before = self.unnamed.going.insert(first.start, noted);
        debug_assert!(before.is_none(), "a run goes once");
    }

    /// Notes that they are free as soon as some changes are on the disk.
    pub(super) fn note_freed(&mut self, core: &mut Core, runs: &[Extent], by: &[ChangeId]) {
        let Some(first) = runs.first() else { return };
        let Some((_, chains)) = self.unnamed.going.remove(&first.start) else { return };
        match core.cache.changes().join(by).last() {
            Some(&id) => self.unnamed.ends.push((id, chains)),
            None => self.unnamed.count -= chains,
        }
    }

    /// The number of pieces into which a crash may tear a chain: at most the sectors of the FAT
    /// with a part of it, and at most as many as are changed at once.
    fn chains_of(&self, runs: impl Iterator<Item = Extent>) -> u32 {
        let (mut chains, mut before) = (0u32, None);
        for run in runs {
            let sector = |cluster: BlockNo| {
                let cluster = u32::try_from(cluster.get()).unwrap_or(u32::MAX);
                entry_byte(self.boot().width, cluster) / u64::from(self.boot().sector)
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

    /// The most chains that may be without a name: as many as the root directory has room for.
    fn most_unnamed(&mut self, core: &mut Core) -> Result<u32, FsError> {
        if self.boot().root_cluster != 0 {
            return Ok(MOST);
        }
        self.hold_dir(core, ROOT)?;
        let free = self.dir(core, ROOT)?.free_slots();
        // Names that left the root directory may still be on the disk.
        Ok((free / 2).min(MOST))
    }

    /// Writes names to the disk, and frees clusters, where too many chains would be without a name
    /// after a crash. Returns whether something may be freed now, after which this is to be called
    /// again.
    pub(super) fn name_some(&mut self, core: &mut Core) -> Result<bool, FsError> {
        if self.unnamed.count == 0 {
            return Ok(false);
        }
        let most = self.most_unnamed(core)?;
        if self.unnamed.count <= most {
            return Ok(false);
        }
        self.unnamed.drop_ended(core);
        if self.unnamed.count <= most {
            return Ok(false);
        }
        let ends = self.unnamed.ends.iter().map(|&(id, _)| id);
        let mut ids: Vec<ChangeId> = ends.collect();
        let mut all = self.unnamed.going.values().flat_map(|(ids, _)| ids);
        // Files that need not wait any more were freed before this.
        let frees = all.any(|&id| !core.cache.is_committed(id));
        let mut going: Vec<_> = self.unnamed.going.iter().collect();
        going.sort_unstable_by_key(|(at, _)| **at);
        ids.extend(going.iter().flat_map(|(_, (ids, _))| ids.iter().copied()));
        core.cache.settle_together(&ids)?;
        self.unnamed.drop_ended(core);
        Ok(frees)
    }

    /// Number of clusters whose entries fill as many sectors as are changed at once.
    pub(super) fn clusters_at_once(&self) -> usize {
        let bytes = index(self.boot().sector) * index(AT_ONCE);
        bytes / 4
    }
}
