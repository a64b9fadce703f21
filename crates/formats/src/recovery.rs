//! Recovery of an image from a crash while it is in use.

use crate::parameter::{Parameter, Value};
use crate::table::FindCorrections;
use crate::{InUse, KnownFormat};
use seekless_device::{BlockDevice, Snapshot, SnapshotOrigin};
use seekless_fs::FsError;
use seekless_fs::corrections::{Correction, Corrections};
use seekless_units::{Lba, SECTOR};
use std::sync::Arc;

/// The parameter of mounts of an image that a crash has left, to be recovered while it is in use.
pub(crate) const RECOVER: Parameter = Parameter {
    name: "recover",
    value: Value::OneOf(&["background"]),
    help: "of a volume that was in use with soft updates when the system crashed: check it, and \
           release what is lost, while it is in use",
};

/// Corrections that are made without letting others use the image.
const AT_ONCE: usize = 8;

/// Something that is done with a file system in use, while nobody else uses it.
pub type Step<'a> = &'a mut dyn FnMut(&mut dyn InUse) -> Result<(), FsError>;

/// The check of an image as a crash has left it, while it is in use.
pub struct BackgroundCheck {
    snapshot: Snapshot,
    corrections: FindCorrections,
}

impl BackgroundCheck {
    /// Takes a snapshot of an image, which is not in use yet. Returns the device by which it must
    /// be used from now on. Copies of overwritten blocks go to `store`, as
    /// [`SnapshotOrigin::take`] describes.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for a format that cannot be recovered while it is in use.
    pub fn of(
        known: &KnownFormat,
        device: Arc<dyn BlockDevice>,
        store: Option<Arc<dyn BlockDevice>>,
    ) -> Result<(Arc<SnapshotOrigin>, Self), FsError> {
        let corrections = known.corrections.ok_or_else(|| {
            FsError::Unsupported(format!("a check of {} while it is in use", known.called))
        })?;
        let (origin, snapshot) = SnapshotOrigin::take(device, store);
        Ok((Arc::new(origin), Self { snapshot, corrections }))
    }

    /// Checks the image as it was.
    ///
    /// # Errors
    /// As [`KnownFormat::check`]; [`FsError::Device`] if the snapshot has ended.
    pub fn corrections(self) -> Result<Corrections, FsError> {
        let snapshot: Arc<dyn BlockDevice> = Arc::new(self.snapshot);
        let found = (self.corrections)(Arc::clone(&snapshot));
        // If it has ended meanwhile, the findings are about parts that could not be read.
        snapshot.read(Lba::ZERO, &mut [0; SECTOR as usize])?;
        found
    }
}

/// Makes the corrections of an image that is recovered while it is in use, and ends the recovery.
/// `locked` performs a step on it; between two of them others may use it. One that fails without
/// having changed anything does not keep the others from being made.
///
/// # Errors
/// Those of the image, after which it must be checked when it is not in use.
pub fn recover(
    corrections: &Corrections,
    locked: &mut dyn FnMut(Step<'_>) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let failed = make(&corrections.all, locked, |live, correction| live.correct(correction))?;
    let sound = corrections.are_complete() && failed.is_none();
    locked(&mut |live| live.end_recovery(sound))?;
    failed.map_or(Ok(()), Err)
}

/// Makes corrections of an image in use that a check of a snapshot of it asks for, as [`recover`].
///
/// # Errors
/// As [`InUse::correct_in_use`].
pub fn release(
    corrections: &[Correction],
    locked: &mut dyn FnMut(Step<'_>) -> Result<(), FsError>,
) -> Result<(), FsError> {
    make(corrections, locked, |live, correction| live.correct_in_use(correction))?
        .map_or(Ok(()), Err)
}

/// Returns the first failure that did not end the others.
fn make(
    corrections: &[Correction],
    locked: &mut dyn FnMut(Step<'_>) -> Result<(), FsError>,
    correct: fn(&mut dyn InUse, &Correction) -> Result<(), FsError>,
) -> Result<Option<FsError>, FsError> {
    let mut failed = None;
    for some in corrections.chunks(AT_ONCE) {
        locked(&mut |live| {
            // Names in `lost+found` may need room from the reserve. The last caller may not have
            // been allowed to use it.
            live.spend_reserve(true);
            for correction in some {
                match correct(live, correction) {
                    Ok(()) => {}
                    Err(error @ (FsError::Device(_) | FsError::ReadOnly(_))) => return Err(error),
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(failed)
}
