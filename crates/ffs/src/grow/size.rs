//! The size of a volume that has grown, and the place of its summary area.

use crate::make::geometry::{Geometry, without_small_group};
use crate::superblock::{SUMMARY, Super};
use seekless_fs::FsError;
use seekless_fs::field::low32;
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo};

/// The superblock of the volume after its growth to a size in bytes; totals and times are those of
/// before.
///
/// # Errors
/// [`FsError::Invalid`] for a smaller size, and one beyond the limits of the format;
/// [`FsError::NoSpace`] for one with too little new space.
pub(super) fn grown(old: &Super, size: ByteLen) -> Result<Super, FsError> {
    let (fsize, fpg) = (u64::from(old.fsize), u64::from(old.fpg));
    let own = ByteLen::new(old.size * fsize);
    if size < own {
        return Err(FsError::Invalid(format!(
            "{size} bytes are fewer than the {own} of the volume, which cannot become smaller"
        )));
    }
    let frags = size.get() / fsize;
    if frags == old.size {
        return Err(FsError::NoSpace(format!(
            "{size} bytes leave no room for a further fragment of {fsize} bytes behind the {own} of \
             the volume"
        )));
    }
    let mut geometry = Geometry::of(old);
    geometry.size = frags;
    geometry.check_limits()?;
    // The limit of inodes is one of groups, which have at least one each.
    geometry.ncg = low32(frags.div_ceil(fpg));
    let last = old.successor((frags, geometry.ncg), 0, None);
    let last = last.in_group(GroupNo::new(geometry.ncg - 1), last.dblkno).get();
    // A last group needs a fragment behind its metadata.
    let least = last - u64::from(geometry.ncg - 1) * fpg + 1;
    geometry.size = without_small_group(frags, fpg, least);
    if geometry.size <= old.size {
        return Err(FsError::NoSpace(format!(
            "{size} bytes leave no room for a further cylinder group, which begins with {} bytes of \
             metadata",
            (least - 1) * fsize
        )));
    }
    geometry.ncg = low32(geometry.size.div_ceil(fpg));
    let before = Geometry::of(old).data_frags();
    let new = old.successor((geometry.size, geometry.ncg), 0, None);
    let (place, bytes) = summary_area(old, &new)?;
    geometry.place_summaries(place);
    let mut new =
        old.successor((geometry.size, geometry.ncg), geometry.data_frags() - before, None);
    new.summaries = place;
    new.tuning.cssize = bytes;
    Ok(new)
}

/// The place of the summary area of a volume with more groups, and its length in bytes: its own as
/// long as that has room for all, otherwise the first new group, behind the metadata, or the new
/// end of the last old group.
fn summary_area(old: &Super, new: &Super) -> Result<(Extent, u32), FsError> {
    let bytes = u64::from(new.ncg) * SUMMARY;
    let frags = bytes.div_ceil(u64::from(new.fsize));
    if frags <= old.summaries.len {
        return Ok((old.summaries, old.tuning.cssize));
    }
    let first_new = GroupNo::new(old.ncg);
    let behind_metadata = (old.ncg < new.ncg)
        .then(|| (new.in_group(first_new, new.dblkno), new.group_blocks(first_new).end()));
    let extended = new.group_blocks(GroupNo::new(old.ncg - 1));
    let added = (BlockNo::new(old.size) - extended.start).next_multiple_of(u64::from(old.frag));
    let places = behind_metadata.into_iter().chain([(extended.start + added, extended.end())]);
    // FreeBSD refuses an area whose end is the end of its group (`validate_sblock`).
    let place = places.into_iter().find(|(start, end)| *start + frags < *end);
    let Some((start, _)) = place else {
        return Err(FsError::NoSpace(format!(
            "the summary area of {} cylinder groups needs {frags} fragments, and no group has as \
             many new ones in a row (grow by more)",
            new.ncg
        )));
    };
    let bytes = u32::try_from(frags * u64::from(new.fsize)).map_err(|_| {
        FsError::Invalid(format!("{} cylinder groups exceed the limit of the format", new.ncg))
    })?;
    Ok((Extent::new(start, frags), bytes))
}
