//! Requests about snapshots to a mounted volume: ioctls of ours, which reach the server of the mount
//! through FUSE.

use rustix::fs::{AtFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IO('s', 0x53)`: no argument.
pub const TAKE_SNAPSHOT: u32 = 0x7353;

/// `_IOR('s', 0x54, struct listed[20])`: 24 bytes for each snapshot, zeros behind the last.
pub const LIST_SNAPSHOTS: u32 = 0x81E0_7354;

/// `_IO('s', 0x55)`: no argument.
pub const RELEASE_SNAPSHOT: u32 = 0x7355;

/// The most snapshots that a volume may have.
const MOST: usize = 20;

const _: () = assert!(LIST_SNAPSHOTS >> 16 & 0x3FFF == (MOST * Listed::BYTES) as u32);

/// A snapshot of a mounted volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The file's inode number.
    pub inode: u64,
    /// Time of the superblock in it, in seconds of the epoch.
    pub made: i64,
    /// Bytes of the volume that only the file takes.
    pub held: u64,
}

impl Listed {
    /// Bytes of an entry: three numbers in the byte order of the machine.
    const BYTES: usize = 24;

    /// The entries of a reply, and zeros behind them. Entries that the reply has no room for are left
    /// out.
    #[must_use]
    pub fn encode(all: &[Self]) -> Vec<u8> {
        let mut bytes = vec![0; MOST * Self::BYTES];
        for (to, entry) in bytes.chunks_exact_mut(Self::BYTES).zip(all) {
            let numbers =
                [entry.inode.to_ne_bytes(), entry.made.to_ne_bytes(), entry.held.to_ne_bytes()];
            to.copy_from_slice(numbers.as_flattened());
        }
        bytes
    }

    /// The entries of a reply, up to the first one of zeros.
    fn decode(reply: &[u8]) -> Vec<Self> {
        let (entries, _) = reply.as_chunks::<{ Self::BYTES }>();
        let entries = entries.iter().map(|entry| {
            let (numbers, _) = entry.as_chunks::<8>();
            let number = |at: usize| numbers.get(at).copied().unwrap_or_default();
            Self {
                inode: u64::from_ne_bytes(number(0)),
                made: i64::from_ne_bytes(number(1)),
                held: u64::from_ne_bytes(number(2)),
            }
        });
        entries.take_while(|entry| entry.inode != 0).collect()
    }
}

/// Asks the file system of an empty file to convert it into a snapshot of itself.
///
/// # Errors
/// The ioctl's error: `ENOTTY` for a file system that does not support the request, `EOPNOTSUPP` for a
/// format without snapshots, `ENOSPC`, `EPERM`.
pub fn take_snapshot(file: &File) -> io::Result<()> {
    request(file, TAKE_SNAPSHOT)?;
    // The kernel has the attributes of the empty file in its cache, and asks for them again. The
    // snapshot is taken, whatever comes of that.
    let (flags, mask) = (AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    let _ = rustix::fs::statx(file, "", flags, mask);
    Ok(())
}

/// Asks the file system of a snapshot to make it an empty file. Nobody else must have it open
/// ([`take_write_lease`]).
///
/// # Errors
/// As [`take_snapshot`]; `EINVAL` for a file that is no snapshot.
pub fn release_snapshot(file: &File) -> io::Result<()> {
    request(file, RELEASE_SNAPSHOT)
}

/// Of `asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// Takes a lease of a file that nobody else has open (`F_SETLEASE` of `fcntl(2)`): only the kernel
/// knows that of a file which FUSE serves. Until `file` is closed, others who open it wait, or fail
/// with `EWOULDBLOCK`.
///
/// # Errors
/// `EBUSY` for a file that others have open, `EACCES` for one of another user.
pub fn take_write_lease(file: &File) -> io::Result<()> {
    // An open by another process must not end this one, as SIGIO would.
    for (command, value) in
        [(F_SETSIG, libc::SIGURG), (libc::F_SETLEASE, libc::c_int::from(libc::F_WRLCK))]
    {
        // SAFETY: takes a number and touches no memory of ours.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, value) } < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EAGAIN) => io::Error::from_raw_os_error(libc::EBUSY),
                _ => error,
            });
        }
    }
    Ok(())
}

/// A request without an argument.
fn request(file: &File, request: u32) -> io::Result<()> {
    // SAFETY: takes no argument and touches no memory of ours.
    let failed = unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks the file system of a file or directory for its snapshots, oldest first.
///
/// # Errors
/// The ioctl's error: `ENOTTY` for a file system that does not support the request, `EOPNOTSUPP` for a
/// format without snapshots.
pub fn list_snapshots(file: &File) -> io::Result<Vec<Listed>> {
    let mut reply = [0u8; MOST * Listed::BYTES];
    let request = LIST_SNAPSHOTS as libc::Ioctl;
    // SAFETY: the kernel writes at most the bytes that are encoded in the request, and these are
    // those of the reply.
    let failed = unsafe { libc::ioctl(file.as_raw_fd(), request, reply.as_mut_ptr()) } < 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(Listed::decode(&reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_what_was_put_into_it() {
        let of = |n: u64| Listed { inode: n + 3, made: 1_700_000_000 - n as i64, held: n << 40 };
        for count in [0, 1, 19, 20] {
            let all: Vec<Listed> = (0..count).map(of).collect();
            let reply = Listed::encode(&all);
            assert_eq!(reply.len(), 480);
            assert_eq!(Listed::decode(&reply), all);
        }
    }
}
