//! An open image, as the rest of seekless sees it.

use crate::describe::geometry;
use crate::directory::{Sectors, VisitedEntry};
use crate::files::{File, Files, ROOT, Shared, shared_error};
use crate::flags::flags_of;
use crate::name;
use crate::ondisk::attr;
use crate::table::Table;
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, invalid, range, wide};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::StatVfs;
use seekless_fs::{
    Attr, BlockMap, Corruption, DeviceNumber, DirEntry, FileKind, FsError, Geometry, GroupSummary,
    InodeLocation, Inspect, Location, Mapping, Timestamp, Xattr,
};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lbn};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Cached maps of files: each read of a file needs its map from the start.
const MAPS_KEPT: usize = 16;

/// A map of a file, kept for the next read.
type CachedMap = (Ino, Arc<Vec<Mapping>>);

/// An open FAT12, FAT16 or FAT32 image. Block numbers are those of sectors.
///
/// Opening reads the FAT once and all directories; files are numbered in a walk, the root first,
/// directory by directory, each in the order of its entries.
pub struct FatImage {
    volume: Volume,
    files: Files,
    geometry: Geometry,
    /// Continue to read files that share clusters with others.
    ignore_sharing: bool,
    shared: OnceLock<Shared>,
    maps: Mutex<Vec<CachedMap>>,
}

impl FatImage {
    /// Opens an image for reading.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the boot sector is inconsistent or the FAT or the root directory
    /// cannot be found; [`FsError::Unsupported`] for an unknown version of FAT32.
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self, FsError> {
        let volume = Volume::open(device)?;
        let files = Files::find(&volume)?;
        let mut free = 0u64;
        let end = volume.boot.last_cluster() + 1;
        Table::new(&volume).free_runs(2, end, &mut |run| free += run.len)?;
        let geometry = geometry(&volume, &files, free)?;
        Ok(Self {
            volume,
            files,
            geometry,
            ignore_sharing: options.ignore_checksums,
            shared: OnceLock::new(),
            maps: Mutex::default(),
        })
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The number of the file in a slot of a directory.
    pub(crate) fn in_slot(&self, dir: Ino, slot: u32) -> Option<Ino> {
        self.files.in_slot(dir, slot)
    }

    fn is_fat32(&self) -> bool {
        self.volume.boot.root_cluster != 0
    }

    fn file(&self, ino: Ino) -> Result<&File, FsError> {
        let limit = u64::from(self.files.count());
        let place = Location::of("file number").in_inode(ino);
        self.files.get(ino).ok_or_else(|| range("file number", ino.get().into(), limit, place))
    }

    /// The sectors of a directory.
    pub(crate) fn directory_sectors(&self, dir: Ino) -> Result<&Sectors, FsError> {
        if dir != ROOT && !self.file(dir)?.short.is_directory() {
            return Err(FsError::NotDirectory(format!("file {dir}")));
        }
        let place = || Location::of("directory").in_inode(dir);
        self.files.sectors(dir).unwrap_or_else(|| Err(invalid("directory", 0, place())))
    }

    /// The map of a regular file, with as many clusters as its length needs.
    fn map(&self, ino: Ino, file: &File) -> Result<Arc<Vec<Mapping>>, FsError> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = maps.iter().position(|(of, _)| *of == ino) {
            let kept = maps.remove(at);
            let map = kept.1.clone();
            maps.push(kept);
            return Ok(map);
        }
        drop(maps);
        let map = Arc::new(self.find_map(ino, file)?);
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if maps.len() >= MAPS_KEPT {
            maps.remove(0);
        }
        maps.push((ino, map.clone()));
        debug_assert!(maps.len() <= MAPS_KEPT, "few maps are kept");
        Ok(map)
    }

    fn find_map(&self, ino: Ino, file: &File) -> Result<Vec<Mapping>, FsError> {
        let size = u64::from(file.short.DIR_FileSize.get());
        let wanted = size.div_ceil(self.volume.boot.cluster_bytes());
        let first = file.short.first_cluster(self.is_fat32());
        if wanted == 0 {
            return Ok(Vec::new());
        }
        if first == 0 {
            // A length without a chain.
            let place = Location::of("directory entry").in_inode(ino).in_block(file.sector);
            return Err(FsError::corrupt(Corruption::Truncated, place.at_offset(file.offset)));
        }
        let runs = self.volume.runs(first, Some(wanted), ino)?;
        if !self.ignore_sharing {
            let shared = match self.shared.get() {
                Some(shared) => shared,
                None => {
                    let found = Shared::find(&self.volume, &self.files)?;
                    self.shared.get_or_init(|| found)
                }
            };
            if let Some(cluster) = shared.among(&runs) {
                return Err(shared_error(&self.volume, ino, cluster));
            }
        }
        Ok(self.volume.boot.mappings(&runs))
    }

    /// The entry with a name, without regard to case, and the sectors up to it.
    fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<(Ino, u64)>, FsError> {
        let sectors = self.directory_sectors(dir)?;
        let Some(wanted) = name::to_units(name) else { return Ok(None) };
        let folded = name::fold(&wanted);
        let mut found = None;
        self.volume.visit(dir, dir == ROOT, sectors, 0, &mut |met| {
            let VisitedEntry::File(entry) = met else { return Ok(ControlFlow::Continue(())) };
            let is_short = || {
                let short = name::to_units(&entry.short.shown());
                short.is_some_and(|short| name::fold(&short) == folded)
            };
            let is_long = entry.head.name.as_ref().is_some_and(|long| name::fold(long) == folded);
            if is_long || is_short() {
                found = Some(entry.slot);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let end = |slot: u32| u64::from(slot / self.volume.slots()) + 1;
        Ok(found.and_then(|slot| Some((self.files.in_slot(dir, slot)?, end(slot)))))
    }

    fn above(&self, dir: Ino) -> Ino {
        self.files.get(dir).map_or(ROOT, |file| file.dir)
    }
}

impl Inspect for FatImage {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn space(&self) -> Result<StatVfs, FsError> {
        Ok(self.volume.boot.space(self.geometry.free_blocks))
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        let mut told = Attr {
            ino,
            kind: FileKind::Directory,
            perm: 0o755,
            uid: 0,
            gid: 0,
            nlink: self.files.subdirectories(ino) + 2,
            size: 0,
            sectors: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            crtime: None,
            device: DeviceNumber::default(),
            generation: 0,
            flags: 0,
            project: 0,
        };
        if ino != ROOT {
            let file = self.file(ino)?;
            told.mtime = file.short.modified();
            told.ctime = told.mtime;
            told.atime = file.short.accessed();
            told.crtime = file.short.created();
            if !file.short.is_directory() {
                told.kind = FileKind::Regular;
                told.nlink = 1;
                told.perm = 0o644;
                told.size = file.short.DIR_FileSize.get().into();
            }
            if file.short.DIR_Attr & attr::READ_ONLY != 0 {
                told.perm &= !0o222;
            }
            told.flags = flags_of(file.short.DIR_Attr);
        }
        let bytes = match told.kind {
            FileKind::Directory => {
                // An unreadable directory has attributes all the same.
                let sectors = self.directory_sectors(ino).map_or(0, Sectors::count);
                told.size = sectors * u64::from(self.volume.boot.sector);
                told.size
            }
            _ => told.size.next_multiple_of(self.volume.boot.cluster_bytes()),
        };
        told.sectors = bytes >> 9;
        Ok(told)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        if ino != ROOT {
            self.file(ino)?;
        }
        Ok(Vec::new())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        Err(FsError::Invalid(format!("file {ino} is not a symlink")))
    }

    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        let no_file = || FsError::Invalid(format!("file {ino} is not a regular file"));
        if ino == ROOT {
            return Err(no_file());
        }
        let file = self.file(ino)?;
        if file.short.is_directory() {
            return Err(no_file());
        }
        let size = u64::from(file.short.DIR_FileSize.get());
        let Some(left) = size.checked_sub(offset.get()) else { return Ok(0) };
        let len = index(left.min(wide(buf.len())));
        let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        let map = self.map(ino, file)?;
        let sector = u64::from(self.volume.boot.sector);
        let first = Lbn::new(offset.get() / sector);
        let mut skip = offset.get() % sector;
        let from = map.partition_point(|run| run.lbn <= first);
        debug_assert!(from > 0, "the map of a file with contents begins at its first sector");
        let mut at = first;
        let mut rest = buf;
        for run in map.iter().skip(from - 1) {
            let into = at - run.lbn;
            debug_assert!(into < run.extent.len, "the map reaches to the file's end");
            let there = (run.extent.len - into) * sector;
            let take = index(there - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            self.volume.read_bytes(run.extent.start + into, skip, now)?;
            (rest, skip) = (later, 0);
            at = run.lbn + run.extent.len;
            if rest.is_empty() {
                break;
            }
        }
        if !rest.is_empty() {
            let place = Location::of("file").in_inode(ino);
            return Err(FsError::corrupt(Corruption::Truncated, place));
        }
        Ok(len)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        self.directory_sectors(dir)?;
        match name {
            b"." => Ok(Some(dir)),
            b".." => Ok(Some(self.above(dir))),
            _ => Ok(self.find(dir, name)?.map(|(ino, _)| ino)),
        }
    }

    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        // Cookies 1 and 2 are those of `.` and `..`; that of the entry in slot n is n + 3.
        let sectors = self.directory_sectors(dir)?;
        let kind = Some(FileKind::Directory);
        for (cookie, name, ino) in [(1, &b"."[..], dir), (2, b"..", self.above(dir))] {
            if after < cookie && visit(DirEntry { name, ino, kind, cookie }).is_break() {
                return Ok(());
            }
        }
        let from = u32::try_from(after.max(2) - 2).unwrap_or(u32::MAX);
        self.volume.visit(dir, dir == ROOT, sectors, from, &mut |met| {
            let VisitedEntry::File(entry) = met else { return Ok(ControlFlow::Continue(())) };
            let Some(ino) = self.files.in_slot(dir, entry.slot) else {
                return Ok(ControlFlow::Continue(()));
            };
            let is_dir = entry.short.is_directory();
            let kind = if is_dir { FileKind::Directory } else { FileKind::Regular };
            let name = entry.name();
            let cookie = u64::from(entry.slot) + 3;
            Ok(visit(DirEntry { name: &name, ino, kind: Some(kind), cookie }))
        })
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let runs = if ino == ROOT || self.file(ino)?.short.is_directory() {
            let mut lbn = Lbn::ZERO;
            let mut place = |&extent: &Extent| {
                let mapping = Mapping { lbn, extent, unwritten: false };
                lbn += extent.len;
                mapping
            };
            self.directory_sectors(ino)?.0.iter().map(&mut place).collect()
        } else {
            self.map(ino, self.file(ino)?)?.to_vec()
        };
        Ok(BlockMap { runs, ..BlockMap::default() })
    }

    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        let (block, offset) = if ino == ROOT {
            let first = self.directory_sectors(ino)?.nth(0);
            (first.unwrap_or(BlockNo::ZERO), 0)
        } else {
            let file = self.file(ino)?;
            (file.sector, file.offset)
        };
        // Nothing is read ahead: the entry was read with its directory.
        Ok(InodeLocation { block, offset, table: Extent::new(block, 1), used_end: block })
    }

    fn lookup_blocks(&self, dir: Ino, name: &[u8]) -> Result<Vec<Lbn>, FsError> {
        let all = self.directory_sectors(dir)?.count();
        let end = match name {
            b"." | b".." => all.min(1),
            _ => self.find(dir, name)?.map_or(all, |(_, end)| end),
        };
        Ok((0..end).map(Lbn::new).collect())
    }

    fn unindexed_blocks(&self, dir: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        self.listing_blocks(dir).map(Some)
    }

    fn listing_blocks(&self, dir: Ino) -> Result<Vec<Lbn>, FsError> {
        let all = self.directory_sectors(dir)?.count();
        Ok((0..all).map(Lbn::new).collect())
    }

    fn group(&self, group: GroupNo) -> Result<GroupSummary, FsError> {
        let boot = &self.volume.boot;
        if group != GroupNo::ZERO {
            return Err(range("group", group.get().into(), 1, Location::of("volume")));
        }
        let mut free = Vec::new();
        let spc = u64::from(boot.spc);
        let end = boot.last_cluster() + 1;
        Table::new(&self.volume).free_runs(2, end, &mut |run| {
            let first = u32::try_from(run.start.get()).unwrap_or(u32::MAX);
            free.push(Extent::new(boot.sector_of(first), run.len * spc));
        })?;
        let directories = self.files.iter().filter(|(_, file)| file.short.is_directory()).count();
        Ok(GroupSummary {
            group,
            blocks: Extent::new(BlockNo::ZERO, boot.total.into()),
            free_blocks: self.geometry.free_blocks,
            free_inodes: 0,
            directories: u32::try_from(directories).unwrap_or(u32::MAX) + 1,
            metadata: boot.fixed(),
            free,
        })
    }

    fn contents(&self) -> Option<&dyn BlockDevice> {
        Some(self.volume.device().as_ref())
    }
}
