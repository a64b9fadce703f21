//! Logs from elsewhere: every crash state of them recovered and checked. The promises to a workload
//! are not known here.

use crate::driver::Run;
use crate::explore::{Exploration, Search, Subject, explore};
use crate::log::{Log, Step};
use crate::oracle::Promises;
use crate::target::Target;
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{Lba, SECTOR};
use std::sync::Arc;

/// The mark behind which a workload begins.
pub const BASE_MARK: &str = "base";
/// Bytes of a write with which an image is put into a log.
const CHUNK: usize = 65536;

/// A workload's log with the former contents of its image, so that it begins with a device of
/// zeros; [`BASE_MARK`] stands between.
#[must_use]
pub fn with_base(run: &Run) -> Log {
    let mut steps = Vec::new();
    for (chunk, n) in run.base.chunks(CHUNK).zip(0u64..) {
        if chunk.iter().any(|&byte| byte != 0) {
            let at = Lba::new(n * (CHUNK as u64 / SECTOR));
            steps.push(Step::Write { at, bytes: chunk.into(), fua: false });
        }
    }
    steps.extend([Step::Flush, Step::Mark(BASE_MARK.into())]);
    steps.extend(run.log.steps.iter().cloned());
    Log::new(steps)
}

/// Goes through the crash states of a log over the former contents of the device.
///
/// # Errors
/// [`DeviceError`] when the base cannot be read, or a write lies beyond it.
pub fn replay(
    target: &dyn Target,
    promises: Promises,
    log: &Log,
    base: &Arc<dyn BlockDevice>,
    search: &Search,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Exploration, DeviceError> {
    let subject = Subject { target, promises, log, run: None };
    explore(&subject, base, search, progress)
}
