//! Checks of ext images as e2fsck makes them: a volume that is marked clean is not checked unless a
//! check is requested or due, the journal is replayed first, and the blocks that a repair overwrites
//! can be saved.

use crate::check::{Examined, Mode};
use crate::journal_device;
use seekless_device::BlockDevice;
use seekless_ext::{CheckOptions, Due, UndoDevice, VolumeState, while_claimed};
use seekless_formats::{EXT, to_check};
use seekless_fs::check::{Outcome, Repaired};
use seekless_fs::{FsError, Timestamp};
use seekless_images::{Error, Place};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A check of an ext image.
pub struct Request {
    /// The errors that are repaired.
    pub mode: Mode,
    /// The superblock that it starts with, and work besides repairs.
    pub options: CheckOptions,
    /// The volume is checked in full even if it is marked clean.
    pub is_forced: bool,
    /// Nothing but the journal is looked at: it is replayed if the mode repairs.
    pub is_journal_only: bool,
    /// The device of the journal, for a volume that has it on another one; not opened for others.
    /// Without it, the device with the journal's UUID is taken for a volume that is a block device,
    /// if there is one. A volume without its journal is refused in [`Mode::Preen`], where nobody looks
    /// at the result and the kernel does not mount the volume, and, as by e2fsck, where there is a
    /// [present time](Self::now).
    pub journal: Option<PathBuf>,
    /// The file, which must not exist, that gets the blocks which are overwritten.
    pub undo: Option<PathBuf>,
    /// The volume is the root of this process and mounted read-only, which does not prevent its
    /// repair.
    pub is_root: bool,
    /// The present time, by which checks are due, and which becomes that of the last check. Without
    /// it, no check is noted and every volume is checked in full.
    pub now: Option<Timestamp>,
}

/// Work of a check before it looks at inodes.
#[derive(Clone, Debug)]
pub enum Notice {
    /// It replays the journal.
    Recovering,
    /// It leaves a journal that has to be replayed, since nothing is to be written.
    JournalLeft,
    /// It checks the volume in full, for a reason.
    Forced(Due),
}

/// The result of a check.
pub struct Fscked {
    /// The findings; `None` for a volume that was not checked in full.
    pub examined: Option<Examined>,
    /// The volume afterwards, where its superblock is sound.
    pub state: Option<VolumeState>,
    /// Only its journal was looked at.
    pub is_journal_only: bool,
}

/// The name of a volume in messages of a check: its label, or the path.
#[must_use]
pub fn name(path: &Path, place: &Place) -> String {
    let state = || {
        let device = seekless_images::device_in_use(path, place).ok()?;
        seekless_ext::state(&device, None, Timestamp::default()).ok()
    };
    match state() {
        Some(state) if !state.label.is_empty() => {
            String::from_utf8_lossy(&state.label).into_owned()
        }
        _ => path.display().to_string(),
    }
}

/// Checks an ext image, and repairs it in the modes that do.
///
/// # Errors
/// As [`examine`](crate::check::examine); [`ErrorKind::System`](seekless_images::ErrorKind) where
/// the undo file exists or cannot be written.
pub fn fsck(
    path: &Path,
    place: &Place,
    request: &Request,
    notice: &dyn Fn(Notice),
) -> Result<Fscked, Error> {
    let about = |error: FsError| Error::from(error).about(path.display());
    let is_written = request.mode != Mode::Check;
    let raw = match is_written {
        true if request.is_root => seekless_images::read_only_root(path)?,
        true => seekless_images::device_locked(path, place)?,
        false => seekless_images::device_in_use(path, place)?,
    };
    let has_copy = request.options.start.block.is_some();
    if request.now.is_none() && !has_copy && !to_check(raw.as_ref()).is(&EXT) {
        let what = format!("{}: these options are for ext images", path.display());
        return Err(Error::usage(what));
    }
    let mut options = request.options.clone();
    // The kernel replayed the journal of a root that it has mounted, and has its device.
    if !request.is_root || request.journal.is_some() {
        let given = request.journal.as_deref();
        let is_needed = request.mode == Mode::Preen || request.now.is_some();
        options.journal = journal_device::open(path, raw.as_ref(), given, request.mode, is_needed)?;
    }
    let undo = match &request.undo {
        Some(file) if is_written => Some(save_in(file, &raw, request, &about)?),
        _ => None,
    };
    let device = undo.clone().map_or(raw, |undo| -> Arc<dyn BlockDevice> { undo });
    let result = match request.mode {
        Mode::Check => go(&device, request, &options, notice),
        // One claim covers all changes: the journal's, those of the repair, and the note.
        _ => while_claimed(&device, &options, |options| go(&device, request, options, notice)),
    };
    let result = result.map_err(about)?;
    if let Some(undo) = undo {
        undo.finish().map_err(about)?;
    }
    Ok(result)
}

/// The device, with each block saved in a file before it is overwritten.
fn save_in(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    request: &Request,
    about: &dyn Fn(FsError) -> Error,
) -> Result<Arc<UndoDevice>, Error> {
    let size = seekless_ext::block_size(device.clone(), request.options.start).map_err(about)?;
    let file = File::options().read(true).write(true).create_new(true).open(path);
    let file = file.map_err(|error| Error::io(path.display(), &error))?;
    // Its name is to be found after a crash, too.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| Error::io(dir.display(), &error))?;
    let undo = UndoDevice::new(device.clone(), file, size);
    undo.map(Arc::new).map_err(|error| Error::from(error).about(path.display()))
}

fn go(
    device: &Arc<dyn BlockDevice>,
    request: &Request,
    options: &CheckOptions,
    notice: &dyn Fn(Notice),
) -> Result<Fscked, FsError> {
    let is_written = request.mode != Mode::Check;
    let has_copy = request.options.start.block.is_some();
    let mut due = None;
    if request.is_journal_only || (request.now.is_some() && !has_copy) {
        due = begin(device, request, options, notice)?;
    }
    if request.is_journal_only {
        return Ok(Fscked {
            examined: None,
            state: state(device, request, options)?,
            is_journal_only: true,
        });
    }
    let is_requested =
        request.is_forced || has_copy || options.optimizes_directories || options.unshares_blocks;
    if request.now.is_some() && !is_requested {
        let Some(due) = due else {
            let state = state(device, request, options)?;
            if state.as_ref().is_some_and(|state| state.is_pending) {
                notice(Notice::JournalLeft);
            }
            return Ok(Fscked { examined: None, state, is_journal_only: false });
        };
        notice(Notice::Forced(due));
    }
    let examined = examine(device, request.mode, options)?;
    if let Some(now) = request.now.filter(|_| is_written && examined.outcome != Outcome::Left) {
        seekless_ext::note_checked(device, now)?;
    }
    let state = state(device, request, options)?;
    Ok(Fscked { examined: Some(examined), state, is_journal_only: false })
}

/// Replays the journal, and finds the reason for a full check.
fn begin(
    device: &Arc<dyn BlockDevice>,
    request: &Request,
    options: &CheckOptions,
    notice: &dyn Fn(Notice),
) -> Result<Option<Due>, FsError> {
    let now = request.now.unwrap_or_default();
    let damaged = |error: &FsError| Some(Due::Damaged(error.to_string()));
    let journal = options.journal.as_ref();
    let state = match seekless_ext::state(device, journal, now) {
        Err(error @ FsError::Corrupt { .. }) if !request.is_journal_only => {
            return Ok(damaged(&error));
        }
        state => state?,
    };
    if !state.is_pending || request.mode == Mode::Check {
        return Ok(state.due);
    }
    notice(Notice::Recovering);
    match seekless_ext::replay(device, journal) {
        Err(error @ FsError::Corrupt { .. }) if !request.is_journal_only => {
            return Ok(damaged(&error));
        }
        replayed => replayed?,
    };
    match seekless_ext::state(device, journal, now) {
        Err(error @ FsError::Corrupt { .. }) => Ok(damaged(&error)),
        state => Ok(state?.due),
    }
}

pub(crate) fn examine(
    device: &Arc<dyn BlockDevice>,
    mode: Mode,
    options: &CheckOptions,
) -> Result<Examined, FsError> {
    let device = device.clone();
    let repaired = match mode {
        Mode::Check => {
            let report = seekless_ext::check_with(device, options)?;
            let outcome = if report.is_clean() { Outcome::Clean } else { Outcome::Left };
            return Ok(Examined {
                format: &EXT,
                report,
                outcome,
                writes: 0,
                has_stale_quotas: false,
            });
        }
        Mode::Preen => seekless_ext::preen_with(device, options)?,
        Mode::Repair => seekless_ext::repair_with(device, options)?,
    };
    let Repaired { report, outcome, writes, .. } = repaired;
    Ok(Examined { format: &EXT, report, outcome, writes, has_stale_quotas: false })
}

/// The volume as it is now; `None` where its superblock is damaged.
fn state(
    device: &Arc<dyn BlockDevice>,
    request: &Request,
    options: &CheckOptions,
) -> Result<Option<VolumeState>, FsError> {
    match seekless_ext::state(device, options.journal.as_ref(), request.now.unwrap_or_default()) {
        Err(FsError::Corrupt { .. }) => Ok(None),
        state => state.map(Some),
    }
}
