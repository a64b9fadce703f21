//! Files opened by inode number (open_by_handle_at(2)).

use crate::HostError;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// `FILEID_INO32_GEN` of `include/linux/exportfs.h`: ext4's type of handle.
const INO_AND_GENERATION: i32 = 1;

/// `struct file_handle`, with room for a handle of that type.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    ino: u32,
    generation: u32,
}

const _: () = assert!(size_of::<Handle>() == 16);

/// The mode in which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// For fstat(2) only: opening a device has no effect (`O_PATH`).
    Look,
    /// For reading.
    Read,
    /// For reading and writing: `ETXTBSY` for a running program.
    ReadWrite,
}

/// Opens the file with this inode number and generation, whatever its name is, on the mounted file
/// system that contains `on`. Does not wait for leases of other processes.
///
/// # Errors
/// `ESTALE` if the file no longer exists, `EISDIR`, `ETXTBSY`, `EPERM` (immutable, append-only, or
/// without CAP_DAC_READ_SEARCH), `EWOULDBLOCK` (leased), `EOPNOTSUPP` (a file system without
/// handles).
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
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes an exclusive lock on `dir` until it is closed (flock(2)). Returns false if another process
/// has the lock.
///
/// # Errors
/// The system call's error.
pub fn lock(dir: &File) -> Result<bool, HostError> {
    match rustix::fs::flock(dir, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(HostError::new("flock", error)),
    }
}
