//! Quotas of a volume that is not in use: printed, compared with the usage of all files, changed.
//!
//! The reader reads usage and limits. The engine changes them, as a mount that keeps quotas does
//! ([`keep_quotas`]), and counts usage again.

use crate::image::FfsImage;
use crate::operate::quotas::quota_format;
use crate::operate::recovery::is_clean;
use crate::operate::{FfsLive, QuotaFiles, keep_quotas};
use crate::quota_file::{QuotaFormat, read_records};
use crate::quota_usage::Counted;
use crate::snapshot::options_at;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::Operate;
use seekless_fs::quota::{
    Balance, Grace, LimitChange, OwnerKind, OwnerQuota, OwnerUsage, QuotaBook, QuotaChange,
    QuotaComparison, QuotaDifference, QuotaSelection,
};
use seekless_fs::{FileKind, FsError, Inspect, Timestamp};
use seekless_live::{Allowance, Quota, QuotaKind, USUAL_GRACE};
use seekless_units::{ByteLen, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes in a sector, the unit of usage and limits of space.
const SECTOR: u64 = 512;

/// Reads the quota files of a volume.
///
/// # Errors
/// [`FsError::Unsupported`] for a volume without quota files, and for projects; [`FsError::NotFound`]
/// for a path in the selection that is not there, or the file of a kind in it; [`FsError::Invalid`]
/// for a quota file that is no regular file, or is that of both kinds; [`FsError::Corrupt`] for one of
/// another version and for damaged metadata; [`FsError::Unsupported`] for more than 2^20 records.
pub fn quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
    options: OpenOptions,
) -> Result<Vec<QuotaBook>, FsError> {
    let image = FfsImage::open(device, options)?;
    let found = QuotaFilesFound::of(&image, selection)?;
    if let Some((_, path)) = found.missing.first() {
        return Err(FsError::NotFound(path.clone()));
    }
    let wanted = found.files.iter().filter(|file| selection.includes(owners(file.kind)));
    wanted.map(|file| Ok(book(file.kind, &records(&image, file)?))).collect()
}

/// Compares the quota files of a volume with the usage of all files.
///
/// # Errors
/// As [`quotas`], but for the file of a kind in the selection that is not there.
pub fn compare_quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
) -> Result<QuotaComparison, FsError> {
    let image = FfsImage::open(device, OpenOptions::default())?;
    let found = QuotaFilesFound::of(&image, selection)?;
    let exempt: Vec<Ino> = found.files.iter().map(|file| file.ino).collect();
    let counted = count(&image, &exempt)?;
    let mut comparison = QuotaComparison::default();
    if !is_clean(&image.volume().sb) {
        comparison.caveat = Some("it is not marked as clean".into());
    }
    for (kind, path) in &found.missing {
        comparison.unusable.push((owners(*kind), format!("no file {path}")));
    }
    for file in found.files.iter().filter(|file| selection.includes(owners(file.kind))) {
        comparison.compared.push(owners(file.kind));
        let records = records(&image, file)?;
        let counted = counted.of_kind(file.kind);
        let ids: BTreeSet<u32> = records.keys().chain(counted.keys()).copied().collect();
        for id in ids {
            let recorded = records.get(&id).copied().unwrap_or_default();
            let recorded = usage(recorded.space.used, recorded.inodes.used);
            let counted = counted.get(&id).copied().unwrap_or_default();
            let counted = usage(counted.sectors, counted.inodes);
            if recorded != counted {
                let kind = owners(file.kind);
                comparison.differences.push(QuotaDifference { kind, id, recorded, counted });
            }
        }
    }
    Ok(comparison)
}

/// Brings the quota files of a volume up to date. Those of the kinds in the selection are made if they
/// are missing, as FreeBSD's `quotacheck` does. `now` becomes their time, and times above soft limits
/// that have not begun begin then.
///
/// # Errors
/// As [`quotas`]; as [`change_quotas`], with [`FsError::NoSpace`] if there is room for some records
/// only, and [`FsError::Unsupported`] if damage is in the way of some: all others are written.
pub fn correct_quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
    now: Timestamp,
) -> Result<(), FsError> {
    let files = kept(device.clone(), selection)?;
    in_use(device, &files, now, |live| {
        let lacking = live.parts().1.quotas().and_then(|quotas| quotas.lacking());
        lacking.map_or(Ok(()), |lacking| Err(lacking.error()))
    })
}

/// Changes limits of a user or a group, or the times that everybody has above soft limits. A missing
/// quota file is made. Usage in the quota files is counted again.
///
/// # Errors
/// As [`quotas`]; [`FsError::Invalid`] for projects, and for a number for which the quota file has no
/// place; [`FsError::NoSpace`] or, for damage in its way, [`FsError::Unsupported`] if the changed
/// record cannot be written, and [`FsError::Corrupt`] for damage in the way of others only; errors of
/// opening the volume for changes, so [`FsError::Refused`] for one that is not clean.
pub fn change_quotas(
    device: Arc<dyn BlockDevice>,
    selection: &QuotaSelection,
    kind: OwnerKind,
    change: &QuotaChange,
    now: Timestamp,
) -> Result<(), FsError> {
    let mut selection = selection.clone();
    selection.kinds.push(kind);
    let Some(kind) = QuotaKind::ALL.into_iter().find(|one| owners(*one) == kind) else {
        return Err(no_projects());
    };
    let files = kept(device.clone(), &selection)?;
    in_use(device, &files, now, |live| {
        let id = check(change, quota_format(live, kind))?;
        let (_, core) = live.parts();
        let Some(quotas) = core.quotas() else { return Ok(()) };
        match *change {
            QuotaChange::Limits { space, inodes, .. } => {
                quotas.set_limits(kind, id, (in_sectors(space), inodes), now.secs);
            }
            QuotaChange::Grace { space, inodes } => {
                let seconds = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
                quotas.set_grace(kind, space.map(seconds), inodes.map(seconds));
            }
        }
        let done = live.sync();
        let Some(quotas) = live.parts().1.quotas() else { return done };
        match quotas.lacking().filter(|_| quotas.unwritten(kind, id).is_some()) {
            Some(lacking) => Err(lacking.error()),
            None => done,
        }
    })
}

/// The id whose record a change is about, if it has a place in a quota file of the format.
fn check(change: &QuotaChange, format: Option<QuotaFormat>) -> Result<u32, FsError> {
    let most = match format {
        Some(QuotaFormat::Words(_)) => u64::from(u32::MAX),
        _ => u64::MAX,
    };
    let latest = most >> 1;
    let (id, numbers) = match *change {
        QuotaChange::Limits { id, space, inodes } => {
            let space = in_sectors(space);
            let limits = [space.soft, space.hard, inodes.soft, inodes.hard];
            (id, limits.into_iter().flatten().max().unwrap_or(0) <= most)
        }
        QuotaChange::Grace { space, inodes } => {
            (0, [space, inodes].into_iter().flatten().max().unwrap_or(0) <= latest)
        }
    };
    if i32::try_from(id).is_err() {
        return Err(FsError::Invalid(format!(
            "UFS has no quotas of {id}: numbers end at {}",
            i32::MAX
        )));
    }
    match numbers {
        true => Ok(id),
        false => Err(FsError::Invalid("too large for a quota file with numbers of 32 bits".into())),
    }
}

/// Limits in sectors, rounded up.
fn in_sectors(limits: LimitChange) -> LimitChange {
    let sectors = |bytes: u64| bytes.div_ceil(SECTOR);
    LimitChange { soft: limits.soft.map(sectors), hard: limits.hard.map(sectors) }
}

/// Opens a volume with its quotas kept, makes changes, and closes it.
fn in_use(
    device: Arc<dyn BlockDevice>,
    files: &QuotaFiles,
    now: Timestamp,
    change: impl FnOnce(&mut FfsLive) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let config = Config::new(Discipline::SoftUpdates);
    let mut live = FfsLive::open(device, Arc::new(VirtualClock::new()), config, options_at(now))?;
    let done = keep_quotas(&mut live, files).and_then(|()| change(&mut live));
    // The unmount tries to write missing records again: the first error is returned.
    let closed = live.unmount();
    done.and(closed)
}

/// The quota files that are kept up while the volume is changed: those of the kinds in the
/// selection, and the others that there are.
fn kept(device: Arc<dyn BlockDevice>, selection: &QuotaSelection) -> Result<QuotaFiles, FsError> {
    let image = FfsImage::open(device, OpenOptions::default())?;
    let found = QuotaFilesFound::of(&image, selection)?;
    let mut files = QuotaFiles::none();
    let there = found.files.iter().map(|file| (file.kind, &file.path));
    for (kind, path) in there.chain(found.missing.iter().map(|(kind, path)| (*kind, path))) {
        files.keep(kind, Some(path));
    }
    Ok(files)
}

fn owners(kind: QuotaKind) -> OwnerKind {
    match kind {
        QuotaKind::User => OwnerKind::User,
        QuotaKind::Group => OwnerKind::Group,
    }
}

fn no_projects() -> FsError {
    FsError::Invalid("UFS has no quotas of projects".into())
}

/// A quota file of an image.
struct FoundQuotaFile {
    kind: QuotaKind,
    ino: Ino,
    path: String,
}

/// The quota files of an image.
#[derive(Default)]
struct QuotaFilesFound {
    files: Vec<FoundQuotaFile>,
    /// Those that a selection needs and that are not there, with their paths.
    missing: Vec<(QuotaKind, String)>,
}

impl QuotaFilesFound {
    fn of(image: &FfsImage, selection: &QuotaSelection) -> Result<Self, FsError> {
        if selection.kinds.contains(&OwnerKind::Project) {
            return Err(no_projects());
        }
        let mut found = Self::default();
        for kind in QuotaKind::ALL {
            let given = selection.path(owners(kind));
            let is_needed = given.is_some() || selection.kinds.contains(&owners(kind));
            let mut files = QuotaFiles::none();
            files.keep(kind, given);
            let path = files.path(kind).unwrap_or_default().to_string();
            match resolve(image, path.as_bytes()) {
                Ok(ino) => {
                    let is_snapshot = image.volume().live_inode(ino)?.0.is_snapshot();
                    if image.attr(ino)?.kind != FileKind::Regular || is_snapshot {
                        // Nothing is asked of this kind, and it has no quotas.
                        if given.is_none() && !selection.includes(owners(kind)) {
                            continue;
                        }
                        return Err(FsError::Invalid(format!("{path}: not a regular file")));
                    }
                    if found.files.iter().any(|other| other.ino == ino) {
                        let why = "one file cannot have the quotas of users and groups";
                        return Err(FsError::Invalid(why.into()));
                    }
                    found.files.push(FoundQuotaFile { kind, ino, path });
                }
                Err(FsError::NotFound(_)) if is_needed => found.missing.push((kind, path)),
                Err(FsError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match found.files.is_empty() && found.missing.is_empty() {
            true => {
                let what = "quotas of a volume without quota files (`seekless quota check -y -u -g` makes them)";
                Err(FsError::Unsupported(what.into()))
            }
            false => Ok(found),
        }
    }
}

/// The records of a quota file.
fn records(image: &FfsImage, file: &FoundQuotaFile) -> Result<BTreeMap<u32, Quota>, FsError> {
    let sb = &image.volume().sb;
    let about = |error| match error {
        FsError::Unsupported(why) => FsError::Unsupported(format!("{}: {why}", file.path)),
        error => error,
    };
    let mut head = [0; 64];
    let len = image.read(file.ino, ByteLen::ZERO, &mut head)?;
    let format = QuotaFormat::of(head.get(..len).unwrap_or_default(), sb.order)?;
    let runs = image.block_map(file.ino)?.runs;
    read_records(format, &runs, sb.fsize, &mut |at, bytes| image.read(file.ino, at, bytes))
        .map_err(about)
}

/// Counts the usage of all owners.
fn count(image: &FfsImage, exempt: &[Ino]) -> Result<Counted, FsError> {
    let volume = image.volume();
    let mut at = None;
    let in_use = &mut |number: GroupNo, slot| {
        let group = match at.take() {
            Some((same, group)) if same == number => group,
            _ => volume.cylinder_group(number)?,
        };
        let in_use = group.in_use(slot);
        at = Some((number, group));
        Ok(in_use)
    };
    Counted::of(&volume.sb, volume.device().as_ref(), exempt, in_use)
}

fn usage(sectors: u64, inodes: u64) -> OwnerUsage {
    OwnerUsage { space: in_bytes(sectors), inodes }
}

/// Sectors of a record in bytes. A damaged record may have more than there are bytes to count.
fn in_bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR)
}

fn book(kind: QuotaKind, records: &BTreeMap<u32, Quota>) -> QuotaBook {
    let everybody = records.get(&0).copied().unwrap_or_default();
    let seconds = |one: Allowance| {
        let usual = if one.expires > 0 { one.expires } else { USUAL_GRACE };
        usual.unsigned_abs()
    };
    let grace = Grace { space: seconds(everybody.space), inodes: seconds(everybody.inodes) };
    let quota = |(&id, quota): (&u32, &Quota)| {
        // The times of id 0 are those of everybody.
        let expires = |one: Allowance| if id == 0 { 0 } else { one.expires };
        let over = |one: Allowance| one.soft > 0 && one.used >= one.soft;
        let balance = |one: Allowance, scale: fn(u64) -> u64| Balance {
            used: scale(one.used),
            soft: scale(one.soft),
            hard: scale(one.hard),
            over: over(one),
            expires: if over(one) { expires(one) } else { 0 },
        };
        let (space, inodes) = (balance(quota.space, in_bytes), balance(quota.inodes, |one| one));
        OwnerQuota { id, space, inodes }
    };
    let has_some = |quota: &OwnerQuota| {
        let is_some = |one: Balance| one.used > 0 || one.soft > 0 || one.hard > 0;
        is_some(quota.space) || is_some(quota.inodes)
    };
    let quotas = records.iter().map(quota).filter(has_some).collect();
    QuotaBook { kind: owners(kind), grace, quotas }
}
