//! Images of any format, open for changes.

use super::{LiveMountOptions, Shared};
use seekless_cache::Counters;
use seekless_device::{BlockDevice, Clock};
use seekless_formats::{Mounting, Wall, claim};
use seekless_fs::FsError;
use std::sync::{Arc, Mutex, PoisonError};

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
