//! Which pages of a file are in memory (mincore(2)).

use crate::HostError;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

/// Bytes of a file that are asked about in one go: their answers take 64 KiB.
const STRIDE: usize = 256 << 20;

/// The size of a page in bytes.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// A mapping that is undone at the end.
struct Mapping {
    start: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    fn new(file: &File, offset: u64, len: usize) -> std::io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(std::io::Error::other)?;
        // SAFETY: a fresh read-only mapping at a place of the kernel's choice;
        // nothing ever reads through it.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { start, len })
    }

    /// A byte a page: the lowest bit says whether it is in memory.
    fn pages(&self) -> std::io::Result<Vec<u8>> {
        let count = self.len.div_ceil(rustix::param::page_size());
        let mut pages = vec![0u8; count];
        // SAFETY: the range is the mapping's own, and `pages` has a byte for
        // each of its pages.
        let failed = unsafe { libc::mincore(self.start, self.len, pages.as_mut_ptr()) } != 0;
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(pages) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and is not used any more.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// The runs of a regular file's pages that are in memory: first page and the
/// page after the last.
///
/// # Errors
/// When the file cannot be opened or mapped, or the kernel tells only owners.
pub fn resident(path: &Path) -> Result<Vec<(u64, u64)>, HostError> {
    let failed = |error| HostError::new(path.display().to_string(), error);
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let len = usize::try_from(size - at).unwrap_or(usize::MAX).min(STRIDE);
        let pages =
            Mapping::new(&file, at, len).and_then(|mapping| mapping.pages()).map_err(failed)?;
        let first = at / page_size();
        for (page, _) in (first..).zip(&pages).filter(|(_, flags)| **flags & 1 == 1) {
            match runs.last_mut() {
                Some(last) if last.1 == page => last.1 += 1,
                _ => runs.push((page, page + 1)),
            }
        }
        at += len as u64;
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_in_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 3 * 4096 + 5]).unwrap();
        let pages = (3 * 4096 + 5u64).div_ceil(page_size());
        assert_eq!(resident(file.path()).unwrap(), [(0, pages)]);
        std::fs::write(file.path(), b"").unwrap();
        assert_eq!(resident(file.path()).unwrap(), []);
    }
}
