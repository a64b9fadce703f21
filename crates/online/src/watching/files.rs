//! Files by inode number: pages in memory, and names.

use crate::relayout::Target;
use rustix::fs::FileType;
use seekless_fs::FsError;
use seekless_host::handle::{self, Access};
use seekless_host::mounts::Mount;
use seekless_host::residency;
use seekless_images::Error;
use seekless_layout::habits::FileId;
use seekless_layout::recording::Index;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Files up to this many bytes are used as a whole.
pub(super) const SMALL: u64 = 1 << 20;

/// Larger files are ignored: databases, images of disks.
pub(super) const LARGEST: u64 = 1 << 30;

/// If at least this percentage of a file's pages is in memory, all of it counts as used.
pub(super) const NEARLY_ALL: u64 = 90;

/// The used pages of a file, in order: first page and the page after the last; an empty list stands
/// for all of them. `None` for a file that is gone, is not regular, is too large, or has no pages
/// in memory.
pub(super) fn look(on: &File, file: FileId) -> Option<Vec<(u32, u32)>> {
    let FileId { ino, generation } = file;
    let opened = handle::open(on, ino, generation, Access::Look).ok()?;
    let stat = rustix::fs::fstat(&opened).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let size = u64::try_from(stat.st_size).ok()?;
    if !is_file || stat.st_nlink == 0 || size == 0 || size > LARGEST {
        return None;
    }
    if size <= SMALL {
        return Some(Vec::new());
    }
    drop(opened);
    let opened = handle::open(on, ino, generation, Access::Read).ok()?;
    let runs = residency::resident_of(&opened, 0, size).ok()?;
    let page = residency::page_size();
    let there: u64 = runs.iter().map(|(first, end)| end - first).sum();
    if there * 100 >= size.div_ceil(page) * NEARLY_ALL {
        return Some(Vec::new());
    }
    // Ranges are in units of 4 KiB, whatever the machine's page size.
    let unit = |pages: u64| u32::try_from(pages * page / seekless_layout::habits::PAGE).ok();
    let runs: Vec<(u32, u32)> =
        runs.into_iter().filter_map(|(first, end)| Some((unit(first)?, unit(end)?))).collect();
    (!runs.is_empty()).then_some(runs)
}

/// The names of files on their volume.
pub struct Names(HashMap<FileId, Vec<u8>>);

impl Names {
    /// Finds the names of files: from the kernel if it has them in memory; otherwise all
    /// directories of the volume are read.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` for a damaged directory, `ErrorKind::System`.
    pub fn new(target: &Target, files: impl Iterator<Item = FileId>) -> Result<Self, Error> {
        let mut names = HashMap::new();
        let mut unknown = Vec::new();
        for file in files {
            if names.contains_key(&file) {
                continue;
            }
            let FileId { ino, generation } = file;
            let Ok(opened) = handle::open(&target.on, ino, generation, Access::Look) else {
                continue;
            };
            match name_of(&target.mount, &opened) {
                Some(name) => drop(names.insert(file, name)),
                None => unknown.push(file),
            }
        }
        if !unknown.is_empty() {
            let about = |error: FsError| target.about(error);
            let image = target.look().map_err(about)?;
            let index = Index::of_image(image.as_ref()).map_err(about)?;
            for file in unknown {
                if let Some(name) = index.path(seekless_units::Ino::new(file.ino)) {
                    names.insert(file, name);
                }
            }
        }
        Ok(Self(names))
    }

    /// The name of a file, from the root of the volume.
    pub fn get(&self, file: FileId) -> Option<Vec<u8>> {
        self.0.get(&file).cloned()
    }
}

/// The name of an open file, if the kernel's name leads to it.
fn name_of(mount: &Mount, file: &File) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(Path::new(&link)).ok()?;
    let stat = rustix::fs::fstat(file).ok()?;
    let there = rustix::fs::lstat(&path).ok()?;
    let is_same = (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino);
    is_same.then(|| mount.inside(&path)).flatten()
}
