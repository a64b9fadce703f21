//! Quotas written to their files.

use crate::quota::QuotaKind;
use crate::{Live, Named};
use seekless_fs::FsError;
use seekless_units::Ino;

/// Records that are written in one operation: each may need a block, and indirect ones.
const AT_ONCE: usize = 64;

/// Writes usage and times to the quota files, in as many operations as that takes. Where a file has
/// no room for some, that is only logged: usage is counted again when the volume is next mounted
/// with quotas.
pub(crate) fn write_quotas<F: Named>(live: &mut Live<F>) -> Result<(), FsError> {
    live.volume.core.settle_quotas();
    let Some(quotas) = live.volume.core.quotas() else { return Ok(()) };
    let changed = quotas.all_changed();
    let may_spend = std::mem::replace(&mut live.volume.core.may_spend_reserve, true);
    let mut done = Ok(());
    let mut lacks = None;
    for some in changed.chunks(AT_ONCE) {
        if live.volume.has_failed() || live.volume.is_closed() {
            break;
        }
        match live.change(|live| put_some(live, some)) {
            Ok(()) => {}
            Err(error) if is_about_room(&error) => lacks = Some(error),
            Err(error) => {
                done = Err(error);
                break;
            }
        }
    }
    live.volume.core.may_spend_reserve = may_spend;
    if let Some(quotas) = live.volume.core.quotas()
        && quotas.begins_to_lack(lacks.is_some())
        && let Some(error) = lacks
    {
        tracing::warn!("a quota file lacks some usage: {error}");
    }
    done
}

/// Writes some records, as far as there is room.
fn put_some<F: Named>(live: &mut Live<F>, some: &[(QuotaKind, u32)]) -> Result<(), FsError> {
    let mut done = Ok(());
    for &(kind, id) in some {
        let (format, core) = (&mut live.volume.format, &mut live.volume.core);
        // It is written already where the operation was tried before.
        let Some(quota) = core.quotas().and_then(|quotas| quotas.unwritten(kind, id)) else {
            continue;
        };
        match format.put_quota(core, kind, id, &quota) {
            Ok(()) => core.note_quota_written(kind, id),
            Err(error) if is_about_room(&error) => done = Err(error),
            Err(error) => return Err(error),
        }
    }
    done
}

/// Whether an error concerns one record, and others may be written.
fn is_about_room(error: &FsError) -> bool {
    matches!(error, FsError::NoSpace(_) | FsError::TooLarge(_))
}

/// As [`write_quotas`], if a file is one of the quota files.
pub(crate) fn write_quotas_for<F: Named>(live: &mut Live<F>, ino: Ino) -> Result<(), FsError> {
    if live.volume.core.is_quota_file(ino) { write_quotas(live) } else { Ok(()) }
}

/// As [`write_quotas`], at intervals.
pub(crate) fn write_quotas_when_due<F: Named>(live: &mut Live<F>) -> Result<(), FsError> {
    let now = live.volume.core.cache.blocks().now();
    let quotas = live.volume.core.quotas();
    if quotas.is_some_and(|quotas| quotas.take_due(now)) { write_quotas(live) } else { Ok(()) }
}
