//! Quotas written to their files.

use crate::quota::{QuotaKind, is_about_room};
use crate::{Live, Named};
use seekless_fs::FsError;
use seekless_units::Ino;

/// Records that are written in one operation: each may need a block, and indirect ones.
const AT_ONCE: usize = 64;

/// A record that could not be written, and the reason.
type Failed = ((QuotaKind, u32), FsError);

/// Writes usage and times to the quota files, in as many operations as that takes. A record that a
/// file cannot take, for want of room or because of damage in its way, is logged, and all others are
/// written: usage is counted again when the volume is next mounted with quotas.
///
/// # Errors
/// The first error of a record that is not about room; errors after which the volume takes no
/// changes.
pub(crate) fn write_quotas<F: Named>(live: &mut Live<F>) -> Result<(), FsError> {
    live.volume.core.settle_quotas();
    let Some(quotas) = live.volume.core.quotas() else { return Ok(()) };
    let changed = quotas.all_changed();
    let may_spend = std::mem::replace(&mut live.volume.core.may_spend_reserve, true);
    let mut done = Ok(());
    let mut lacking = Vec::new();
    for some in changed.chunks(AT_ONCE) {
        if live.volume.has_failed() || live.volume.is_closed() {
            break;
        }
        let mut failed = Vec::new();
        match live.change(|live| put_some(live, some, &mut failed)) {
            Ok(()) => {}
            // Room for the operation itself.
            Err(FsError::NoSpace(what)) if failed.is_empty() => {
                failed.extend(some.iter().map(|&one| (one, FsError::NoSpace(what.clone()))));
            }
            Err(error) if is_about_room(&error) => {}
            Err(error) => {
                done = Err(error);
                break;
            }
        }
        lacking.append(&mut failed);
    }
    live.volume.core.may_spend_reserve = may_spend;
    if let Some(quotas) = live.volume.core.quotas()
        && let Some(lacking) = quotas.begins_to_lack(&lacking)
    {
        tracing::warn!("usage is missing in a quota file: {lacking}");
    }
    let mut met = lacking.into_iter().map(|(_, error)| error);
    done.and_then(|()| met.find(|error| !is_about_room(error)).map_or(Ok(()), Err))
}

/// Writes some records, as far as that is possible, and notes the others in `failed`.
///
/// # Errors
/// That of a record for which there is no room: there may be some later. Errors after which the
/// changes of this operation cannot be kept.
fn put_some<F: Named>(
    live: &mut Live<F>,
    some: &[(QuotaKind, u32)],
    failed: &mut Vec<Failed>,
) -> Result<(), FsError> {
    let mut done = Ok(());
    // The operation may have been tried before.
    failed.clear();
    for &(kind, id) in some {
        let (format, core) = (&mut live.volume.format, &mut live.volume.core);
        // It is written already where the operation was tried before.
        let Some(quota) = core.quotas().and_then(|quotas| quotas.unwritten(kind, id)) else {
            continue;
        };
        match format.put_quota(core, kind, id, &quota) {
            Ok(()) => core.note_quota_written(kind, id),
            Err(FsError::NoSpace(what)) => {
                done = Err(FsError::NoSpace(what.clone()));
                failed.push(((kind, id), FsError::NoSpace(what)));
            }
            Err(error) if live.is_undone(&error) => failed.push(((kind, id), error)),
            Err(error) => return Err(error),
        }
    }
    done
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
