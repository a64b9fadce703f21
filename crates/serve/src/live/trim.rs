//! `FITRIM`, by which `fstrim` has a file system tell its device of free blocks (`struct
//! fstrim_range`; Linux `include/uapi/linux/fs.h`).

use crate::kernel::errno;
use crate::volume::Volume;
use fuser::{Errno, ReplyIoctl};
use seekless_device::DeviceError;
use seekless_fs::FsError;
use seekless_fs::operate::Trim;

/// `_IOWR('X', 121, struct fstrim_range)`.
pub(super) const FITRIM: u32 = 0xC018_5879;

/// `EUCLEAN`, for which fuser has no name.
const EUCLEAN: i32 = 117;

/// Serves a request on a thread of its own, for others to be served meanwhile.
pub(super) fn answer(volume: &Volume, data: &[u8], reply: ReplyIoctl) {
    let volume = volume.clone();
    let asked = Asked::of(data);
    let serve = move || {
        let done = asked.and_then(|asked| {
            volume.trim(asked.trim()).map(|trimmed| asked.told(trimmed)).map_err(refused)
        });
        match done {
            Ok(told) => reply.ioctl(0, &told),
            Err(error) => reply.error(error),
        }
    };
    // Without a thread, the reply is dropped with the closure: EIO.
    let _ = std::thread::Builder::new().spawn(serve);
}

/// The error of a device is passed on: one without discards has EOPNOTSUPP.
fn refused(error: FsError) -> Errno {
    match error {
        FsError::Refused(_) => Errno::from_i32(EUCLEAN),
        FsError::Device(DeviceError::Io { ref source, .. }) => match source.raw_os_error() {
            Some(number) => Errno::from_i32(number),
            None => errno(error),
        },
        error => errno(error),
    }
}

/// A request, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    start: u64,
    len: u64,
    least: u64,
}

impl Asked {
    fn of(data: &[u8]) -> Result<Self, Errno> {
        match data.as_chunks::<8>() {
            ([start, len, least], []) => Ok(Self {
                start: u64::from_ne_bytes(*start),
                len: u64::from_ne_bytes(*len),
                least: u64::from_ne_bytes(*least),
            }),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The range that is requested. One that ends behind all volumes ends with the volume.
    fn trim(self) -> Trim {
        let end = self.start.saturating_add(self.len);
        Trim { next: self.start, end, least: self.least, trimmed: 0 }
    }

    /// The answer: in place of the length the number of bytes.
    fn told(self, trimmed: u64) -> Vec<u8> {
        [self.start, trimmed, self.least].map(u64::to_ne_bytes).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_form_of_the_request() {
        let bytes = [7u64, u64::MAX, 4096].map(u64::to_ne_bytes).concat();
        let asked = Asked::of(&bytes).unwrap();
        assert_eq!(asked, Asked { start: 7, len: u64::MAX, least: 4096 });
        let told = Asked::of(&asked.told(99)).unwrap();
        assert_eq!(told, Asked { len: 99, ..asked });
        let range = asked.trim();
        assert_eq!((range.next, range.end, range.least, range.trimmed), (7, u64::MAX, 4096, 0));
        assert_eq!(Asked::of(&bytes[1..]), Err(Errno::EINVAL));
        assert_eq!(Asked::of(&[0; 32]), Err(Errno::EINVAL));
    }
}
