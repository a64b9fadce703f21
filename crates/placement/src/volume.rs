//! What policies are told about a volume.

use seekless_units::{BlockNo, GroupNo};

/// The shape of a volume and its tuning, under the names of `struct fs`.
///
/// Block numbers count fragments from the start of the volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Volume {
    /// Groups.
    pub ncg: u32,
    /// Inodes in a group.
    pub ipg: u32,
    /// Fragments in a group.
    pub fpg: u32,
    /// Bytes in a fragment.
    pub fsize: u32,
    /// Bytes in a block.
    pub bsize: u32,
    /// Fragments in a block.
    pub frag: u32,
    /// Fragments in the volume.
    pub size: u64,
    /// Fragments for data in the volume.
    pub dsize: u64,
    /// Where a group's data begin, in fragments from the start of its metadata.
    pub dblkno: u32,
    /// UFS1: how far the metadata of each further group are shifted, in fragments.
    pub cgoffset: u32,
    /// UFS1: the bits of a group's number that do not shift.
    pub cgmask: u32,
    /// Block numbers in an indirect block.
    pub nindir: u64,
    /// Percent of the space kept from ordinary users.
    pub minfree: u32,
    /// Blocks that a file may take in one group before it must move on.
    pub maxbpg: u32,
    /// Blocks that 4.4BSD lays next to each other before it leaves a gap.
    pub maxcontig: u32,
    /// Longest cluster that is counted, in blocks; 0 when none are.
    pub contigsumsize: u32,
    /// Fragments at the start of a group's data that are for metadata.
    pub metaspace: u64,
    /// Fragments of the gap that 4.4BSD leaves for the disk to turn.
    pub rotdelay_frags: u32,
    /// Average length of files, in bytes.
    pub avgfilesize: u32,
    /// Average number of files in a directory.
    pub avgfpdir: u32,
}

impl Volume {
    /// `cgbase`: a group's first fragment.
    #[must_use]
    pub fn base(&self, group: GroupNo) -> BlockNo {
        BlockNo::new(u64::from(group.get()).saturating_mul(u64::from(self.fpg)))
    }

    /// `cgmeta`: where a group's data begin, and its zone for metadata with them.
    #[must_use]
    pub fn meta_zone(&self, group: GroupNo) -> BlockNo {
        let turn = u64::from(group.get() & !self.cgmask);
        let shift = u64::from(self.cgoffset).saturating_mul(turn);
        self.base(group).saturating_add(shift).saturating_add(u64::from(self.dblkno))
    }

    /// `cgdata`: where a group's zone for data begins.
    #[must_use]
    pub fn data_zone(&self, group: GroupNo) -> BlockNo {
        self.meta_zone(group).saturating_add(self.metaspace)
    }

    /// `dtog`: the group that holds a fragment.
    #[must_use]
    pub fn group_of(&self, block: BlockNo) -> GroupNo {
        let group = block.get().checked_div(u64::from(self.fpg)).unwrap_or(0);
        GroupNo::new(u32::try_from(group).unwrap_or(u32::MAX))
    }

    /// The group so many further on, beginning anew after the last.
    #[must_use]
    pub fn group_after(&self, group: GroupNo, by: u64) -> GroupNo {
        let sum = u64::from(group.get()).saturating_add(by);
        let wrapped = sum.checked_rem(u64::from(self.ncg)).unwrap_or(0);
        GroupNo::new(u32::try_from(wrapped).unwrap_or(0))
    }
}

/// `struct csum`: what a group has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupSummary {
    /// Directories.
    pub ndir: u32,
    /// Free blocks.
    pub nbfree: u32,
    /// Free inodes.
    pub nifree: u32,
    /// Free fragments that are not part of a free block.
    pub nffree: u32,
}

/// `struct csum_total`: what all groups have together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Directories.
    pub ndir: u64,
    /// Free blocks.
    pub nbfree: u64,
    /// Free inodes.
    pub nifree: u64,
    /// Free fragments that are not part of a free block.
    pub nffree: u64,
}

impl FromIterator<GroupSummary> for Totals {
    fn from_iter<I: IntoIterator<Item = GroupSummary>>(groups: I) -> Self {
        groups.into_iter().fold(Self::default(), |sum, one| Self {
            ndir: sum.ndir.saturating_add(u64::from(one.ndir)),
            nbfree: sum.nbfree.saturating_add(u64::from(one.nbfree)),
            nifree: sum.nifree.saturating_add(u64::from(one.nifree)),
            nffree: sum.nffree.saturating_add(u64::from(one.nffree)),
        })
    }
}

/// All that a policy decides from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// Its groups, in order.
    pub groups: &'a [GroupSummary],
    /// What they sum up to.
    pub totals: &'a Totals,
}

impl View<'_> {
    /// A total spread over all groups, rounded down.
    pub(crate) fn average(&self, total: u64) -> u64 {
        total.checked_div(u64::from(self.volume.ncg)).unwrap_or(0)
    }

    /// A group, or one that has nothing where there is none.
    pub(crate) fn group(&self, number: GroupNo) -> GroupSummary {
        usize::try_from(number.get())
            .ok()
            .and_then(|at| self.groups.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// All groups from `start` to the last one, then those in front of it.
    pub(crate) fn from(&self, start: GroupNo) -> impl Iterator<Item = (GroupNo, GroupSummary)> {
        let (start, end) = (start.get().min(self.volume.ncg), self.volume.ncg);
        (start..end).chain(0..start).map(GroupNo::new).map(|number| (number, self.group(number)))
    }

    /// `freespace`: fragments that are free beyond a reserve of so many percent
    /// of the space for data; negative when the reserve is touched.
    #[must_use]
    pub fn free_space(&self, percent: u32) -> i128 {
        let blocks = i128::from(self.totals.nbfree).saturating_mul(i128::from(self.volume.frag));
        let free = blocks.saturating_add(i128::from(self.totals.nffree));
        let reserve = u128::from(self.volume.dsize).saturating_mul(u128::from(percent)) / 100;
        free.saturating_sub(i128::try_from(reserve).unwrap_or(i128::MAX))
    }
}
