//! Opens files so that accesses through the descriptor do not change their times
//! (`XFS_IOC_FD_TO_HANDLE`, `XFS_IOC_OPEN_BY_HANDLE`: `fs/xfs/xfs_handle.c`).

use super::{READ, WRITE, number};
use rustix::io::FdFlags;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// `struct xfs_fsop_handlereq`.
#[repr(C)]
struct HandleRequest {
    fd: u32,
    path: *const u8,
    open_flags: u32,
    handle_in: *const u8,
    handle_in_len: u32,
    handle_out: *mut u8,
    handle_out_len: *mut u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<HandleRequest>() == 56);

const XFS_IOC_FD_TO_HANDLE: libc::Ioctl = number::<HandleRequest>(READ | WRITE, 106);
const XFS_IOC_OPEN_BY_HANDLE: libc::Ioctl = number::<HandleRequest>(READ | WRITE, 107);

/// Size of `struct xfs_handle`: identifiers of the file system and of the file.
const HANDLE_LEN: usize = 24;

/// Opens the regular file `file` again, for reading and writing, on the mount that contains the
/// directory `on`. Accesses through the new descriptor change none of its times; those of others
/// change them as always. Does not wait for leases of other processes.
///
/// # Errors
/// `ETXTBSY` for a running program, `EPERM` (immutable or append-only; without CAP_SYS_ADMIN),
/// `EWOULDBLOCK` (leased), `ESTALE` (removed), `ENOTTY` (no XFS).
pub fn open_keeping_times(on: &File, file: &File) -> io::Result<File> {
    let mut handle = [0_u8; HANDLE_LEN];
    let mut len = HANDLE_LEN as u32;
    let mut request = HandleRequest {
        fd: file.as_raw_fd().cast_unsigned(),
        path: std::ptr::null(),
        open_flags: 0,
        handle_in: std::ptr::null(),
        handle_in_len: 0,
        handle_out: handle.as_mut_ptr(),
        handle_out_len: &raw mut len,
    };
    // SAFETY: the kernel reads one `struct xfs_fsop_handlereq`, which `request` is, and
    // writes a handle of 24 bytes and its length, for which there is room; all outlive the
    // call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_FD_TO_HANDLE, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    if len as usize != HANDLE_LEN {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let mut request = HandleRequest {
        fd: 0,
        path: std::ptr::null(),
        open_flags: (libc::O_RDWR | libc::O_NONBLOCK | libc::O_LARGEFILE).cast_unsigned(),
        handle_in: handle.as_ptr(),
        handle_in_len: len,
        handle_out: std::ptr::null_mut(),
        handle_out_len: std::ptr::null_mut(),
    };
    // SAFETY: the kernel reads one `struct xfs_fsop_handlereq`, which `request` is, and
    // the `handle_in_len` bytes of the handle; both outlive the call.
    let fd = unsafe { libc::ioctl(on.as_raw_fd(), XFS_IOC_OPEN_BY_HANDLE, &raw mut request) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    // The call takes no O_CLOEXEC.
    rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC)?;
    Ok(file)
}
