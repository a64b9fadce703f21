//! Quotas written to their files.

use crate::{Live, Named};
use seekless_fs::FsError;
use seekless_units::Ino;

/// Writes usage and times to the quota files. Where a file has no room for some, that is only
/// logged: usage is counted again when the volume is next mounted with quotas.
pub(crate) fn write_quotas<F: Named>(live: &mut Live<F>) -> Result<(), FsError> {
    let volume = &mut live.volume;
    volume.core.settle_quotas();
    let is_current = volume.core.quotas().is_none_or(|quotas| !quotas.any_changed());
    if is_current || volume.has_failed() || volume.is_closed() {
        return Ok(());
    }
    let may_spend = std::mem::replace(&mut volume.core.may_spend_reserve, true);
    let put = live.change(|live| live.volume.format.put_quotas(&mut live.volume.core));
    live.volume.core.may_spend_reserve = may_spend;
    match put {
        Err(error @ (FsError::NoSpace(_) | FsError::TooLarge(_))) => {
            tracing::warn!("a quota file lacks some usage: {error}");
            Ok(())
        }
        put => put,
    }
}

/// As [`write_quotas`], if a file is one of the quota files.
pub(crate) fn write_quotas_for<F: Named>(live: &mut Live<F>, ino: Ino) -> Result<(), FsError> {
    if live.volume.core.is_quota_file(ino) { write_quotas(live) } else { Ok(()) }
}
