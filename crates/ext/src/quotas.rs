//! Quotas of a volume that is not in use: printed, compared with the usage of all files, changed.
//!
//! An existing entry, and the grace periods in the head, are changed in place. For a new entry the whole
//! file is written to free blocks, as a repair does.

use crate::check::repair::{SoundVolume, refuse_to_change};
use crate::check::{CheckOptions, count_usage, preen};
use crate::image::ExtImage;
use crate::mmp::while_claimed;
use crate::ondisk::{QuotaEntry, QuotaHead, ro_compat};
use crate::quota::{self, LIMIT_UNIT, QuotaContents, Usage, exceeds, wrong_ids};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::check::Outcome;
use seekless_fs::field::wide;
use seekless_fs::format::OpenOptions;
use seekless_fs::quota::{
    Balance, Grace, LimitChange, OwnerKind, OwnerQuota, OwnerUsage, QuotaBook, QuotaChange,
    QuotaComparison, QuotaDifference, QuotaSelection,
};
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Timestamp};
use seekless_units::Ino;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Reads the quota files of a volume.
///
/// # Errors
/// [`FsError::Unsupported`] for a volume without the feature `quota`; [`FsError::Invalid`] for a kind
/// of owners in the selection of which there is no quota file, and for paths, which the volume's own
/// files do not have; [`FsError::Corrupt`] for a damaged quota file.
pub fn quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
    options: OpenOptions,
) -> Result<Vec<QuotaBook>, FsError> {
    let image = ExtImage::open(device, options)?;
    let volume = image.volume();
    let files = selected(&volume.sb, selection)?.into_iter();
    files.map(|(place, kind, ino)| Ok(book(kind, &quota::read_file(volume, place, ino)?))).collect()
}

/// Compares the quota files of a volume with the usage of all files. That takes a whole check.
///
/// # Errors
/// As [`quotas`], but for damaged quota files; as [`check`](crate::check());
/// [`FsError::Refused`] for a volume with such damage that usage cannot be counted.
pub fn compare_quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
) -> Result<QuotaComparison, FsError> {
    let image = ExtImage::open(device.clone(), OpenOptions::default())?;
    let volume = image.volume();
    let files = selected(&volume.sb, selection)?;
    let counted = count_usage(device)?;
    let Some(usage) = counted.usage else {
        let text = Text::from("usage cannot be counted on a damaged volume: run ");
        return Err(FsError::Refused(text.then(Term::Repair).then(" first")));
    };
    let caveat = counted.other.map(|finding| format!("it is not in order ({})", finding.code()));
    let mut comparison = QuotaComparison { caveat, ..QuotaComparison::default() };
    for (place, kind, ino) in files {
        comparison.compared.push(kind);
        let found = match quota::read_file(volume, place, ino) {
            Ok(found) if found.is_whole => found,
            Ok(_) => {
                comparison.unusable.push((kind, "a reference leads out of the file".into()));
                continue;
            }
            Err(error @ FsError::Corrupt { .. }) => {
                comparison.unusable.push((kind, error.to_string()));
                continue;
            }
            Err(error) => return Err(error),
        };
        let Some(usage) = usage.get(place) else { continue };
        for (id, recorded) in wrong_ids(&found, usage) {
            let counted = usage.get(&id).copied().unwrap_or_default();
            let (recorded, counted) = (of_owner(recorded), of_owner(counted));
            comparison.differences.push(QuotaDifference { kind, id, recorded, counted });
        }
    }
    Ok(comparison)
}

fn of_owner(usage: Usage) -> OwnerUsage {
    OwnerUsage { space: usage.space, inodes: usage.inodes }
}

/// Brings all quota files of a volume up to date, as a repair does.
///
/// # Errors
/// As [`compare_quotas`]; [`FsError::Refused`] for a volume on which more than the quota files has to
/// be repaired; [`FsError::NoSpace`] if there is no room for a quota file.
pub fn correct_quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
) -> Result<(), FsError> {
    let volume = Volume::open(device.clone(), false)?;
    selected(&volume.sb, selection)?;
    refuse_to_change(count_usage(device.clone())?.other.as_ref())?;
    match preen(device)?.outcome {
        Outcome::Left => Err(FsError::NoSpace("a quota file".into())),
        Outcome::Clean | Outcome::Corrected => Ok(()),
    }
}

/// Changes limits of an owner, or the grace periods of all owners. At `now` the grace period of an owner
/// begins whose usage exceeds a new soft limit.
///
/// # Errors
/// As [`quotas`]; [`FsError::Refused`] for a volume that is not in order, [`FsError::Unsupported`] for
/// one that is not written, [`FsError::Invalid`] for a limit from 2^63 on and for a grace period of
/// more than 32 bits, [`FsError::NoSpace`] if there is no room for another quota file with a new entry.
pub fn change_quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
    kind: OwnerKind,
    change: &QuotaChange,
    now: Timestamp,
) -> Result<(), FsError> {
    let volume = Volume::open(device.clone(), false)?;
    let mut selection = selection.clone();
    selection.kinds.push(kind);
    let mut files = selected(&volume.sb, &selection)?.into_iter();
    let Some((place, _, ino)) = files.find(|file| file.1 == kind) else { return Ok(()) };
    check_limits(change)?;
    while_claimed(&device, &CheckOptions::default(), |options| {
        put_change(SoundVolume::open(device.clone(), options)?, (place, ino), change, now)
    })
}

/// Makes a change in the quota file in a place of the superblock.
fn put_change(
    sound: SoundVolume,
    (place, ino): (usize, Ino),
    change: &QuotaChange,
    now: Timestamp,
) -> Result<(), FsError> {
    let mut contents = quota::read_file(sound.volume(), place, ino)?;
    match *change {
        QuotaChange::Grace { space, inodes } => {
            let head = contents.head_mut();
            for (field, time) in [(&mut head.dqi_bgrace, space), (&mut head.dqi_igrace, inodes)] {
                if let Some(seconds) = time {
                    *field = time_of(seconds)?.into();
                }
            }
            let times = offset_of!(QuotaHead, dqi_bgrace)..offset_of!(QuotaHead, dqi_flags);
            let bytes = head.as_bytes().get(times.clone()).unwrap_or_default();
            sound.put_in_place(ino, wide(times.start), bytes)
        }
        QuotaChange::Limits { id, space, inodes } => {
            let at = contents.entries.iter().position(|entry| entry.dqb_id.get() == id);
            let new = QuotaEntry { dqb_id: id.into(), ..QuotaEntry::default() };
            let before = at.and_then(|at| contents.entries.get(at)).copied().unwrap_or(new);
            let mut entry = before;
            set_limits(&mut entry, space, inodes, contents.grace(), now.secs);
            quota::keep_in_use(&mut entry);
            match at.and_then(|at| contents.places.get(at)) {
                Some(&at) => sound.put_in_place(ino, at, entry.as_bytes()),
                None if has_limits(&entry) => {
                    contents.entries.push(entry);
                    sound.write_quota_file(ino, &contents)
                }
                None => Ok(()),
            }
        }
    }
}

fn has_limits(entry: &QuotaEntry) -> bool {
    let limits =
        [entry.dqb_bsoftlimit, entry.dqb_bhardlimit, entry.dqb_isoftlimit, entry.dqb_ihardlimit];
    limits.iter().any(|limit| limit.get() > 0)
}

/// Refuses limits that the kernel would read as negative (`qi_max_spc_limit` and `qi_max_ino_limit` of
/// Linux' `fs/quota/quota_v2.c`).
fn check_limits(change: &QuotaChange) -> Result<(), FsError> {
    let QuotaChange::Limits { space, inodes, .. } = change else { return Ok(()) };
    let fits = |limits: &LimitChange, unit: u64| {
        let limits = [limits.soft, limits.hard].into_iter().flatten();
        let mut rounded = limits.map(|limit| limit.checked_next_multiple_of(unit));
        rounded.all(|limit| limit.is_some_and(|limit| i64::try_from(limit).is_ok()))
    };
    match fits(space, LIMIT_UNIT) && fits(inodes, 1) {
        true => Ok(()),
        false => Err(FsError::Invalid(format!("limits of ext end at {}", i64::MAX))),
    }
}

fn time_of(seconds: u64) -> Result<u32, FsError> {
    let most = u32::MAX;
    let invalid = |_| FsError::Invalid(format!("grace periods end at {most} seconds"));
    u32::try_from(seconds).map_err(invalid)
}

/// Sets limits; a grace period begins above a soft limit unless it has begun, and has no end below it
/// (`update_grace_times` of Linux' quota tools).
fn set_limits(
    entry: &mut QuotaEntry,
    space: LimitChange,
    inodes: LimitChange,
    (space_grace, inodes_grace): (u32, u32),
    now: i64,
) {
    let end = |over: bool, before: u64, grace: u32| match (over, before) {
        (false, _) => 0,
        (true, 0) => now.saturating_add(i64::from(grace)).max(1).unsigned_abs(),
        (true, time) => time,
    };
    let units = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(LIMIT_UNIT));
    let soft = units(space.soft).unwrap_or(entry.dqb_bsoftlimit.get());
    entry.dqb_bsoftlimit = soft.into();
    entry.dqb_bhardlimit = units(space.hard).unwrap_or(entry.dqb_bhardlimit.get()).into();
    let over = exceeds(entry.dqb_curspace.get(), in_bytes(soft));
    entry.dqb_btime = end(over, entry.dqb_btime.get(), space_grace).into();
    let soft = inodes.soft.unwrap_or(entry.dqb_isoftlimit.get());
    entry.dqb_isoftlimit = soft.into();
    entry.dqb_ihardlimit = inodes.hard.unwrap_or(entry.dqb_ihardlimit.get()).into();
    let over = exceeds(entry.dqb_curinodes.get(), soft);
    entry.dqb_itime = end(over, entry.dqb_itime.get(), inodes_grace).into();
}

/// A limit of space in bytes. A damaged entry may have more than there are bytes to count.
fn in_bytes(limit: u64) -> u64 {
    limit.saturating_mul(LIMIT_UNIT)
}

/// The quota files of a selection: their place among the kinds, their owners and inodes.
///
/// # Errors
/// As [`quotas`], but for damage.
fn selected(
    sb: &Super,
    selection: &QuotaSelection,
) -> Result<Vec<(usize, OwnerKind, Ino)>, FsError> {
    if selection.user_file.is_some() || selection.group_file.is_some() {
        return Err(FsError::Invalid("the quota files of ext have no paths".into()));
    }
    if !sb.has_ro_compat(ro_compat::QUOTA) {
        let what = "quotas of a volume without the feature quota (tune2fs -O quota adds it)";
        return Err(FsError::Unsupported(what.into()));
    }
    let all = quota::files(sb).filter_map(|(place, ino)| Some((place, kind(place)?, ino)));
    let all: Vec<_> = all.collect();
    for wanted in &selection.kinds {
        if !all.iter().any(|(_, kind, _)| kind == wanted) {
            let name = wanted.name();
            return Err(FsError::Invalid(format!("the volume has no quotas of {name}s")));
        }
    }
    Ok(all.into_iter().filter(|(_, kind, _)| selection.includes(*kind)).collect())
}

/// The owners that the quota file in a place of the superblock is about.
fn kind(place: usize) -> Option<OwnerKind> {
    OwnerKind::ALL.get(place).copied()
}

fn book(kind: OwnerKind, found: &QuotaContents) -> QuotaBook {
    let (space, inodes) = found.grace();
    let grace = Grace { space: space.into(), inodes: inodes.into() };
    // Of several entries of an id in a damaged file, the first counts.
    let mut entries: BTreeMap<u32, &QuotaEntry> = BTreeMap::new();
    for entry in &found.entries {
        entries.entry(entry.dqb_id.get()).or_insert(entry);
    }
    let quotas = entries.into_iter().map(|(id, entry)| quota_of(id, entry));
    let has_some = |quota: &OwnerQuota| {
        [quota.space, quota.inodes].iter().any(|one| one.used > 0 || one.soft > 0 || one.hard > 0)
    };
    QuotaBook { kind, grace, quotas: quotas.filter(has_some).collect() }
}

fn quota_of(id: u32, entry: &QuotaEntry) -> OwnerQuota {
    let balance = |used: u64, soft: u64, hard: u64, time: u64| {
        let over = exceeds(used, soft) || exceeds(used, hard);
        let expires = if over { i64::try_from(time).unwrap_or(i64::MAX) } else { 0 };
        Balance { used, soft, hard, over, expires }
    };
    OwnerQuota {
        id,
        space: balance(
            entry.dqb_curspace.get(),
            in_bytes(entry.dqb_bsoftlimit.get()),
            in_bytes(entry.dqb_bhardlimit.get()),
            entry.dqb_btime.get(),
        ),
        inodes: balance(
            entry.dqb_curinodes.get(),
            entry.dqb_isoftlimit.get(),
            entry.dqb_ihardlimit.get(),
            entry.dqb_itime.get(),
        ),
    }
}
