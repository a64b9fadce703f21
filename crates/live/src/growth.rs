//! Volumes that become larger while they are in use.

use crate::{Live, Named};
use seekless_fs::FsError;
use seekless_fs::growth::Growth;
use seekless_units::ByteLen;

/// The growth of a volume in use to a size, or without one to that of its device. All changes are
/// written; nothing of the growth is.
///
/// # Errors
/// [`FsError::Invalid`] for a smaller size, and one beyond the limits of the format;
/// [`FsError::NoSpace`] for one that leaves no room for more; [`FsError::Refused`] for a volume that
/// must be checked first; [`FsError::Unsupported`] for one with snapshots, and on other formats;
/// [`FsError::Damaged`] and [`FsError::Corrupt`] for damage to the parts that change; errors of the
/// device.
pub fn plan_growth<F: Named>(live: &mut Live<F>, size: Option<ByteLen>) -> Result<Growth, FsError> {
    live.volume.check_open()?;
    let planned = F::plan_growth(live, size);
    live.volume.noted(planned)
}

/// Makes a volume in use larger, with its device if that can become longer. Files stay open
/// meanwhile, and there is no other operation.
///
/// # Errors
/// As [`plan_growth`], and [`FsError::NoSpace`] for a size that the device does not have. After an
/// error of the device the volume is as it was, or it allows no change and must be checked.
pub fn grow<F: Named>(live: &mut Live<F>, size: Option<ByteLen>) -> Result<Growth, FsError> {
    live.volume.check_open()?;
    let grown = F::grow(live, size);
    if let Some(device) = live.volume.format.device() {
        live.device = device;
    }
    live.volume.noted(grown)
}
