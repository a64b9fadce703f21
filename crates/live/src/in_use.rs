//! Corrections of a volume in use that keeps snapshots of itself, one of which was checked.

use crate::features::Recovery;
use crate::{Live, Named, Names};
use seekless_fs::FsError;
use seekless_fs::corrections::Correction;

/// Makes a correction that a check of a snapshot asks for, which was taken while the volume was in
/// use: one that is right after any change since. Each is made once.
///
/// # Errors
/// As any change; [`FsError::Unsupported`] for other corrections, and on a volume that keeps no
/// snapshots; [`FsError::Refused`] while it is recovered from a crash, and once it must be checked
/// when it is not in use; [`FsError::Invalid`] for inodes, blocks and groups that it does not have.
pub fn correct_in_use<F: Named>(
    live: &mut Live<F>,
    correction: &Correction,
) -> Result<(), FsError> {
    let exists = recovery_in_use(live)?.has(correction);
    if !correction.allows_renames() {
        return Err(FsError::Unsupported("corrections of names of directories in use".into()));
    }
    if !exists {
        return Err(FsError::Invalid(format!("{correction:?}: it is not on the volume")));
    }
    live.change(|live| F::Names::correct(live, correction))
}

/// Ends a check of such a snapshot. If the volume is `sound` now, it is marked clean when it is
/// closed; else it is marked at once as one that must be checked.
///
/// # Errors
/// As [`correct_in_use`].
pub fn end_check_in_use<F: Named>(live: &mut Live<F>, sound: bool) -> Result<(), FsError> {
    recovery_in_use(live)?.end_check(sound);
    if sound { Ok(()) } else { live.volume.mark_in_use() }
}

fn recovery_in_use<F: Named>(live: &mut Live<F>) -> Result<&mut F::Recovery, FsError> {
    let recovery = live
        .recovery()
        .ok_or_else(|| FsError::Unsupported("corrections: it keeps no snapshots".into()))?;
    recovery.accept_check()?;
    Ok(recovery)
}
