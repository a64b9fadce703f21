//! Files opened by inode number (open_by_handle_at(2)).

use crate::HostError;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// `FILEID_INO32_GEN` of `include/linux/exportfs.h`: what ext4 gives out.
const INO_AND_GENERATION: i32 = 1;

/// `struct file_handle`, with room for such a handle.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    ino: u32,
    generation: u32,
}

const _: () = assert!(size_of::<Handle>() == 16);

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Only to ask what it is: nothing happens to a device (`O_PATH`).
    Look,
    /// For reading.
    Read,
    /// For reading and writing: `ETXTBSY` where it is a program that runs.
    ReadWrite,
}

/// Opens the file with this inode number and generation, whatever its name is, of the
/// mounted file system that `on` lies on. A lease of another process is not waited for.
///
/// # Errors
/// `ESTALE` when there is none any more, `EISDIR`, `ETXTBSY`, `EPERM` (immutable, only to
/// be appended to, or without CAP_DAC_READ_SEARCH), `EWOULDBLOCK` (leased),
/// `EOPNOTSUPP` (a file system without handles).
pub fn open(on: &File, ino: u32, generation: u32, access: Access) -> io::Result<File> {
    let mut handle = Handle { bytes: 8, kind: INO_AND_GENERATION, ino, generation };
    let access = match access {
        Access::Look => libc::O_PATH,
        Access::Read => libc::O_RDONLY,
        Access::ReadWrite => libc::O_RDWR,
    };
    let flags = access | libc::O_CLOEXEC | libc::O_NOATIME | libc::O_NONBLOCK;
    // SAFETY: the kernel reads a `struct file_handle` of `bytes` bytes, which `handle` is.
    let fd = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, on.as_raw_fd(), &raw mut handle, flags)
    };
    match i32::try_from(fd) {
        // SAFETY: a descriptor that was just made, of which nobody else knows.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps others off who ask for the same, until `dir` is closed (flock(2)). Whether
/// nobody had it.
///
/// # Errors
/// What the system says.
pub fn lock(dir: &File) -> Result<bool, HostError> {
    match rustix::fs::flock(dir, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(HostError::new("flock", error)),
    }
}
