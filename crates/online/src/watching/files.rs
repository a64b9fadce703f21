//! Files by number: what they are like, and what they are called.

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

/// Files of up to so many bytes are taken as a whole.
const SMALL: u64 = 1 << 20;

/// Files of more bytes are left out: databases, images of disks.
const LARGEST: u64 = 1 << 30;

/// Where so many percent of a file's pages are in memory, all of it is used.
const NEARLY_ALL: u64 = 90;

/// The pages of a file that are used, in order: first one, and the one behind the last;
/// none for all of them. `None` for what is gone, is no regular file, is too large, or
/// of which nothing is in memory.
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
    // Ranges are kept in units of 4 KiB, whatever the machine's pages.
    let unit = |pages: u64| u32::try_from(pages * page / seekless_layout::habits::PAGE).ok();
    let runs: Vec<(u32, u32)> =
        runs.into_iter().filter_map(|(first, end)| Some((unit(first)?, unit(end)?))).collect();
    (!runs.is_empty()).then_some(runs)
}

/// What files are called on their volume.
pub struct Names(HashMap<FileId, Vec<u8>>);

impl Names {
    /// Finds the names of files: the kernel knows them while it has them in memory; else
    /// all directories of the volume are read.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` where a directory is damaged, `ErrorKind::System`.
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

/// The name of an open file, if the one that the kernel tells leads to it.
fn name_of(mount: &Mount, file: &File) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(Path::new(&link)).ok()?;
    let stat = rustix::fs::fstat(file).ok()?;
    let there = rustix::fs::lstat(&path).ok()?;
    let is_same = (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino);
    is_same.then(|| mount.inside(&path)).flatten()
}
