//! Growth of a volume in use.

use super::recovery::{self, is_clean};
use super::take::within_operation;
use super::{Ffs, FfsLive};
use crate::grow::{GrowthWriter, Plan, Usage, refuse_beyond};
use seekless_fs::FsError;
use seekless_fs::growth::Growth;
use seekless_fs::operate::Operate;
use seekless_fs::term::{Term, Text};
use seekless_live::Progress;
use seekless_units::ByteLen;
use std::sync::Arc;

/// Makes a volume in use larger: `size` bytes, or all of its device. All changes are written first.
///
/// # Errors
/// As [`seekless_live::grow`].
pub(super) fn grow(live: &mut FfsLive, size: Option<ByteLen>) -> Result<Growth, FsError> {
    let plan = planned(live, size)?;
    let (format, core) = live.parts();
    let below = Arc::clone(format.copies.device().below());
    refuse_beyond(below.extend(plan.growth.after)?, plan.growth.after)?;
    let mut writer = GrowthWriter::new(&plan, below, core.now());
    writer.prepare()?;
    let done = writer.complete().and_then(|()| format.reopen(core));
    if let Err(error) = &done {
        live.fail(error);
    }
    done.map(|()| plan.growth)
}

/// The growth that [`grow`] makes. All changes are written.
///
/// # Errors
/// As [`seekless_live::plan_growth`].
pub(super) fn planned(live: &mut FfsLive, size: Option<ByteLen>) -> Result<Plan, FsError> {
    let (format, _) = live.parts();
    refuse_unsound(format)?;
    live.sync()?;
    // Without a snapshot there is no reserve, unless one was removed since the volume was opened.
    within_operation(live, Ffs::release_reserve)?;
    live.sync()?;
    let (format, core) = live.parts();
    // The totals of the summary area, which were written with it.
    format.write_superblock(core, false)?;
    let below = format.copies.device().below();
    let size = match size {
        Some(size) => size,
        None => below.extend(ByteLen::ZERO)?,
    };
    let (closed, _) = recovery::closed(format.progress, &format.sb);
    Plan::new(below, size, Usage::Open { closed })
}

/// Refuses a volume that was not clean when it was opened, and is not by now.
fn refuse_unsound(format: &Ffs) -> Result<(), FsError> {
    let why = match format.progress {
        Progress::None if is_clean(&format.sb) => return Ok(()),
        Progress::Sound => return Ok(()),
        Progress::UnderWay => "it is being recovered".into(),
        Progress::None | Progress::NeedsCheck => {
            Text::from("it must be checked first: unmount it, and run ").then(Term::Repair)
        }
    };
    Err(FsError::Refused(why))
}
