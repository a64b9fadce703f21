//! Makes a volume larger, as FreeBSD's `growfs` does (`sbin/growfs/growfs.c`): one that is not in use,
//! or, by the engine (`operate`), one that is.
//!
//! The last group is extended, groups are added behind it, and the summary area moves into new space
//! if it needs more fragments than it has. Everything is computed and checked before the first
//! write ([`plan`]); [`write`](mod@write) has the order of the writes, by which a crash leaves the
//! volume as it was, or one that a repair mends without a loss.

mod label;
mod new_groups;
mod old_groups;
mod plan;
mod size;
mod write;

pub(crate) use plan::{Plan, Usage};
pub(crate) use write::GrowthWriter;

use seekless_device::BlockDevice;
use seekless_fs::growth::Growth;
use seekless_fs::{FsError, Timestamp};
use seekless_units::ByteLen;
use std::sync::Arc;

/// The growth of the volume on a device to `size` bytes, of a device that is or will be as long.
/// Writes nothing.
///
/// # Errors
/// - [`FsError::Invalid`] for a smaller size, and one beyond the limits of the format;
/// - [`FsError::NoSpace`] for a size with too little new space for a fragment, for a further group,
///   or for the summary area, and one beyond the partition that a BSD label in the volume's second
///   sector gives it;
/// - [`FsError::Refused`] for a volume that was not unmounted;
/// - [`FsError::Unsupported`] for one with snapshots, with a journal, or with a superblock from
///   before 2002;
/// - [`FsError::Damaged`] and [`FsError::Corrupt`] for damage to the superblock, the summary area or
///   the groups that change;
/// - errors of the device.
pub fn plan_growth(device: Arc<dyn BlockDevice>, size: ByteLen) -> Result<Growth, FsError> {
    Ok(Plan::new(&device, size, Usage::Closed)?.growth)
}

/// Makes the volume on a device larger: `size` bytes, which the device has. `now` becomes the time
/// of superblock and changed groups.
///
/// # Errors
/// As [`plan_growth`], before anything is written, and errors of the device.
pub fn grow(
    device: Arc<dyn BlockDevice>,
    size: ByteLen,
    now: Timestamp,
) -> Result<Growth, FsError> {
    refuse_beyond(device.len(), size)?;
    let plan = Plan::new(&device, size, Usage::Closed)?;
    let mut writer = GrowthWriter::new(&plan, device, now);
    writer.prepare()?;
    writer.complete()?;
    Ok(plan.growth)
}

/// Refuses a size beyond the end of a device.
///
/// # Errors
/// [`FsError::NoSpace`].
pub(crate) fn refuse_beyond(device: ByteLen, size: ByteLen) -> Result<(), FsError> {
    if size > device {
        return Err(FsError::NoSpace(format!("the device has {device} bytes, not {size}")));
    }
    Ok(())
}
