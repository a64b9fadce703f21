//! Whether a volume is to be checked in full, as e2fsck decides it (`check_if_skip`), and the marks
//! of a check in the superblock.

use super::features;
use super::metadata::UNMARKED_JOURNAL;
use crate::features::Features;
use crate::journal::{self, External, Site};
use crate::ondisk::{STATE_ERRORS, STATE_VALID, compat, incompat};
use crate::superblock::{Super, clear_errors, read_primary, write_primary};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::low32;
use seekless_fs::patches::Patches;
use seekless_fs::{FsError, Timestamp};
use seekless_units::{GroupNo, Ino};
use std::fmt;
use std::sync::Arc;

/// Seconds in a day. A last check less than a day in the future is one whose clock showed local
/// time.
const DAY: i64 = 86_400;

/// The reason for which a volume is checked in full without a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due {
    /// The superblock or the journal records errors.
    Errors,
    /// It is not marked clean.
    NotClean,
    /// A descriptor of a group or the journal cannot be read: the reason.
    Damaged(String),
    /// Files were being deleted or truncated.
    Orphans,
    /// It was mounted this often since the last check.
    Mounts(u16),
    /// The last check is in the future.
    Future,
    /// The last check was this many days ago.
    Days(i64),
}

/// As e2fsck prints it, behind the name of the volume.
impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errors => f.write_str("contains a file system with errors"),
            Self::NotClean => f.write_str("was not cleanly unmounted"),
            Self::Damaged(what) => write!(f, "is damaged: {what}"),
            Self::Orphans => f.write_str("has files that were being deleted or truncated"),
            Self::Mounts(count) => {
                write!(f, "has been mounted {count} times without being checked")
            }
            Self::Future => f.write_str("has filesystem last checked time in the future"),
            Self::Days(days) => write!(f, "has gone {days} days without being checked"),
        }
    }
}

/// A volume by its superblock and its descriptors.
#[derive(Clone, Debug)]
pub struct VolumeState {
    /// Its label; empty for none.
    pub label: Vec<u8>,
    /// Inodes in use, and all.
    pub inodes: (u64, u64),
    /// Blocks in use, and all.
    pub blocks: (u64, u64),
    /// The reason for a full check.
    pub due: Option<Due>,
    /// Mounts until the next check, if there is a limit.
    pub mounts_left: Option<u16>,
    /// The journal has to be replayed.
    pub is_pending: bool,
}

/// The state of a volume at a time. `journal_device` has its journal, if that is not in
/// the volume.
///
/// # Errors
/// [`FsError::Corrupt`] if the superblock is not sound, [`FsError::Unsupported`] with a feature
/// that is not read, [`FsError::Device`].
pub fn state(
    device: &Arc<dyn BlockDevice>,
    journal_device: Option<&Arc<dyn BlockDevice>>,
    now: Timestamp,
) -> Result<VolumeState, FsError> {
    let volume = Volume::open(device.clone(), false)?;
    refuse_unsupported(&volume)?;
    let sb = &volume.sb;
    if sb.has_incompat(incompat::RECOVER) && journal_device.is_none() {
        journal::refuse_missing(sb)?;
    }
    let (free_blocks, free_inodes) = volume.bitmaps().free_totals();
    let label = &sb.raw.s_volume_name;
    let end = label.iter().position(|&byte| byte == 0).unwrap_or(label.len());
    let (mounts, most) = (sb.raw.s_mnt_count.get(), sb.raw.s_max_mnt_count.get());
    // A negative limit is none.
    let has_limit = (1..=i16::MAX.unsigned_abs()).contains(&most);
    let inodes = u64::from(sb.raw.s_inodes_count.get());
    Ok(VolumeState {
        label: label.get(..end).unwrap_or_default().to_vec(),
        inodes: (inodes - u64::from(free_inodes).min(inodes), inodes),
        blocks: (sb.blocks - free_blocks.min(sb.blocks), sb.blocks),
        due: due(&volume, journal_device, now)?,
        mounts_left: has_limit.then(|| most - mounts.min(most)),
        is_pending: sb.has_incompat(incompat::RECOVER),
    })
}

/// Refuses a volume with features for which e2fsck refuses it, unless a check may clear them.
fn refuse_unsupported(volume: &Volume) -> Result<(), FsError> {
    let cleared = features::contradicted(volume).map_or(Features::NONE, |(cleared, _)| cleared);
    let names = features::unsupported(&volume.sb.raw).without(cleared).names();
    if names.is_empty() {
        return Ok(());
    }
    Err(FsError::Unsupported(format!("a volume with the feature {}", names.join(", "))))
}

fn due(
    volume: &Volume,
    journal: Option<&Arc<dyn BlockDevice>>,
    now: Timestamp,
) -> Result<Option<Due>, FsError> {
    let raw = &volume.sb.raw;
    let state = raw.s_state.get();
    if state & STATE_ERRORS != 0 {
        return Ok(Some(Due::Errors));
    }
    if state & STATE_VALID == 0 {
        return Ok(Some(Due::NotClean));
    }
    if !volume.sb.has_compat(compat::HAS_JOURNAL)
        && (raw.s_journal_inum.get() != 0 || raw.s_journal_uuid != [0; 16])
    {
        return Ok(Some(Due::Damaged("it has a journal without the feature for it".into())));
    }
    if let Some((features, block)) = features::contradicted(volume) {
        let names = features.names().join(", ");
        return Ok(Some(Due::Damaged(format!("the copy in block {block} lacks {names}"))));
    }
    match damage(volume, journal) {
        Ok(None) => {}
        Ok(due) => return Ok(due),
        Err(error @ FsError::Corrupt { .. }) => return Ok(Some(Due::Damaged(error.to_string()))),
        Err(error) => return Err(error),
    }
    if raw.s_last_orphan.get() != 0 || volume.sb.has_filed_orphans() {
        return Ok(Some(Due::Orphans));
    }
    let (mounts, most) = (raw.s_mnt_count.get(), raw.s_max_mnt_count.get());
    if (1..=i16::MAX.unsigned_abs()).contains(&most) && mounts >= most {
        return Ok(Some(Due::Mounts(mounts)));
    }
    let interval = i64::from(raw.s_checkinterval.get());
    if interval == 0 {
        return Ok(None);
    }
    let since = now.secs - last_check(&volume.sb);
    Ok(if since < -DAY {
        Some(Due::Future)
    } else if since >= interval {
        Some(Due::Days(since / DAY))
    } else {
        None
    })
}

/// Descriptors with wrong checksums or pointers, and a journal that cannot be read or was left after
/// an error.
fn damage(volume: &Volume, journal: Option<&Arc<dyn BlockDevice>>) -> Result<Option<Due>, FsError> {
    for number in (0..volume.sb.groups).map(GroupNo::new) {
        volume.descriptors().read_checked(number)?;
    }
    if let Some(external) = External::of(&volume.sb, journal)? {
        return journal_damage(volume, &external);
    }
    let journal = volume.sb.raw.s_journal_inum.get();
    if !volume.sb.has_compat(compat::HAS_JOURNAL) || journal == 0 {
        return Ok(None);
    }
    let inode = journal::locate(volume, Ino::new(journal))?;
    journal_damage(volume, &inode)
}

/// A journal that was left after an error, has fields that it cannot have, or contains transactions
/// although the superblock says that it is empty (e2fsck, `e2fsck_check_ext3_journal`).
fn journal_damage<'a>(volume: &Volume, site: impl Into<Site<'a>>) -> Result<Option<Due>, FsError> {
    let site = site.into();
    if journal::error_of(volume, site)? != 0 {
        return Ok(Some(Due::Errors));
    }
    let is_marked = volume.sb.has_incompat(incompat::RECOVER);
    if !is_marked && journal::pending_start(volume, site)?.is_some() {
        return Ok(Some(Due::Damaged(UNMARKED_JOURNAL.into())));
    }
    let is_foreign = !is_marked && journal::has_foreign_fields(volume, site)?;
    Ok(is_foreign.then(|| Due::Damaged("the journal has fields of another version".into())))
}

fn last_check(sb: &Super) -> i64 {
    i64::from(sb.raw.s_lastcheck_hi) << 32 | i64::from(sb.raw.s_lastcheck.get())
}

/// Writes the transactions of a journal home; whether there were any to look for. The caller has
/// claimed a volume that other hosts may mount ([`while_claimed`](crate::while_claimed)).
///
/// # Errors
/// [`FsError::Corrupt`] if the superblock or the journal is not sound; as [`state`].
pub fn replay(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
) -> Result<bool, FsError> {
    let volume = Volume::open(device.clone(), false)?;
    refuse_unsupported(&volume)?;
    let waits = volume.sb.has_incompat(incompat::RECOVER);
    if waits {
        journal::recover_home(&mut Patches::new(device.clone()), journal)?;
    }
    Ok(waits)
}

/// Notes in the superblock that the volume was checked in full: no mounts since, the time, and that no
/// errors are left of those that a kernel recorded.
///
/// # Errors
/// Errors of the device.
pub fn note_checked(device: &Arc<dyn BlockDevice>, now: Timestamp) -> Result<(), FsError> {
    let mut disk = Patches::new(device.clone());
    let mut raw = read_primary(&disk)?;
    let secs = now.secs.max(0).cast_unsigned();
    raw.s_mnt_count = 0.into();
    raw.s_lastcheck = low32(secs).into();
    let [high, ..] = low32(secs >> 32).to_le_bytes();
    raw.s_lastcheck_hi = high;
    clear_errors(&mut raw);
    write_primary(&mut disk, raw)
}
