//! Clusters taken and given back (`clusteralloc` and `chainalloc` of
//! `sys/fs/msdosfs/msdosfs_fat.c`).

use super::allocation_table::{AllocationTable, Straddling};
use super::chain::Chain;
use super::cluster_map::ClusterMap;
use super::map::Core;
use super::numbers::Numbers;
use super::unnamed::{AT_ONCE, Unnamed};
use crate::boot::{Boot, Width};
use crate::table::Link;
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_fs::extents::append;
use seekless_fs::field::{byte, index};
use seekless_live::Ids;
use seekless_placement::cluster::ClusterPlacement;
use seekless_units::Extent;
use std::sync::Arc;

/// The clusters of a volume in use, with the FATs that chain them.
pub(super) struct Clusters {
    boot: Arc<Boot>,
    table: AllocationTable,
    map: ClusterMap,
    policy: ClusterPlacement,
    unnamed: Unnamed,
    /// Clusters whose entry lies in two sectors are not handed out.
    avoids_straddling: bool,
    /// Writes reach the disk in an order that leaves only chains without names.
    keeps_order: bool,
}

impl Clusters {
    /// `keeps_order`: writes reach the disk in an order that leaves only chains without names.
    pub(super) fn new(
        boot: &Arc<Boot>,
        map: ClusterMap,
        policy: ClusterPlacement,
        keeps_order: bool,
    ) -> Self {
        let mut clusters = Self {
            boot: Arc::clone(boot),
            table: AllocationTable::new(Arc::clone(boot)),
            map,
            policy,
            unnamed: Unnamed::new(Arc::clone(boot)),
            // No write changes both sectors at once.
            avoids_straddling: keeps_order && boot.width == Width::Fat12,
            keeps_order,
        };
        clusters.withhold_straddling();
        clusters
    }

    /// Keeps clusters whose entries lie in two sectors from being handed out.
    fn withhold_straddling(&mut self) {
        if !self.avoids_straddling {
            return;
        }
        for cluster in 2..=self.boot.last_cluster() {
            if self.table.straddles(cluster) {
                self.map.withhold(cluster);
            }
        }
    }

    /// Clusters that are not in use.
    pub(super) fn free(&self) -> u32 {
        self.map.free()
    }

    /// Free clusters, including those set aside. Only FAT32 has this count, where no entry lies in
    /// two sectors.
    pub(super) fn free_on_disk(&self) -> u32 {
        debug_assert!(!self.avoids_straddling, "FAT12 has no counts");
        self.map.free_on_disk()
    }

    /// Where the search for free clusters goes on.
    pub(super) fn next(&self) -> u32 {
        self.policy.next()
    }

    /// The FATs.
    pub(super) fn table(&self) -> &AllocationTable {
        &self.table
    }

    /// Chains that a crash would leave without a name.
    pub(super) fn unnamed(&mut self) -> &mut Unnamed {
        &mut self.unnamed
    }

    /// Whether a cluster is led to by another.
    pub(super) fn is_followed(&self, cluster: u32) -> bool {
        self.map.is_followed(cluster)
    }

    /// The successor of a cluster.
    pub(super) fn link(&self, core: &mut Core, cluster: u32) -> Result<Link, FsError> {
        self.table.link(core, cluster)
    }

    /// Takes as many clusters as a file needs behind its last one, in as few runs as possible: none
    /// of them is in a FAT yet.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if fewer are free; then none is taken.
    pub(super) fn take(&mut self, last: Option<u32>, count: u32) -> Result<Chain, FsError> {
        if count > self.map.free() {
            return Err(no_space());
        }
        let mut taken = Chain::default();
        let mut last = last;
        while taken.len() < count {
            let wanted = count - taken.len();
            let start = last.map(|last| last + 1);
            let found = self.map.find(start, wanted, || self.policy.begin(start));
            let (start, len) = found.ok_or_else(no_space)?;
            debug_assert!(len > 0 && len <= wanted, "a run of {len} for {wanted}");
            self.map.take(start, len);
            self.policy.taken(start, len);
            taken.push(start, len);
            last = taken.last();
        }
        Ok(taken)
    }

    /// Writes the entries of new clusters: each leads to the next, and the last is an end.
    pub(super) fn put_chain(&mut self, core: &mut Core, taken: &Chain) -> Result<Ids, FsError> {
        let mut ids = Ids::new();
        let mut after = (Ids::new(), 0);
        let end = self.boot.width.mask();
        let mut runs = taken.runs().peekable();
        while let Some(run) = runs.next() {
            let first = low(run.start.get());
            let last = low(run.end().get()) - 1;
            let next = runs.peek().map_or(end, |next| low(next.start.get()));
            let mut values: Vec<u32> = (first..last).map(|n| n + 1).collect();
            values.push(next);
            for &value in values.iter().filter(|&&value| value != end) {
                self.map.follow(value);
            }
            let role = Role::BitmapSet;
            let mut first = first;
            for values in values.chunks(self.at_once()) {
                let order = Straddling::Descending;
                let put = self.table.put(core, first, values, role, order, &after.0)?;
                first += byte(values.len());
                ids.extend(put);
                self.go_on(core, &mut after, &ids);
            }
        }
        Ok(ids)
    }

    /// Links a cluster to another, or ends its chain, after the changes that must be on the disk
    /// before.
    pub(super) fn put_link(
        &mut self,
        core: &mut Core,
        cluster: u32,
        next: Option<u32>,
        after: &[ChangeId],
    ) -> Result<Ids, FsError> {
        debug_assert!(self.map.is_used(cluster), "cluster {cluster} is in use");
        if let Some(next) = next {
            self.map.follow(next);
        }
        let value = next.unwrap_or_else(|| self.boot.width.mask());
        let order = if next.is_some() { Straddling::Ascending } else { Straddling::Descending };
        self.table.put(core, cluster, &[value], Role::BitmapSet, order, after)
    }

    /// Frees runs of sectors, which are whole clusters.
    pub(super) fn give(
        &mut self,
        core: &mut Core,
        numbers: &mut Numbers,
        runs: &[Extent],
    ) -> Result<Ids, FsError> {
        let (mut ids, mut after) = (Ids::new(), (Ids::new(), 0));
        for &run in runs {
            let run = self.boot.clusters_of(run)?;
            let mut first = low(run.start.get());
            let zeros = vec![0; index(run.len)];
            for zeros in zeros.chunks(self.at_once()) {
                let (role, order) = (Role::BitmapClear, Straddling::Descending);
                ids.extend(self.table.put(core, first, zeros, role, order, &after.0)?);
                first += byte(zeros.len());
                self.go_on(core, &mut after, &ids);
            }
            for cluster in run.start.get()..run.end().get() {
                let cluster = low(cluster);
                numbers.disclaim(cluster);
                let withheld = self.avoids_straddling && self.table.straddles(cluster);
                self.map.give(cluster, withheld);
            }
        }
        self.unnamed.note_freed(core, runs, &ids);
        Ok(ids)
    }

    /// The parts of a run of sectors that are free, and not withheld.
    pub(super) fn free_parts(&self, run: Extent) -> Result<Vec<Extent>, FsError> {
        let run = self.boot.clusters_of(run)?;
        let clusters = (0..run.len).map(|within| run.start + within);
        let free = clusters.filter(|cluster| !self.map.is_used(low(cluster.get())));
        let mut parts = Vec::new();
        free.for_each(|cluster| append(&mut parts, cluster));
        Ok(parts.into_iter().map(|run| self.boot.sectors_of(run)).collect())
    }

    /// Makes later changes wait for the earlier ones, whenever as many sectors were changed as may
    /// be at once.
    fn go_on(&self, core: &mut Core, (after, waited): &mut (Ids, usize), ids: &Ids) {
        let at_once = index(AT_ONCE) * index(self.boot.fats);
        if self.keeps_order && ids.len() - *waited >= at_once {
            *after = core.cache.changes().join(ids).into_iter().collect();
            *waited = ids.len();
        }
    }

    /// Number of clusters whose entries fill as many sectors as are changed at once.
    fn at_once(&self) -> usize {
        let bytes = index(self.boot.sector) * index(AT_ONCE);
        bytes / 4
    }
}

/// The number of a cluster of ours, which has 28 bits.
fn low(cluster: u64) -> u32 {
    debug_assert!(u32::try_from(cluster).is_ok(), "cluster {cluster}");
    u32::try_from(cluster).unwrap_or(u32::MAX)
}

pub(super) fn no_space() -> FsError {
    FsError::NoSpace("no free clusters".into())
}
