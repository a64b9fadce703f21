//! Making an empty file system, as `newfs` does.
//!
//! Everything is decided from the options first ([`Geometry`]), then written
//! group by group: copies of the superblock, heads with their bitmaps, the
//! summary area, and the root directory. Source of the layout rules: FreeBSD
//! `sbin/newfs/mkfs.c` and `sys/ufs/ffs/fs.h`.

#![allow(clippy::as_conversions, clippy::arithmetic_side_effects, clippy::indexing_slicing)]

pub(crate) mod encode;
pub(crate) mod geometry;
pub(crate) mod group;
pub(crate) mod options;

pub use options::{MakeOptions, Optimization, Version};

pub(crate) use geometry::head_layout;
pub(crate) use group::{Counts, count};

use encode::Encoder;
use geometry::Geometry;
use group::GroupBuilder;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba};

/// Bytes of the root directory: one unit.
const ROOT_BYTES: u64 = 512;

/// Makes an empty file system on `device`, which must be all zeros and at least
/// as long as the options say. Returns the bytes that the file system takes,
/// which may be fewer: the last group is left out when it has no room for data.
///
/// # Errors
/// [`FsError::Invalid`] for options that do not go together,
/// [`FsError::NoSpace`] when the size is too small, and what the device gives.
pub fn make(device: &dyn BlockDevice, options: &MakeOptions) -> Result<ByteLen, FsError> {
    let geometry = Geometry::new(options)?;
    let encoder = Encoder { geometry: &geometry, options };
    let mut groups: Vec<GroupBuilder> =
        (0..geometry.ncg).map(|number| GroupBuilder::new(&geometry, number)).collect();
    let summaries = geometry.summary_frags();
    let root_at = u64::from(geometry.dblkno) + summaries;
    groups[0].take_frags(u64::from(geometry.dblkno), summaries);
    groups[0].take_frags(root_at, geometry.frags(ROOT_BYTES));
    // Inodes 0 and 1 are nobody's, 2 is the root.
    groups[0].take_inodes(3);
    groups[0].directories = 1;

    let put = |frag: u64, bytes: &[u8]| -> Result<(), FsError> {
        let at = frag * u64::from(geometry.fsize);
        device.write(Lba::containing(ByteLen::new(at)), bytes)?;
        Ok(())
    };
    let counts: Vec<group::Counts> = groups.iter().map(|group| group.counts(&geometry)).collect();
    let superblock = encoder.superblock(&counts);
    for group in &groups {
        put(geometry.in_group(group.number, geometry.sblkno), &superblock)?;
        put(geometry.in_group(group.number, geometry.cblkno), &encoder.group(group))?;
    }
    put(u64::from(geometry.dblkno), &encoder.summaries(&counts))?;
    put(root_at, &encoder.root_directory())?;
    put(u64::from(geometry.iblkno), &encoder.first_inodes(root_at))?;
    // The superblock last: it makes the device a file system.
    device.write(Lba::containing(ByteLen::new(geometry.superblock_at())), &superblock)?;
    device.flush()?;
    Ok(ByteLen::new(geometry.size * u64::from(geometry.fsize)))
}
