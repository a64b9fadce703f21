use super::{BlockPlacement, Request, Wanted};
use crate::{View, Volume};
use seekless_units::{BlockNo, GroupNo};

/// Direct blocks of an inode.
const DIRECT: u64 = 12;

/// FreeBSD's `ffs_blkpref`, for UFS1 and UFS2 alike.
///
/// A file begins in the data zone of its inode's group and goes on there
/// through its first indirect block, which lies between block 11 and block 12.
/// Later indirect blocks, and directories, go to the group's zone for metadata.
/// After `maxbpg` blocks, or behind a hole, a large file moves on to the next
/// group with at least the average of free blocks. All else follows the block
/// in front of it.
#[derive(Clone, Copy, Debug)]
pub struct Blkpref;

/// 4.4BSD's `ffs_blkpref`: no zone for metadata; a file moves on already behind
/// its direct blocks, and leaves a gap for the disk to turn after `maxcontig`
/// blocks where the volume has one.
#[derive(Clone, Copy, Debug)]
pub struct OldBlkpref;

impl Blkpref {
    /// What it is called.
    pub const NAME: &'static str = "blkpref";
}

impl OldBlkpref {
    /// What it is called.
    pub const NAME: &'static str = "old-blkpref";
}

impl BlockPlacement for Blkpref {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, view: &View<'_>, request: &Request) -> Option<BlockNo> {
        let volume = view.volume;
        let inline_end = DIRECT.saturating_add(volume.nindir);
        let lbn = request.lbn.get();
        let (index, previous) = match request.wanted {
            Wanted::Indirect(level) => {
                let inline = level == 1 && lbn < inline_end;
                let behind = request.last_direct.filter(|_| inline);
                let zone = volume.meta_zone(request.group);
                return Some(behind.map_or(zone, |last| after(volume, last)));
            }
            Wanted::Data { index, previous, .. } => (index, previous),
        };
        if lbn == DIRECT {
            let (from, to) = (volume.data_zone(request.group), next_base(volume, request.group));
            let inline = request.first_indirect.filter(|&at| at >= from && at < to);
            if let Some(indirect) = inline {
                return Some(after(volume, indirect));
            }
        }
        match previous.filter(|_| !is_boundary(volume, index)) {
            Some(previous) => Some(after(volume, previous)),
            None if request.is_directory => Some(volume.meta_zone(request.group)),
            None if lbn < inline_end => Some(volume.data_zone(request.group)),
            None => {
                let group = roomy_group(view, request, index, previous)?;
                Some(volume.data_zone(group))
            }
        }
    }
}

impl BlockPlacement for OldBlkpref {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, view: &View<'_>, request: &Request) -> Option<BlockNo> {
        let volume = view.volume;
        // Where a group begins to be searched: a block behind its start.
        let begin = |group| after(volume, volume.base(group));
        let (index, previous, run_before) = match request.wanted {
            Wanted::Indirect(_) => (0, None, None),
            Wanted::Data { index, previous, run_before } => (index, previous, run_before),
        };
        let Some(previous) = previous.filter(|_| !is_boundary(volume, index)) else {
            if request.lbn.get() < DIRECT {
                return Some(begin(request.group));
            }
            return roomy_group(view, request, index, previous).map(begin);
        };
        let next = after(volume, previous);
        let run = u64::from(volume.maxcontig).saturating_mul(u64::from(volume.frag));
        let full = index >= u64::from(volume.maxcontig)
            && run_before.is_some_and(|first| first.saturating_add(run) == next);
        let gap = u64::from(volume.rotdelay_frags).next_multiple_of(u64::from(volume.frag).max(1));
        Some(if full { next.saturating_add(gap) } else { next })
    }
}

/// The place a block behind another.
fn after(volume: &Volume, block: BlockNo) -> BlockNo {
    block.saturating_add(u64::from(volume.frag))
}

fn next_base(volume: &Volume, group: GroupNo) -> BlockNo {
    volume.base(group.saturating_add(1))
}

/// Whether a file has had its share of a group.
fn is_boundary(volume: &Volume, index: u64) -> bool {
    index.checked_rem(u64::from(volume.maxbpg)).unwrap_or(0) == 0
}

/// The next group with at least the average of free blocks, from behind the one
/// that the file lies in; guessed from the logical block where there is none in
/// front of it.
fn roomy_group(
    view: &View<'_>,
    request: &Request,
    index: u64,
    previous: Option<BlockNo>,
) -> Option<GroupNo> {
    let volume = view.volume;
    let start = match previous.filter(|_| index != 0) {
        Some(previous) => volume.group_after(volume.group_of(previous), 1),
        None => {
            let share = request.lbn.get().checked_div(u64::from(volume.maxbpg)).unwrap_or(0);
            volume.group_after(request.group, share)
        }
    };
    let average = view.average(view.totals.nbfree);
    view.from(start).find(|(_, group)| u64::from(group.nbfree) >= average).map(|(number, _)| number)
}
