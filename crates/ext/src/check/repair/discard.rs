//! Free blocks of a sound volume, whose contents the device need not keep.

use crate::check::checker::Checker;
use crate::superblock::Super;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_units::{ByteLen, Lba};
use std::io;
use std::ops::Range;

/// Discards the blocks that the check found free. A device that cannot do that keeps them.
///
/// # Errors
/// Errors of the device.
pub(super) fn discard_free(checker: &Checker, device: &dyn BlockDevice) -> Result<(), FsError> {
    let sb = checker.sb();
    let clusters = index(sb.clusters());
    // Block 0 of 1,024 bytes, in front of the first group, is that of a boot loader.
    let mut at = index(sb.first_block.get() / u64::from(sb.cluster_ratio).max(1));
    while at < clusters {
        let start = checker.used.next_clear(at).min(clusters);
        let end = (start..clusters).find(|&next| checker.used.get(next)).unwrap_or(clusters);
        if start < end && !discard(sb, device, wide(start)..wide(end))? {
            return Ok(());
        }
        at = end;
    }
    device.flush()?;
    Ok(())
}

/// Discards clusters; whether the device can.
fn discard(sb: &Super, device: &dyn BlockDevice, run: Range<u64>) -> Result<bool, FsError> {
    let ratio = u64::from(sb.cluster_ratio);
    let (first, end) = (run.start * ratio, (run.end * ratio).min(sb.blocks));
    debug_assert!(first >= sb.first_block.get() && first < end, "{first} to {end} are free");
    let size = u64::from(sb.block_size);
    match device.discard(Lba::containing(ByteLen::new(first * size)), (end - first) * size) {
        Err(DeviceError::Io { source, .. }) if source.kind() == io::ErrorKind::Unsupported => {
            Ok(false)
        }
        discarded => Ok(discarded.map(|()| true)?),
    }
}
