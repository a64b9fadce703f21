//! All files of a volume, numbered: FAT has no inodes, so a walk over the
//! directories gives each entry a number.

use crate::chain::Walk;
use crate::directory::{Sectors, VisitedEntry};
use crate::ondisk::ShortEntry;
use crate::volume::Volume;
use hashbrown::HashMap;
use seekless_fs::bits::Bits;
use seekless_fs::field::{index, invalid};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};
use std::ops::{ControlFlow, Range};

/// The root directory's number.
pub(crate) const ROOT: Ino = Ino::new(1);

/// A file: its entry, and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) short: ShortEntry,
    /// The directory.
    pub(crate) dir: Ino,
    /// The entry's number among the directory's slots.
    pub(crate) slot: u32,
    pub(crate) sector: BlockNo,
    pub(crate) offset: u32,
}

/// Files by number.
pub(crate) struct Files {
    /// File n is at n - 2; the root is not included.
    files: Vec<File>,
    /// The numbers of a directory's files, and its place.
    dirs: HashMap<Ino, Directory>,
    /// The label in the root directory.
    pub(crate) label: Option<[u8; 11]>,
}

/// A reachable directory.
struct Directory {
    children: Range<u32>,
    subdirectories: u32,
    /// Its place, or the reason why that is unknown.
    sectors: Result<Sectors, Fault>,
}

/// The reason why a directory cannot be read.
#[derive(Clone, Copy, Debug)]
struct Fault {
    kind: Corruption,
    place: Location,
}

impl Files {
    /// Walks the whole tree, one directory after the other. Unreadable files are left out; reading
    /// them fails with the reason.
    ///
    /// Every directory has clusters of its own: one that leads into an earlier directory is not
    /// entered, so the walk ends after as many slots as the volume has.
    pub(crate) fn find(volume: &Volume) -> Result<Self, FsError> {
        let mut files = Self { files: Vec::new(), dirs: HashMap::new(), label: None };
        let mut claimed = Bits::new(index(volume.boot.clusters) + 2);
        let mut next = 0u32;
        let root = match volume.boot.root_cluster {
            0 => {
                let (start, len) = volume.boot.fixed_root();
                Ok(Sectors(vec![Extent::new(start, len)]))
            }
            first => directory(volume, first, ROOT, &mut claimed)?,
        };
        files.enter(volume, ROOT, root)?;
        while let Some(file) = files.files.get(index(next)).copied() {
            let ino = Ino::new(next + 2);
            next += 1;
            if file.short.is_directory() {
                let first = file.short.first_cluster(volume.boot.root_cluster != 0);
                let sectors = directory(volume, first, ino, &mut claimed)?;
                files.enter(volume, ino, sectors)?;
            }
        }
        Ok(files)
    }

    fn enter(
        &mut self,
        volume: &Volume,
        dir: Ino,
        sectors: Result<Sectors, Fault>,
    ) -> Result<(), FsError> {
        let first = self.next_number();
        let mut subdirectories = 0u32;
        if let Ok(sectors) = &sectors {
            let mut label = None;
            let files = &mut self.files;
            let visited = volume.visit(dir, dir == ROOT, sectors, 0, &mut |met| {
                match met {
                    VisitedEntry::Label(entry) => label = label.or(Some(entry.DIR_Name)),
                    VisitedEntry::File(entry) => {
                        if files.len() >= index(u32::MAX) - 2 {
                            return Err(FsError::Unsupported("4 G files or more".into()));
                        }
                        let is_dir = entry.short.is_directory();
                        subdirectories += u32::from(is_dir);
                        files.push(File {
                            short: entry.short,
                            dir,
                            slot: entry.slot,
                            sector: entry.sector,
                            offset: entry.offset,
                        });
                    }
                }
                Ok(ControlFlow::Continue(()))
            });
            match visited {
                // Reported again to readers of the directory.
                Ok(()) | Err(FsError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
            if dir == ROOT {
                self.label = label;
            }
        }
        let children = first..self.next_number();
        let ours = self.files.get(index(first - 2)..).unwrap_or_default();
        debug_assert!(
            ours.is_sorted_by(|one, next| one.slot < next.slot),
            "files are met in the order of their slots"
        );
        let before = self.dirs.insert(dir, Directory { children, subdirectories, sectors });
        debug_assert!(before.is_none(), "directory {dir} is entered once");
        Ok(())
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX) + 2
    }

    /// The number of files, the root included.
    pub(crate) fn count(&self) -> u32 {
        self.next_number() - 1
    }

    /// A file other than the root.
    pub(crate) fn get(&self, ino: Ino) -> Option<&File> {
        self.files.get(index(ino.get().checked_sub(2)?))
    }

    /// All files but the root, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ino, &File)> {
        (2u32..).map(Ino::new).zip(&self.files)
    }

    /// The number of the file in a slot of a directory.
    pub(crate) fn in_slot(&self, dir: Ino, slot: u32) -> Option<Ino> {
        let children = &self.dirs.get(&dir)?.children;
        let from = index(children.start.checked_sub(2)?);
        let to = index(children.end.checked_sub(2)?);
        let among = self.files.get(from..to)?;
        let at = among.binary_search_by_key(&slot, |file| file.slot).ok()?;
        Some(Ino::new(children.start + u32::try_from(at).ok()?))
    }

    /// The sectors of a directory; `None` for anything else.
    pub(crate) fn sectors(&self, dir: Ino) -> Option<Result<&Sectors, FsError>> {
        let sectors = self.dirs.get(&dir)?.sectors.as_ref();
        Some(sectors.map_err(|fault| FsError::corrupt(fault.kind, fault.place)))
    }

    /// Directories in a directory.
    pub(crate) fn subdirectories(&self, dir: Ino) -> u32 {
        self.dirs.get(&dir).map_or(0, |dir| dir.subdirectories)
    }
}

/// The sectors of a directory's chain, all unclaimed so far.
fn directory(
    volume: &Volume,
    first: u32,
    dir: Ino,
    claimed: &mut Bits,
) -> Result<Result<Sectors, Fault>, FsError> {
    let runs = match volume.runs(first, None, dir) {
        Ok(runs) => runs,
        Err(FsError::Corrupt { kind, location }) => {
            return Ok(Err(Fault { kind, place: *location }));
        }
        Err(error) => return Err(error),
    };
    for run in &runs {
        for n in 0..run.len {
            let cluster = run.start + n;
            if !claimed.set(index(cluster.get())) {
                let place = Location::of("directory").in_inode(dir);
                let first = u32::try_from(cluster.get()).unwrap_or(u32::MAX);
                let place = place.in_block(volume.boot.sector_of(first));
                let kind = Corruption::Invalid {
                    field: "cluster of another directory",
                    value: cluster.get(),
                };
                return Ok(Err(Fault { kind, place }));
            }
        }
    }
    let mapped = volume.boot.mappings(&runs);
    Ok(Ok(Sectors(mapped.into_iter().map(|run| run.extent).collect())))
}

/// Clusters that more than one file claims, or one file twice.
pub(crate) struct Shared(Bits);

impl Shared {
    /// Follows the chains of all files, each to the first cluster of an earlier one: no cluster is
    /// looked at more than twice as often as files lead to it.
    pub(crate) fn find(volume: &Volume, files: &Files) -> Result<Self, FsError> {
        let len = index(volume.boot.clusters) + 2;
        let (mut claimed, mut shared) = (Bits::new(len), Bits::new(len));
        let is_fat32 = volume.boot.root_cluster != 0;
        let mut follow = |first: u32| -> Result<(), FsError> {
            let mut walk = Walk::new(volume, first);
            while let Some(cluster) = walk.step()? {
                if !claimed.set(index(cluster)) {
                    shared.set(index(cluster));
                    break;
                }
            }
            Ok(())
        };
        if is_fat32 {
            follow(volume.boot.root_cluster)?;
        }
        for (_, file) in files.iter() {
            match file.short.first_cluster(is_fat32) {
                0 => {}
                first => follow(first)?,
            }
        }
        Ok(Self(shared))
    }

    /// The first shared cluster of these runs.
    pub(crate) fn among(&self, runs: &[Extent]) -> Option<u64> {
        let clusters = runs.iter().flat_map(|run| run.start.get()..run.end().get());
        clusters.into_iter().find(|&cluster| self.0.get(index(cluster)))
    }
}

/// The error of a shared cluster.
pub(crate) fn shared_error(volume: &Volume, ino: Ino, cluster: u64) -> FsError {
    let number = u32::try_from(cluster).unwrap_or(u32::MAX);
    let place = Location::of("file").in_inode(ino).in_block(volume.boot.sector_of(number));
    invalid("cluster of another file too", cluster, place)
}
