//! Requests about the settings and the counters of a mounted volume: ioctls of ours, which reach the
//! server of the mount through FUSE.

use crate::check_request::{ioctl, words};
use std::fs::File;
use std::io;

/// `_IOW('s', 0x59, unsigned long long[6])`: the bits of those that change, the settings, and whether
/// counters become zero.
pub const ADJUST: u32 = 0x4030_7359;

/// `_IOR('s', 0x5A, char[8192])`: settings and counters as text, zeros behind it.
pub const READ_TEXT: u32 = 0xA000_735A;

/// `_IOR('s', 0x5B, char[8192])`: the same as JSON.
pub const READ_JSON: u32 = 0xA000_735B;

/// Numbers in a request for changes.
const WORDS: usize = 6;

/// Bytes of a text.
pub const TEXT_BYTES: usize = 8192;

const _: () = assert!(ADJUST >> 16 & 0x3FFF == WORDS as u32 * 8);
const _: () = assert!(READ_TEXT >> 16 & 0x3FFF == TEXT_BYTES as u32);
const _: () = assert!(READ_JSON >> 16 & 0x3FFF == TEXT_BYTES as u32);

/// The settings of a mounted volume that change, and whether its counters become zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adjustment {
    /// Most pending changes.
    pub max_softdeps: Option<u64>,
    /// Ticks of a hundredth of a second that callers are delayed above that.
    pub tickdelay: Option<u64>,
    /// Maximum number of bytes kept to undo pending changes with.
    pub max_undo: Option<u64>,
    /// Bytes of the block cache.
    pub cache: Option<u64>,
    /// Counters become zero.
    pub zero_counters: bool,
}

impl Adjustment {
    /// A request, from its bytes.
    #[must_use]
    pub fn decode(request: &[u8]) -> Option<Self> {
        let mut words = words(request);
        let given = words.next()?;
        let mut bit = 1;
        let mut next = || {
            let word = words.next()?;
            let is_given = given & bit != 0;
            bit <<= 1;
            Some(is_given.then_some(word))
        };
        let [max_softdeps, tickdelay, max_undo, cache] = [next()?, next()?, next()?, next()?];
        let is_known = given < bit;
        let zero_counters = match words.next()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        is_known.then_some(Self { max_softdeps, tickdelay, max_undo, cache, zero_counters })
    }

    fn encode(self) -> [u64; WORDS] {
        let Self { max_softdeps, tickdelay, max_undo, cache, zero_counters } = self;
        let settings = [max_softdeps, tickdelay, max_undo, cache];
        let given = (0..).zip(settings).map(|(bit, setting)| u64::from(setting.is_some()) << bit);
        let [first, second, third, fourth] = settings.map(Option::unwrap_or_default);
        [given.sum(), first, second, third, fourth, zero_counters.into()]
    }
}

/// Asks the file system of a directory to change settings.
///
/// # Errors
/// The ioctl's error: `ENOTTY` for a file system that does not support the request, `EPERM`, `EINVAL`
/// for a value out of its range, `EOPNOTSUPP` for a limit of soft updates on a volume without them.
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
        let set = |bits: u64, bit: u32, value: u64| (bits >> bit & 1 != 0).then_some(value);
        for bits in 0..32 {
            let request = Adjustment {
                max_softdeps: set(bits, 0, u64::MAX),
                tickdelay: set(bits, 1, 100),
                max_undo: set(bits, 2, 0),
                cache: set(bits, 3, 1 << 40),
                zero_counters: set(bits, 4, 1).is_some(),
            };
            let bytes = request.encode().map(u64::to_ne_bytes);
            assert_eq!(Adjustment::decode(bytes.as_flattened()), Some(request));
            assert_eq!(Adjustment::decode(&bytes.as_flattened()[..47]), None);
        }
        for unknown in [[16u64, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2]] {
            let bytes = unknown.map(u64::to_ne_bytes);
            assert_eq!(Adjustment::decode(bytes.as_flattened()), None, "{unknown:?}");
        }
    }
}
