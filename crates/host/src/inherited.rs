//! File descriptors that the parent process left open for this one.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A copy of the descriptor with a number, which the process was started with.
///
/// # Errors
/// `EBADF` if no such descriptor is open.
pub fn inherited(number: i32) -> io::Result<File> {
    // SAFETY: makes a new descriptor, or fails for a number that is not open; it touches no memory.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made by the call above, so that nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(copy) }))
}

#[cfg(test)]
mod tests {
    use super::inherited;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_copy_leads_to_the_same_file() {
        let mut file = tempfile::tempfile().unwrap();
        inherited(file.as_raw_fd()).unwrap().write_all(b"told").unwrap();
        file.rewind().unwrap();
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, "told");
        assert_eq!(inherited(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
