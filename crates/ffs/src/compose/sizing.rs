//! How large an image must be.

use super::demand::TreeDemand;
use super::options::BuildOptions;
use super::{RESERVED, take_fixed};
use crate::make::MakeOptions;
use crate::make::geometry::Geometry;
use crate::make::group::GroupBuilder;
use seekless_fs::FsError;
use seekless_fs::plan::{Demand, Spare};
use seekless_units::ByteLen;

/// The space and inodes that a tree needs.
#[derive(Clone, Copy)]
struct Need {
    blocks: u64,
    /// Including the root and the inodes that belong to no file.
    inodes: u64,
}

/// The options of the volume that holds the tree: of the requested size, or the smallest that also
/// keeps its reserve free.
pub(super) fn choose(
    options: &BuildOptions,
    demand: &TreeDemand<'_>,
) -> Result<MakeOptions, FsError> {
    let inodes = demand.objects() as u64 + u64::from(RESERVED) - 1;
    let need = Need { blocks: demand.total_blocks(), inodes };
    if options.is_fitted {
        return fit(&options.make, need, options.spare);
    }
    let sized = with_inodes(&options.make, need).and_then(|make| {
        if has_room(&make, need.blocks, 10_000)? { Ok(make) } else { Err(short(need)) }
    });
    sized.map_err(|error| match (error, fit(&options.make, need, Spare::default())) {
        (FsError::NoSpace(why), Ok(fitted)) => {
            FsError::NoSpace(format!("{why}; a volume of at least {} bytes is needed", fitted.size))
        }
        (error, _) => error,
    })
}

fn short(need: Need) -> FsError {
    FsError::NoSpace(format!("the contents take {} blocks and {} inodes", need.blocks, need.inodes))
}

fn fit(make: &MakeOptions, need: Need, spare: Spare) -> Result<MakeOptions, FsError> {
    let bsize = u64::from(make.block_size);
    let left = spare.left(make.minfree * 100)?;
    let blocks = need.blocks + spare.blocks(bsize)?;
    let too_large = || FsError::NoSpace("the contents do not fit in any volume".into());
    let size = u128::from(blocks) * u128::from(bsize) * 10_000 / u128::from(left);
    let size = u64::try_from(size).ok().filter(|&size| size < 1 << 62).ok_or_else(too_large)?;
    let mut size = (size + need.inodes * 256).next_multiple_of(bsize);
    loop {
        let sized = with_inodes(&MakeOptions { size: ByteLen::new(size), ..make.clone() }, need);
        // Too small for its metadata: a larger one may do.
        match sized.and_then(|make| Ok((has_room(&make, blocks, left)?, make))) {
            Ok((true, make)) => return Ok(make),
            Ok((false, _)) | Err(FsError::NoSpace(_)) => {
                let step = (size / 256).max(bsize).next_multiple_of(bsize);
                size =
                    size.checked_add(step).filter(|&size| size < 1 << 62).ok_or_else(too_large)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The options with as many inodes as are needed: a twentieth more than the
/// tree has for a fitted volume, those of `newfs` or more for any other.
fn with_inodes(make: &MakeOptions, need: Need) -> Result<MakeOptions, FsError> {
    let enough = |make: &MakeOptions| -> Result<bool, FsError> {
        let geometry = Geometry::new(make)?;
        Ok(u64::from(geometry.ncg) * u64::from(geometry.ipg) >= need.inodes)
    };
    if make.bytes_per_inode.is_some() || enough(make).is_ok_and(|enough| enough) {
        return if enough(make)? { Ok(make.clone()) } else { Err(short(need)) };
    }
    let wanted = need.inodes + need.inodes / 20 + 1;
    let density = (make.size.get() / wanted).clamp(1, i32::MAX as u64) as u32;
    let denser = MakeOptions { bytes_per_inode: Some(density), ..make.clone() };
    if enough(&denser)? { Ok(denser) } else { Err(short(need)) }
}

/// Whether `blocks` are at most a share of those for data, in hundredths of a percent.
fn has_room(make: &MakeOptions, blocks: u64, share: u64) -> Result<bool, FsError> {
    let free = free_blocks(&Geometry::new(make)?);
    Ok(u128::from(blocks) * 10_000 <= u128::from(free) * u128::from(share))
}

/// Whole blocks that an empty volume has for data. All metadata but the summary
/// area begin and end with a block.
pub(super) fn free_blocks(geometry: &Geometry) -> u64 {
    let g = geometry;
    let of = |group: u32| {
        let metadata = g.dblkno - if group == 0 { 0 } else { g.sblkno };
        (g.group_frags(group) - u64::from(metadata)) / u64::from(g.frag)
    };
    let all: u64 = (0..g.ncg).map(of).sum();
    all - g.summary_frags().div_ceil(u64::from(g.frag))
}

/// The groups with only the fixed metadata of every volume.
pub(super) fn empty_groups(geometry: &Geometry) -> impl Iterator<Item = GroupBuilder> + '_ {
    (0..geometry.ncg).map(|number| {
        let mut group = GroupBuilder::new(geometry, number);
        take_fixed(geometry, &mut group);
        group
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::Version;

    #[test]
    fn free_blocks_are_those_of_the_groups() {
        for version in [Version::Ufs1, Version::Ufs2] {
            for (bsize, fsize) in [(4096, 512), (8192, 8192), (32768, 4096), (65536, 8192)] {
                for size in [9_000_000, 64 << 20, 700 << 20] {
                    let mut make = MakeOptions::new(version, ByteLen::new(size));
                    (make.block_size, make.fragment_size) = (bsize, fsize);
                    let geometry = Geometry::new(&make).unwrap();
                    let counted: u64 = empty_groups(&geometry)
                        .map(|group| u64::from(group.counts(&geometry).free_blocks))
                        .sum();
                    assert_eq!(free_blocks(&geometry), counted, "{version:?} {bsize} {size}");
                }
            }
        }
    }
}
