//! Summaries of groups: changes of them, and the summary area.

use crate::superblock::{Order, SUMMARY, Super};
use seekless_fs::field::{index, range, truncated};
use seekless_fs::{FsError, Location};
use seekless_placement::GroupSummary;
use seekless_units::GroupNo;

/// The change of a group's summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Delta {
    pub(crate) ndir: i32,
    pub(crate) nbfree: i32,
    pub(crate) nifree: i32,
    pub(crate) nffree: i32,
}

impl Delta {
    /// Both changes together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            ndir: self.ndir + other.ndir,
            nbfree: self.nbfree + other.nbfree,
            nifree: self.nifree + other.nifree,
            nffree: self.nffree + other.nffree,
        }
    }

    /// The summary after the change; `None` when a count would leave its range,
    /// because it was wrong before.
    pub(crate) fn of_group(self, old: GroupSummary) -> Option<GroupSummary> {
        Some(GroupSummary {
            ndir: old.ndir.checked_add_signed(self.ndir)?,
            nbfree: old.nbfree.checked_add_signed(self.nbfree)?,
            nifree: old.nifree.checked_add_signed(self.nifree)?,
            nffree: old.nffree.checked_add_signed(self.nffree)?,
        })
    }
}

/// The summary (`struct csum`) at byte `at`.
pub(super) fn read(order: Order, bytes: &[u8], at: usize) -> Option<GroupSummary> {
    let word = |n: usize| order.get_u32(bytes, at.checked_add(n)?);
    Some(GroupSummary { ndir: word(0)?, nbfree: word(4)?, nifree: word(8)?, nffree: word(12)? })
}

/// Writes a summary at byte `at`.
pub(super) fn write(order: Order, bytes: &mut [u8], at: usize, summary: GroupSummary) {
    let words = [summary.ndir, summary.nbfree, summary.nifree, summary.nffree];
    for (at, word) in (at..).step_by(4).zip(words) {
        order.put_u32(bytes, at, word);
    }
}

fn place_of(group: u32) -> usize {
    index(u64::from(group) * SUMMARY)
}

/// The summaries of all groups, from the bytes of the summary area.
///
/// # Errors
/// [`FsError::Corrupt`] when the area is too short, or a group has more than
/// fits in one.
pub(crate) fn decode_summaries(sb: &Super, area: &[u8]) -> Result<Vec<GroupSummary>, FsError> {
    let blocks = sb.fpg / sb.frag;
    let decode = |number: u32| {
        let place = Location::of("summary area").in_group(GroupNo::new(number));
        let summary = read(sb.order, area, place_of(number)).ok_or_else(|| truncated(place))?;
        for (field, value, limit) in [
            ("cs_ndir", summary.ndir, sb.ipg),
            ("cs_nbfree", summary.nbfree, blocks),
            ("cs_nifree", summary.nifree, sb.ipg),
            ("cs_nffree", summary.nffree, sb.fpg),
        ] {
            if value > limit {
                return Err(range(field, u64::from(value), u64::from(limit), place));
            }
        }
        Ok(summary)
    };
    (0..sb.ncg).map(decode).collect()
}

/// Writes a group's summary into the bytes of the summary area.
pub(crate) fn encode_summary(order: Order, area: &mut [u8], group: GroupNo, summary: GroupSummary) {
    let at = place_of(group.get());
    debug_assert!(at + place_of(1) <= area.len(), "the area has a place for group {group}");
    write(order, area, at, summary);
}
