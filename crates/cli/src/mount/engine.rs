//! Images of any format, open for changes.

use super::{LiveMountOptions, Shared};
use seekless_cache::{Counters, Discipline};
use seekless_device::{BlockDevice, Clock, WriteQueue};
use seekless_formats::{Mounting, Wall, claim};
use seekless_fs::FsError;
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of writes that wait for the device.
const MOST_QUEUED: usize = 64 << 20;

/// A queue for the writes of an image, under a discipline that writes and flushes within
/// operations: other operations then do not wait for them.
///
/// # Errors
/// As [`Engine::open`].
pub(crate) fn write_queue(
    device: &Arc<dyn BlockDevice>,
    options: &LiveMountOptions,
) -> Result<Option<Arc<WriteQueue>>, FsError> {
    let known = claim(device.as_ref())?;
    let discipline = options.how.discipline_of(known, device.as_ref())?;
    let writes_within = matches!(discipline, Discipline::Sync | Discipline::Normal);
    Ok(writes_within.then(|| Arc::new(WriteQueue::new(Arc::clone(device), MOST_QUEUED))))
}

/// An image that is open for changes, and what its cache counts.
pub(crate) struct Engine {
    pub(crate) live: Shared,
    pub(crate) counted: Arc<dyn Fn() -> Counters + Send + Sync>,
}

impl Engine {
    /// Opens an image for changes, of a format that can be changed while it is in
    /// use; `wall` is the time of day.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for other formats; what the format says otherwise.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: &LiveMountOptions,
        ignore_checksums: bool,
        wall: Wall,
    ) -> Result<Self, FsError> {
        let known = claim(device.as_ref())?;
        let mounting = Mounting { ignore_checksums, ..options.how.clone() };
        let live = Arc::new(Mutex::new((known.open_live)(device, clock, &mounting, wall)?));
        let engine = Arc::clone(&live);
        let counted = move || *engine.lock().unwrap_or_else(PoisonError::into_inner).counters();
        Ok(Self { live, counted: Arc::new(counted) })
    }
}
