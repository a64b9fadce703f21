//! Chains of clusters: the places of a file's parts.

use crate::table::{Link, Table, entry_place};
use crate::volume::Volume;
use seekless_fs::field::invalid;
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

/// Reasons why a chain ends too early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It leads back to a cluster of its own.
    Cycle,
    /// It leads to a cluster that is free.
    Free(u32),
    /// It leads to a cluster that is bad.
    Bad(u32),
    /// It leads to a number of no cluster.
    Wrong(u32),
}

/// A walk along a chain. Loops are found by Brent's method, within three times the
/// length of the chain and without memory.
pub(crate) struct Walk<'a> {
    table: Table<'a>,
    /// The next cluster of the walk, and the one whose entry contains it.
    next: Option<u32>,
    from: Option<u32>,
    /// The cluster that a loop would come back to.
    mark: u32,
    steps: u64,
    power: u64,
    /// Set if the chain ends too early.
    pub(crate) stop: Option<Stop>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(volume: &'a Volume, first: u32) -> Self {
        let table = Table::new(volume);
        let boot = &volume.boot;
        let (next, stop) = match boot.is_cluster(first) {
            true => (Some(first), None),
            false => (None, Some(Stop::Wrong(first))),
        };
        Self { table, next, from: None, mark: 0, steps: 0, power: 1, stop }
    }

    /// The next cluster; `None` at the end, a good one or not.
    pub(crate) fn step(&mut self) -> Result<Option<u32>, FsError> {
        let Some(here) = self.next else { return Ok(None) };
        debug_assert!(self.steps <= self.power, "the mark follows the walk");
        let link = self.table.link(here)?;
        let stop = match link {
            _ if here == self.mark => Some(Stop::Cycle),
            Link::Free => Some(Stop::Free(here)),
            Link::Bad => Some(Stop::Bad(here)),
            Link::Wrong(_) | Link::Next(_) | Link::End => None,
        };
        if stop.is_some() {
            (self.stop, self.next) = (stop, None);
            return Ok(None);
        }
        if self.steps == self.power {
            (self.mark, self.power, self.steps) = (here, self.power * 2, 0);
        }
        self.steps += 1;
        self.from = Some(here);
        self.next = match link {
            Link::Next(next) => Some(next),
            Link::Wrong(value) => {
                self.stop = Some(Stop::Wrong(value));
                None
            }
            _ => None,
        };
        Ok(Some(here))
    }

    /// The cluster whose entry contains the one at which the walk stopped.
    pub(crate) fn from(&self) -> Option<u32> {
        self.from
    }
}

impl Volume {
    /// The runs of a chain in clusters, to its end or for `wanted` clusters.
    ///
    /// A chain that ends before `wanted` clusters is [`Corruption::Truncated`].
    pub(crate) fn runs(
        &self,
        first: u32,
        wanted: Option<u64>,
        ino: Ino,
    ) -> Result<Vec<Extent>, FsError> {
        let mut runs: Vec<Extent> = Vec::new();
        let mut found = 0u64;
        let mut walk = Walk::new(self, first);
        while wanted.is_none_or(|wanted| found < wanted) {
            let Some(cluster) = walk.step()? else { break };
            let at = BlockNo::new(cluster.into());
            match runs.last_mut() {
                Some(last) if last.end() == at => last.len += 1,
                _ => runs.push(Extent::new(at, 1)),
            }
            found += 1;
            // A loop longer than the wanted part is found by its length alone.
            if found > self.boot.clusters.into() {
                return Err(FsError::corrupt(Corruption::Cycle, self.chain_place(&walk, ino)));
            }
        }
        debug_assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), found, "each is in a run");
        if wanted.is_some_and(|wanted| found == wanted) {
            return Ok(runs);
        }
        let place = self.chain_place(&walk, ino);
        match walk.stop {
            None if wanted.is_none() => Ok(runs),
            None => Err(FsError::corrupt(Corruption::Truncated, place)),
            Some(Stop::Cycle) => Err(FsError::corrupt(Corruption::Cycle, place)),
            Some(Stop::Free(at)) => Err(invalid("free cluster", at.into(), place)),
            Some(Stop::Bad(at)) => Err(invalid("bad cluster", at.into(), place)),
            Some(Stop::Wrong(at)) => Err(invalid("cluster number", at.into(), place)),
        }
    }

    /// The place of the number at which a walk went wrong: in the FAT, or, for the first one, in
    /// the directory.
    fn chain_place(&self, walk: &Walk<'_>, ino: Ino) -> Location {
        let boot = &self.boot;
        let place = walk.from().map(|from| entry_place(boot, boot.active, from));
        place.unwrap_or(Location::of("directory entry")).in_inode(ino)
    }
}
