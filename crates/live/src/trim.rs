//! Free blocks of a volume in use, of which the device is told on request (`FITRIM`).

use crate::discards::discard;
use crate::{DataArea, Live, Named};
use seekless_fs::FsError;
use seekless_fs::operate::{Operate, Trim};
use seekless_units::{BlockNo, Extent};

/// Most bytes of the volume that are looked at while nobody else uses it.
const AT_ONCE: u64 = 1 << 30;

/// As [`Operate::trim_some`].
pub(crate) fn trim_some<F: Named>(live: &mut Live<F>, trim: &mut Trim) -> Result<bool, FsError> {
    let block = u64::from(live.volume.format.limits().unit);
    let area =
        live.volume.format.data_area().ok_or_else(|| {
            FsError::Refused("the volume was not clean when it was mounted".into())
        })?;
    check_range(trim, area, block)?;
    let Some(part) = next_part(trim, area, block) else { return Ok(false) };
    // What is free in memory may be in use on the disk until then.
    live.sync()?;
    for run in live.volume.format.free_parts(&mut live.volume.core, part)? {
        let len = run.len * block;
        if len >= trim.least {
            discard(&*live.device, block, run)?;
            trim.trimmed += len;
        }
    }
    trim.next = part.end().get() * block;
    Ok(next_part(trim, area, block).is_some())
}

/// Checks that a range begins on the volume, and has at least a unit, as Linux' file systems do.
fn check_range(trim: &Trim, area: DataArea, block: u64) -> Result<(), FsError> {
    let begins_on_volume = trim.next < area.blocks.end().get() * block;
    let len = trim.end.checked_sub(trim.next);
    if begins_on_volume && len.is_some_and(|len| len >= area.unit * block) {
        return Ok(());
    }
    Err(FsError::Invalid(format!("bytes {} to {} of a volume to trim", trim.next, trim.end)))
}

/// The whole units of a volume that come next in a range. `block` is the number of bytes in a block.
fn next_part(trim: &Trim, area: DataArea, block: u64) -> Option<Extent> {
    let first = area.blocks.start.get();
    let within = |block: u64| block.clamp(first, area.blocks.end().get()) - first;
    let start = within(trim.next.div_ceil(block)).next_multiple_of(area.unit);
    let end = within(trim.end / block) / area.unit * area.unit;
    let most = (AT_ONCE / block).max(area.unit) / area.unit * area.unit;
    let end = end.min(start + most);
    (start < end).then(|| Extent::new(BlockNo::new(first + start), end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trim(next: u64, end: u64) -> Trim {
        Trim { next, end, least: 0, trimmed: 0 }
    }

    fn area(start: u64, len: u64, unit: u64) -> DataArea {
        DataArea { blocks: Extent::new(BlockNo::new(start), len), unit }
    }

    #[test]
    fn a_part_has_whole_units_of_the_range() {
        let part = |trim: Trim, area: DataArea| {
            next_part(&trim, area, 512).map(|part| (part.start.get(), part.len))
        };
        let fat = area(33, 80, 8);
        assert_eq!(part(trim(0, u64::MAX), fat), Some((33, 80)));
        // From within a unit to within another one.
        assert_eq!(part(trim(34 * 512, 60 * 512), fat), Some((41, 16)));
        assert_eq!(part(trim(34 * 512, 48 * 512), fat), None);
        assert_eq!(part(trim(33 * 512 - 1, 41 * 512), fat), Some((33, 8)));
        assert_eq!(part(trim(33 * 512 + 1, 41 * 512), fat), None);
        assert_eq!(part(trim(113 * 512, u64::MAX), fat), None);
        assert_eq!(part(trim(0, 512), fat), None);
    }

    #[test]
    fn a_range_begins_on_the_volume_and_has_a_unit() {
        let fat = area(33, 80, 8);
        let allowed = |next, end| check_range(&trim(next, end), fat, 512).is_ok();
        let end = 113 * 512;
        assert!(allowed(0, u64::MAX) && allowed(end - 1, u64::MAX) && allowed(0, 8 * 512));
        assert!(!allowed(end, u64::MAX) && !allowed(u64::MAX, u64::MAX));
        assert!(!allowed(0, 8 * 512 - 1) && !allowed(8 * 512, 0));
    }

    #[test]
    fn parts_follow_each_other_to_the_end() {
        let area = area(1, (5 << 20) + 3, 1);
        let (mut trim, mut end) = (trim(0, u64::MAX), 1);
        while let Some(part) = next_part(&trim, area, 1024) {
            assert_eq!(part.start.get(), end);
            assert!(part.len <= AT_ONCE / 1024);
            end = part.end().get();
            trim.next = end * 1024;
        }
        assert_eq!(end, area.blocks.end().get());
    }
}
