//! The clusters of a file: each belongs to one file, and there are as many as its length needs.

use super::{Checker, problems, set_first};
use crate::ondisk::{ShortEntry, first};
use crate::table::{Link, entry_place};
use seekless_fs::Location;
use seekless_fs::field::index;
use seekless_units::Ino;

/// The result of claiming a chain.
pub(super) struct Claimed {
    pub(super) clusters: Vec<u32>,
    /// Whether it ends with an end mark, not where it was cut.
    pub(super) is_whole: bool,
}

impl Checker {
    /// Claims a chain, as far as it is sound, for `wanted` clusters at most. `entry` is the place
    /// of the entry with its first cluster.
    pub(super) fn claim(
        &mut self,
        ino: Ino,
        first: u32,
        wanted: Option<u64>,
        entry: Location,
    ) -> Claimed {
        let mut clusters: Vec<u32> = Vec::new();
        let mut next = Some(first);
        let mut is_whole = true;
        while let Some(here) = next.take() {
            let place = match clusters.last() {
                Some(&before) => entry_place(self.boot(), self.boot().active, before).in_inode(ino),
                None => entry,
            };
            let link = self.fat.link(self.boot(), here);
            let found = u64::try_from(clusters.len()).unwrap_or(u64::MAX);
            let stop = if !self.boot().is_cluster(here) {
                Some((problems::CHAIN_START, format!("the first cluster {here} is none")))
            } else if link == Link::Free {
                Some((
                    problems::CHAIN_FREE,
                    format!("the chain leads to cluster {here}, which is free"),
                ))
            } else if link == Link::Bad {
                Some((
                    problems::CHAIN_BAD,
                    format!("the chain leads to cluster {here}, which is bad"),
                ))
            } else if wanted.is_some_and(|wanted| found >= wanted) {
                self.past.push(here);
                let what = format!("the chain has more than the {found} clusters of its length");
                self.found(problems::CHAIN_PAST_SIZE, what, place);
                self.cut(&clusters);
                return Claimed { clusters, is_whole: true };
            } else if !self.claimed.set(index(here)) {
                Some(if clusters.contains(&here) {
                    (problems::CHAIN_CYCLE, format!("the chain leads back to its cluster {here}"))
                } else {
                    (problems::CHAIN_SHARED, format!("cluster {here} is another file's"))
                })
            } else {
                None
            };
            if let Some((problem, what)) = stop {
                self.found(problem, what, place);
                self.cut(&clusters);
                is_whole = false;
                break;
            }
            clusters.push(here);
            is_whole = !self.astray.contains(&here);
            next = match link {
                Link::Next(next) => Some(next),
                _ => None,
            };
        }
        debug_assert!(clusters.len() <= index(self.boot().clusters), "each is claimed once");
        Claimed { clusters, is_whole }
    }

    /// Ends a chain behind these clusters.
    fn cut(&mut self, clusters: &[u32]) {
        if let Some(&last) = clusters.last() {
            debug_assert!(self.claimed.get(index(last)), "cluster {last} is the file's");
            self.fat.end(last);
        }
    }

    /// Frees the clusters of chains past the lengths of their files, when all files are known: they
    /// may belong to one of these.
    pub(super) fn free_past(&mut self) {
        for from in std::mem::take(&mut self.past) {
            self.free_rest(from);
        }
    }

    /// Frees the rest of a chain, up to a cluster of another.
    fn free_rest(&mut self, from: u32) {
        let mut next = Some(from);
        while let Some(here) = next {
            let link = self.fat.link(self.boot(), here);
            if matches!(link, Link::Free | Link::Bad) || self.claimed.get(index(here)) {
                break;
            }
            self.fat.set(here, 0);
            next = match link {
                Link::Next(next) => Some(next),
                _ => None,
            };
        }
    }

    /// Checks the clusters of a regular file.
    pub(super) fn check_file(&mut self, ino: Ino, byte: u64, entry: &ShortEntry) {
        let place = self.entry_place(ino, byte);
        let cluster = self.boot().cluster_bytes();
        let size = u64::from(entry.DIR_FileSize.get());
        let start = entry.first_cluster(self.boot().root_cluster != 0);
        if start == 0 {
            if size > 0 {
                let what = format!("{size} bytes, but no clusters");
                self.found(problems::FILE_NO_CHAIN, what, place);
                self.report.set_values(size, 0);
                self.edit(byte, entry, |entry| entry.DIR_FileSize = 0.into());
            }
            return;
        }
        let wanted = size.div_ceil(cluster);
        let Claimed { mut clusters, is_whole } = self.claim(ino, start, Some(wanted), place);
        let found = u64::try_from(clusters.len()).unwrap_or(u64::MAX);
        debug_assert!(found <= wanted, "no more than the length needs");
        let mut len = size.min(found * cluster);
        if size > len && is_whole {
            let what = format!(
                "{size} bytes, but the chain has only {found} clusters: the file loses the last of \
                 them, which may show old contents of another behind its end"
            );
            self.found(problems::FILE_SIZE_PAST_CHAIN, what, place);
            // Nothing says where in its last cluster the file ended before it was made longer:
            // bytes past that may be another file's old contents.
            if let Some(last) = clusters.pop() {
                self.claimed.clear(index(last));
                self.cut(&clusters);
            }
            len = u64::try_from(clusters.len()).unwrap_or(0) * cluster;
        }
        let is_empty = clusters.is_empty();
        if len != size || is_empty {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            self.edit(byte, entry, |entry| {
                entry.DIR_FileSize = len.into();
                if is_empty {
                    set_first(entry, 0);
                }
            });
        }
        self.count(&clusters);
    }

    pub(super) fn count(&mut self, clusters: &[u32]) {
        let sectors = u64::try_from(clusters.len()).unwrap_or(0);
        let sectors = sectors * u64::from(self.boot().spc);
        self.report.tally.blocks += sectors;
    }

    /// Removes an entry, with the pieces of its name in front of it.
    pub(super) fn remove(&mut self, byte: u64, entry: &ShortEntry, pieces: &[(u64, ShortEntry)]) {
        for (byte, piece) in pieces {
            self.edit(*byte, piece, delete);
        }
        self.edit(byte, entry, delete);
    }
}

/// Marks an entry as deleted.
pub(super) fn delete(entry: &mut ShortEntry) {
    if let Some(initial) = entry.DIR_Name.first_mut() {
        *initial = first::DELETED;
    }
}
