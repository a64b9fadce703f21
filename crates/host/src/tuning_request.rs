//! Requests about the settings and the counters of a mounted volume: ioctls of ours, which reach the
//! server of the mount through FUSE.

use crate::check_request::{ioctl, words};
use std::fs::File;
use std::io;

/// `_IOW('s', 0x59, unsigned long long[4])`: which of them change, the limit, the ticks, and whether counters
/// become zero.
pub const ADJUST: u32 = 0x4020_7359;

/// `_IOR('s', 0x5A, char[8192])`: settings and counters as text, zeros behind it.
pub const READ_TEXT: u32 = 0xA000_735A;

/// `_IOR('s', 0x5B, char[8192])`: the same as JSON.
pub const READ_JSON: u32 = 0xA000_735B;

/// Bytes of a text.
pub const TEXT_BYTES: usize = 8192;

const _: () = assert!(ADJUST >> 16 & 0x3FFF == 4 * 8);
const _: () = assert!(READ_TEXT >> 16 & 0x3FFF == TEXT_BYTES as u32);
const _: () = assert!(READ_JSON >> 16 & 0x3FFF == TEXT_BYTES as u32);

/// The settings of a mounted volume that change, and whether its counters become zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adjustment {
    /// Most pending changes.
    pub max_softdeps: Option<u64>,
    /// Ticks of a hundredth of a second that callers are delayed above that.
    pub tickdelay: Option<u64>,
    /// Counters become zero.
    pub zero_counters: bool,
}

impl Adjustment {
    const MAX_SOFTDEPS: u64 = 1;
    const TICKDELAY: u64 = 2;

    /// A request, from its bytes.
    #[must_use]
    pub fn decode(request: &[u8]) -> Option<Self> {
        let mut words = words(request);
        let [given, max_softdeps, tickdelay, zero] =
            [words.next()?, words.next()?, words.next()?, words.next()?];
        let is_known = given & !(Self::MAX_SOFTDEPS | Self::TICKDELAY) == 0 && zero <= 1;
        is_known.then_some(Self {
            max_softdeps: (given & Self::MAX_SOFTDEPS != 0).then_some(max_softdeps),
            tickdelay: (given & Self::TICKDELAY != 0).then_some(tickdelay),
            zero_counters: zero == 1,
        })
    }

    fn encode(self) -> [u64; 4] {
        let is = |given: bool, bit: u64| if given { bit } else { 0 };
        [
            is(self.max_softdeps.is_some(), Self::MAX_SOFTDEPS)
                | is(self.tickdelay.is_some(), Self::TICKDELAY),
            self.max_softdeps.unwrap_or(0),
            self.tickdelay.unwrap_or(0),
            u64::from(self.zero_counters),
        ]
    }
}

/// Asks the file system of a directory to change settings.
///
/// # Errors
/// The ioctl's error: `ENOTTY` for a file system that does not support the request, `EPERM`, `EINVAL`
/// for a value that is not possible.
pub fn adjust(root: &File, adjustment: &Adjustment) -> io::Result<()> {
    ioctl(root, ADJUST, adjustment.encode().as_mut_ptr().cast())
}

/// The settings and the counters of the file system of a directory, as text or as JSON.
///
/// # Errors
/// As [`adjust`]; `EMSGSIZE` for a text that is too long; [`io::ErrorKind::InvalidData`] for one that
/// is no text.
pub fn statistics(root: &File, json: bool) -> io::Result<String> {
    let mut text = vec![0u8; TEXT_BYTES];
    ioctl(root, if json { READ_JSON } else { READ_TEXT }, text.as_mut_ptr().cast())?;
    let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(len);
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_what_was_put_into_it() {
        for max_softdeps in [None, Some(0), Some(u64::MAX)] {
            for (tickdelay, zero_counters) in [(None, true), (Some(2), false), (Some(100), true)] {
                let request = Adjustment { max_softdeps, tickdelay, zero_counters };
                let bytes = request.encode().map(u64::to_ne_bytes);
                assert_eq!(Adjustment::decode(bytes.as_flattened()), Some(request));
                assert_eq!(Adjustment::decode(&bytes.as_flattened()[..31]), None);
            }
        }
        let unknown = [4u64, 0, 0, 0].map(u64::to_ne_bytes);
        assert_eq!(Adjustment::decode(unknown.as_flattened()), None);
    }
}
