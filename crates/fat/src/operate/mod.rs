//! FAT in use: the format behind the operations of `seekless-live`, and names, which are the files
//! themselves here.
//!
//! - `format`: the answers; `names`: operations on names, by way of `make`, `remove` and
//!   `rename`;
//! - `numbers`: inode numbers, which last as long as the volume is open; `node`: files from
//!   their entries, and as entries again; `stamps`: their times;
//! - `directory`: the entries of a directory, kept while it is in use; `slots`: entries put into it
//!   and taken out, in which order;
//! - `links`: entries of the FATs; `space`: clusters taken and given back;
//! - `unnamed`: how many chains a crash may leave without a name;
//! - `content`: contents of files;
//! - `mount`, `marks`: opening and closing.

mod content;
mod directory;
mod format;
mod links;
mod make;
mod marks;
mod mount;
mod names;
mod node;
mod numbers;
mod remove;
mod rename;
mod slots;
mod space;
mod stamps;
mod unnamed;

use crate::boot::Boot;
use crate::volume::Volume;
use directory::Directories;
use hashbrown::HashMap;
use marks::VolumeMarks;
use numbers::Numbers;
use seekless_fs::bits::Bits;
use seekless_live::{Ids, Limits, Live, Wall};
use seekless_placement::cluster::ClusterPlacement;
use seekless_units::{Extent, Ino};
use stamps::Zone;

/// A FAT image in use.
pub type FatLive = Live<Fat>;

type Core = seekless_live::Core<Map>;
type Node = seekless_live::Node<Map>;

/// How to open an image for changes.
pub struct LiveOptions {
    /// The policy for clusters, by name or by number ([`ClusterPlacement`]); `None` for
    /// `next-fit`.
    pub clusters: Option<String>,
    /// The seed of the policies' random numbers.
    pub seed: u64,
    /// Minutes by which the times in entries are ahead of UTC.
    pub zone: i32,
    /// Open it even if it is not clean.
    pub force: bool,
    /// The time of day.
    pub wall: Wall,
}

/// The map of a file: its place.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The first cluster; 0 for none.
    first: u32,
    /// All clusters, in order, once the chain has been followed.
    chain: Option<Chain>,
    /// `DIR_Attr`.
    attr: u8,
}

/// The clusters of a file.
#[derive(Clone, Debug, Default)]
struct Chain {
    /// Runs of clusters, each with the number of clusters in front of it.
    runs: Vec<(u32, Extent)>,
    /// How many clusters.
    len: u32,
}

/// FAT as a format of images in use.
pub struct Fat {
    /// The part that does not change while it is in use. Its tables are read before the cache is.
    volume: Volume,
    limits: Limits,
    zone: Zone,
    /// Clusters in use, and those never handed out.
    used: Bits,
    /// Clusters that another one leads to.
    followed: Bits,
    /// Clusters that are not in use.
    free: u32,
    /// Free clusters that are never handed out, since damaged chains lead to them.
    aside: u32,
    /// Clusters whose entry lies in two sectors are not handed out.
    avoids_straddling: bool,
    /// Writes reach the disk in an order that leaves only chains without names.
    keeps_order: bool,
    policy: ClusterPlacement,
    numbers: Numbers,
    directories: Directories,
    /// Pending changes that remove older names of files.
    leaving: HashMap<Ino, Ids>,
    /// Pending changes that remove the older names of files now in a directory.
    arriving: HashMap<Ino, Ids>,
    /// Pending changes that make the end of a directory reachable.
    reached: HashMap<Ino, Ids>,
    /// Pending changes after which a sector of a directory, and those opened in front of it,
    /// contain no slot that was never used, by their numbers.
    opened: HashMap<Ino, Vec<(u32, Ids)>>,
    /// Pending changes that remove names, folded, by their directories.
    departed: HashMap<(Ino, Vec<u16>), seekless_cache::ChangeId>,
    /// Number of departed names at which those that left the disk too are forgotten.
    many_departed: usize,
    /// Chains that a crash would leave without a name.
    unnamed: unnamed::Unnamed,
    /// The marks of the volume when it was opened.
    found: VolumeMarks,
}

impl Fat {
    fn boot(&self) -> &Boot {
        &self.volume.boot
    }

    fn is_fat32(&self) -> bool {
        self.boot().root_cluster != 0
    }
}

impl Chain {
    /// The cluster with a number in the file, and the number of consecutive ones from there.
    fn at(&self, lcn: u32) -> Option<(u32, u32)> {
        let (before, run) =
            *self.runs.get(self.runs.partition_point(|run| run.0 <= lcn).checked_sub(1)?)?;
        let into = lcn.checked_sub(before)?;
        let len = u32::try_from(run.len).ok()?;
        let left = len.checked_sub(into).filter(|&left| left > 0)?;
        Some((u32::try_from(run.start.get()).ok()?.checked_add(into)?, left))
    }

    /// The last cluster.
    fn last(&self) -> Option<u32> {
        self.at(self.len.checked_sub(1)?).map(|(cluster, _)| cluster)
    }

    /// Adds clusters behind the last one.
    fn push(&mut self, start: u32, len: u32) {
        debug_assert!(len > 0, "a run has clusters");
        let at = seekless_units::BlockNo::new(start.into());
        match self.runs.last_mut() {
            Some((_, last)) if last.end() == at => {
                last.len += u64::from(len);
            }
            _ => self.runs.push((self.len, Extent::new(at, len.into()))),
        }
        self.len += len;
        debug_assert!(self.is_even(), "{self:?}");
    }

    /// Whether its length is that of its runs, by the last of them.
    fn is_even(&self) -> bool {
        let end = self.runs.last().map_or(0, |&(before, run)| u64::from(before) + run.len);
        end == u64::from(self.len)
    }

    /// Cuts it to `len` clusters; the others are returned, in runs.
    fn cut(&mut self, len: u32) -> Vec<Extent> {
        let mut gone = Vec::new();
        while let Some((before, run)) = self.runs.last_mut() {
            let end = u64::from(*before) + run.len;
            let over = (end - end.min(len.into())).min(run.len);
            if over == 0 {
                break;
            }
            run.len -= over;
            gone.push(Extent::new(run.end(), over));
            if run.len == 0 {
                self.runs.pop();
            }
        }
        gone.reverse();
        self.len = self.len.min(len);
        debug_assert!(self.is_even(), "{self:?}");
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_grow_and_are_cut() {
        let mut chain = Chain::default();
        chain.push(10, 3);
        chain.push(13, 1);
        chain.push(5, 2);
        assert_eq!((chain.len, chain.runs.len(), chain.last()), (6, 2, Some(6)));
        assert_eq!(chain.at(2), Some((12, 2)));
        assert_eq!(chain.at(5), Some((6, 1)));
        assert_eq!(chain.at(6), None);
        let run = |start, len| Extent::new(seekless_units::BlockNo::new(start), len);
        assert_eq!(chain.clone().cut(0), [run(10, 4), run(5, 2)]);
        assert_eq!(chain.cut(3), [run(13, 1), run(5, 2)]);
        assert_eq!((chain.len, chain.last()), (3, Some(12)));
    }
}
