//! Quota files: read when the volume is mounted, with usage as the inodes have it, and written when
//! it is synchronized or unmounted.
//!
//! Only limits and times are taken from the files. FreeBSD runs `quotacheck` at each boot
//! (`/etc/rc.d/quota`), since nothing tells whether the usage in them is current: a volume may have
//! crashed, or been in use without quotas.

use super::map::Core;
use super::{Ffs, FfsLive};
use crate::quota_file::{QuotaFile, QuotaFormat, USUAL, read_records};
use crate::quota_usage::Counted;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FileKind, FsError};
use seekless_live::{Quota, QuotaKind, Quotas};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Owner and mode of a quota file that is made: those of `quota_open` of FreeBSD's libutil, with the
/// group `operator`.
const OWNER: Ownership = Ownership { uid: 0, gid: 5, perm: 0o640 };

/// The quotas that are kept, and their files: paths in the volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaFiles {
    user: Option<String>,
    group: Option<String>,
}

impl QuotaFiles {
    /// No quotas.
    ///
    /// ```
    /// use seekless_ffs::QuotaFiles;
    /// use seekless_live::QuotaKind;
    ///
    /// let mut files = QuotaFiles::none();
    /// assert!(files.is_empty());
    /// files.keep(QuotaKind::User, None);
    /// assert_eq!(files.path(QuotaKind::User), Some("quota.user"));
    /// ```
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Keeps quotas of a kind in a file, without a path in FreeBSD's usual one.
    pub fn keep(&mut self, kind: QuotaKind, path: Option<&str>) {
        let [user, group] = USUAL;
        let (place, usual) = match kind {
            QuotaKind::User => (&mut self.user, user),
            QuotaKind::Group => (&mut self.group, group),
        };
        *place = Some(path.unwrap_or(usual).into());
    }

    /// The file of quotas of a kind, if they are kept.
    #[must_use]
    pub fn path(&self, kind: QuotaKind) -> Option<&str> {
        match kind {
            QuotaKind::User => self.user.as_deref(),
            QuotaKind::Group => self.group.as_deref(),
        }
    }

    /// Whether no quotas are kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Keeps quotas on a volume that was just opened. Limits and times are read from the quota files,
/// which are made if there are none, in the format of 64 bits; usage is counted.
///
/// # Errors
/// [`FsError::NotFound`] for a path through a directory that is not there; [`FsError::Invalid`] for
/// a quota file that is no regular file, or that of both kinds; [`FsError::Corrupt`] for one of
/// another version, and for damaged inodes; [`FsError::Unsupported`] for more than 2^20 records;
/// errors of changes to the volume.
pub fn keep_quotas(live: &mut FfsLive, files: &QuotaFiles) -> Result<(), FsError> {
    // No file is made before all that there are were read.
    let mut wanted = Vec::new();
    for kind in QuotaKind::ALL {
        let Some(path) = files.path(kind) else { continue };
        let named = |error| named(path, error);
        let place = find(live, path).map_err(named)?;
        if wanted.iter().any(|(_, _, other, _)| *other == place) {
            let why = "one file cannot have the quotas of users and groups";
            return Err(FsError::Invalid(why.into()));
        }
        let (format, limits) = match place {
            FilePlace::There(ino) => {
                let format = format_of(live, ino).map_err(named)?;
                (format, read(live, ino, format).map_err(named)?)
            }
            FilePlace::Missing(..) => (QuotaFormat::LongWords, BTreeMap::new()),
        };
        wanted.push((kind, path, place, (format, limits)));
    }
    let mut open = Vec::new();
    let mut limits = Vec::new();
    for (kind, path, place, (format, own)) in wanted {
        let ino = match place {
            FilePlace::There(ino) => ino,
            FilePlace::Missing(dir, name) => {
                make(live, dir, name).map_err(|error| named(path, error))?
            }
        };
        open.push(QuotaFile { kind, ino, format });
        limits.push((kind, path, own));
    }
    // Inodes are counted as they are on the disk.
    live.sync()?;
    let inos: Vec<Ino> = open.iter().map(|file| file.ino).collect();
    let (format, core) = live.parts();
    let counted = count(format, core, &inos)?;
    let now = core.now().secs;
    let mut quotas = Quotas::new();
    for (kind, path, limits) in limits {
        quotas.keep(kind, (path, limits), counted.of_kind(kind), now);
    }
    format.quota_files = open;
    core.keep_quotas(quotas, inos.clone());
    for ino in inos {
        live.attr(ino)?;
        let (format, core) = live.parts();
        let node = core.node(ino)?;
        node.restrictions = format.restrictions_of(ino, node.flags);
    }
    // Usage that was counted goes to the files at once: they may be read.
    match live.sync() {
        // It was logged, and all others are written.
        Err(FsError::Corrupt { .. }) if lacks_some(live) => Ok(()),
        done => done,
    }
}

/// Whether a quota file could not take some records when it was last written.
fn lacks_some(live: &mut FfsLive) -> bool {
    live.parts().1.quotas().is_some_and(|quotas| quotas.lacking().is_some())
}

/// The format of the quota file of a kind, if its quotas are kept.
pub(crate) fn quota_format(live: &mut FfsLive, kind: QuotaKind) -> Option<QuotaFormat> {
    let (format, _) = live.parts();
    format.quota_files.iter().find(|file| file.kind == kind).map(|file| file.format)
}

fn named(path: &str, error: FsError) -> FsError {
    match error {
        FsError::Invalid(why) => FsError::Invalid(format!("{path}: {why}")),
        FsError::Unsupported(why) => FsError::Unsupported(format!("{path}: {why}")),
        FsError::NotFound(_) => FsError::NotFound(path.into()),
        error => error,
    }
}

/// Where a quota file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FilePlace<'a> {
    There(Ino),
    /// Nowhere: it is to be made in a directory, with a name.
    Missing(Ino, &'a str),
}

/// A quota file by its path from the root on, in a directory that exists.
fn find<'a>(live: &mut FfsLive, path: &'a str) -> Result<FilePlace<'a>, FsError> {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    let mut at = live.root();
    while let Some(name) = parts.next() {
        at = match live.lookup(at, name.as_bytes())? {
            Some(found) => found,
            None if parts.peek().is_none() => return Ok(FilePlace::Missing(at, name)),
            None => return Err(FsError::NotFound(path.into())),
        };
    }
    let attr = live.attr(at)?;
    let (_, core) = live.parts();
    if attr.kind != FileKind::Regular || core.node(at)?.restrictions.snapshot {
        return Err(FsError::Invalid("not a regular file".into()));
    }
    Ok(FilePlace::There(at))
}

fn make(live: &mut FfsLive, dir: Ino, name: &str) -> Result<Ino, FsError> {
    let ino = live.make(dir, name.as_bytes(), NewFile::Regular, OWNER)?.ino;
    let header = QuotaFormat::header();
    let written = live.write(ino, ByteLen::new(0), &header)?;
    if written < header.len() {
        return Err(FsError::NoSpace("a quota file".into()));
    }
    Ok(ino)
}

fn format_of(live: &mut FfsLive, ino: Ino) -> Result<QuotaFormat, FsError> {
    let mut head = [0; 64];
    let len = live.read(ino, ByteLen::new(0), &mut head)?;
    let order = live.parts().0.sb.order;
    QuotaFormat::of(head.get(..len).unwrap_or_default(), order)
}

/// The records of a quota file.
fn read(
    live: &mut FfsLive,
    ino: Ino,
    format: QuotaFormat,
) -> Result<BTreeMap<u32, Quota>, FsError> {
    let fsize = live.parts().0.sb.fsize;
    let runs = live.data_runs(ino)?;
    read_records(format, &runs, fsize, &mut |at, bytes| live.read(ino, at, bytes))
}

/// Counts the usage of all owners. Everything is on the disk.
fn count(format: &mut Ffs, core: &mut Core, quota_files: &[Ino]) -> Result<Counted, FsError> {
    let (sb, device) = (Arc::clone(&format.sb), Arc::clone(format.copies.device()));
    let groups = format.allocator.groups_mut();
    let in_use = &mut |group, slot| groups.inode_in_use(core, group, slot);
    Counted::of(&sb, device.as_ref(), quota_files, in_use)
}
