//! Quota files: read when the volume is mounted, with usage as the inodes have it, and written when
//! it is synchronized or unmounted.
//!
//! Only limits and times are taken from the files. FreeBSD runs `quotacheck` at each boot
//! (`/etc/rc.d/quota`), since nothing tells whether the usage in them is current: a volume may have
//! crashed, or been in use without quotas.

use super::map::Core;
use super::{Ffs, FfsLive};
use crate::inode::Inode;
use crate::ondisk::ROOT;
use crate::quota_file::{QuotaFile, QuotaFormat, USUAL};
use seekless_device::BlockDevice;
use seekless_fs::field::{index, slice, truncated, wide};
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::{Quota, QuotaKind, Quotas, Usage};
use seekless_units::{ByteLen, GroupNo, Ino};
use std::collections::BTreeMap;

/// Owner and mode of a quota file that is made: those of `quota_open` of FreeBSD's libutil, with the
/// group `operator`.
const OWNER: Ownership = Ownership { uid: 0, gid: 5, perm: 0o640 };

/// Bytes of a quota file that are read together.
const PIECE: u64 = 1 << 20;

/// Most records of a file that are neither zeros nor of an id that is not counted. All of them are
/// kept in memory.
const MOST_RECORDS: usize = 1 << 20;

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
        limits.push((kind, own));
    }
    // Inodes are counted as they are on the disk.
    live.sync()?;
    let inos: Vec<Ino> = open.iter().map(|file| file.ino).collect();
    let (format, core) = live.parts();
    let counted = count(format, core, &inos)?;
    let now = core.now().secs;
    let mut quotas = Quotas::new();
    for (kind, limits) in limits {
        let counted = match kind {
            QuotaKind::User => &counted.users,
            QuotaKind::Group => &counted.groups,
        };
        quotas.keep(kind, limits, counted, now);
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
    live.sync()
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

/// The records of a quota file of ids that are counted. Holes have none.
fn read(
    live: &mut FfsLive,
    ino: Ino,
    format: QuotaFormat,
) -> Result<BTreeMap<u32, Quota>, FsError> {
    let fsize = u64::from(live.parts().0.sb.fsize);
    let mut quotas = BTreeMap::new();
    for run in live.data_runs(ino)? {
        let (mut at, len) = (run.lbn.get() * fsize, run.extent.len * fsize);
        let end = at + len;
        while at < end {
            let mut bytes = vec![0; index(PIECE.min(end - at))];
            let read = live.read(ino, ByteLen::new(at), &mut bytes)?;
            if read == 0 {
                break;
            }
            let records = format.records(at, bytes.get(..read).unwrap_or_default());
            quotas.extend(records.filter(|(id, _)| i32::try_from(*id).is_ok()));
            if quotas.len() > MOST_RECORDS {
                return Err(FsError::Unsupported(format!("more than {MOST_RECORDS} records")));
            }
            at += wide(read);
        }
    }
    Ok(quotas)
}

/// Usage by owners.
#[derive(Default)]
struct Counted {
    users: BTreeMap<u32, Usage>,
    groups: BTreeMap<u32, Usage>,
}

impl Counted {
    fn add(&mut self, inode: &Inode) {
        // Ids that would be negative are not counted (`quotacheck`).
        if i32::try_from(inode.uid).is_err() || i32::try_from(inode.gid).is_err() {
            return;
        }
        for (usage, id) in [(&mut self.users, inode.uid), (&mut self.groups, inode.gid)] {
            let usage = usage.entry(id).or_default();
            usage.sectors = usage.sectors.saturating_add(inode.sectors());
            usage.inodes += 1;
        }
    }
}

/// Counts the usage of all owners, without snapshots and quota files (`chkquota` of FreeBSD's
/// `quotacheck`). Everything is on the disk.
fn count(format: &mut Ffs, core: &mut Core, quota_files: &[Ino]) -> Result<Counted, FsError> {
    let mut counted = Counted::default();
    let (per_block, len) = (format.sb.inodes_per_block(), index(format.sb.inode_size()));
    let mut block = vec![0; index(format.sb.bsize)];
    for group in (0..format.sb.ncg).map(GroupNo::new) {
        for first in (0..format.sb.ipg).step_by(index(per_block)) {
            let mut used = Vec::new();
            for slot in first..format.sb.ipg.min(first + per_block) {
                if format.allocator.groups_mut().inode_in_use(core, group, slot)? {
                    used.push(Ino::new(group.get() * format.sb.ipg + slot));
                }
            }
            let used = used.into_iter().filter(|ino| ino.get() >= ROOT);
            for (n, ino) in used.enumerate() {
                let place = format.sb.inode_place(ino)?;
                if n == 0 {
                    let at = place.block.get() * u64::from(format.sb.fsize);
                    format.copies.device().read_bytes(ByteLen::new(at), &mut block)?;
                }
                let lost = || truncated(Location::of("inode").in_inode(ino));
                let bytes = slice(&block, place.skip, len).ok_or_else(lost)?;
                let inode = Inode::decode(&format.sb, ino, bytes)?;
                let is_file = inode.mode() != 0 && !inode.is_snapshot();
                if is_file && !quota_files.contains(&ino) {
                    counted.add(&inode);
                }
            }
        }
    }
    Ok(counted)
}
