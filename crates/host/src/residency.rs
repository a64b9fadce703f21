//! Which pages of a file are in memory (mincore(2)).

use crate::HostError;
use crate::mapping::Mapping;
use std::fs::File;
use std::io;
use std::path::Path;

/// Bytes of a file per call of mincore(2): the answers take 64 KiB.
const STRIDE: usize = 256 << 20;

/// The size of a page in bytes.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The runs of a regular file's pages that are in memory: first page and the page after the last.
///
/// # Errors
/// If the file cannot be opened or mapped, or the kernel reveals residency only to owners.
pub fn resident(path: &Path) -> Result<Vec<(u64, u64)>, HostError> {
    let failed = |error| HostError::new(path.display().to_string(), error);
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    resident_of(&file, 0, size).map_err(failed)
}

/// The runs of pages in memory among those of the `len` bytes from `start` on, as [`resident`];
/// `start` is a multiple of the page size.
///
/// # Errors
/// If the file cannot be mapped, or the kernel reveals residency only to owners.
pub fn resident_of(file: &File, start: u64, len: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let (mut at, end) = (start, start.saturating_add(len));
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(STRIDE);
        let pages = Mapping::new(file, at, len, false).and_then(|mapping| mapping.resident())?;
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

/// Drops the pages of these bytes that are clean and not in use (posix_fadvise(2)); of all bytes
/// from `start` on if `len` is 0.
///
/// # Errors
/// The system call's error.
pub fn evict(file: &File, start: u64, len: u64) -> io::Result<()> {
    let advice = rustix::fs::Advice::DontNeed;
    Ok(rustix::fs::fadvise(file, start, std::num::NonZeroU64::new(len), advice)?)
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
