//! Writing an image whose layout is decided, whatever its format.

use seekless_device::{BlockDevice, DeviceError, Window};
use seekless_fs::FsError;
use seekless_fs::plan::{NewVolume, Plan};
use seekless_images::targets::Target;
use seekless_images::{Error, Progress};
use seekless_units::{ByteLen, Lba};
use std::fmt::Display;
use std::sync::Arc;
use tracing::warn;

/// Destination of an image: a file of its own, or a part of a disk.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    /// The file or device.
    pub target: &'a Target,
    /// The byte that the image begins with; zero if it has the file to itself.
    pub start: ByteLen,
}

impl<'a> Destination<'a> {
    /// The whole of a file.
    #[must_use]
    pub fn whole(target: &'a Target) -> Self {
        Self { target, start: ByteLen::ZERO }
    }

    /// Extends the file as needed, and returns the destination as a device.
    fn device(self, size: ByteLen, progress: &dyn Progress) -> Result<Arc<dyn BlockDevice>, Error> {
        let end = ByteLen::new(self.start.get() + size.get());
        let device = self.target.device(end, progress)?;
        if self.start == ByteLen::ZERO {
            return Ok(device);
        }
        let part = Window::new(device, Lba::containing(self.start), size);
        let about = |error| Error::from(FsError::from(error)).about(self.target.path().display());
        part.map(|part| -> Arc<dyn BlockDevice> { Arc::new(part) }).map_err(about)
    }
}

/// Writes a planned image, and returns its length. `source` names the source in errors.
///
/// # Errors
/// Errors of the source, with its name, and of the device, with its path.
pub fn write_volume(
    volume: &dyn NewVolume,
    plan: &Plan,
    source: &dyn Display,
    place: Destination<'_>,
    progress: &dyn Progress,
) -> Result<ByteLen, Error> {
    write_volume_over((volume, plan), source, place, progress, |_| Ok(()))
}

/// As [`write_volume`], but `residue` writes the free blocks first.
///
/// # Errors
/// As [`write_volume`], and errors of `residue`.
pub(crate) fn write_volume_over(
    (volume, plan): (&dyn NewVolume, &Plan),
    source: &dyn Display,
    place: Destination<'_>,
    progress: &dyn Progress,
    residue: impl FnOnce(&dyn BlockDevice) -> Result<(), Error>,
) -> Result<ByteLen, Error> {
    let clamped = volume.clamped_times();
    if clamped > 0 {
        warn!(
            "{clamped} files have timestamps that their inodes cannot store; the nearest possible times are used"
        );
    }
    let size = volume.size();
    let device = place.device(size, progress)?;
    progress.begin(size);
    residue(device.as_ref())?;
    volume
        .write(plan, device.as_ref(), &|bytes| progress.advance(ByteLen::new(bytes)))
        .map_err(|error| write_error(error, source, place))?;
    progress.end();
    Ok(size)
}

/// The error of a volume's write: of the source, or of the device.
pub(crate) fn write_error(error: FsError, source: &dyn Display, place: Destination<'_>) -> Error {
    match error {
        // Damage is found where something is read.
        FsError::Device(DeviceError::Damaged { .. }) => Error::from(error).about(source),
        FsError::Device(_) => Error::from(error).about(place.target.path().display()),
        _ => Error::from(error).about(source),
    }
}
