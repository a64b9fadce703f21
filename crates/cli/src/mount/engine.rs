//! Images of any format, open for changes.

use super::{LiveMountOptions, Shared};
use crate::image::FORMATS;
use seekless_cache::Counters;
use seekless_device::{BlockDevice, Clock};
use seekless_ext::{ExtImage, ExtLive};
use seekless_fat::FatLive;
use seekless_ffs::FfsLive;
use seekless_fs::{FsError, Timestamp};
use seekless_live::{Format, Live};
use std::sync::{Arc, Mutex, PoisonError};

/// An image that is open for changes, and what its cache counts.
pub(crate) struct Engine {
    pub(crate) live: Shared,
    pub(crate) counted: Arc<dyn Fn() -> Counters + Send + Sync>,
}

impl Engine {
    fn of<F: Format + 'static>(live: Live<F>) -> Self {
        let live = Arc::new(Mutex::new(live));
        let engine = Arc::clone(&live);
        let counted = move || *engine.lock().unwrap_or_else(PoisonError::into_inner).counters();
        Self { live, counted: Arc::new(counted) }
    }

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
        wall: impl Fn() -> Timestamp + Send + 'static,
    ) -> Result<Self, FsError> {
        let format = seekless_fs::format::claim(FORMATS, device.as_ref())?.name;
        if format != "fat" {
            options.check_not_fat()?;
        }
        match format {
            "fat" => {
                options.check_fat()?;
                let how = options.fat(wall);
                Ok(Self::of(FatLive::open(device, clock, options.config, how)?))
            }
            "ffs" => {
                if !options.moves_dirs {
                    let what = "dirmove=exdev on UFS (all moves are ordered there)";
                    return Err(FsError::Unsupported(what.into()));
                }
                if options.delays == Some(true) {
                    let what = "delalloc on UFS (only on ext images with extent)";
                    return Err(FsError::Unsupported(what.into()));
                }
                let how = options.ffs(ignore_checksums, wall);
                Ok(Self::of(FfsLive::open(device, clock, options.config, how)?))
            }
            "ext" => {
                let mut config = options.config;
                config.discipline = match options.discipline {
                    Some(discipline) => discipline,
                    None => ExtImage::discipline(device.as_ref())?,
                };
                let how = options.ext(wall);
                Ok(Self::of(ExtLive::open(device, clock, config, how)?))
            }
            other => Err(FsError::Unsupported(format!("changing {other} images while in use"))),
        }
    }
}
