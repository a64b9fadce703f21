//! A file in memory, touched page by page (mmap(2)).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// A part of a file, mapped privately and read-only.
#[derive(Debug)]
pub struct Mapping {
    start: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size; `executable` maps
    /// it as programs and libraries are mapped.
    ///
    /// # Errors
    /// The system call's error, for example for a file on a file system mounted `noexec`.
    pub fn new(file: &File, offset: u64, len: usize, executable: bool) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let protection = libc::PROT_READ | if executable { libc::PROT_EXEC } else { 0 };
        // SAFETY: a fresh mapping at an address of the kernel's choice, never written through.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                protection,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, len })
    }

    /// Reads a byte, so that its page comes into memory. If the file has become shorter meanwhile,
    /// the kernel ends the process (SIGBUS).
    ///
    /// # Panics
    /// If the byte is outside of the mapping.
    #[must_use]
    pub fn touch(&self, at: usize) -> u8 {
        assert!(at < self.len, "byte {at} of {}", self.len);
        // SAFETY: within the mapping, which lives as long as `self` and is readable; other
        // processes may change the file, so the read is volatile.
        unsafe { self.start.cast::<u8>().add(at).read_volatile() }
    }

    /// One byte per page: the lowest bit tells whether the page is in memory (mincore(2)).
    pub(crate) fn resident(&self) -> io::Result<Vec<u8>> {
        let mut pages = vec![0u8; self.len.div_ceil(rustix::param::page_size())];
        // SAFETY: the range is the mapping's own, and `pages` has a byte for each of its pages.
        let failed = unsafe { libc::mincore(self.start, self.len, pages.as_mut_ptr()) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(pages) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used afterwards.
        unsafe { libc::munmap(self.start, self.len) };
    }
}
