//! Makes an empty file system, as `newfs` does.
//!
//! Everything is decided from the options first ([`Geometry`]), then written
//! group by group: copies of the superblock, heads with their bitmaps, the
//! summary area, and the root directory. Source of the layout rules: FreeBSD
//! `sbin/newfs/mkfs.c` and `sys/ufs/ffs/fs.h`.

#![allow(clippy::as_conversions, clippy::indexing_slicing)]

pub(crate) mod encode;
pub(crate) mod geometry;
pub(crate) mod group;
pub(crate) mod options;

pub use options::{CheckHashes, MakeOptions, Optimization, Version};

pub(crate) use geometry::{HeadLayout, head_bytes, head_layout};
pub(crate) use group::{Counts, count};
pub(crate) use options::MOST_CONTIG;

use encode::Encoder;
use geometry::Geometry;
use group::GroupBuilder;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba};

/// Bytes of the root directory: one unit.
const ROOT_BYTES: u64 = 512;

/// Makes an empty file system on `device`, which must be all zeros and at least
/// as long as the options say. Returns the bytes that the file system takes:
/// whole fragments.
///
/// # Errors
/// [`FsError::Invalid`] for options that do not go together, [`FsError::NoSpace`] when the size is
/// too small, and errors of the device.
pub fn make(device: &dyn BlockDevice, options: &MakeOptions) -> Result<ByteLen, FsError> {
    let geometry = Geometry::new(options)?;
    write(device, &geometry, options)?;
    Ok(ByteLen::new(geometry.size * u64::from(geometry.fsize)))
}

/// Writes an empty file system of a shape.
fn write(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    options: &MakeOptions,
) -> Result<(), FsError> {
    let encoder = Encoder { geometry, options };
    let mut groups: Vec<GroupBuilder> =
        (0..geometry.ncg).map(|number| GroupBuilder::new(geometry, number)).collect();
    let summaries = geometry.summary_frags();
    // The first block that is wholly free.
    let root_at = (u64::from(geometry.dblkno) + summaries).next_multiple_of(geometry.frag.into());
    groups[0].take_frags(u64::from(geometry.dblkno), summaries);
    groups[0].take_frags(root_at, geometry.frags(ROOT_BYTES));
    // Inodes 0 and 1 belong to no file, 2 is the root.
    groups[0].take_inodes(3);
    groups[0].directories = 1;

    let put = |frag: u64, bytes: &[u8]| -> Result<(), FsError> {
        let at = frag * u64::from(geometry.fsize);
        device.write(Lba::containing(ByteLen::new(at)), bytes)?;
        Ok(())
    };
    let counts: Vec<group::Counts> = groups.iter().map(|group| group.counts(geometry)).collect();
    for group in &groups {
        let copy = geometry.in_group(group.number, geometry.sblkno);
        put(copy, &encoder.copy(&counts, group.number))?;
        put(geometry.in_group(group.number, geometry.cblkno), &encoder.group(group))?;
    }
    put(u64::from(geometry.dblkno), &encoder.summaries(&counts))?;
    put(root_at, &encoder.root_directory())?;
    put(u64::from(geometry.iblkno), &encoder.first_inodes(root_at))?;
    if let Some((at, sector)) = encoder.recovery() {
        device.write(Lba::containing(ByteLen::new(at)), &sector)?;
    }
    // The superblock last: it makes the device a file system.
    let at = geometry.superblock_at();
    let superblock = encoder.superblock(&counts, at);
    device.write(Lba::containing(ByteLen::new(at)), &superblock)?;
    device.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::FfsImage;
    use crate::superblock::Super;
    use seekless_device::SparseDevice;
    use seekless_fs::format::OpenOptions;
    use std::sync::Arc;

    /// A volume whose heads have no number for its inodes is read, but neither
    /// found in order nor changed.
    #[test]
    fn ufs1_of_too_many_inodes_a_group_is_in_no_order() {
        let options = MakeOptions::new(Version::Ufs1, ByteLen::new(1 << 30));
        let mut geometry = Geometry::new(&options).unwrap();
        assert!(geometry.ipg <= 0x7FFF && geometry.ipg > 0x7000, "{}", geometry.ipg);
        for (ipg, fine) in [(0x7F00, true), (0x8000, false)] {
            geometry.dblkno = geometry.iblkno + ipg / (geometry.bsize / 128 / geometry.frag);
            geometry.ipg = ipg;
            let device = Arc::new(SparseDevice::new(options.size));
            write(device.as_ref(), &geometry, &options).unwrap();
            FfsImage::open(device.clone(), OpenOptions::default()).unwrap();
            let writable = Super::read(device.as_ref(), false).unwrap().check_writable();
            let checked = crate::check(device);
            assert_eq!((writable.is_ok(), checked.is_ok()), (fine, fine), "{ipg}: {checked:?}");
            if !fine {
                let words = checked.unwrap_err().to_string();
                assert!(words.contains("fs_ipg"), "{words}");
            }
        }
    }
}
