//! Names for the inodes and blocks of events.

use super::{Collected, Source};
use seekless_fs::format::OpenOptions;

use seekless_fs::{FileKind, Inspect};
use seekless_host::fanotify::{AccessKind, Noticed};
use seekless_host::mounts::{self, Mount};
use seekless_host::tracefs;
use seekless_host::{program, residency};
use seekless_images::Error;
use seekless_layout::recording::{
    Assembled, EndState, Index, PageAccess, PageSet, Pages, RecordedTouch, TouchKind, assemble,
};
use seekless_units::{BlockNo, Extent, Ino};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The owners of inodes and blocks on a mounted file system.
pub struct Names<'a> {
    mount: &'a Mount,
    /// The same file system through our own reader, if it supports the format.
    image: Option<Arc<dyn Inspect>>,
    index: Index,
}

impl<'a> Names<'a> {
    /// Reads the file system's own structures if the format is supported; else uses the names in
    /// the events, or walks the mount.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` for a damaged directory, `ErrorKind::System`.
    pub fn new(mount: &'a Mount, collected: &Collected) -> Result<Self, Error> {
        if collected.source == Source::Fanotify {
            let index =
                Index::of_names(root_of(mount), 4096, noticed_names(mount, &collected.noticed));
            return Ok(Self { mount, image: None, index });
        }
        if mount.fs_type.starts_with("ext") {
            let device = mounts::block_device(mount)?;
            // A read of a mounted volume's device returns the contents of the kernel's cache; the
            // journal has nothing newer.
            let open = OpenOptions { ignore_checksums: true, skip_journal: true };
            let read = seekless_images::open_in_use(&device, open).and_then(|image| {
                let index = Index::of_image(image.as_ref())
                    .map_err(|error| seekless_images::Error::from(error).about(device.display()))?;
                Ok(Self { mount, image: Some(image), index })
            });
            match read {
                Ok(names) => return Ok(names),
                Err(failure) => tracing::warn!(
                    "{failure}: the underlying device cannot be read, so metadata blocks are not named"
                ),
            }
        }
        let mut wanted = inodes(collected);
        let mut names = Vec::new();
        walk(mount, &mount.dir, &mut wanted, &mut names);
        Ok(Self { mount, image: None, index: Index::of_names(root_of(mount), 4096, names) })
    }

    /// Converts collected events to a trace.
    pub fn assemble(
        &mut self,
        collected: Collected,
        pages: Pages,
        loaded: &HashSet<Ino>,
        kept_caches: bool,
    ) -> Assembled {
        let touches = match collected.source {
            Source::Tracefs => self.touches(collected),
            Source::Fanotify => self.accesses(collected, kept_caches),
        };
        let Self { mount, image, index } = self;
        let image = image.as_deref();
        let mut size = |ino: Ino, path: &[u8]| match image {
            Some(image) => image.attr(ino).ok().map(|attr| attr.size),
            None => fs::metadata(on_host(mount, path)?).ok().map(|meta| meta.len()),
        };
        let mut residents: HashMap<Ino, PageSet> = HashMap::new();
        let mut resident = |ino: Ino, path: &[u8]| {
            let find = || on_host(mount, path).and_then(|path| residency::resident(&path).ok());
            let set = || find().unwrap_or_default().into_iter().collect();
            residents.entry(ino).or_insert_with(set).clone()
        };
        let mut holder = |dir: Ino, name: &[u8]| match image {
            Some(image) => image.lookup_blocks(dir, name).ok()?.last().copied(),
            None => None,
        };
        let known =
            EndState { loaded, size: &mut size, resident: &mut resident, holder: &mut holder };
        assemble(touches, index, pages, known)
    }

    /// Trace events, with opens and listings from fanotify.
    fn touches(&self, collected: Collected) -> Vec<RecordedTouch> {
        let start = collected.start;
        let block_size = u64::from(self.index.block_size());
        let mut touches = Vec::with_capacity(collected.traced.len() + collected.noticed.len());
        let mut named = HashSet::new();
        for event in collected.traced {
            if named.insert(event.tid)
                && let Some(comm) = program::name_of(event.tid)
            {
                touches.push(RecordedTouch {
                    time: 0,
                    tid: event.tid,
                    what: TouchKind::Named(comm.into()),
                });
            }
            let time = event.time.saturating_sub(start);
            let what = traced(event.what, block_size, collected.first_sector);
            touches.extend(what.map(|what| RecordedTouch { time, tid: event.tid, what }));
        }
        for event in collected.noticed {
            let what = match (event.did, event.directory) {
                (AccessKind::Access, false) => continue,
                (AccessKind::Access, true) => TouchKind::Listed,
                (AccessKind::Open, _) => TouchKind::Opened,
                (AccessKind::Exec, _) => TouchKind::Executed,
            };
            let Ok(ino) = u32::try_from(event.ino) else { continue };
            let time = event.time.saturating_sub(start);
            touches.push(RecordedTouch { time, tid: event.tid, what: what(Ino::new(ino)) });
            // Opening a directory counts as listing it.
            if event.directory && event.did == AccessKind::Open {
                touches.push(RecordedTouch {
                    time,
                    tid: event.tid,
                    what: TouchKind::Listed(Ino::new(ino)),
                });
            }
        }
        touches.sort_by_key(|touch| touch.time);
        touches
    }

    /// Accesses only: the pages in memory afterwards tell which pages they led to, if none were
    /// before.
    fn accesses(&self, collected: Collected, kept_caches: bool) -> Vec<RecordedTouch> {
        let start = collected.start;
        let mut touches = Vec::new();
        let mut named = HashSet::new();
        let mut accessed: HashMap<Ino, bool> = HashMap::new();
        for event in &collected.noticed {
            let access = event.did == AccessKind::Access;
            let Ok(ino) = u32::try_from(event.ino).map(Ino::new) else { continue };
            *accessed.entry(ino).or_default() |= access;
        }
        let mut done = HashSet::new();
        for event in collected.noticed {
            let (Ok(ino), Some(path)) = (u32::try_from(event.ino).map(Ino::new), &event.path)
            else {
                continue;
            };
            let time = event.time.saturating_sub(start);
            let mut push = |what| touches.push(RecordedTouch { time, tid: event.tid, what });
            if let Some(comm) = event.comm.filter(|comm| named.insert((event.tid, comm.clone()))) {
                push(TouchKind::Named(comm.into()));
            }
            match (event.did, event.directory) {
                (AccessKind::Access, true) => push(TouchKind::Listed(ino)),
                (AccessKind::Access, false) => {}
                (AccessKind::Open, _) => push(TouchKind::Opened(ino)),
                (AccessKind::Exec, _) => push(TouchKind::Executed(ino)),
            }
            // A file that is only mapped is never accessed: its open counts instead.
            let now =
                event.did == AccessKind::Access || !accessed.get(&ino).copied().unwrap_or(false);
            if event.directory || !now || !done.insert(ino) {
                continue;
            }
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
            let runs = if kept_caches && event.did == AccessKind::Access {
                let size = fs::metadata(&path).map_or(0, |meta| meta.len());
                vec![(0, size.div_ceil(residency::page_size()))]
            } else if kept_caches {
                Vec::new()
            } else {
                residency::resident(&path).unwrap_or_default()
            };
            for (from, to) in runs.into_iter().filter(|(from, to)| from < to) {
                push(TouchKind::Pages { ino, first: from, last: to - 1, how: PageAccess::Fetched });
            }
        }
        touches
    }
}

/// Converts a trace event for the recording.
pub(super) fn traced(
    what: tracefs::EventKind,
    block_size: u64,
    first_sector: u64,
) -> Option<TouchKind> {
    let ino = |ino: u64| u32::try_from(ino).ok().map(Ino::new);
    let pages =
        |of: u64, first, last, how| Some(TouchKind::Pages { ino: ino(of)?, first, last, how });
    match what {
        tracefs::EventKind::Asked { ino, first, last } => {
            pages(ino, first, last, PageAccess::Asked)
        }
        tracefs::EventKind::Faulted { ino, page } => pages(ino, page, page, PageAccess::Faulted),
        tracefs::EventKind::Mapped { ino, first, last } => {
            pages(ino, first, last, PageAccess::Mapped)
        }
        tracefs::EventKind::Fetched { ino, first, last } => {
            pages(ino, first, last, PageAccess::Fetched)
        }
        tracefs::EventKind::Buffer { block, size } => Some(TouchKind::Block(BlockNo::new(
            block.checked_mul(u64::from(size))? / block_size.max(1),
        ))),
        tracefs::EventKind::Loaded { ino: of } => ino(of).map(TouchKind::Inode),
        tracefs::EventKind::Renamed { comm } => Some(TouchKind::Named(comm)),
        tracefs::EventKind::Forked { child } => Some(TouchKind::Forked(child)),
        tracefs::EventKind::Queued { read: false, .. }
        | tracefs::EventKind::Evicted { .. }
        | tracefs::EventKind::Issued { .. } => None,
        tracefs::EventKind::Queued { sector, sectors, .. } => {
            let (start, len) = (sector.checked_sub(first_sector)?, u64::from(sectors));
            let (first, end) = (start * 512 / block_size, (start + len) * 512);
            let count = end.div_ceil(block_size).checked_sub(first)?;
            Some(TouchKind::Requested(Extent::new(BlockNo::new(first), count)))
        }
    }
}

fn root_of(mount: &Mount) -> Ino {
    let ino = fs::metadata(&mount.dir).map_or(0, |meta| meta.ino());
    Ino::new(u32::try_from(ino).unwrap_or(0))
}

/// The path on this machine of a path on the file system; `None` if it is not below the mounted
/// part.
fn on_host(mount: &Mount, path: &[u8]) -> Option<PathBuf> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    Some(mount.dir.join(path.strip_prefix(&mount.root).ok()?))
}

fn noticed_names<'a>(
    mount: &'a Mount,
    noticed: &'a [Noticed],
) -> impl Iterator<Item = (Ino, Vec<u8>, FileKind, u64)> + 'a {
    noticed.iter().filter_map(|event| {
        let path = Path::new(std::ffi::OsStr::from_bytes(event.path.as_ref()?));
        let size = path.metadata().map_or(u64::MAX, |meta| meta.len());
        let kind = if event.directory { FileKind::Directory } else { FileKind::Regular };
        Some((Ino::new(u32::try_from(event.ino).ok()?), mount.inside(path)?, kind, size))
    })
}

/// The inodes that need names.
fn inodes(collected: &Collected) -> HashSet<u64> {
    let traced = collected.traced.iter().filter_map(|event| match event.what {
        tracefs::EventKind::Asked { ino, .. }
        | tracefs::EventKind::Faulted { ino, .. }
        | tracefs::EventKind::Mapped { ino, .. }
        | tracefs::EventKind::Fetched { ino, .. } => Some(ino),
        _ => None,
    });
    traced.chain(collected.noticed.iter().map(|event| event.ino)).collect()
}

/// Finds the names of inodes below a directory, on its file system, until none is missing.
/// Unreadable directories are skipped.
fn walk(
    mount: &Mount,
    dir: &Path,
    wanted: &mut HashSet<u64>,
    names: &mut Vec<(Ino, Vec<u8>, FileKind, u64)>,
) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let device = fs::symlink_metadata(dir).map(|meta| meta.dev()).ok();
    for entry in entries.flatten() {
        let path = entry.path();
        if wanted.is_empty() {
            return;
        }
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if Some(meta.dev()) != device {
            continue;
        }
        let Ok(ino) = u32::try_from(meta.ino()) else { continue };
        let Some(name) = mount.inside(&path) else { continue };
        if wanted.remove(&meta.ino()) {
            names.push((Ino::new(ino), name, kind_of(&meta), meta.len()));
        }
        if meta.is_dir() {
            walk(mount, &path, wanted, names);
        }
    }
}

fn kind_of(meta: &fs::Metadata) -> FileKind {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_file() => FileKind::Regular,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () => FileKind::Socket,
    }
}
