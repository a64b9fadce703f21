//! The plan of a growth: all that it changes in groups that exist, and the counts of all groups.

use super::label::refuse_beyond_label;
use super::new_groups::NewGroups;
use super::old_groups::OldHead;
use super::size::grown;
use crate::alloc::{decode_summaries, encode_summary};
use crate::check::{sound_superblock, usable_after};
use crate::superblock::{SUMMARY, Super};
use crate::superblock_edit::SuperblockMut;
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, invalid, range, truncated};
use seekless_fs::growth::Growth;
use seekless_fs::{FsError, Location};
use seekless_placement::{GroupSummary, Totals};
use seekless_units::{ByteLen, GroupNo};
use std::sync::Arc;

/// Whether a volume is in use while it grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Usage {
    /// It is not.
    Closed,
    /// It is, and the superblock says so on the disk; all changes are there.
    Open {
        /// The flags of its superblock once it is closed.
        closed: u32,
    },
}

/// A growth that was checked.
pub(crate) struct Plan {
    /// The superblock before.
    pub(super) old: Super,
    /// The superblock afterwards.
    pub(super) new: Super,
    /// The bytes of the superblock before.
    superblock: Vec<u8>,
    /// The head of the last group of before, extended. The old summary area is still in use in it.
    pub(super) last: OldHead,
    /// If the summary area moves: the head of the group that had it, in which the area is free.
    pub(super) freed: Option<OldHead>,
    /// The summary area.
    pub(super) summaries: Vec<u8>,
    usage: Usage,
    pub(crate) growth: Growth,
}

impl Plan {
    /// Plans the growth of the volume on a device to a size in bytes.
    ///
    /// # Errors
    /// As [`plan_growth`](super::plan_growth).
    pub(crate) fn new(
        device: &Arc<dyn BlockDevice>,
        size: ByteLen,
        usage: Usage,
    ) -> Result<Self, FsError> {
        let sb = Super::read(device.as_ref(), false)?;
        sb.check_writable()?;
        if let Some(what) = sb.unkept_by_growth() {
            return Err(FsError::Unsupported(format!("growing a volume with {what}")));
        }
        if usage == Usage::Closed {
            sb.refuse_unclean()?;
        }
        refuse_beyond_label(device.as_ref(), size)?;
        let (old, superblock) = sound_superblock(device)?;
        check_places(&old)?;
        let mut new = grown(&old, size)?;
        let volume = Volume::with(Arc::clone(device), old.clone(), false);
        let mut all = listed(&volume)?;
        let last = GroupNo::new(old.ncg - 1);
        let mut last = OldHead::read(&volume, last, summary_of(&all, last)?)?;
        let moves = new.summaries != old.summaries;
        let home = home_of_summaries(&old)?;
        let mut freed = None;
        if home != last.number {
            freed = Some(OldHead::read(&volume, home, summary_of(&all, home)?)?);
        }
        freed.as_mut().unwrap_or(&mut last).refuse_free(&old, old.summaries)?;
        last.extend(&old, &new)?;
        let mut freed = moves.then(|| freed.unwrap_or_else(|| last.copy()));
        if let Some(freed) = &mut freed {
            freed.free(&new, old.summaries)?;
        }
        for head in [Some(&last), freed.as_ref()].into_iter().flatten() {
            if let Some(summary) = all.get_mut(index(head.number.get())) {
                *summary = head.summary(&new)?;
            }
        }
        let mut groups = NewGroups::new(&new, 0);
        for number in (old.ncg..new.ncg).map(GroupNo::new) {
            all.push(groups.summary(number)?);
        }
        new.tuning.totals = all.iter().copied().collect();
        let summaries = encode(&new, &all);
        let growth = Growth {
            before: ByteLen::new(old.size * u64::from(old.fsize)),
            after: ByteLen::new(new.size * u64::from(new.fsize)),
            groups_before: old.ncg,
            groups_after: new.ncg,
            moves_summary: moves,
            unused: ByteLen::new(size.get() - new.size * u64::from(new.fsize)),
        };
        let plan = Self { old, new, superblock, last, freed, summaries, usage, growth };
        let bytes = plan.edited(0, device.len().max(size)).sealed().to_vec();
        usable_after(&plan.new, bytes, device.len().max(size))?;
        Ok(plan)
    }

    /// The superblock of the grown volume on a device of this length, clean, as of a time in
    /// seconds of the epoch.
    pub(super) fn edited(&self, secs: i64, device: ByteLen) -> SuperblockMut<'_> {
        let mut bytes = SuperblockMut::of(&self.new, self.superblock.clone());
        bytes.set_size();
        bytes.set_device(device.get() / u64::from(self.new.fsize));
        bytes.set_summaries();
        bytes.set_totals(self.new.tuning.totals);
        bytes.set_time(secs);
        bytes.forget_mount();
        self.mark_closed(&mut bytes);
        bytes
    }

    /// The same as it is last of all: in use, if the volume is.
    pub(super) fn last(&self, secs: i64, device: ByteLen) -> SuperblockMut<'_> {
        let mut bytes = self.edited(secs, device);
        if self.usage != Usage::Closed {
            bytes.set_flags(self.old.flags);
            bytes.set_clean(false);
        }
        bytes
    }

    /// The superblock of before, as that of a volume that is not in use.
    pub(super) fn before(&self) -> SuperblockMut<'_> {
        let mut bytes = SuperblockMut::of(&self.old, self.superblock.clone());
        self.mark_closed(&mut bytes);
        bytes
    }

    /// Copies of the superblock are those of a volume that is not in use.
    fn mark_closed(&self, bytes: &mut SuperblockMut<'_>) {
        if let Usage::Open { closed } = self.usage {
            bytes.set_flags(closed);
        }
        bytes.set_clean(true);
    }
}

/// Checks that the parts of a group lie apart, so that a new one can be written.
fn check_places(sb: &Super) -> Result<(), FsError> {
    let room = u64::from(sb.cblkno - sb.sblkno) * u64::from(sb.fsize);
    if room < u64::from(sb.tuning.sbsize) {
        let place = Location::of("superblock");
        return Err(range("fs_sbsize", u64::from(sb.tuning.sbsize), room, place));
    }
    Ok(())
}

/// The counts of all groups by the summary area, whose sums are those of the superblock.
fn listed(volume: &Volume) -> Result<Vec<GroupSummary>, FsError> {
    let sb = &volume.sb;
    let mut area = vec![0; index(u64::from(sb.ncg) * SUMMARY)];
    volume.check_extent(sb.summaries, Location::of("summary area"))?;
    volume.read_bytes(sb.summaries.start, 0, &mut area)?;
    let all = decode_summaries(sb, &area)?;
    let totals: Totals = all.iter().copied().collect();
    if totals != sb.tuning.totals || sb.tuning.stray_totals {
        return Err(invalid("fs_cstotal", sb.tuning.totals.nbfree, Location::of("superblock")));
    }
    Ok(all)
}

fn summary_of(all: &[GroupSummary], number: GroupNo) -> Result<GroupSummary, FsError> {
    let place = Location::of("summary area").in_group(number);
    all.get(index(number.get())).copied().ok_or_else(|| truncated(place))
}

/// The group that has the summary area.
fn home_of_summaries(sb: &Super) -> Result<GroupNo, FsError> {
    let area = sb.summaries;
    let group = area.start.get() / u64::from(sb.fpg);
    let number = u32::try_from(group).ok().filter(|&number| number < sb.ncg).map(GroupNo::new);
    number
        .filter(|&number| area.end() <= sb.group_blocks(number).end())
        .ok_or_else(|| invalid("fs_csaddr", area.start.get(), Location::of("superblock")))
}

/// The bytes of the summary area.
fn encode(sb: &Super, all: &[GroupSummary]) -> Vec<u8> {
    let used = u64::from(sb.ncg) * SUMMARY;
    let mut area = vec![0; index(used.next_multiple_of(u64::from(sb.fsize)))];
    for (number, &summary) in (0..).map(GroupNo::new).zip(all) {
        encode_summary(sb.order, &mut area, number, summary);
    }
    area
}
