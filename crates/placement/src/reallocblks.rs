//! Whether blocks just written are gathered into a cluster (`ffs_reallocblks`).

use crate::Groups;
use seekless_units::{BlockNo, GroupNo, Lbn};

/// Direct blocks of an inode.
const DIRECT: u64 = 12;
/// Minimum percentage of free space for gathering.
const LEAST_FREE: u128 = 4;
/// Maximum number of groups searched for a cluster (`vfs.ffs.maxclustersearch`).
const MOST_GROUPS: u32 = 10;

/// Neighbouring logical blocks of a file that may be moved together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// The first logical block.
    pub start: Lbn,
    /// Number of blocks.
    pub len: u32,
    /// Physical location of the first block.
    pub first: BlockNo,
    /// Physical location of the last block.
    pub last: BlockNo,
}

/// The reason why blocks stay in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The volume does not count clusters, or none of this length.
    NotTracked,
    /// Less than 4% of the space is free.
    LittleSpace,
    /// It would move the first indirect block from its place behind block 11.
    AcrossIndirect,
    /// The file has moved on to another group.
    AcrossGroups,
}

/// Checks whether a cluster may be gathered, on a volume that counts clusters of up to
/// `contigsumsize` blocks (0: none) and has `dsize` fragments for data.
///
/// # Errors
/// The reason for refusal.
pub fn permit(
    groups: &Groups,
    contigsumsize: u32,
    dsize: u64,
    cluster: &Cluster,
) -> Result<(), Refusal> {
    if contigsumsize == 0 || cluster.len > contigsumsize {
        return Err(Refusal::NotTracked);
    }
    let least = u128::from(dsize) * LEAST_FREE / 100;
    if u128::from(groups.free_frags()) < least {
        return Err(Refusal::LittleSpace);
    }
    let last = cluster.start.get() + u64::from(cluster.len.saturating_sub(1));
    if cluster.start.get() < DIRECT && last >= DIRECT {
        return Err(Refusal::AcrossIndirect);
    }
    let shape = groups.shape();
    if shape.group_of(cluster.first) != shape.group_of(cluster.last) {
        return Err(Refusal::AcrossGroups);
    }
    Ok(())
}

/// The groups searched for a place of the cluster, in order: the one of the preferred block and
/// those behind it, ten at most.
pub fn groups(ncg: u32, start: GroupNo) -> impl Iterator<Item = GroupNo> {
    let wrap = move |by: u32| start.get().wrapping_add(by).checked_rem(ncg).unwrap_or(0);
    (0..ncg.min(MOST_GROUPS)).map(wrap).map(GroupNo::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupSummary, Shape};

    #[test]
    fn refuses_what_would_do_harm() {
        let shape = Shape { ncg: 4, fpg: 1000, frag: 8, ..Shape::default() };
        let mut groups = Groups::new(shape, |group| shape.base(group));
        let free = |nffree| GroupSummary { nbfree: 19, nffree, ..GroupSummary::default() };
        groups.set(GroupNo::new(3), free(8));
        let cluster = |start, len, first, last| Cluster {
            start: Lbn::new(start),
            len,
            first: BlockNo::new(first),
            last: BlockNo::new(last),
        };
        let ask = |groups: &Groups, cluster| permit(groups, 16, 4000, &cluster);
        // 160 fragments are 4%.
        let good = cluster(0, 12, 0, 88);
        assert_eq!(ask(&groups, good), Ok(()));
        assert_eq!(ask(&groups, cluster(12, 16, 0, 999)), Ok(()));
        let across = cluster(11, 2, 0, 8);
        assert_eq!(ask(&groups, across), Err(Refusal::AcrossIndirect));
        let moved = cluster(20, 2, 992, 1000);
        assert_eq!(ask(&groups, moved), Err(Refusal::AcrossGroups));
        assert_eq!(ask(&groups, cluster(20, 17, 0, 8)), Err(Refusal::NotTracked));
        groups.set(GroupNo::new(3), free(7));
        assert_eq!(ask(&groups, good), Err(Refusal::LittleSpace));
        assert_eq!(permit(&groups, 0, 4000, &good), Err(Refusal::NotTracked));
    }

    #[test]
    fn at_most_ten_groups_are_searched() {
        let order =
            |ncg, start| groups(ncg, GroupNo::new(start)).map(GroupNo::get).collect::<Vec<_>>();
        assert_eq!(order(3, 2), [2, 0, 1]);
        assert_eq!(order(100, 95), [95, 96, 97, 98, 99, 0, 1, 2, 3, 4]);
    }
}
