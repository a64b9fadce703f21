//! Writing an image whose layout is decided, whatever its format.

use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::warning;
use seekless_device::{BlockDevice, DeviceError, Window};
use seekless_ext::Builder;
use seekless_ffs as ufs;
use seekless_fs::FsError;
use seekless_fs::plan::Plan;
use seekless_images::target::Target;
use seekless_units::{ByteLen, Lba};
use std::fmt::Display;
use std::sync::Arc;

/// A volume whose layout is decided.
pub(crate) trait Built {
    /// Files whose times it cannot hold.
    fn clamped_times(&self) -> usize;
    /// Its length.
    fn size(&self) -> ByteLen;
    /// Writes it.
    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError>;
}

macro_rules! built {
    ($builder:ty) => {
        impl Built for $builder {
            fn clamped_times(&self) -> usize {
                self.clamped_times()
            }
            fn size(&self) -> ByteLen {
                self.size()
            }
            fn write(
                &self,
                plan: &Plan,
                device: &dyn BlockDevice,
                progress: &(dyn Fn(u64) + Sync),
            ) -> Result<(), FsError> {
                self.write(plan, device, progress)
            }
        }
    };
}

built!(Builder<'_>);
built!(ufs::Builder<'_>);
built!(seekless_fat::Builder<'_>);

/// Where an image is written: to a file of its own, or to a part of a disk.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    /// The file or device.
    pub(crate) target: &'a Target,
    /// The byte that the image begins with; zero if it has the file to itself.
    pub(crate) start: ByteLen,
}

impl<'a> Destination<'a> {
    /// The whole of a file.
    pub(crate) fn whole(target: &'a Target) -> Self {
        Self { target, start: ByteLen::ZERO }
    }

    /// The device that is just there, after the file has been made long enough.
    fn device(self, size: ByteLen, global: &Global) -> Result<Arc<dyn BlockDevice>, Failure> {
        let end = ByteLen::new(self.start.get() + size.get());
        let device = self.target.device(end, &progress::shown(global))?;
        if self.start == ByteLen::ZERO {
            return Ok(device);
        }
        let part = Window::new(device, Lba::containing(self.start), size);
        let about = |error| Failure::from(FsError::from(error)).about(self.target.path().display());
        part.map(|part| -> Arc<dyn BlockDevice> { Arc::new(part) }).map_err(about)
    }
}

/// Writes a planned image; `source` names what it is made of. Its length.
pub(crate) fn write_built(
    builder: &dyn Built,
    plan: &Plan,
    source: &dyn Display,
    place: Destination<'_>,
    global: &Global,
) -> Result<ByteLen, Failure> {
    let clamped = builder.clamped_times();
    if clamped > 0 {
        warning!(
            "{clamped} files have timestamps that their inodes cannot store; the nearest possible times are used"
        );
    }
    let size = builder.size();
    let device = place.device(size, global)?;
    let bar = progress::bytes(global, size);
    builder.write(plan, device.as_ref(), &|bytes| bar.inc(bytes)).map_err(|error| match error {
        // Damage is found where something is read.
        FsError::Device(DeviceError::Damaged { .. }) => Failure::from(error).about(source),
        FsError::Device(_) => Failure::from(error).about(place.target.path().display()),
        _ => Failure::from(error).about(source),
    })?;
    bar.finish_and_clear();
    Ok(size)
}
