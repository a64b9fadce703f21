//! Clusters taken and given back (`clusteralloc` and `chainalloc` of
//! `sys/fs/msdosfs/msdosfs_fat.c`).

use super::links::Straddling;
use super::unnamed::AT_ONCE;
use super::{Chain, Core, Fat};
use crate::table::{Link, Table};
use crate::volume::Volume;
use seekless_cache::{ChangeId, Role};
use seekless_fs::bits::Bits;
use seekless_fs::field::{byte, index, invalid};
use seekless_fs::{FsError, Location};
use seekless_live::Ids;
use seekless_units::{BlockNo, Extent};

/// The use of clusters by a FAT.
pub(super) struct Counted {
    pub(super) used: Bits,
    pub(super) followed: Bits,
    pub(super) free: u32,
    pub(super) aside: u32,
}

/// Reads the FAT in use. A free cluster that another one leads to is set aside: a file that got it
/// would share it.
///
/// # Errors
/// [`FsError::Corrupt`] where two entries lead to one cluster: a change of one chain would change
/// both.
pub(super) fn count(volume: &Volume) -> Result<Counted, FsError> {
    let boot = &volume.boot;
    let len = index(boot.last_cluster()) + 1;
    let (mut used, mut followed) = (Bits::new(len), Bits::new(len));
    let mut free = 0u32;
    let mut table = Table::new(volume);
    for cluster in 2..=boot.last_cluster() {
        match table.link(cluster)? {
            Link::Free => {
                free += 1;
                continue;
            }
            Link::Next(next) if !followed.set(index(next)) => {
                let place = crate::table::entry_place(boot, boot.active, cluster);
                return Err(invalid("cluster that two others lead to", next.into(), place));
            }
            _ => {}
        }
        used.set(index(cluster));
    }
    let mut aside = 0u32;
    for cluster in 2..=boot.last_cluster() {
        if followed.get(index(cluster)) && used.set(index(cluster)) {
            (free, aside) = (free - 1, aside + 1);
        }
    }
    Ok(Counted { used, followed, free, aside })
}

impl Fat {
    /// Takes clusters whose entries lie in two sectors: they are never handed out.
    pub(super) fn set_straddling_aside(&mut self) {
        if !self.avoids_straddling {
            return;
        }
        for cluster in 2..=self.boot().last_cluster() {
            if self.straddles(cluster) && self.used.set(index(cluster)) {
                self.free -= 1;
            }
        }
    }

    /// The number of free clusters from one on, at most `most`.
    fn free_from(&self, start: u32, most: u32) -> u32 {
        debug_assert!(start >= 2 && most > 0, "{most} clusters from {start} on");
        let last = self.boot().last_cluster();
        let numbers = start..=last;
        let free = numbers.take_while(|&cluster| !self.used.get(index(cluster)));
        let found = free.take(index(most)).count();
        u32::try_from(found).unwrap_or(most)
    }

    /// Finds `wanted` clusters in a row, or fewer; `start` is the one behind a file's last.
    fn find(&mut self, start: Option<u32>, wanted: u32) -> Option<(u32, u32)> {
        let behind = start.map(|start| (start, self.free_from(start, wanted)));
        if let Some(found) = behind.filter(|&(_, len)| len >= wanted) {
            return Some(found);
        }
        let begin = self.policy.begin(start);
        let last = self.boot().last_cluster();
        let mut longest: Option<(u32, u32)> = None;
        let ranges = [(begin.max(2), last + 1), (2, begin.max(2))];
        for (from, to) in ranges {
            let mut at = from;
            loop {
                at = u32::try_from(self.used.next_clear(index(at))).unwrap_or(u32::MAX);
                if at >= to {
                    break;
                }
                let len = self.free_from(at, wanted);
                if len >= wanted {
                    return Some((at, len));
                }
                if longest.is_none_or(|(_, most)| len > most) {
                    longest = Some((at, len));
                }
                at = at + len + 1;
            }
        }
        behind.filter(|&(_, len)| len > 0).or(longest)
    }

    /// Takes as many clusters as a file needs behind its last one, in as few runs as possible: none
    /// of them is in a FAT yet.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if fewer are free; then none is taken.
    pub(super) fn take(&mut self, last: Option<u32>, count: u32) -> Result<Chain, FsError> {
        if count > self.free {
            return Err(no_space());
        }
        let mut taken = Chain::default();
        let mut last = last;
        while taken.len < count {
            let wanted = count - taken.len;
            let start = last.map(|last| last + 1);
            let (start, len) = self.find(start, wanted).ok_or_else(no_space)?;
            debug_assert!(len > 0 && len <= wanted, "a run of {len} for {wanted}");
            for cluster in start..start + len {
                let is_new = self.used.set(index(cluster));
                debug_assert!(is_new, "cluster {cluster} is taken once");
            }
            self.free -= len;
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
        let end = self.boot().width.mask();
        let mut runs = taken.runs.iter().peekable();
        while let Some((_, run)) = runs.next() {
            let first = low(run.start.get());
            let last = low(run.end().get()) - 1;
            let next = runs.peek().map_or(end, |(_, next)| low(next.start.get()));
            let mut values: Vec<u32> = (first..last).map(|n| n + 1).collect();
            values.push(next);
            for &value in values.iter().filter(|&&value| value != end) {
                let is_new = self.followed.set(index(value));
                debug_assert!(is_new, "one cluster leads to {value}");
            }
            let role = Role::BitmapSet;
            let mut first = first;
            for values in values.chunks(self.clusters_at_once()) {
                let order = Straddling::Descending;
                let put = self.put_links(core, first, values, role, order, &after.0)?;
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
        debug_assert!(self.used.get(index(cluster)), "cluster {cluster} is in use");
        if let Some(next) = next {
            let is_new = self.followed.set(index(next));
            debug_assert!(is_new, "one cluster leads to {next}");
        }
        let value = next.unwrap_or_else(|| self.boot().width.mask());
        let order = if next.is_some() { Straddling::Ascending } else { Straddling::Descending };
        self.put_links(core, cluster, &[value], Role::BitmapSet, order, after)
    }

    /// Frees runs of sectors, which are whole clusters.
    pub(super) fn give(&mut self, core: &mut Core, runs: &[Extent]) -> Result<(), FsError> {
        let (mut ids, mut after) = (Ids::new(), (Ids::new(), 0));
        for &run in runs {
            let run = self.clusters_of(run)?;
            let mut first = low(run.start.get());
            let zeros = vec![0; index(run.len)];
            for zeros in zeros.chunks(self.clusters_at_once()) {
                let (role, order) = (Role::BitmapClear, Straddling::Descending);
                ids.extend(self.put_links(core, first, zeros, role, order, &after.0)?);
                first += byte(zeros.len());
                self.go_on(core, &mut after, &ids);
            }
            self.clear_used(&run);
        }
        self.note_freed(core, runs, &ids);
        Ok(())
    }

    /// Makes later changes wait for the earlier ones, whenever as many sectors were changed as may
    /// be at once.
    fn go_on(&self, core: &mut Core, (after, waited): &mut (Ids, usize), ids: &Ids) {
        let at_once = index(AT_ONCE) * index(self.boot().fats);
        if self.keeps_order && ids.len() - *waited >= at_once {
            *after = core.cache.changes().join(ids).into_iter().collect();
            *waited = ids.len();
        }
    }

    fn clear_used(&mut self, run: &Extent) {
        for cluster in run.start.get()..run.end().get() {
            let cluster = low(cluster);
            debug_assert!(self.used.get(index(cluster)), "cluster {cluster} is freed twice");
            self.followed.clear(index(cluster));
            self.numbers.disclaim(cluster);
            if self.avoids_straddling && self.straddles(cluster) {
                continue;
            }
            self.used.clear(index(cluster));
            self.free += 1;
        }
        debug_assert!(self.free <= self.boot().clusters, "{} clusters are free", self.free);
    }

    /// A run of clusters as one of sectors.
    pub(super) fn sectors_of(&self, run: Extent) -> Extent {
        debug_assert!(run.len > 0, "a run has clusters");
        let start = self.boot().sector_of(low(run.start.get()));
        Extent::new(start, run.len * u64::from(self.boot().spc))
    }

    /// And back.
    pub(super) fn clusters_of(&self, run: Extent) -> Result<Extent, FsError> {
        let spc = u64::from(self.boot().spc);
        let first = BlockNo::new(self.boot().first_data.into());
        let into = run.start.checked_since(first).filter(|into| into.is_multiple_of(spc));
        let Some(into) = into.filter(|_| run.len.is_multiple_of(spc)) else {
            return Err(invalid("run of clusters", run.start.get(), Location::of("data")));
        };
        Ok(Extent::new(BlockNo::new(into / spc + 2), run.len / spc))
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
