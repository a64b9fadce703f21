//! Whether an image is in order, and its repair, whatever its format.

use crate::{fsck, journal_device};
use seekless_device::BlockDevice;
use seekless_ext::CheckOptions;
use seekless_formats::{Argument, EXT, FFS, FORMATS as FAMILIES, KnownFormat, to_check};
use seekless_fs::FsError;
use seekless_fs::check::{Outcome, Repaired, Report};
use seekless_fs::field::wide;
use seekless_fs::quota::QuotaSelection;
use seekless_fs::term::{Term, Text};
use seekless_images::check_mounted::MountedVolume;
use seekless_images::snapshot::Temporary;
use seekless_images::{Error, FORMATS, Place, Stop, refuse_others};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use tracing::warn;

/// The mode of a check, as `-n`, `-p` and `-y` of fsck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing.
    Check,
    /// Errors that a crash may leave are repaired; where anything else is found, nothing is
    /// written.
    Preen,
    /// Everything is repaired.
    Repair,
}

/// The findings of a check, and its outcome.
pub struct Examined {
    /// The format as which the image was checked.
    pub format: &'static KnownFormat,
    /// The findings.
    pub report: Report,
    /// The state of the image now.
    pub outcome: Outcome,
    /// Writes that a repair made.
    pub writes: u64,
    /// Whether a UFS volume in order has quota files with other usage than its files, where nothing
    /// was repaired. That is no finding: FreeBSD counts usage again at each boot.
    pub has_stale_quotas: bool,
}

/// Whether the quota files of a UFS volume have other usage than its files. A check of quotas reports
/// quota files that cannot be read. Repairs leave this out: a recovery by a journal reads little of
/// the volume, and this reads all inodes.
fn has_stale_quotas(format: &KnownFormat, device: Arc<dyn BlockDevice>, outcome: Outcome) -> bool {
    if !format.is(&FFS) || outcome == Outcome::Left {
        return false;
    }
    let Some(operations) = format.quotas else { return false };
    let compared = (operations.compare)(device, &QuotaSelection::default());
    compared.is_ok_and(|comparison| !comparison.differences.is_empty())
}

/// Checks an image, and repairs it in the modes that do, as arguments for its format's
/// [`repair_parameters`](KnownFormat::repair_parameters) say. An ext volume with its journal on
/// another device has it at `journal`; as e2fsck has it, others ignore that.
///
/// # Errors
/// [`ErrorKind::Usage`](seekless_images::ErrorKind) for an argument that the format has no
/// parameter for, or with an invalid value, and for a journal of another format,
/// [`ErrorKind::Unsupported`](seekless_images::ErrorKind) for a file that is no image, or an image
/// that is not written, [`ErrorKind::Corrupt`](seekless_images::ErrorKind) where not even a
/// superblock can be read, [`ErrorKind::System`](seekless_images::ErrorKind), also for an image
/// that is to be repaired and is in use.
pub fn examine(
    path: &Path,
    place: &Place,
    mode: Mode,
    arguments: &[Argument],
    journal: Option<&Path>,
) -> Result<Examined, Error> {
    let device = match mode {
        Mode::Check => seekless_images::device(path, place)?,
        Mode::Preen | Mode::Repair => seekless_images::device_locked(path, place)?,
    };
    examine_device(path, device, mode, arguments, journal)
}

/// Checks an image as [`Mode::Check`] until the stop is requested, which is an error.
///
/// # Errors
/// As [`examine`]; [`ErrorKind::System`](seekless_images::ErrorKind) after the request.
pub fn examine_until(
    path: &Path,
    place: &Place,
    journal: Option<&Path>,
    stop: &Stop,
) -> Result<Examined, Error> {
    stop.while_reading(path.display(), || {
        let device = stop.device(seekless_images::device(path, place)?);
        examine_device(path, device, Mode::Check, &[], journal)
    })
}

fn examine_device(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    mode: Mode,
    arguments: &[Argument],
    journal: Option<&Path>,
) -> Result<Examined, Error> {
    let format = to_check(device.as_ref());
    if journal.is_some() && !format.is(&EXT) {
        let what = format!("{}: only ext images have a journal on another device", path.display());
        return Err(Error::usage(what));
    }
    for argument in arguments {
        let name = argument.name();
        let Some(parameter) = format.repair_parameter(name) else {
            let has = |known: &&&KnownFormat| known.repair_parameter(name).is_some();
            let others: Vec<_> = FAMILIES.iter().filter(has).collect();
            let families: Vec<_> = others.iter().map(|known| known.family).collect();
            let families = families.join(" and ");
            let parameter = others.iter().find_map(|known| known.repair_parameter(name));
            return Err(Error::usage(match parameter {
                Some(parameter) => Text::from(Term::FormatOption(parameter.name))
                    .then(format!(" is for {families} images")),
                None => format!("no format has an option {name} for repairs").into(),
            }));
        };
        let invalid = |why| Error::usage(format!("{argument}: {why}"));
        parameter.check(argument).map_err(invalid)?;
    }
    // With neither a superblock nor a copy of one, which UFS looks for, it may be something
    // else.
    let about = |error: FsError| {
        let may_be_other = format.is(&FFS) && matches!(error, FsError::Corrupt { .. });
        match refuse_others(path, device.as_ref(), FORMATS, "") {
            Err(error) if may_be_other => error,
            _ => Error::from(error).about(path.display()),
        }
    };
    if format.is(&EXT)
        && let Some(journal) =
            journal_device::open(path, device.as_ref(), journal, mode, mode == Mode::Preen)?
    {
        let options = CheckOptions { journal: Some(journal), ..CheckOptions::default() };
        return fsck::examine(&device, mode, &options).map_err(about);
    }
    let repaired = match mode {
        Mode::Check => {
            let report = (format.check)(device.clone()).map_err(about)?;
            let outcome = if report.is_clean() { Outcome::Clean } else { Outcome::Left };
            let has_stale_quotas = has_stale_quotas(format, device, outcome);
            return Ok(Examined { format, report, outcome, writes: 0, has_stale_quotas });
        }
        Mode::Preen => (format.preen)(device.clone(), arguments).map_err(about)?,
        Mode::Repair => (format.repair)(device.clone(), arguments).map_err(about)?,
    };
    let Repaired { report, outcome, writes, .. } = repaired;
    Ok(Examined { format, report, outcome, writes, has_stale_quotas: false })
}

/// The snapshot that a check of a mounted volume looks at, as FreeBSD's fsck names it.
const SNAPSHOT: &str = "fsck_snapshot";

/// Checks a file system while it is mounted by this project for changes: takes a snapshot in `.snap`,
/// which is made if there is none, checks that, and removes it. If that is interrupted, the next check
/// removes it.
///
/// # Errors
/// As [`Temporary::take`], so [`ErrorKind::System`](seekless_images::ErrorKind) while another one is
/// under way; as [`examine`].
pub fn examine_mounted(mount: &Path) -> Result<Examined, Error> {
    through_snapshot(mount, |path| examine(path, &Place::default(), Mode::Check, &[], None))
}

/// Checks a mounted volume as [`examine_mounted`] does, and releases lost files, links, inodes and
/// blocks while it is in use. If anything else is wrong, it corrects nothing, and marks the volume as
/// one that must be checked when it is not in use. Calls `corrected` with the number of corrections
/// made, and of all.
///
/// # Errors
/// As [`examine_mounted`]; those of the corrections, after which it is marked so, too.
pub fn preen_mounted(mount: &Path, corrected: &dyn Fn(u64, u64)) -> Result<Examined, Error> {
    let volume = MountedVolume::begin_check(mount)?;
    let (format, mut corrections) = through_snapshot(mount, |path| {
        let device = seekless_images::device(path, &Place::default())?;
        let format = to_check(device.as_ref());
        let Some(find) = format.corrections else {
            let what = format!("corrections of {} in use", format.called);
            return Err(Error::from(FsError::Unsupported(what)).about(path.display()));
        };
        let found = find(device).map_err(|error| Error::from(error).about(path.display()))?;
        Ok((format, found))
    })?;
    let is_clean = corrections.report.is_clean();
    let corrects = corrections.are_complete()
        && corrections.all.iter().all(seekless_fs::corrections::Correction::allows_renames);
    let mut writes = 0;
    if corrects && !is_clean {
        let all = wide(corrections.all.len());
        let made = Cell::new(0);
        let count = |some: u64| {
            made.set(made.get() + some);
            corrected(made.get(), all);
        };
        if let Err(error) = volume.correct(&corrections.all, &count) {
            volume.end_check(false)?;
            return Err(error);
        }
        writes = all;
        for finding in &mut corrections.report.findings {
            finding.repaired = true;
        }
    }
    volume.end_check(corrects)?;
    let outcome = match (is_clean, corrects) {
        (true, _) => Outcome::Clean,
        (false, true) => Outcome::Corrected,
        (false, false) => Outcome::Left,
    };
    Ok(Examined { format, report: corrections.report, outcome, writes, has_stale_quotas: false })
}

/// Takes a snapshot of a mounted volume, to be removed when it has been read.
fn through_snapshot<T>(
    mount: &Path,
    read: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<T, Error> {
    let snapshot = Temporary::take(mount, SNAPSHOT)?;
    let examined = read(&snapshot.path())?;
    if let Err(error) = snapshot.remove() {
        warn!("{error}; the snapshot {SNAPSHOT} stays until the next check");
    }
    Ok(examined)
}
