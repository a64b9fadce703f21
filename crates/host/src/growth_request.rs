//! Requests for the growth of a mounted volume: an ioctl of ours, which reaches the server of the
//! mount through FUSE.

use crate::check_request::{ioctl, words};
use std::fs::File;
use std::io;

/// `_IOWR('s', 0x5C, char[1024])`: in, the bytes of the volume afterwards, or zero for all of its
/// device, and whether nothing is to be written; out, zero and the growth, or the number of a kind of
/// refusals and a text, zeros behind it.
pub const GROW: u32 = 0xC400_735C;

/// Bytes of a request, and of its answer.
const BYTES: usize = 1024;

const _: () = assert!(GROW >> 16 & 0x3FFF == BYTES as u32);

/// A request for a growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Bytes of the volume afterwards; those of its device if `None`.
    pub size: Option<u64>,
    /// Whether the growth is planned, and not made.
    pub dry_run: bool,
}

/// The growth of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grown {
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes afterwards.
    pub bytes: u64,
    /// Groups before.
    pub groups_before: u64,
    /// Groups afterwards.
    pub groups: u64,
    /// Whether the summary of the groups moves.
    pub summary_moves: bool,
    /// Bytes of the requested size that stay unused.
    pub unused: u64,
}

/// Why a volume does not grow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The kind of the error, as the two sides number them, from 1 on.
    pub kind: u64,
    /// The reason, of which up to 1,000 bytes are sent.
    pub why: String,
}

/// The answer to a request.
pub type Answer = Result<Grown, Refused>;

impl Asked {
    /// A request, from its bytes.
    #[must_use]
    pub fn decode(request: &[u8]) -> Option<Self> {
        let mut words = words(request);
        let size = words.next()?;
        let dry_run = match words.next()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self { size: (size > 0).then_some(size), dry_run })
    }

    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        put(&mut bytes, &[self.size.unwrap_or(0), u64::from(self.dry_run)]);
        bytes
    }
}

/// The bytes of an answer.
#[must_use]
pub fn encode(answer: &Answer) -> Vec<u8> {
    let mut bytes = [0; BYTES];
    match answer {
        Ok(grown) => {
            let Grown { bytes_before, bytes: after, groups_before, groups, .. } = *grown;
            let moves = u64::from(grown.summary_moves);
            put(&mut bytes, &[0, bytes_before, after, groups_before, groups, moves, grown.unused]);
        }
        Err(refused) => {
            debug_assert!(refused.kind > 0, "zero is no refusal");
            put(&mut bytes, &[refused.kind]);
            let most = refused.why.len().min(BYTES - 24);
            let text = (0..=most).rev().find_map(|len| refused.why.get(..len)).unwrap_or_default();
            bytes[8..8 + text.len()].copy_from_slice(text.as_bytes());
        }
    }
    bytes.to_vec()
}

fn decode(answer: &[u8]) -> Option<Answer> {
    let mut numbers = words(answer);
    let kind = numbers.next()?;
    if kind > 0 {
        let text = answer.get(8..)?.split(|&byte| byte == 0).next()?;
        return Some(Err(Refused { kind, why: String::from_utf8_lossy(text).into_owned() }));
    }
    Some(Ok(Grown {
        bytes_before: numbers.next()?,
        bytes: numbers.next()?,
        groups_before: numbers.next()?,
        groups: numbers.next()?,
        summary_moves: numbers.next()? != 0,
        unused: numbers.next()?,
    }))
}

fn put(bytes: &mut [u8], numbers: &[u64]) {
    for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_ne_bytes());
    }
}

/// Asks the file system of a directory to become larger.
///
/// # Errors
/// The ioctl's error: `ENOTTY` for a file system that does not support the request, `EPERM`;
/// [`io::ErrorKind::InvalidData`] for an answer of another version.
pub fn grow(root: &File, asked: Asked) -> io::Result<Answer> {
    let mut bytes = asked.encode();
    ioctl(root, GROW, bytes.as_mut_ptr().cast())?;
    decode(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_have_what_was_put_into_them() {
        for (size, dry_run) in [(None, false), (Some(1), true), (Some(u64::MAX), false)] {
            let asked = Asked { size, dry_run };
            assert_eq!(Asked::decode(&asked.encode()), Some(asked));
        }
        assert_eq!(Asked::decode(&[2; 16]), None);
        assert_eq!(Asked::decode(&[0; 15]), None);
        let grown = Grown {
            bytes_before: 1 << 40,
            bytes: u64::MAX,
            groups_before: 3,
            groups: 1 << 32,
            summary_moves: true,
            unused: 4095,
        };
        assert_eq!(decode(&encode(&Ok(grown))), Some(Ok(grown)));
        let refused = Refused { kind: 3, why: "no room (ümlaut)".into() };
        assert_eq!(decode(&encode(&Err(refused.clone()))), Some(Err(refused)));
    }

    #[test]
    fn a_long_reason_is_cut_off_between_characters() {
        for letters in 990..1100 {
            let why = "x".repeat(letters) + "üüüü";
            let refused = Refused { kind: 1, why: why.clone() };
            let sent = decode(&encode(&Err(refused))).unwrap().unwrap_err();
            assert!(why.starts_with(&sent.why) && sent.why.len() >= 999.min(why.len()));
        }
    }
}
