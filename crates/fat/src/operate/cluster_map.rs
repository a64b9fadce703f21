//! Free and used clusters, in memory.

use crate::table::{Link, Table};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::bits::Bits;
use seekless_fs::field::{index, invalid};

/// The clusters of a volume by their use, with their counts.
pub(super) struct ClusterMap {
    /// Clusters in use, and those never handed out.
    used: Bits,
    /// Clusters that another one leads to.
    followed: Bits,
    /// Clusters that are not in use.
    free: u32,
    /// Free clusters that are never handed out, since damaged chains lead to them.
    aside: u32,
    /// The highest cluster number.
    last: u32,
}

impl ClusterMap {
    /// Reads the FAT in use. A free cluster that another one leads to is set aside: a file that got
    /// it would share it.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where two entries lead to one cluster: a change of one chain would
    /// change both.
    pub(super) fn read(volume: &Volume) -> Result<Self, FsError> {
        let boot = &volume.boot;
        let last = boot.last_cluster();
        let len = index(last) + 1;
        let (mut used, mut followed) = (Bits::new(len), Bits::new(len));
        let mut free = 0u32;
        let mut table = Table::new(volume);
        for cluster in 2..=last {
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
        for cluster in 2..=last {
            if followed.get(index(cluster)) && used.set(index(cluster)) {
                (free, aside) = (free - 1, aside + 1);
            }
        }
        Ok(Self { used, followed, free, aside, last })
    }

    /// Clusters that are not in use.
    pub(super) fn free(&self) -> u32 {
        debug_assert!(self.free < self.last, "{} clusters are free", self.free);
        self.free
    }

    /// Free clusters, including those set aside.
    pub(super) fn free_on_disk(&self) -> u32 {
        self.free + self.aside
    }

    /// Whether a cluster is in use.
    pub(super) fn is_used(&self, cluster: u32) -> bool {
        self.used.get(index(cluster))
    }

    /// Whether another cluster leads to this one.
    pub(super) fn is_followed(&self, cluster: u32) -> bool {
        self.followed.get(index(cluster))
    }

    /// Notes that a cluster is led to by another.
    pub(super) fn follow(&mut self, cluster: u32) {
        let is_new = self.followed.set(index(cluster));
        debug_assert!(is_new, "one cluster leads to {cluster}");
    }

    /// Keeps a free cluster from being handed out.
    pub(super) fn withhold(&mut self, cluster: u32) {
        if self.used.set(index(cluster)) {
            self.free -= 1;
        }
    }

    /// Takes a run of free clusters.
    pub(super) fn take(&mut self, start: u32, len: u32) {
        debug_assert!(start >= 2 && start + len - 1 <= self.last, "{len} clusters from {start} on");
        for cluster in start..start + len {
            let is_new = self.used.set(index(cluster));
            debug_assert!(is_new, "cluster {cluster} is taken once");
        }
        self.free -= len;
    }

    /// Gives a cluster back, which nothing leads to any more; one that is `withheld` is not handed
    /// out again.
    pub(super) fn give(&mut self, cluster: u32, withheld: bool) {
        debug_assert!(self.is_used(cluster), "cluster {cluster} is freed twice");
        self.followed.clear(index(cluster));
        if !withheld {
            self.used.clear(index(cluster));
            self.free += 1;
        }
        debug_assert!(self.free < self.last, "{} clusters are free", self.free);
    }

    /// The number of free clusters from one on, at most `most`.
    fn free_from(&self, start: u32, most: u32) -> u32 {
        debug_assert!(start >= 2 && most > 0, "{most} clusters from {start} on");
        let free = (start..=self.last).take_while(|&cluster| !self.is_used(cluster));
        let found = free.take(index(most)).count();
        u32::try_from(found).unwrap_or(most)
    }

    /// Finds `wanted` clusters in a row, or fewer; `start` is the one behind a file's last. Where
    /// not all of them are free there the search begins at the cluster that `begin` returns.
    pub(super) fn find(
        &self,
        start: Option<u32>,
        wanted: u32,
        begin: impl FnOnce() -> u32,
    ) -> Option<(u32, u32)> {
        let behind = start.map(|start| (start, self.free_from(start, wanted)));
        if let Some(found) = behind.filter(|&(_, len)| len >= wanted) {
            return Some(found);
        }
        let begin = begin();
        let mut longest: Option<(u32, u32)> = None;
        let ranges = [(begin.max(2), self.last + 1), (2, begin.max(2))];
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
}
