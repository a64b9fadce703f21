//! Opens of regular files of a whole file system, by inode number: fanotify(7) with
//! `FAN_REPORT_FID`. No file is opened for an event, so other processes are not disturbed.

use crate::HostError;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use std::os::fd::AsFd;
use std::path::Path;

/// `FAN_REPORT_FID` (`include/uapi/linux/fanotify.h`), since Linux 5.1.
const FAN_REPORT_FID: u32 = 0x200;
/// `FAN_EVENT_INFO_TYPE_FID`.
const INFO_FID: u8 = 1;
/// `FILEID_INO32_GEN` (`include/linux/exportfs.h`): ext4's type of handle.
const INO_AND_GENERATION: i32 = 1;
/// `FAN_Q_OVERFLOW`.
const OVERFLOW: u64 = 0x4000;
/// Buffer size per read, in bytes.
const BUFFER: usize = 64 << 10;

/// A file that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Process number.
    pub pid: u32,
    /// Inode number.
    pub ino: u32,
    /// Generation of the inode.
    pub generation: u32,
}

/// A watch on all opens of a file system. The kernel queues at most
/// `/proc/sys/fs/fanotify/max_queued_events` events (16,384 by default).
#[derive(Debug)]
pub struct Opens {
    group: Fanotify,
    buffer: Vec<u8>,
    /// Number of overflows of the queue, each of which lost events.
    pub lost: u64,
}

impl Opens {
    /// Watches the file system that contains `path`.
    ///
    /// # Errors
    /// Without the right to (CAP_SYS_ADMIN), on a kernel without `FAN_REPORT_FID`, or on
    /// a file system whose files have no handles.
    pub fn new(path: &Path) -> Result<Self, HostError> {
        let failed = |error: nix::Error| {
            let what = format!("fanotify on {}", path.display());
            HostError::new(what, std::io::Error::from(error))
                .advise_rights("watching a file system needs root or CAP_SYS_ADMIN")
        };
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let flags = flags | InitFlags::from_bits_retain(FAN_REPORT_FID);
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY).map_err(failed)?;
        let marks = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        group.mark(marks, MaskFlags::FAN_OPEN, rustix::fs::CWD, Some(path)).map_err(failed)?;
        Ok(Self { group, buffer: vec![0; BUFFER], lost: 0 })
    }

    /// Appends pending opens, without waiting. Returns whether the read gave events.
    ///
    /// # Errors
    /// The system call's error.
    pub fn read(&mut self, opened: &mut Vec<Opened>) -> Result<bool, HostError> {
        let len = match rustix::io::read(self.group.as_fd(), &mut self.buffer) {
            Ok(len) => len,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(HostError::new("fanotify", error)),
        };
        let mut rest = self.buffer.get(..len).unwrap_or_default();
        while let Some((event, behind)) = next(rest) {
            rest = behind;
            self.lost += u64::from(event.mask & OVERFLOW != 0);
            opened.extend(event.opened);
        }
        Ok(len > 0)
    }

    /// Waits for events, at most `millis` milliseconds.
    pub fn wait(&self, millis: u16) {
        use nix::poll::{PollFd, PollFlags, poll};
        let _ = poll(&mut [PollFd::new(self.group.as_fd(), PollFlags::POLLIN)], millis);
    }
}

struct Parsed {
    mask: u64,
    opened: Option<Opened>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Parses the first event (`struct fanotify_event_metadata` with a `struct
/// fanotify_event_info_fid`). Returns it and the remaining bytes.
fn next(bytes: &[u8]) -> Option<(Parsed, &[u8])> {
    let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let start = usize::from(u16_at(bytes, 6)?);
    let (event, behind) = (bytes.get(..len)?, bytes.get(len..)?);
    if len < 24 || start < 24 {
        return None;
    }
    let mask = u64::from(u32_at(event, 8)?) | u64::from(u32_at(event, 12)?) << 32;
    let pid = u32_at(event, 20)?;
    let info = event.get(start..).unwrap_or_default();
    Some((
        Parsed {
            mask,
            opened: file(info).map(|(ino, generation)| Opened { pid, ino, generation }),
        },
        behind,
    ))
}

/// Inode number and generation of an event's file.
fn file(info: &[u8]) -> Option<(u32, u32)> {
    // Header 4 bytes, file system identifier 8, then `struct file_handle`.
    let is_file = *info.first()? == INFO_FID
        && u32_at(info, 12)? >= 8
        && u32_at(info, 16)? == INO_AND_GENERATION.cast_unsigned();
    is_file.then(|| Some((u32_at(info, 20)?, u32_at(info, 24)?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn event(pid: u32, ino: u32, kind: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(52u32.to_ne_bytes());
        bytes.extend([3, 0]);
        bytes.extend(24u16.to_ne_bytes());
        bytes.extend(0x20u64.to_ne_bytes());
        bytes.extend((-1i32).to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend([INFO_FID, 0, 28, 0]);
        bytes.extend([9; 8]);
        bytes.extend(8u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(ino.to_ne_bytes());
        bytes.extend(77u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn events_are_taken_apart() {
        let bytes = [event(5, 12, 1), event(6, 13, 2), event(7, 14, 1)].concat();
        let mut rest = &bytes[..];
        let mut found = Vec::new();
        while let Some((parsed, behind)) = next(rest) {
            rest = behind;
            found.extend(parsed.opened);
        }
        let opened = |pid, ino| Opened { pid, ino, generation: 77 };
        assert_eq!(found, [opened(5, 12), opened(7, 14)]);
        for len in 0..52 {
            assert!(next(&bytes[..len]).is_none());
        }
    }

    #[test]
    fn opens_are_heard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let mut opens = match Opens::new(dir.path()) {
            Ok(opens) => opens,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let file = std::fs::File::open(&path).unwrap();
        let ino = u32::try_from(file.metadata().unwrap().ino()).unwrap();
        let mut heard = Vec::new();
        while opens.read(&mut heard).unwrap() {}
        let own = heard.iter().filter(|one| one.ino == ino && one.pid == std::process::id());
        assert!(own.count() == 1 || crate::mounts::holding(&path).unwrap().fs_type != "ext4");
    }
}
