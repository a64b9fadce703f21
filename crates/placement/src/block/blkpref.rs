//! FreeBSD's preferences for blocks.

use super::{BlockPlacement, Hints, Request, Wanted, Zones};
use crate::{Groups, Shape};
use seekless_units::{BlockNo, GroupNo};

/// Direct blocks of an inode.
const DIRECT: u64 = 12;

/// FreeBSD's `ffs_blkpref`, for UFS1 and UFS2 alike.
///
/// A file begins in the data zone of its inode's group and stays there through its first indirect
/// block, which is placed between block 11 and block 12. Later indirect blocks, and directories, go
/// to the group's zone for metadata. After `maxbpg` blocks, or behind a hole, a large file moves on
/// to the next group with at least the average of free blocks. All other blocks follow the previous
/// one.
#[derive(Clone, Copy, Debug)]
pub struct Blkpref {
    zones: Zones,
}

/// 4.4BSD's `ffs_blkpref`: no zone for metadata; a file moves on right after its direct blocks, and
/// leaves a rotational gap after `maxcontig` blocks if the volume has one.
#[derive(Clone, Copy, Debug)]
pub struct OldBlkpref {
    zones: Zones,
}

/// `ffs_blkpref` of FreeBSD until 9 and of NetBSD: no zone for metadata; a file stays in its
/// inode's group through its first indirect block. The search for that block, and for the one that
/// follows it, begins at the group's start, as for a file's first block. No rotational gaps are
/// left.
#[derive(Clone, Copy, Debug)]
pub struct BsdBlkpref {
    zones: Zones,
}

impl BsdBlkpref {
    /// Name of the policy.
    pub const NAME: &'static str = "bsd-blkpref";

    /// Creates the policy for a volume with these zones.
    #[must_use]
    pub fn new(zones: Zones) -> Self {
        Self { zones }
    }
}

impl Blkpref {
    /// Name of the policy.
    pub const NAME: &'static str = "blkpref";

    /// Creates the policy for a volume with these zones.
    #[must_use]
    pub fn new(zones: Zones) -> Self {
        Self { zones }
    }
}

impl OldBlkpref {
    /// Name of the policy.
    pub const NAME: &'static str = "old-blkpref";

    /// Creates the policy for a volume with these zones.
    #[must_use]
    pub fn new(zones: Zones) -> Self {
        Self { zones }
    }
}

impl BlockPlacement<Hints> for Blkpref {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, request: &Request<Hints>) -> Option<BlockNo> {
        let (shape, zones, hints) = (groups.shape(), &self.zones, &request.hints);
        let inline_end = DIRECT + zones.nindir;
        let lbn = request.lbn.get();
        let (index, previous) = match request.hints.wanted {
            Wanted::Indirect(level) => {
                let inline = level == 1 && lbn < inline_end;
                let behind = hints.last_direct.filter(|_| inline);
                let zone = groups.data_start(request.group);
                return Some(behind.map_or(zone, |last| after(shape, last)));
            }
            Wanted::Data { index, previous, .. } => (index, previous),
        };
        if lbn == DIRECT {
            let (from, to) =
                (zones.data_zone(groups, request.group), next_base(shape, request.group));
            let inline = hints.first_indirect.filter(|&at| at >= from && at < to);
            if let Some(indirect) = inline {
                return Some(after(shape, indirect));
            }
        }
        match previous.filter(|_| !is_boundary(zones, index)) {
            Some(previous) => Some(after(shape, previous)),
            None if request.is_directory => Some(groups.data_start(request.group)),
            None if lbn < inline_end => Some(zones.data_zone(groups, request.group)),
            None => {
                let group = roomy_group(groups, zones, request, index, previous)?;
                Some(zones.data_zone(groups, group))
            }
        }
    }
}

impl BlockPlacement<Hints> for OldBlkpref {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, request: &Request<Hints>) -> Option<BlockNo> {
        let (shape, zones) = (groups.shape(), &self.zones);
        // Start of the search in a group: one block behind the group's start.
        let begin = |group| after(shape, shape.base(group));
        let (index, previous, run_before) = match request.hints.wanted {
            Wanted::Indirect(_) => (0, None, None),
            Wanted::Data { index, previous, run_before } => (index, previous, run_before),
        };
        let Some(previous) = previous.filter(|_| !is_boundary(zones, index)) else {
            if request.lbn.get() < DIRECT {
                return Some(begin(request.group));
            }
            return roomy_group(groups, zones, request, index, previous).map(begin);
        };
        let next = after(shape, previous);
        let run = u64::from(zones.maxcontig) * u64::from(shape.frag);
        let full = index >= u64::from(zones.maxcontig)
            && run_before.is_some_and(|first| first + run == next);
        let gap = u64::from(zones.rotdelay_frags).next_multiple_of(u64::from(shape.frag).max(1));
        Some(if full { next + gap } else { next })
    }
}

impl BlockPlacement<Hints> for BsdBlkpref {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, groups: &Groups, request: &Request<Hints>) -> Option<BlockNo> {
        let (shape, zones) = (groups.shape(), &self.zones);
        let (index, previous) = match request.hints.wanted {
            Wanted::Indirect(_) => (0, None),
            Wanted::Data { index, previous, .. } => (index, previous),
        };
        if let Some(previous) = previous.filter(|_| !is_boundary(zones, index)) {
            return Some(after(shape, previous));
        }
        let stays = request.lbn.get() < DIRECT + zones.nindir;
        let group = match stays {
            true => Some(request.group),
            false => roomy_group(groups, zones, request, index, previous),
        };
        group.map(|group| after(shape, shape.base(group)))
    }
}

/// The location one block behind another.
fn after(shape: &Shape, block: BlockNo) -> BlockNo {
    block + u64::from(shape.frag)
}

fn next_base(shape: &Shape, group: GroupNo) -> BlockNo {
    shape.base(group + 1)
}

/// Whether a file has used its share of a group.
fn is_boundary(zones: &Zones, index: u64) -> bool {
    index.checked_rem(u64::from(zones.maxbpg)).unwrap_or(0) == 0
}

/// The next group with at least the average of free blocks, from the one after the previous block's
/// on. Without a previous block the start is estimated from the logical block.
fn roomy_group(
    groups: &Groups,
    zones: &Zones,
    request: &Request<Hints>,
    index: u64,
    previous: Option<BlockNo>,
) -> Option<GroupNo> {
    let shape = groups.shape();
    let start = match previous.filter(|_| index != 0) {
        Some(previous) => shape.group_after(shape.group_of(previous), 1),
        None => {
            let share = request.lbn.get().checked_div(u64::from(zones.maxbpg)).unwrap_or(0);
            shape.group_after(request.group, share)
        }
    };
    let average = groups.average(groups.totals().nbfree);
    let mut from = groups.from(start);
    from.find(|(_, group)| u64::from(group.nbfree) >= average).map(|(number, _)| number)
}
