//! Requests to a mounted volume that was checked through a snapshot: ioctls of ours, which reach the
//! server of the mount through FUSE.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOR('s', 0x58, unsigned long long)`: the number of the check that begins.
pub const BEGIN_CHECK: u32 = 0x8008_7358;

/// `_IOW('s', 0x56, unsigned long long[510])`: the number of the check, the number of corrections, and
/// three numbers for each of these.
pub const CORRECT: u32 = 0x4FF0_7356;

/// `_IOW('s', 0x57, unsigned long long[2])`: the number of the check, and whether the volume is sound
/// now.
pub const END_CHECK: u32 = 0x4010_7357;

/// The most corrections of a request.
pub const MOST_CORRECTIONS: usize = (WORDS - 2) / 3;

/// Numbers in a request for corrections.
const WORDS: usize = 510;

const _: () = assert!(CORRECT >> 16 & 0x3FFF == (WORDS * 8) as u32);

/// A correction: its kind, and two numbers that depend on that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// The kind.
    pub kind: u64,
    /// What is corrected.
    pub of: u64,
    /// By how much.
    pub by: u64,
}

/// A request for corrections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corrected {
    /// The number of the check that asks for them.
    pub check: u64,
    /// Up to [`MOST_CORRECTIONS`] of them.
    pub some: Vec<Encoded>,
}

impl Corrected {
    /// A request, from its bytes.
    #[must_use]
    pub fn decode(request: &[u8]) -> Option<Self> {
        let mut words = words(request);
        let (check, count) = (words.next()?, usize::try_from(words.next()?).ok()?);
        if count > MOST_CORRECTIONS {
            return None;
        }
        let mut next =
            || Some(Encoded { kind: words.next()?, of: words.next()?, by: words.next()? });
        let some = (0..count).map(|_| next()).collect::<Option<_>>()?;
        Some(Self { check, some })
    }

    fn encode(&self) -> [u64; WORDS] {
        assert!(self.some.len() <= MOST_CORRECTIONS, "{} corrections", self.some.len());
        let corrections = self.some.iter().flat_map(|one| [one.kind, one.of, one.by]);
        let head = [self.check, self.some.len() as u64];
        let mut words = [0; WORDS];
        for (to, word) in words.iter_mut().zip(head.into_iter().chain(corrections)) {
            *to = word;
        }
        words
    }
}

/// The number of a check that ends, and whether the volume is sound, from the bytes of a request.
#[must_use]
pub fn decode_end(request: &[u8]) -> Option<(u64, bool)> {
    let mut words = words(request);
    Some((words.next()?, words.next()? != 0))
}

/// Numbers in the byte order of the machine.
pub(crate) fn words(request: &[u8]) -> impl Iterator<Item = u64> {
    request.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

/// Asks the file system of a directory for the number of a check, before a snapshot is taken for it.
/// Corrections of earlier checks are refused from then on: the new one may find the same.
///
/// # Errors
/// The ioctl's error: `ENOTTY` for a file system that does not support the request, `EPERM`.
pub fn begin_check(root: &File) -> io::Result<u64> {
    let mut check = 0u64;
    ioctl(root, BEGIN_CHECK, (&raw mut check).cast())?;
    Ok(check)
}

/// Asks the file system of a directory to make corrections.
///
/// # Errors
/// As [`begin_check`]; `EOPNOTSUPP` for a format without snapshots or another correction, `EBUSY`
/// while the volume is being recovered, `ECANCELED` after another check has begun.
pub fn correct(root: &File, request: &Corrected) -> io::Result<()> {
    ioctl(root, CORRECT, request.encode().as_mut_ptr().cast())
}

/// Tells the file system of a directory that a check has ended, and whether the volume is sound now.
///
/// # Errors
/// As [`correct`].
pub fn end_check(root: &File, check: u64, sound: bool) -> io::Result<()> {
    ioctl(root, END_CHECK, [check, u64::from(sound)].as_mut_ptr().cast())
}

/// `argument` has as many bytes as are encoded in the request.
pub(crate) fn ioctl(root: &File, request: u32, argument: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: the kernel reads or writes the bytes that are encoded in the request, and these are
    // those of the argument, which the caller keeps for as long.
    let failed = unsafe { libc::ioctl(root.as_raw_fd(), request as libc::Ioctl, argument) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_what_was_put_into_it() {
        for count in [0, 1, 168, 169] {
            let one = |n| Encoded { kind: n % 7, of: n << 33, by: u64::MAX - n };
            let request = Corrected { check: 99, some: (0..count).map(one).collect() };
            let words = request.encode();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(Corrected::decode(&bytes), Some(request));
            assert_eq!(Corrected::decode(&bytes[..24 * count as usize + 8]), None);
        }
        let [check, count] = [1, MOST_CORRECTIONS as u64 + 1].map(u64::to_ne_bytes);
        assert_eq!(Corrected::decode(&[&check[..], &count, &[0; 8000]].concat()), None);
        assert_eq!(decode_end(&[check, check].concat()), Some((1, true)));
        assert_eq!(decode_end(&check), None);
    }
}
