//! A permanent recovery: the journal's blocks are written home.

use super::{External, Head, Replayed, replay_checked, replay_for_repair, write};
use crate::ondisk::{STATE_ERRORS, SUPERBLOCK_OFFSET, incompat};
use crate::superblock::{read_primary, write_primary};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_fs::patches::Patches;
use std::sync::Arc;

/// Writes the journal's blocks home, as a mount does, and marks the journal as empty. `device` has the
/// journal where that is not in the volume.
///
/// # Errors
/// As [`replay_checked`], and errors of the device.
pub(crate) fn recover_home(
    disk: &mut Patches,
    device: Option<&Arc<dyn BlockDevice>>,
) -> Result<(), FsError> {
    go_home(disk, device, false)
}

/// As [`recover_home`], for a journal that a repair finds and replays.
///
/// # Errors
/// As [`replay_for_repair`], and errors of the device.
pub(crate) fn repair_home(
    disk: &mut Patches,
    device: Option<&Arc<dyn BlockDevice>>,
) -> Result<(), FsError> {
    go_home(disk, device, true)
}

fn go_home(
    disk: &mut Patches,
    device: Option<&Arc<dyn BlockDevice>>,
    is_repair: bool,
) -> Result<(), FsError> {
    let volume = Volume::open(disk.device().clone(), true)?;
    let external = External::of(&volume.sb, device)?;
    let external = external.as_ref();
    let replayed = match is_repair {
        true => replay_for_repair(&volume, external),
        false => replay_checked(&volume, external),
    };
    if let Some(replayed) = replayed? {
        write_home(disk, &volume, &replayed)?;
        // Its error becomes that of the volume (`ext4_clear_journal_err`).
        let has_error = match write::has_error(disk, external) {
            // The journal was found through a copy of its inode's map or number.
            Err(FsError::Corrupt { .. }) if is_repair => false,
            has_error => has_error?,
        };
        if has_error {
            let mut raw = read_primary(disk)?;
            raw.s_state = (raw.s_state.get() | STATE_ERRORS).into();
            write_primary(disk, raw)?;
            write::note_error(disk, external, 0)?;
        }
    }
    note_recovered(disk)
}

/// Writes the recovered blocks home, then marks the journal as empty, then clears the superblock's
/// flag for recovery: an interruption before that repeats all of it.
///
/// # Errors
/// Errors of the device.
pub(crate) fn write_home(
    disk: &mut Patches,
    volume: &Volume,
    replayed: &Replayed,
) -> Result<(), FsError> {
    let head = match &replayed.head {
        Head::Within(at) => Some(at.get() * u64::from(volume.sb.block_size)),
        Head::Outside(..) => None,
    };
    let end = disk.device().len().get();
    let chunks = replayed.overlay.chunks();
    debug_assert!(
        head.is_none_or(|head| chunks.iter().any(|(at, _)| *at == head)),
        "a recovery empties the journal with its first block"
    );
    for (at, bytes) in chunks.iter().filter(|(at, _)| Some(*at) != head) {
        let len = index(end - *at).min(bytes.len());
        let bytes = bytes.get(..len).unwrap_or_default();
        disk.put(*at, bytes)?;
        let holds = *at <= SUPERBLOCK_OFFSET && at + wide(len) > SUPERBLOCK_OFFSET;
        if holds {
            note_waiting(disk, volume)?;
        }
    }
    disk.flush()?;
    for (at, bytes) in chunks.iter().filter(|(at, _)| Some(*at) == head) {
        disk.put(*at, bytes)?;
    }
    if let Head::Outside(external, bytes) = &replayed.head {
        external.put_head(bytes)?;
    }
    disk.flush()
}

/// Sets the flag for recovery, and that for errors if there were any: a copy of the superblock in
/// the journal may be older than the flags.
fn note_waiting(disk: &mut Patches, volume: &Volume) -> Result<(), FsError> {
    let mut raw = read_primary(disk)?;
    let errors = volume.sb.raw.s_state.get() & STATE_ERRORS;
    raw.s_state = (raw.s_state.get() | errors).into();
    raw.s_feature_incompat = (raw.s_feature_incompat.get() | incompat::RECOVER).into();
    write_primary(disk, raw)
}

/// Clears the flag for recovery.
///
/// # Errors
/// Errors of the device.
pub(crate) fn note_recovered(disk: &mut Patches) -> Result<(), FsError> {
    let mut raw = read_primary(disk)?;
    raw.s_feature_incompat = (raw.s_feature_incompat.get() & !incompat::RECOVER).into();
    write_primary(disk, raw)
}
